//! Policy over a real chain: what is due, and where it ends.

use super::*;
use crate::api::{HeldBy, PrunePolicyArg, PruneProgress, PruneStatus, StopReason};
use crate::blob::Owner;
use crate::chain::Admission;
use crate::memory;
use crate::runtime::native;
use crate::testing::{block, fresh, id};

const CLASS: u32 = 64 << 10;
const DAY: u64 = 86_400;

struct World {
    chain: ChainStore,
    blobs: BlobStore,
    pruner: Pruner,
    constraints: Constraints,
}

fn world(policy: PrunePolicyArg) -> World {
    let (chain, blobs) = fresh(CLASS);
    let cells = Rc::new(memory::region(memory::CELLS));
    let mut pruner = Pruner::open(cells).unwrap();
    pruner.set_policy(PrunePolicy::new(&policy, chain.log_class()).unwrap());
    World { chain, blobs, pruner, constraints: Constraints { guard: None, min_liquid_cycles: 0 } }
}

impl World {
    /// Appends blocks with a body of `body` bytes, one each `secs` seconds; time goes along.
    fn append(&mut self, blocks: u64, body: usize, secs: u64) {
        for _ in 0..blocks {
            let number = self.chain.state().next;
            native::with(|world| world.time_ns += secs * 1_000_000_000);
            let mut block = block(number, &[id(number)], body);
            block.timestamp = runtime::time_secs();
            self.chain.append(&mut self.blobs, &block, &Admission::default(), runtime::time_secs()).unwrap();
        }
    }

    fn due(&self) -> Option<(PruneReason, u64)> {
        let due = self.pruner.due(&self.chain, &self.blobs, self.constraints.guard.as_ref());
        due.map(|due| (due.reason, due.before))
    }

    fn prune(&mut self, ops: u64) -> PruneRun {
        self.pruner.prune_now(&mut self.chain, &mut self.blobs, self.constraints.guard.as_ref(), ops).unwrap()
    }

    fn tick(&mut self) {
        self.pruner.tick(&mut self.chain, &mut self.blobs, &self.constraints);
    }

    fn status(&self) -> PruneStatus {
        self.pruner.status(&self.chain, &self.blobs, &self.constraints)
    }

    fn hold_at(&mut self, before: u64) {
        self.constraints.guard = guard(before);
    }

    fn plan(&self) -> crate::api::PrunePlan {
        self.pruner.plan(&self.chain, &self.blobs, &self.constraints).unwrap()
    }

    fn exhausted(&self) -> Option<HeldBy> {
        self.pruner.exhausted(&self.chain, &self.blobs, || Constraints {
            guard: self.constraints.guard.clone(),
            min_liquid_cycles: self.constraints.min_liquid_cycles,
        })
    }

    fn oldest(&self) -> u64 {
        self.chain.state().oldest
    }
}

fn policy() -> PrunePolicyArg {
    PrunePolicyArg::default()
}

#[test]
fn count_retains_that_many_blocks_behind_the_head() {
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
    assert_eq!(
        world.due(),
        Some((PruneReason::Retention, 5)),
        "blocks younger than two days stay, and one exactly so old"
    );
    world.prune(1_000);
    assert_eq!(world.oldest(), 5);
    native::with(|world| world.time_ns += 100 * DAY * 1_000_000_000);
    world.prune(1_000);
    assert_eq!(world.oldest(), 9, "the head is never pruned");
}

#[test]
fn of_age_and_count_the_one_that_retains_less_decides() {
    let mut world = world(PrunePolicyArg { retain_days: Some(2), retain_blocks: Some(3), ..policy() });
    world.append(10, 100, DAY / 2);
    assert_eq!(world.due(), Some((PruneReason::Retention, 6)), "by count 6, by age 5");
    let policy = PrunePolicyArg { retain_days: Some(2), retain_blocks: Some(5), ..policy() };
    world.pruner.set_policy(PrunePolicy::new(&policy, world.chain.log_class()).unwrap());
    assert_eq!(world.due(), Some((PruneReason::Retention, 5)), "by count 4, by age 5");
}

