//! Site of a canister: how time passes there.

use crate::client::{Client, Reach, Transport, Wait};
use crate::say;
use anyhow::{Result, ensure};
use coppice_interface::{Problem, ProblemCode, PruneStatus, Severity};
use std::time::Duration;

/// Time between two blocks, if the clock is simulated.
pub const BLOCK_INTERVAL: Duration = Duration::from_secs(15);

/// The place where a canister runs, besides its calls.
pub trait Site: Sync + Reach {
    /// Lets time pass between two blocks, if the clock is simulated.
    ///
    /// # Errors
    /// When an execution has trapped.
    fn pass(&self, _time: Duration) -> Result<()> {
        Ok(())
    }

    /// Waits for the canister's timer, which fires every `interval`; the wait may be too short.
    ///
    /// # Errors
    /// When an execution has trapped.
    fn await_timer(&self, interval: Duration) -> Result<()>;

    /// Returns the number of such waits after which the timer must have fired.
    fn patience(&self) -> u32;
}

/// Waits until the timer has pruned everything that is due.
///
/// # Errors
/// When pruning stays due although the timer fires.
pub fn settle(client: &Client<impl Site>, interval: Duration) -> Result<PruneStatus> {
    let site = client.transport();
    let mut status = client.get_prune_status().wait()?;
    let mut waits = 0;
    while status.need_prune {
        let before = status.pruned_blocks;
        site.await_timer(interval)?;
        status = client.get_prune_status().wait()?;
        waits = if status.pruned_blocks > before { 0 } else { waits + 1 };
        ensure!(
            waits < site.patience(),
            "pruning is due, but the timer prunes nothing: {}",
            status.held_by.as_ref().map_or("the canister names no reason".into(), ToString::to_string)
        );
    }
    Ok(status)
}

/// Checks the canister's health. Problems with the code `expected` become notes on stderr.
///
/// # Errors
/// When the canister reports another problem than a notice.
pub fn healthy(client: &Client<impl Transport>, expected: Option<ProblemCode>) -> Result<()> {
    let problems = client.health().wait()?.problems;
    let faults = problems.iter().filter(|problem| problem.severity != Severity::Notice);
    let (noted, faults): (Vec<&Problem>, Vec<&Problem>) =
        faults.partition(|problem| expected.is_some_and(|code| problem.code == code));
    noted.iter().for_each(|problem| say!("note: {}; {}", problem.message, problem.action));
    let faults: Vec<String> = faults.iter().map(|problem| format!("{}: {}", problem.code, problem.message)).collect();
    ensure!(faults.is_empty(), "the canister is not healthy: {}", faults.join("; "));
    Ok(())
}
