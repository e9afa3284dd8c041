//! Policy over a real chain: what is due, and where it ends.

use super::*;
use crate::chain::Admission;
use crate::operation::health::{Finding, blocks};
use crate::platform::native;
use crate::storage::blob::Owner;
use crate::storage::memory;
use crate::testing::{block, fresh, id};
use coppice_interface::{HeldBy, ProblemCode, PrunePolicyArg, PruneProgress, PruneStatus, StopReason, SweepPhase};

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
    World {
        chain,
        blobs,
        pruner,
        constraints: Constraints { exported: None, stopped_since: None, min_liquid_cycles: 0 },
    }
}

impl World {
    /// Appends blocks with a body of `body` bytes, one each `secs` seconds; time goes along.
    fn append(&mut self, blocks: u64, body: usize, secs: u64) {
        for _ in 0..blocks {
            let number = self.chain.state().next;
            native::with(|world| world.time_ns += secs * 1_000_000_000);
            let mut block = block(number, &[id(number)], body);
            block.timestamp = platform::time_secs();
            self.chain.append(&mut self.blobs, &block, &Admission::default(), platform::time_secs()).unwrap();
        }
    }

    fn set_policy(&mut self, policy: PrunePolicyArg) {
        self.pruner.set_policy(PrunePolicy::new(&policy, self.chain.log_class()).unwrap());
    }

    fn due(&self) -> Option<(PruneReason, u64)> {
        let due = self.pruner.due(&self.chain, &self.blobs, self.constraints.guard().as_ref());
        due.map(|due| (due.reason, due.before))
    }

    fn prune(&mut self, ops: u64) -> PruneRun {
        self.pruner.prune_now(&mut self.chain, &mut self.blobs, self.constraints.guard().as_ref(), ops).unwrap()
    }

    fn tick(&mut self) {
        self.pruner.tick(&mut self.chain, &mut self.blobs, &self.constraints, u64::MAX);
    }

    fn status(&self) -> PruneStatus {
        self.pruner.status(&self.chain, &self.blobs, &self.constraints)
    }

    fn hold_at(&mut self, before: u64) {
        self.constraints.exported = guard(before);
    }

    fn plan(&self) -> coppice_interface::PrunePlan {
        self.pruner.plan(&self.chain, &self.blobs, &self.constraints, None).unwrap()
    }

    /// Returns the problems with sentences, as `health` asks, and asserts that a check without sentences finds the same codes.
    fn problems(&self) -> Vec<Finding> {
        let due = self.pruner.due(&self.chain, &self.blobs, self.constraints.guard().as_ref());
        let stores = (&self.pruner, &self.chain, &self.blobs);
        let of = |said| blocks::due(stores, || self.constraints.clone(), due.as_ref(), said);
        let (said, noted) = (of(true), of(false));
        let codes = |found: &[Finding]| found.iter().map(|found| (found.code, found.since)).collect::<Vec<_>>();
        assert_eq!(codes(&said), codes(&noted));
        said
    }

    fn export_held(&self) -> Option<Finding> {
        self.problems().into_iter().find(|found| found.code == ProblemCode::ExportHeld)
    }

    fn exhausted(&self) -> Option<HeldBy> {
        self.pruner.exhausted(&self.chain, &self.blobs, || self.constraints.clone())
    }

    fn oldest(&self) -> u64 {
        self.chain.state().oldest
    }
}

