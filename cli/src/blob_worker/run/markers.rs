//! Looks at the markers, before something is deleted and behind it.

use super::{LAST_LOOK, Run, WRONG_STORE, waits};
use crate::blob_worker::lease::most;
use crate::blob_worker::log::Level;
use crate::blob_worker::marker::{self, Marker, WrongStore};
use crate::blob_worker::queue::{Lease, Queue, Row};
use crate::blob_worker::store::{Store, Stores};
use crate::blob_worker::work::{Away, Outcome};
use crate::exit::Exit;
use crate::stop::unless;
use anyhow::{Result, anyhow};
use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::time::{Duration, Instant};
use tokio::task::JoinHandle;

/// How often a store is asked for its marker before what was deleted is taken for unknown.
const MARKER_TRIES: usize = 3;

/// A store that is wrong, by its number, and why it is.
pub(super) type Wrong = (usize, WrongStore);

/// Looks at one store's marker.
#[derive(Default)]
struct Look {
    /// One that was given up. A file system that hangs is not asked again before it has answered: each request would cost a thread.
    pending: RefCell<Option<JoinHandle<Result<Option<Marker>>>>>,
    /// The last one had no answer.
    away: Cell<bool>,
}

/// Looks at the stores' markers, by the store's number.
pub(super) struct Looks(Vec<Look>);

impl Looks {
    /// None yet.
    pub fn new(stores: &Stores) -> Self {
        Self(stores.all().iter().map(|_| Look::default()).collect())
    }
}

async fn look(store: Store, pending: &mut Option<JoinHandle<Result<Option<Marker>>>>) -> Result<Option<Marker>> {
    if let Some(old) = pending {
        // What it says is of another time.
        drop(old.await);
    }
    let found = pending.insert(tokio::spawn(async move { store.marker().await })).await;
    *pending = None;
    found?
}

impl<Q: Queue> Run<'_, Q> {
    /// Waits until a marker can be read. Answers the stores whose markers cannot; nothing where the worker is to end.
    ///
    /// # Errors
    /// [`Exit`] with [`WRONG_STORE`] where a marker is not right.
    pub(super) fn await_markers(&self) -> Result<Option<Away>> {
        let mut delays = waits(self.options.max_wait);
        let known: BTreeSet<usize> = (0..self.looks.0.len()).filter(|store| self.looks.0[*store].away.get()).collect();
        loop {
            let (away, wrong) = self.look_at_markers(|_| true);
            if let Some((_, wrong)) = wrong.into_iter().next() {
                return Err(Exit::error(WRONG_STORE, wrong.0));
            }
            if self.stop.is_set() {
                return Ok(None);
            }
            if away.is_empty() || away.len() < self.looks.0.len() {
                for why in away.iter().filter(|(store, _)| !known.contains(*store)).map(|(_, why)| why) {
                    self.log.note(Level::Warn, "store", &format!("{why}; its blobs wait, and those of others do not"));
                }
                return Ok(Some(away));
            }
            self.again("before anything is leased", away.values().next().map_or("", String::as_str), &mut delays);
            if self.stop.is_set() {
                return Ok(None);
            }
        }
    }

    /// What the markers of some stores say, asked for side by side.
    fn check_markers(&self, which: impl Fn(usize) -> bool) -> Vec<(usize, Result<()>)> {
        let began = Instant::now();
        let longest = most(self.options.lease);
        let stores = self.worker.stores().all().iter().zip(&self.looks.0).enumerate().filter(|(at, _)| which(*at));
        let ask = |(at, (store, past)): (usize, (&Store, &Look))| {
            let mut pending = past.pending.take();
            let most = if past.away.get() { longest.min(LAST_LOOK) } else { longest };
            let (store, stop, url) = (store.clone(), self.stop.clone(), store.url.clone());
            async move {
                let is_last = || stop.set_at().is_some_and(|at| at.max(began).elapsed() >= LAST_LOOK);
                let found = unless(|| began.elapsed() >= most || is_last(), look(store, &mut pending)).await;
                let late =
                    || Err(anyhow!("{url}: its marker does not come within {:.1} s", began.elapsed().as_secs_f64()));
                (at, pending, found.unwrap_or_else(late))
            }
        };
        let asked: Vec<_> = stores.map(ask).collect();
        let found = self.worker.wait_for(async { futures_util::future::join_all(asked).await });
        let check = |(at, pending, found): (usize, _, Result<Option<Marker>>)| {
            let look = &self.looks.0[at];
            look.pending.replace(pending);
            look.away.set(found.is_err());
            let store = &self.worker.stores().all()[at];
            (at, found.and_then(|found| Ok(marker::check(store, self.canister, found.as_ref())?)))
        };
        found.into_iter().map(check).collect()
    }

    /// Looks at the markers again of stores that had something to do: what was deleted where none is any more was not deleted where it
    /// lies. Then nothing is said of what that store has, done or failed. Answers which stores are wrong.
    pub(super) fn recheck(&self, lease: &Lease, outcome: &mut Outcome, meanwhile: &mut impl FnMut()) -> Vec<Wrong> {
        let stores = self.worker.stores();
        let said: BTreeSet<u64> =
            outcome.gone.iter().copied().chain(outcome.failed.iter().map(|(id, _)| *id)).collect();
        let place = |row: &Row| stores.find(row).ok().map(|(store, _)| store);
        let asked: BTreeSet<usize> = lease.rows.iter().filter(|row| said.contains(&row.id)).filter_map(place).collect();
        if asked.is_empty() {
            return Vec::new();
        }
        let mut delays = waits(Duration::from_secs(1));
        let mut tries = 0;
        let (away, wrong) = loop {
            tries += 1;
            let (away, wrong) = self.look_at_markers(|store| asked.contains(&store));
            if away.is_empty() || tries >= MARKER_TRIES || self.stop.is_set() {
                break (away, wrong);
            }
            self.stop.wait(delays.next().unwrap_or_default());
            meanwhile();
        };
        let doubtful: BTreeSet<usize> = away.keys().copied().chain(wrong.iter().map(|(store, _)| *store)).collect();
        if doubtful.is_empty() {
            return wrong;
        }
        for row in &lease.rows {
            let Some(store) = place(row).filter(|store| said.contains(&row.id) && doubtful.contains(store)) else {
                continue;
            };
            outcome.gone.retain(|id| *id != row.id);
            outcome.absent.retain(|id| *id != row.id);
            outcome.failed.retain(|(id, _)| *id != row.id);
            outcome.leave(store);
        }
        outcome.errors.extend(away);
        wrong
    }

    /// Looks at the markers of some stores once: stores that cannot be asked, and those that are wrong, and why.
    pub(super) fn look_at_markers(&self, which: impl Fn(usize) -> bool) -> (Away, Vec<Wrong>) {
        let (mut away, mut wrong) = (Away::new(), Vec::new());
        for (store, found) in self.check_markers(which) {
            match found.map_err(|error| error.downcast::<WrongStore>()) {
                Ok(()) => {}
                Err(Ok(why)) => wrong.push((store, why)),
                Err(Err(error)) => drop(away.insert(store, format!("{error:#}"))),
            }
        }
        (away, wrong)
    }
}