#[test]
fn without_retention_nothing_is_due_but_for_capacity() {
    let mut world = world(policy());
    world.append(50, 100, DAY);
    assert_eq!(world.due(), None);
    assert_eq!(world.prune(100).blocks, 0);
}

#[test]
fn capacity_prunes_from_high_to_low_water_ignoring_retention() {
    // 100 blobs: high water 90, low water 80, emergency 95.
    let target = 100 * u64::from(CLASS);
    let mut world = world(PrunePolicyArg { target_bytes: Some(target), retain_blocks: Some(1_000_000), ..policy() });
    world.append(90, CLASS as usize - 57, 1);
    let kept = |world: &World| world.blobs.kept_bytes(Owner::Chain) / u64::from(CLASS);
    assert_eq!(kept(&world), 90);
    assert_eq!(world.due(), None, "high water itself is not above it");
    world.append(1, CLASS as usize, 1);
    assert!(kept(&world) > 90);
    let Some((PruneReason::Capacity, before)) = world.due() else { panic!("{:?}", world.due()) };
    // A budget of one block a run: the trigger stays until low water is reached.
    let mut runs = 0;
    while world.due().is_some() {
        assert_eq!(world.prune(1).blocks, 1);
        runs += 1;
    }
    assert_eq!((kept(&world), world.oldest(), runs), (80, before, before));
    world.append(5, CLASS as usize - 57, 1);
    assert_eq!(world.due(), None, "between the marks nothing is due");
}

#[test]
fn a_victim_must_release_a_blob() {
    let target = 30 * u64::from(CLASS);
    let mut world = world(PrunePolicyArg { target_bytes: Some(target), headroom_ratio_bps: Some(5_000), ..policy() });
    // Sixteen blocks to a blob.
    world.append(16 * 23, CLASS as usize / 16 - 57, 1);
    let (_, before) = world.due().unwrap();
    // Eight blobs must go: the bound is the first block that starts behind the eighth, and not one later.
    let start = |number: u64| world.chain.meta(number).unwrap().log_offset;
    let boundary = 8 * u64::from(CLASS);
    assert!(start(before - 1) < boundary && boundary <= start(before));
    assert_eq!(world.prune(100_000).blobs, 8);
    assert_eq!(world.oldest(), before);
    assert!(world.blobs.kept_bytes(Owner::Chain) <= world.pruner.policy().unwrap().low_water());
}

#[test]
fn at_emergency_water_it_is_said_who_holds_pruning_back() {
    let target = 100 * u64::from(CLASS);
    let mut world = world(PrunePolicyArg { target_bytes: Some(target), ..policy() });
    world.append(94, CLASS as usize - 57, 1);
    assert_eq!(world.exhausted(), None);
    world.append(1, CLASS as usize - 57, 1);
    assert_eq!(world.exhausted(), Some(HeldBy::PruneLag));
    world.pruner.set_enabled(false).unwrap();
    assert_eq!(world.exhausted(), Some(HeldBy::Disabled));
    let status = world.status();
    assert!(status.need_prune && !status.enabled, "need_prune is independent of enabled");
    assert_eq!(status.held_by, Some(HeldBy::Disabled));
}

#[test]
fn a_tick_keeps_its_budgets_and_makes_progress_with_the_smallest() {
    let mut world = world(PrunePolicyArg { retain_blocks: Some(1), max_ops_per_tick: Some(1), ..policy() });
    world.append(10, 100, 1);
    for oldest in 1..=8 {
        world.tick();
        assert_eq!(world.oldest(), oldest, "one block a tick");
    }
    world.tick();
    assert_eq!(world.oldest(), 8);
    let last = world.status().last_run.unwrap();
    assert_eq!((last.progress, last.blocks, last.ticks), (PruneProgress::Finished, 8, 8), "one run over eight ticks");

    world.append(100, 100, 1);
    let mut policy = world.pruner.policy().unwrap().clone();
    policy.max_ops_per_tick = 1_000;
    policy.max_instructions_per_tick = 200_000;
    world.pruner.set_policy(policy);
    native::with(|world| world.instructions_per_reading = 50_000);
    world.tick();
    let last = world.status().last_run.unwrap();
    assert_eq!(last.progress, PruneProgress::HasMore { reason: StopReason::Instructions });
    assert!((1..10).contains(&last.blocks), "{last:?}");
}

