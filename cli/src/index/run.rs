//! The indexer's main loop: runs steps, waits while there is nothing to do, and ends on a stop or at the head.

use super::database;
use super::engine::{Engine, ensure_registered};
use super::steps::{Checkpoint, Event, Figures};
use super::watch::Watch;
use crate::client::{CanisterClient, Client, Trials, waits};
use crate::exit::why;
use crate::progress::{Bar, target};
use crate::say;
use crate::stop::Stop;
use anyhow::{Result, bail};
use backon::BackoffBuilder as _;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Consecutive failed attempts after which a run that ends at the head gives up.
const PATIENCE: u32 = 20;
/// Failed attempts after which a note reports that the canister seems to be late.
const SPEAK: u32 = 3;

/// The conditions under which a run ends, besides an error.
#[derive(Clone, Debug)]
pub struct Until {
    /// Ends at the head.
    pub caught_up: bool,
    /// The longest wait between two attempts.
    pub max_wait: Duration,
    /// The longest time without a committed change while the database fails; `None` for a daemon, which goes on for ever.
    pub database_retry: Option<Duration>,
    /// The state for `--listen`.
    pub watch: Arc<Watch>,
}

/// The part of the [deadline](crate::stop::DEADLINE) that calls of the canister leave, in which the report is read from the database.
const REPORT: Duration = Duration::from_secs(1);

/// Gives up each call of the canister near the deadline of a run that was stopped, because a gateway may take any time to answer.
pub fn bound_calls<T: CanisterClient>(client: &Client<T>, stop: &Stop) {
    let stop = stop.clone();
    client.transport().limit(Arc::new(move || stop.is_late(REPORT)));
}

/// Checks that the caller may acknowledge, and retries until the canister answers. Returns the number of retries.
///
/// # Errors
/// When the caller is not a registered exporter; when the run is stopped before the canister answered.
pub fn await_registration<T: CanisterClient>(client: &Client<T>, until: &Until, stop: &Stop) -> Result<u64> {
    let (mut replicated, mut again) = (false, 0);
    // The second attempt is an update call.
    let ensure = || ensure_registered(client, std::mem::replace(&mut replicated, true));
    retried(until, stop, &mut again, ensure)?;
    Ok(again)
}

/// Opens the database. A daemon repeats that while the database is away.
///
/// # Errors
/// The error of `open`, if it is final, no daemon runs or the run is stopped.
pub fn opened<R>(until: &Until, stop: &Stop, mut open: impl FnMut() -> Result<R>) -> Result<R> {
    let mut delays = waits(until.max_wait).build();
    loop {
        match open() {
            Err(error) if until.database_retry.is_none() && !stop.is_set() && database::is_lost(&error) => {
                until.watch.database_failed(&why(&error));
                let delay = delays.next().unwrap_or(until.max_wait);
                say!("{}; opening the database again in {:.1} s", why(&error), delay.as_secs_f64());
                stop.wait(delay);
            }
            opened => return opened,
        }
    }
}

/// Runs `work`, and repeats it after errors that are not final ([`Trials`]) until the run is stopped. Counts the retries in `retried`.
///
/// # Errors
/// The error of `work`, if it is final or the run is stopped.
fn retried<R>(until: &Until, stop: &Stop, retried: &mut u64, mut work: impl FnMut() -> Result<R>) -> Result<R> {
    let (mut delays, mut trials, mut in_vain) = (waits(until.max_wait).build(), Trials::default(), 0);
    loop {
        let error = match work() {
            Ok(done) => return Ok(done),
            Err(error) => error,
        };
        until.watch.canister_failed(&why(&error));
        in_vain += 1;
        let enough = until.caught_up && in_vain > PATIENCE;
        if enough || stop.is_set() || !trials.may_retry(&error) {
            return Err(error);
        }
        *retried += 1;
        let delay = delays.next().unwrap_or(until.max_wait);
        say!("{}; trying again in {:.1} s", why(&error), delay.as_secs_f64());
        stop.wait(delay);
    }
}

