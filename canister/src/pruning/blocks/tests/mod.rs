//! Tests of the block pruner over a real chain.

use super::*;
use crate::chain::Admission;
use crate::operation::health::{Finding, blocks};
use crate::platform::limits::NS;
use crate::platform::{self, native};
use crate::pruning::budget::Budget;
use crate::storage::memory;
use crate::testing::{block, fresh, id};
use coppice_interface::{
    Config, HeldBy, ProblemCode, PruneError, PrunePolicyArg, PruneProgress, PruneReason, PruneRun, PruneStatus,
    StopReason, SweepPhase,
};

mod capacity;
mod caps;
mod exporters;
mod full;
mod plan;
mod records;
mod retention;
mod run;
mod sweep;

const CLASS: u32 = 64 << 10;
const DAY: u64 = 86_400;

struct World {
    chain: ChainStore,
    blobs: BlobStore,
    pruner: Pruner,
    constraints: Constraints,
}

/// Returns the default policy after a change, for a chain.
fn changed(change: &PrunePolicyArg, chain: &ChainStore) -> PrunePolicy {
    let config = Config { log_class: chain.log_class().size(), ..Config::default() };
    policy::changed(&PrunePolicy::default(), change, &config).unwrap()
}

fn world(policy: PrunePolicyArg) -> World {
    world_of(CLASS, policy)
}

fn world_of(log_class: u32, policy: PrunePolicyArg) -> World {
    let (chain, blobs) = fresh(log_class);
    let cells = Rc::new(crate::testing::space(memory::CELLS));
    let mut pruner = Pruner::open(cells).unwrap();
    pruner.set_policy(changed(&policy, &chain));
    World {
        chain,
        blobs,
        pruner,
        constraints: Constraints { exported: None, applying: None, stopped_since: None, min_liquid_cycles: 0 },
    }
}

impl World {
    /// Appends blocks with a body of `body` bytes, one every `secs` seconds; advances the time.
    fn append(&mut self, blocks: u64, body: usize, secs: u64) {
        for _ in 0..blocks {
            let number = self.chain.state().next;
            native::with(|world| world.time_ns += secs * 1_000_000_000);
            let mut block = block(number, &[id(number)], body);
            block.timestamp_secs = platform::time_secs();
            self.chain.append(&mut self.blobs, &block, &Admission::default(), platform::time_secs()).unwrap();
        }
    }

    fn set_policy(&mut self, policy: PrunePolicyArg) {
        self.pruner.set_policy(changed(&policy, &self.chain));
    }

    fn due(&self) -> Option<(PruneReason, u64)> {
        let due = self.pruner.due(&self.chain, &self.blobs, self.constraints.guard().as_ref());
        due.map(|due| (due.reason, due.before))
    }

    fn prune(&mut self, ops: u64) -> PruneRun {
        self.pruner.prune_now(&mut self.chain, &mut self.blobs, self.constraints.guard().as_ref(), ops).unwrap()
    }

    fn tick(&mut self) {
        self.pruner.tick(&mut self.chain, &mut self.blobs, &self.constraints, u64::MAX);
    }

    fn status(&self) -> PruneStatus {
        self.pruner.status(&self.chain, &self.blobs, &self.constraints)
    }

    fn hold_at(&mut self, before: u64) {
        self.constraints.exported = guard(before);
    }

    fn plan(&self) -> coppice_interface::PrunePlan {
        self.pruner.plan(&self.chain, &self.blobs, &self.constraints, None).unwrap()
    }

    /// Returns the problems with sentences, as `health` asks, and asserts that a check without sentences finds the same codes.
    fn problems(&self) -> Vec<Finding> {
        let due = self.pruner.due(&self.chain, &self.blobs, self.constraints.guard().as_ref());
        let stores = (&self.pruner, &self.chain, &self.blobs);
        let of = |worded| blocks::due(stores, || self.constraints.clone(), due.as_ref(), worded);
        let (worded, noted) = (of(true), of(false));
        let codes = |found: &[Finding]| found.iter().map(|found| (found.code, found.since)).collect::<Vec<_>>();
        assert_eq!(codes(&worded), codes(&noted));
        worded
    }

    fn export_held(&self) -> Option<Finding> {
        self.problems().into_iter().find(|found| found.code == ProblemCode::ExportHeld)
    }

    fn exhausted(&self) -> Option<HeldBy> {
        self.pruner.exhausted(&self.chain, &self.blobs, || self.constraints.clone())
    }

    fn oldest(&self) -> u64 {
        self.chain.state().oldest
    }
}

fn policy() -> PrunePolicyArg {
    PrunePolicyArg { min_kept_blocks: Some(0), ..PrunePolicyArg::default() }
}

fn guard(before: u64) -> Option<Guard> {
    Some(Guard { before, held_by: HeldBy::Exporter("slow".into()) })
}

impl World {
    /// Appends blocks of `ids` transactions each without advancing the time.
    fn append_ids(&mut self, blocks: u64, ids: u64) {
        for _ in 0..blocks {
            let number = self.chain.state().next;
            let ids: Vec<_> = (0..ids).map(|i| id(number << 20 | i)).collect();
            let mut block = block(number, &ids, 10);
            block.timestamp_secs = platform::time_secs();
            self.chain.append(&mut self.blobs, &block, &Admission::default(), platform::time_secs()).unwrap();
        }
    }

    fn tick_next(&mut self) -> u64 {
        self.pruner.tick(&mut self.chain, &mut self.blobs, &self.constraints, u64::MAX)
    }

    fn wait(&self, secs: u64) {
        native::with(|world| world.time_ns += secs * NS);
    }

    fn called(&mut self) {
        self.pruner.last_call = platform::time_ns();
    }
}

impl Pruner {
    /// Switches pruning on or off by the policy.
    fn switch(&mut self, pruning_enabled: bool) {
        let policy = self.policy().cloned().unwrap_or_default();
        self.set_policy(PrunePolicy { pruning_enabled, ..policy });
    }
}
