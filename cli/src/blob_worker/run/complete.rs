//! Reports of a finished lease, to the log and to the canister.

use super::calls::Answer;
use super::{Run, waits};
use crate::blob_worker::lease::{Moment, Term};
use crate::blob_worker::store::{Fate, Store};
use crate::blob_worker::work::Outcome;
use crate::client::{CanisterClient, Client, Trials, Wait as _};
use crate::exit::{Exit, UNREPORTED, why};
use crate::verify::hex;
use anyhow::Result;
use ic_coppice_interface::*;
use std::collections::BTreeSet;
use std::time::Instant;

/// Returns whether a lease has ended other than by completion.
fn is_over(error: &BlobDeletionError) -> bool {
    use BlobDeletionError::{Completed, Expired, NotHolder, Stopped, UnknownToken};
    matches!(error, UnknownToken | NotHolder | Expired | Completed | Stopped)
}

impl<T: CanisterClient> Run<'_, T> {
    /// Extends a lease, and returns whether the canister has answered that the lease is live.
    pub(super) fn extend(&self, lease: &BlobDeletionLease, term: &Term) -> bool {
        let (asked, secs) = (Moment::now(), self.options.lease.as_secs());
        self.calls.limit(Instant::now(), self.calls.most_of(term));
        let (event, why) = match self.calls.client.extend_blob_deletion_batch(&lease.token, secs).wait() {
            Ok(Ok(_)) => {
                term.extended(asked);
                self.figures.borrow_mut().extended += 1;
                return true;
            }
            Ok(Err(why)) => {
                if is_over(&why) {
                    term.end();
                    self.note_stop(&why);
                }
                ("lease", format!("the queue reports {why}"))
            }
            Err(error) => ("canister", why(&error)),
        };
        self.calls.log.warn(event, &format!("the lease could not be extended: {why}"));
        false
    }

    /// Remembers that deletions are stopped, if the canister has answered that.
    fn note_stop(&self, why: &BlobDeletionError) {
        self.deletions_stopped.set(self.deletions_stopped.get() || *why == BlobDeletionError::Stopped);
    }

    /// Logs the failures of a lease, each with the blob's name.
    pub(super) fn log_failures(&self, lease: &BlobDeletionLease, outcome: &Outcome) {
        for row in &lease.rows {
            let alone = "; no other blob of its store could be deleted, so it does not count against this one";
            let (event, why, more) = match outcome.rows.get(&row.id) {
                Some((_, Fate::Failed(why))) => ("failed", why, ""),
                Some((_, Fate::Named(why))) => ("refused", why, alone),
                _ => continue,
            };
            self.calls.log.warn(event, &format!("row {}, {}: {why}{more}", row.id, name(row)));
        }
        for (store, Store { url, .. }) in self.worker.stores.0.iter().enumerate() {
            let many = |is_so: fn(&Fate) -> bool| outcome.of(store).filter(|fate| is_so(fate)).count();
            if let Some(why) = outcome.error(store) {
                let back = many(Fate::is_back);
                let fate = match many(|fate| matches!(fate, Fate::Unknown(_))) {
                    0 => String::new(),
                    unknown => format!(", and {unknown} stay leased, because the store may still delete them"),
                };
                let why = format!("{url}: {why}; {back} blobs are put back and retried{fate}");
                self.calls.log.warn("store", &why);
            }
            let absent = many(|fate| *fate == Fate::Absent);
            if absent > 1 && absent == many(Fate::is_gone) {
                let why =
                    format!("{url}: none of {absent} blobs was there: check that the store and the layout are right");
                self.calls.log.warn("absent", &why);
            }
        }
    }

    /// Gives a lease back unchanged.
    pub(super) fn give_back(&self, lease: &BlobDeletionLease, asked: Moment) -> Result<()> {
        let rows = lease.rows.iter().map(|row| (row.id, (None, Fate::Left(String::new())))).collect();
        self.figures.borrow_mut().leases += 1;
        let outcome = Outcome { rows };
        self.complete(lease, &outcome, &Term::new(self.options.lease, asked))
    }

    /// Reports the outcome of a lease to the canister, until it has accepted all of it.
    pub(super) fn complete(&self, lease: &BlobDeletionLease, outcome: &Outcome, term: &Term) -> Result<()> {
        let [gone, failed, unknown, back] = [
            Fate::is_gone as fn(&Fate) -> bool,
            |fate| matches!(fate, Fate::Failed(_)),
            |fate| matches!(fate, Fate::Unknown(_)),
            Fate::is_back,
        ]
        .map(|is_so| outcome.ids(is_so));
        // If no row goes back, every row that no list names is gone; a message without numbers costs less.
        let is_rest = back.is_empty() && !gone.is_empty();
        let done = CompleteBlobDeletionBatch {
            token: lease.token.clone(),
            completed_ids: if is_rest { Vec::new() } else { gone.clone() },
            failed_ids: failed.clone(),
            max_retries: self.options.max_retries,
            unknown_ids: Some(unknown.clone()).filter(|ids| !ids.is_empty()),
            rest: is_rest.then_some(BlobDeletionRest::Completed),
        };
        let mut answer = self.report_until_accepted(&done, gone.len() + failed.len(), term)?;
        if is_rest && answer == Err(BlobDeletionError::Stopped) {
            // The canister marks the rows, and may know those of a lease that has ended by their numbers only.
            let named = CompleteBlobDeletionBatch { completed_ids: gone.clone(), rest: None, ..done };
            answer = self.report_until_accepted(&named, gone.len() + failed.len(), term)?;
        }
        self.count_undone(outcome, answer.is_err());
        let Ok(answer) = answer else {
            self.figures.borrow_mut().late += gone.len() as u64;
            return Ok(());
        };
        // The counts are those of the lease, however often it was reported.
        let skipped: BTreeSet<u64> = answer.skipped.iter().copied().collect();
        let absent = outcome.ids(|fate| *fate == Fate::Absent);
        let known = answer.removed + answer.retries_incremented;
        let failed_late = failed.iter().filter(|id| skipped.contains(id)).count() as u64;
        let late = ((gone.len() + failed.len()) as u64).saturating_sub(known + failed_late);
        let mut figures = self.figures.borrow_mut();
        figures.late += late;
        figures.deleted += gone.len() as u64 - late.min(gone.len() as u64);
        figures.absent += absent.iter().filter(|id| !skipped.contains(id)).count() as u64;
        figures.failed += failed.len() as u64;
        figures.unknown += unknown.len() as u64;
        figures.left += back.len() as u64;
        figures.dead += answer.dead;
        Ok(())
    }

    /// Reports a lease until the canister accepts it. Returns the canister's answer, or why the lease had ended.
    fn report_until_accepted(
        &self,
        done: &CompleteBlobDeletionBatch,
        many: usize,
        term: &Term,
    ) -> Answer<CompletedBlobDeletions> {
        let (began, mut delays, mut trials) = (Instant::now(), waits(self.options.max_wait), Trials::default());
        let complete = |client: &Client<T>| client.complete_blob_deletion_batch_all(done).wait();
        loop {
            self.calls.limit(began, self.calls.most_of(term));
            match self.calls.attempt("completing", &mut trials, complete)? {
                Ok(answer) => return Ok(Ok(answer)),
                Err((why, Some(over))) if is_over(&over) => {
                    self.note_stop(&over);
                    let why = format!("too late to report the deletions; another worker repeats them: {why}");
                    self.calls.log.warn("lease", &why);
                    return Ok(Err(over));
                }
                Err((why, _)) => self.calls.again("completing", &why, &mut delays),
            }
            if self.calls.has_parted(began) {
                let why = format!(
                    "the deletions of {many} blobs could not be reported to the canister: they are retried when the lease has ended"
                );
                return Err(Exit::error(UNREPORTED, why));
            }
        }
    }

    /// Counts the rows of a completed or ended lease that are not known to be gone.
    fn count_undone(&self, outcome: &Outcome, is_over: bool) {
        if !self.options.ends() {
            return;
        }
        // Rows that were put back are leased again, except with `--once`.
        let mut undone = self.undone.borrow_mut();
        undone.extend(outcome.ids(|fate| self.options.once || !matches!(fate, Fate::Left(_))));
        outcome.ids(|fate| fate.is_gone() && !is_over).iter().for_each(|id| {
            undone.remove(id);
        });
        self.figures.borrow_mut().undone = undone.len() as u64;
    }
}

/// Returns a blob's name for the log.
fn name(row: &BlobDeletion) -> String {
    let (key, more) = row.blob_key.split_at_checked(32).unwrap_or((&row.blob_key, &[]));
    let more = if more.is_empty() { "" } else { "…" };
    format!("{}{more}, file type {:?}, store {:?}", hex(key), row.file_type, row.store_type)
}
