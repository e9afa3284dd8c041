//! What a worker says of a lease, to whoever reads and to the canister.

use super::{REFUSED, Run, UNTOLD, refused, waits};
use crate::blob_worker::args::Until;
use crate::blob_worker::lease::Term;
use crate::blob_worker::log::Level;
use crate::blob_worker::queue::{Done, Lease, Noted, Queue, Refusal, Row};
use crate::blob_worker::work::Outcome;
use crate::client::Trials;
use crate::exit::Exit;
use anyhow::Result;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;

impl<Q: Queue> Run<'_, Q> {
    /// Says what became of a lease, each failure by its name.
    pub(super) fn tell(&self, lease: &Lease, outcome: &Outcome) {
        let rows: BTreeMap<u64, &Row> = lease.rows.iter().map(|row| (row.id, row)).collect();
        for (id, why) in &outcome.failed {
            let name = rows.get(id).map_or(String::new(), |row| name(row));
            self.log.note(Level::Warn, "failed", &format!("row {id}, {name}: {why}"));
        }
        let mut types: BTreeMap<(String, String), u64> = BTreeMap::new();
        for row in outcome.no_store.iter().filter_map(|id| rows.get(id)) {
            *types.entry((row.file_type.clone(), format!("{:?}", row.store))).or_default() += 1;
        }
        for ((file_type, store), many) in types {
            let why =
                format!("{many} blobs of file type {file_type:?}, store {store}, are put off: no --store has them");
            self.log.note(Level::Warn, "no_store", &why);
        }
        for (store, why) in &outcome.errors {
            let url = self.worker.stores().all().get(*store).map_or("", |store| store.url.as_str());
            let left = outcome.left.get(store).copied().unwrap_or_default();
            let why = format!("{url}: {why}; {left} blobs go back and are tried again");
            self.log.note(Level::Warn, "store", &why);
        }
        if !outcome.gone.is_empty() && outcome.absent.len() == outcome.gone.len() && outcome.absent.len() > 1 {
            let why =
                format!("none of {} blobs was there: are these the right stores and layout?", outcome.absent.len());
            self.log.note(Level::Warn, "absent", &why);
        }
    }

    /// Says to the canister what was done, until it has heard all.
    pub(super) fn complete(&self, lease: &Lease, mut done: Done, term: &Term, outcome: &Outcome) -> Result<()> {
        let mut delays = waits(self.options.max_wait);
        let (mut dead, mut skipped) = (0, Vec::new());
        // An answer was lost to just these numbers: what it had looked at is not of the lease any more.
        let mut lost = false;
        let (began, mut is_last, mut trials) = (Instant::now(), false, Trials::default());
        let why = loop {
            let many = done.gone.len() + done.failed.len();
            self.limit(began, self.most_of(term));
            match self.queue.complete(&lease.token, &done) {
                Ok(Ok(noted)) => {
                    let Noted { dead: now_dead, remaining, skipped: now_skipped } = noted;
                    dead += now_dead;
                    let all = done.gone.iter().chain(&done.failed);
                    let heard_before = if lost { all.zip(&now_skipped).take_while(|(a, b)| a == b).count() } else { 0 };
                    skipped.extend(&now_skipped[heard_before..]);
                    lost = false;
                    trials.answered();
                    if remaining == 0 {
                        break None;
                    }
                    let heard = many.saturating_sub(remaining as usize);
                    if heard == 0 {
                        return Err(Exit::error(REFUSED, "the canister takes note of nothing that is completed"));
                    }
                    let gone = heard.min(done.gone.len());
                    done.gone.drain(..gone);
                    done.failed.drain(..heard - gone);
                }
                Ok(Err(Refusal::Over(why))) => break Some(why),
                Ok(Err(Refusal::Later(why))) => self.again("completing", &why, &mut delays),
                Err(error) if trials.go_on(&error) => {
                    lost = true;
                    self.again("completing", &format!("{error:#}"), &mut delays);
                }
                Err(error) => return Err(refused("completing", error)),
            }
            if self.stop.is_set() && (self.has_parted(began) || is_last && term.left().is_zero()) {
                let why = format!(
                    "the canister could not be told of {} blobs: they are tried again when the lease has ended",
                    many
                );
                return Err(Exit::error(UNTOLD, why));
            }
            // An answer may be lost, so there is another attempt.
            is_last = self.stop.is_set();
        };
        self.count_undone(lease, outcome, &skipped, why.is_some());
        let mut figures = self.figures.borrow_mut();
        if let Some(why) = why {
            figures.late += outcome.gone.len() as u64;
            drop(figures);
            self.log.note(
                Level::Warn,
                "lease",
                &format!("too late to say what was deleted, others do it again: {why}"),
            );
            return Ok(());
        }
        let late = outcome.gone.iter().filter(|id| skipped.contains(id)).count() as u64;
        figures.late += late;
        figures.deleted += outcome.gone.len() as u64 - late;
        figures.absent += outcome.absent.iter().filter(|id| !skipped.contains(id)).count() as u64;
        figures.failed += outcome.failed.len() as u64;
        figures.no_store += outcome.no_store.len() as u64;
        figures.left += outcome.all_left();
        figures.dead += dead;
        Ok(())
    }

    /// Notes which rows of a lease, completed or over, are not known to be gone.
    fn count_undone(&self, lease: &Lease, outcome: &Outcome, skipped: &[u64], is_over: bool) {
        let mut undone = self.undone.borrow_mut();
        let gone: BTreeSet<u64> = outcome.gone.iter().copied().collect();
        let skipped: BTreeSet<u64> = skipped.iter().copied().collect();
        let late = |id: &u64| gone.contains(id) && (is_over || skipped.contains(id));
        match self.options.until {
            Until::Stopped => {}
            Until::Once => undone.extend(lease.rows.iter().map(|row| row.id)),
            // What was put back comes again.
            Until::Empty => {
                let failed = outcome.failed.iter().map(|(id, _)| id).chain(&outcome.no_store);
                undone.extend(failed.chain(gone.iter().filter(|id| late(id))));
            }
        }
        undone.retain(|id| !gone.contains(id) || late(id));
        self.figures.borrow_mut().undone = undone.len() as u64;
    }
}

/// What a blob is called.
fn name(row: &Row) -> String {
    let key: String = row.key.iter().take(32).map(|byte| format!("{byte:02x}")).collect();
    let more = if row.key.len() > 32 { "…" } else { "" };
    format!("{key}{more}, file type {:?}, store {:?}", row.file_type, row.store)
}