fn policy() -> PrunePolicyArg {
    PrunePolicyArg { min_kept_blocks: Some(0), ..PrunePolicyArg::default() }
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
    let kept = |world: &World| world.chain.capacity_bytes(&world.blobs);
    // 352 bytes a block beside its blob: its record, and what it has in the index.
    assert_eq!(kept(&world), 90 * (u64::from(CLASS) + 352));
    world.set_policy(PrunePolicyArg { target_bytes: Some(kept(&world) / 9 * 10), ..policy() });
    assert_eq!(world.due(), None, "high water itself is not above it");
    world.append(1, 10, 1);
    let Some((PruneReason::Capacity, before)) = world.due() else { panic!("{:?}", world.due()) };
    // A budget of one block a run: the trigger stays until low water is reached.
    let mut runs = 0;
    while world.due().is_some() {
        assert_eq!(world.prune(1).blocks, 1);
        runs += 1;
    }
    let low = world.pruner.policy().unwrap().low_water();
    assert_eq!((world.oldest(), runs), (before, before));
    assert!(kept(&world) <= low && kept(&world) + u64::from(CLASS) + 352 > low, "{} of {low}", kept(&world));
    world.append(5, CLASS as usize - 57, 1);
    assert_eq!(world.due(), None, "between the marks nothing is due");
}

/// A chain of blocks that are empty, or next to it, takes room as well: records, and what they have in the index.
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
    assert_eq!(last.progress, PruneProgress::HasMore { reason: Some(StopReason::Instructions) });
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
fn that_it_is_paused_is_logged_when_that_begins() {
    let mut world = world(PrunePolicyArg { retain_blocks: Some(1), max_ops_per_tick: Some(1), ..policy() });
    world.append(10, 100, 1);
    world.constraints.min_liquid_cycles = 6;
    let paused = || native::with(|world| world.log.iter().filter(|line| line.contains("paused")).count());
    for (liquid, lines) in [(5, 1), (6, 1), (5, 2)] {
        native::with(|world| world.liquid_cycles = liquid);
        (0..200).for_each(|_| {
            if liquid < 6 || world.oldest() == 0 {
                world.tick()
            }
        });
        assert_eq!(paused(), lines);
    }
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
    assert!(world.chain.capacity_bytes(&world.blobs) <= world.pruner.policy().unwrap().low_water());
    world.append(1, 10, 1);
}

fn guard(before: u64) -> Option<Guard> {
    Some(Guard { before, held_by: HeldBy::Exporter("slow".into()) })
}

#[test]
fn retention_never_passes_the_guard() {
    let mut world = world(PrunePolicyArg { retain_blocks: Some(10), ..policy() });
    world.append(30, 100, 1);
    world.constraints.exported = guard(0);
    world.tick();
    let status = world.status();
    assert_eq!((status.need_prune, status.target, status.prune_cursor), (true, 19, None));
    assert_eq!((status.held_by, world.oldest()), (Some(HeldBy::Exporter("slow".into())), 0));
    assert_eq!((status.runs, status.last_run), (0, None), "what may not go is no run");
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
    assert_eq!(world.exhausted(), Some(HeldBy::PruneLag), "eleven blocks may go, and have only not gone yet");
    world.tick();
    assert_eq!(world.oldest(), 11, "the last three free no blob, but their records");
    world.append(12, CLASS as usize / 4 - 53, 1);
    world.tick();
    assert_eq!(world.oldest(), 11);
    assert_eq!(world.exhausted(), Some(HeldBy::Exporter("slow".into())));
    world.pruner.set_enabled(false).unwrap();
    assert_eq!(world.exhausted(), Some(HeldBy::Disabled));
    world.pruner.set_enabled(true).unwrap();
    world.constraints.exported = None;
    world.constraints.min_liquid_cycles = u128::MAX;
    assert_eq!(world.exhausted(), Some(HeldBy::LowCycles));
    world.constraints.min_liquid_cycles = 0;
    while world.due().is_some() {
        world.tick();
    }
    let low = world.pruner.policy().unwrap().low_water();
    assert!(world.chain.capacity_bytes(&world.blobs) <= low, "down to low water, hysteresis and all");
}

#[test]
fn the_plan_is_what_the_next_run_does() {
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
    world.pruner.set_enabled(false).unwrap();
    assert_eq!(world.plan().held_by, Some(HeldBy::Disabled));
    // Instructions are reckoned generously.
    let mut policy = world.pruner.policy().unwrap().clone();
    (policy.max_ops_per_tick, policy.max_instructions_per_tick) = (1_000, 400_000);
    world.pruner.set_policy(policy);
    let plan = world.plan();
    assert_eq!(plan.progress, PruneProgress::HasMore { reason: Some(StopReason::Instructions) });
    assert!((1..=world.prune(1_000).blocks).contains(&plan.blocks));
}

