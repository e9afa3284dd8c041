//! Calls of the canister, tried again where it cannot be reached.

use crate::blob_worker::lease::{Moment, Term};
use crate::blob_worker::log::Log;
use crate::blob_worker::times::{CALL_LEAST, PARTING};
use crate::client::{self, Client, Reach, Transport, Trials, Wait as _};
use crate::exit::{Exit, REFUSED, UNTOLD};
use crate::stop::Stop;
use anyhow::{Result, anyhow};
use backon::BackoffBuilder as _;
use coppice_interface::*;
use serde_bytes::ByteBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Waits that double up to the longest, each a little longer than that by chance, so that workers do not come all at once.
pub fn waits(longest: Duration) -> impl Iterator<Item = Duration> {
    client::waits(longest).with_jitter().build().map(move |wait| wait.min(longest * 2))
}

/// Every error that is not the network's is permanent.
pub fn refused(what: &str, error: anyhow::Error) -> anyhow::Error {
    Exit::error(
        REFUSED,
        format!("{what}: the canister refuses: {error:#}; a worker's identity needs the role BlobWorker"),
    )
}

/// An answer of the queue to a request for work.
pub(super) enum Given {
    /// Rows, asked for at a moment.
    Lease(BlobDeletionLease, Moment),
    /// Nothing is due.
    Nothing,
    /// The worker is to end.
    Stopped,
}

/// Calls of the canister.
pub(super) struct Calls<'a, T> {
    pub client: &'a Client<T>,
    pub stop: &'a Stop,
    pub log: &'a Log,
    /// The longest that one call takes; other times go with it.
    pub patience: Duration,
    pub max_wait: Duration,
    pub retries: AtomicU64,
}

/// The canister's answer, or the reason for a refusal.
pub(super) type Answer<R> = Result<Result<R, BlobDeletionError>>;

/// Why there was no good answer, and what the queue answered, if anything.
type Why = (String, Option<BlobDeletionError>);

/// The work at hand.
pub(super) struct Seen {
    /// The height up to which blobs may be deleted; none: the chain is within the safety window.
    pub height: Option<u32>,
    /// Rows that wait, are leased, or back off.
    pub rows: u64,
    /// The first of those that were asked for and are due; none is while deletions are stopped.
    pub due: Vec<BlobDeletion>,
}

fn seen<T: Transport>(client: &Client<T>, window: u32, selectors: &[BlobSelector], limit: u32) -> Result<Seen> {
    let status = client.get_blob_deletion_status().wait()?;
    // One replica's figures may be any.
    let rows = status.stores.iter().flat_map(|store| [store.waiting, store.leased, store.backing_off]);
    let rows = rows.fold(0, u64::saturating_add);
    let height = due(&client.get_pruner_status().wait()?, window);
    let pending = |height| client.get_pending_blob_deletions(height, limit, Some(selectors.to_vec())).wait();
    let due = height.map_or(Ok(Vec::new()), pending)?;
    Ok(Seen { height, rows, due })
}

/// Up to which height the canister leases rows: so many blocks below where the chain is, or its persister, if one runs.
fn due(status: &UtxoPrunerStatus, window: u32) -> Option<u32> {
    let persisted = status.last_persisted_height.filter(|height| *height > 0).unwrap_or(u32::MAX);
    status.current_height.min(persisted).checked_sub(window).filter(|height| *height > 0)
}

