//! A worker's rounds: look, lease, delete, say what was done.
//!
//! ```text
//! markers ─▶ height, of the canister ─▶ acquire ─▶ delete, extending ─▶ markers again ─▶ complete
//!    ▲ a store is away: wait                           │ of a store that failed the rest goes back      │
//!    └──────────────────────────────── wait, longer each time ◀────────────────────────────────────────┘
//! ```
//! What the network or a store does not do is done again, for ever, after waits that double and differ; what the canister refuses ends
//! the worker. Nothing is said of a blob whose fate is not known.

use super::args::{Options, Until};
use super::lease::{Moment, Term};
use super::log::{Level, Log};
use super::marker::{self, WrongStore};
use super::queue::{Ask, Done, Lease, Noted, Queue, Refusal, Row, Waiting};
use super::work::{Outcome, Worker};
use crate::client::may_pass;
use crate::exit::Exit;
use crate::stop::Stop;
use anyhow::{Context, Result};
use backon::{BackoffBuilder, ExponentialBackoff, ExponentialBuilder};
use candid::Principal;
use serde::Serialize;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// Exit code: a store has not the right marker.
pub const WRONG_STORE: u8 = 3;
/// Exit code: some blobs were not deleted.
pub const NOT_ALL: u8 = 4;
/// Exit code: the canister refuses.
pub const REFUSED: u8 = 5;
/// Exit code: the canister was not told.
pub const UNTOLD: u8 = 6;

/// The first wait after an error.
const FIRST_WAIT: Duration = Duration::from_millis(250);
/// How long a worker that is to end tries to say what it did.
const PARTING: Duration = Duration::from_secs(30);
/// How often a store is asked for its marker before what was deleted is taken for unknown.
const MARKER_TRIES: usize = 3;

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
    /// Calls and requests that were tried again.
    pub retries: u64,
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

