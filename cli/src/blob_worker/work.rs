//! The blobs of a lease, deleted: requests side by side, none of which outlives the lease, while the caller has time to extend it.
//!
//! A request is begun only where what is left of the lease is more than it may take, and is cut off then. After an error of a store no
//! more is begun there: what is left of the lease goes back.

use super::lease::Term;
use super::marker;
use super::queue::Row;
use super::store::{Fate, Nowhere, Stores, Target};
use crate::stop::Stop;
use candid::Principal;
use futures_util::StreamExt as _;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;
use tokio::runtime::Runtime;

/// How often at least the caller is asked what else there is to do.
const PULSE: Duration = Duration::from_millis(200);

/// What became of the blobs of one store.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Of {
    /// Rows whose blob is gone.
    pub gone: Vec<u64>,
    /// Of them, those of which the store says that they were not there.
    pub absent: Vec<u64>,
    /// Rows whose blob cannot be deleted, and why.
    pub failed: Vec<(u64, String)>,
    /// Rows that the store refuses, and why, where it is not known that it is for the blob's sake: they go back.
    pub refused: Vec<(u64, String)>,
    /// Rows that the store was asked for without answering.
    pub unknown: Vec<u64>,
    /// Other rows that go back as they were.
    pub left: Vec<u64>,
    /// Why the store does not do what it is asked for.
    pub error: Option<String>,
}

impl Of {
    fn add(&mut self, id: u64, fate: Fate) {
        match fate {
            Fate::Gone => self.gone.push(id),
            Fate::Absent => {
                self.absent.push(id);
                self.gone.push(id);
            }
            Fate::Failed(why) => self.failed.push((id, why)),
            Fate::Named(why) => self.refused.push((id, why)),
            Fate::Unknown(why) => {
                self.unknown.push(id);
                self.error.get_or_insert(why);
            }
            Fate::Left(why) => {
                self.left.push(id);
                if !why.is_empty() {
                    self.error.get_or_insert(why);
                }
            }
        }
    }

    /// Others were deleted, so what was refused is the blobs' doing.
    fn settle(&mut self) {
        if self.gone.len() > self.absent.len() {
            self.failed.append(&mut self.refused);
        }
    }

    /// Nothing is said of what it did, because it is not where the blobs are.
    pub fn doubt(&mut self, why: String) {
        let failed = self.failed.drain(..).map(|(id, _)| id);
        self.left.extend(self.gone.drain(..).chain(failed));
        self.absent.clear();
        self.error.get_or_insert(why);
    }
}

/// What became of the rows of a lease.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// By the store's number.
    pub of: Vec<Of>,
    /// Rows whose blob can have no name, and why.
    pub nameless: Vec<(u64, String)>,
    /// Rows for which there is no store: they go back.
    pub stray: Vec<u64>,
}

impl Outcome {
    /// Something of each store.
    pub fn all<'a, T: 'a>(&'a self, which: impl Fn(&'a Of) -> &'a Vec<T> + 'a) -> impl Iterator<Item = &'a T> {
        self.of.iter().flat_map(which)
    }

    /// Failures that count, by name or by store.
    pub fn failed(&self) -> impl Iterator<Item = &(u64, String)> {
        self.all(|of| &of.failed).chain(&self.nameless)
    }

    /// Rows that go back as they were.
    pub fn back(&self) -> impl Iterator<Item = u64> {
        let refused = self.all(|of| &of.refused).map(|(id, _)| *id);
        refused.chain(self.all(|of| &of.left).chain(&self.stray).copied())
    }
}

/// Stores that are not asked, by their number, and why; empty: it was said.
pub type Away = BTreeMap<usize, String>;

/// Does the requests.
pub struct Worker {
    runtime: Option<Runtime>,
    stores: Arc<Stores>,
    canister: Principal,
    parallel: usize,
}

impl Worker {
    /// One for a canister that has so many requests under way at a time.
    ///
    /// # Errors
    /// When there are no threads to be had.
    pub fn new(stores: Stores, canister: Principal, parallel: usize) -> std::io::Result<Self> {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
        Ok(Self { runtime: Some(runtime), stores: Arc::new(stores), canister, parallel })
    }

    /// The stores.
    pub fn stores(&self) -> &Stores {
        &self.stores
    }

    /// The canister.
    pub fn canister(&self) -> Principal {
        self.canister
    }

    /// Waits for something that a store is asked.
    pub fn wait_for<T>(&self, work: impl Future<Output = T>) -> T {
        self.runtime().block_on(work)
    }

    fn runtime(&self) -> &Runtime {
        self.runtime.as_ref().expect("it is there until it is dropped")
    }

