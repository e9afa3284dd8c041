//! Test fixture: the records pruner over a store of records, with shortcuts.

use crate::deletion::DeletionQueue;
use crate::external::Records;
use crate::pruning::UtxoPruner;
use crate::testing::{Tx, World, block, mined, raw};
use ic_coppice_interface::*;
use ic_coppice_storage::testing::{hash_key, overwrite};
use ic_coppice_storage::{NS, twin};
use std::ops::{Deref, DerefMut};

/// Seconds after which a tick counts as late.
const PATIENCE_SECS: u64 = 60;

pub struct Service {
    pub w: World,
    pub queue: DeletionQueue,
    pub pruner: UtxoPruner,
}

impl Deref for Service {
    type Target = World;

    fn deref(&self) -> &World {
        &self.w
    }
}

impl DerefMut for Service {
    fn deref_mut(&mut self) -> &mut World {
        &mut self.w
    }
}

fn open() -> (DeletionQueue, UtxoPruner) {
    let cells = ic_coppice_storage::testing::cells();
    (
        DeletionQueue::open(&ic_coppice_storage::testing::arena(), hash_key()).unwrap(),
        UtxoPruner::open(&ic_coppice_storage::testing::arena(), cells).unwrap(),
    )
}

impl Service {
    /// Returns a service whose block assembly runs; the chain is at 1,000.
    pub fn new() -> Self {
        let w = World::new();
        let (queue, pruner) = open();
        let mut service = Self { w, queue, pruner };
        service.assembly(UtxoBlockAssemblyState::Running);
        service
    }

    /// Reports the block assembly, without a height.
    pub fn assembly(&mut self, state: UtxoBlockAssemblyState) {
        self.pruner.set_assembly(state, None, &self.w.settings);
    }

    pub fn reopen(&mut self) {
        self.w.reopen();
        (self.queue, self.pruner) = open();
    }

    pub fn with<T>(&mut self, run: impl FnOnce(&mut UtxoPruner, &mut Records) -> T) -> T {
        let Self { w: World { store, blobs, settings, .. }, queue, pruner } = self;
        run(pruner, &mut Records { utxo: store, blobs, deletions: queue, settings })
    }

    /// Does a tick, `secs` seconds later; late after a minute.
    pub fn tick(&mut self, secs: u64) {
        let now = twin::with(|world| {
            world.time_ns += secs * NS;
            world.time_ns
        });
        let due = self.pruner.next_tick_ns;
        let late = due > 0 && now >= due + PATIENCE_SECS * NS;
        self.with(|pruner, records| pruner.tick(records, false, late));
    }

    /// Changes the settings without the check that unmined transactions become old before their parents may be deleted.
    pub fn set(&mut self, change: UtxoPrunerSettingsChange) {
        let exempt = UtxoSettings { block_height_retention: 0, ..self.w.settings.clone() };
        self.pruner.set_settings(&change, &exempt).unwrap();
    }

    /// Notifies a height, ticks until no job is open, and returns the last job.
    pub fn prune(&mut self, height: u32) -> UtxoPruneJob {
        self.pruner.notify_block(height, true, false).unwrap();
        self.settle();
        self.status().last_job.unwrap()
    }

    pub fn settle(&mut self) {
        for _ in 0..1_000 {
            let status = self.status();
            if status.pending.is_none() && status.running.is_none() {
                return;
            }
            self.tick(1);
        }
        panic!("the pruner does not finish: {:?}", self.status());
    }

    pub fn status(&self) -> UtxoPrunerStatus {
        self.pruner.status(&self.w.settings, &self.queue)
    }

    /// Creates a record that is mined at 900.
    pub fn make_mined(&mut self, tx: &Tx) {
        let height = self.w.height.min(900);
        self.create(&UtxoCreate { mined: mined(&[block(900, height)]), is_new: true, ..raw(tx) }).unwrap();
    }

    /// Creates a mined record whose outputs are all spent at 1,000, so that it is due at 1,288.
    pub fn make_due(&mut self, tx: &Tx) {
        self.make_mined(tx);
        let by = Tx::of(77, &[(tx.txid, 0)], 1);
        let spends: Vec<_> = (0..tx.outputs.len() as u32).map(|vout| tx.spend(vout, vout)).collect();
        self.spend(&by, &spends).unwrap();
    }

    pub fn there(&self, tx: &Tx) -> bool {
        self.store.get(&UtxoGet { txid: tx.id(), first: 0, limit: 0, extra_pages_cursor: None }).is_ok()
    }

    /// Returns the slot of a record.
    pub fn slot(&self, tx: &Tx) -> u32 {
        self.store.slot_of(&tx.txid)
    }

    /// Damages a record so that its head cannot be decoded.
    pub fn damage(&self, slot: u32) {
        overwrite(slot, 0, &[9]);
    }

    /// Undoes [`damage`](Self::damage).
    pub fn heal(&self, slot: u32) {
        overwrite(slot, 0, &[1]);
    }
}