/// The time for which the database has failed.
#[derive(Default)]
struct Failing {
    /// The first failure, and the number of committed changes then.
    since: Option<(Instant, i64)>,
}

impl Failing {
    /// Records a failure. Returns how long the database has failed.
    fn failed(&mut self, revision: i64) -> Duration {
        self.since.get_or_insert((Instant::now(), revision)).0.elapsed()
    }

    /// Records a step without a failure. A connection alone is not a recovery, because the next commit may fail like the last one.
    fn went(&mut self, revision: i64, caught_up: bool) {
        self.since = self.since.filter(|(_, before)| !caught_up && *before >= revision);
    }
}

/// Runs an engine until the run ends. Errors that are not final ([`Trials`]) are retried, and a database that fails is opened again.
///
/// # Errors
/// As [`Engine::step`], except for errors that are retried.
pub fn run<T: CanisterClient, C: Checkpoint>(engine: &mut Engine<'_, T, C>, until: &Until, stop: &Stop) -> Result<()> {
    // The bar shows this run's blocks and those up to the head, which may move.
    let bar = Bar::new("indexing", "blocks", target());
    let mut delays = waits(until.max_wait).build();
    let (mut noted, mut in_vain, mut trials, mut is_late) = (None, 0, Trials::default(), false);
    let mut failing = Failing::default();
    while !stop.is_set() {
        let event = engine.step();
        if event.is_ok() {
            failing.went(engine.store().revision(), event.as_ref().is_ok_and(|event| *event == Event::CaughtUp));
        }
        (in_vain, is_late) = match &event {
            Ok(Event::Behind(_)) => (in_vain + 1, true),
            // A canister that lags answers other calls between two pages.
            Ok(Event::Went) if is_late => (in_vain, true),
            Err(error) if database::is_lost(error) => (in_vain, is_late),
            Err(_) => (in_vain + 1, is_late),
            Ok(_) => (0, false),
        };
        if event.is_ok() {
            trials.answered();
        }
        match &event {
            Ok(_) => until.watch.went(engine),
            Err(error) if database::is_lost(error) => until.watch.database_failed(&why(error)),
            Err(error) => until.watch.canister_failed(&why(error)),
        }
        let enough = until.caught_up && in_vain > PATIENCE;
        match event {
            Ok(Event::CaughtUp) if until.caught_up => break,
            Ok(Event::CaughtUp) => stop.wait(delays.next().unwrap_or(until.max_wait)),
            // An answer alone is not progress, because the canister also answers at the head.
            Ok(Event::Went) => {}
            Ok(Event::Stored) => delays = waits(until.max_wait).build(),
            Ok(Event::Behind(note)) if enough => bail!(note),
            Ok(Event::Behind(note)) => {
                // A replica that is one block late is not worth a note.
                if in_vain == SPEAK && noted.as_ref() != Some(&note) {
                    bar.suspend(|| say!("note: {note}"));
                    noted = Some(note);
                }
                stop.wait(delays.next().unwrap_or(until.max_wait));
            }
            Ok(Event::Note(note)) => {
                bar.suspend(|| say!("note: {note}"));
                delays = waits(until.max_wait).build();
            }
            Err(error) if database::is_lost(&error) => {
                if stop.is_set() {
                    return Err(error);
                }
                let time = failing.failed(engine.store().revision());
                if let Some(limit) = until.database_retry.filter(|limit| time >= *limit) {
                    return Err(error.context(format!(
                        "nothing was committed for {} s: database retry limit ({} s, --database-retry-secs) reached",
                        time.as_secs(),
                        limit.as_secs()
                    )));
                }
                engine.count_retried(1);
                let delay = delays.next().unwrap_or(until.max_wait);
                bar.suspend(|| say!("{}; opening the database again in {:.1} s", why(&error), delay.as_secs_f64()));
                stop.wait(delay);
            }
            Err(error) if !enough && trials.may_retry(&error) => {
                engine.count_retried(1);
                let delay = delays.next().unwrap_or(until.max_wait);
                bar.suspend(|| say!("{}; trying again in {:.1} s", why(&error), delay.as_secs_f64()));
                stop.wait(delay);
            }
            Err(error) => return Err(error),
        }
        let Figures { blocks, lag, filled_blocks, .. } = engine.figures();
        let behind = match lag {
            _ if engine.is_filling() => format!("rows of {filled_blocks} stored blocks made"),
            Some(lag) => format!("{lag} behind, headers of {}", engine.known_headers()),
            None => "lag unknown".into(),
        };
        bar.show(blocks, lag.unwrap_or_default(), behind);
    }
    engine.acknowledge_all()?;
    engine.store().ensure_in_place()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::listen::Watched as _;

    #[test]
    fn waits_double_up_to_the_longest() {
        let all: Vec<u128> = waits(Duration::from_secs(2)).build().take(6).map(|wait| wait.as_millis()).collect();
        assert_eq!(all, [250, 500, 1_000, 2_000, 2_000, 2_000]);
        assert_eq!(waits(Duration::from_millis(100)).build().next(), Some(Duration::from_millis(100)));
    }

    #[test]
    fn database_fails_until_a_change_is_committed_or_the_head_is_reached() {
        let mut failing = Failing::default();
        let step = Duration::from_millis(20);
        assert!(failing.failed(7) < step);
        std::thread::sleep(step);
        failing.went(7, false);
        assert!(failing.failed(7) >= step, "it was opened again, and nothing more");
        failing.went(8, false);
        assert!(failing.failed(8) < step);
        std::thread::sleep(step);
        failing.went(8, true);
        assert!(failing.failed(8) < step);
    }

    #[test]
    fn only_a_daemon_opens_a_database_that_is_away_again() {
        let stop = Stop::default();
        let lost = || anyhow::Error::from(database::Lost("connection refused".into()));
        let open = |database_retry, good_after: u64, error: &dyn Fn() -> anyhow::Error| {
            let until =
                Until { caught_up: false, max_wait: Duration::from_millis(1), database_retry, watch: Arc::default() };
            let mut tries = 0;
            let opened = opened(&until, &stop, || {
                tries += 1;
                if tries <= good_after { Err(error()) } else { Ok(tries) }
            });
            (opened.ok(), until.watch.fault())
        };
        let fault = || Some("the database: connection refused".to_string());
        assert_eq!(open(None, 30, &lost), (Some(31), fault()));
        assert_eq!(open(Some(Duration::MAX), 1, &lost), (None, None));
        assert_eq!(open(None, 1, &|| anyhow::anyhow!("no tables")), (None, None));
        stop.set();
        assert_eq!(open(None, 1, &lost), (None, None));
    }

    #[test]
    fn only_passing_errors_are_retried() {
        let stop = Stop::default();
        let until = |caught_up| Until {
            caught_up,
            max_wait: Duration::from_millis(1),
            database_retry: Some(Duration::ZERO),
            watch: Arc::default(),
        };
        let work = |until: Until, good_after: u64, error: fn() -> anyhow::Error| {
            let (mut tries, mut again) = (0, 0);
            let result = retried(&until, &stop, &mut again, || {
                tries += 1;
                if tries <= good_after { Err(error()) } else { Ok(tries) }
            });
            (result.map_err(|error| error.to_string()), again)
        };
        let lost = || crate::client::lost("no");
        assert_eq!(work(until(false), 50, lost), (Ok(51), 50));
        assert_eq!(work(until(true), 20, lost), (Ok(21), 20));
        assert_eq!(work(until(true), 21, lost).1, 20, "a run that ends at the head gives up");
        assert_eq!(work(until(false), 1, || anyhow::anyhow!("no")), (Err("no".into()), 0));
        stop.set();
        assert_eq!(work(until(false), 1, lost).1, 0);
    }
}
