//! A worker's rounds: look, lease, delete, say what was done.
//!
//! ```text
//! markers ─▶ height, of the canister ─▶ acquire ─▶ delete, extending ─▶ markers again ─▶ complete
//!    ▲ a store is away: wait                           │ of a store that failed the rest goes back      │
//!    └──────────────────────────────── wait, longer each time ◀────────────────────────────────────────┘
//! ```
//! What the network or a store does not do is done again, for ever, after waits that double and differ; what the canister refuses ends
//! the worker. Nothing is said of a blob whose fate is not known.

mod complete;
mod dry;
mod markers;

pub use dry::{Found, dry_run};

use super::args::{Options, Until};
use super::lease::{Moment, Term};
use super::log::{Level, Log};
use super::marker::WrongStore;
use super::queue::{Ask, Done, Lease, Queue, Refusal, Waiting};
use super::work::{Away, Outcome, Worker};
use crate::client::Trials;
use crate::exit::Exit;
use crate::stop::Stop;
use anyhow::Result;
use backon::{BackoffBuilder, ExponentialBackoff, ExponentialBuilder};
use candid::Principal;
use serde::Serialize;
use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Exit code: a store has not the right marker.
pub const WRONG_STORE: u8 = 3;
/// Exit code: some blobs were not deleted.
pub const NOT_ALL: u8 = 4;
/// Exit code: the canister refuses.
pub const REFUSED: u8 = 5;
/// Exit code: the canister was not told.
pub const UNTOLD: u8 = 6;

/// The most rows of a lease.
const MOST_ROWS: u32 = 1_000;
/// The first wait after an error.
const FIRST_WAIT: Duration = Duration::from_millis(250);
/// How long a worker that is to end tries to say what it did, or to have the answer that it waits for.
pub const PARTING: Duration = Duration::from_secs(30);
/// How old a look at the markers may be where blobs are deleted; less in a short lease.
const FRESH: Duration = Duration::from_secs(5);
/// The longest that a worker that is to end waits for a marker.
pub const LAST_LOOK: Duration = Duration::from_secs(5);

/// What a worker did.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Figures {
    /// Leases.
    pub leases: u64,
    /// Blobs that are gone, and of which the canister knows.
    pub deleted: u64,
    /// Of them, those of which the store said that they were not there. S3 does not say it.
    pub absent: u64,
    /// Times a blob could not be deleted, which count against it.
    pub failed: u64,
    /// Of these, those after which it was given up, and those whose record made difficulties: dead letters.
    pub dead: u64,
    /// Times a blob was put off, as there is no store for it.
    pub no_store: u64,
    /// Times a blob was put back as it was.
    pub left: u64,
    /// Blobs of leases that had ended when the canister was told.
    pub late: u64,
    /// Leases that were extended.
    pub extended: u64,
    /// Calls that were tried again, and looks at the stores.
    pub retries: u64,
    /// Requests to an S3 that had no answer, or an error of the server's; each is tried again.
    pub failed_requests: u64,
    /// Blobs of which it is not known that they are gone, where the worker ends by itself: what failed, had no store, or whose lease was
    /// over, and did not go later; of `--once` also what was put back.
    pub undone: u64,
    /// Up to which height blobs went last.
    pub height: u32,
}

/// What a round came to.
enum Round {
    /// Nothing is due.
    Idle,
    /// A lease was worked through.
    Worked {
        /// Something was deleted.
        progress: bool,
        /// A store failed.
        trouble: bool,
    },
    /// The worker is to end.
    Stopped,
}

/// How long a worker waits for the canister.
#[derive(Clone, Copy, Debug)]
struct Patience {
    /// Where it is to end: to say what it did, or to have the answer that it waits for.
    parting: Duration,
    /// In one call at most; then the canister is asked again.
    call: Duration,
    /// In one call at least, however little is left of a lease.
    call_least: Duration,
}

impl Default for Patience {
    fn default() -> Self {
        Self { parting: PARTING, call: Duration::from_secs(60), call_least: Duration::from_secs(10) }
    }
}

impl Patience {
    /// Whether something that was begun at a moment was tried for long enough since the worker is to end.
    fn has_parted(&self, stop: &Stop, began: Instant) -> bool {
        stop.set_at().is_some_and(|at| at.max(began).elapsed() > self.parting)
    }
}

