//! UTXO records in the state: their stores, calls of the record store, and what rollbacks, resets and settings of the chain mean for them.
//!
//! The build without the feature `records` has the same functions over stores without records, rows and uploads. It opens them and writes
//! nothing to them, and [`KEPT`] leaves out of the wasm what only records need.

mod apply_block;

use super::State;
use crate::logs;
use crate::platform;
use crate::settings::config;
use ic_coppice_chain::ChainStore;
use ic_coppice_interface::blocks::Note;
use ic_coppice_interface::{
    BLOB_SAFETY_WINDOW, Batch, Config, OpenTransaction, Owner, RollbackError, UtxoError, UtxoSettings, UtxoStorage,
};
pub use ic_coppice_records::RecordStores as Stores;
use ic_coppice_records::apply::AppliedNote;
use ic_coppice_records::deletion::Limits;
use ic_coppice_records::external::Records;
use ic_coppice_records::pruning::UtxoPruner;
use ic_coppice_records::utxo::{BatchItem, Call, RunWindow, UtxoStore};
use ic_coppice_storage::arena::Arena;
use ic_coppice_storage::{HashKey, Space};
use std::rc::Rc;

/// True if this build keeps UTXO records.
pub const KEPT: bool = cfg!(feature = "records");
/// Words for what feeders bring.
pub const FED: &str = if KEPT { "blocks, UTXO records and blobs to delete" } else { "blocks" };
/// Blocks that the check of a rollback reads at most, because an admin may roll back millions.
const MOST_CHECKED: u64 = 200_000;
/// Blocks below the head whose notes the storage status reads.
const MOST_SHOWN: u64 = 1_000;

/// Returns whether an owner of memory belongs to this build.
pub fn has_owner(owner: Owner) -> bool {
    KEPT || !matches!(owner, Owner::Records | Owner::External | Owner::Deletions | Owner::UtxoIndex)
}

/// Opens the stores of records, which must be empty in a build that keeps none.
///
/// # Errors
/// A sentence with what they keep, or with the store and its fault.
pub fn open(arena: &Arena, cells: &Rc<Space>, key: &HashKey) -> Result<Stores, String> {
    let stores = Stores::open(arena, cells, key)?;
    let kept = if KEPT { Vec::new() } else { stores.kept() };
    if kept.is_empty() {
        return Ok(stores);
    }
    Err(format!("this build of the canister keeps no UTXO records, and there are {}", kept.join(", ")))
}

/// The record store and all that its calls need.
pub struct AtHeight<'a> {
    /// The kept blocks.
    pub chain: &'a ChainStore,
    /// The record store, and the stores and settings that it uses.
    pub records: Records<'a>,
    /// The height, and the terms that depend on the time.
    pub call: Call<'a>,
}

impl AtHeight<'_> {
    /// Runs a batch of operations of the record store.
    pub fn batch<I: BatchItem<Result<T, E>>, T, R, E: From<R>>(
        self,
        items: &[I],
        mut each: impl FnMut(&mut UtxoStore, &I, &Call) -> Result<T, R>,
    ) -> Batch<Result<T, E>> {
        self.records.utxo.batch(items, |store, item| each(store, item, &self.call).map_err(E::from))
    }
}

impl State {
    /// The record pruner and the stores that it works on.
    pub fn utxo_pruner(&mut self) -> (&mut UtxoPruner, Records<'_>) {
        let Self { records, blobs, config, .. } = self;
        let Stores { utxo, deletions, pruner, .. } = records;
        (pruner, Records { utxo, blobs, deletions, settings: settings_of(config) })
    }

