//! Calls of the canister, tried again where it cannot be reached.

use super::{Given, REFUSED, UNTOLD};
use crate::blob_worker::lease::{Moment, Term};
use crate::blob_worker::log::{Level, Log};
use crate::blob_worker::queue::{Answer, Queue};
use crate::blob_worker::times::{CALL, CALL_LEAST, FIRST_WAIT, PARTING};
use crate::client::Trials;
use crate::exit::Exit;
use crate::stop::Stop;
use anyhow::Result;
use backon::{BackoffBuilder, ExponentialBackoff, ExponentialBuilder};
use coppice_interface::{AcquireBlobDeletions, BlobDeletionError};
use serde_bytes::ByteBuf;
use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// How long a worker waits for the canister.
#[derive(Clone, Copy, Debug)]
pub struct Patience {
    /// Where it is to end: to say what it did, or to have the answer that it waits for.
    pub parting: Duration,
    /// In one call at most; then the canister is asked again.
    pub call: Duration,
    /// In one call at least, however little is left of a lease.
    pub call_least: Duration,
}

impl Default for Patience {
    fn default() -> Self {
        Self { parting: PARTING, call: CALL, call_least: CALL_LEAST }
    }
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

/// Every error that is not the network's is permanent.
pub fn refused(what: &str, error: anyhow::Error) -> anyhow::Error {
    Exit::error(
        REFUSED,
        format!("{what}: the canister refuses: {error:#}; a worker's identity needs the role BlobWorker"),
    )
}

/// Calls of the canister.
pub(super) struct Calls<'a, Q> {
    pub queue: &'a Q,
    pub stop: &'a Stop,
    pub log: &'a Log,
    pub patience: Patience,
    pub max_wait: Duration,
    /// Names this process among all that call with its identity.
    pub nonce: [u8; 16],
    /// Requests for leases so far.
    pub requests: AtomicU64,
    pub retries: AtomicU64,
}

/// Why there was no good answer, and what the queue answered, if anything.
type Why = (String, Option<BlobDeletionError>);

impl<Q: Queue> Calls<'_, Q> {
    /// Calls once: the answer, or why there is to be another attempt.
    pub fn attempt<T>(
        &self,
        what: &str,
        trials: &mut Trials,
        call: impl FnOnce(&Q) -> Answer<T>,
    ) -> Result<Result<T, Why>> {
        match call(self.queue) {
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
        self.stop.set_at().is_some_and(|at| at.max(began).elapsed() > self.patience.parting)
    }

    /// Bounds the next call of something that was begun at a moment: by a time and, where the worker is to end, by what it has for that, in
    /// which there is another attempt.
    pub fn limit(&self, began: Instant, most: Duration) {
        let (parting, stop, called) = (self.patience.parting, self.stop.clone(), Instant::now());
        self.queue.limit(Arc::new(move || {
            let ends = |since: Instant, most| stop.set_at().is_some_and(|at| at.max(since).elapsed() >= most);
            called.elapsed() >= most || ends(called, parting / 3) || ends(began, parting)
        }));
    }

    /// The longest that the canister is waited for where so much is left of a lease: it may have to be asked again.
    pub fn most_of(&self, term: &Term) -> Duration {
        (term.left() / 4).clamp(self.patience.call_least, self.patience.call)
    }

    /// Waits before something is tried again.
    pub fn again(&self, what: &str, why: &str, delays: &mut impl Iterator<Item = Duration>) {
        let delay = delays.next().unwrap_or(self.max_wait);
        self.retries.fetch_add(1, Ordering::Relaxed);
        self.log.note(Level::Warn, "canister", &format!("{what}: {why}; trying again in {:.1} s", delay.as_secs_f64()));
        if self.stop.is_set() {
            // It does not wait any more, and yet does not hurry.
            std::thread::sleep(delay.min(Duration::from_secs(1)));
        } else {
            self.stop.wait(delay);
        }
    }

    /// Asks the queue, on one replica's word first and, where that refuses or says nothing that can be read, on the canister's; none where
    /// the worker is to end.
    pub fn look<R>(&self, what: &str, ask: impl Fn(&Q, bool) -> Result<R>) -> Result<Option<R>> {
        let (mut delays, mut trials, doubts) = (waits(self.max_wait), Trials::default(), Cell::new(false));
        loop {
            let (stop, called, most) = (self.stop.clone(), Instant::now(), self.patience.call);
            self.queue.limit(Arc::new(move || stop.is_set() || called.elapsed() >= most));
            match ask(self.queue, doubts.replace(true)) {
                Ok(answer) => return Ok(Some(answer)),
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
        let named = || {
            let number = self.requests.fetch_add(1, Ordering::Relaxed).to_le_bytes();
            AcquireBlobDeletions { request: Some(ByteBuf::from([&self.nonce[..], &number].concat())), ..ask.clone() }
        };
        let (mut ask, mut asked) = (named(), Moment::now());
        let mut delays = waits(self.max_wait);
        // An answer was lost, so there may be a lease: the same request gets it again, and only who has it can give it back.
        let mut lost = false;
        let (began, mut trials) = (Instant::now(), Trials::default());
        loop {
            if self.stop.is_set() && !lost {
                return Ok(Given::Stopped);
            }
            self.limit(began, self.patience.call);
            let (why, answer) = match self.attempt("leasing", &mut trials, |queue| queue.acquire(&ask))? {
                Ok(lease) => return Ok(lease.map_or(Given::Nothing, |lease| Given::Lease(lease, asked))),
                Err(why) => why,
            };
            lost = answer.is_none();
            // The lease whose answer was lost is over.
            if matches!(answer, Some(BlobDeletionError::Expired | BlobDeletionError::Completed)) {
                (ask, asked) = (named(), Moment::now());
            }
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
