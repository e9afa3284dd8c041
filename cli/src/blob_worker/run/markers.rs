//! Looks at the markers, before something is deleted and after it.

use super::{Run, WRONG_STORE, waits};
use crate::blob_worker::lease::Moment;
use crate::blob_worker::log::Level;
use crate::blob_worker::marker::{self, Contents, WrongStore};
use crate::blob_worker::queue::Queue;
use crate::blob_worker::store::{Store, Stores};
use crate::blob_worker::times::{LAST_LOOK, REQUEST};
use crate::blob_worker::work::Outcome;
use crate::exit::Exit;
use crate::stop::unless;
use anyhow::{Result, anyhow};
use std::cell::{Cell, RefCell};
use std::time::{Duration, Instant};
use tokio::task::JoinHandle;

/// How often a store is asked for its marker before what was deleted is taken for unknown.
const MARKER_TRIES: usize = 3;

/// A store that is wrong, by its number, and why it is.
pub(super) type Wrong = (usize, WrongStore);

/// A store's marker, and those in the folders above it, where these are asked for.
type Answer = Result<(Option<Contents>, Vec<(String, Contents)>)>;

/// Looks at one store's marker.
#[derive(Default)]
struct Look {
    /// One that was given up. A file system that hangs is not asked again before it has answered: each request would cost a thread.
    pending: RefCell<Option<JoinHandle<Answer>>>,
    /// The folders above it are known.
    is_known: Cell<bool>,
    /// The last one had no answer.
    is_away: Cell<bool>,
}

/// Looks at the stores' markers, by the store's number.
pub(super) struct Looks {
    of: Vec<Look>,
    at: Cell<Option<Moment>>,
}

impl Looks {
    /// None yet.
    pub fn new(stores: &Stores) -> Self {
        Self { of: stores.all().iter().map(|_| Look::default()).collect(), at: Cell::new(None) }
    }

    /// When all were looked at last.
    pub fn at(&self) -> Option<Moment> {
        self.at.get()
    }
}

async fn look(store: Store, is_first: bool, pending: &mut Option<JoinHandle<Answer>>) -> Answer {
    if let Some(old) = pending {
        // What it says is of another time.
        drop(old.await);
    }
    let look = async move {
        let above = if is_first { store.markers_above().await? } else { Vec::new() };
        Ok((store.marker().await?, above))
    };
    let found = pending.insert(tokio::spawn(look)).await;
    *pending = None;
    found?
}

impl<Q: Queue> Run<'_, Q> {
    /// Looks at all markers.
    ///
    /// # Errors
    /// [`Exit`] with [`WRONG_STORE`] where one is not right.
    pub(super) fn look_at_all(&self) -> Result<()> {
        let wrong = self.look_at_markers(|_| true);
        self.looked(wrong)
    }

    /// # Errors
    /// [`Exit`] with [`WRONG_STORE`] where a marker is not right.
    pub(super) fn looked(&self, wrong: Vec<Wrong>) -> Result<()> {
        wrong.into_iter().next().map_or(Ok(()), |(_, wrong)| Err(Exit::error(WRONG_STORE, wrong.0)))
    }

    /// What the markers of some stores say, asked for side by side.
    fn ask_for_markers(&self, which: impl Fn(usize) -> bool) -> Vec<(usize, Answer)> {
        let began = Instant::now();
        let longest = REQUEST.of(self.options.lease);
        let stores = self.worker.stores().all().iter().zip(&self.looks.of).enumerate().filter(|(at, _)| which(*at));
        let ask = |(at, (store, past)): (usize, (&Store, &Look))| {
            let (mut pending, is_first) = (past.pending.take(), !past.is_known.get());
            let most = if past.is_away.get() { longest.min(LAST_LOOK) } else { longest };
            let (store, stop, url) = (store.clone(), self.stop.clone(), store.url.clone());
            async move {
                let is_last = || stop.set_at().is_some_and(|at| at.max(began).elapsed() >= LAST_LOOK);
                let found = unless(|| began.elapsed() >= most || is_last(), look(store, is_first, &mut pending)).await;
                let late =
                    || Err(anyhow!("{url}: its marker does not come within {:.1} s", began.elapsed().as_secs_f64()));
                (at, pending, found.unwrap_or_else(late))
            }
        };
        let asked: Vec<_> = stores.map(ask).collect();
        let found = self.worker.wait_for(async { futures_util::future::join_all(asked).await });
        let keep = |(at, pending, found): (usize, _, Answer)| {
            self.looks.of[at].pending.replace(pending);
            (at, found)
        };
        found.into_iter().map(keep).collect()
    }

    /// Looks at the markers of some stores once: holds those that cannot be asked, and answers those that are wrong, and why.
    pub(super) fn look_at_markers(&self, which: impl Fn(usize) -> bool) -> Vec<Wrong> {
        let mut wrong = Vec::new();
        let found = self.ask_for_markers(which);
        if found.len() == self.looks.of.len() {
            self.looks.at.set(Some(Moment::now()));
        }
        let canister = self.worker.canister();
        for (at, found) in found {
            let (store, look) = (&self.worker.stores().all()[at], &self.looks.of[at]);
            let was_away = look.is_away.replace(found.is_err());
            let mut holds = self.holds.borrow_mut();
            holds[at].is_away = found.is_err();
            match found {
                Ok((marker, above)) => {
                    let near =
                        || above.iter().try_for_each(|(at, above)| marker::check_near(store, canister, at, above));
                    match marker::check(store, canister, marker.as_ref()).and_then(|()| near()) {
                        Ok(()) => look.is_known.set(true),
                        Err(why) => wrong.push((at, why)),
                    }
                }
                Err(why) => {
                    self.calls.retries.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
                    holds[at].wait(self.options.max_wait);
                    if !was_away {
                        let why = format!("{why:#}; its blobs wait, and those of others do not");
                        self.log.note(Level::Warn, "store", &why);
                    }
                }
            }
        }
        wrong
    }

    /// Looks at the markers again of stores that had something to do: what was deleted where none is any more was not deleted where it
    /// lies. Then nothing is said of what that store has, done or failed. Answers which stores are wrong.
    pub(super) fn recheck(&self, outcome: &mut Outcome, meanwhile: &mut impl FnMut()) -> Vec<Wrong> {
        let has_said = |of: &crate::blob_worker::work::Of| !of.gone.is_empty() || !of.failed.is_empty();
        let asked: Vec<bool> = outcome.of.iter().map(has_said).collect();
        if !asked.contains(&true) {
            return Vec::new();
        }
        let mut delays = waits(Duration::from_secs(1));
        let mut tries = 0;
        let wrong = loop {
            tries += 1;
            // All of them: the next lease goes by this look.
            let wrong = self.look_at_markers(|_| true);
            let is_away = asked.iter().zip(&self.looks.of).any(|(asked, look)| *asked && look.is_away.get());
            if !is_away || tries >= MARKER_TRIES || self.stop.is_set() {
                break wrong;
            }
            self.stop.wait(delays.next().unwrap_or_default());
            meanwhile();
        };
        for (at, of) in outcome.of.iter_mut().enumerate().filter(|(at, _)| asked[*at]) {
            if let Some((_, why)) = wrong.iter().find(|(store, _)| *store == at) {
                of.doubt(why.0.clone());
            } else if self.looks.of[at].is_away.get() {
                of.doubt("its marker cannot be read".into());
            }
        }
        wrong
    }
}
