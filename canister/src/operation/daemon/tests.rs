use super::*;
use crate::memory;
use crate::platform::meter::Hot;
use crate::platform::native;
use crate::state::{self, read};
use ic_coppice_interface::{InitArg, PrunePolicy, UtxoBlockAssemblyState};

fn grow(state: &mut State) {
    records::grow(state, platform::time_ns());
}

fn lines(of: &str) -> usize {
    native::with(|world| world.log.iter().filter(|line| line.contains(of)).count())
}

fn fresh() {
    native::reset();
    memory::forget();
    logs::forget();
    cycles::forget();
    state::init(&InitArg::default()).unwrap();
}

/// Sets a policy with firings between those of the safety timer.
fn tick_every_minute(state: &mut State) {
    state.pruner.set_policy(PrunePolicy { timer_interval_secs: 60, ..PrunePolicy::default() });
}

#[test]
fn unpaid_timers_are_cancelled_and_armed_again_after_a_top_up() {
    fresh();
    mutate(tick_every_minute);
    mutate(start);
    let armed =
        || native::with(|world| [Timer::Safety, Timer::Work].map(|timer| world.timers.get(&(timer as u8)).copied()));
    let both = read(|state| [Some(state.clock.safety_at), state.clock.fires_at]);
    assert_eq!((armed(), both.contains(&None)), (both, false));
    let liquid = native::with(|world| std::mem::take(&mut world.liquid_cycles));
    mutate(watch_cycles);
    assert_eq!(armed(), [None, None]);
    native::with(|world| world.liquid_cycles = liquid);
    mutate(watch_cycles);
    assert_eq!(armed(), both);
}

#[test]
fn lasting_conditions_are_logged_once() {
    fresh();
    for said in [1, 2] {
        mutate(start);
        native::with(|world| world.time_ns += 10_000 * NS);
        (0..200).for_each(|_| mutate(|state| watch(state, platform::time_ns())));
        assert_eq!(lines("a timer is overdue; woken"), said);
    }
    for said in [1, 2] {
        // More than the raw memory that is there.
        let bytes = memory::billed_pages() * ic_coppice_storage::WASM_PAGE;
        let space = ic_coppice_storage::testing::space(ic_coppice_records::places::DELETIONS);
        assert!(memory::growth(|growth| growth.put_off(|| space.reserve(bytes))).is_err());
        let liquid = native::with(|world| std::mem::take(&mut world.liquid_cycles));
        (0..200).for_each(|_| mutate(grow));
        assert_eq!(lines("cannot be grown: cycles are missing"), said);
        native::with(|world| world.liquid_cycles = liquid);
        mutate(grow);
        space.reserve(bytes).unwrap();
    }
}

/// Makes all duties due, each since so many seconds.
fn make_due(state: &mut State, [blocks, job, growth]: [u64; 3]) {
    let since = |secs: u64| platform::time_ns() - secs * NS;
    (state.clock.blocks_at, state.clock.growth_at) = (Some(since(blocks)), Some(since(growth)));
    (state.clock.job_secs, state.records.pruner.next_tick_ns) = (Some(10), since(job));
}

/// Returns the work of a firing that comes at its time, and whether it is late.
fn chosen(state: &State) -> (Option<Hot>, bool) {
    let now = platform::time_ns();
    let chosen = choice::choose(state, now, now).unwrap();
    (chosen.duty.hot(), chosen.late)
}

#[test]
fn firing_works_on_the_duty_that_has_been_due_longest() {
    fresh();
    mutate(start);
    mutate(|state| {
        make_due(state, [5, 7, 6]);
        assert_eq!(chosen(state), (Some(Hot::TimerRecords), false));
        make_due(state, [5, 4, 6]);
        assert_eq!(chosen(state), (None, false), "growth");
        make_due(state, [5, 4, 3]);
        assert_eq!(chosen(state), (Some(Hot::TimerBlocks), false));
        state.clock.blocks_at = None;
        assert_eq!(chosen(state), (Some(Hot::TimerRecords), false));
        // Below `min_liquid_cycles` only work on blocks.
        cycles::set_pause(Some(Pause::UntilSafety));
        let now = platform::time_ns();
        assert!(choice::choose(state, now, now).is_none());
        state.clock.blocks_at = Some(now);
        assert_eq!(chosen(state), (Some(Hot::TimerBlocks), false));
    });
}

