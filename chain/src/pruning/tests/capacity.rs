//! The capacity trigger, from high to low water.

use super::*;
use crate::owners;

#[test]
fn capacity_prunes_from_high_to_low_water_ignoring_retention() {
    // 100 blobs: high water 90, low water 80, emergency 95.
    let target = 100 * u64::from(CLASS);
    let mut world = world(PrunePolicyArg { target_bytes: Some(target), retain_blocks: Some(1_000_000), ..policy() });
    world.append(90, CLASS as usize - 57, 1);
    let kept = |world: &World| world.chain.capacity_bytes(&world.blobs);
    // 288 bytes per block besides its blob: its header and its index entries.
    assert_eq!(kept(&world), 90 * (u64::from(CLASS) + 288));
    world.set_policy(PrunePolicyArg { target_bytes: Some(kept(&world) / 9 * 10), ..policy() });
    assert_eq!(world.due(), None, "high water itself is not above it");
    world.append(1, 10, 1);
    let Some((PruneReason::Capacity, before)) = world.due() else { panic!("{:?}", world.due()) };
    // With a budget of one block per run, the trigger stays until low water is reached.
    let mut runs = 0;
    while world.due().is_some() {
        assert_eq!(world.prune(1).blocks, 1);
        runs += 1;
    }
    let low = world.status().water_marks.unwrap().low;
    assert_eq!((world.oldest(), runs), (before, before));
    assert!(kept(&world) <= low && kept(&world) + u64::from(CLASS) + 352 > low, "{} of {low}", kept(&world));
    world.append(5, CLASS as usize - 57, 1);
    assert_eq!(world.due(), None, "between the marks nothing is due");
}

/// A chain of empty blocks takes memory, too: for headers and index entries.
#[test]
fn empty_blocks_fire_the_capacity_trigger() {
    let target = 4 << 20;
    let mut world = world(PrunePolicyArg { target_bytes: Some(target), ..policy() });
    let mut fired = 0;
    for _ in 0..30_000 {
        world.append(1, 0, 1);
        while world.due().is_some() {
            fired += 1;
            assert!(world.prune(15_000).blocks > 0);
        }
        assert!(world.chain.capacity_bytes(&world.blobs) <= target);
    }
    assert!(fired > 3 && world.oldest() > 15_000, "{fired} runs, {}", world.oldest());
    assert_eq!(world.exhausted(), None);
}

#[test]
fn at_emergency_water_the_reason_that_holds_pruning_back_is_reported() {
    let target = 100 * u64::from(CLASS);
    let mut world = world(PrunePolicyArg { target_bytes: Some(target), ..policy() });
    world.append(94, CLASS as usize - 57, 1);
    assert_eq!(world.exhausted(), None);
    world.append(1, CLASS as usize - 57, 1);
    assert_eq!(world.exhausted(), Some(HeldBy::PruneLag));
    world.pruner.switch(false);
    assert_eq!(world.exhausted(), Some(HeldBy::Disabled));
    let status = world.status();
    assert!(status.need_prune && !status.enabled, "need_prune is independent of enabled");
    assert_eq!(status.held_by, Some(HeldBy::Disabled));
}

#[test]
fn a_damaged_head_does_not_stop_the_capacity_trigger() {
    let target = 100 * u64::from(CLASS);
    let mut world = world(PrunePolicyArg { target_bytes: Some(target), ..policy() });
    world.append(96, CLASS as usize - 57, 1);
    world.chain.poison_header(95);
    assert_eq!(world.exhausted(), Some(HeldBy::PruneLag));
    while world.due().is_some() {
        assert!(world.prune(1_000).blocks > 0);
    }
    assert_eq!(world.exhausted(), None);
    assert!(world.chain.capacity_bytes(&world.blobs) <= world.status().water_marks.unwrap().low);
    world.append(1, 10, 1);
}

#[test]
fn a_sweep_for_capacity_is_one_run_down_to_low_water() {
    let target = 100 * u64::from(CLASS);
    let mut world = world(PrunePolicyArg { target_bytes: Some(target), ..policy() });
    world.append(14, CLASS as usize - 53, 1);
    let large = world.chain.state().next;
    let ids: Vec<_> = (0..20).map(|i| id(large << 20 | i)).collect();
    let block = block(large, &ids, 100);
    world.chain.append(&mut world.blobs, &block, &Admission::default(), Ic::now_secs()).unwrap();
    world.append(77, CLASS as usize - 53, 1);
    let Some((PruneReason::Capacity, before)) = world.due() else { panic!("{:?}", world.due()) };
    assert!(before < large, "{before}");
    // The large block is the last to go: one more blob must be freed.
    world.append(2, CLASS as usize - 53, 1);
    let mut reasons = Vec::new();
    while world.due().is_some() {
        reasons.extend(world.due());
        world.tick();
        assert!(reasons.len() < 100);
    }
    assert!(world.chain.state().pruned_blocks > 12);
    assert!(reasons.iter().all(|(reason, _)| *reason == PruneReason::Capacity), "{reasons:?}");
    assert_eq!(world.status().runs, 1);
    assert!(world.chain.capacity_bytes(&world.blobs) <= world.status().water_marks.unwrap().low);
}

