//! The plan predicts the next run.

use super::*;
use ic_coppice_interface::BadArgument;

#[test]
fn plan_predicts_the_next_run() {
    let target = 100 * u64::from(CLASS);
    let arg =
        PrunePolicyArg { target_bytes: Some(target), retain_blocks: Some(500), max_ops_per_tick: Some(5), ..policy() };
    let mut world = world(arg);
    assert_eq!(world.plan().reason, None);
    world.append(4 * 95, CLASS as usize / 4 - 53, 1);
    let mut runs = 0;
    for limit in [5, 30, u64::MAX] {
        world.constraints.exported = guard(limit);
        loop {
            let (plan, oldest) = (world.plan(), world.oldest());
            let run = world.prune(5);
            assert_eq!((plan.blocks, plan.ops, plan.blobs), (run.blocks, run.ops - run.dropped, run.blobs));
            assert_eq!((plan.bytes, plan.progress, plan.reason), (run.bytes, run.progress, run.reason));
            assert_eq!(plan.held_by.is_some(), plan.before < plan.target);
            assert_eq!(world.oldest(), oldest + plan.blocks);
            runs += 1;
            if !matches!(run.progress, PruneProgress::HasMore { reason: Some(StopReason::Ops) }) {
                break;
            }
        }
    }
    assert!(runs > 10);
    assert_eq!(world.plan().blocks, 0);
    world.append(300, 10, 1);
    let plan = world.plan();
    assert_eq!((plan.reason, plan.retain_min_block), (Some(PruneReason::Retention), 4 * 95 + 300 - 1 - 500));
    world.pruner.switch(false);
    assert_eq!(world.plan().held_by, Some(HeldBy::Disabled));
    // Instructions are estimated generously.
    let mut policy = world.pruner.policy().unwrap().clone();
    (policy.max_ops_per_tick, policy.max_instructions_per_tick) = (1_000, 400_000);
    world.pruner.set_policy(policy);
    let plan = world.plan();
    assert_eq!(plan.progress, PruneProgress::HasMore { reason: Some(StopReason::Instructions) });
    assert!((1..=world.prune(1_000).blocks).contains(&plan.blocks));
}

#[test]
fn plan_of_a_change_predicts_the_next_run_after_it() {
    let (chain, blobs) = fresh(CLASS);
    let pruner = Pruner::open(testing::cells()).unwrap();
    let constraints = Constraints { exported: None, applying: None, stopped_since: None, low_on_cycles: false };
    let mut world = World { chain, blobs, pruner, constraints };
    world.append(4 * 95, CLASS as usize / 4 - 53, 1);
    let config = Config { log_class: CLASS, ..Config::default() };
    let plan = |world: &World, change: &PrunePolicyArg| {
        world.pruner.plan(&world.chain, &world.blobs, &world.constraints, Some((change, &config)))
    };
    let in_force = |world: &World| world.pruner.plan(&world.chain, &world.blobs, &world.constraints, None);
    assert_eq!(in_force(&world), Err(PruneError::NoPolicy));
    let bad = PrunePolicyArg { timer_interval_secs: Some(0), ..policy() };
    assert!(
        matches!(plan(&world, &bad), Err(PruneError::BadArgument(BadArgument { field, .. })) if field == "timer_interval_secs")
    );

    // The first policy, then changes that each keep some settings.
    let target = Some(100 * u64::from(CLASS));
    let arg = PrunePolicyArg::default;
    let changes = [
        PrunePolicyArg { retain_blocks: Some(370), ..policy() },
        PrunePolicyArg { max_ops_per_tick: Some(7), retain_blocks: Some(300), ..arg() },
        PrunePolicyArg { target_bytes: target, ..arg() },
        // The capacity run goes on to low water.
        PrunePolicyArg { pruning_enabled: Some(true), ..arg() },
        PrunePolicyArg { target_bytes: target, headroom_ratio_bps: Some(9_000), ..arg() },
        PrunePolicyArg { target_bytes: Some(0), retain_blocks: Some(0), ..arg() },
        arg(),
    ];
    let (mut pruned, mut idle) = (0, 0);
    for change in changes {
        let would = plan(&world, &change).unwrap();
        let again = plan(&world, &change).unwrap();
        assert_eq!(would, again, "nothing has changed");
        let policy = policy::changed(&world.pruner.policy().cloned().unwrap_or_default(), &change, &config).unwrap();
        world.pruner.set_policy(policy.clone());
        assert_eq!(in_force(&world).unwrap(), would, "{change:?}");
        let run = world.prune(policy.max_ops_per_tick);
        assert_eq!((would.blocks, would.bytes, would.reason), (run.blocks, run.bytes, run.reason), "{change:?}");
        pruned += run.blocks;
        idle += u64::from(run.blocks == 0);
    }
    assert!(pruned > 10 && idle > 0, "{pruned} blocks, {idle} idle");
    // The plan reports whether pruning is switched off after the change.
    let one = PrunePolicyArg { retain_blocks: Some(1), ..arg() };
    let off = PrunePolicyArg { pruning_enabled: Some(false), ..one.clone() };
    assert_eq!(plan(&world, &off).unwrap().held_by, Some(HeldBy::Disabled));
    world.pruner.switch(false);
    assert_eq!(plan(&world, &one).unwrap().held_by, Some(HeldBy::Disabled));
    let on = PrunePolicyArg { pruning_enabled: Some(true), ..one };
    assert_eq!(plan(&world, &on).unwrap().held_by, None);
}
