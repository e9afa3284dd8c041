//! What a phase is to the run that drives it.

use super::Records;
use super::run::Run;
use crate::api::{JobEnd, PruneCounts, PrunerSettings, UtxoError};
use crate::utxo::{Candidate, Order, Place};

/// Inputs of which the parents are told, or preserved, in one step. A record with more goes over several, and messages.
pub const STEP_INPUTS: u32 = 10_000;

/// What became of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// It has left the phase's index.
    Left,
    /// It stays there: the run goes on behind it.
    Stays,
    /// There is more of it, from here on.
    More(u32),
}

/// What every phase works with.
pub struct Context<'a, 'r> {
    /// The stores.
    pub records: &'a mut Records<'r>,
    /// The settings in force.
    pub settings: &'a PrunerSettings,
    /// Slots of unmined records that cannot be read and were set aside.
    pub set_aside: &'a [u32],
    /// The run's heights.
    pub run: &'a Run,
    /// What is done.
    pub counts: &'a mut PruneCounts,
}

/// A phase: an ordered index, a bound, and what is done with each record below it. It knows neither budgets nor messages.
pub trait Phase {
    /// The index.
    const ORDER: Order;

    /// The highest height whose records are looked at; none where nothing is to do.
    fn last(run: &Run, settings: &PrunerSettings) -> Option<u32>;

    /// References that the next step removes, changes or looks up.
    fn ops(of: &Candidate, from: u32, settings: &PrunerSettings) -> u64;

    /// Does something with a record, from a part of it on.
    ///
    /// # Errors
    /// Why the whole run ends. Nothing of this record has changed, or it can be done again.
    fn step(context: &mut Context, of: &Candidate, from: u32) -> Result<Step, JobEnd>;

    /// What to do of a record that cannot be read: it stays.
    ///
    /// # Errors
    /// Why the whole run ends.
    fn unreadable(context: &mut Context, place: &Place, error: UtxoError) -> Result<(), JobEnd>;
}

/// Counts and logs a record that cannot be read.
pub fn pass_over(context: &mut Context, place: &Place, error: &UtxoError) {
    context.counts.record_errors += 1;
    crate::runtime::log(&format!("pruner: the record in slot {} is kept: {error:?}", place.slot));
}
