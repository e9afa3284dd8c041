//! Blocks that exporters, or the lack of one, hold back.

use super::*;

#[test]
fn retention_never_passes_the_guard() {
    let mut world = world(PrunePolicyArg { retain_blocks: Some(10), ..policy() });
    world.append(30, 100, 1);
    world.constraints.exported = guard(0);
    world.tick();
    let status = world.status();
    assert_eq!((status.need_prune, status.target, status.prune_cursor), (true, 19, None));
    assert_eq!((status.held_by, world.oldest()), (Some(HeldBy::Exporter("slow".into())), 0));
    assert_eq!((status.runs, status.last_run), (0, None), "a tick without prunable blocks is not a run");
    world.constraints.exported = guard(7);
    assert_eq!(world.status().prune_cursor, Some(0));
    let run = world.prune(1_000);
    assert_eq!((run.blocks, run.progress), (7, PruneProgress::HasMore { reason: Some(StopReason::Guard) }));
    world.constraints.exported = guard(25);
    world.tick();
    assert_eq!(world.oldest(), 19, "retention is the limit then");
    assert_eq!(world.status().held_by, None);
}

#[test]
fn capacity_never_passes_the_guard() {
    let target = 100 * u64::from(CLASS);
    let mut world = world(PrunePolicyArg { target_bytes: Some(target), ..policy() });
    // Four blocks to a blob.
    world.append(4 * 96, CLASS as usize / 4 - 53, 1);
    world.constraints.exported = guard(0);
    assert_eq!(world.exhausted(), Some(HeldBy::Exporter("slow".into())));
    world.tick();
    assert_eq!(world.oldest(), 0);
    world.constraints.exported = guard(11);
    assert_eq!(world.exhausted(), Some(HeldBy::PruneLag), "eleven blocks may go and wait for a tick");
    world.tick();
    assert_eq!(world.oldest(), 11, "the last three free their headers and no blob");
    world.append(12, CLASS as usize / 4 - 53, 1);
    world.tick();
    assert_eq!(world.oldest(), 11);
    assert_eq!(world.exhausted(), Some(HeldBy::Exporter("slow".into())));
    world.pruner.switch(false);
    assert_eq!(world.exhausted(), Some(HeldBy::Disabled));
    world.pruner.switch(true);
    world.constraints.exported = None;
    world.constraints.low_on_cycles = true;
    assert_eq!(world.exhausted(), Some(HeldBy::LowCycles));
    world.constraints.low_on_cycles = false;
    while world.due().is_some() {
        world.tick();
    }
    let low = world.status().water_marks.unwrap().low;
    assert!(world.chain.capacity_bytes(&world.blobs) <= low, "down to low water, hysteresis and all");
}

/// However damaged a header is, only acknowledged blocks are pruned.
#[test]
fn a_damaged_header_at_the_guard_lets_nothing_past_it() {
    let target = 100 * u64::from(CLASS);
    let mut world = world(PrunePolicyArg { target_bytes: Some(target), ..policy() });
    world.append(96, CLASS as usize - 53, 1);
    world.hold_at(7);
    world.chain.misplace_header(7, 1 << 40);
    for _ in 0..5 {
        world.tick();
        assert!(world.oldest() <= 7, "pruned before {}", world.oldest());
    }
    world.chain.poison_header(7);
    world.tick();
    assert!(world.oldest() <= 7);
}

#[test]
fn blocks_held_back_too_long_are_a_problem() {
    let arg = PrunePolicyArg { retain_blocks: Some(1), max_export_lag_secs: Some(1_000), ..policy() };
    let mut world = world(arg);
    world.append_ids(10, 2);
    world.hold_at(3);
    world.tick_next();
    let status = world.status();
    assert_eq!((status.backlog.blocks, status.backlog.held_blocks), (0, 5));
    let since = Ic::now_secs();
    assert_eq!(status.backlog.held_since_secs, Some(since));
    world.wait(1_000);
    world.tick_next();
    assert_eq!(world.export_held(), None);
    world.wait(1);
    let held = world.export_held().unwrap();
    assert_eq!((held.since, held.secs, held.is_limited, held.until_emergency), (Some(since), 1_001, false, None));
    world.hold_at(10);
    world.tick_next();
    assert_eq!((world.status().backlog.held_since_secs, world.oldest()), (None, 8));
    assert_eq!(world.export_held(), None);
}

/// Here the count makes blocks due, not the capacity trigger; above high water it is a problem all the same.
#[test]
fn blocks_held_back_above_high_water_are_a_problem_for_every_trigger() {
    let mut world = world(PrunePolicyArg { retain_blocks: Some(100), target_bytes: Some(40 << 20), ..policy() });
    world.hold_at(0);
    let marks = world.status().water_marks.unwrap();
    // No tick has come yet, so the time for which blocks are held back and the growth rate of the chain are unknown.
    while world.status().capacity_bytes <= marks.high {
        assert_eq!(world.export_held(), None);
        world.append(1, 200_000, 1);
    }
    assert_eq!(world.due().map(|due| due.0), Some(PruneReason::Retention));
    let held = world.export_held().unwrap();
    assert_eq!((held.is_full, held.is_rate_known, held.until_emergency), (true, false, None));
    while world.status().capacity_bytes < marks.emergency {
        world.append(1, 200_000, 1);
    }
    assert_eq!(world.exhausted(), Some(HeldBy::Exporter("slow".into())));
    assert_eq!(world.export_held().unwrap().until_emergency, Some(0));
    // Now the switch holds the blocks back, not an exporter.
    world.pruner.switch(false);
    assert_eq!(world.export_held(), None);
}

#[test]
fn blocks_held_back_are_a_problem_if_emergency_water_is_near() {
    let arg = |lag| PrunePolicyArg {
        retain_blocks: Some(2),
        target_bytes: Some(40 << 20),
        max_export_lag_secs: Some(lag),
        ..policy()
    };
    let mut world = world(arg(7_200));
    world.hold_at(0);
    world.append(1, 100_000, 1);
    world.tick_next();
    // At 100 kB a minute, 39.8 MB are reached in six and a half hours.
    for _ in 0..90 {
        world.append(1, 100_000, 60);
        world.tick_next();
    }
    world.set_policy(arg(5 * 3_600));
    assert_eq!(world.export_held(), None);
    world.append(60, 100_000, 60);
    let held = world.export_held().unwrap();
    assert!(held.until_emergency.is_some_and(|secs| secs / 3_600 == 4) && held.is_rate_known, "{held:?}");
    // Without appends emergency water does not come nearer, and the blocks are held for less than the allowed time.
    world.set_policy(arg(30 * DAY));
    for _ in 0..8 {
        world.wait(600);
        world.tick_next();
    }
    assert_eq!(world.export_held(), None);
}
