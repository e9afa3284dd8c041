//! Sweeps of the indexes, and the backlog.

use super::*;
use crate::IndexTable;
use ic_coppice_storage::table::SLICE_BUCKETS;
use ic_coppice_storage::{Counting, MOST_PAGES, Meter, changed_pages};

#[test]
fn a_sweep_waits_for_a_pause_but_not_for_ever() {
    let mut world = world(PrunePolicyArg { retain_blocks: Some(2), max_ops_per_tick: Some(15_000), ..policy() });
    world.append_ids(7, 1_000);
    world.called();
    assert_eq!(world.status().sweep, SweepPhase::Idle);
    assert_eq!(world.tick_next(), WHENEVER, "four blocks went; their stale entries are too few for a sweep");
    assert_eq!((world.oldest(), world.status().sweep, world.status().backlog.debt), (4, SweepPhase::Collecting, 4_000));
    world.append_ids(1, 1_000);
    world.called();
    let asked_again = Ic::now_ns() + 5 * NS;
    assert_eq!(world.tick_next(), asked_again, "a producer has just called");
    assert_eq!((world.status().sweep, world.status().backlog.debt), (SweepPhase::Ready, 5_000));
    for _ in 0..8 {
        world.wait(4);
        world.called();
        assert_eq!(world.tick_next(), Ic::now_ns() + 5 * NS);
    }
    world.wait(4);
    world.called();
    assert_eq!(world.tick_next(), WHENEVER, "it has waited for eight ticks");
    let status = world.status();
    assert_eq!((status.sweep, status.backlog.debt, status.transaction_index.sweeps), (SweepPhase::Idle, 0, 1));
    assert_eq!((status.transaction_index.entries, status.transaction_index.dropped), (3_000, 5_000));
    // A pause comes.
    world.append_ids(5, 1_000);
    world.called();
    assert_eq!(world.tick_next(), Ic::now_ns() + 5 * NS);
    world.wait(5);
    assert_eq!(world.tick_next(), WHENEVER);
    assert_eq!(world.status().transaction_index.sweeps, 2);
    // A debt above the forced mark does not wait.
    world.append_ids(7, 1_000);
    world.called();
    assert_eq!(world.tick_next(), AT_ONCE, "the entries of this tick pass the mark");
    world.tick_next();
    assert_eq!(world.status().transaction_index.sweeps, 3);
}

#[test]
fn a_backlog_is_worked_off_message_by_message_and_the_debt_stays_bounded() {
    let arg = PrunePolicyArg { retain_blocks: Some(2), max_ops_per_tick: Some(500), ..policy() };
    let mut world = world(arg);
    world.append_ids(2_000, 10);
    world.called();
    let mut ticks = 0;
    loop {
        let next = world.tick_next();
        ticks += 1;
        let table = world.chain.debt(IndexTable::Ids);
        let bound = table.live() * 5 / 4 + table.buckets + 8_192 + 500 * 10;
        assert!(table.entries <= bound, "{table:?}");
        if next != AT_ONCE {
            break;
        }
        assert!(ticks < 1_000);
    }
    let status = world.status();
    assert_eq!(
        (status.oldest_kept_block, status.backlog.blocks, status.backlog.behind_since_secs),
        (Some(1_997), 0, None)
    );
    assert!(status.transaction_index.dropped >= 15_000, "{status:?}");
    // `prune_now` sweeps even a single stale entry.
    let run = world.prune(u64::MAX);
    assert_eq!((run.blocks, run.reason, world.status().backlog.debt), (0, None, 0));
    assert_eq!(world.chain.index_stats().entries, 30);
}

#[test]
fn a_backlog_is_shown_at_once_and_a_problem_when_it_lasts() {
    let mut world = world(PrunePolicyArg { retain_blocks: Some(1), max_ops_per_tick: Some(1), ..policy() });
    world.append_ids(100, 2);
    assert_eq!((world.status().backlog.blocks, world.status().backlog.references), (98, 196));
    for _ in 0..12 {
        assert_eq!(world.tick_next(), AT_ONCE);
        world.wait(60);
        world.append_ids(2, 2);
    }
    let status = world.status();
    assert_eq!(status.backlog.blocks, 98 + 12);
    assert_eq!((status.backlog.pruned_per_hour, status.backlog.appended_per_hour), (60, 120));
    assert_eq!(status.backlog.empty_in_secs, None, "never, at this rate");
    assert_eq!(status.backlog.behind_since_secs, Some(Ic::now_secs() - 720));
    world.pruner.set_policy(PrunePolicy { max_ops_per_tick: 100, retain_blocks: 1, ..PrunePolicy::default() });
    while world.tick_next() == AT_ONCE {}
    let status = world.status();
    assert_eq!((status.backlog.blocks, status.backlog.empty_in_secs), (0, Some(0)));
    assert_eq!(status.backlog.behind_since_secs, None);
}

