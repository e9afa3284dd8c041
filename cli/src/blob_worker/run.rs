//! Rounds of a worker: lease rows, delete their blobs, report to the canister.
//!
//! ```text
//! acquire ∥ markers ─▶ delete, asking ─▶ markers again ─▶ complete ─▶ next lease
//!                      └────────── acquire the next lease ──────────┘
//! ```
//! The worker retries whatever the network or a store fails to do, without end, after waits that double and are randomised. A refusal by
//! the canister ends the worker. A store that fails is held: the worker leases no rows of it for a while. The worker reports nothing about
//! a blob whose fate it does not know.
//!
//! The worker asks the canister before each bulk request, by extending its lease. Once the canister answers `Stopped`, the worker begins no
//! further request: it reports what it deleted, drops the lease that it asked for meanwhile, and waits.

mod calls;
mod complete;
mod dry;
mod markers;

pub use calls::{refused, waits};
pub use dry::{Looked, dry_run};

use super::figures::Figures;
use super::lease::{Moment, Term};
use super::log::Log;
use super::options::Options;
use super::place::Selector;
use super::store::{FAILED_REQUESTS, Fate};
use super::times::{CALL, FRESH, PAUSE};
use super::work::{Outcome, Worker};
use crate::client::{CanisterClient, Client};
use crate::stop::Stop;
use anyhow::Result;
use calls::{Calls, Given};
use ic_coppice_interface::{AcquireBlobDeletions, BlobDeletionLease, BlobSelector};
use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

/// A worker's knowledge of a store, and the time until which it leases no rows of that store.
#[derive(Default)]
struct Hold {
    until: Option<Moment>,
    waits: Option<Box<dyn Iterator<Item = Duration> + Send>>,
    /// The marker could not be read; it is read again before rows are leased.
    is_away: bool,
    /// Held until the worker ends, because the store refused every request.
    is_given_up: bool,
    /// The reason why the store's marker, or one above or below, was wrong.
    wrong: Option<String>,
}

/// A worker.
pub struct Run<'a, T> {
    calls: Calls<'a, T>,
    worker: Worker,
    options: Options,
    figures: RefCell<Figures>,
    holds: RefCell<Vec<Hold>>,
    /// Time of the canister's last answer to a request for a lease, or of the start.
    answered_at: Cell<Moment>,
    /// Time of the last look at all markers.
    looked_at: Cell<Option<Moment>>,
    /// Rows that count in [`Figures::undone`].
    undone: RefCell<BTreeSet<u64>>,
    /// The canister has answered that deletions are stopped.
    deletions_stopped: Cell<bool>,
}

impl<'a, T: CanisterClient> Run<'a, T> {
    /// A worker that has done nothing yet.
    pub fn new(client: &'a Client<T>, worker: Worker, options: Options, stop: &'a Stop, log: &'a Log) -> Self {
        Self {
            calls: Calls { client, stop, log, patience: CALL, max_wait: options.max_wait, retries: AtomicU64::new(0) },
            holds: RefCell::new(worker.stores.0.iter().map(|_| Hold::default()).collect()),
            answered_at: Cell::new(Moment::now()),
            looked_at: Cell::default(),
            worker,
            options,
            figures: RefCell::default(),
            undone: RefCell::default(),
            deletions_stopped: Cell::default(),
        }
    }

    /// Returns what the worker did so far.
    pub fn figures(&self) -> Figures {
        let failed_requests = FAILED_REQUESTS.load(Ordering::Relaxed);
        let retries = self.calls.retries.load(Ordering::Relaxed);
        Figures { failed_requests, retries, ..self.figures.borrow().clone() }
    }

