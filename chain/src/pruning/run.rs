//! Part of a run that one message does: the policy gives the target, the chain removes the blocks, the budget limits the work. `sum`
//! adds the parts of a run that lasts several ticks.

use super::due::Due;
use super::piece::Piece;
use crate::ChainStore;
use ic_coppice_interface::{HeldBy, PruneProgress, PruneRun, StopReason};
use ic_coppice_storage::blob::BlobStore;
use ic_coppice_storage::{Budget, Ic, Platform as _, log};

/// Prunes the due blocks within the budget; skips the blocks in `skipped`. An interruption is reported in `progress`, not as an error. The
/// caller adds what it sweeps, and the instructions.
pub fn run(
    chain: &mut ChainStore,
    blobs: &mut BlobStore,
    due: Option<&Due>,
    budget: &mut Budget,
    skipped: &[Piece],
) -> PruneRun {
    let mut run = PruneRun {
        started_at_ns: Ic::now_ns(),
        reason: due.map(|due| due.reason),
        target: due.map_or(0, |due| due.target),
        progress: end(due),
        ticks: 1,
        blocks: 0,
        dropped: 0,
        ops: 0,
        blobs: 0,
        bytes: 0,
        faults: 0,
        instructions: 0,
    };
    let mut removals = chain.removals(due.map_or(0, |due| due.before));
    while let Some(removal) = removals.next(chain) {
        let ops = removal.ops();
        if let Err(reason) = budget.admit(ops) {
            run.progress = PruneProgress::HasMore { reason: Some(reason.into()) };
            break;
        }
        let traps = skipped.contains(&Piece::Block(removal.number));
        let removed = if traps { chain.skip(blobs, removal) } else { chain.remove(blobs, removal) };
        run.ops += ops;
        run.blocks += 1;
        run.blobs += removed.blobs;
        run.bytes += removed.bytes;
        run.faults += removed.faults.len() as u64;
        for fault in &removed.faults {
            log::error(&format!("prune: skipped: {fault}"));
        }
    }
    run
}

/// Returns the progress of a run that no budget stops.
pub fn end(due: Option<&Due>) -> PruneProgress {
    let reason = match due {
        Some(due) if due.held_by == Some(HeldBy::Stopped) => StopReason::Stopped,
        Some(due) if due.before < due.target => StopReason::Guard,
        _ => return PruneProgress::Finished,
    };
    PruneProgress::HasMore { reason: Some(reason) }
}

/// Returns the sum of `last` and `now` if `now` continues `last`, otherwise `now`.
pub fn sum(last: Option<PruneRun>, now: &PruneRun) -> PruneRun {
    match last {
        // A message that only sweeps has no reason of its own.
        Some(last) if last.reason == now.reason || now.reason.is_none() => PruneRun {
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
            ..last
        },
        _ => now.clone(),
    }
}

/// Returns whether the next tick continues this run: the budget ended the run, and not its target, the guard or `set_deletions_stopped`.
pub fn is_continued(run: &PruneRun) -> bool {
    matches!(run.progress, PruneProgress::HasMore { reason } if !matches!(reason, Some(StopReason::Guard | StopReason::Stopped)))
}
