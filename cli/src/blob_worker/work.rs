//! The blobs of a lease, deleted: requests side by side, none of which outlives the lease, while the caller has time to extend it.
//!
//! A request is begun only where what is left of the lease is more than it may take, and is cut off then. After an error of a store no
//! more is begun there: what is left of the lease goes back.

use super::lease::Term;
use super::store::{Fate, Nowhere, Stores, Target};
use crate::blob_worker::queue::Row;
use crate::stop::Stop;
use futures_util::StreamExt as _;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;
use tokio::runtime::Runtime;

/// How often at least the caller is asked what else there is to do.
const PULSE: Duration = Duration::from_millis(200);

/// What became of the rows of a lease.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// Rows whose blob is gone.
    pub gone: Vec<u64>,
    /// Of them, those of which the store says that it was not there.
    pub absent: u64,
    /// Rows whose blob cannot be deleted, and why.
    pub failed: Vec<(u64, String)>,
    /// Rows of blobs for which there is no store.
    pub no_store: Vec<u64>,
    /// Rows of which nothing is known: they go back as they were.
    pub left: u64,
    /// Stores, by their number, and what is wrong with them.
    pub errors: Vec<(usize, String)>,
}

/// Does the requests.
pub struct Worker {
    runtime: Option<Runtime>,
    stores: Arc<Stores>,
    parallel: usize,
}

impl Worker {
    /// One that has so many requests under way at a time.
    ///
    /// # Errors
    /// When there are no threads to be had.
    pub fn new(stores: Stores, parallel: usize) -> std::io::Result<Self> {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
        Ok(Self { runtime: Some(runtime), stores: Arc::new(stores), parallel })
    }

    /// The stores.
    pub fn stores(&self) -> &Stores {
        &self.stores
    }

    /// Waits for something that a store is asked.
    pub fn wait_for<T>(&self, work: impl Future<Output = T>) -> T {
        self.runtime().block_on(work)
    }

    fn runtime(&self) -> &Runtime {
        self.runtime.as_ref().expect("it is there until it is dropped")
    }

    /// Deletes the blobs of rows, and calls `meanwhile` again and again until it is done.
    pub fn delete(&self, rows: &[Row], term: &Arc<Term>, stop: &Stop, mut meanwhile: impl FnMut()) -> Outcome {
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
        let answers = self.begin(of, term, stop);
        loop {
            match answers.recv_timeout(PULSE) {
                Ok((store, targets, fates)) => tallies[store].add(&targets, fates),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => break,
            }
            meanwhile();
        }
        for (store, tally) in tallies.into_iter().enumerate() {
            tally.into_outcome(store, &mut outcome);
        }
        outcome
    }

    /// Begins the requests; the answers come as they are there.
    fn begin(&self, of: Vec<Vec<Target>>, term: &Arc<Term>, stop: &Stop) -> Receiver<(usize, Vec<Target>, Vec<Fate>)> {
        let (send, answers) = channel();
        let errors: Arc<Vec<Errors>> = Arc::new(of.iter().map(|_| Errors::default()).collect());
        let chunks = of.into_iter().enumerate().flat_map(|(store, targets)| {
            let chunk = self.stores.all()[store].chunk();
            targets.chunks(chunk).map(|chunk| (store, chunk.to_vec())).collect::<Vec<_>>()
        });
        let (stores, term, stop, parallel) = (self.stores.clone(), term.clone(), stop.clone(), self.parallel);
        let requests: Vec<_> = chunks.collect();
        self.runtime().spawn(async move {
            let requests = futures_util::stream::iter(requests).map(|(store, targets)| {
                let (stores, term, stop, errors) = (stores.clone(), term.clone(), stop.clone(), errors.clone());
                // In a task of its own: what panics there is the request's failure, and no end.
                let asked = targets.clone();
                let task =
                    tokio::spawn(async move { request(&stores, store, &asked, &term, &stop, &errors[store]).await });
                async move {
                    let fates = match task.await {
                        Ok(fates) => fates,
                        Err(error) => {
                            vec![Fate::Left(format!("the store's answer cannot be read: {error}")); targets.len()]
                        }
                    };
                    (store, targets, fates)
                }
            });
            let mut answers = std::pin::pin!(requests.buffer_unordered(parallel.max(1)));
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

/// The first error of a store.
#[derive(Default)]
struct Errors {
    any: AtomicBool,
    first: RwLock<Option<String>>,
}

/// One request: what became of each blob.
async fn request(
    stores: &Stores,
    store: usize,
    targets: &[Target],
    term: &Term,
    stop: &Stop,
    errors: &Errors,
) -> Vec<Fate> {
    let all_left = |why: &str| vec![Fate::Left(why.into()); targets.len()];
    if errors.any.load(Ordering::Relaxed) {
        let first = errors.first.read().unwrap_or_else(PoisonError::into_inner).clone();
        return all_left(&first.unwrap_or_default());
    }
    if stop.is_set() {
        return all_left("");
    }
    let most = term.most();
    if term.left() < most {
        return all_left("the lease ends before the store would have answered");
    }
    let fates = match tokio::time::timeout(most, stores.all()[store].delete(targets)).await {
        Ok(fates) => fates,
        Err(_) => all_left(&format!("it does not answer within {:.1} s, a quarter of the lease", most.as_secs_f64())),
    };
    if let Some(Fate::Left(why)) = fates.iter().find(|fate| matches!(fate, Fate::Left(_))) {
        errors.first.write().unwrap_or_else(PoisonError::into_inner).get_or_insert_with(|| why.clone());
        errors.any.store(true, Ordering::Relaxed);
    }
    fates
}

/// What became of the blobs of one store.
#[derive(Default)]
struct Tally {
    gone: Vec<u64>,
    absent: u64,
    failed: Vec<(u64, String)>,
    refused: Vec<(u64, String)>,
    left: u64,
    error: Option<String>,
}

impl Tally {
    fn add(&mut self, targets: &[Target], fates: Vec<Fate>) {
        for (target, fate) in targets.iter().zip(fates) {
            match fate {
                Fate::Gone => self.gone.push(target.id),
                Fate::Absent => {
                    self.absent += 1;
                    self.gone.push(target.id);
                }
                Fate::Failed(why) => self.failed.push((target.id, why)),
                Fate::Refused(why) => self.refused.push((target.id, why)),
                Fate::Left(why) => {
                    self.left += 1;
                    if !why.is_empty() {
                        self.error.get_or_insert(why);
                    }
                }
            }
        }
    }

    /// A store that allows something refuses a blob; one that allows nothing refuses the worker, and no blob is to blame.
    fn into_outcome(self, store: usize, outcome: &mut Outcome) {
        let Self { gone, absent, failed, mut refused, left, mut error } = self;
        outcome.left += left;
        if gone.len() as u64 == absent && !refused.is_empty() {
            outcome.left += refused.len() as u64;
            let (_, why) = refused.swap_remove(0);
            refused.clear();
            error.get_or_insert(why);
        }
        outcome.absent += absent;
        outcome.gone.extend(gone);
        outcome.failed.extend(failed);
        outcome.failed.extend(refused);
        outcome.errors.extend(error.map(|error| (store, error)));
    }
}