/// One damaged header among few large blocks: the bound moves to the next readable block.
#[test]
fn a_damaged_header_does_not_stop_the_capacity_trigger() {
    for damaged in 1..7 {
        let target = 100 * u64::from(CLASS);
        let mut world = world(PrunePolicyArg { target_bytes: Some(target), ..policy() });
        world.append(8, 12 * CLASS as usize - 53, 1);
        world.chain.poison_header(damaged);
        assert_eq!(world.exhausted(), Some(HeldBy::PruneLag));
        (0..3).for_each(|_| world.tick());
        assert_eq!((world.exhausted(), world.due()), (None, None), "header {damaged}");
        let kept = world.chain.capacity_bytes(&world.blobs);
        assert!(kept <= world.status().water_marks.unwrap().low, "header {damaged}: {kept}");
    }
}

/// The search of a tick compares no checksums, but a header with a wrong place misleads it neither to more blocks nor to none.
#[test]
fn a_damaged_place_in_a_header_leads_to_no_more_pruning() {
    let harmed = |harm: Option<(u64, u64)>| {
        let mut world = world(PrunePolicyArg { target_bytes: Some(100 * u64::from(CLASS)), ..policy() });
        world.append(8, 12 * CLASS as usize - 53, 1);
        if let Some((number, log_offset)) = harm {
            world.chain.misplace_header(number, log_offset);
        }
        world
    };
    let right = harmed(None).due().unwrap().1;
    for number in 0..8 {
        for log_offset in [0, 30 * u64::from(CLASS), 1 << 40] {
            let mut world = harmed(Some((number, log_offset)));
            let before = world.due().unwrap().1;
            // The bound moves to the next block if its own header is damaged.
            assert!(before <= right + u64::from(number == right), "block {number} at {log_offset}: {before}");
            (0..4).for_each(|_| world.tick());
            assert_eq!((world.exhausted(), world.due()), (None, None), "block {number} at {log_offset}");
        }
    }
}

#[test]
fn a_rollback_to_low_water_ends_the_capacity_trigger() {
    let target = 100 * u64::from(CLASS);
    let arg = PrunePolicyArg { target_bytes: Some(target), max_ops_per_tick: Some(12), ..policy() };
    let mut world = world(arg);
    world.append(91, CLASS as usize - 53, 1);
    world.tick();
    let kept = |world: &World| world.blobs.arena().kept_bytes(owners::CHAIN) / u64::from(CLASS);
    assert_eq!((kept(&world), world.status().running), (87, true), "stopped by its ops, between the marks");
    while kept(&world) > 78 {
        world.chain.remove_head(&mut world.blobs).unwrap();
    }
    world.pruner.freed_outside_runs(&world.chain, &world.blobs, 0);
    assert!(!world.status().running);
    world.append(3, CLASS as usize - 53, 1);
    assert_eq!((kept(&world), world.due()), (81, None), "above low water, and not yet above high water again");
}

#[test]
fn capacity_leaves_the_head_and_the_block_before_it() {
    let target = 40 * u64::from(CLASS);
    let mut world = world(PrunePolicyArg { target_bytes: Some(target), min_kept_blocks: Some(1_000), ..policy() });
    let large = 30 * CLASS as usize;
    for blocks in 1..=2 {
        world.append(1, large, 1);
        let above = world.pruner.above_smallest_target(&world.chain, &world.blobs);
        assert_eq!((world.due(), world.exhausted(), above.is_some()), (None, None, blocks == 2), "{blocks} blocks");
    }
    world.append(1, large, 1);
    assert_eq!((world.due(), world.exhausted()), (Some((PruneReason::Capacity, 1)), Some(HeldBy::PruneLag)));
    assert_eq!(world.pruner.above_smallest_target(&world.chain, &world.blobs), None);
    world.tick_next();
    assert_eq!((world.oldest(), world.due(), world.exhausted()), (1, None, None));
    // The least target with which nothing is due.
    let needed = policy::target_for(world.pruner.policy().unwrap(), world.chain.capacity_bytes(&world.blobs));
    for (target_bytes, is_enough) in [(needed, true), (needed - (1 << 20), false)] {
        world.set_policy(PrunePolicyArg { target_bytes: Some(target_bytes), ..policy() });
        assert_eq!(world.pruner.above_smallest_target(&world.chain, &world.blobs).is_none(), is_enough);
    }
    world.chain.remove_head(&mut world.blobs).unwrap();
    assert_eq!((world.exhausted(), world.oldest()), (None, 1), "a reorg of one block is possible");
    world.append(1, large, 1);
    // A policy that retains less leaves the head alone.
    world.set_policy(PrunePolicyArg { target_bytes: Some(target), retain_days: Some(1), ..policy() });
    world.wait(10 * DAY);
    world.tick_next();
    assert_eq!(world.oldest(), 2);
    assert_eq!((world.exhausted(), world.status().floor_block), (None, None));
}
