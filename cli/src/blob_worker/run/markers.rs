//! Checks of the stores' markers, before and after blobs are deleted.

use super::{Hold, Run, waits};
use crate::blob_worker::lease::Moment;
use crate::blob_worker::marker;
use crate::blob_worker::store::{Fate, Store};
use crate::blob_worker::times::{LAST_LOOK, REQUEST};
use crate::blob_worker::work::Outcome;
use crate::client::CanisterClient;
use crate::exit::{Exit, WRONG_STORE, why as why_of};
use crate::stop::unless;
use anyhow::{Result, anyhow};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// Attempts to read a store's marker before the deletions there count as unconfirmed.
const MARKER_TRIES: usize = 3;

impl<T: CanisterClient> Run<'_, T> {
    /// Returns an error if a look has found a wrong marker, which ends the worker.
    ///
    /// # Errors
    /// [`Exit`] with [`WRONG_STORE`] and the reason.
    pub(super) fn all_right(&self) -> Result<()> {
        let wrong = self.holds.borrow().iter().find_map(|hold| hold.wrong.clone());
        wrong.map_or(Ok(()), |why| Err(Exit::error(WRONG_STORE, why)))
    }

    /// Looks at the markers of all stores.
    ///
    /// # Errors
    /// As [`Self::all_right`].
    pub(super) fn look_at_all(&self) -> Result<()> {
        self.look_at_markers(|_| true);
        self.all_right()
    }

    /// Looks at the markers of some stores once, in parallel. Holds stores that cannot be read, and records wrong markers.
    pub(super) fn look_at_markers(&self, which: impl Fn(&Hold) -> bool) {
        let mut holds = self.holds.borrow_mut();
        let stores = self.worker.stores.0.iter().zip(holds.iter_mut());
        let looks: Vec<_> =
            stores.filter(|(_, hold)| which(hold)).map(|(store, hold)| self.look(store, hold)).collect();
        let all = looks.len() == self.worker.stores.0.len();
        self.worker.wait_for(async { futures_util::future::join_all(looks).await });
        if all {
            self.looked_at.set(Some(Moment::now()));
        }
    }

    async fn look(&self, store: &Store, hold: &mut Hold) {
        let (began, longest) = (Instant::now(), REQUEST.of(self.options.lease));
        let most = if hold.is_away { longest.min(LAST_LOOK) } else { longest };
        let is_last = || self.calls.stop.set_at().is_some_and(|at| at.max(began).elapsed() >= LAST_LOOK);
        let look = marker::look(store, self.worker.canister);
        let late =
            || anyhow!("{}: its marker could not be read within {:.1} s", store.url, began.elapsed().as_secs_f64());
        let looked = unless(|| began.elapsed() >= most || is_last(), look).await.unwrap_or_else(|| Err(late()));
        let was_away = std::mem::take(&mut hold.is_away);
        match looked {
            Ok(()) => {}
            Err(why) if Exit::code_of(&why) == WRONG_STORE => hold.wrong = Some(why.to_string()),
            Err(why) => {
                hold.is_away = true;
                hold.wait(self.options.max_wait);
                self.calls.retries.fetch_add(1, Ordering::Relaxed);
                if !was_away {
                    let why = format!("{}; only the blobs of this store wait", why_of(&why));
                    self.calls.log.warn("store", &why);
                }
            }
        }
    }

    /// Looks again at the markers of stores that deleted blobs: if the marker is gone, the deletions may have run in a directory that is
    /// not mounted. The outcomes of such a store are discarded, successes and failures.
    pub(super) fn recheck(&self, outcome: &mut Outcome, meanwhile: &mut impl FnMut()) {
        let stores = 0..self.worker.stores.0.len();
        let asked: Vec<usize> = stores.filter(|store| outcome.of(*store).any(Fate::is_definite)).collect();
        if asked.is_empty() {
            return;
        }
        // Looks at all markers, because the next lease relies on this look.
        self.look_at_markers(|_| true);
        for delay in waits(Duration::from_secs(1)).take(MARKER_TRIES - 1) {
            if self.calls.stop.is_set() || !asked.iter().any(|at| self.holds.borrow()[*at].is_away) {
                break;
            }
            self.calls.stop.wait(delay);
            meanwhile();
            self.look_at_markers(|_| true);
        }
        for at in asked {
            let hold = &self.holds.borrow()[at];
            let away = hold.is_away.then_some("its marker cannot be read");
            if let Some(why) = hold.wrong.as_deref().or(away) {
                outcome.doubt(at, why);
            }
        }
    }
}