#[test]
fn the_daemon_stays_off_without_a_policy_cycles_or_permission() {
    let mut world = world(PrunePolicyArg { retain_blocks: Some(1), ..policy() });
    world.append(10, 100, 1);
    world.pruner.set_enabled(false).unwrap();
    world.tick();
    assert_eq!(world.oldest(), 0);
    world.pruner.set_enabled(true).unwrap();
    native::with(|world| world.liquid_cycles = 5);
    world.constraints.min_liquid_cycles = 6;
    world.tick();
    assert_eq!(world.oldest(), 0);
    native::with(|world| world.liquid_cycles = 6);
    world.tick();
    assert_eq!(world.oldest(), 8);
}

#[test]
fn a_first_policy_switches_the_daemon_on_and_survives_an_upgrade() {
    fresh(CLASS);
    let open = || Pruner::open(Rc::new(memory::region(memory::CELLS))).unwrap();
    let mut pruner = open();
    assert_eq!(pruner.set_enabled(true), Err(PruneError::NoPolicy));
    assert!(!pruner.stored.enabled);
    let policy = PrunePolicy { retain_blocks: 7, ..PrunePolicy::default() };
    pruner.set_policy(policy.clone());
    assert!(pruner.stored.enabled);
    pruner.set_enabled(false).unwrap();
    pruner.set_policy(PrunePolicy { retain_blocks: 8, ..policy.clone() });
    assert!(!pruner.stored.enabled, "a later policy leaves the switch alone");
    drop(pruner);
    let pruner = open();
    assert_eq!(pruner.policy(), Some(&PrunePolicy { retain_blocks: 8, ..policy }));
}

#[test]
fn a_damaged_head_does_not_stop_the_capacity_trigger() {
    let target = 100 * u64::from(CLASS);
    let mut world = world(PrunePolicyArg { target_bytes: Some(target), ..policy() });
    world.append(96, CLASS as usize - 57, 1);
    world.chain.poison_record(95);
    assert_eq!(world.exhausted(), Some(HeldBy::PruneLag));
    while world.due().is_some() {
        assert!(world.prune(1_000).blocks > 0);
    }
    assert_eq!(world.exhausted(), None);
    assert_eq!(world.blobs.kept_bytes(Owner::Chain), 80 * u64::from(CLASS));
    world.append(1, 10, 1);
}

fn guard(before: u64) -> Option<Guard> {
    Some(Guard { before, held_by: HeldBy::Exporter("slow".into()) })
}

#[test]
fn retention_never_passes_the_guard() {
    let mut world = world(PrunePolicyArg { retain_blocks: Some(10), ..policy() });
    world.append(30, 100, 1);
    world.constraints.guard = guard(0);
    world.tick();
    let status = world.status();
    assert_eq!((status.need_prune, status.target, status.prune_cursor), (true, 19, None));
    assert_eq!((status.held_by, world.oldest()), (Some(HeldBy::Exporter("slow".into())), 0));
    assert_eq!((status.runs, status.last_run), (0, None), "what may not go is no run");
    world.constraints.guard = guard(7);
    assert_eq!(world.status().prune_cursor, Some(0));
    let run = world.prune(1_000);
    assert_eq!((run.blocks, run.progress), (7, PruneProgress::HasMore { reason: StopReason::Guard }));
    world.constraints.guard = guard(25);
    world.tick();
    assert_eq!(world.oldest(), 19, "retention is the limit then");
    assert_eq!(world.status().held_by, None);
}

