//! Pruner of UTXO records (`pruner-service.md`, `docs/design/record-pruning.md`).
//!
//! **Constraint.** Deleting the due records may take many messages. Between two messages the chain grows, and any message may trap or be
//! followed by an upgrade. No record may be deleted before the pruner has checked whether it is a parent of an old unmined transaction.
//!
//! ```text
//! heights ──▶ pending job ──▶ job ──▶ run ──▶ phases: preserve, expire, delete ──▶ records, blobs, deletion queue
//!  (notified)  (one: highest) history   place         one record at a time
//!                                        ▲
//!                             timer ─▶ budget
//! ```
//! Policy (`heights`), mechanism (`preserve`, `expire`, `delete`) and order (`run`) are separate. Jobs, heights and the run's place are in
//! one cell, which each message that changes them writes.
//!
//! **One message.** The canister (`canister/src/operation/daemon.rs`) calls [`UtxoPruner::tick`], which takes the running job or starts the
//! pending one, and continues its run. The run walks an ordered index of the store (`utxo/scan.rs`), and calls the step of its phase for
//! each record, as long as the budget admits another step. At the end the tick writes the cell.
//!
//! **Between messages**
//!
//! - At most one job is pending and one is running. A run belongs to the running job, or is left by a job that timed out.
//! - No record is deleted in a run before phase 1 has examined all late unmined transactions, and all old ones that `passes` requires.
//!   So no record is deleted while a live unmined one spends from it (`docs/design/record-pruning.md`).
//! - A record that is being deleted is either in the index of records to delete, or waits for its row in the deletion queue.
//!
//! **Files, in reading order**
//!
//! - `heights` (triggers and jobs), `notified`, `bucket` (limits of notified heights), `settings`: which job there is.
//! - `tick`, `run`, `walk`, `step`, `place`: one message, its phases, the walk over an index, and the place at which it continues.
//! - `preserve`, `expire`, `delete`: the step of each phase. `passes`: the records that phase 1 must examine.
//! - `complete`: records whose external blob a worker has deleted. `repair`: an operator's corrections.
//! - `stored`, `jobs`: the persisted state. `status`, `metrics`, `skipped`: for operators.
//!
//! A new condition that keeps a record belongs in `delete`, a new trigger in `heights`, a new count in `status::add`.

mod bucket;
mod complete;
mod delete;
mod expire;
mod heights;
mod jobs;
mod metrics;
mod notified;
mod passes;
mod place;
mod preserve;
mod repair;
mod run;
mod settings;
mod skipped;
mod status;
mod step;
mod stored;
mod tick;
mod walk;

use crate::places;
use crate::utxo::Cursor;
use ic_coppice_interface::{
    UtxoBlockAssemblyState, UtxoPrunerError, UtxoPrunerSettings, UtxoPrunerSettingsChange, UtxoSettings,
};
use ic_coppice_storage::arena::Arena;
use ic_coppice_storage::ring::Ring;
use ic_coppice_storage::{Ic, Platform as _, Space};
pub use notified::NotifiedHeight;
#[cfg(any(test, feature = "testing"))]
pub use preserve::blocked;
pub use settings::check_retentions;
pub use status::cannot_preserve;
use std::rc::Rc;
use stored::CELL;
pub use stored::Stored;

/// Result of an operation of the pruner, or the reason for a refusal.
type Answer<T> = Result<T, UtxoPrunerError>;

/// Maximum number of unreadable unmined records that are skipped.
const MAX_UNREADABLE: usize = 100;

/// State of the pruner: heights, jobs and the run.
pub struct UtxoPruner {
    cells: Rc<Space>,
    /// The ended jobs.
    ended: Ring,
    stored: Stored,
    /// Ticks since the last upgrade: the counter is on the heap.
    ticks: u64,
    /// Time of the next tick, in nanoseconds since the Unix epoch; 0 if no timer runs.
    pub next_tick_ns: u64,
    /// True while paused because cycles are low; the log reports each pause once.
    paused: bool,
}

impl UtxoPruner {
    /// Reads the cell. An upgrade to code that cannot read the cell fails and is undone.
    ///
    /// # Errors
    /// A sentence that names the fault of the cell.
    pub fn open(arena: &Arena, cells: Rc<Space>) -> Result<Self, String> {
        let stored = CELL.load(&cells)?.unwrap_or_default();
        let ended = Ring::open(Space::open(arena, places::JOBS)?, places::JOB_LEN, places::JOBS_LEN)?;
        Ok(Self { cells, ended, stored, ticks: 0, next_tick_ns: 0, paused: false })
    }

