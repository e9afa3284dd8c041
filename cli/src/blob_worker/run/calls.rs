//! The worker's calls of the canister, with retries while it cannot be reached.

use crate::blob_worker::lease::{Moment, Term};
use crate::blob_worker::log::Log;
use crate::blob_worker::times::{CALL_LEAST, PARTING};
use crate::client::{self, CanisterClient, Client, Transport, Trials, Wait as _};
use crate::exit::{Exit, REFUSED, UNREPORTED, why};
use crate::stop::Stop;
use anyhow::{Result, anyhow};
use backon::BackoffBuilder as _;
use ic_coppice_interface::*;
use serde_bytes::ByteBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Returns waits that double up to the longest, each with a random addition, so that workers do not all come back at once.
pub fn waits(longest: Duration) -> impl Iterator<Item = Duration> {
    client::waits(longest).with_jitter().build().map(move |wait| wait.min(longest * 2))
}

/// Returns the error for a refusal by the canister, which ends the worker.
pub fn refused(what: &str, error: anyhow::Error) -> anyhow::Error {
    Exit::error(
        REFUSED,
        format!("{what}: the canister refuses: {}; the worker's identity needs the role BlobWorker", why(&error)),
    )
}

/// The queue's answer to a request for a lease.
pub(super) enum Given {
    /// A lease, and the moment of the request.
    Lease(BlobDeletionLease, Moment),
    /// Nothing is due.
    Nothing,
    Stopped,
}

/// Calls of the canister.
pub(super) struct Calls<'a, T> {
    pub client: &'a Client<T>,
    pub stop: &'a Stop,
    pub log: &'a Log,
    /// The longest time for one call; other times are derived from it.
    pub patience: Duration,
    pub max_wait: Duration,
    pub retries: AtomicU64,
}

/// The canister's answer, or the reason for a refusal.
pub(super) type Answer<R> = Result<Result<R, BlobDeletionError>>;

/// The reason why there was no good answer, and the queue's error, if it answered.
type Why = (String, Option<BlobDeletionError>);

/// The state of the queue.
pub(super) struct Seen {
    /// The height up to which blobs may be deleted, or `None` if the chain is within the safety window.
    pub height: Option<u32>,
    /// Rows that wait, are leased, or back off.
    pub rows: u64,
    /// The first due rows of the selected stores; empty while deletions are stopped.
    pub due: Vec<BlobDeletion>,
}

fn seen<T: Transport>(client: &Client<T>, window: u32, selectors: &[BlobSelector], limit: u32) -> Result<Seen> {
    let status = client.get_blob_deletion_status().wait()?;
    // One replica may report any figures, so the sum must not overflow.
    let rows = status.stores.iter().flat_map(|store| [store.waiting, store.leased, store.backing_off]);
    let rows = rows.fold(0, u64::saturating_add);
    let height = due(&client.utxo_get_pruner_status().wait()?, window);
    let pending = |height| client.get_pending_blob_deletions(height, limit, Some(selectors.to_vec())).wait();
    let due = height.map_or(Ok(Vec::new()), pending)?;
    Ok(Seen { height, rows, due })
}

/// Returns the height up to which the canister leases rows: `window` blocks below the chain's height, or below the persister's if one runs.
fn due(status: &UtxoPrunerStatus, window: u32) -> Option<u32> {
    let persisted = status.last_persisted_height.filter(|height| *height > 0).unwrap_or(u32::MAX);
    status.current_height.min(persisted).checked_sub(window).filter(|height| *height > 0)
}

impl<T: CanisterClient> Calls<'_, T> {
    /// Makes one call. Returns the answer, or the reason for another attempt.
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
                Ok(Err((format!("the queue reports {why}"), Some(why))))
            }
            Err(error) if trials.may_retry(&error) => Ok(Err((why(&error), None))),
            Err(error) => Err(refused(what, error)),
        }
    }

    /// Returns whether the worker was stopped, and has since tried long enough to finish a step that started at `began`.
    pub fn has_parted(&self, began: Instant) -> bool {
        self.stop.set_at().is_some_and(|at| at.max(began).elapsed() > PARTING.of(self.patience))
    }

    /// Limits the next call of a step that started at `began`: to `most` and, once the worker is stopped, to a third of the parting time,
    /// so that another attempt fits into it.
    pub fn limit(&self, began: Instant, most: Duration) {
        let (parting, stop, called) = (PARTING.of(self.patience), self.stop.clone(), Instant::now());
        self.client.transport().limit(Arc::new(move || {
            let ends = |since: Instant, most| stop.set_at().is_some_and(|at| at.max(since).elapsed() >= most);
            called.elapsed() >= most || ends(called, parting / 3) || ends(began, parting)
        }));
    }

    /// Returns the longest time for a call during a lease: a quarter of the remaining time, within bounds, so that the call can be repeated.
    pub fn most_of(&self, term: &Term) -> Duration {
        (term.left() / 4).clamp(CALL_LEAST.of(self.patience), self.patience)
    }

    /// Waits before the next attempt.
    pub fn again(&self, what: &str, why: &str, delays: &mut impl Iterator<Item = Duration>) {
        let delay = delays.next().unwrap_or(self.max_wait);
        self.retries.fetch_add(1, Ordering::Relaxed);
        self.log.warn("canister", &format!("{what}: {why}; trying again in {:.1} s", delay.as_secs_f64()));
        if self.stop.is_set() {
            // After a stop it waits at most a second between attempts.
            std::thread::sleep(delay.min(Duration::from_secs(1)));
        } else {
            self.stop.wait(delay);
        }
    }

    /// Reads the state of the queue: by query first and, after an error, by update calls. Returns `None` if the worker is stopped.
    pub fn look(&self, window: u32, selectors: &[BlobSelector], limit: u32) -> Result<Option<Seen>> {
        let what = "looking at the queue";
        let (mut delays, mut trials, mut by_update) = (waits(self.max_wait), Trials::default(), false);
        loop {
            let (stop, called, most) = (self.stop.clone(), Instant::now(), self.patience);
            self.client.transport().limit(Arc::new(move || stop.is_set() || called.elapsed() >= most));
            let seen = match std::mem::replace(&mut by_update, true) {
                false => seen(self.client, window, selectors, limit),
                true => seen(&self.client.replicated(), window, selectors, limit),
            };
            match seen {
                Ok(seen) => return Ok(Some(seen)),
                Err(error) if !trials.may_retry(&error) => return Err(refused(what, error)),
                Err(_) if self.stop.is_set() => return Ok(None),
                Err(error) => self.again(what, &why(&error), &mut delays),
            }
        }
    }

    /// Asks for a lease, with a new request id.
    ///
    /// # Errors
    /// [`Exit`] with [`REFUSED`], or with [`UNREPORTED`] if the worker is stopped while there may be a lease.
    pub fn acquire(&self, ask: &AcquireBlobDeletions) -> Result<Given> {
        let (mut request, mut asked, mut lost) = ([0; 16], Moment::now(), false);
        let (began, mut delays, mut trials) = (Instant::now(), waits(self.max_wait), Trials::default());
        loop {
            // After a lost answer there may be a lease: the same request id returns that lease again, and only its holder can give it back.
            if !lost {
                if self.stop.is_set() {
                    return Ok(Given::Stopped);
                }
                getrandom::fill(&mut request).map_err(|error| anyhow!("cannot get random bytes: {error}"))?;
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
                    "the canister does not answer whether it has leased blobs; leased blobs wait until the lease ends: {why}"
                );
                return Err(Exit::error(UNREPORTED, why));
            }
            self.again("leasing", &why, &mut delays);
        }
    }
}