/// Ten thousand blocks with a producer's call before every tick, so that no sweep finds a pause: a table never has many more entries than
/// are live, nor many more buckets than these need.
#[test]
fn the_indexes_stay_bounded_without_a_pause() {
    let (window, ids, ops) = (3_000, 20, 500);
    let mut world = world(PrunePolicyArg { retain_blocks: Some(window), max_ops_per_tick: Some(ops), ..policy() });
    let mut largest = 0;
    for number in 0..10_000 {
        world.append_ids(1, ids);
        world.wait(1);
        if number % 10 == 0 {
            world.called();
            let mut ticks = 0;
            while world.tick_next() == AT_ONCE {
                world.called();
                ticks += 1;
                assert!(ticks < 1_000);
            }
        }
        let table = world.chain.debt(IndexTable::Ids);
        let live = table.live();
        assert!(table.entries <= live * 5 / 4 + table.buckets + 8_192 + ops, "block {number}: {table:?}");
        largest = largest.max(table.buckets);
    }
    let status = world.status();
    assert_eq!(status.oldest_kept_block, Some(9_990 - window));
    assert!(status.transaction_index.sweeps > 10, "{status:?}");
    // 60 entries per hundred places, 28 places per bucket.
    let wanted = (window + 10) * ids * 100 / (60 * 28);
    assert!(largest <= wanted * 5 / 4, "{largest} buckets, {wanted} are needed");
}

/// The native world has no page prices, so the pages and the ops bound a tick here, and not the instructions.
#[test]
fn a_tick_drops_as_many_entries_of_a_large_index_as_ops_and_pages_allow() {
    const IDS: u64 = 100_000;
    for ops in [1, 200_000, 1_000_000] {
        let mut world = world(PrunePolicyArg {
            retain_blocks: Some(8),
            max_ops_per_tick: Some(ops),
            pause_after_secs: Some(0),
            ..policy()
        });
        world.append_ids(12, IDS);
        // Ticks that prune: the first one prunes all blocks; with one op, two of them prune a block each, and the debt reaches the forced mark.
        let (ticks, pruned) = if ops == 1 { (2, 2) } else { (1, 3) };
        (0..ticks).for_each(|_| assert_eq!(world.tick_next(), AT_ONCE));
        assert_eq!((world.oldest(), world.status().backlog.debt), (pruned, pruned * IDS));
        let before = world.status();
        let (next, touched) = twin::touching(|| world.tick_next());
        let after = world.status();
        let dropped = after.transaction_index.dropped - before.transaction_index.dropped;
        let pages = touched.dirtied.len() as u64;
        assert!(pages <= MOST_PAGES, "{pages} pages");
        match ops {
            1 => assert!((100..800).contains(&dropped) && next == AT_ONCE, "a slice: {dropped}"),
            200_000 => assert!((199_000..204_000).contains(&dropped) && next == AT_ONCE, "{dropped}"),
            _ => assert!(dropped == 3 * IDS && next == WHENEVER, "{dropped}, {next:?}"),
        }
    }
}

/// A slice ends in the middle of its segment where its pages are used up. The next message, or one after an upgrade, continues there; and
/// a skipped slice is left out from there to its end.
#[test]
fn a_slice_that_ends_early_is_continued_or_skipped() {
    let mut world = world(PrunePolicyArg { retain_blocks: Some(1), pause_after_secs: Some(0), ..policy() });
    world.append_ids(4, 5_000);
    while world.oldest() < 2 {
        world.prune(1);
    }
    let cursor = |world: &World| world.chain.sweep_state(IndexTable::Ids).cursor();
    let counting = Counting::begin();
    let slice = world.chain.sweep(IndexTable::Ids, Meter::new(u64::MAX, 5));
    let at = cursor(&world).expect("the sweep is under way");
    assert!(changed_pages() <= 6 && slice.dropped > 0, "{slice:?}, and the page of the chain's state");
    assert!(!at.is_multiple_of(SLICE_BUCKETS), "bucket {at}");
    assert_eq!(world.chain.sweep(IndexTable::Ids, Meter::new(u64::MAX, 0)).next, Some(at), "no room, no progress");
    drop(counting);
    let first = at / SLICE_BUCKETS * SLICE_BUCKETS;
    let piece = world.pruner.next_piece(&world.chain, &world.blobs, &world.constraints);
    assert_eq!(piece, Some(Piece::Slice(IndexTable::Ids, first)), "named by its segment");
    world.pruner.stored.turns.skip(Piece::Slice(IndexTable::Ids, first));
    let before = world.status().transaction_index.dropped;
    let run = world.prune(1_000_000);
    assert_eq!((run.progress, world.status().sweep), (PruneProgress::Finished, SweepPhase::Idle));
    let left = 10_000 - before - run.dropped;
    assert!(left > 0, "the entries of the skipped part stay");
    assert_eq!(world.chain.index_stats().entries, 10_000 + left);
}
