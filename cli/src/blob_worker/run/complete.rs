//! What a worker says of a lease, to whoever reads and to the canister.

use super::{Run, UNTOLD, refused, waits};
use crate::blob_worker::args::Until;
use crate::blob_worker::lease::{Moment, Term};
use crate::blob_worker::log::Level;
use crate::blob_worker::queue::{Queue, Row};
use crate::blob_worker::work::Outcome;
use crate::client::Trials;
use crate::exit::Exit;
use anyhow::Result;
use coppice_interface::*;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;

/// Whether a lease has ended otherwise than by its completion.
fn is_over(error: &BlobDeletionError) -> bool {
    use BlobDeletionError::{Completed, Expired, NotHolder, UnknownToken};
    matches!(error, UnknownToken | NotHolder | Expired | Completed)
}

impl<Q: Queue> Run<'_, Q> {
    /// Has a lease last longer. Answers whether that is settled.
    pub(super) fn extend(&self, lease: &BlobDeletionLease, term: &Term) -> bool {
        let asked = Moment::now();
        self.calls.limit(Instant::now(), self.calls.most_of(term));
        let note = |event, why: &str| self.log.note(Level::Warn, event, why);
        match self.calls.queue.extend(&lease.token, self.options.lease.as_secs()) {
            Ok(Ok(())) => {
                term.extended(asked);
                self.figures.borrow_mut().extended += 1;
                return true;
            }
            Ok(Err(why)) if is_over(&why) => {
                note("lease", &format!("the lease is over before its time: the queue answers {why:?}"));
                term.end();
                return true;
            }
            Ok(Err(why)) => note("lease", &format!("the lease is not extended: the queue answers {why:?}")),
            Err(error) => note("canister", &format!("the lease is not extended: {error:#}")),
        }
        false
    }

    /// Says what became of a lease, each failure by its name.
    pub(super) fn tell(&self, lease: &BlobDeletionLease, outcome: &Outcome) {
        let rows: BTreeMap<u64, &Row> = lease.rows.iter().map(|row| (row.id, row)).collect();
        let named = |id: &u64| rows.get(id).map_or(String::new(), |row| name(row));
        for (id, why) in outcome.failed() {
            self.log.note(Level::Warn, "failed", &format!("row {id}, {}: {why}", named(id)));
        }
        for (id, why) in outcome.all(|of| &of.refused) {
            let why = format!("row {id}, {}: {why}; no other blob of its store goes, so it does not count", named(id));
            self.log.note(Level::Warn, "refused", &why);
        }
        for (store, of) in self.worker.stores().all().iter().zip(&outcome.of) {
            if let Some(why) = &of.error {
                let (back, unknown) = (of.left.len() + of.refused.len(), of.unknown.len());
                let fate = match unknown {
                    0 => String::new(),
                    _ => format!(", and {unknown} stay leased, as the store may still delete them"),
                };
                let why = format!("{}: {why}; {back} blobs go back and are tried again{fate}", store.url);
                self.log.note(Level::Warn, "store", &why);
            }
            if !of.gone.is_empty() && of.absent.len() == of.gone.len() && of.absent.len() > 1 {
                let why = format!(
                    "{}: none of {} blobs was there: is it the right store and layout?",
                    store.url,
                    of.absent.len()
                );
                self.log.note(Level::Warn, "absent", &why);
            }
        }
    }

    /// Gives a lease back as it is.
    pub(super) fn give_back(&self, lease: &BlobDeletionLease, asked: Moment) -> Result<()> {
        let stray = lease.rows.iter().map(|row| row.id).collect();
        self.figures.borrow_mut().leases += 1;
        let outcome = Outcome { stray, ..Outcome::default() };
        self.complete(lease, &outcome, &Term::new(self.options.lease, asked))
    }

    /// Says to the canister what was done, until it has heard all.
    pub(super) fn complete(&self, lease: &BlobDeletionLease, outcome: &Outcome, term: &Term) -> Result<()> {
        let gone: Vec<u64> = outcome.all(|of| &of.gone).copied().collect();
        let failed: Vec<u64> = outcome.failed().map(|(id, _)| *id).collect();
        let unknown: Vec<u64> = outcome.all(|of| &of.unknown).copied().collect();
        // Where nothing goes back, what no list names is gone: a message with no numbers costs less.
        let is_rest = outcome.back().next().is_none() && !gone.is_empty();
        let done = CompleteBlobDeletionBatch {
            token: lease.token.clone(),
            completed_ids: if is_rest { Vec::new() } else { gone.clone() },
            failed_ids: failed.clone(),
            max_retries: self.options.max_retries,
            unknown_ids: Some(unknown).filter(|ids| !ids.is_empty()),
            rest: is_rest.then_some(BlobDeletionRest::Completed),
        };
        let Some(answer) = self.told(&done, gone.len() + failed.len(), term)? else {
            self.count_undone(lease, outcome, true);
            self.figures.borrow_mut().late += gone.len() as u64;
            return Ok(());
        };
        // Counts are those of the lease, however often it was told.
        let skipped: BTreeSet<u64> = answer.skipped.iter().copied().collect();
        let known = answer.removed + answer.retries_incremented;
        let failed_late = failed.iter().filter(|id| skipped.contains(id)).count() as u64;
        let late = ((gone.len() + failed.len()) as u64).saturating_sub(known + failed_late);
        self.count_undone(lease, outcome, false);
        let mut figures = self.figures.borrow_mut();
        figures.late += late;
        figures.deleted += gone.len() as u64 - late.min(gone.len() as u64);
        figures.absent += outcome.all(|of| &of.absent).filter(|id| !skipped.contains(id)).count() as u64;
        figures.failed += failed.len() as u64;
        figures.unknown += outcome.all(|of| &of.unknown).count() as u64;
        figures.left += outcome.back().count() as u64;
        figures.dead += answer.dead;
        Ok(())
    }

    /// The canister's last word on a lease; none where the lease was over.
    fn told(
        &self,
        done: &CompleteBlobDeletionBatch,
        many: usize,
        term: &Term,
    ) -> Result<Option<CompletedBlobDeletions>> {
        let mut delays = waits(self.options.max_wait);
        let (began, mut is_last, mut trials) = (Instant::now(), false, Trials::default());
        loop {
            self.calls.limit(began, self.calls.most_of(term));
            match self.calls.queue.complete(done) {
                Ok(Ok(answer)) => return Ok(Some(answer)),
                Ok(Err(why)) if is_over(&why) => {
                    let why =
                        format!("too late to say what was deleted, others do it again: the queue answers {why:?}");
                    self.log.note(Level::Warn, "lease", &why);
                    return Ok(None);
                }
                Ok(Err(why)) => self.calls.again("completing", &format!("the queue answers {why:?}"), &mut delays),
                Err(error) if trials.go_on(&error) => {
                    self.calls.again("completing", &format!("{error:#}"), &mut delays);
                }
                Err(error) => return Err(refused("completing", error)),
            }
            if self.stop.is_set() && (self.calls.has_parted(began) || is_last && term.left().is_zero()) {
                let why = format!(
                    "the canister could not be told of {many} blobs: they are tried again when the lease has ended"
                );
                return Err(Exit::error(UNTOLD, why));
            }
            // An answer may be lost, so there is another attempt.
            is_last = self.stop.is_set();
        }
    }

    /// Notes which rows of a lease, completed or over, are not known to be gone.
    fn count_undone(&self, lease: &BlobDeletionLease, outcome: &Outcome, is_over: bool) {
        let mut undone = self.undone.borrow_mut();
        let gone: BTreeSet<u64> = outcome.all(|of| &of.gone).copied().filter(|_| !is_over).collect();
        match self.options.until {
            Until::Stopped => {}
            Until::Once => undone.extend(lease.rows.iter().map(|row| row.id)),
            // What was put back comes again.
            Until::Empty => {
                let failed = outcome.failed().chain(outcome.all(|of| &of.refused)).map(|(id, _)| *id);
                undone.extend(failed.chain(outcome.all(|of| &of.unknown).copied()));
                undone.extend(outcome.all(|of| &of.gone).copied().filter(|_| is_over));
            }
        }
        undone.retain(|id| !gone.contains(id));
        self.figures.borrow_mut().undone = undone.len() as u64;
    }
}

/// What a blob is called.
fn name(row: &Row) -> String {
    let key: String = row.blob_key.iter().take(32).map(|byte| format!("{byte:02x}")).collect();
    let more = if row.blob_key.len() > 32 { "…" } else { "" };
    format!("{key}{more}, file type {:?}, store {:?}", row.file_type, row.store_type)
}