/// A worker.
pub struct Run<'a, Q> {
    queue: &'a Q,
    canister: Principal,
    worker: Worker,
    options: Options,
    stop: &'a Stop,
    log: &'a Log,
    figures: RefCell<Figures>,
    /// Names this process among all that call with its identity.
    nonce: [u8; 16],
    waiting: u64,
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
        Ok(Self { queue, canister, worker, options, stop, log, figures, nonce, waiting: 0 })
    }

    /// What it did so far.
    pub fn figures(&self) -> Figures {
        self.figures.borrow().clone()
    }

    /// Works until it is to end.
    ///
    /// # Errors
    /// [`Exit`] with [`WRONG_STORE`], [`REFUSED`] or [`UNTOLD`].
    pub fn run(&mut self) -> Result<()> {
        let mut after_errors = waits(self.options.max_wait);
        loop {
            if self.stop.is_set() {
                return Ok(());
            }
            let round = self.round()?;
            self.log.progress(&self.figures.borrow(), self.waiting);
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
        let Some((heights, waiting)) = self.call("looking at the queue", |queue| queue.look())? else {
            return Ok(Round::Stopped);
        };
        let height = heights.due(self.options.safety_window);
        let mine = |waiting: &&Waiting| {
            self.options.store_types.is_empty() || self.options.store_types.contains(&waiting.store)
        };
        self.waiting = waiting.iter().filter(mine).map(|waiting| waiting.rows).sum();
        let is_due = waiting.iter().filter(mine).any(|waiting| waiting.oldest.is_some_and(|oldest| oldest <= height));
        // Where the worker is to end then, that nothing is due is the canister's word.
        if !is_due && self.options.until == Until::Stopped {
            return Ok(Round::Idle);
        }
        if !self.await_markers()? {
            return Ok(Round::Stopped);
        }
        let Some(heights) = self.call("asking for the height", |queue| queue.heights())? else {
            return Ok(Round::Stopped);
        };
        let height = heights.due(self.options.safety_window);
        self.figures.borrow_mut().height = height;
        let asked = Moment::now();
        let Some(lease) = self.acquire(height)? else { return Ok(Round::Stopped) };
        match lease {
            None => Ok(Round::Idle),
            Some(lease) => self.work(&lease, asked),
        }
    }

    /// A lease, or none where nothing is due; nothing at all where the worker is to end.
    fn acquire(&self, height: u32) -> Result<Option<Option<Lease>>> {
        let number = self.figures.borrow().leases;
        let ask = Ask {
            height,
            rows: self.options.batch,
            secs: self.options.lease.as_secs(),
            stores: self.options.store_types.clone(),
            request: [&self.nonce[..], &number.to_le_bytes()].concat(),
        };
        let mut delays = waits(self.options.max_wait);
        loop {
            match self.call("leasing", |queue| queue.acquire(&ask))? {
                None => return Ok(None),
                Some(Ok(lease)) => return Ok(Some(lease)),
                Some(Err(why)) => {
                    let delay = delays.next().unwrap_or(self.options.max_wait);
                    self.log.note(
                        Level::Warn,
                        "lease",
                        &format!("no lease: {why}; trying again in {:.1} s", delay.as_secs_f64()),
                    );
                    self.figures.borrow_mut().retries += 1;
                    self.stop.wait(delay);
                    if self.stop.is_set() {
                        return Ok(None);
                    }
                }
            }
        }
    }

    /// Works through a lease.
    fn work(&mut self, lease: &Lease, asked: Moment) -> Result<Round> {
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
            self.log.progress(&self.figures.borrow(), self.waiting);
        };
        extend();
        let mut outcome = self.worker.delete(&lease.rows, &term, self.stop, &mut extend);
        let wrong = self.recheck(&mut outcome, &mut extend);
        self.tell(lease, &outcome);
        let done = Done {
            gone: outcome.gone.clone(),
            failed: outcome.failed.iter().map(|(id, _)| *id).chain(outcome.no_store.iter().copied()).collect(),
            // That this worker has no store for a blob does not kill it.
            max_retries: if outcome.no_store.is_empty() { self.options.max_retries } else { u32::MAX },
        };
        self.complete(lease, done, &term, &outcome)?;
        if let Some(wrong) = wrong {
            return Err(Exit::error(WRONG_STORE, wrong.0));
        }
        // Where nothing goes it does not hurry, whatever the reason.
        let progress = !outcome.gone.is_empty();
        Ok(Round::Worked { progress, trouble: !progress || !outcome.errors.is_empty() })
    }

    /// Has a lease last longer. Answers whether that is settled.
    fn extend(&self, lease: &Lease, term: &Term) -> bool {
        let asked = Moment::now();
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

    /// Looks at the markers again: what was deleted where none is any more was not deleted where it lies. Then nothing is said of it.
    fn recheck(&self, outcome: &mut Outcome, meanwhile: &mut impl FnMut()) -> Option<WrongStore> {
        if outcome.gone.is_empty() {
            return None;
        }
        let mut delays = waits(Duration::from_secs(1));
        let mut tries = 0;
        let why = loop {
            tries += 1;
            match self.check_markers() {
                Ok(()) => return None,
                Err(error) => match error.downcast::<WrongStore>() {
                    Ok(wrong) => break Ok(wrong),
                    Err(error) if tries >= MARKER_TRIES => break Err(error),
                    Err(_) => std::thread::sleep(delays.next().unwrap_or_default()),
                },
            }
            meanwhile();
        };
        outcome.left += outcome.gone.len() as u64;
        outcome.absent = 0;
        outcome.gone.clear();
        match why {
            Ok(wrong) => Some(wrong),
            Err(error) => {
                outcome.errors.push((0, format!("{error:#}")));
                None
            }
        }
    }

    /// Says what became of a lease, each failure by its name.
    fn tell(&self, lease: &Lease, outcome: &Outcome) {
        let rows: BTreeMap<u64, &Row> = lease.rows.iter().map(|row| (row.id, row)).collect();
        for (id, why) in &outcome.failed {
            let name = rows.get(id).map_or(String::new(), |row| name(row));
            self.log.note(Level::Warn, "failed", &format!("row {id}, {name}: {why}"));
        }
        let mut types: BTreeMap<(String, String), u64> = BTreeMap::new();
        for row in outcome.no_store.iter().filter_map(|id| rows.get(id)) {
            *types.entry((row.file_type.clone(), format!("{:?}", row.store))).or_default() += 1;
        }
        for ((file_type, store), many) in types {
            let why =
                format!("{many} blobs of file type {file_type:?}, store {store}, are put off: no --store has them");
            self.log.note(Level::Warn, "no_store", &why);
        }
        for (store, why) in &outcome.errors {
            let url = self.worker.stores().all().get(*store).map_or("", |store| store.url.as_str());
            let why = format!("{url}: {why}; {} blobs go back and are tried again", outcome.left);
            self.log.note(Level::Warn, "store", &why);
        }
        if !outcome.gone.is_empty() && outcome.absent == outcome.gone.len() as u64 && outcome.absent > 1 {
            let why = format!("none of {} blobs was there: are these the right stores and layout?", outcome.absent);
            self.log.note(Level::Warn, "absent", &why);
        }
    }

    /// Says to the canister what was done, until it has heard all.
    fn complete(&self, lease: &Lease, mut done: Done, term: &Term, outcome: &Outcome) -> Result<()> {
        let parting = Moment::now();
        let mut delays = waits(self.options.max_wait);
        let (mut dead, mut skipped) = (0, Vec::new());
        let why = loop {
            let many = done.gone.len() + done.failed.len();
            match self.queue.complete(&lease.token, &done) {
                Ok(Ok(noted)) => {
                    let Noted { dead: now_dead, remaining, skipped: now_skipped } = noted;
                    dead += now_dead;
                    skipped.extend(now_skipped);
                    if remaining == 0 {
                        break None;
                    }
                    let heard = many.saturating_sub(remaining as usize);
                    if heard == 0 {
                        return Err(Exit::error(REFUSED, "the canister takes note of nothing that is completed"));
                    }
                    let gone = heard.min(done.gone.len());
                    done.gone.drain(..gone);
                    done.failed.drain(..heard - gone);
                }
                Ok(Err(Refusal::Over(why))) => break Some(why),
                Ok(Err(Refusal::Later(why))) => self.again("completing", &why, &mut delays),
                Err(error) if may_pass(&error) => self.again("completing", &format!("{error:#}"), &mut delays),
                Err(error) => return Err(refused("completing", error)),
            }
            if self.stop.is_set() && (parting.elapsed() > PARTING || term.left().is_zero()) {
                let why = format!(
                    "the canister could not be told of {} blobs: they are tried again when the lease has ended",
                    many
                );
                return Err(Exit::error(UNTOLD, why));
            }
        };
        let mut figures = self.figures.borrow_mut();
        if let Some(why) = why {
            figures.late += outcome.gone.len() as u64;
            drop(figures);
            self.log.note(
                Level::Warn,
                "lease",
                &format!("too late to say what was deleted, others do it again: {why}"),
            );
            return Ok(());
        }
        let late = outcome.gone.iter().filter(|id| skipped.contains(id)).count() as u64;
        figures.late += late;
        figures.deleted += outcome.gone.len() as u64 - late;
        figures.absent += outcome.absent.min(outcome.gone.len() as u64 - late);
        figures.failed += outcome.failed.len() as u64;
        figures.no_store += outcome.no_store.len() as u64;
        figures.left += outcome.left;
        figures.dead += dead;
        Ok(())
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
        let mut delays = waits(self.options.max_wait);
        loop {
            match ask(self.queue) {
                Ok(answer) => return Ok(Some(answer)),
                Err(error) if !may_pass(&error) => return Err(refused(what, error)),
                Err(_) if self.stop.is_set() => return Ok(None),
                Err(error) => self.again(what, &format!("{error:#}"), &mut delays),
            }
        }
    }

    /// Waits until all markers can be read. Answers whether they are right, and not the worker to end.
    ///
    /// # Errors
    /// [`Exit`] with [`WRONG_STORE`].
    pub fn await_markers(&self) -> Result<bool> {
        let mut delays = waits(self.options.max_wait);
        loop {
            match self.check_markers() {
                Ok(()) => return Ok(true),
                Err(error) => match error.downcast::<WrongStore>() {
                    Ok(wrong) => return Err(Exit::error(WRONG_STORE, wrong.0)),
                    Err(_) if self.stop.is_set() => return Ok(false),
                    Err(error) => self.again("before anything is leased", &format!("{error:#}"), &mut delays),
                },
            }
            if self.stop.is_set() {
                return Ok(false);
            }
        }
    }

    fn check_markers(&self) -> Result<()> {
        let most = super::lease::most(self.options.lease);
        for store in self.worker.stores().all() {
            let found = self.worker.wait_for(async { tokio::time::timeout(most, store.marker()).await });
            let found =
                found.map_err(|_| anyhow::anyhow!("{}: its marker does not come within {most:?}", store.url))??;
            marker::check(store, self.canister, found.as_ref())?;
        }
        Ok(())
    }
}