#[test]
fn a_plan_of_a_change_is_what_the_next_run_does_once_it_is_made() {
    let (chain, blobs) = fresh(CLASS);
    let pruner = Pruner::open(Rc::new(memory::region(memory::CELLS))).unwrap();
    let mut world = World {
        chain,
        blobs,
        pruner,
        constraints: Constraints { exported: None, stopped_since: None, min_liquid_cycles: 0 },
    };
    world.append(4 * 95, CLASS as usize / 4 - 53, 1);
    let class = world.chain.log_class();
    let plan = |world: &World, change: &PrunePolicyArg| {
        world.pruner.plan(&world.chain, &world.blobs, &world.constraints, Some((change, class)))
    };
    let in_force = |world: &World| world.pruner.plan(&world.chain, &world.blobs, &world.constraints, None);
    assert_eq!(in_force(&world), Err(PruneError::NoPolicy));
    let bad = PrunePolicyArg { timer_interval_secs: Some(0), ..policy() };
    assert!(matches!(plan(&world, &bad), Err(PruneError::Invalid { field, .. }) if field == "timer_interval_secs"));

    // The first policy, and then changes of it, of which each leaves something as it is.
    let target = Some(100 * u64::from(CLASS));
    let arg = PrunePolicyArg::default;
    let changes = [
        PrunePolicyArg { retain_blocks: Some(370), ..policy() },
        PrunePolicyArg { max_ops_per_tick: Some(7), retain_blocks: Some(300), ..arg() },
        PrunePolicyArg { target_bytes: target, ..arg() },
        PrunePolicyArg { target_bytes: target, headroom_ratio_bps: Some(9_000), ..arg() },
        PrunePolicyArg { target_bytes: Some(0), retain_blocks: Some(0), ..arg() },
        arg(),
    ];
    let (mut pruned, mut idle) = (0, 0);
    for change in changes {
        let would = plan(&world, &change).unwrap();
        let again = plan(&world, &change).unwrap();
        assert_eq!(would, again, "nothing has changed");
        let policy = world.pruner.policy().cloned().unwrap_or_default().changed(&change, class).unwrap();
        world.pruner.set_policy(policy.clone());
        assert_eq!(in_force(&world).unwrap(), would, "{change:?}");
        let run = world.prune(policy.max_ops_per_tick);
        assert_eq!((would.blocks, would.bytes, would.reason), (run.blocks, run.bytes, run.reason), "{change:?}");
        pruned += run.blocks;
        idle += u64::from(run.blocks == 0);
    }
    assert!(pruned > 10 && idle > 0, "{pruned} blocks, {idle} idle");
    // Who is switched off stays so with a change, and the plan says it.
    world.pruner.set_enabled(false).unwrap();
    let one = PrunePolicyArg { retain_blocks: Some(1), ..arg() };
    assert_eq!(plan(&world, &one).unwrap().held_by, Some(HeldBy::Disabled));
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
    let large = world.chain.state().next;
    let ids: Vec<_> = (0..20).map(|i| id(large << 20 | i)).collect();
    let block = block(large, &ids, 100);
    world.chain.append(&mut world.blobs, &block, &Admission::default(), platform::time_secs()).unwrap();
    world.append(77, CLASS as usize - 53, 1);
    let Some((PruneReason::Capacity, before)) = world.due() else { panic!("{:?}", world.due()) };
    assert!(before < large, "{before}");
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
    assert!(world.chain.capacity_bytes(&world.blobs) <= world.pruner.policy().unwrap().low_water());
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
        let kept = world.chain.capacity_bytes(&world.blobs);
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
    assert_eq!((kept(&world), world.status().running), (87, true), "stopped by its ops, between the marks");
    while kept(&world) > 78 {
        world.chain.remove_head(&mut world.blobs).unwrap();
    }
    world.pruner.rolled_back(&world.chain, &world.blobs, 0);
    assert!(!world.status().running);
    world.append(3, CLASS as usize - 53, 1);
    assert_eq!((kept(&world), world.due()), (81, None), "above low water, and not yet above high water again");
}

