use super::*;
use crate::memory;
use crate::operation::sampling;
use crate::platform::{self, native};
use crate::state::{self, mutate, read};
use ic_coppice_interface::{InitArg, PrunePolicyArg};
use ic_coppice_storage::NS;

/// The start of a half hour.
const T: u64 = 1_700_000_000 / COARSE_EVERY * COARSE_EVERY;

fn at(secs: u64) {
    native::with(|world| world.time_ns = secs * NS);
}

fn fresh() {
    native::reset();
    memory::forget();
    crate::logs::forget();
    at(T);
    state::init(&InitArg::default()).unwrap();
}

fn times(span: Span, now: u64) -> Vec<u64> {
    read(|state| state.history.samples(span, now).iter().map(|sample| sample.at).collect())
}

#[test]
fn repeated_calls_in_a_minute_take_one_sample() {
    fresh();
    assert_eq!(times(Span::Day, T), [] as [u64; 0]);
    for secs in [0, 1, 59, 60, 61, 119, 120, 600] {
        at(T + secs);
        (0..1_000).for_each(|_| mutate(sampling::note));
    }
    assert_eq!(times(Span::Day, T + 600), [T, T + 60, T + 120, T + 600]);
    assert_eq!(times(Span::Month, T + 600), [T], "the first of its half an hour");
    assert_eq!(times(Span::Day, T + 119), [T, T + 60], "none of what is to come");
    // An upgrade forgets the last sample's time, so the next call takes a sample.
    state::upgrade(None).unwrap();
    mutate(sampling::note);
    assert_eq!(times(Span::Day, T + 600), [T, T + 60, T + 120, T + 600]);
}

#[test]
fn samples_older_than_a_day_or_a_month_are_not_shown() {
    fresh();
    for minute in 0..3 * 1_440 {
        at(T + 60 * minute);
        mutate(sampling::note);
    }
    let now = T + 60 * (3 * 1_440 - 1);
    assert_eq!(times(Span::Day, now), (0..1_440).rev().map(|ago| now - 60 * ago).collect::<Vec<_>>());
    assert_eq!(times(Span::Month, now), (0..3 * 48).map(|half| T + COARSE_EVERY * half).collect::<Vec<_>>());
    // Days later no old sample is shown, although the slots are full.
    assert_eq!(times(Span::Day, now + 86_400), [] as [u64; 0]);
    assert_eq!(times(Span::Month, now + 31 * 86_400), [] as [u64; 0]);
    assert_eq!(times(Span::Month, u64::MAX), [] as [u64; 0]);
}

#[test]
fn samples_stay_correct_after_a_clock_jump() {
    fresh();
    at(T);
    mutate(sampling::note);
    at(T + 40 * 86_400 + 600);
    mutate(sampling::note);
    at(T + 60);
    mutate(sampling::note);
    assert_eq!(times(Span::Day, T + 60), [T, T + 60]);
    at(u64::MAX / NS);
    mutate(sampling::note);
    at(0);
    mutate(sampling::note);
    at(T + 120);
    mutate(sampling::note);
    assert_eq!(times(Span::Day, T + 120), [T, T + 60, T + 120]);
}

/// The sample of a tick is taken after its pruning, so pruned blocks are not in the backlog.
#[test]
fn tick_samples_after_its_work() {
    fresh();
    let policy = PrunePolicyArg { retain_blocks: Some(1), min_kept_blocks: Some(0), ..PrunePolicyArg::default() };
    mutate(|state| state.set_prune_policy(&policy)).unwrap();
    for number in 0..5 {
        mutate(|state| {
            let (block, admission) = (ic_coppice_chain::testing::block(number, &[], 10), state.admission());
            state.chain.append(&mut state.blobs, &block, &admission, platform::time_secs()).unwrap();
        });
    }
    assert!(read(|state| sampling::sample_now(state, T, state.due().as_ref())).backlog > 0);
    at(T + 60);
    mutate(|state| {
        let now = platform::time_ns();
        state.blocks_by(now, now);
        crate::operation::daemon::fire(state, platform::timers::Timer::Work, now);
    });
    let last = read(|state| state.history.samples(Span::Day, T + 60)).pop().unwrap();
    assert_eq!((last.at, last.backlog, last.pruned > 0), (T + 60, 0, true));
}