impl<T: Reach + Sync> Calls<'_, T> {
    /// Calls once: the answer, or why there is to be another attempt.
    pub fn attempt<R>(
        &self,
        what: &str,
        trials: &mut Trials,
        call: impl FnOnce(&Client<T>) -> Answer<R>,
    ) -> Result<Result<R, Why>> {
        match call(self.client) {
            Ok(Ok(answer)) => Ok(Ok(answer)),
            Ok(Err(why)) => {
                trials.answered();
                Ok(Err((format!("the queue answers {why:?}"), Some(why))))
            }
            Err(error) if trials.go_on(&error) => Ok(Err((format!("{error:#}"), None))),
            Err(error) => Err(refused(what, error)),
        }
    }

    /// Returns whether the worker was asked to end, and has tried long enough since then what it began at this moment.
    pub fn has_parted(&self, began: Instant) -> bool {
        self.stop.set_at().is_some_and(|at| at.max(began).elapsed() > PARTING.of(self.patience))
    }

    /// Bounds the next call of something that was begun at a moment: by a time and, where the worker is to end, by what it has for that, in
    /// which there is another attempt.
    pub fn limit(&self, began: Instant, most: Duration) {
        let (parting, stop, called) = (PARTING.of(self.patience), self.stop.clone(), Instant::now());
        self.client.transport().limit(Arc::new(move || {
            let ends = |since: Instant, most| stop.set_at().is_some_and(|at| at.max(since).elapsed() >= most);
            called.elapsed() >= most || ends(called, parting / 3) || ends(began, parting)
        }));
    }

    /// The longest that the canister is waited for where so much is left of a lease: it may have to be asked again.
    pub fn most_of(&self, term: &Term) -> Duration {
        (term.left() / 4).clamp(CALL_LEAST.of(self.patience), self.patience)
    }

    /// Waits before something is tried again.
    pub fn again(&self, what: &str, why: &str, delays: &mut impl Iterator<Item = Duration>) {
        let delay = delays.next().unwrap_or(self.max_wait);
        self.retries.fetch_add(1, Ordering::Relaxed);
        self.log.warn("canister", &format!("{what}: {why}; trying again in {:.1} s", delay.as_secs_f64()));
        if self.stop.is_set() {
            // It does not wait any more, and yet does not hurry.
            std::thread::sleep(delay.min(Duration::from_secs(1)));
        } else {
            self.stop.wait(delay);
        }
    }

    /// Asks the queue, on one replica's word first and, where that refuses or says nothing that can be read, on the canister's; none where
    /// the worker is to end.
    pub fn look(&self, window: u32, selectors: &[BlobSelector], limit: u32) -> Result<Option<Seen>> {
        let what = "looking at the queue";
        let (mut delays, mut trials, mut doubts) = (waits(self.max_wait), Trials::default(), false);
        loop {
            let (stop, called, most) = (self.stop.clone(), Instant::now(), self.patience);
            self.client.transport().limit(Arc::new(move || stop.is_set() || called.elapsed() >= most));
            let seen = match std::mem::replace(&mut doubts, true) {
                false => seen(self.client, window, selectors, limit),
                true => seen(&self.client.replicated(), window, selectors, limit),
            };
            match seen {
                Ok(seen) => return Ok(Some(seen)),
                Err(error) if !trials.go_on(&error) => return Err(refused(what, error)),
                Err(_) if self.stop.is_set() => return Ok(None),
                Err(error) => self.again(what, &format!("{error:#}"), &mut delays),
            }
        }
    }

    /// A lease, by a request of its own.
    ///
    /// # Errors
    /// [`Exit`] with [`REFUSED`], or [`UNTOLD`] where there may be a lease and the worker is to end.
    pub fn acquire(&self, ask: &AcquireBlobDeletions) -> Result<Given> {
        let (mut request, mut asked, mut lost) = ([0; 16], Moment::now(), false);
        let (began, mut delays, mut trials) = (Instant::now(), waits(self.max_wait), Trials::default());
        loop {
            // Where an answer was lost there may be a lease: the same request gets it again, and only who has it can give it back.
            if !lost {
                if self.stop.is_set() {
                    return Ok(Given::Stopped);
                }
                getrandom::fill(&mut request).map_err(|error| anyhow!("no random bytes: {error}"))?;
                asked = Moment::now();
            }
            self.limit(began, self.patience);
            let ask = AcquireBlobDeletions { request: Some(ByteBuf::from(request)), ..ask.clone() };
            let acquire = |client: &Client<T>| client.acquire_blob_deletion_batch(&ask).wait();
            let (why, answer) = match self.attempt("leasing", &mut trials, acquire)? {
                Ok(lease) => return Ok(lease.map_or(Given::Nothing, |lease| Given::Lease(lease, asked))),
                Err(why) => why,
            };
            lost = answer.is_none();
            if lost && self.has_parted(began) {
                let why = format!(
                    "the canister does not say whether it has leased blobs, which then wait for the lease's end: {why}"
                );
                return Err(Exit::error(UNTOLD, why));
            }
            self.again("leasing", &why, &mut delays);
        }
    }
}
