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
use crate::client::{Failure, Retry};
use crate::exit::Exit;
use crate::stop::Stop;
use anyhow::Result;
use backon::{BackoffBuilder, ExponentialBackoff, ExponentialBuilder};
use candid::Principal;
use coppice_client::CallError;
use serde::Serialize;
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
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

/// The most rows of a lease.
const MOST_ROWS: u32 = 1_000;
/// The first wait after an error.
const FIRST_WAIT: Duration = Duration::from_millis(250);
/// How long a worker that is to end tries to say what it did, or to have the answer that it waits for. A test has no time for it.
pub const PARTING: Duration = Duration::from_secs(if cfg!(test) { 1 } else { 30 });
/// How old a look at the markers may be where blobs are deleted; less in a short lease.
const FRESH: Duration = Duration::from_secs(5);
/// The longest that a worker that is to end waits for a marker.
pub const LAST_LOOK: Duration = Duration::from_secs(5);
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
    /// Blobs of which it is not known that they are gone, where the worker ends by itself: what failed, had no store, or whose lease was
    /// over, and did not go later; of `--once` also what was put back.
    pub undone: u64,
    /// Up to which height blobs went last.
    pub height: u32,
}

/// A store that is wrong, by its number, and why it is.
type Wrong = (usize, WrongStore);

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
        Ok(Self { queue, canister, worker, options, stop, log, figures, nonce, waiting: 0, undone })
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
        // A wrong store is known before anything is due.
        if !self.await_markers()? {
            return Ok(());
        }
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
            Some(lease) => self.work(&lease, asked, looked),
        }
    }

    /// A lease, or none where nothing is due; nothing at all where the worker is to end.
    fn acquire(&self, height: u32) -> Result<Option<Option<Lease>>> {
        let number = self.figures.borrow().leases;
        let held_up = u32::try_from(self.worker.held_up()).unwrap_or(MOST_ROWS);
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
        let mut parting = None;
        loop {
            if self.stop.is_set() && !lost {
                return Ok(None);
            }
            let why = match self.queue.acquire(&ask) {
                Ok(Ok(lease)) => return Ok(Some(lease)),
                Ok(Err(why)) => {
                    lost = false;
                    why.to_string()
                }
                Err(error) if passes(&error) => {
                    lost = true;
                    format!("{error:#}")
                }
                Err(error) => return Err(refused("leasing", error)),
            };
            if self.stop.is_set() && lost && self.has_parted(&mut parting) {
                let why = format!(
                    "the canister does not say whether it has leased blobs, which then wait for the lease's end: {why}"
                );
                return Err(Exit::error(UNTOLD, why));
            }
            self.again("leasing", &why, &mut delays);
        }
    }

    /// Whether it is enough that the worker was asked to end; it is not when that is seen first.
    fn has_parted(&self, since: &mut Option<Moment>) -> bool {
        match since {
            Some(since) => since.elapsed() > PARTING,
            None => {
                *since = Some(Moment::now());
                false
            }
        }
    }

    /// Works through a lease.
    fn work(&mut self, lease: &Lease, asked: Moment, looked: Moment) -> Result<Round> {
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
        let (mut outcome, mut wrong) = (Outcome::default(), Vec::new());
        // What a store's path was before the canister answered it may not be any more.
        if looked.elapsed() > FRESH.min(self.options.lease / 16) {
            (outcome.errors, wrong) = self.look_at_markers();
        }
        if !wrong.is_empty() || !outcome.errors.is_empty() {
            outcome.left = lease.rows.len() as u64;
        } else {
            outcome = self.worker.delete(&lease.rows, &term, self.stop, &mut extend);
            wrong = self.recheck(lease, &mut outcome, &mut extend);
        }
        self.tell(lease, &outcome);
        let done = Done {
            gone: outcome.gone.clone(),
            failed: outcome.failed.iter().map(|(id, _)| *id).chain(outcome.no_store.iter().copied()).collect(),
            // That this worker has no store for a blob does not kill it.
            max_retries: if outcome.no_store.is_empty() { self.options.max_retries } else { u32::MAX },
        };
        self.complete(lease, done, &term, &outcome)?;
        if let Some((_, wrong)) = wrong.into_iter().next() {
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

    /// Looks at the markers again: what was deleted where none is any more was not deleted where it lies. Then nothing is said of what
    /// that store has. Answers which stores are wrong.
    fn recheck(&self, lease: &Lease, outcome: &mut Outcome, meanwhile: &mut impl FnMut()) -> Vec<Wrong> {
        if outcome.gone.is_empty() {
            return Vec::new();
        }
        let mut delays = waits(Duration::from_secs(1));
        let mut tries = 0;
        let (away, wrong) = loop {
            tries += 1;
            let (away, wrong) = self.look_at_markers();
            if away.is_empty() || tries >= MARKER_TRIES || self.stop.is_set() {
                break (away, wrong);
            }
            self.stop.wait(delays.next().unwrap_or_default());
            meanwhile();
        };
        let doubtful: BTreeSet<usize> =
            away.iter().map(|(store, _)| *store).chain(wrong.iter().map(|(store, _)| *store)).collect();
        if doubtful.is_empty() {
            return wrong;
        }
        let stores = self.worker.stores();
        let lies_there = |row: &&Row| stores.find(row).is_ok_and(|(store, _)| doubtful.contains(&store));
        let there: BTreeSet<u64> = lease.rows.iter().filter(lies_there).map(|row| row.id).collect();
        let gone = outcome.gone.len();
        outcome.gone.retain(|id| !there.contains(id));
        outcome.absent.retain(|id| !there.contains(id));
        outcome.left += (gone - outcome.gone.len()) as u64;
        outcome.errors.extend(away);
        wrong
    }

    /// Looks at all markers once: stores that cannot be asked, by their number, and those that are wrong, and why.
    fn look_at_markers(&self) -> (Vec<(usize, String)>, Vec<Wrong>) {
        let (mut away, mut wrong) = (Vec::new(), Vec::new());
        for (store, found) in self.check_markers().into_iter().enumerate() {
            match found.map_err(|error| error.downcast::<WrongStore>()) {
                Ok(()) => {}
                Err(Ok(why)) => wrong.push((store, why)),
                Err(Err(error)) => away.push((store, format!("{error:#}"))),
            }
        }
        (away, wrong)
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
        if !outcome.gone.is_empty() && outcome.absent.len() == outcome.gone.len() && outcome.absent.len() > 1 {
            let why =
                format!("none of {} blobs was there: are these the right stores and layout?", outcome.absent.len());
            self.log.note(Level::Warn, "absent", &why);
        }
    }

    /// Says to the canister what was done, until it has heard all.
    fn complete(&self, lease: &Lease, mut done: Done, term: &Term, outcome: &Outcome) -> Result<()> {
        let mut parting = None;
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
                Err(error) if passes(&error) => self.again("completing", &format!("{error:#}"), &mut delays),
                Err(error) => return Err(refused("completing", error)),
            }
            let is_last = parting.is_some() && term.left().is_zero();
            if self.stop.is_set() && (self.has_parted(&mut parting) || is_last) {
                let why = format!(
                    "the canister could not be told of {} blobs: they are tried again when the lease has ended",
                    many
                );
                return Err(Exit::error(UNTOLD, why));
            }
        };
        self.count_undone(lease, outcome, &skipped, why.is_some());
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
        figures.absent += outcome.absent.iter().filter(|id| !skipped.contains(id)).count() as u64;
        figures.failed += outcome.failed.len() as u64;
        figures.no_store += outcome.no_store.len() as u64;
        figures.left += outcome.left;
        figures.dead += dead;
        Ok(())
    }

    /// Notes which rows of a lease, completed or over, are not known to be gone.
    fn count_undone(&self, lease: &Lease, outcome: &Outcome, skipped: &[u64], is_over: bool) {
        let mut undone = self.undone.borrow_mut();
        let gone: BTreeSet<u64> = outcome.gone.iter().copied().collect();
        let skipped: BTreeSet<u64> = skipped.iter().copied().collect();
        let late = |id: &u64| gone.contains(id) && (is_over || skipped.contains(id));
        match self.options.until {
            Until::Stopped => {}
            Until::Once => undone.extend(lease.rows.iter().map(|row| row.id)),
            // What was put back comes again.
            Until::Empty => {
                let failed = outcome.failed.iter().map(|(id, _)| id).chain(&outcome.no_store);
                undone.extend(failed.chain(gone.iter().filter(|id| late(id))));
            }
        }
        undone.retain(|id| !gone.contains(id) || late(id));
        self.figures.borrow_mut().undone = undone.len() as u64;
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
                Err(error) if !passes(&error) => return Err(refused(what, error)),
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
            let (away, wrong) = self.look_at_markers();
            if let Some((_, wrong)) = wrong.into_iter().next() {
                return Err(Exit::error(WRONG_STORE, wrong.0));
            }
            match away.into_iter().next() {
                None => return Ok(true),
                Some(_) if self.stop.is_set() => return Ok(false),
                Some((_, why)) => self.again("before anything is leased", &why, &mut delays),
            }
            if self.stop.is_set() {
                return Ok(false);
            }
        }
    }

    /// What each store's marker says, asked for side by side.
    fn check_markers(&self) -> Vec<Result<()>> {
        let most = super::lease::most(self.options.lease);
        let most = if self.stop.is_set() { most.min(LAST_LOOK) } else { most };
        let stores = self.worker.stores().all();
        let look = |store: &'_ super::store::Store| {
            let store = store.clone();
            async move { tokio::time::timeout(most, store.marker()).await }
        };
        let found = self.worker.wait_for(async { futures_util::future::join_all(stores.iter().map(look)).await });
        let check = |(store, found): (&super::store::Store, _)| -> Result<()> {
            let found: Result<Result<Option<marker::Marker>>, tokio::time::error::Elapsed> = found;
            let found = found.map_err(|_| anyhow::anyhow!("its marker does not come within {most:?}"))??;
            Ok(marker::check(store, self.canister, found.as_ref())?)
        };
        stores.iter().zip(found).map(check).collect()
    }
}

