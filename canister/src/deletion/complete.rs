//! What a worker says of rows: deleted, failed.

use super::acquire::Shown;
use super::lease::MAX_IDS;
use super::row::Row;
use super::{DeletionQueue, Place, Store};
use candid::Principal;
use coppice_interface::{
    BlobDeletionError, BlobDeletionRetry, BlobDeletionState, CompleteBlobDeletionBatch, CompleteBlobDeletions,
    CompletedBlobDeletions,
};
use std::collections::BTreeSet;

const NS: u64 = 1_000_000_000;
/// Numbers of rows that a completion without a lease takes.
const MAX_ROWS: usize = 10_000;
/// The longest that a row backs off.
const MAX_BACK_OFF_SECS: u64 = 3_600;

/// What is with the record that goes with a completed row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecordEnd {
    /// It is gone, or goes by itself.
    Gone,
    /// It made difficulties, and is still there.
    Kept,
}

/// What the queue's owner has a say in when rows are completed.
pub trait Completion {
    /// Whether the message has room for another row, where the queue has changed so many pages.
    fn goes_on(&mut self, pages: u64) -> bool;

    /// Takes out the record that goes with a row.
    fn record_end(&mut self, txid: &[u8; 32]) -> RecordEnd;
}

/// How failures are taken.
#[derive(Clone, Copy)]
struct Failures {
    /// A row is given up that has failed so often.
    max_retries: u32,
    now_ns: u64,
    /// Seconds that a row backs off when it has failed once, of one that was leased; 0: it does not.
    base_secs: u64,
}

/// Until when a row backs off that has failed so often.
fn back_off(failures: Failures, retries: u32) -> u64 {
    let doubled = failures.base_secs.saturating_mul(1u64.checked_shl(retries.saturating_sub(1)).unwrap_or(u64::MAX));
    failures.now_ns.saturating_add(doubled.min(MAX_BACK_OFF_SECS) * NS)
}

impl DeletionQueue {
    /// Takes note of what a worker did without a lease, row by row as far as a message goes: a row wholly or not at all. Those under a
    /// live lease are left alone and named; those that the queue does not know, and those that were given up already and failed
    /// again, are passed over.
    ///
    /// # Errors
    /// `TooMany`, and nothing has changed.
    pub fn complete(
        &mut self,
        arg: &CompleteBlobDeletions,
        now_ns: u64,
        completion: &mut impl Completion,
    ) -> Result<CompletedBlobDeletions, BlobDeletionError> {
        if arg.completed_ids.len() + arg.failed_ids.len() > MAX_ROWS {
            return Err(BlobDeletionError::TooMany { limit: MAX_ROWS as u64 });
        }
        let failures = Failures { max_retries: arg.max_retries, now_ns, base_secs: 0 };
        let ids = (&arg.completed_ids[..], &arg.failed_ids[..]);
        Ok(self.message(now_ns, |store| store.work(ids, None, failures, completion)).unwrap_or_default())
    }

    /// The same of what a worker has leased; rows that are not of the lease are named and left alone. With this the lease is over,
    /// where nothing remains, and rows of it that were not named wait again. Said again, it is answered as before.
    ///
    /// # Errors
    /// `TooMany`, `UnknownToken`, `NotHolder`, `Expired`, and nothing has changed.
    pub fn complete_batch(
        &mut self,
        caller: Principal,
        arg: &CompleteBlobDeletionBatch,
        (now_ns, base_secs): (u64, u64),
        completion: &mut impl Completion,
    ) -> Result<CompletedBlobDeletions, BlobDeletionError> {
        if arg.completed_ids.len() + arg.failed_ids.len() > MAX_IDS {
            return Err(BlobDeletionError::TooMany { limit: MAX_IDS as u64 });
        }
        let failures = Failures { max_retries: arg.max_retries, now_ns, base_secs };
        let ids = (&arg.completed_ids[..], &arg.failed_ids[..]);
        let done = self.message(now_ns, |store| {
            let number = match store.shown_token(caller, &arg.token)? {
                Shown::Completed(answer) => return Ok(answer),
                Shown::Live(number) => number,
            };
            let done = store.work(ids, Some(number), failures, completion);
            if done.remaining == 0 {
                let acquired_at = store.leases.get(number).map_or(now_ns, |lease| lease.acquired_at);
                store.leases.end(&mut store.slots, number, store.root.ended, Some(&done));
                store.root.ended += 1;
                store.root.counters.completed += 1;
                store.root.counters.seconds += now_ns.saturating_sub(acquired_at) / NS;
                store.send_back(&mut |slots| completion.goes_on(slots.pages_changed()));
            }
            Ok(done)
        });
        done.unwrap_or(Err(BlobDeletionError::UnknownToken))
    }

    /// Takes a row out whose blob is gone, and says whether it has gone. A dead letter goes only where no record waits for it.
    ///
    /// # Errors
    /// `Leased`, and nothing has changed.
    pub fn remove(
        &mut self,
        id: u64,
        now_ns: u64,
        completion: &mut impl Completion,
    ) -> Result<bool, BlobDeletionError> {
        let removed = self.message(now_ns, |store| {
            let Some(mut row) = store.queued(id) else { return Ok(false) };
            if store.is_leased(&row) {
                return Err(BlobDeletionError::Leased);
            }
            if row.state == BlobDeletionState::Dead && row.txid.is_some() {
                return Ok(false);
            }
            Ok(store.succeeded(&mut row, completion) == Some(RecordEnd::Gone))
        });
        removed.unwrap_or(Ok(false))
    }