/// What a rollback has skipped is counted with what the pruner has, and an upgrade forgets none of it.
#[test]
fn what_a_rollback_skips_is_counted() {
    let mut world = world(policy());
    world.append(3, 10, 1);
    world.chain.poison_record(2);
    let removed = world.chain.remove_head(&mut world.blobs).unwrap();
    world.pruner.rolled_back(&world.chain, &world.blobs, removed.faults.len() as u64);
    world.pruner.rolled_back(&world.chain, &world.blobs, 0);
    assert_eq!(world.status().faults, 1);
    world.pruner = Pruner::open(Rc::new(memory::region(memory::CELLS))).unwrap();
    assert_eq!(world.status().faults, 1);
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
    assert_eq!(world.status(), status);
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

impl World {
    /// Appends blocks of `ids` transactions each; time stands still.
    fn append_ids(&mut self, blocks: u64, ids: u64) {
        for _ in 0..blocks {
            let number = self.chain.state().next;
            let ids: Vec<_> = (0..ids).map(|i| id(number << 20 | i)).collect();
            let mut block = block(number, &ids, 10);
            block.timestamp = platform::time_secs();
            self.chain.append(&mut self.blobs, &block, &Admission::default(), platform::time_secs()).unwrap();
        }
    }

    fn come_round(&mut self) -> Next {
        self.pruner.tick(&mut self.chain, &mut self.blobs, &self.constraints, u64::MAX)
    }

    fn wait(&self, secs: u64) {
        native::with(|world| world.time_ns += secs * NS);
    }

    fn called(&mut self) {
        self.pruner.note_call(platform::time_ns());
    }
}

#[test]
fn a_sweep_waits_for_a_pause_but_not_for_ever() {
    let mut world = world(PrunePolicyArg { retain_blocks: Some(2), max_ops_per_tick: Some(15_000), ..policy() });
    world.append_ids(7, 1_000);
    world.called();
    assert_eq!(world.status().sweep, SweepPhase::Idle);
    assert_eq!(world.come_round(), Next::Whenever, "four blocks went, and what they leave is not worth a sweep");
    assert_eq!((world.oldest(), world.status().sweep, world.status().backlog.debt), (4, SweepPhase::Collecting, 4_000));
    world.append_ids(1, 1_000);
    world.called();
    let asked_again = platform::time_ns() + 5 * NS;
    assert_eq!(world.come_round(), Next::At(asked_again), "a producer has just called");
    assert_eq!((world.status().sweep, world.status().backlog.debt), (SweepPhase::Ready, 5_000));
    for _ in 0..8 {
        world.wait(4);
        world.called();
        assert_eq!(world.come_round(), Next::At(platform::time_ns() + 5 * NS));
    }
    world.wait(4);
    world.called();
    assert_eq!(world.come_round(), Next::Whenever, "it has waited for eight ticks");
    let status = world.status();
    assert_eq!((status.sweep, status.backlog.debt, status.transaction_index.sweeps), (SweepPhase::Idle, 0, 1));
    assert_eq!((status.transaction_index.entries, status.transaction_index.dropped), (3_000, 5_000));
    // A pause that comes.
    world.append_ids(5, 1_000);
    world.called();
    assert_eq!(world.come_round(), Next::At(platform::time_ns() + 5 * NS));
    world.wait(5);
    assert_eq!(world.come_round(), Next::Whenever);
    assert_eq!(world.status().transaction_index.sweeps, 2);
    // A debt that is too large waits for nothing.
    world.append_ids(7, 1_000);
    world.called();
    assert_eq!(world.come_round(), Next::AtOnce, "the mark is passed by what was collected now");
    world.come_round();
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
        let next = world.come_round();
        ticks += 1;
        let table = world.chain.debt(crate::chain::IndexTable::Ids);
        let bound = table.live() * 5 / 4 + table.buckets + 8_192 + 500 * 10;
        assert!(table.entries <= bound, "{table:?}");
        if next != Next::AtOnce {
            break;
        }
        assert!(ticks < 1_000);
    }
    let status = world.status();
    assert_eq!((status.oldest_kept_block, status.backlog.blocks, status.backlog.behind_since), (Some(1_997), 0, None));
    assert!(status.transaction_index.dropped >= 15_000, "{status:?}");
    // `prune_now` sweeps whatever there is, however little.
    let run = world.prune(u64::MAX);
    assert_eq!((run.blocks, run.reason, world.status().backlog.debt), (0, None, 0));
    assert_eq!(world.chain.index_stats().entries, 30);
}

