//! The pruner of UTXO records (`pruner-service.md`, `docs/design.md` 7).
//!
//! **Constraint.** What is due may take many messages; between any two of them the chain goes on, and any of them may trap or
//! be followed by an upgrade. No parent of an old unmined transaction may go before that is known to be one.
//!
//! ```text
//! heights ──▶ slot of one ──▶ job ──▶ run ──▶ phases: preserve, expire, delete ──▶ records, blobs, deletion queue
//!  heights      (highest)    history   place         one record at a time
//!                                        ▲
//!                             timer ─▶ budget
//! ```
//! Policy (`heights`), mechanism (`preserve`, `expire`, `delete`) and order (`run`) are apart. Jobs, heights and the run's place are in
//! one cell, written with each message that changes them.

mod bucket;
mod complete;
mod delete;
mod expire;
mod feeds;
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

use crate::platform;
pub use crate::pruning::records::settings::Settings;
use crate::storage::memory::Region;
use crate::utxo::Cursor;
use coppice_interface::{
    UtxoBlockAssemblyState, UtxoPrunerError, UtxoPrunerSettings, UtxoPrunerSettingsChange, UtxoSettings,
};
pub use feeds::NotifiedHeight;
pub use notified::HeightTrouble;
pub use skipped::hex;
pub use status::{Trouble, cannot_preserve};
use std::rc::Rc;
use stored::{CELL, Stored};

/// Unmined records that can be set aside.
const MAX_SET_ASIDE: usize = 100;
/// Records that can be passed over; the first is tried again where there are more.
const MAX_PASSED_OVER: usize = 50;

/// Heights, jobs, and the run.
pub struct UtxoPruner {
    cells: Rc<Region>,
    stored: Stored,
    /// On the heap: an upgrade starts counting again.
    ticks: u64,
    /// When the next tick comes, in nanoseconds since the Unix epoch; 0: no timer runs.
    pub next_tick: u64,
    /// Low on cycles, which the log says once.
    paused: bool,
}

impl UtxoPruner {
    /// Reads the cell: an upgrade to code that cannot is undone.
    ///
    /// # Errors
    /// A sentence that says what is wrong with it.
    pub fn open(cells: Rc<Region>) -> Result<Self, String> {
        let stored = CELL.load(&cells)?.unwrap_or_default();
        Ok(Self { cells, stored, ticks: 0, next_tick: 0, paused: false })
    }

    fn save(&self) {
        CELL.keep(&self.cells, &self.stored);
    }

    /// The settings in force.
    pub fn settings(&self) -> &UtxoPrunerSettings {
        &self.stored.settings
    }

    /// Changes the settings, or none of them.
    ///
    /// # Errors
    /// `Invalid`.
    pub fn set_settings(
        &mut self,
        change: &UtxoPrunerSettingsChange,
        utxo: &UtxoSettings,
    ) -> Result<UtxoPrunerSettings, UtxoPrunerError> {
        let old = self.stored.settings.limits();
        self.stored.settings.apply(change, utxo)?;
        self.stored.feeds.change((old, self.stored.settings.limits()), platform::time_ns());
        let most = self.stored.settings.max_job_history;
        self.stored.ended.trim(most);
        self.save();
        Ok(self.stored.settings.clone())
    }

    /// Notes which retention was in force until now: records may have got their height by it.
    pub fn note_retention(&mut self, retention: u32) {
        let known = self.stored.smallest_retention;
        if retention != 0 && (known == 0 || retention < known) {
            self.stored.smallest_retention = retention;
            self.save();
        }
    }

    /// Says what the block assembly does. The next tick acts on it; where it runs again by then, the run begins anew.
    pub fn set_assembly(&mut self, state: UtxoBlockAssemblyState) {
        self.stored.assembly_running = state == UtxoBlockAssemblyState::Running;
        if !self.stored.assembly_running {
            self.end_run();
        }
        self.save();
    }

    /// Has phase 1 pass over an unmined record that cannot be read, or parents of it that cannot.
    ///
    /// # Errors
    /// `NotBlocking`, `TooMany`.
    pub fn set_aside(&mut self, slot: u32) -> Result<(), UtxoPrunerError> {
        if self.stored.set_aside.iter().any(|aside| aside.slot == slot) {
            return Ok(());
        }
        let blocked = self.stored.blocked_by.as_ref().filter(|blocked| blocked.slot == slot);
        let Some(txid) = blocked.and_then(|blocked| blocked.txid.as_slice().try_into().ok()) else {
            return Err(UtxoPrunerError::NotBlocking);
        };
        if self.stored.set_aside.len() >= MAX_SET_ASIDE {
            return Err(UtxoPrunerError::TooMany { limit: MAX_SET_ASIDE as u64 });
        }
        self.stored.set_aside.push(Cursor { key: 0, slot, txid });
        self.save();
        Ok(())
    }

    /// Has a record looked at again that was passed over, or set aside.
    ///
    /// # Errors
    /// `NotBlocking`.
    pub fn retry(&mut self, slot: u32) -> Result<(), UtxoPrunerError> {
        let Stored { set_aside, passed_over, .. } = &mut self.stored;
        let before = set_aside.len() + passed_over.len();
        set_aside.retain(|aside| aside.slot != slot);
        passed_over.retain(|at| at.cursor.slot != slot);
        if set_aside.len() + passed_over.len() == before {
            return Err(UtxoPrunerError::NotBlocking);
        }
        self.save();
        Ok(())
    }

    /// Seconds between two ticks; none where the next one would find nothing to do.
    pub fn interval_secs(&self) -> Option<u64> {
        let Stored { settings, running, pending, .. } = &self.stored;
        // A job that waits for the block assembly waits for `set_assembly`.
        let waits = pending.is_some() && (self.stored.assembly_running || !self.stored.pending_skipped);
        (settings.pruner_enabled && (running.is_some() || waits)).then_some(settings.tick_interval)
    }
}

#[cfg(test)]
mod tests;
