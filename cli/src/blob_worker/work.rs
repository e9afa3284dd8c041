//! The blobs of a lease, deleted: requests side by side, none of which outlives the lease, while the caller has time to extend it.
//!
//! A request is begun only where what is left of the lease is more than it may take, and is cut off then. After an error of a store no
//! more is begun there: what is left of the lease goes back.

use super::lease::Term;
use super::marker;
use super::store::{Fate, Nowhere, Stores, Target};
use crate::stop::Stop;
use candid::Principal;
use coppice_interface::BlobDeletion;
use futures_util::StreamExt as _;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use tokio::runtime::Runtime;

/// How often at least the caller is asked what else there is to do.
const PULSE: Duration = Duration::from_millis(200);

/// What became of the rows of a lease.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// The store's number, the row's, and what became of its blob; of no store where it can have no name, or there is none for it.
    pub rows: Vec<(Option<usize>, u64, Fate)>,
}

impl Outcome {
    /// The numbers of the rows that fared so.
    pub fn ids(&self, is_so: impl Fn(&Fate) -> bool) -> Vec<u64> {
        self.rows.iter().filter(|(_, _, fate)| is_so(fate)).map(|(_, id, _)| *id).collect()
    }

    /// The fates of a store's blobs.
    pub fn of(&self, store: usize) -> impl Iterator<Item = &Fate> {
        self.rows.iter().filter(move |(of, ..)| *of == Some(store)).map(|(_, _, fate)| fate)
    }

    /// Why a store does not do what it is asked for, if it does not.
    pub fn error(&self, store: usize) -> Option<&str> {
        self.of(store).filter_map(Fate::error).find(|why| !why.is_empty())
    }

    /// Changes what is said of some blobs of a store.
    pub fn change(&mut self, store: usize, change: impl Fn(&mut Fate)) {
        self.rows.iter_mut().filter(|(of, ..)| *of == Some(store)).for_each(|(_, _, fate)| change(fate));
    }

    /// Where others of its store were deleted, that a blob was refused is its own doing.
    fn settle(&mut self, store: usize) {
        if self.of(store).any(|fate| *fate == Fate::Gone) {
            self.change(store, |fate| {
                if let Fate::Named(why) = fate {
                    *fate = Fate::Failed(std::mem::take(why));
                }
            });
        }
    }

    /// Nothing is said of what a store did, because it is not where the blobs are.
    pub fn doubt(&mut self, store: usize, why: &str) {
        self.change(store, |fate| {
            if fate.is_gone() || matches!(fate, Fate::Failed(_)) {
                *fate = Fate::Left(why.into());
            }
        });
    }
}

/// Does the requests.
pub struct Worker {
    runtime: Option<Runtime>,
    /// The stores.
    pub stores: Arc<Stores>,
    /// The canister.
    pub canister: Principal,
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

    /// Waits for something that a store is asked.
    pub fn wait_for<T>(&self, work: impl Future<Output = T>) -> T {
        self.runtime().block_on(work)
    }

    fn runtime(&self) -> &Runtime {
        self.runtime.as_ref().expect("it is there until it is dropped")
    }

    /// Deletes the blobs of rows except for those in stores that are `away`, with the reason or, where that was said, nothing; and calls
    /// `meanwhile` again and again until it is done.
    pub fn delete(
        &self,
        rows: &[BlobDeletion],
        away: &[Option<String>],
        term: &Arc<Term>,
        stop: &Stop,
        mut meanwhile: impl FnMut(),
    ) -> Outcome {
        let mut outcome = Outcome::default();
        let mut targets: Vec<Vec<Target>> = vec![Vec::new(); away.len()];
        for row in rows {
            let fate = match self.stores.find(row) {
                Ok((store, target)) => match &away[store] {
                    Some(why) => (Some(store), row.id, Fate::Left(why.clone())),
                    None => {
                        targets[store].push(target);
                        continue;
                    }
                },
                Err(Nowhere::NoStore) => (None, row.id, Fate::Left(String::new())),
                Err(Nowhere::NoName(why)) => (None, row.id, Fate::Failed(why)),
            };
            outcome.rows.push(fate);
        }
        let answers = self.begin(targets, term, stop);
        loop {
            match answers.recv_timeout(PULSE) {
                Ok(fates) => outcome.rows.extend(fates),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => break,
            }
            meanwhile();
        }
        (0..away.len()).for_each(|store| outcome.settle(store));
        outcome
    }

    /// Begins the requests; the answers come as they are there.
    fn begin(
        &self,
        targets: Vec<Vec<Target>>,
        term: &Arc<Term>,
        stop: &Stop,
    ) -> Receiver<Vec<(Option<usize>, u64, Fate)>> {
        let (send, answers) = channel();
        let lease = Arc::new(Lease {
            stores: self.stores.clone(),
            canister: self.canister,
            term: term.clone(),
            stop: stop.clone(),
            failed: targets.iter().map(|_| OnceLock::new()).collect(),
        });
        let chunks = |(store, targets): (usize, Vec<Target>)| {
            let chunk = self.stores.all()[store].chunk;
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
                    ids.into_iter().zip(fates).map(|(id, fate)| (Some(store), id, fate)).collect()
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

/// The parts that the requests of a lease share.
struct Lease {
    stores: Arc<Stores>,
    canister: Principal,
    term: Arc<Term>,
    stop: Stop,
    /// By the store's number: why no more is begun there.
    failed: Vec<OnceLock<String>>,
}

impl Lease {
    /// One request: what became of each blob.
    async fn ask(&self, store: usize, targets: &[Target]) -> Vec<Fate> {
        let all_left = |why: &str| vec![Fate::Left(why.into()); targets.len()];
        if let Some(why) = self.failed[store].get() {
            return all_left(why);
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
        if let Some(why) = fates.iter().find_map(Fate::error) {
            self.failed[store].get_or_init(|| why.into());
        }
        fates
    }

    /// Returns whether a store's marker is right.
    async fn is_right(&self, store: usize, most: Duration) -> Result<(), String> {
        let store = &self.stores.all()[store];
        match tokio::time::timeout(most, store.marker()).await {
            Ok(Ok(found)) => marker::check(store, self.canister, found.as_ref()),
            Ok(Err(error)) => Err(format!("{error:#}")),
            Err(_) => Err("its marker does not come".into()),
        }
    }
}
