//! Step of a run: what it works with, and what became of its record.

use super::place::At;
use super::skipped::hex;
use crate::external::Records;
use crate::logs;
use crate::pruning::work::budget::Budget;
use crate::text::refusal;
use crate::utxo::Cursor;
use coppice_interface::{UtxoPruneCounts, UtxoPrunerSettings, UtxoRefusal};

/// What became of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// It has left the phase's index.
    Left,
    /// It stays there: the run goes on behind it.
    Stays,
    /// There is more of it, from this input on.
    More(u32),
    /// Its spenders are looked up as far as this output.
    Checked(u32),
}

/// What a message works with, beside its run.
pub struct Message<'a, 'r> {
    /// The stores.
    pub records: &'a mut Records<'r>,
    /// The settings in force.
    pub settings: UtxoPrunerSettings,
    /// Unmined records that cannot be read and were set aside.
    pub set_aside: Vec<Cursor>,
    /// Records that are left alone.
    pub passed_over: Vec<At>,
    /// What the message may do.
    pub budget: Budget,
    /// The only step that the message does, if it is the next.
    pub only: Option<At>,
    /// The next step, which was not done.
    pub found: Option<At>,
    /// What is done.
    pub counts: UtxoPruneCounts,
}

impl Message<'_, '_> {
    /// Counts and logs a record that is kept as it cannot be read.
    pub fn keep(&mut self, txid: &[u8], error: UtxoRefusal) {
        self.counts.record_errors += 1;
        let (txid, why) = (hex(txid), refusal(error));
        logs::error(&format!("pruner: the record of transaction {txid} is kept: {why}"));
    }
}