    /// Deletes the blobs of rows except for those in stores that are away, and calls `meanwhile` again and again until it is done.
    pub fn delete(
        &self,
        rows: &[Row],
        away: &Away,
        term: &Arc<Term>,
        stop: &Stop,
        mut meanwhile: impl FnMut(),
    ) -> Outcome {
        let all = self.stores.all();
        let mut outcome = Outcome { of: vec![Of::default(); all.len()], ..Outcome::default() };
        let mut targets: Vec<Vec<Target>> = vec![Vec::new(); all.len()];
        for row in rows {
            match self.stores.find(row) {
                Ok((store, target)) => match away.get(&store) {
                    Some(why) => outcome.of[store].add(target.id, Fate::Left(why.clone())),
                    None => targets[store].push(target),
                },
                Err(Nowhere::NoStore) => outcome.stray.push(row.id),
                Err(Nowhere::NoName(why)) => outcome.nameless.push((row.id, why)),
            }
        }
        let answers = self.begin(targets, term, stop);
        loop {
            match answers.recv_timeout(PULSE) {
                Ok((store, fates)) => fates.into_iter().for_each(|(id, fate)| outcome.of[store].add(id, fate)),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => break,
            }
            meanwhile();
        }
        outcome.of.iter_mut().for_each(Of::settle);
        outcome
    }

    /// Begins the requests; the answers come as they are there.
    fn begin(&self, targets: Vec<Vec<Target>>, term: &Arc<Term>, stop: &Stop) -> Receiver<Answer> {
        let (send, answers) = channel();
        let lease = Arc::new(Lease {
            stores: self.stores.clone(),
            canister: self.canister,
            term: term.clone(),
            stop: stop.clone(),
            states: targets.iter().map(|_| State::default()).collect(),
        });
        let chunks = |(store, targets): (usize, Vec<Target>)| {
            let chunk = self.stores.all()[store].chunk();
            targets.chunks(chunk).map(|targets| (store, targets.to_vec())).collect::<Vec<_>>()
        };
        let requests: Vec<(usize, Vec<Target>)> = targets.into_iter().enumerate().flat_map(chunks).collect();
        let parallel = self.parallel.max(1);
        self.runtime().spawn(async move {
            let begin = |(store, targets): (usize, Vec<Target>)| {
                let lease = lease.clone();
                let ids: Vec<u64> = targets.iter().map(|target| target.id).collect();
                // In a task of its own: what panics there is the request's failure, and no end.
                let task = tokio::spawn(async move { lease.ask(store, &targets).await });
                async move {
                    let fates = task.await.unwrap_or_else(|error| {
                        let why = format!("the store's answer cannot be read: {error}");
                        vec![Fate::Unknown(why); ids.len()]
                    });
                    (store, ids.into_iter().zip(fates).collect())
                }
            };
            let requests = futures_util::stream::iter(requests).map(begin);
            let mut answers = std::pin::pin!(requests.buffer_unordered(parallel));
            while let Some(answer) = answers.next().await {
                if send.send(answer).is_err() {
                    return;
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

/// A store's number, and what became of the rows of a request.
type Answer = (usize, Vec<(u64, Fate)>);

/// What the requests of a lease share.
struct Lease {
    stores: Arc<Stores>,
    canister: Principal,
    term: Arc<Term>,
    stop: Stop,
    states: Vec<State>,
}

/// How a store does in this lease.
#[derive(Default)]
struct State {
    /// No more is begun.
    failed: AtomicBool,
    /// Why not.
    first: RwLock<Option<String>>,
}

impl Lease {
    /// One request: what became of each blob.
    async fn ask(&self, store: usize, targets: &[Target]) -> Vec<Fate> {
        let all_left = |why: &str| vec![Fate::Left(why.into()); targets.len()];
        let state = &self.states[store];
        if state.failed.load(Ordering::Relaxed) {
            return all_left(state.first.read().unwrap_or_else(PoisonError::into_inner).as_deref().unwrap_or_default());
        }
        if self.stop.is_set() {
            return all_left("");
        }
        let most = self.term.most();
        if self.term.left() < most {
            return all_left("the lease ends before the store would have answered");
        }
        let of = &self.stores.all()[store];
        let mut fates = match tokio::time::timeout(most, of.delete(targets)).await {
            Ok(fates) => fates,
            Err(_) => {
                let why = format!("it does not answer within {:.1} s, a quarter of the lease", most.as_secs_f64());
                vec![Fate::Unknown(why); targets.len()]
            }
        };
        // A disk that was unmounted refuses what was never there.
        if fates.iter().any(|fate| matches!(fate, Fate::Named(_)))
            && let Err(why) = self.is_right(store, most).await
        {
            for fate in fates.iter_mut().filter(|fate| matches!(fate, Fate::Named(_))) {
                *fate = Fate::Left(why.clone());
            }
        }
        let error = fates.iter().find_map(|fate| match fate {
            Fate::Left(why) | Fate::Unknown(why) => Some(why.clone()),
            _ => None,
        });
        if let Some(why) = error {
            state.first.write().unwrap_or_else(PoisonError::into_inner).get_or_insert(why);
            state.failed.store(true, Ordering::Relaxed);
        }
        fates
    }

    /// Whether a store's marker is right.
    async fn is_right(&self, store: usize, most: Duration) -> Result<(), String> {
        let store = &self.stores.all()[store];
        match tokio::time::timeout(most, store.marker()).await {
            Ok(Ok(found)) => marker::check(store, self.canister, found.as_ref()).map_err(|why| why.0),
            Ok(Err(error)) => Err(format!("{error:#}")),
            Err(_) => Err("its marker does not come".into()),
        }
    }
}