#[test]
fn a_damaged_sample_is_left_out() {
    fresh();
    for minute in 0..5 {
        at(T + 60 * minute);
        mutate(sampling::note);
    }
    let cells = ic_coppice_storage::testing::cells();
    cells.write(places::SAMPLES.slot(T + 60), &[0xFF; 8]);
    cells.write(places::SAMPLES.slot(T + 120), &(T + 180).to_le_bytes());
    assert_eq!(times(Span::Day, T + 240), [T, T + 180, T + 240]);
}

#[test]
fn start_time_of_a_problem_survives_an_upgrade_and_is_cleared_with_the_problem() {
    fresh();
    let since = |code| read(|state| state.history.since(code));
    at(T + 60);
    mutate(sampling::note);
    assert_eq!(since(ProblemCode::CyclesLow), None);
    native::with(|world| world.liquid_cycles = 90_000_000_000);
    at(T + 600);
    // No message has noticed it yet.
    let seen = |state: &state::State| crate::operation::health::health(state, candid::Principal::anonymous());
    let first = read(seen);
    assert_eq!((first.problems[0].known(), first.problems[0].since_ns), (Some(ProblemCode::CyclesLow), None));
    assert_eq!(first.looked_at_ns, Some((T + 60) * NS));
    mutate(sampling::note);
    at(T + 6_000);
    state::upgrade(None).unwrap();
    mutate(sampling::note);
    assert_eq!(since(ProblemCode::CyclesLow), Some((T + 600) * NS));
    assert_eq!(read(seen).problems[0].since_ns, Some((T + 600) * NS));
    native::with(|world| world.liquid_cycles = u128::MAX);
    at(T + 6_060);
    mutate(sampling::note);
    let worst = read(seen).problems.first().map(|problem| problem.severity);
    assert_eq!((since(ProblemCode::CyclesLow), worst), (None, Some(ic_coppice_interface::Severity::Notice)));
}

/// A count of blocks that changes alone is written, too.
#[test]
fn time_of_a_new_count_of_blocks_survives_an_upgrade() {
    fresh();
    // The first sample is deep and the second is not, so that the third raises the same problems as the second.
    for secs in [0, 60] {
        at(T + secs);
        mutate(sampling::note);
    }
    at(T + 90);
    mutate(|state| {
        let (block, admission) = (ic_coppice_chain::testing::block(0, &[], 10), state.admission());
        state.chain.append(&mut state.blobs, &block, &admission, platform::time_secs()).unwrap();
    });
    at(T + 120);
    mutate(sampling::note);
    state::upgrade(None).unwrap();
    assert_eq!(read(|state| state.history.appended_at(1)), Some(T + 90));
}

#[test]
fn the_layout_is_what_it_was() {
    assert_eq!((places::HISTORY, places::SAMPLES.at, places::COARSE_SAMPLES.at), (188_416, 196_608, 288_768));
    let sample = Sample {
        at: 1,
        kept_bytes: 2,
        appended: 3,
        pruned: 4,
        backlog: 5,
        billed_pages: 6,
        reusable_bytes: 7,
        instructions: 8,
        held: 9,
    };
    let mut expected = [0; 64];
    for (at, byte) in [(0, 1), (8, 2), (16, 3), (24, 4), (32, 5), (36, 6), (40, 7), (48, 8), (56, 9)] {
        expected[at] = byte;
    }
    assert_eq!((sample.encode(), Sample::decode(&expected)), (expected, sample));
    fresh();
    native::with(|world| world.liquid_cycles = 90_000_000_000);
    at(T + 60);
    mutate(sampling::note);
    let cells = ic_coppice_storage::testing::cells();
    let header: [u8; 24] = cells.read(places::HISTORY);
    let begin = [&b"CPHI\x01\0\0\0"[..], &0u64.to_le_bytes(), &(T + 60).to_le_bytes()].concat();
    assert_eq!(header.as_slice(), begin);
    let code = 64 + 8 * ProblemCode::CyclesLow as u64;
    assert_eq!(cells.read_u64(places::HISTORY + code), (T + 60) * NS);
    assert_eq!(cells.read_u64(places::HISTORY + 64 + 8 * 63), 0);
    for (byte, wrong) in [(0, b'X'), (4, 0), (4, 2), (5, 1)] {
        let before: [u8; 8] = cells.read(places::HISTORY);
        let mut bytes = before;
        bytes[byte] = wrong;
        cells.write(places::HISTORY, &bytes);
        assert!(state::upgrade(None).is_err(), "byte {byte}");
        cells.write(places::HISTORY, &before);
    }
    assert_eq!(state::upgrade(None), Ok(()));
}
