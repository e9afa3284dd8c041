//! `target_bytes` as a bound: for blocks of any size, and whatever holds pruning back, the chain takes less than the emergency watermark
//! plus one block.

use coppice_tests::blocks::{hash, plain};
use coppice_tests::client::Answered;
use coppice_tests::coppice::{Coppice, LOG_CLASS, Who};
use ic_coppice_interface::*;

const MB: usize = 1_000_000;
const TARGET: u64 = 32 << 20;

fn bounded(target_bytes: u64) -> Coppice {
    let coppice = Coppice::new();
    coppice.set_policy(PrunePolicyArg { target_bytes: Some(target_bytes), ..PrunePolicyArg::default() }).unwrap();
    coppice
}

fn marks(status: &PruneStatus) -> WaterMarks {
    status.water_marks.expect("there is a target")
}

/// Appends blocks of a megabyte until one is refused. Returns its number and what holds pruning back.
fn fill(coppice: &Coppice, first: u64) -> (u64, HeldBy) {
    for number in first..first + 100 {
        match coppice.append(&plain(number, 3, MB)) {
            Ok(()) => {}
            Err(AppendError::CapacityExhausted { held_by }) => return (number, held_by),
            Err(other) => panic!("{other:?}"),
        }
    }
    panic!("{:?}: it never fills up", coppice.prune_status())
}

#[test]
fn a_target_of_32_mib_bounds_blocks_of_a_megabyte_with_the_default_policy() {
    let coppice = bounded(TARGET);
    let mut next = 0;
    for _ in 0..12 {
        let (refused, held_by) = fill(&coppice, next);
        assert_eq!(held_by, HeldBy::PruneLag);
        let status = coppice.prune_status();
        assert!(status.need_prune && status.reason == Some(PruneReason::Capacity), "{status:?}");
        assert!(status.capacity_bytes < marks(&status).emergency + MB as u64 + u64::from(LOG_CLASS), "{status:?}");
        coppice.pass(60);
        let status = coppice.prune_status();
        assert!(status.capacity_bytes <= marks(&status).low, "{status:?}");
        next = refused;
    }
    assert!(next > 70 && coppice.anyone().health().answer().healthy);
}

#[test]
fn an_acknowledgement_while_appends_are_refused_prunes_at_once() {
    let coppice = bounded(TARGET);
    coppice.register(Who::Exporter);
    let held = HeldBy::Exporter(Who::Exporter.name());
    let (mut next, held_by) = fill(&coppice, 0);
    assert_eq!(held_by, held);
    // Acknowledges one block at a time: each is pruned at once, and makes room for about one block.
    for acknowledged in 0..20 {
        coppice.ack(Who::Exporter, acknowledged, &hash(acknowledged)).unwrap();
        coppice.pass(0);
        assert_eq!(coppice.prune_status().pruned_before_block, acknowledged + 1);
        let (refused, held_by) = fill(&coppice, next);
        assert_eq!(held_by, held);
        assert!((next..=next + 2).contains(&refused), "{next}, {refused}");
        next = refused;
    }
    // A repeated acknowledgement frees nothing and triggers no tick. The append that reached the mark was followed by one.
    coppice.pass(0);
    let ticks = coppice.prune_status().ticks;
    coppice.ack(Who::Exporter, 19, &hash(19)).unwrap();
    coppice.pass(0);
    assert_eq!(coppice.prune_status().ticks, ticks);
    // The interval is unchanged while appends are accepted.
    coppice.ack(Who::Exporter, next - 1, &hash(next - 1)).unwrap();
    coppice.pass(0);
    coppice.append(&plain(next, 3, 10)).unwrap();
    coppice.pass(60);
    let (ticks, pruned) = (coppice.prune_status().ticks, coppice.prune_status().pruned_before_block);
    coppice.append(&plain(next + 1, 3, 4 * MB / 3)).unwrap();
    coppice.ack(Who::Exporter, next, &hash(next)).unwrap();
    coppice.pass(0);
    assert_eq!((coppice.prune_status().ticks, coppice.prune_status().pruned_before_block), (ticks, pruned));
    // While pruning is switched off, no tick is triggered either.
    let (next, _) = fill(&coppice, next + 2);
    coppice
        .operator()
        .set_prune_policy(&PrunePolicyArg { pruning_enabled: Some(false), ..PrunePolicyArg::default() })
        .answer()
        .unwrap();
    coppice.pass(60);
    let ticks = coppice.prune_status().ticks;
    coppice.ack(Who::Exporter, next - 1, &hash(next - 1)).unwrap();
    coppice.pass(0);
    assert_eq!(coppice.prune_status().ticks, ticks);
    assert_eq!(coppice.append(&plain(next, 3, MB)), Err(AppendError::CapacityExhausted { held_by: HeldBy::Disabled }));
}