    fn save(&self) {
        CELL.keep(&self.cells, &self.stored);
    }

    /// Writes the cell anew if it is damaged, and what the heap mirrors of the ring.
    pub fn rewrite(&self) {
        if CELL.is_damaged(&self.cells, self.stored.current > 0) {
            self.save();
        }
        self.ended.rewrite();
    }

    /// Returns the persisted state.
    pub fn stored(&self) -> &Stored {
        &self.stored
    }

    /// Changes all given settings, or none.
    ///
    /// # Errors
    /// `BadArgument`.
    pub fn set_settings(
        &mut self,
        change: &UtxoPrunerSettingsChange,
        utxo: &UtxoSettings,
    ) -> Answer<UtxoPrunerSettings> {
        let new = self.stored.settings.changed(change)?;
        settings::check_changed(&new, utxo)?;
        let limits = (settings::limits(&self.stored.settings), settings::limits(&new));
        self.stored.feeds.change(limits, Ic::now_ns());
        self.stored.ended.trim(new.max_job_history);
        self.stored.settings = new.clone();
        self.save();
        Ok(new)
    }

    /// Records the retention that was in force until now, because heights of records may have been computed with it.
    pub fn note_retention(&mut self, retention: u32) {
        let known = self.stored.smallest_retention;
        if retention != 0 && (known == 0 || retention < known) {
            self.stored.smallest_retention = retention;
            self.save();
        }
    }

    /// Sets whether the block assembly runs, and its height; the next tick acts on the change. Stopping the assembly ends the run, so a
    /// later run starts anew. A higher safe height makes a job.
    pub fn set_assembly(&mut self, state: UtxoBlockAssemblyState, height: Option<u32>, utxo: &UtxoSettings) {
        let before = self.safe_height(utxo, self.stored.current);
        self.stored.assembly_running = state == UtxoBlockAssemblyState::Running;
        self.stored.assembly_height = height;
        if !self.stored.assembly_running {
            self.end_run();
        }
        if self.safe_height(utxo, self.stored.current) > before {
            self.make_due(utxo);
        }
        self.save();
    }

    /// Makes phase 1 skip an unmined record that is unreadable, or its parents that are unreadable.
    ///
    /// # Errors
    /// `NotBlocking`, `TooMany`.
    pub fn skip(&mut self, slot: u32) -> Answer<()> {
        if self.stored.unreadable.iter().any(|at| at.slot == slot) {
            return Ok(());
        }
        let blocked = self.stored.blocked_by.as_ref().filter(|blocked| blocked.slot == slot);
        let txid = blocked.and_then(|blocked| blocked.txid.as_slice().try_into().ok());
        let txid = txid.ok_or(UtxoPrunerError::NotBlocking)?;
        if self.stored.unreadable.len() >= MAX_UNREADABLE {
            return Err(UtxoPrunerError::TooMany { limit: MAX_UNREADABLE as u64 });
        }
        self.stored.unreadable.push(Cursor { key: 0, slot, txid });
        self.save();
        Ok(())
    }

    /// Makes ticks examine a record again that is skipped.
    ///
    /// # Errors
    /// `NotBlocking`.
    pub fn retry(&mut self, slot: u32) -> Answer<()> {
        let Stored { unreadable, turns, .. } = &mut self.stored;
        let before = unreadable.len();
        unreadable.retain(|at| at.slot != slot);
        if !turns.try_again(|at| at.cursor.slot == slot) && unreadable.len() == before {
            return Err(UtxoPrunerError::NotBlocking);
        }
        self.save();
        Ok(())
    }

    /// Returns the seconds between two ticks, or `None` if the next tick would find nothing to do.
    pub fn interval_secs(&self) -> Option<u64> {
        let Stored { settings, running, pending, .. } = &self.stored;
        // A job that waits for the block assembly waits for `set_assembly`.
        let waits = pending.is_some() && (self.stored.assembly_running || !self.stored.pending_skipped);
        (settings.pruner_enabled && (running.is_some() || waits)).then_some(settings.tick_interval_secs)
    }
}

#[cfg(test)]
mod tests;
