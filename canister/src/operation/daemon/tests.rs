use super::*;
use crate::memory;
use crate::platform::native;
use crate::state::{self, read};
use coppice_interface::{CanisterArg, InitArg};

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
    state::init(Some(CanisterArg::Init(InitArg::default()))).unwrap();
}

#[test]
fn unpaid_timers_are_cancelled_and_armed_again_after_a_top_up() {
    fresh();
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
        (0..200).for_each(|_| mutate(watch));
        assert_eq!(lines("a timer is overdue; woken"), said);
    }
    for said in [1, 2] {
        // More than the raw memory that is there.
        let bytes = memory::billed_pages() * coppice_storage::WASM_PAGE;
        let space = coppice_storage::testing::space(coppice_records::places::DELETIONS);
        assert!(memory::growth(|growth| growth.put_off(|| space.reserve(bytes))).is_err());
        let liquid = native::with(|world| std::mem::take(&mut world.liquid_cycles));
        (0..200).for_each(|_| mutate(grow));
        assert_eq!(lines("cannot be grown: cycles are missing"), said);
        native::with(|world| world.liquid_cycles = liquid);
        mutate(grow);
        space.reserve(bytes).unwrap();
    }
}