/// A worker.
pub struct Run<'a, Q> {
    queue: &'a Q,
    canister: Principal,
    worker: Worker,
    options: Options,
    patience: Patience,
    stop: &'a Stop,
    log: &'a Log,
    figures: RefCell<Figures>,
    /// Names this process among all that call with its identity.
    nonce: [u8; 16],
    waiting: u64,
    /// Rows of the last lease that no store has and that went back, as they could not be put off.
    postponed: Cell<usize>,
    /// Looks at the stores' markers.
    looks: markers::Looks,
    /// Rows that count in [`Figures::undone`].
    undone: RefCell<BTreeSet<u64>>,
}

/// Waits that double up to the longest, each a little longer than that by chance, so that workers do not come all at once.
pub fn waits(longest: Duration) -> impl Iterator<Item = Duration> {
    let first = FIRST_WAIT.min(longest);
    let doubling: ExponentialBackoff = ExponentialBuilder::default()
        .with_min_delay(first)
        .with_max_delay(longest)
        .with_jitter()
        .without_max_times()
        .build();
    doubling.map(move |wait| wait.min(longest * 2))
}

impl<'a, Q: Queue> Run<'a, Q> {
    /// One that has done nothing yet.
    ///
    /// # Errors
    /// When the system has no random bytes.
    pub fn new(
        queue: &'a Q,
        canister: Principal,
        worker: Worker,
        options: Options,
        stop: &'a Stop,
        log: &'a Log,
    ) -> Result<Self> {
        let mut nonce = [0; 16];
        getrandom::fill(&mut nonce).map_err(|error| anyhow::anyhow!("no random bytes: {error}"))?;
        let figures = RefCell::default();
        let undone = RefCell::default();
        let (looks, postponed) = (markers::Looks::new(worker.stores()), Cell::new(0));
        let patience = Patience::default();
        Ok(Self {
            queue,
            canister,
            worker,
            options,
            patience,
            stop,
            log,
            figures,
            nonce,
            waiting: 0,
            postponed,
            looks,
            undone,
        })
    }

    /// What it did so far.
    pub fn figures(&self) -> Figures {
        Figures { failed_requests: self.worker.stores().failed_requests(), ..self.figures.borrow().clone() }
    }

    /// Works until it is to end.
    ///
    /// # Errors
    /// [`Exit`] with [`WRONG_STORE`], [`REFUSED`] or [`UNTOLD`].
    pub fn run(&mut self) -> Result<()> {
        let mut after_errors = waits(self.options.max_wait);
        // A wrong store is known before anything is due.
        if self.await_markers()?.is_none() {
            return Ok(());
        }
        loop {
            if self.stop.is_set() {
                return Ok(());
            }
            let round = self.round()?;
            self.log.progress(&self.figures(), self.waiting);
            match round {
                Round::Stopped => return Ok(()),
                Round::Idle if self.options.until != Until::Stopped => return Ok(()),
                Round::Idle => self.stop.wait(self.options.poll),
                Round::Worked { .. } if self.options.until == Until::Once => return Ok(()),
                Round::Worked { progress, trouble } => {
                    if progress {
                        after_errors = waits(self.options.max_wait);
                    }
                    if trouble {
                        self.stop.wait(after_errors.next().unwrap_or(self.options.max_wait));
                    }
                }
            }
        }
    }

    fn round(&mut self) -> Result<Round> {
        // A replica that refuses, or says nothing that can be read, is not asked twice: the canister is, next.
        let doubts = Cell::new(false);
        let look = |queue: &Q| queue.look(doubts.replace(true));
        let Some((heights, waiting)) = self.call("looking at the queue", look)? else {
            return Ok(Round::Stopped);
        };
        let height = heights.due(self.options.safety_window);
        let mine = |waiting: &&Waiting| {
            self.options.store_types.is_empty() || self.options.store_types.contains(&waiting.store)
        };
        self.waiting = waiting.iter().filter(mine).map(|waiting| waiting.rows).fold(0, u64::saturating_add);
        let is_due = waiting.iter().filter(mine).any(|waiting| waiting.oldest.is_some_and(|oldest| oldest <= height));
        // Where the worker is to end then, that nothing is due is the canister's word.
        if !is_due && self.options.until == Until::Stopped {
            return Ok(Round::Idle);
        }
        let Some(away) = self.await_markers()? else { return Ok(Round::Stopped) };
        let looked = Moment::now();
        let Some(heights) = self.call("asking for the height", |queue| queue.heights())? else {
            return Ok(Round::Stopped);
        };
        let height = heights.due(self.options.safety_window);
        self.figures.borrow_mut().height = height;
        let asked = Moment::now();
        let Some(lease) = self.acquire(height)? else { return Ok(Round::Stopped) };
        match lease {
            None => Ok(Round::Idle),
            Some(lease) => self.work(&lease, asked, looked, away),
        }
    }

