//! State machine test of the pruner of UTXO records: random histories of everything that changes records, heights and jobs, with upgrades
//! between any two messages, messages that trap, wrong heights and their repair, full memory and low cycles, against a plain model.
//!
//! The model does not predict how much a tick deletes, because that depends on budgets. After each tick every record is examined, each
//! change is checked ("was this allowed under the run's heights?") and adopted; everything else must match the model. The duties of a run
//! are checked when it is done.
//!
//! The machine itself is tested on a reference without a canister ([`reference`]): it agrees with the reference, and finds each of the
//! reference's deliberate faults.

mod duties;
mod end;
mod episodes;
mod jobs;
mod kept;
mod machine;
mod memory;
mod operations;
mod reference;
mod settings;
mod steps;
mod tick;
mod trapping;
mod triggers;
mod view;
mod worker;

use coppice_ic::Backend;
use coppice_model::records::Family;
use coppice_tests::coppice::{Coppice, default_arg};
use machine::{Machine, Seen};
use proptest::strategy::{Strategy, ValueTree};
use proptest::test_runner::{Config, RngAlgorithm, TestCaseError, TestError, TestRng, TestRunner};
use reference::Fault;
use std::cell::RefCell;
use steps::{History, history};
use trapping::Trapping;

/// A failure is described in a sentence.
type Outcome<T = ()> = Result<T, String>;

/// Runs a history. Returns the outcome and the events.
fn run_history((coppice, trapping): (Coppice, Trapping), history: &History) -> (Outcome, Seen) {
    let mut machine = match Machine::new(coppice, trapping, history) {
        Ok(machine) => machine,
        Err(why) => return (Err(why), Seen::new()),
    };
    let outcome = history.moves.iter().try_for_each(|one| machine.step(one)).and_then(|()| machine.end(history.finale));
    let report = |why: String| machine.family.brief(&format!("{why}\nafter\n{}", machine.journal.join("\n")));
    let outcome = outcome.map_err(report);
    (outcome, machine.counts)
}

/// A new canister. Only the embedded host can make its messages trap.
fn canister() -> (Coppice, Trapping) {
    if coppice_ic::chosen() != Backend::Host {
        return (Coppice::new(), Trapping::None);
    }
    let (coppice, host) = Coppice::embedded(default_arg());
    (coppice, Trapping::Host(host))
}

fn add(all: &mut Seen, seen: Seen) {
    seen.into_iter().for_each(|(what, times)| *all.entry(what).or_default() += times);
}

/// Histories that together do everything that is sure.
const ENOUGH: u32 = 36;

/// The number of histories: `PROPTEST_CASES`, or a number that takes seconds; a server takes longer for each call.
fn cases() -> u32 {
    let few = if coppice_ic::chosen() == Backend::Host { ENOUGH } else { 4 };
    std::env::var("PROPTEST_CASES").ok().and_then(|cases| cases.parse().ok()).unwrap_or(few)
}

#[test]
fn any_history_matches_the_model() {
    let cases = cases();
    let config = Config { cases, max_shrink_iters: 400, failure_persistence: None, ..Config::default() };
    let (all, progress) = (RefCell::new(Seen::new()), std::env::var_os("COPPICE_PROGRESS").is_some());
    // Without `PROPTEST_CASES` the histories are the same in each run.
    let mut runner = match std::env::var_os("PROPTEST_CASES") {
        Some(_) => TestRunner::new(config),
        None => TestRunner::new_with_rng(config, TestRng::deterministic_rng(RngAlgorithm::ChaCha)),
    };
    let done = runner.run(&history(), |history| {
        let (outcome, seen) = run_history(canister(), &history);
        let mut all = all.borrow_mut();
        add(&mut all, seen);
        *all.entry("a history").or_default() += 1;
        if progress && all["a history"].is_multiple_of(100) {
            eprintln!("{} of {cases} histories", all["a history"]);
        }
        outcome.map_err(TestCaseError::fail)
    });
    match done {
        Ok(()) => {}
        Err(TestError::Fail(why, history)) => panic!("{why}\n\nthe shortest such history:\n{history}"),
        Err(other) => panic!("{other}"),
    }
    let all = all.into_inner();
    if progress {
        eprintln!("{all:#?}");
    }
    if cases >= ENOUGH {
        check_excuses(&all);
    }
    let enough = |what: &&&str| all.get(**what).is_some_and(|&times| times > 0);
    let expected = SURE.iter().chain(if cases >= 1_000 { &SEEN[..] } else { &[] });
    let missing: Vec<_> = expected.filter(|what| cases >= ENOUGH && !enough(what)).collect();
    assert!(missing.is_empty(), "never: {missing:?} of {all:#?}");
}

/// Excused checks, each with the checks that were made: if more than one in twenty is excused, the excuse is too wide.
const EXCUSES: [(&str, &str); 6] = [
    ("excused: a new parent", "a parent is preserved"),
    ("excused: a parent that was made or preserved in the middle of a run", "a parent is preserved"),
    ("excused: a parent of one that became old in the middle of a run", "a preservation may expire"),
    ("excused: kept for some blocks", "a due record was examined"),
    ("excused: no memory for the row of a blob", "a due record was examined"),
    ("excused: kept are counted roughly", "kept are counted"),
];

