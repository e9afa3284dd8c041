//! Health of a canister: what is due is pruned, by the timer or at once, and the canister reports no problems.

use crate::client::{CanisterClient, Client, Transport, Wait};
use crate::say;
use anyhow::{Result, ensure};
use ic_coppice_interface::{MAX_PRUNE_OPS, Problem, ProblemCode, PruneStatus, Severity};
use std::mem::replace;
use std::time::Duration;

/// Waits until the timer has pruned everything that is due.
///
/// # Errors
/// When pruning stays due although the timer fires.
pub fn settle(client: &Client<impl CanisterClient>, interval: Duration) -> Result<PruneStatus> {
    let canister = client.transport();
    let mut status = client.get_prune_status().wait()?;
    let mut waits = 0;
    while status.need_prune {
        let before = status.pruned_blocks;
        canister.await_timer(interval)?;
        status = client.get_prune_status().wait()?;
        waits = if status.pruned_blocks > before { 0 } else { waits + 1 };
        ensure!(waits < canister.patience(), "pruning is due, but the timer prunes nothing: {}", holder(&status));
    }
    Ok(status)
}

/// Prunes everything that is due, without waiting for the timer.
///
/// # Errors
/// When pruning stays due although it is called.
pub fn prune_due(client: &Client<impl CanisterClient>) -> Result<()> {
    let mut status = client.get_prune_status().wait()?;
    while status.need_prune {
        client.prune_now(&MAX_PRUNE_OPS).done()?;
        let before = replace(&mut status, client.get_prune_status().wait()?);
        ensure!(
            status.pruned_blocks > before.pruned_blocks,
            "pruning is due, but prune_now prunes nothing: {}",
            holder(&status)
        );
    }
    Ok(())
}

/// Returns what holds pruning back.
fn holder(status: &PruneStatus) -> String {
    status.held_by.as_ref().map_or("the canister names no reason".into(), ToString::to_string)
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