    /// A lease, or none where nothing is due; nothing at all where the worker is to end.
    fn acquire(&self, height: u32) -> Result<Option<Option<Lease>>> {
        let number = self.figures.borrow().leases;
        let held_up = u32::try_from(self.worker.held_up() + self.postponed.get()).unwrap_or(MOST_ROWS);
        let ask = Ask {
            height,
            rows: self.options.batch.saturating_add(held_up).min(MOST_ROWS),
            secs: self.options.lease.as_secs(),
            stores: self.options.store_types.clone(),
            request: [&self.nonce[..], &number.to_le_bytes()].concat(),
        };
        let mut delays = waits(self.options.max_wait);
        // An answer was lost, so there may be a lease: the same request gets it again, and only who has it can give it back.
        let mut lost = false;
        let (began, mut trials) = (Instant::now(), Trials::default());
        loop {
            if self.stop.is_set() && !lost {
                return Ok(None);
            }
            self.limit(began, self.patience.call);
            let why = match self.queue.acquire(&ask) {
                Ok(Ok(lease)) => return Ok(Some(lease)),
                Ok(Err(why)) => {
                    lost = false;
                    trials.answered();
                    why.to_string()
                }
                Err(error) if trials.go_on(&error) => {
                    lost = true;
                    format!("{error:#}")
                }
                Err(error) => return Err(refused("leasing", error)),
            };
            if lost && self.has_parted(began) {
                let why = format!(
                    "the canister does not say whether it has leased blobs, which then wait for the lease's end: {why}"
                );
                return Err(Exit::error(UNTOLD, why));
            }
            self.again("leasing", &why, &mut delays);
        }
    }

    /// Whether it is enough that the worker was asked to end, and has tried since then what it began at this moment.
    fn has_parted(&self, began: Instant) -> bool {
        self.patience.has_parted(self.stop, began)
    }

    /// Bounds the next call of something that was begun at a moment: by a time and, where the worker is to end, by what it has for that, in
    /// which there is another attempt.
    fn limit(&self, began: Instant, most: Duration) {
        let (patience, stop, called) = (self.patience, self.stop.clone(), Instant::now());
        self.queue.limit(Arc::new(move || {
            let is_late = || stop.set_at().is_some_and(|at| at.max(called).elapsed() >= patience.parting / 3);
            called.elapsed() >= most || is_late() || patience.has_parted(&stop, began)
        }));
    }

    /// The longest that the canister is waited for where so much is left of a lease: it may have to be asked again.
    fn most_of(&self, term: &Term) -> Duration {
        (term.left() / 4).clamp(self.patience.call_least, self.patience.call)
    }

    /// Works through a lease.
    fn work(&mut self, lease: &Lease, asked: Moment, looked: Moment, mut away: Away) -> Result<Round> {
        self.figures.borrow_mut().leases += 1;
        let term = Arc::new(Term::new(self.options.lease, asked));
        let mut attempts = waits(self.options.max_wait.min(self.options.lease / 16));
        let mut next = Moment::now();
        let mut pause = Duration::ZERO;
        let mut extend = || {
            if term.is_half_over() && next.elapsed() >= pause {
                let extended = self.extend(lease, &term);
                (next, pause) =
                    (Moment::now(), if extended { Duration::ZERO } else { attempts.next().unwrap_or_default() });
            }
            self.log.progress(&self.figures(), self.waiting);
        };
        extend();
        let mut wrong = Vec::new();
        // What a store's path was before the canister answered it may not be any more.
        if looked.elapsed() > FRESH.min(self.options.lease / 16) {
            (away, wrong) = self.look_at_markers(|_| true);
            // All goes back.
            let why = |(store, wrong): &(usize, WrongStore)| (*store, wrong.0.clone());
            away.extend(wrong.iter().map(why));
        }
        let mut outcome = self.worker.delete(&lease.rows, &away, &term, self.stop, &mut extend);
        wrong.extend(self.recheck(lease, &mut outcome, &mut extend));
        let done = self.done(&mut outcome);
        self.tell(lease, &outcome);
        self.complete(lease, done, &term, &outcome)?;
        if let Some((_, wrong)) = wrong.into_iter().next() {
            return Err(Exit::error(WRONG_STORE, wrong.0));
        }
        // Where nothing goes it does not hurry, whatever the reason.
        let progress = !outcome.gone.is_empty();
        Ok(Round::Worked { progress, trouble: !progress || !outcome.errors.is_empty() })
    }