#[test]
fn begun_work_goes_before_a_duty_that_has_been_due_longer() {
    fresh();
    mutate(start);
    let block = ic_coppice_chain::testing::block(0, &[ic_coppice_chain::testing::id(0)], 10);
    let (begin, _) = coppice_model::blocks::upload(&block, 1 << 20);
    mutate(|state| {
        let (admission, now) = (state.admission(), platform::time_secs());
        state.chain.begin(&mut state.blobs, &begin, platform::caller(), &admission, now).unwrap();
    });
    native::with(|world| world.time_ns += 130 * NS);
    mutate(|state| {
        make_due(state, [1, 15, 15]);
        assert_eq!(chosen(state), (Some(Hot::TimerBlocks), false), "the upload has expired");
        state.chain.abort_upload(&mut state.blobs, 0).unwrap();
        while state.chain.is_under_way() {
            assert_eq!(chosen(state), (Some(Hot::TimerBlocks), false));
            state.chain.continue_abort(&mut state.blobs);
        }
        assert_eq!(chosen(state).0, Some(Hot::TimerRecords));
    });
}

/// A firing that traps leaves everything as it was, so that only the time tells the next one apart.
#[test]
fn duty_that_traps_in_each_firing_delays_no_other() {
    fresh();
    mutate(start);
    mutate(|state| make_due(state, [900, 901, 5]));
    let mut seen = Vec::new();
    for _ in 0..4 {
        native::with(|world| world.time_ns += SAFETY_SECS * NS);
        seen.push(read(chosen));
    }
    for hot in [Hot::TimerBlocks, Hot::TimerRecords] {
        assert!(seen.contains(&(Some(hot), true)), "{seen:?}");
    }
}

#[test]
fn growth_that_traps_is_tried_in_the_first_seconds_of_each_period() {
    fresh();
    mutate(start);
    mutate(|state| {
        let first = platform::time_ns();
        state.clock.growth_at = Some(first);
        state.clock.blocks_at = None;
        let due_after = |secs: u64| choice::first_due(state, first + secs * NS) - first;
        let due: Vec<u64> = [0, 19, 20, 599, 600, 619, 620].into_iter().map(|secs| due_after(secs) / NS).collect();
        assert_eq!(due, [0, 0, 600, 600, 600, 600, 1_200]);
    });
}

/// The safety timer stands in for a one-shot that traps, at the interval of the job.
#[test]
fn safety_timer_follows_the_interval_of_a_job() {
    fresh();
    mutate(start);
    let secs = || read(|state| (state.clock.safety_secs, state.clock.job_secs));
    assert_eq!(secs(), (SAFETY_SECS, None));
    mutate(|state| {
        state.records.pruner.set_assembly(UtxoBlockAssemblyState::Running, None, state.config.utxo.as_ref().unwrap());
        state.records.pruner.notify_block(900, true, true).unwrap();
        arm(state);
    });
    assert_eq!(secs(), (10, Some(10)));
    let due = read(|state| (state.clock.safety_at, state.records.pruner.next_tick_ns));
    assert_eq!(due.0, due.1, "no one-shot is needed");
    mutate(|state| {
        state.set_deletions_stopped(true).unwrap();
        arm(state);
    });
    assert_eq!(secs(), (SAFETY_SECS, None));
    // A longer interval than that of the safety timer.
    mutate(|state| {
        state.deletions_stopped = None;
        let change =
            ic_coppice_interface::UtxoPrunerSettingsChange { tick_interval_secs: Some(3_600), ..Default::default() };
        state.records.pruner.set_settings(&change, &state.config.utxo.clone().unwrap()).unwrap();
        arm(state);
        let due = state.records.pruner.next_tick_ns;
        state.clock.blocks_at = None;
        native::with(|world| world.time_ns += SAFETY_SECS * NS);
        fire_safety(state);
        assert_eq!(state.records.pruner.next_tick_ns, due);
    });
    assert_eq!(secs(), (SAFETY_SECS, Some(3_600)));
}

#[test]
fn safety_timer_fires_each_minute_while_work_that_traps_is_skipped() {
    fresh();
    mutate(start);
    mutate(|state| {
        state.tick(true);
        arm(state);
    });
    let interval = read(|state| state.pruner.interval_secs());
    assert_eq!((interval, read(|state| state.clock.safety_secs)), (600, 60));
    mutate(|state| {
        for _ in 0..64 {
            state.tick(false);
        }
        arm(state);
    });
    assert_eq!(read(|state| state.clock.safety_secs), SAFETY_SECS);
}
