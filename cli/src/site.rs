//! Where a canister runs: its clock, its timer, and whether anybody counts what it costs.

use crate::client::Reach;
use crate::embedded::Costs;
use anyhow::Result;
use std::time::Duration;

/// What commands need of the place beside calls.
pub trait Site: Sync + Reach {
    /// Unix seconds there.
    fn now_secs(&self) -> u64;

    /// Time passes between two blocks, where the clock is moved by hand.
    fn pass(&self, time: Duration);

    /// Waits for the canister's timer, which fires every `interval`; perhaps not long enough.
    fn await_timer(&self, interval: Duration);

    /// After how many such waits the timer must have fired.
    fn patience(&self) -> u32;

    /// What was executed since the start; `None` where nobody counts. Ask at least every so often.
    ///
    /// # Errors
    /// When an execution trapped.
    fn costs(&self) -> Result<Option<Costs>>;
}
