//! Deletes the blobs of a lease in parallel requests, while the caller can extend the lease.
//!
//! A request starts only if the canister's answer that the lease is live is fresh ([`Term::may_begin`]), and if the lease lasts longer than
//! the request may take; it is cut off after that time. A request for many blobs uses the answer up. After an error of a store no
//! further request to it starts, and its remaining rows are put back.

use super::lease::Term;
use super::marker;
use super::store::{Fate, Target};
use super::stores::Stores;
use crate::stop::Stop;
use anyhow::anyhow;
use candid::Principal;
use ic_coppice_interface::BlobDeletion;
use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use tokio::runtime::Runtime;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

/// The longest time between two calls of `meanwhile`.
const PULSE: Duration = Duration::from_millis(50);
/// The time between two looks of a request whether the canister's answer has come.
const LOOK: Duration = Duration::from_millis(5);

/// The fates of the rows of a lease.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// By row number: the number of the store, and the fate. The store is `None` if the blob has no store or no possible name.
    pub rows: BTreeMap<u64, (Option<usize>, Fate)>,
}

impl Outcome {
    /// Returns the numbers of the rows with such a fate.
    pub fn ids(&self, is_so: impl Fn(&Fate) -> bool) -> Vec<u64> {
        self.rows.iter().filter(|(_, (_, fate))| is_so(fate)).map(|(id, _)| *id).collect()
    }

    /// Returns the fates of a store's blobs.
    pub fn of(&self, store: usize) -> impl Iterator<Item = &Fate> {
        self.rows.values().filter(move |(of, _)| *of == Some(store)).map(|(_, fate)| fate)
    }

    /// Returns the first error of a store, if it failed for other reasons than the blob.
    pub fn error(&self, store: usize) -> Option<&str> {
        self.of(store).filter_map(Fate::error).find(|why| !why.is_empty())
    }

    /// Changes the fates of a store's blobs.
    fn change(&mut self, store: usize, change: impl Fn(&mut Fate)) {
        self.rows.values_mut().filter(|(of, _)| *of == Some(store)).for_each(|(_, fate)| change(fate));
    }

    /// Turns refusals of single blobs into failures if the store deleted another blob, because the store then works.
    fn settle(&mut self, store: usize) {
        if self.of(store).any(|fate| *fate == Fate::Gone) {
            self.change(store, |fate| {
                if let Fate::Named(why) = fate {
                    *fate = Fate::Failed(std::mem::take(why));
                }
            });
        }
    }

    /// Discards the answers of a store, because the store turned out not to be the place of the blobs.
    pub fn doubt(&mut self, store: usize, why: &str) {
        self.change(store, |fate| {
            if fate.is_definite() {
                *fate = Fate::Left(why.into());
            }
        });
    }
}

/// Sends the requests to the stores.
pub struct Worker {
    runtime: Option<Runtime>,
    pub stores: Arc<Stores>,
    pub canister: Principal,
    parallel: usize,
}

impl Worker {
    /// A worker for a canister, with this many parallel requests.
    ///
    /// # Errors
    /// When the threads cannot be started.
    pub fn new(stores: Stores, canister: Principal, parallel: usize) -> std::io::Result<Self> {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
        Ok(Self { runtime: Some(runtime), stores: Arc::new(stores), canister, parallel })
    }

    pub fn wait_for<T>(&self, work: impl Future<Output = T>) -> T {
        self.runtime().block_on(work)
    }

    fn runtime(&self) -> &Runtime {
        self.runtime.as_ref().expect("the runtime exists until the worker is dropped")
    }

    /// Deletes the blobs of rows, except in stores that are `away`: there the rows are left, with the reason, which is empty if it was
    /// reported already. Calls `meanwhile` repeatedly until all is done.
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
                    Some(why) => (Some(store), Fate::Left(why.clone())),
                    None => {
                        targets[store].push(target);
                        // A panic in a request leaves this fate, and does not end the worker.
                        (Some(store), Fate::Unknown("the store's answer cannot be read".into()))
                    }
                },
                Err(fate) => (None, fate),
            };
            outcome.rows.insert(row.id, fate);
        }
        let lease = Arc::new(Lease {
            stores: self.stores.clone(),
            canister: self.canister,
            term: term.clone(),
            stop: stop.clone(),
            failed: targets.iter().map(|_| OnceLock::new()).collect(),
        });
        let (mut requests, turns) = (JoinSet::new(), Arc::new(Semaphore::new(self.parallel)));
        for (store, targets) in targets.iter().enumerate() {
            for targets in targets.chunks(self.stores.0[store].chunk) {
                let (lease, turns, targets) = (lease.clone(), turns.clone(), targets.to_vec());
                let ask = async move {
                    let _turn = turns.acquire().await;
                    let fates = lease.ask(store, &targets).await.into_iter().map(|fate| (Some(store), fate));
                    targets.iter().map(|target| target.id).zip(fates).collect::<Vec<_>>()
                };
                requests.spawn_on(ask, self.runtime().handle());
            }
        }
        loop {
            match self.wait_for(async { timeout(PULSE, requests.join_next()).await }) {
                Ok(None) => break,
                Ok(Some(Ok(fates))) => outcome.rows.extend(fates),
                Ok(Some(Err(_))) | Err(_) => {}
            }
            meanwhile();
        }
        (0..away.len()).for_each(|store| outcome.settle(store));
        outcome
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        // A request to a file system that hangs cannot be ended, so `drop` does not wait for it.
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

/// The data that the requests of a lease share.
struct Lease {
    stores: Arc<Stores>,
    canister: Principal,
    term: Arc<Term>,
    stop: Stop,
    /// By store number: the reason why no further request starts there.
    failed: Vec<OnceLock<String>>,
}

impl Lease {
    /// Sends one request, and returns the fate of each blob.
    async fn ask(&self, store: usize, targets: &[Target]) -> Vec<Fate> {
        let all_left = |why: &str| vec![Fate::Left(why.into()); targets.len()];
        if let Some(why) = self.failed[store].get() {
            return all_left(why);
        }
        let most = self.term.most();
        loop {
            if self.stop.is_set() {
                return all_left("");
            }
            if self.term.left() < most {
                return all_left("the lease ends before the store would have answered");
            }
            if self.term.may_begin() {
                break;
            }
            sleep(LOOK).await;
        }
        let of = &self.stores.0[store];
        let mut fates = timeout(most, of.delete(targets)).await.unwrap_or_else(|_| {
            let why = format!("it does not answer within {:.1} s, a quarter of the lease", most.as_secs_f64());
            vec![Fate::Unknown(why); targets.len()]
        });
        if of.chunk > 1 {
            self.term.use_up();
        }
        // A disk that was unmounted refuses blobs that were never on the mount point.
        let is_named = |fate: &Fate| matches!(fate, Fate::Named(_));
        if fates.iter().any(is_named) {
            let look = timeout(most, marker::look(of, self.canister)).await;
            if let Err(why) = look.unwrap_or_else(|_| Err(anyhow!("its marker cannot be read in time"))) {
                let named = fates.iter_mut().filter(|fate| is_named(fate));
                named.for_each(|fate| *fate = Fate::Left(crate::exit::why(&why)));
            }
        }
        if let Some(why) = fates.iter().find_map(Fate::error) {
            self.failed[store].get_or_init(|| why.into());
        }
        fates
    }
}