/// What is no error of the network is one that does not pass.
pub fn refused(what: &str, error: anyhow::Error) -> anyhow::Error {
    Exit::error(
        REFUSED,
        format!("{what}: the canister refuses: {error:#}; a worker's identity needs the role BlobWorker"),
    )
}

/// What a blob is called.
fn name(row: &Row) -> String {
    let key: String = row.key.iter().take(32).map(|byte| format!("{byte:02x}")).collect();
    let more = if row.key.len() > 32 { "…" } else { "" };
    format!("{key}{more}, file type {:?}, store {:?}", row.file_type, row.store)
}

/// Says what would be deleted: of each row where its blob is, and whether it is there.
///
/// # Errors
/// As [`Run::run`]; when a store does not answer.
pub fn dry_run<Q: Queue>(run: &Run<'_, Q>) -> Result<(u32, Vec<Found>)> {
    let stopped = || Exit::error(130, "ended");
    let (heights, _) = run.call("looking at the queue", |queue| queue.look())?.with_context(stopped)?;
    let height = heights.due(run.options.safety_window);
    let rows =
        run.call("looking at the queue", |queue| queue.pending(height, run.options.batch))?.with_context(stopped)?;
    if !run.await_markers()? {
        return Err(stopped());
    }
    let found = rows
        .into_iter()
        .filter(|row| run.options.store_types.is_empty() || run.options.store_types.contains(&row.store));
    let found = found.map(|row| {
        let stores = run.worker.stores();
        let (place, there) = match stores.find(&row) {
            Err(why) => (format!("{why:?}"), None),
            Ok((store, target)) => {
                let store = &stores.all()[store];
                let path = target.paths.last().map(ToString::to_string).unwrap_or_default();
                (format!("{}/{path}", store.url.origin_and_root()), Some(run.worker.wait_for(store.has(&target))?))
            }
        };
        Ok(Found { id: row.id, height: row.height, place, there })
    });
    Ok((height, found.collect::<Result<_>>()?))
}

/// A row that would be deleted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Found {
    /// Its number.
    pub id: u64,
    /// Its height.
    pub height: u32,
    /// Where its blob is, or why it is nowhere.
    pub place: String,
    /// Whether it is there; none where it is nowhere.
    pub there: Option<bool>,
}

/// A store's address without what paths in it begin with.
trait Root {
    fn origin_and_root(&self) -> String;
}

impl Root for url::Url {
    fn origin_and_root(&self) -> String {
        match self.scheme() {
            "s3" => format!("s3://{}", self.host_str().unwrap_or_default()),
            _ => self.as_str().trim_end_matches('/').to_string(),
        }
    }
}

#[cfg(test)]
#[path = "tests/run.rs"]
mod tests;
