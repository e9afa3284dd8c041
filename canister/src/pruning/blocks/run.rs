//! One run over several ticks.

use coppice_interface::{PruneProgress, PruneRun, StopReason};

/// `last` with what was done now, where this goes on with it.
pub fn sum(last: Option<PruneRun>, now: &PruneRun) -> PruneRun {
    match last {
        // A message that only sweeps has no reason of its own.
        Some(last) if last.reason == now.reason || now.reason.is_none() => PruneRun {
            at: last.at,
            reason: last.reason,
            target: now.target.max(last.target),
            progress: now.progress,
            ticks: last.ticks + now.ticks,
            blocks: last.blocks + now.blocks,
            dropped: last.dropped + now.dropped,
            ops: last.ops + now.ops,
            blobs: last.blobs + now.blobs,
            bytes: last.bytes + now.bytes,
            faults: last.faults + now.faults,
            instructions: last.instructions + now.instructions,
        },
        _ => now.clone(),
    }
}

/// Returns whether the next tick continues this run: the budget ended the run, and not its target, the guard or `set_deletions_stopped`.
pub fn goes_on(run: &PruneRun) -> bool {
    matches!(run.progress, PruneProgress::HasMore { reason } if !matches!(reason, Some(StopReason::Guard | StopReason::Stopped)))
}
