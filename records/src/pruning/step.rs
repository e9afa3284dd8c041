//! Step of a run: the state of the message in which it is done, and its outcome.

use super::place::At;
use crate::external::Records;
use crate::utxo::Cursor;
use ic_coppice_interface::text::hex;
use ic_coppice_interface::{UtxoPruneCounts, UtxoPrunerSettings, UtxoRefusal};
use ic_coppice_storage::{Budget, log};

/// Outcome of a step for its record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// The record has left the phase's index.
    Left,
    /// The record stays in the index; the run continues after it.
    Stays,
    /// The record needs more steps, from this input on.
    More(u32),
    /// The spenders of the outputs before this one are looked up.
    Checked(u32),
}

/// Outcome of a step, or the reason why its record is kept.
pub type Stepped = Result<Step, UtxoRefusal>;

/// State of a message besides its run.
pub struct Message<'a, 'r> {
    /// The stores.
    pub records: &'a mut Records<'r>,
    /// The settings in force.
    pub settings: UtxoPrunerSettings,
    /// Unmined records that cannot be read and are skipped.
    pub unreadable: Vec<Cursor>,
    /// Records that are skipped because they trap.
    pub skipped: Vec<At>,
    /// Budget of the message.
    pub budget: Budget,
    /// The only step that the message does, if it is the next.
    pub only: Option<At>,
    /// The next step, which was not done.
    pub found: Option<At>,
    /// Counts of the job so far.
    pub counts: UtxoPruneCounts,
}

impl Message<'_, '_> {
    /// Counts and logs a record that is kept because of an error. Returns the outcome of its step.
    pub fn keep(&mut self, txid: &[u8], error: UtxoRefusal) -> Step {
        self.counts.record_errors += 1;
        log::error(&format!("pruner: the record of transaction {} is kept: {error}", hex(txid)));
        Step::Stays
    }
}
