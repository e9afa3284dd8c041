//! Looks at the markers, before something is deleted and behind it.

use super::{LAST_LOOK, Run, WRONG_STORE, waits};
use crate::blob_worker::lease::most;
use crate::blob_worker::marker::{self, WrongStore};
use crate::blob_worker::queue::{Lease, Queue, Row};
use crate::blob_worker::work::Outcome;
use crate::exit::Exit;
use anyhow::Result;
use std::collections::BTreeSet;
use std::time::Duration;

/// How often a store is asked for its marker before what was deleted is taken for unknown.
const MARKER_TRIES: usize = 3;

/// A store that is wrong, by its number, and why it is.
pub(super) type Wrong = (usize, WrongStore);

impl<Q: Queue> Run<'_, Q> {
    /// Waits until all markers can be read. Answers whether they are right, and not the worker to end.
    ///
    /// # Errors
    /// [`Exit`] with [`WRONG_STORE`].
    pub fn await_markers(&self) -> Result<bool> {
        let mut delays = waits(self.options.max_wait);
        loop {
            let (away, wrong) = self.look_at_markers();
            if let Some((_, wrong)) = wrong.into_iter().next() {
                return Err(Exit::error(WRONG_STORE, wrong.0));
            }
            match away.into_iter().next() {
                None => return Ok(true),
                Some(_) if self.stop.is_set() => return Ok(false),
                Some((_, why)) => self.again("before anything is leased", &why, &mut delays),
            }
            if self.stop.is_set() {
                return Ok(false);
            }
        }
    }

    /// What each store's marker says, asked for side by side.
    fn check_markers(&self) -> Vec<Result<()>> {
        let most = most(self.options.lease);
        let most = if self.stop.is_set() { most.min(LAST_LOOK) } else { most };
        let stores = self.worker.stores().all();
        let look = |store: &'_ crate::blob_worker::store::Store| {
            let store = store.clone();
            async move { tokio::time::timeout(most, store.marker()).await }
        };
        let found = self.worker.wait_for(async { futures_util::future::join_all(stores.iter().map(look)).await });
        let check = |(store, found): (&crate::blob_worker::store::Store, _)| -> Result<()> {
            let found: Result<Result<Option<marker::Marker>>, tokio::time::error::Elapsed> = found;
            let found = found.map_err(|_| anyhow::anyhow!("its marker does not come within {most:?}"))??;
            Ok(marker::check(store, self.canister, found.as_ref())?)
        };
        stores.iter().zip(found).map(check).collect()
    }
    /// Looks at the markers again: what was deleted where none is any more was not deleted where it lies. Then nothing is said of what
    /// that store has. Answers which stores are wrong.
    pub(super) fn recheck(&self, lease: &Lease, outcome: &mut Outcome, meanwhile: &mut impl FnMut()) -> Vec<Wrong> {
        if outcome.gone.is_empty() {
            return Vec::new();
        }
        let mut delays = waits(Duration::from_secs(1));
        let mut tries = 0;
        let (away, wrong) = loop {
            tries += 1;
            let (away, wrong) = self.look_at_markers();
            if away.is_empty() || tries >= MARKER_TRIES || self.stop.is_set() {
                break (away, wrong);
            }
            self.stop.wait(delays.next().unwrap_or_default());
            meanwhile();
        };
        let doubtful: BTreeSet<usize> =
            away.iter().map(|(store, _)| *store).chain(wrong.iter().map(|(store, _)| *store)).collect();
        if doubtful.is_empty() {
            return wrong;
        }
        let stores = self.worker.stores();
        let lies_there = |row: &&Row| stores.find(row).is_ok_and(|(store, _)| doubtful.contains(&store));
        let there: BTreeSet<u64> = lease.rows.iter().filter(lies_there).map(|row| row.id).collect();
        let gone = outcome.gone.len();
        outcome.gone.retain(|id| !there.contains(id));
        outcome.absent.retain(|id| !there.contains(id));
        outcome.left += (gone - outcome.gone.len()) as u64;
        outcome.errors.extend(away);
        wrong
    }

    /// Looks at all markers once: stores that cannot be asked, by their number, and those that are wrong, and why.
    pub(super) fn look_at_markers(&self) -> (Vec<(usize, String)>, Vec<Wrong>) {
        let (mut away, mut wrong) = (Vec::new(), Vec::new());
        for (store, found) in self.check_markers().into_iter().enumerate() {
            match found.map_err(|error| error.downcast::<WrongStore>()) {
                Ok(()) => {}
                Err(Ok(why)) => wrong.push((store, why)),
                Err(Err(error)) => away.push((store, format!("{error:#}"))),
            }
        }
        (away, wrong)
    }
}
