//! The blobs of a lease, deleted: requests side by side, none of which outlives the lease, while the caller has time to extend it.
//!
//! A request is begun only where what is left of the lease is more than it may take, and is cut off then. After an error of a store no
//! more is begun there: what is left of the lease goes back. What a request of a lease before had that failed as a whole is asked for
//! behind the others, by requests half as long ([`past`](super::past)), which end nothing where something else goes.

use super::lease::Term;
use super::past::{Past, Request};
use super::store::{Fate, Nowhere, Stores, Target};
use crate::blob_worker::queue::Row;
use crate::stop::Stop;
use futures_util::StreamExt as _;
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::{Duration, Instant};
use tokio::runtime::Runtime;

/// How often at least the caller is asked what else there is to do.
const PULSE: Duration = Duration::from_millis(200);

/// What became of the rows of a lease.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// Rows whose blob is gone.
    pub gone: Vec<u64>,
    /// Of them, those of which the store says that they were not there.
    pub absent: Vec<u64>,
    /// Rows whose blob cannot be deleted, and why.
    pub failed: Vec<(u64, String)>,
    /// Rows of blobs for which there is no store.
    pub no_store: Vec<u64>,
    /// By store, how many rows there are of which nothing is known: they go back as they were.
    pub left: BTreeMap<usize, u64>,
    /// Rows that no store has, and that go back as they were.
    pub postponed: usize,
    /// Stores, by their number, and what is wrong with them.
    pub errors: Vec<(usize, String)>,
}

impl Outcome {
    /// Rows that go back as they were.
    pub fn all_left(&self) -> u64 {
        self.left.values().sum::<u64>() + self.postponed as u64
    }

    /// A row of a store goes back.
    pub fn leave(&mut self, store: usize) {
        *self.left.entry(store).or_default() += 1;
    }
}

/// Stores that cannot be asked, by their number, and why.
pub type Away = BTreeMap<usize, String>;

/// Does the requests.
pub struct Worker {
    runtime: Option<Runtime>,
    stores: Arc<Stores>,
    parallel: usize,
    /// By store, what the leases before have shown of it.
    past: RefCell<Vec<Past>>,
}

impl Worker {
    /// One that has so many requests under way at a time.
    ///
    /// # Errors
    /// When there are no threads to be had.
    pub fn new(stores: Stores, parallel: usize) -> std::io::Result<Self> {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
        let past = RefCell::new(stores.all().iter().map(|_| Past::default()).collect());
        Ok(Self { runtime: Some(runtime), stores: Arc::new(stores), parallel, past })
    }

    /// The stores.
    pub fn stores(&self) -> &Stores {
        &self.stores
    }

    /// Blobs of the last lease that went back as they were, and of which a request failed, or was refused, then or before.
    pub fn held_up(&self) -> usize {
        self.past.borrow().iter().map(|past| past.held_up).sum()
    }

    /// Waits for something that a store is asked.
    pub fn wait_for<T>(&self, work: impl Future<Output = T>) -> T {
        self.runtime().block_on(work)
    }

    fn runtime(&self) -> &Runtime {
        self.runtime.as_ref().expect("it is there until it is dropped")
    }

    /// Deletes the blobs of rows but for those in stores that are away, and calls `meanwhile` again and again until it is done.
    pub fn delete(
        &self,
        rows: &[Row],
        away: &Away,
        term: &Arc<Term>,
        stop: &Stop,
        mut meanwhile: impl FnMut(),
    ) -> Outcome {
        let mut outcome = Outcome::default();
        let mut of: Vec<Vec<Target>> = vec![Vec::new(); self.stores.all().len()];
        for row in rows {
            match self.stores.find(row) {
                Ok((store, target)) => of[store].push(target),
                Err(Nowhere::NoStore) => outcome.no_store.push(row.id),
                Err(Nowhere::NoName(why)) => outcome.failed.push((row.id, why)),
            }
        }
        let mut tallies: Vec<Tally> = of.iter().map(|_| Tally::default()).collect();
        for (store, why) in away {
            tallies[*store].is_away(&std::mem::take(&mut of[*store]), why);
        }
        let answers = self.begin(of, term, stop);
        loop {
            match answers.recv_timeout(PULSE) {
                Ok(answer) => tallies[answer.store].add(&answer),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => break,
            }
            meanwhile();
        }
        let mut past = self.past.borrow_mut();
        for (store, tally) in tallies.into_iter().enumerate() {
            tally.into_outcome(store, &mut past[store], &mut outcome);
        }
        outcome
    }