#[test]
fn a_backlog_is_visible_while_it_lasts_and_a_problem_when_it_lasts_long() {
    let mut world = world(PrunePolicyArg { retain_blocks: Some(1), max_ops_per_tick: Some(1), ..policy() });
    world.append_ids(100, 2);
    assert_eq!((world.status().backlog.blocks, world.status().backlog.references), (98, 196));
    for _ in 0..12 {
        assert_eq!(world.come_round(), Next::AtOnce);
        world.wait(60);
        world.append_ids(2, 2);
    }
    let status = world.status();
    assert_eq!(status.backlog.blocks, 98 + 12);
    assert_eq!((status.backlog.pruned_per_hour, status.backlog.appended_per_hour), (60, 120));
    assert_eq!(status.backlog.empty_in_secs, None, "never, at this rate");
    let problem = blocks::behind(&status, world.pruner.interval_secs()).unwrap();
    assert!(problem.message.contains("behind for 12 min") && problem.message.contains("never"), "{problem:?}");
    assert_eq!(
        (problem.code, problem.since),
        (ProblemCode::PruneBehind, status.backlog.behind_since.map(|secs| secs * NS))
    );
    world.pruner.set_policy(PrunePolicy { max_ops_per_tick: 100, retain_blocks: 1, ..PrunePolicy::default() });
    while world.come_round() == Next::AtOnce {}
    let status = world.status();
    assert_eq!((status.backlog.blocks, status.backlog.empty_in_secs), (0, Some(0)));
    assert_eq!(blocks::behind(&status, world.pruner.interval_secs()), None);
}

#[test]
fn what_an_exporter_holds_too_long_is_a_problem() {
    let arg = PrunePolicyArg { retain_blocks: Some(1), max_export_lag_secs: Some(1_000), ..policy() };
    let mut world = world(arg);
    world.append_ids(10, 2);
    world.hold_at(3);
    world.come_round();
    let status = world.status();
    assert_eq!((status.backlog.blocks, status.backlog.held_blocks), (0, 5));
    let since = platform::time_secs();
    assert_eq!(status.backlog.held_since, Some(since));
    world.wait(1_000);
    world.come_round();
    assert_eq!(world.export_held(), None);
    world.wait(1);
    let problem = world.export_held().unwrap();
    assert!(
        problem.message.contains("held back for 16 min 41 s") && problem.message.contains("no capacity limit"),
        "{problem:?}"
    );
    assert_eq!((problem.code, problem.since), (ProblemCode::ExportHeld, Some(since * NS)));
    world.hold_at(10);
    world.come_round();
    assert_eq!((world.status().backlog.held_since, world.oldest()), (None, 8));
    assert_eq!(world.export_held(), None);
}