/// Whether the same may go well later. Only what the canister itself says, or does not understand, is final: what stands between, a clock
/// that is wrong among it, may be put right while the worker runs.
pub fn passes(error: &anyhow::Error) -> bool {
    let passes = |error: &CallError| match &error.failure {
        Failure::Rejected(_) => error.retry() == Retry::Again,
        Failure::Argument(_) | Failure::Answer(_) => false,
        Failure::Lost(_) | Failure::Transport(_) => true,
    };
    error.chain().any(|error| error.downcast_ref().is_some_and(passes))
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

/// Says what would be deleted: of each row where its blob is, and whether it is there; nothing where it is to end before it knows.
///
/// # Errors
/// As [`Run::run`]; when a store does not answer.
pub fn dry_run<Q: Queue>(run: &Run<'_, Q>) -> Result<Option<(u32, Vec<Found>)>> {
    let Some((heights, _)) = run.call("looking at the queue", |queue| queue.look())? else { return Ok(None) };
    let height = heights.due(run.options.safety_window);
    let rows = run.call("looking at the queue", |queue| queue.pending(height, run.options.batch))?;
    let Some(rows) = rows else { return Ok(None) };
    if !run.await_markers()? {
        return Ok(None);
    }
    let found = rows
        .into_iter()
        .filter(|row| run.options.store_types.is_empty() || run.options.store_types.contains(&row.store));
    let found = found.take_while(|_| !run.stop.is_set()).map(|row| {
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
    let found = found.collect::<Result<_>>()?;
    Ok((!run.stop.is_set()).then_some((height, found)))
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