    /// Works until it ends by its options, by the stop signal or by an error.
    ///
    /// # Errors
    /// [`Exit`](crate::exit::Exit) with [`WRONG_STORE`](crate::exit::WRONG_STORE), [`REFUSED`](crate::exit::REFUSED) or
    /// [`UNREPORTED`](crate::exit::UNREPORTED).
    pub fn run(&self) -> Result<()> {
        // Finds a wrong store before any blob is due.
        self.look_at_all()?;
        let mut next = None;
        while next.is_some() || !self.calls.stop.is_set() {
            let given = match next.take() {
                Some(given) => given,
                None => self.lease()?,
            };
            match given {
                Given::Stopped => break,
                Given::Nothing if !self.options.ends() => self.calls.stop.wait(self.options.poll),
                Given::Nothing => match self.next_hold().filter(|_| self.options.until_empty) {
                    Some(wait) => self.calls.stop.wait(wait),
                    None => break,
                },
                Given::Lease(lease, asked) => {
                    next = self.work_while_asking(&lease, asked)?;
                    // The stop has ended the next lease, too.
                    next = next.filter(|_| !self.deletions_stopped.take());
                    if self.options.once {
                        break;
                    }
                }
            }
            self.calls.log.progress(&self.figures());
        }
        Ok(())
    }

    /// Waits for stores that are not held, and returns their selectors, or `None` if the worker is stopped first or all stores are given
    /// up.
    fn free(&self) -> Result<Option<Vec<BlobSelector>>> {
        while !self.calls.stop.is_set() {
            self.release();
            // Checks stores that were away before rows of them are leased.
            self.look_at_markers(|hold| hold.is_away && !hold.is_held());
            self.all_right()?;
            let selectors = self.unheld();
            if !selectors.is_empty() {
                return Ok(Some(selectors));
            }
            let Some(wait) = self.next_hold() else { break };
            self.calls.stop.wait(wait);
        }
        Ok(None)
    }

    /// Asks for the next lease while it looks at the markers.
    fn lease(&self) -> Result<Given> {
        let Some(selectors) = self.free()? else { return Ok(Given::Stopped) };
        let Some(seen) = self.calls.look(self.options.safety_window, &selectors, 1)? else { return Ok(Given::Stopped) };
        self.figures.borrow_mut().height = seen.height.unwrap_or_default();
        self.figures.borrow_mut().waiting = seen.rows;
        // One replica answers a query. A worker that ends when nothing is due does not trust it: it asks for the lease, which is certified.
        let waited = self.answered_at.get().elapsed();
        let doubts = seen.due.is_empty() && !self.options.ends();
        if doubts && waited < self.options.ask {
            return Ok(Given::Nothing);
        }
        if doubts {
            let why = format!("queries report nothing due, for {:.0} s: asking by update call", waited.as_secs_f64());
            self.calls.log.note("asking", &why);
        }
        let given = self.ask_beside(selectors, || self.look_at_all())?;
        if let (true, Given::Lease(lease, _)) = (doubts, &given) {
            let many = lease.rows.len();
            let why = format!("{many} blobs are due, although queries report none: a replica is behind, or lies");
            self.calls.log.warn("queries", &why);
        }
        Ok(given)
    }

    /// Works through a lease and, if more may be due, asks for the next one meanwhile.
    fn work_while_asking(&self, lease: &BlobDeletionLease, asked: Moment) -> Result<Option<Given>> {
        let is_full = lease.rows.len() >= self.options.batch as usize;
        let selectors = if is_full && !self.options.once { self.unheld() } else { Vec::new() };
        if selectors.is_empty() || self.calls.stop.is_set() {
            return self.work(lease, asked).map(|()| None);
        }
        self.ask_beside(selectors, || self.work(lease, asked)).map(Some)
    }