/// The count makes blocks due here, and not the capacity trigger: above high water it is a problem all the same.
#[test]
fn what_an_exporter_holds_above_high_water_is_a_problem_whatever_made_it_due() {
    let mut world = world(PrunePolicyArg { retain_blocks: Some(100), target_bytes: Some(40 << 20), ..policy() });
    world.hold_at(0);
    let marks = world.status().water_marks.unwrap();
    // No tick has come yet, so the time for which blocks are held back and the growth rate of the chain are unknown.
    while world.status().capacity_bytes <= marks.high {
        assert_eq!(world.export_held(), None);
        world.append(1, 200_000, 1);
    }
    assert_eq!(world.due().map(|due| due.0), Some(PruneReason::Retention));
    let said = world.export_held().unwrap();
    assert!(
        said.message.starts_with("kept bytes are above high water; ") && said.message.contains("not known yet"),
        "{said:?}"
    );
    while world.status().capacity_bytes < marks.emergency {
        world.append(1, 200_000, 1);
    }
    assert_eq!(world.exhausted(), Some(HeldBy::Exporter("slow".into())));
    let said = world.export_held().unwrap();
    assert!(said.message.ends_with("; no room is left: emergency water is reached"), "{said:?}");
    // The switch holds it then, and no exporter.
    world.pruner.set_enabled(false).unwrap();
    assert_eq!(world.problems().iter().map(|found| found.code).collect::<Vec<_>>(), [ProblemCode::PruningOff]);
}

#[test]
fn what_an_exporter_holds_is_a_problem_where_emergency_water_is_near_at_the_last_hours_rate() {
    let arg = |lag| PrunePolicyArg {
        retain_blocks: Some(2),
        target_bytes: Some(40 << 20),
        max_export_lag_secs: Some(lag),
        ..policy()
    };
    let mut world = world(arg(7_200));
    world.hold_at(0);
    world.append(1, 100_000, 1);
    world.come_round();
    // 100 kB a minute: 39.8 MB are there in six hours and a half.
    for _ in 0..90 {
        world.append(1, 100_000, 60);
        world.come_round();
    }
    world.set_policy(arg(5 * 3_600));
    let said = |world: &World| world.export_held().map(|said| said.message);
    assert_eq!(said(&world), None);
    world.append(60, 100_000, 60);
    assert!(
        said(&world).is_some_and(|said| said.contains("at the last hour's rate emergency water comes in about 4 h ")),
        "{:?}",
        said(&world)
    );
    // Nothing comes: it is not nearer, and is held for less than is allowed.
    world.set_policy(arg(30 * DAY));
    for _ in 0..8 {
        world.wait(600);
        world.come_round();
    }
    assert_eq!(said(&world), None);
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
    // A count that is smaller than the floor says what is kept.
    world.pruner.set_policy(aged(2, 4));
    assert_eq!((world.due(), floor(&world)), (Some((PruneReason::Retention, 8)), holds(8)));
    // Zero: the head alone. All: nothing.
    world.pruner.set_policy(aged(0, 0));
    assert_eq!((world.due(), floor(&world)), (Some((PruneReason::Retention, 10)), (None, None)));
    world.pruner.set_policy(aged(0, u64::MAX));
    assert_eq!((world.due(), floor(&world)), (None, holds(0)));
}

