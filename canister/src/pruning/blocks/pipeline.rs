//! One bounded run: policy says where to, the segment knows how, the limiter says how much.

use super::limiter::Limiter;
use super::policy::Due;
use super::segment::PruneSegment;
use crate::{logs, platform};
use coppice_interface::{HeldBy, PruneProgress, PruneRun, StopReason};

/// Prunes what is due, as far as the budget goes. Being interrupted is a value, not an error.
pub fn run(segment: &mut impl PruneSegment, due: Option<&Due>, limiter: &mut Limiter) -> PruneRun {
    let start = platform::instructions();
    let before = due.map_or(0, |due| due.before);
    let mut run = PruneRun {
        at: platform::time_ns(),
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
    loop {
        let next = segment.pieces(before).next();
        let Some(next) = next else { break };
        if let Err(reason) = limiter.admit(next.ops) {
            run.progress = PruneProgress::HasMore { reason: Some(reason) };
            break;
        }
        let pruned = segment.prune_next();
        run.ops += next.ops;
        run.blocks += 1;
        run.blobs += pruned.blobs;
        run.bytes += pruned.bytes;
        run.faults += pruned.faults.len() as u64;
        for fault in &pruned.faults {
            logs::error(&format!("prune: skipped: {fault}"));
        }
    }
    run.instructions = platform::instructions() - start;
    run
}

/// How far a run comes that no budget stops.
pub fn end(due: Option<&Due>) -> PruneProgress {
    match due {
        Some(due) if due.held_by == Some(HeldBy::Stopped) => {
            PruneProgress::HasMore { reason: Some(StopReason::Stopped) }
        }
        Some(due) if due.before < due.target => PruneProgress::HasMore { reason: Some(StopReason::Guard) },
        _ => PruneProgress::Finished,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chain::Removal;
    use crate::platform::native;
    use crate::pruning::blocks::segment::Pruned;
    use coppice_interface::PruneReason;

    /// Pieces that cost 3 ops each.
    struct Pieces {
        next: u64,
    }

    impl PruneSegment for Pieces {
        fn pieces(&self, before: u64) -> impl Iterator<Item = Removal> {
            (self.next..before).map(|_| Removal { ops: 3, blobs: 1, bytes: 10 })
        }

        fn prune_next(&mut self) -> Pruned {
            self.next += 1;
            Pruned { blobs: 1, bytes: 10, faults: vec!["odd".into()] }
        }
    }

    #[test]
    fn a_run_stops_at_its_budget_and_goes_on_from_there() {
        native::reset();
        let due = Due { reason: PruneReason::Retention, target: 5, before: 5, held_by: None };
        let mut pieces = Pieces { next: 0 };
        let first = run(&mut pieces, Some(&due), &mut Limiter::new(7, 1 << 40));
        assert_eq!((first.blocks, first.ops, first.blobs, first.bytes, first.faults), (2, 6, 2, 20, 2));
        assert_eq!(first.progress, PruneProgress::HasMore { reason: Some(StopReason::Ops) });
        let rest = run(&mut pieces, Some(&due), &mut Limiter::new(100, 1 << 40));
        assert_eq!((rest.blocks, rest.progress), (3, PruneProgress::Finished));
        let held = Due { target: 9, before: 6, ..due };
        let held = run(&mut pieces, Some(&held), &mut Limiter::new(100, 1 << 40));
        assert_eq!((held.blocks, held.target), (1, 9));
        assert_eq!(held.progress, PruneProgress::HasMore { reason: Some(StopReason::Guard) });
        let none = run(&mut pieces, None, &mut Limiter::new(100, 1 << 40));
        assert_eq!((none.blocks, none.reason, none.progress), (0, None, PruneProgress::Finished));
    }
}