#[test]
fn capacity_never_passes_the_guard_and_takes_only_what_frees_a_blob() {
    let target = 100 * u64::from(CLASS);
    let mut world = world(PrunePolicyArg { target_bytes: Some(target), ..policy() });
    // Four blocks to a blob.
    world.append(4 * 96, CLASS as usize / 4 - 53, 1);
    world.constraints.guard = guard(3);
    assert_eq!(world.exhausted(), Some(HeldBy::Exporter("slow".into())), "three blocks free no blob");
    world.tick();
    assert_eq!(world.oldest(), 0);
    world.constraints.guard = guard(11);
    assert_eq!(world.exhausted(), Some(HeldBy::PruneLag), "two blobs may go, and have only not gone yet");
    world.tick();
    assert_eq!(world.oldest(), 8, "blocks 8 to 10 would free nothing");
    world.append(4, CLASS as usize / 4 - 53, 1);
    world.tick();
    assert_eq!(world.oldest(), 8);
    assert_eq!(world.exhausted(), Some(HeldBy::Exporter("slow".into())));
    world.pruner.set_enabled(false).unwrap();
    assert_eq!(world.exhausted(), Some(HeldBy::Disabled));
    world.pruner.set_enabled(true).unwrap();
    world.constraints.guard = None;
    world.constraints.min_liquid_cycles = u128::MAX;
    assert_eq!(world.exhausted(), Some(HeldBy::LowCycles));
    world.constraints.min_liquid_cycles = 0;
    while world.due().is_some() {
        world.tick();
    }
    assert_eq!(world.blobs.kept_bytes(Owner::Chain) / u64::from(CLASS), 80, "down to low water, hysteresis and all");
}

#[test]
fn the_plan_is_what_the_next_run_does() {
    let target = 100 * u64::from(CLASS);
    let arg =
        PrunePolicyArg { target_bytes: Some(target), retain_blocks: Some(500), max_ops_per_tick: Some(11), ..policy() };
    let mut world = world(arg);
    assert_eq!(world.plan().reason, None);
    world.append(4 * 95, CLASS as usize / 4 - 53, 1);
    let mut runs = 0;
    for limit in [5, 30, u64::MAX] {
        world.constraints.guard = guard(limit);
        loop {
            let (plan, oldest) = (world.plan(), world.oldest());
            let run = world.prune(11);
            assert_eq!((plan.blocks, plan.ops, plan.blobs), (run.blocks, run.ops, run.blobs));
            assert_eq!((plan.bytes, plan.progress, plan.reason), (run.bytes, run.progress, run.reason));
            assert_eq!(plan.held_by.is_some(), plan.before < plan.target);
            assert_eq!(world.oldest(), oldest + plan.blocks);
            runs += 1;
            if !matches!(run.progress, PruneProgress::HasMore { reason: StopReason::Ops }) {
                break;
            }
        }
    }
    assert!(runs > 10);
    assert_eq!(world.plan().blocks, 0);
    world.append(300, 10, 1);
    let plan = world.plan();
    assert_eq!((plan.reason, plan.retain_min_block), (Some(PruneReason::Retention), 4 * 95 + 300 - 1 - 500));
    world.pruner.set_enabled(false).unwrap();
    assert_eq!(world.plan().held_by, Some(HeldBy::Disabled));
    // Instructions are reckoned generously.
    let mut policy = world.pruner.policy().unwrap().clone();
    (policy.max_ops_per_tick, policy.max_instructions_per_tick) = (1_000, 400_000);
    world.pruner.set_policy(policy);
    let plan = world.plan();
    assert_eq!(plan.progress, PruneProgress::HasMore { reason: StopReason::Instructions });
    assert!((1..=world.prune(1_000).blocks).contains(&plan.blocks));
}

/// Appends a block of 20 transactions, and has prune messages take one index entry at a time.
fn append_large(world: &mut World) -> u64 {
    let number = world.chain.state().next;
    let ids: Vec<_> = (0..20).map(|i| id(number << 20 | i)).collect();
    let large = block(number, &ids, 100);
    world.chain.append(&mut world.blobs, &large, &Admission::default(), runtime::time_secs()).unwrap();
    world.chain.set_most_pages(0);
    number
}