    /// Returns the record store and all that its calls need, for a call that names a height.
    pub fn records_at(&mut self, height: u32) -> AtHeight<'_> {
        let Self { records, blobs, config, chain, .. } = self;
        let Stores { utxo, applier, deletions, pruner } = records;
        let settings = settings_of(config);
        let (now_ns, most, missing) = (platform::time_ns(), pruner.most_height(), applier.missing());
        let call = Call { height, now_ns, settings, most, missing };
        AtHeight { chain, records: Records { utxo, blobs, deletions, settings }, call }
    }

    /// Applies the limits on records and on rows of the deletion queue. The cap on records depends on the policy's target, and the reserve
    /// above the cap moves only if the cap changes.
    pub(super) fn bound_records(&mut self) {
        let Some(utxo) = self.config.utxo.as_ref().filter(|_| KEPT) else { return };
        let cap = config::records_cap(&self.config, self.pruner.policy().map_or(0, |policy| policy.target_bytes));
        if cap != self.records_cap.cap {
            self.records_cap = config::RecordsCap { cap, kept: self.blobs.arena().touched_bytes() };
        }
        self.blobs.arena().set_quota(cap, self.records_cap.kept);
        self.records.deletions.limits = Limits {
            rows: utxo.max_deletion_rows,
            dead: utxo.max_dead_blob_deletions,
            leases: utxo.max_leases_per_holder,
            least_retries: utxo.least_retries,
        };
    }

    /// Records up to which height external blobs are due.
    pub fn note_due_blobs(&mut self, now_ns: u64) {
        if KEPT {
            let due = self.records.pruner.reached().checked_sub(BLOB_SAFETY_WINDOW).filter(|height| *height > 0);
            self.records.deletions.note_due(due, now_ns);
        }
    }

    /// Checks that no applied block above `number` lies at or below the pruned height. A block that is not checked counts as one that does.
    pub(super) fn check_complete(&self, number: u64, incomplete: bool) -> Result<(), RollbackError> {
        let pruned_height = self.records.utxo.pruned_height();
        // The pruned height does not rise during a rollback.
        if !KEPT || incomplete || pruned_height == 0 || self.chain.state().rollback_to == Some(number) {
            return Ok(());
        }
        let is_pruned = |note: &Note| AppliedNote::from(note).height <= pruned_height;
        let lowest = self.chain.newest_noted(number, MOST_CHECKED, is_pruned);
        lowest.map_or(Ok(()), |lowest| Err(RollbackError::Incomplete { lowest, pruned_height }))
    }

    /// Returns the lowest block to which a rollback restores all records, from so many blocks below the head on; `None` if no block is kept.
    fn restorable_to(&self) -> Option<u64> {
        let oldest = self.chain.first_available()?;
        let pruned_height = self.records.utxo.pruned_height();
        if pruned_height == 0 {
            return Some(oldest);
        }
        let is_pruned = |note: &Note| AppliedNote::from(note).height <= pruned_height;
        Some(self.chain.newest_noted(oldest, MOST_SHOWN, is_pruned).unwrap_or(oldest))
    }

    /// Records why a rollback waits, or that it does not wait, and logs the first of several refusals, because ticks repeat them.
    pub(super) fn set_rollback_waits(&mut self, waits: Option<(u64, UtxoError)>) {
        let line =
            waits.as_ref().map(|(number, why)| format!("rollback: waits: block {number} cannot be taken back: {why}"));
        if KEPT && self.records.applier.set_waits(waits) {
            line.iter().for_each(|line| logs::error(line));
        }
    }

    /// Returns why the rollback waits for memory, if it does.
    pub(super) fn rollback_waits(&self) -> Option<UtxoError> {
        self.records.applier.waits.as_ref().filter(|_| KEPT).map(|waits| waits.why.clone())
    }

    /// Returns until when a rollback that lacks memory leaves ticks to pruning, which may free some.
    pub fn rollback_waits_until(&self) -> Option<u64> {
        self.chain.state().rollback_to?;
        self.records.applier.waits.as_ref().map(|waits| waits.until_ns).filter(|until| *until > platform::time_ns())
    }

    /// Ends applying and forgets heights, because the chain is empty. Returns the number of records, which stay.
    pub(super) fn reset_records(&mut self) -> Option<u64> {
        KEPT.then(|| {
            self.records.applier.reset();
            self.records.utxo.forget_pruned();
            self.records.pruner.reset();
            self.records.utxo.set_window(RunWindow::default());
            self.records.utxo.storage().records
        })
    }

    /// Returns when an open upload of a transaction was last called for, in Unix seconds: the first to expire.
    pub fn transaction_touched(&self) -> Option<u64> {
        self.records.utxo.uploads.touched().filter(|_| KEPT)
    }

    /// Drops expired uploads of transactions.
    pub(super) fn expire_transactions(&mut self) {
        if !KEPT {
            return;
        }
        let expiry = self.config.upload_expiry_secs;
        match self.records.utxo.uploads.expire(&mut self.blobs, platform::time_secs(), expiry) {
            0 => {}
            expired => logs::info(&format!("{expired} uploads of transactions expired after {expiry} s")),
        }
    }

    /// Returns the open uploads of transactions.
    pub fn open_transactions(&self) -> Option<Vec<OpenTransaction>> {
        KEPT.then(|| self.records.utxo.uploads.list(self.config.upload_expiry_secs))
    }

    /// Returns the use of stable memory by records.
    pub fn records_storage(&self) -> Option<UtxoStorage> {
        let applying = self.records.applier.status();
        KEPT.then(|| UtxoStorage { applying, restorable_to: self.restorable_to(), ..self.records.utxo.storage() })
    }
}

/// The settings of the UTXO store, which a build with records always has.
pub fn settings_of(config: &Config) -> &UtxoSettings {
    config.utxo.as_ref().unwrap_or_else(|| platform::trap("the settings of the UTXO store are missing"))
}