    /// Begins the requests; the answers come as they are there.
    fn begin(&self, of: Vec<Vec<Target>>, term: &Arc<Term>, stop: &Stop) -> Receiver<Answer> {
        let (send, answers) = channel();
        let states: Arc<Vec<State>> = Arc::new(of.iter().map(|_| State::default()).collect());
        let past = self.past.borrow();
        let requests: Vec<(usize, Request)> = of
            .into_iter()
            .enumerate()
            .flat_map(|(store, targets)| {
                let requests = past[store].requests(targets, self.stores.all()[store].chunk());
                requests.into_iter().map(move |request| (store, request))
            })
            .collect();
        let (again, fresh): (Vec<_>, Vec<_>) = requests.into_iter().partition(|(_, request)| request.failed_before);
        let (stores, term, stop, parallel) = (self.stores.clone(), term.clone(), stop.clone(), self.parallel);
        self.runtime().spawn(async move {
            let begin = |(store, request): (usize, Request)| {
                let (stores, term, stop, states) = (stores.clone(), term.clone(), stop.clone(), states.clone());
                // In a task of its own: what panics there is the request's failure, and no end.
                let (asked, began) = (request.clone(), Instant::now());
                let task = tokio::spawn(async move { ask(&stores, store, &asked, &term, &stop, &states[store]).await });
                async move {
                    let targets = request.targets;
                    let (fates, was_asked) = task.await.unwrap_or_else(|error| {
                        let why = format!("the store's answer cannot be read: {error}");
                        (vec![Fate::Left(why); targets.len()], true)
                    });
                    Answer { store, targets, fates, was_asked, began, ended: Instant::now() }
                }
            };
            // Not beside the others either: what fails at once would end them before they are asked for.
            for requests in [fresh, again] {
                let requests = futures_util::stream::iter(requests).map(begin);
                let mut answers = std::pin::pin!(requests.buffer_unordered(parallel.max(1)));
                while let Some(answer) = answers.next().await {
                    if send.send(answer).is_err() {
                        return;
                    }
                }
            }
        });
        answers
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        // A request to a file system that hangs cannot be ended, and is not waited for.
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

/// What became of a request.
struct Answer {
    store: usize,
    targets: Vec<Target>,
    fates: Vec<Fate>,
    /// The store was asked at all.
    was_asked: bool,
    began: Instant,
    ended: Instant,
}

/// How a store does in this lease.
#[derive(Default)]
struct State {
    /// Something went.
    went: AtomicBool,
    /// No more is begun.
    failed: AtomicBool,
    /// Why not.
    first: RwLock<Option<String>>,
}

/// One request: what became of each blob, and whether the store was asked.
async fn ask(
    stores: &Stores,
    store: usize,
    request: &Request,
    term: &Term,
    stop: &Stop,
    state: &State,
) -> (Vec<Fate>, bool) {
    let all_left = |why: &str| vec![Fate::Left(why.into()); request.targets.len()];
    if state.failed.load(Ordering::Relaxed) {
        let first = state.first.read().unwrap_or_else(PoisonError::into_inner).clone();
        return (all_left(&first.unwrap_or_default()), false);
    }
    if stop.is_set() {
        return (all_left(""), false);
    }
    let most = term.most();
    if term.left() < most {
        return (all_left("the lease ends before the store would have answered"), false);
    }
    let fates = match tokio::time::timeout(most, stores.all()[store].delete(&request.targets)).await {
        Ok(fates) => fates,
        Err(_) => all_left(&format!("it does not answer within {:.1} s, a quarter of the lease", most.as_secs_f64())),
    };
    if fates.iter().any(|fate| matches!(fate, Fate::Gone | Fate::Absent)) {
        state.went.store(true, Ordering::Relaxed);
    }
    // What failed before may do so again, and is not the store's fault where the store does something.
    let expected = request.failed_before && state.went.load(Ordering::Relaxed);
    if let Some(Fate::Left(why)) = fates.iter().find(|fate| matches!(fate, Fate::Left(_)) && !expected) {
        state.first.write().unwrap_or_else(PoisonError::into_inner).get_or_insert_with(|| why.clone());
        state.failed.store(true, Ordering::Relaxed);
    }
    (fates, true)
}

/// A blob that a store refuses.
struct Refused {
    id: u64,
    why: String,
    /// When it was said.
    ended: Instant,
    /// Others of its request went.
    others_went: bool,
}

/// What became of the blobs of one store.
#[derive(Default)]
struct Tally {
    gone: Vec<u64>,
    absent: Vec<u64>,
    failed: Vec<(u64, String)>,
    refused: Vec<Refused>,
    /// Blobs of requests that failed, of how many each, and why.
    unknown: Vec<(u64, usize, String)>,
    /// Blobs that the store was not asked for.
    left: Vec<u64>,
    /// When the last request was begun that deleted something that was there.
    last_allowed: Option<Instant>,
    is_away: bool,
    error: Option<String>,
}

impl Tally {
    /// The store is not asked for anything.
    fn is_away(&mut self, targets: &[Target], why: &str) {
        self.is_away = true;
        self.left.extend(targets.iter().map(|target| target.id));
        self.error = (!targets.is_empty()).then(|| why.to_string());
    }

    fn add(&mut self, answer: &Answer) {
        let many = answer.targets.len();
        let others_went = answer.fates.contains(&Fate::Gone);
        if others_went {
            self.last_allowed = self.last_allowed.max(Some(answer.began));
        }
        for (target, fate) in answer.targets.iter().zip(&answer.fates) {
            let id = target.id;
            match fate {
                Fate::Gone => self.gone.push(id),
                Fate::Absent => {
                    self.absent.push(id);
                    self.gone.push(id);
                }
                Fate::Failed(why) => self.failed.push((id, why.clone())),
                Fate::Refused(why) => {
                    self.refused.push(Refused { id, why: why.clone(), ended: answer.ended, others_went });
                }
                Fate::Left(why) if answer.was_asked => self.unknown.push((id, many, why.clone())),
                Fate::Left(why) => {
                    self.left.push(id);
                    if !why.is_empty() {
                        self.error.get_or_insert_with(|| why.clone());
                    }
                }
            }
        }
    }

    fn into_outcome(self, store: usize, past: &mut Past, outcome: &mut Outcome) {
        let Self { gone, absent, mut failed, refused, unknown, left, last_allowed, is_away, mut error } = self;
        left.iter().for_each(|_| outcome.leave(store));
        let comes_again = |id: &&u64| is_away || past.is_known(**id);
        past.held_up = left.iter().filter(comes_again).count();
        let goes = !gone.is_empty();
        gone.iter().for_each(|id| past.is_settled(*id));
        failed.iter().for_each(|(id, _)| past.is_settled(*id));
        let mut back = |past: &mut Past, why: String| {
            outcome.leave(store);
            past.held_up += 1;
            error.get_or_insert(why);
        };
        for (id, many, why) in unknown {
            if past.failed(id, many, goes) {
                let why = format!("each request for it alone fails, while others go: {why}");
                failed.push((id, why));
            } else {
                back(past, why);
            }
        }
        let many = refused.len();
        if goes || many > 0 {
            let these: BTreeSet<u64> = refused.iter().map(|refused| refused.id).chain(left).collect();
            past.only_refused(&these);
        }
        for Refused { id, why, ended, others_went } in refused {
            let went_behind = others_went || last_allowed.is_some_and(|began| began >= ended);
            if past.is_refused(id, last_allowed.is_some(), went_behind, many) {
                failed.push((id, why));
            } else {
                back(past, why);
            }
        }
        outcome.absent.extend(absent);
        outcome.gone.extend(gone);
        outcome.failed.extend(failed);
        outcome.errors.extend(error.map(|error| (store, error)));
    }
}