/// Fails if too many checks were excused.
fn check_excuses(all: &Seen) {
    let times = |what: &str| all.get(what).copied().unwrap_or(0);
    for (excused, checked) in EXCUSES {
        let (excused_times, checked_times) = (times(excused), times(checked));
        assert!(
            20 * excused_times <= excused_times + checked_times,
            "{excused}: {excused_times}; {checked}: {checked_times}"
        );
    }
}

/// Events that even a few histories must contain.
const SURE: [&str; 13] = [
    "a double spend won",
    "a wrong height was notified",
    "thousands of outputs are spent",
    "a kept record waits",
    "a job was superseded",
    "a parent is preserved",
    "a preservation expired",
    "a record waits for its blob",
    "a record was deleted",
    "a reorg",
    "a run of several ticks",
    "a transaction in the BlobStore was freed",
    "an operator prunes manually",
];

/// Events that many histories must contain.
const SEEN: [&str; 49] = [
    "a call trapped",
    "a double spend won",
    "a tick trapped",
    "a tick while cycles are low",
    "a wrong height was notified",
    "thousands of outputs are spent",
    "a kept record waits",
    "an invalid height is refused",
    "a height that jumps is refused",
    "a job is cancelled",
    "heights are set",
    "a height persisted meanwhile is due",
    "a block while the persister is active",
    "a blob is retried",
    "a blob that was given up is retried",
    "a blob was deleted with its record",
    "a blob was given up",
    "a deleted spender was refused",
    "a deleted transaction was made again",
    "a replay of a pruned transaction is refused",
    "a double spend was deleted",
    "a job completed",
    "a job timed out",
    "a job took over a run",
    "a job was superseded",
    "a page was deleted",
    "a parent is preserved",
    "a preservation expired",
    "a record in deletion cannot be made again",
    "a record waits for its blob",
    "a record was deleted",
    "a record was deleted in defensive mode",
    "a reorg",
    "a run of several ticks",
    "a run was stopped by the assembly",
    "a second record of a blob was refused",
    "a trigger was processed before",
    "a trigger was underway",
    "an operator prunes manually",
    "an operator's height above the notified one is refused",
    "an output names a deleted spender",
    "an upgrade in the middle of a run",
    "at the end defensive mode keeps a record",
    "kept: a spender is absent",
    "kept: a spender is recent",
    "kept: a spender is unmined",
    "phase 1 is done again",
    "the block persister begins in the middle of a run",
    "a deleted transaction does not spend again",
];

/// The same histories in each run.
fn histories() -> impl Iterator<Item = History> {
    let mut runner = TestRunner::deterministic();
    std::iter::repeat_with(move || history().new_tree(&mut runner).expect("nothing is filtered").current())
}

/// The histories cover every event, a few of them all but three rare ones, and the machine agrees with a correct pruner. `COPPICE_PRUNER_HISTORIES` sets their number.
#[test]
fn histories_cover_every_event() {
    let named = std::env::var("COPPICE_PRUNER_HISTORIES").map(|number| number.parse().expect("a number of histories"));
    let number = named.unwrap_or(60);
    let mut all = Seen::new();
    // A history with thousands of outputs takes as long as ten others.
    let few = |(number, history): &(usize, History)| !history.has_large() || number % 4 == 0;
    for (_, history) in histories().enumerate().filter(few).take(number) {
        let coppice = reference::canister(Family::new(&history.transactions), None);
        let (outcome, seen) = run_history(coppice, &history);
        outcome.unwrap_or_else(|why| panic!("{why}\n\nthe history:\n{history}"));
        add(&mut all, seen);
    }
    check_excuses(&all);
    let (least, rare) = if number < 500 { (1, 3) } else { (3, 0) };
    let seldom: Vec<_> = SEEN.iter().filter(|what| all.get(**what).is_none_or(|&times| times < least)).collect();
    assert!(seldom.len() <= rare, "seldom or never: {seldom:?} of {all:#?}");
}

/// The machine detects each deliberate fault.
#[test]
fn each_deliberate_fault_is_found() {
    for &fault in Fault::ALL {
        let large = fault == Fault::UpdatesAThousandParents;
        let search = |from: usize, most: usize| {
            let all = histories().filter(|history| history.has_large() == large).enumerate();
            let found = all.skip(from).take(most).find(|(_, history)| {
                let coppice = reference::canister(Family::new(&history.transactions), Some(fault));
                run_history(coppice, history).0.is_err()
            });
            found.map(|(number, _)| number)
        };
        // If the generator of histories has changed, another history finds the fault.
        let found = search(fault.first_history(), 1).or_else(|| search(0, 1_500));
        assert!(found.is_some(), "{fault:?} is not found");
        if std::env::var_os("COPPICE_PROGRESS").is_some() {
            eprintln!("{fault:?}: history {found:?}");
        }
    }
}
