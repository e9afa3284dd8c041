//! Model test of UTXO records: random histories of everything that changes records, with slices, rivals, reorgs, cancelled jobs, upgrades
//! and traps, run on the canister and on a model that was written from the documents alone. After every message each whole record matches,
//! the counters are right, and each deleted record was due, eligible, unpreserved, and marked in its parents.

mod history;
mod judge;
mod player;
mod steps;

use history::{History, Random, Step};
use player::{Player, Seen};

/// Number of the first history of `scripts/test`, which plays the same histories in each run, so that a run can be repeated. `scripts/soak`
/// plays thousands of others.
const FIRST: u64 = 977_131_434;

/// Attempts to shorten a history that fails.
const MOST_SHORTER: u32 = 100;

/// The events of a history; or the reason why it failed, and its journal until then.
type Outcome = Result<Seen, (String, Vec<String>)>;

/// Plays a history on a new canister.
fn play(history: &History) -> Outcome {
    let mut player = Player::new(&mut Random::new(history.seed)).map_err(|why| (why, Vec::new()))?;
    let mut all = history.steps.iter().try_for_each(|step| player.step(step));
    if all.is_ok() {
        all = player.end();
    }
    match all {
        Ok(()) => Ok(player.seen),
        Err(why) => Err((why, player.journal)),
    }
}

/// A failure without its numbers and ids: two histories with the same text are assumed to fail for the same reason.
fn kind(why: &str) -> String {
    let words = why.lines().next().unwrap_or_default().split_whitespace();
    words.filter(|word| !word.contains(|letter: char| letter.is_ascii_digit())).collect::<Vec<_>>().join(" ")
}

/// Returns the shortest history found that fails in the same way: steps are left out, many at a time and then one by one.
fn shortest(mut history: History, most: u32) -> (History, String, Vec<String>) {
    let (mut why, mut journal) = play(&history).expect_err("it fails");
    let first = kind(&why);
    let (mut left, mut size) = (most, history.steps.len().div_ceil(2));
    while size > 0 && left > 0 {
        let mut from = 0;
        while from < history.steps.len() && left > 0 {
            left -= 1;
            let to = (from + size).min(history.steps.len());
            let steps: Vec<Step> = [&history.steps[..from], &history.steps[to..]].concat();
            let shorter = History { steps, ..history.clone() };
            match play(&shorter) {
                Err((reason, done)) if kind(&reason) == first => (history, why, journal) = (shorter, reason, done),
                _ => from = to,
            }
        }
        size /= 2;
    }
    (history, why, journal)
}

/// A number from the environment.
fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().and_then(|number| number.parse().ok())
}

/// A seed that no other run uses.
fn any_seed() -> u64 {
    let now = std::time::UNIX_EPOCH.elapsed().map_or(0, |since| since.as_nanos() as u64);
    Random::new(now).next() >> 32
}

#[test]
fn any_history_of_records_matches_the_documents() {
    // A server takes longer for each call.
    let few = if coppice_ic::chosen() == coppice_ic::Backend::Host { 40 } else { 2 };
    // A failed history is played again with its number as the seed, and one case.
    let (cases, first) = match number("PROPTEST_CASES") {
        Some(cases) => (cases, number("PROPTEST_RNG_SEED").unwrap_or_else(any_seed)),
        None => (few, FIRST),
    };
    let progress = std::env::var_os("COPPICE_PROGRESS").is_some();
    let mut all = Seen::new();
    for case in 0..cases {
        let history = History::of(first + case);
        match play(&history) {
            Ok(seen) => seen.into_iter().for_each(|(what, times)| *all.entry(what).or_default() += times),
            Err((why, journal)) => {
                eprintln!("history {} fails: {why}\n{}", history.seed, journal.join("\n"));
                let (shorter, reason, journal) = shortest(history.clone(), MOST_SHORTER);
                let steps: Vec<String> = shorter.steps.iter().map(ToString::to_string).collect();
                panic!(
                    "history {} fails: {why}\n\nthe shortest such history has the steps\n{}\nand is\n{}\n{reason}",
                    history.seed,
                    steps.join("\n"),
                    journal.join("\n")
                );
            }
        }
        if progress && (case + 1).is_multiple_of(100) {
            eprintln!("{} of {cases} histories: {all:?}", case + 1);
        }
    }
    if progress {
        eprintln!("{all:#?}");
    }
}
