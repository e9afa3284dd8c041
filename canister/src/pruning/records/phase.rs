//! What a phase is to the run that drives it.

use super::place::Run;
use super::skipped::{Skipped, hex};
use super::stores::Records;
use crate::text::refusal;
use crate::utxo::{Candidate, Cursor, Order};
use coppice_interface::{UtxoJobEnd, UtxoPruneCounts, UtxoPrunerPhase, UtxoPrunerSettings, UtxoRefusal};

/// Inputs of which the parents are told, or preserved, in one step: each parent lies on pages of its own. A record with more
/// goes over several steps, and messages.
pub const STEP_INPUTS: u32 = 1_000;

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

/// How far a record is that goes over several steps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Done {
    /// Its inputs.
    pub inputs: u32,
    /// Outputs whose spenders were looked up, and are stable.
    pub outputs: u32,
}

/// What every phase works with.
pub struct Context<'a, 'r> {
    /// The stores.
    pub records: &'a mut Records<'r>,
    /// The settings in force.
    pub settings: &'a UtxoPrunerSettings,
    /// Unmined records that cannot be read and were set aside.
    pub set_aside: &'a [Cursor],
    /// The run's heights.
    pub run: &'a Run,
    /// What is done.
    pub counts: &'a mut UtxoPruneCounts,
    /// Records that defensive mode keeps.
    pub skipped: Option<Box<Skipped>>,
}

/// A phase: an ordered index, a bound, and what is done with each record below it. It knows neither budgets nor messages.
pub trait Phase {
    /// Its name.
    const PHASE: UtxoPrunerPhase;
    /// The index.
    const ORDER: Order;

    /// The highest height whose records are looked at; none where nothing is to do.
    fn last(run: &Run, settings: &UtxoPrunerSettings) -> Option<u32>;

    /// References that the next step removes, changes or looks up.
    fn ops(of: &Candidate, done: Done, settings: &UtxoPrunerSettings) -> u64;

    /// Pages of other records that the next step reads, as far as they may be very many.
    fn reads(_: &Candidate, _: Done, _: &UtxoPrunerSettings) -> u64 {
        0
    }

    /// Pages that the next step changes, as far as they may be very many.
    fn changes(_: &Candidate, _: Done) -> u64 {
        0
    }

    /// Does the next of a record.
    ///
    /// # Errors
    /// Why the whole run ends. What was done of this record can be done again.
    fn step(context: &mut Context, of: &Candidate, done: Done) -> Result<Step, UtxoJobEnd>;

    /// What to do of a record that cannot be read, or behind which the index is `broken`: it stays.
    ///
    /// # Errors
    /// Why the whole run ends.
    fn unreadable(context: &mut Context, at: &Cursor, error: UtxoRefusal, broken: bool) -> Result<(), UtxoJobEnd>;
}

/// Counts and logs a record that is kept as it cannot be read.
pub fn keep(context: &mut Context, txid: &[u8], error: &UtxoRefusal) {
    context.counts.record_errors += 1;
    let (txid, why) = (hex(txid), refusal(error.clone()));
    crate::logs::error(&format!("pruner: the record of transaction {txid} is kept: {why}"));
}