    /// Counts a failure. One that has failed as often as it may is given up; said again of a dead letter nothing changes.
    ///
    /// # Errors
    /// `NotFound`, `Leased`, and nothing has changed.
    pub fn increment(
        &mut self,
        id: u64,
        max_retries: u32,
        now_ns: u64,
    ) -> Result<BlobDeletionRetry, BlobDeletionError> {
        let failures = Failures { max_retries, now_ns, base_secs: 0 };
        let counted = self.message(now_ns, |store| {
            let mut row = store.queued(id).ok_or(BlobDeletionError::NotFound)?;
            if store.is_leased(&row) {
                return Err(BlobDeletionError::Leased);
            }
            if row.state != BlobDeletionState::Dead {
                store.failed(&mut row, failures);
            }
            Ok(BlobDeletionRetry { should_remove: row.state == BlobDeletionState::Dead, retry_count: row.retries })
        });
        counted.unwrap_or(Err(BlobDeletionError::NotFound))
    }
}

impl Store {
    /// A row of the queue: one that is held is none yet.
    fn queued(&mut self, id: u64) -> Option<Row> {
        let row = self.find(id).filter(|row| row.state != BlobDeletionState::Held);
        self.root.counters.not_found += u64::from(row.is_none());
        row
    }

    /// Works through what was completed and then through what failed; of a lease, or of none.
    fn work(
        &mut self,
        (completed, failed): (&[u64], &[u64]),
        lease: Option<u64>,
        failures: Failures,
        completion: &mut impl Completion,
    ) -> CompletedBlobDeletions {
        let both: BTreeSet<u64> = completed.iter().copied().collect();
        let ids = completed.iter().map(|id| (*id, true)).chain(failed.iter().map(|id| (*id, false)));
        let mut done = CompletedBlobDeletions::default();
        let mut seen = BTreeSet::new();
        let mut begun = 0;
        for (id, is_gone) in ids {
            if begun > 0 && !completion.goes_on(self.slots.pages_changed()) {
                break;
            }
            begun += 1;
            if !seen.insert((id, is_gone)) || !is_gone && both.contains(&id) {
                continue;
            }
            let row = self.find(id).filter(|row| row.state != BlobDeletionState::Held);
            let is_leased = row.as_ref().is_some_and(|row| self.is_leased(row));
            let is_meant = match lease {
                Some(number) => is_leased && row.as_ref().is_some_and(|row| row.lease == number),
                None => !is_leased,
            };
            match row {
                Some(mut row) if is_meant => self.take_note(&mut row, is_gone, failures, completion, &mut done),
                None if lease.is_none() => self.root.counters.not_found += 1,
                _ => done.skipped.push(id),
            }
        }
        done.remaining = (completed.len() + failed.len()) as u64 - begun;
        done
    }

    fn take_note(
        &mut self,
        row: &mut Row,
        is_gone: bool,
        failures: Failures,
        completion: &mut impl Completion,
        done: &mut CompletedBlobDeletions,
    ) {
        if is_gone {
            let end = self.succeeded(row, completion);
            done.removed += u64::from(end.is_some());
            done.dead += u64::from(end == Some(RecordEnd::Kept));
        } else if row.state != BlobDeletionState::Dead {
            self.failed(row, failures);
            let dead = row.state == BlobDeletionState::Dead;
            done.removed += u64::from(dead);
            done.dead += u64::from(dead);
            done.retries_incremented += u64::from(!dead);
        }
    }

    /// A row's blob is gone, and its record goes, too. Where that makes difficulties the row is given up; none: it was already.
    fn succeeded(&mut self, row: &mut Row, completion: &mut impl Completion) -> Option<RecordEnd> {
        self.taken[row.store_type as usize] = true;
        let end = row.txid.map_or(RecordEnd::Gone, |txid| completion.record_end(&txid));
        match end {
            RecordEnd::Gone => {
                self.remove(row);
                self.root.counters.processed += 1;
            }
            RecordEnd::Kept if row.state == BlobDeletionState::Dead => return None,
            RecordEnd::Kept => self.give_up(row),
        }
        Some(end)
    }

    /// A row's blob could not be deleted, of a row that was not given up.
    fn failed(&mut self, row: &mut Row, failures: Failures) {
        let was_leased = self.is_leased(row);
        self.taken[row.store_type as usize] = true;
        row.retries = row.retries.saturating_add(1);
        row.last_retry = failures.now_ns;
        self.root.counters.errors += 1;
        if row.retries >= failures.max_retries.max(1) {
            self.give_up(row);
        } else if was_leased && failures.base_secs > 0 {
            let until = back_off(failures, row.retries);
            self.move_to(row, Place::BackingOff(until));
        } else if row.state == BlobDeletionState::Leased {
            self.move_to(row, Place::Waiting);
        } else {
            row.save(&mut self.slots);
        }
    }

    fn give_up(&mut self, row: &mut Row) {
        self.move_to(row, Place::Dead);
        self.root.counters.given_up += 1;
    }
}
