//! Looks at the markers, before something is deleted and after it.

use super::{Hold, Run, WRONG_STORE, waits};
use crate::blob_worker::lease::Moment;
use crate::blob_worker::log::Level;
use crate::blob_worker::marker::{self, Contents};
use crate::blob_worker::store::{Fate, Store};
use crate::blob_worker::times::{LAST_LOOK, REQUEST};
use crate::blob_worker::work::Outcome;
use crate::client::Reach;
use crate::exit::Exit;
use crate::stop::unless;
use anyhow::{Result, anyhow};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use tokio::task::JoinHandle;

/// How often a store is asked for its marker before what was deleted is taken for unknown.
const MARKER_TRIES: usize = 3;

/// A store that is wrong, by its number, and why it is.
pub(super) type Wrong = (usize, String);

/// A store's marker, and those in the folders above it, where these are asked for.
type Answer = Result<(Option<Contents>, Vec<(String, Contents)>)>;

/// A look that was given up. A file system that hangs is not asked again before it has answered: each request would cost a thread.
pub(super) type Pending = JoinHandle<Answer>;

/// # Errors
/// [`Exit`] with [`WRONG_STORE`] where a store is wrong.
pub(super) fn ended_by(wrong: Vec<Wrong>) -> Result<()> {
    wrong.into_iter().next().map_or(Ok(()), |(_, why)| Err(Exit::error(WRONG_STORE, why)))
}

async fn look(store: Store, is_known: bool, pending: &mut Option<Pending>) -> Answer {
    if let Some(old) = pending {
        // What it says is of another time.
        drop(old.await);
    }
    let look = async move {
        let above = if is_known { Vec::new() } else { store.markers_above().await? };
        Ok((store.marker().await?, above))
    };
    let found = pending.insert(tokio::spawn(look)).await;
    *pending = None;
    found?
}

impl<T: Reach + Sync> Run<'_, T> {
    /// Looks at all markers.
    ///
    /// # Errors
    /// As [`ended_by`].
    pub(super) fn look_at_all(&self) -> Result<()> {
        ended_by(self.look_at_markers(|_| true))
    }

    /// What the markers of some stores say, asked for side by side.
    fn ask_for_markers(&self, which: impl Fn(&Hold) -> bool) -> Vec<(usize, Answer)> {
        let began = Instant::now();
        let longest = REQUEST.of(self.options.lease);
        let mut holds = self.holds.borrow_mut();
        let stores = self.worker.stores.all().iter().zip(holds.iter_mut()).enumerate();
        let ask = |(at, (store, hold)): (usize, (&Store, &mut Hold))| {
            let (mut pending, is_known) = (hold.pending.take(), hold.is_known);
            let most = if hold.is_away { longest.min(LAST_LOOK) } else { longest };
            let (store, stop, url) = (store.clone(), self.calls.stop.clone(), store.url.clone());
            async move {
                let is_last = || stop.set_at().is_some_and(|at| at.max(began).elapsed() >= LAST_LOOK);
                let found = unless(|| began.elapsed() >= most || is_last(), look(store, is_known, &mut pending)).await;
                let late =
                    || Err(anyhow!("{url}: its marker does not come within {:.1} s", began.elapsed().as_secs_f64()));
                (at, pending, found.unwrap_or_else(late))
            }
        };
        let asked: Vec<_> = stores.filter(|(_, (_, hold))| which(hold)).map(ask).collect();
        let found = self.worker.wait_for(async { futures_util::future::join_all(asked).await });
        let keep = |(at, pending, found): (usize, _, Answer)| {
            holds[at].pending = pending;
            (at, found)
        };
        found.into_iter().map(keep).collect()
    }

    /// Looks at the markers of some stores once: holds those that cannot be asked, and answers those that are wrong, and why.
    pub(super) fn look_at_markers(&self, which: impl Fn(&Hold) -> bool) -> Vec<Wrong> {
        let mut wrong = Vec::new();
        let found = self.ask_for_markers(which);
        let mut holds = self.holds.borrow_mut();
        if found.len() == holds.len() {
            self.looked_at.set(Some(Moment::now()));
        }
        let canister = self.worker.canister;
        for (at, found) in found {
            let (store, hold) = (&self.worker.stores.all()[at], &mut holds[at]);
            let was_away = std::mem::replace(&mut hold.is_away, found.is_err());
            match found {
                Ok((marker, above)) => {
                    let near =
                        || above.iter().try_for_each(|(at, above)| marker::check_near(store, canister, at, above));
                    match marker::check(store, canister, marker.as_ref()).and_then(|()| near()) {
                        Ok(()) => hold.is_known = true,
                        Err(why) => wrong.push((at, why)),
                    }
                }
                Err(why) => {
                    self.calls.retries.fetch_add(1, Ordering::Relaxed);
                    hold.wait(self.options.max_wait);
                    if !was_away {
                        let why = format!("{why:#}; its blobs wait, and those of others do not");
                        self.calls.log.note(Level::Warn, "store", &why);
                    }
                }
            }
        }
        wrong
    }

    /// Looks at the markers again of stores that had something to do: what was deleted where none is any more was not deleted where it
    /// lies. Then nothing is said of what that store has, done or failed. Answers which stores are wrong.
    pub(super) fn recheck(&self, outcome: &mut Outcome, meanwhile: &mut impl FnMut()) -> Vec<Wrong> {
        let has_said = |fate: &Fate| fate.is_gone() || matches!(fate, Fate::Failed(_));
        let stores = 0..self.holds.borrow().len();
        let asked: Vec<bool> = stores.map(|store| outcome.of(store).any(has_said)).collect();
        if !asked.contains(&true) {
            return Vec::new();
        }
        let is_away = |at: usize| self.holds.borrow()[at].is_away;
        let mut delays = waits(Duration::from_secs(1)).take(MARKER_TRIES - 1);
        let wrong = loop {
            // All of them: the next lease goes by this look.
            let wrong = self.look_at_markers(|_| true);
            let is_unsettled = (0..asked.len()).any(|at| asked[at] && is_away(at)) && !self.calls.stop.is_set();
            match delays.next().filter(|_| is_unsettled) {
                Some(delay) => self.calls.stop.wait(delay),
                None => break wrong,
            }
            meanwhile();
        };
        for at in (0..asked.len()).filter(|at| asked[*at]) {
            if let Some((_, why)) = wrong.iter().find(|(store, _)| *store == at) {
                outcome.doubt(at, why);
            } else if is_away(at) {
                outcome.doubt(at, "its marker cannot be read");
            }
        }
        wrong
    }
}