    /// Asks for a lease while `does` runs, and gives the lease back if `does` fails.
    fn ask_beside(&self, selectors: Vec<BlobSelector>, does: impl FnOnce() -> Result<()>) -> Result<Given> {
        let calls = &self.calls;
        let ask = AcquireBlobDeletions {
            limit: self.options.batch,
            lock_timeout_secs: self.options.lease.as_secs(),
            selectors: Some(selectors),
            safety_window: Some(self.options.safety_window),
            ..Default::default()
        };
        let (done, given) = thread::scope(|scope| {
            let given = scope.spawn(|| calls.acquire(&ask));
            (does(), given.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
        });
        if let (Err(_), Ok(Given::Lease(lease, asked))) = (&done, &given) {
            self.give_back(lease, *asked)?;
        }
        let given = done.and(given)?;
        if !matches!(given, Given::Stopped) {
            self.answered_at.set(Moment::now());
        }
        Ok(given)
    }

    fn work(&self, lease: &BlobDeletionLease, asked: Moment) -> Result<()> {
        self.figures.borrow_mut().leases += 1;
        self.figures.borrow_mut().height = lease.height;
        let term = Arc::new(Term::new(self.options.lease, asked));
        let mut attempts = waits(self.options.max_wait.min(PAUSE.of(self.options.lease)));
        let mut next = Moment::now();
        let mut extend = || {
            let is_due = term.is_half_over() || term.is_wanted();
            if is_due && next.left().is_zero() && !self.extend(lease, &term) {
                next = Moment::now().after(attempts.next().unwrap_or_default());
            }
            self.calls.log.progress(&self.figures());
        };
        extend();
        // The mount at a store's path may have changed while the store was away.
        if self.looked_at.get().is_none_or(|at| at.elapsed() > FRESH.of(self.options.lease)) {
            self.look_at_markers(|_| true);
        }
        let away = |hold: &Hold| hold.wrong.clone().or(hold.is_held().then(String::new));
        let away: Vec<_> = self.holds.borrow().iter().map(away).collect();
        let mut outcome = self.worker.delete(&lease.rows, &away, &term, self.calls.stop, &mut extend);
        self.recheck(&mut outcome, &mut extend);
        self.log_failures(lease, &outcome);
        (0..away.len()).for_each(|store| self.hold_after(store, &outcome, &term));
        self.complete(lease, &outcome, &term)?;
        self.all_right()
    }

    /// Holds a store after a lease in which it did not do all that it was asked for.
    fn hold_after(&self, store: usize, outcome: &Outcome, term: &Term) {
        let hold = &mut self.holds.borrow_mut()[store];
        let has = |is_so: fn(&Fate) -> bool| outcome.of(store).any(is_so);
        let has_error = outcome.error(store).is_some();
        if has(|fate| matches!(fate, Fate::Unknown(_))) {
            // Requests that are still running at the store end before the rows are handed out again.
            hold.until = Some(Moment::now().after(term.left()));
        } else if has_error || has(|fate| matches!(fate, Fate::Named(_))) && !has(Fate::is_gone) {
            hold.is_given_up = self.options.until_empty && !has_error;
            hold.wait(self.options.max_wait);
        } else if has(Fate::is_gone) {
            hold.waits = None;
        }
    }

    /// Returns the time until the next store is released, or `None` if no store is held for a time.
    fn next_hold(&self) -> Option<Duration> {
        let holds = self.holds.borrow();
        let held = holds.iter().filter(|hold| !hold.is_given_up && (hold.is_held() || hold.is_away));
        held.filter_map(|hold| hold.until).map(Moment::left).min()
    }

    /// Releases the holds whose time has come. Holds end only here, so that a step that starts with a hold sees it until the step ends,
    /// however slow the machine is.
    fn release(&self) {
        for hold in self.holds.borrow_mut().iter_mut() {
            hold.until = hold.until.filter(|until| !until.left().is_zero());
        }
    }

    /// Returns the selectors of stores that are not held. A selector of all file types is held together with any narrower selector of its
    /// store type, because a lease for it would include the narrower one's rows.
    fn unheld(&self) -> Vec<BlobSelector> {
        let holds = self.holds.borrow();
        let stores = self.worker.stores.0.iter().zip(holds.iter());
        let (held, free): (Vec<_>, Vec<_>) = stores.partition(|(_, hold)| hold.is_held() || hold.is_away);
        let [held, free] = [held, free].map(|of| of.into_iter().flat_map(|(store, _)| &store.of).collect::<Vec<_>>());
        let is_free = |selector: &&&Selector| !held.iter().any(|held| held.is_within(selector));
        free.iter().filter(is_free).map(|selector| selector.asked()).collect()
    }
}

impl Hold {
    fn is_held(&self) -> bool {
        self.is_given_up || self.until.is_some()
    }

    /// Holds the store for longer each time.
    fn wait(&mut self, longest: Duration) {
        let waits = self.waits.get_or_insert_with(|| Box::new(waits(longest)));
        self.until = Some(Moment::now().after(waits.next().unwrap_or(longest)));
    }
}

#[cfg(test)]
#[path = "tests/run/mod.rs"]
mod tests;