    /// What the canister is told.
    fn done(&self, outcome: &mut Outcome) -> Done {
        let mut done = Done {
            gone: outcome.gone.clone(),
            failed: outcome.failed.iter().map(|(id, _)| *id).collect(),
            max_retries: self.options.max_retries,
        };
        // That this worker has no store for a blob does not kill it. One completion has one maximum: where others failed, such a blob comes
        // again in the next lease, and is put off there.
        if done.failed.is_empty() {
            done.max_retries = u32::MAX;
        }
        if done.max_retries == u32::MAX {
            done.failed.extend(&outcome.no_store);
        } else {
            outcome.postponed = std::mem::take(&mut outcome.no_store).len();
        }
        self.postponed.set(outcome.postponed);
        done
    }

    /// Has a lease last longer. Answers whether that is settled.
    fn extend(&self, lease: &Lease, term: &Term) -> bool {
        let asked = Moment::now();
        self.limit(Instant::now(), self.most_of(term));
        match self.queue.extend(&lease.token, self.options.lease.as_secs()) {
            Ok(Ok(())) => {
                term.extended(asked);
                self.figures.borrow_mut().extended += 1;
                true
            }
            Ok(Err(Refusal::Over(why))) => {
                self.log.note(Level::Warn, "lease", &format!("the lease is over before its time: {why}"));
                term.end();
                true
            }
            Ok(Err(Refusal::Later(why))) => {
                self.log.note(Level::Warn, "lease", &format!("the lease is not extended: {why}"));
                false
            }
            Err(error) => {
                self.log.note(Level::Warn, "canister", &format!("the lease is not extended: {error:#}"));
                false
            }
        }
    }

    fn again(&self, what: &str, why: &str, delays: &mut impl Iterator<Item = Duration>) {
        let mut delay = delays.next().unwrap_or(self.options.max_wait);
        self.figures.borrow_mut().retries += 1;
        self.log.note(Level::Warn, "canister", &format!("{what}: {why}; trying again in {:.1} s", delay.as_secs_f64()));
        if self.stop.is_set() {
            // It does not wait any more, and yet does not hurry.
            delay = delay.min(Duration::from_secs(1));
            std::thread::sleep(delay);
        } else {
            self.stop.wait(delay);
        }
    }

    /// Asks the queue, and again where it cannot be reached; none where the worker is to end.
    fn call<R>(&self, what: &str, ask: impl Fn(&Q) -> Result<R>) -> Result<Option<R>> {
        let (mut delays, mut trials) = (waits(self.options.max_wait), Trials::default());
        loop {
            let (stop, called, most) = (self.stop.clone(), Instant::now(), self.patience.call);
            self.queue.limit(Arc::new(move || stop.is_set() || called.elapsed() >= most));
            match ask(self.queue) {
                Ok(answer) => return Ok(Some(answer)),
                Err(error) if !trials.go_on(&error) => return Err(refused(what, error)),
                Err(_) if self.stop.is_set() => return Ok(None),
                Err(error) => self.again(what, &format!("{error:#}"), &mut delays),
            }
        }
    }
}

/// What is no error of the network is one that does not pass.
pub fn refused(what: &str, error: anyhow::Error) -> anyhow::Error {
    Exit::error(
        REFUSED,
        format!("{what}: the canister refuses: {error:#}; a worker's identity needs the role BlobWorker"),
    )
}

#[cfg(test)]
#[path = "tests/run/mod.rs"]
mod tests;