#[test]
fn capacity_leaves_the_head_and_the_block_before_it() {
    let target = 40 * u64::from(CLASS);
    let mut world = world(PrunePolicyArg { target_bytes: Some(target), min_kept_blocks: Some(1_000), ..policy() });
    let large = 30 * CLASS as usize;
    for blocks in 1..=2 {
        world.append(1, large, 1);
        let said = blocks::too_small(&world.pruner, &world.chain, &world.blobs);
        assert_eq!((world.due(), world.exhausted(), said.is_some()), (None, None, blocks == 2), "{blocks} blocks");
    }
    world.append(1, large, 1);
    assert_eq!((world.due(), world.exhausted()), (Some((PruneReason::Capacity, 1)), Some(HeldBy::PruneLag)));
    assert_eq!(blocks::too_small(&world.pruner, &world.chain, &world.blobs), None);
    world.come_round();
    assert_eq!((world.oldest(), world.due(), world.exhausted()), (1, None, None));
    // The target that is named is the least one with which nothing is due.
    let needed = world.pruner.policy().unwrap().target_for(world.chain.capacity_bytes(&world.blobs));
    let message = blocks::too_small(&world.pruner, &world.chain, &world.blobs).unwrap().message;
    assert!(message.contains("emergency water") && message.contains(&needed.to_string()), "{message}");
    for (target_bytes, is_enough) in [(needed, true), (needed - (1 << 20), false)] {
        world.set_policy(PrunePolicyArg { target_bytes: Some(target_bytes), ..policy() });
        assert_eq!(blocks::too_small(&world.pruner, &world.chain, &world.blobs).is_none(), is_enough);
    }
    world.chain.remove_head(&mut world.blobs).unwrap();
    assert_eq!((world.exhausted(), world.oldest()), (None, 1), "a reorg of one block, and the chain goes on");
    world.append(1, large, 1);
    // A policy that retains less leaves the head alone.
    world.set_policy(PrunePolicyArg { target_bytes: Some(target), retain_days: Some(1), ..policy() });
    world.wait(10 * DAY);
    world.come_round();
    assert_eq!(world.oldest(), 2);
    assert_eq!((world.exhausted(), world.status().floor_block), (None, None));
}

#[test]
fn age_says_when_it_next_makes_a_block_prunable() {
    let mut world = world(PrunePolicyArg { retain_days: Some(2), timer_interval_secs: Some(1), ..policy() });
    world.append(4, 100, DAY);
    let oldest = world.chain.meta(world.oldest()).unwrap().monotonic;
    let Next::At(at) = world.come_round() else { panic!("age comes") };
    let prunable = world.chain.meta(world.oldest()).unwrap().monotonic + 2 * DAY + 1;
    assert!(prunable > oldest && at == prunable * NS);
    world.wait(at / NS - platform::time_secs() - 1);
    assert_eq!(world.due(), None);
    world.wait(1);
    assert!(world.due().is_some(), "not a second later");
}

#[test]
fn blocks_that_age_one_after_the_other_share_a_firing() {
    let mut world = world(PrunePolicyArg { retain_days: Some(2), timer_interval_secs: Some(60), ..policy() });
    world.append(300, 100, 1);
    let oldest = world.chain.meta(world.oldest()).unwrap().monotonic;
    world.wait(oldest + 2 * DAY + 1 - platform::time_secs());
    assert_eq!(world.come_round(), Next::At(platform::time_ns() + 60 * NS));
    world.wait(60);
    assert_eq!(world.due().map(|(_, target)| target), Some(world.oldest() + 60));
}

/// Ten thousand blocks, with a producer's call before every tick, so that no sweep ever finds a pause: a table never has many more
/// entries than are live, nor many more buckets than they want.
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
            while world.come_round() == Next::AtOnce {
                world.called();
                ticks += 1;
                assert!(ticks < 1_000);
            }
        }
        let table = world.chain.debt(crate::chain::IndexTable::Ids);
        let live = table.live();
        assert!(table.entries <= live * 5 / 4 + table.buckets + 8_192 + ops, "block {number}: {table:?}");
        largest = largest.max(table.buckets);
    }
    let status = world.status();
    assert_eq!(status.oldest_kept_block, Some(9_990 - window));
    assert!(status.transaction_index.sweeps > 10, "{status:?}");
    // At 60 entries for each hundred places, 28 to a bucket.
    let wanted = (window + 10) * ids * 100 / (60 * 28);
    assert!(largest <= wanted * 5 / 4, "{largest} buckets, {wanted} are wanted");
}

/// What was set aside of a chain is no more when that is emptied: the next one may have a block of the same number.
#[test]
fn a_reset_forgets_the_blocks_that_were_set_aside() {
    let mut world = world(policy());
    let slice = Piece::Slice(crate::chain::IndexTable::Keys, 128);
    world.pruner.stored.set_aside = vec![Piece::Block(5), slice, Piece::Undo, Piece::Upload];
    world.pruner.reset();
    assert_eq!(world.pruner.stored.set_aside, [slice, Piece::Upload]);
}
