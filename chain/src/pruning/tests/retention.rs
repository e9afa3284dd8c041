//! Retention by age and by count.

use super::*;

#[test]
fn count_retains_that_many_blocks_below_the_head() {
    let mut world = world(PrunePolicyArg { retain_blocks: Some(10), ..policy() });
    world.append(11, 100, 1);
    assert_eq!(world.due(), None);
    world.append(5, 100, 1);
    assert_eq!(world.due(), Some((PruneReason::Retention, 5)));
    let run = world.prune(1_000);
    assert_eq!((run.blocks, run.progress, world.oldest()), (5, PruneProgress::Finished, 5));
    assert_eq!(world.due(), None);
}

#[test]
fn age_retains_by_monotonic_time() {
    let mut world = world(PrunePolicyArg { retain_days: Some(2), ..policy() });
    world.append(10, 100, DAY / 2);
    assert_eq!(world.due(), Some((PruneReason::Retention, 5)), "blocks of at most two days stay");
    world.prune(1_000);
    assert_eq!(world.oldest(), 5);
    twin::with(|world| world.time_ns += 100 * DAY * 1_000_000_000);
    world.prune(1_000);
    assert_eq!(world.oldest(), 9, "the head is never pruned");
}

#[test]
fn the_shorter_of_age_and_count_decides() {
    let mut world = world(PrunePolicyArg { retain_days: Some(2), retain_blocks: Some(3), ..policy() });
    world.append(10, 100, DAY / 2);
    assert_eq!(world.due(), Some((PruneReason::Retention, 6)), "by count 6, by age 5");
    let policy = PrunePolicyArg { retain_days: Some(2), retain_blocks: Some(5), ..policy() };
    world.pruner.set_policy(changed(&policy, &world.chain));
    assert_eq!(world.due(), Some((PruneReason::Retention, 5)), "by count 4, by age 5");
}

#[test]
fn without_triggers_nothing_is_due() {
    let mut world = world(policy());
    world.append(50, 100, DAY);
    assert_eq!(world.due(), None);
    assert_eq!(world.prune(100).blocks, 0);
}

#[test]
fn age_leaves_a_floor_and_a_smaller_count_wins() {
    let floor = |world: &World| (world.status().held_by, world.status().floor_block);
    let holds = |block| (Some(HeldBy::Floor), Some(block));
    let mut world = world(PrunePolicyArg { retain_days: Some(1), min_kept_blocks: Some(4), ..policy() });
    world.append(11, 100, 1);
    assert_eq!((world.due(), floor(&world)), (None, (None, None)));
    world.wait(10 * DAY);
    assert_eq!((world.due(), world.status().retain_min_block), (Some((PruneReason::Retention, 6)), 6));
    assert_eq!(floor(&world), holds(6));
    world.hold_at(5);
    assert_eq!(floor(&world), (Some(HeldBy::Exporter("slow".into())), Some(6)));
    world.constraints.exported = None;
    let aged = |retain_blocks, min_kept_blocks| PrunePolicy {
        retain_days: 1,
        retain_blocks,
        min_kept_blocks,
        ..PrunePolicy::default()
    };
    // A count below the floor decides.
    world.pruner.set_policy(aged(2, 4));
    assert_eq!((world.due(), floor(&world)), (Some((PruneReason::Retention, 8)), holds(8)));
    // A floor of zero keeps only the head; a floor of `u64::MAX` keeps all blocks.
    world.pruner.set_policy(aged(0, 0));
    assert_eq!((world.due(), floor(&world)), (Some((PruneReason::Retention, 10)), (None, None)));
    world.pruner.set_policy(aged(0, u64::MAX));
    assert_eq!((world.due(), floor(&world)), (None, holds(0)));
}

#[test]
fn next_tick_is_when_age_makes_a_block_prunable() {
    let mut world = world(PrunePolicyArg { retain_days: Some(2), timer_interval_secs: Some(1), ..policy() });
    world.append(4, 100, DAY);
    let oldest = world.chain.meta(world.oldest()).unwrap().monotonic;
    let at = world.tick_next();
    let prunable = world.chain.meta(world.oldest()).unwrap().monotonic + 2 * DAY + 1;
    assert!(prunable > oldest && at == prunable * NS);
    world.wait(at / NS - Ic::now_secs() - 1);
    assert_eq!(world.due(), None);
    world.wait(1);
    assert!(world.due().is_some(), "not a second later");
}

#[test]
fn blocks_that_age_within_an_interval_share_a_firing() {
    let mut world = world(PrunePolicyArg { retain_days: Some(2), timer_interval_secs: Some(60), ..policy() });
    world.append(300, 100, 1);
    let oldest = world.chain.meta(world.oldest()).unwrap().monotonic;
    world.wait(oldest + 2 * DAY + 1 - Ic::now_secs());
    assert_eq!(world.tick_next(), Ic::now_ns() + 60 * NS);
    world.wait(60);
    assert_eq!(world.due().map(|(_, target)| target), Some(world.oldest() + 60));
}