#[test]
fn a_block_in_parts_is_one_run_and_comes_before_anything_else() {
    let mut world = world(PrunePolicyArg { retain_blocks: Some(1), ..policy() });
    world.append(3, 100, 1);
    let large = append_large(&mut world);
    world.append(4, 100, 1);
    // The small blocks before it, as each is one entry, and its first; then an entry a tick; then its last with the small
    // ones behind it.
    let plan = world.plan();
    assert_eq!((plan.blocks, plan.parts, plan.ops), (3, 1, 3 * 2 + 1));
    assert_eq!(plan.progress, PruneProgress::HasMore { reason: StopReason::Pages });
    world.tick();
    assert_eq!((world.oldest(), world.status().prune_cursor), (large + 1, Some(large)));
    let run = world.status().last_run.unwrap();
    assert_eq!((run.blocks, run.parts, run.ops), (3, 1, 3 * 2 + 1));
    assert_eq!(run.progress, PruneProgress::HasMore { reason: StopReason::Pages });
    assert_eq!((world.plan().blocks, world.plan().parts), (0, 1));
    (0..18).for_each(|_| world.tick());
    assert_eq!(world.status().last_run.unwrap().parts, 19);
    assert!(world.chain.state().sweeping().is_some());
    world.tick();
    let run = world.status().last_run.unwrap();
    assert_eq!((run.ticks, run.blocks, run.parts, run.progress), (20, 6, 19, PruneProgress::Finished));
    // Each of its entries, and of every block its record and its entries.
    assert_eq!(run.ops, 5 * 2 + 21);
    assert_eq!((world.oldest(), world.chain.index_stats().entries), (6, 2));
}

#[test]
fn a_block_in_parts_is_finished_whatever_becomes_of_the_reason() {
    let mut world = world(PrunePolicyArg { retain_blocks: Some(1), ..policy() });
    let large = append_large(&mut world);
    world.append(3, 100, 1);
    world.tick();
    assert_eq!(world.chain.state().sweeping(), Some(large));
    world.pruner.set_policy(PrunePolicy::default());
    world.constraints.guard = guard(0);
    let status = world.status();
    assert_eq!((status.need_prune, status.prune_cursor, status.target), (true, Some(large), large + 1));
    for _ in 0..19 {
        assert!(world.due().is_some());
        world.tick();
    }
    assert_eq!((world.due(), world.oldest(), world.chain.state().sweeping()), (None, large + 1, None));
    assert_eq!(world.chain.index_stats().entries, 3);
}

/// Damage does not stop the daemon: it is counted, logged, skipped, and its space accounted for.
#[test]
fn a_poisoned_record_and_a_poisoned_pointer_are_skipped_by_the_daemon() {
    let mut world = world(PrunePolicyArg { retain_blocks: Some(2), ..policy() });
    world.append(12, CLASS as usize, 1);
    world.chain.poison_record(3);
    world.chain.poison_log(5);
    let kept = world.blobs.kept_bytes(Owner::Chain);
    world.tick();
    let status = world.status();
    assert_eq!((status.pruned_before_block, status.pruned_blocks, status.faults > 0), (9, 9, true), "{status:?}");
    assert_eq!(status.last_run.unwrap().faults, status.faults);
    let log = native::with(|world| world.log.join("\n"));
    assert!(log.contains("block 3") && log.contains("blob 5"), "{log}");
    let freed = (kept - world.blobs.kept_bytes(Owner::Chain)) / u64::from(CLASS);
    assert_eq!(
        freed,
        world.chain.meta(9).unwrap().log_offset / u64::from(CLASS),
        "all but what is kept, the lost one too"
    );
    world.append(30, CLASS as usize, 1);
    world.tick();
    assert_eq!((world.oldest(), world.status().faults), (39, status.faults), "and the rest goes on");
}

