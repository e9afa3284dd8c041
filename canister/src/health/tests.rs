use super::*;
use crate::memory;

#[test]
fn every_code_has_its_place_and_says_what_to_do() {
    for (at, code) in ProblemCode::ALL.into_iter().enumerate() {
        assert_eq!(code as usize, at);
        let (_, action) = advice(code);
        assert!(action.ends_with('.') && action.len() > 20, "{code:?}: {action}");
    }
}

#[test]
fn the_severity_of_every_code_is_the_manuals() {
    let manual = include_str!("../../../docs/operations.md");
    let row = |line: &str| {
        let (code, rest) = line.strip_prefix("| `")?.split_once("` | ")?;
        let severity = rest.split(" | ").next().filter(|word| ["critical", "warning", "notice"].contains(word))?;
        Some((code.to_string(), severity.to_string()))
    };
    let mut said: Vec<(String, String)> = manual.lines().filter_map(row).collect();
    let is = |code: ProblemCode| (format!("{code:?}"), format!("{:?}", advice(code).0).to_lowercase());
    let mut all = ProblemCode::ALL.map(is);
    said.sort();
    all.sort();
    assert_eq!(said, all);
}

/// An update sees fewer liquid cycles than a query, and a timer's work fewer still: all go by what is liquid between messages.
#[test]
fn cycles_are_low_as_the_daemon_sees_them() {
    use crate::runtime::native;
    use crate::state;
    use coppice_interface::{CanisterArg, ConfigChange, InitArg};
    native::reset();
    memory::forget();
    crate::logs::forget();
    state::init(Some(CanisterArg::Init(InitArg::default()))).unwrap();
    let change = ConfigChange {
        min_liquid_cycles: Some(1_000_000_000_000),
        feed_min_liquid_cycles: Some(1),
        ..ConfigChange::default()
    };
    state::mutate(|state| state.set_config("set_config", &change)).unwrap();
    daemon::arm();
    let a_call = native::with(|world| world.timer_call_cycles);
    let codes = |liquid: u128, replicated: bool| -> Vec<ProblemCode> {
        native::with(|world| (world.liquid_cycles, world.replicated) = (liquid, replicated));
        let problems = state::read(State::health).problems;
        problems.into_iter().map(|problem| problem.code).filter(|code| *code != ProblemCode::GrowthUnpaid).collect()
    };
    let min = 1_000_000_000_000;
    assert_eq!(codes(min, false), []);
    assert_eq!(codes(min - 1, false), [ProblemCode::CyclesLow]);
    assert_eq!((codes(min - a_call, true), codes(min - a_call - 1, true)), (vec![], vec![ProblemCode::CyclesLow]));
    assert_eq!(codes(3 * a_call, false), [ProblemCode::CyclesLow]);
    let stopped = [ProblemCode::CyclesLow, ProblemCode::TimersStopped];
    assert_eq!((codes(3 * a_call - 1, false), codes(2 * a_call - 1, true)), (stopped.to_vec(), stopped.to_vec()));
    // After a top-up the daemon stands still until the net, or a call, looks again: not all is well until then.
    for (liquid, code) in [(min - a_call - 1, ProblemCode::CyclesLow), (9, ProblemCode::TimersStopped)] {
        native::with(|world| world.liquid_cycles = liquid);
        daemon::watch_cycles();
        assert_eq!(codes(u128::MAX, false), [code]);
        daemon::watch_cycles();
        assert_eq!(codes(u128::MAX, false), []);
    }
}

#[test]
fn a_head_that_cannot_be_read_is_named_until_another_is_the_head() {
    use crate::state;
    use coppice_interface::{CanisterArg, InitArg};
    runtime::native::reset();
    memory::forget();
    crate::logs::forget();
    runtime::native::with(|world| world.time_ns = 1_700_000_000_000_000_000);
    state::init(Some(CanisterArg::Init(InitArg::default()))).unwrap();
    let append = |number| {
        state::mutate(|state| {
            let (block, admission) = (crate::testing::block(number, &[], 10), state.admission());
            state.chain.append(&mut state.blobs, &block, &admission, 1_700_000_000).unwrap();
        });
    };
    let severity = || {
        let problems = state::read(State::health).problems;
        problems.iter().find(|problem| problem.code == ProblemCode::HeadUnreadable).map(|problem| problem.severity)
    };
    (1..4).for_each(append);
    assert_eq!(severity(), None);
    state::mutate(|state| state.chain.poison_record(3));
    assert_eq!(severity(), Some(Severity::Critical));
    // What `health` says to do.
    state::mutate(|state| state.rollback_to(2)).unwrap();
    assert_eq!(severity(), None);
    append(3);
    assert_eq!(severity(), None);
}

#[test]
fn durations_have_two_units() {
    let all = [0, 59, 60, 3_599, 3_600, 86_399, 86_400, 1_000_000, u64::MAX].map(duration);
    let expected = ["0 s", "59 s", "1 min", "59 min 59 s", "1 h", "23 h 59 min", "1 d", "11 d 13 h"];
    assert_eq!(all[..8], expected);
    assert!(all[8].ends_with('h'));
}
