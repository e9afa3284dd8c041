//! The block pruner over a chain, for tests.

#![allow(missing_docs)]

use super::{block, fresh, id};
use crate::export::Guard;
use crate::pruning::{Constraints, ExportHeld, Pruner, policy};
use crate::{Admission, ChainStore};
use ic_coppice_interface::{
    Config, HeldBy, PrunePlan, PrunePolicy, PrunePolicyArg, PruneReason, PruneRun, PruneStatus,
};
use ic_coppice_storage::blob::BlobStore;
use ic_coppice_storage::testing::cells;
use ic_coppice_storage::{Ic, NS, Platform as _, twin};

/// Bytes of a blob of the log.
pub const CLASS: u32 = 64 << 10;

/// A chain and its pruner.
pub struct World {
    pub chain: ChainStore,
    pub blobs: BlobStore,
    pub pruner: Pruner,
    pub constraints: Constraints,
}

/// Returns the default policy after a change, for a chain.
pub fn changed(change: &PrunePolicyArg, chain: &ChainStore) -> PrunePolicy {
    let config = Config { log_class: chain.log_class().size(), ..Config::default() };
    policy::changed(&PrunePolicy::default(), change, &config).unwrap()
}

pub fn world(policy: PrunePolicyArg) -> World {
    world_of(CLASS, policy)
}

pub fn world_of(log_class: u32, policy: PrunePolicyArg) -> World {
    let (chain, blobs) = fresh(log_class);
    let mut pruner = Pruner::open(cells()).unwrap();
    pruner.set_policy(changed(&policy, &chain));
    World {
        chain,
        blobs,
        pruner,
        constraints: Constraints { exported: None, applying: None, stopped_since: None, low_on_cycles: false },
    }
}

impl World {
    /// Appends blocks with a body of `body` bytes, one every `secs` seconds; advances the time.
    pub fn append(&mut self, blocks: u64, body: usize, secs: u64) {
        for _ in 0..blocks {
            let number = self.chain.state().next;
            twin::with(|world| world.time_ns += secs * 1_000_000_000);
            let mut block = block(number, &[id(number)], body);
            block.timestamp_secs = Ic::now_secs();
            self.chain.append(&mut self.blobs, &block, &Admission::default(), Ic::now_secs()).unwrap();
        }
    }

    pub fn set_policy(&mut self, policy: PrunePolicyArg) {
        self.pruner.set_policy(changed(&policy, &self.chain));
    }

    pub fn due(&self) -> Option<(PruneReason, u64)> {
        let due = self.pruner.due(&self.chain, &self.blobs, self.constraints.guard().as_ref());
        due.map(|due| (due.reason, due.before))
    }

    pub fn prune(&mut self, ops: u64) -> PruneRun {
        self.pruner.prune_now(&mut self.chain, &mut self.blobs, self.constraints.guard().as_ref(), ops).unwrap()
    }

    pub fn tick(&mut self) {
        self.pruner.tick(&mut self.chain, &mut self.blobs, &self.constraints, u64::MAX);
    }

    pub fn status(&self) -> PruneStatus {
        self.pruner.status(&self.chain, &self.blobs, &self.constraints)
    }

    pub fn hold_at(&mut self, before: u64) {
        self.constraints.exported = guard(before);
    }

    pub fn plan(&self) -> PrunePlan {
        self.pruner.plan(&self.chain, &self.blobs, &self.constraints, None).unwrap()
    }

    pub fn export_held(&self) -> Option<ExportHeld> {
        let due = self.pruner.due(&self.chain, &self.blobs, self.constraints.guard().as_ref())?;
        let held = self.pruner.export_held(&self.chain, &self.blobs, &due, true);
        let unworded = self.pruner.export_held(&self.chain, &self.blobs, &due, false);
        assert_eq!(unworded.is_some(), held.is_some());
        held
    }

    pub fn exhausted(&self) -> Option<HeldBy> {
        self.pruner.exhausted(&self.chain, &self.blobs, || self.constraints.clone())
    }

    pub fn oldest(&self) -> u64 {
        self.chain.state().oldest
    }
}

pub fn policy() -> PrunePolicyArg {
    PrunePolicyArg { min_kept_blocks: Some(0), timer_interval_secs: Some(60), ..PrunePolicyArg::default() }
}

pub fn guard(before: u64) -> Option<Guard> {
    Some(Guard { before, held_by: HeldBy::Exporter("slow".into()) })
}

impl World {
    /// Appends blocks of `ids` transactions each without advancing the time.
    pub fn append_ids(&mut self, blocks: u64, ids: u64) {
        for _ in 0..blocks {
            let number = self.chain.state().next;
            let ids: Vec<_> = (0..ids).map(|i| id(number << 20 | i)).collect();
            let mut block = block(number, &ids, 10);
            block.timestamp_secs = Ic::now_secs();
            self.chain.append(&mut self.blobs, &block, &Admission::default(), Ic::now_secs()).unwrap();
        }
    }

    pub fn tick_next(&mut self) -> u64 {
        self.pruner.tick(&mut self.chain, &mut self.blobs, &self.constraints, u64::MAX)
    }

    pub fn wait(&self, secs: u64) {
        twin::with(|world| world.time_ns += secs * NS);
    }

    pub fn called(&mut self) {
        self.pruner.last_call = Ic::now_ns();
    }
}

impl Pruner {
    /// Switches pruning on or off by the policy.
    pub fn switch(&mut self, pruning_enabled: bool) {
        let policy = self.policy().cloned().unwrap_or_default();
        self.set_policy(PrunePolicy { pruning_enabled, ..policy });
    }
}