#[test]
fn a_sweep_for_capacity_is_one_run_down_to_low_water() {
    let target = 100 * u64::from(CLASS);
    let mut world = world(PrunePolicyArg { target_bytes: Some(target), ..policy() });
    world.append(14, CLASS as usize - 53, 1);
    let large = append_large(&mut world);
    world.append(77, CLASS as usize - 53, 1);
    assert_eq!(world.due(), Some((PruneReason::Capacity, large - 2)), "twelve blobs");
    // The large block is the last victim: one blob more must go.
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
    assert!(world.blobs.kept_bytes(Owner::Chain) <= world.pruner.policy().unwrap().low_water());
}

/// What a record says may be wrong in any way: nothing that was not acknowledged goes.
#[test]
fn a_damaged_record_at_the_guard_lets_nothing_past_it() {
    let target = 100 * u64::from(CLASS);
    let mut world = world(PrunePolicyArg { target_bytes: Some(target), ..policy() });
    world.append(96, CLASS as usize - 53, 1);
    world.hold_at(7);
    world.chain.misplace_record(7, 1 << 40);
    for _ in 0..5 {
        world.tick();
        assert!(world.oldest() <= 7, "pruned before {}", world.oldest());
    }
    world.chain.poison_record(7);
    world.tick();
    assert!(world.oldest() <= 7);
}

/// One damaged record among few large blocks: the bound goes to the next block that can be read.
#[test]
fn a_damaged_record_does_not_stop_the_capacity_trigger() {
    for damaged in 1..7 {
        let target = 100 * u64::from(CLASS);
        let mut world = world(PrunePolicyArg { target_bytes: Some(target), ..policy() });
        world.append(8, 12 * CLASS as usize - 53, 1);
        world.chain.poison_record(damaged);
        assert_eq!(world.exhausted(), Some(HeldBy::PruneLag));
        (0..3).for_each(|_| world.tick());
        assert_eq!((world.exhausted(), world.due()), (None, None), "record {damaged}");
        let kept = world.blobs.kept_bytes(Owner::Chain);
        assert!(kept <= world.pruner.policy().unwrap().low_water(), "record {damaged}: {kept}");
    }
}

#[test]
fn the_capacity_trigger_is_done_when_low_water_is_reached_in_any_way() {
    let target = 100 * u64::from(CLASS);
    let arg = PrunePolicyArg { target_bytes: Some(target), max_ops_per_tick: Some(12), ..policy() };
    let mut world = world(arg);
    world.append(91, CLASS as usize - 53, 1);
    world.tick();
    let kept = |world: &World| world.blobs.kept_bytes(Owner::Chain) / u64::from(CLASS);
    assert_eq!((kept(&world), world.status().running), (88, true), "stopped by its ops, between the marks");
    while kept(&world) > 78 {
        world.chain.remove_head(&mut world.blobs).unwrap();
    }
    world.pruner.rolled_back(&world.blobs);
    assert!(!world.status().running);
    world.append(3, CLASS as usize - 53, 1);
    assert_eq!((kept(&world), world.due()), (81, None), "above low water, and not yet above high water again");
}

/// The library may deliver a firing twice.
#[test]
fn a_second_tick_at_the_same_moment_changes_nothing() {
    let mut world = world(PrunePolicyArg { retain_blocks: Some(5), ..policy() });
    world.append(30, 1_000, 1);
    world.tick();
    let status = world.status();
    assert_eq!(status.pruned_before_block, 24);
    world.tick();
    assert_eq!(world.status(), PruneStatus { ticks: status.ticks + 1, ..status });
}

#[test]
fn a_run_ends_where_the_daemon_is_stopped() {
    let mut world = world(PrunePolicyArg { retain_blocks: Some(5), max_ops_per_tick: Some(4), ..policy() });
    world.append(30, 1_000, 1);
    world.tick();
    assert_eq!((world.status().running, world.status().runs), (true, 1));
    world.pruner.set_enabled(false).unwrap();
    assert!(!world.status().running);
    world.pruner.set_enabled(true).unwrap();
    world.tick();
    assert_eq!((world.status().running, world.status().runs), (true, 2));
    world.hold_at(0);
    world.tick();
    assert!(!world.status().running, "held: what comes then is another run");
}
