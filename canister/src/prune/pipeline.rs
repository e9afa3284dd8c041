//! One bounded run: policy says where to, the segment knows how, the limiter says how much.

use super::limiter::Limiter;
use super::policy::Due;
use super::segment::PruneSegment;
use crate::api::{PruneProgress, PruneRun};
use crate::runtime;

/// Prunes what is due, as far as the budget goes. Being interrupted is a value, not an error.
pub fn run(segment: &mut impl PruneSegment, due: Option<Due>, limiter: &mut Limiter) -> PruneRun {
    let start = runtime::instructions();
    let before = due.map_or(0, |due| due.before);
    let mut run = PruneRun {
        at: runtime::time_ns(),
        reason: due.map(|due| due.reason),
        target: before,
        progress: PruneProgress::Finished,
        blocks: 0,
        ops: 0,
        blobs: 0,
        bytes: 0,
        faults: 0,
        instructions: 0,
    };
    while let Some(ops) = segment.next_cost(before) {
        if let Err(reason) = limiter.admit(ops) {
            run.progress = PruneProgress::HasMore { reason };
            break;
        }
        let pruned = segment.prune_next();
        run.blocks += 1;
        run.ops += ops;
        run.blobs += pruned.blobs;
        run.bytes += pruned.bytes;
        run.faults += pruned.faults.len() as u64;
        for fault in &pruned.faults {
            runtime::log(&format!("prune: skipped: {fault}"));
        }
    }
    run.instructions = runtime::instructions() - start;
    run
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::{PruneReason, StopReason};
    use crate::prune::segment::Pruned;
    use crate::runtime::native;

    /// Pieces that cost 3 ops each.
    struct Pieces {
        next: u64,
    }

    impl PruneSegment for Pieces {
        fn next_cost(&self, before: u64) -> Option<u64> {
            (self.next < before).then_some(3)
        }

        fn prune_next(&mut self) -> Pruned {
            self.next += 1;
            Pruned { blobs: 1, bytes: 10, faults: vec!["odd".into()] }
        }
    }

    #[test]
    fn a_run_stops_at_its_budget_and_goes_on_from_there() {
        native::reset();
        let due = Some(Due { reason: PruneReason::Retention, before: 5 });
        let mut pieces = Pieces { next: 0 };
        let first = run(&mut pieces, due, &mut Limiter::new(7, 1 << 40));
        assert_eq!((first.blocks, first.ops, first.blobs, first.bytes, first.faults), (2, 6, 2, 20, 2));
        assert_eq!(first.progress, PruneProgress::HasMore { reason: StopReason::Ops });
        let rest = run(&mut pieces, due, &mut Limiter::new(100, 1 << 40));
        assert_eq!((rest.blocks, rest.progress), (3, PruneProgress::Finished));
        let none = run(&mut pieces, None, &mut Limiter::new(100, 1 << 40));
        assert_eq!((none.blocks, none.reason, none.progress), (0, None, PruneProgress::Finished));
    }
}