/// Two blocks that exceed the emergency watermark are kept, and the chain still grows.
#[test]
fn two_blocks_above_the_emergency_watermark_are_kept_and_health_names_the_needed_target() {
    let coppice = bounded(24 * u64::from(LOG_CLASS));
    let raised = || {
        let problems = coppice.anyone().health().answer().problems;
        problems.into_iter().find(|problem| problem.code == ProblemCode::FloorHolds)
    };
    coppice.append(&plain(0, 3, MB)).unwrap();
    assert_eq!(raised(), None);
    coppice.append(&plain(1, 3, MB)).unwrap();
    for number in 2..6 {
        let status = coppice.prune_status();
        assert_eq!((status.pruned_before_block, status.need_prune), (number - 2, false), "{status:?}");
        assert!(status.capacity_bytes > marks(&status).emergency, "{status:?}");
        assert_eq!((status.held_by, status.floor_block), (Some(HeldBy::Floor), Some(number - 2)));
        let plan = coppice.plan().unwrap();
        assert_eq!((plan.held_by, plan.floor_block, plan.blocks), (Some(HeldBy::Floor), Some(number - 2), 0));
        let problem = raised().expect("the problem is raised");
        assert!(problem.severity == Severity::Warning && problem.message.contains("appends go on"), "{problem:?}");
        coppice.append(&plain(number, 3, MB)).unwrap();
        // The first of the three blocks may be pruned, but a tick has not pruned it yet.
        let refused = coppice.append(&plain(number + 1, 3, MB));
        assert_eq!(refused, Err(AppendError::CapacityExhausted { held_by: HeldBy::PruneLag }));
        assert_eq!(raised(), None);
        coppice.pass(60);
    }
    // A reorg of one block is possible, and no kept block builds on a pruned one.
    let deeper = coppice.producer().rollback_to(3u64, None).answer();
    assert_eq!(deeper, Err(RollbackError::Pruned { first_available: 4 }));
    coppice.producer().rollback_to(4u64, None).answer().unwrap();
    coppice.pass(60);
    coppice.append(&plain(5, 3, MB)).unwrap();
    assert_eq!(coppice.chain().len(), 2);
    // The target that the message names suffices, and 1 MiB less does not.
    let message = raised().expect("the problem is raised").message;
    let needed: u64 =
        message.rsplit_once("target_bytes of at least ").unwrap().1.split(' ').next().unwrap().parse().unwrap();
    let set = |target| coppice.set_policy(PrunePolicyArg { target_bytes: Some(target), ..Default::default() }).unwrap();
    set(needed - (1 << 20));
    assert!(raised().is_some(), "{message}");
    set(needed);
    assert_eq!(raised(), None);
    let status = coppice.prune_status();
    assert_eq!((status.held_by, status.floor_block), (None, None));
}

#[test]
fn the_floor_is_reported_if_it_keeps_blocks_that_age_would_prune() {
    let coppice = Coppice::new();
    let floor = |change: PrunePolicyArg| {
        let plan = coppice.plan_with(Some(change.clone())).unwrap();
        coppice.set_policy(change).unwrap();
        let status = coppice.prune_status();
        assert_eq!((&status.held_by, status.floor_block), (&plan.held_by, plan.floor_block));
        (status.held_by, status.floor_block, status.need_prune)
    };
    let arg = PrunePolicyArg::default;
    // All blocks are some years old.
    coppice.append_plain(0..20, 10);
    assert_eq!(floor(PrunePolicyArg { retain_days: Some(100_000), ..arg() }), (None, None, false));
    assert_eq!(floor(PrunePolicyArg { retain_days: Some(2), ..arg() }), (Some(HeldBy::Floor), Some(3), true));
    coppice.pass(60);
    assert_eq!(coppice.prune_status().pruned_before_block, 3, "by default sixteen blocks below the head are kept");
    assert_eq!(floor(arg()), (Some(HeldBy::Floor), Some(3), false));
    let fewer = PrunePolicyArg { retain_blocks: Some(4), ..arg() };
    assert_eq!(floor(fewer), (Some(HeldBy::Floor), Some(15), true), "a smaller count takes its place");
    let none = PrunePolicyArg { retain_blocks: Some(0), min_kept_blocks: Some(0), ..arg() };
    assert_eq!(floor(none), (None, None, true));
    let all = PrunePolicyArg { min_kept_blocks: Some(u64::MAX), ..arg() };
    assert_eq!(floor(all), (Some(HeldBy::Floor), Some(3), false));
    // Pruning by bytes ignores the floor for pruning by age.
    coppice.append_plain(20..40, MB);
    let bytes = PrunePolicyArg { target_bytes: Some(8 << 20), ..arg() };
    let (held_by, floor_block, need) = floor(bytes);
    assert!(need && held_by == Some(HeldBy::Floor) && floor_block > Some(20), "{held_by:?}, {floor_block:?}");
    coppice.settle(60);
    let status = coppice.prune_status();
    assert!(status.capacity_bytes <= marks(&status).low && status.pruned_before_block > 30, "{status:?}");
}
