//! Completion: workers report rows as deleted, failed or of unknown fate (the blob's store was asked and has not answered).
//!
//! ```text
//! deleted ─▶ succeeded: its record is removed, then the row; if the record cannot be removed: dead
//! failed  ─▶ failed: dead after enough failures; otherwise a row under a live lease backs off, and others wait
//! unknown ─▶ stays leased until the lease expires
//! ```
//! The caller implements [`Completion`], because the queue does not import the store of records (`external/complete.rs`).

use super::answer::{Answer, Reply, at_most_many};
use super::header::Counter;
use super::lease::{MAX_IDS, Stage, UNKNOWN};
use super::row::Row;
use super::{DeletionQueue, Store};
use candid::Principal;
use ic_coppice_interface::{
    BlobDeletionError, BlobDeletionRetry, BlobDeletionState, CompleteBlobDeletionBatch, CompleteBlobDeletions,
    CompletedBlobDeletions,
};
use ic_coppice_storage::NS;
use std::collections::BTreeSet;

/// Maximum row numbers in a completion without a lease.
pub const MAX_ROWS: usize = 10_000;
/// Longest back-off of a row.
const MAX_BACK_OFF_SECS: u64 = 3_600;

/// Outcome for the record attached to a completed row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecordEnd {
    /// The record is removed, or will be without another call.
    Gone,
    /// The record is kept because it could not be removed.
    Kept,
}

/// Callbacks into the record store while rows are completed.
pub trait Completion {
    /// Returns whether the message has room for another row. The first row always fits.
    fn has_budget(&mut self) -> bool;

    /// Removes the record attached to a row.
    fn record_end(&mut self, txid: &[u8; 32]) -> RecordEnd;
}

/// Handling of failures.
#[derive(Clone, Copy)]
struct Failures {
    /// Failures after which a row is given up.
    max_retries: u32,
    now_ns: u64,
    /// Seconds that a leased row backs off after its first failure; 0: no back-off.
    base_secs: u64,
}

/// A worker's report about rows, and the progress through it.
struct Report<'a, C> {
    /// Row numbers by [`List`].
    lists: [&'a [u64]; 3],
    /// Rows above this height are left alone.
    up_to: u32,
    /// The lease of the rows; `None` if they have none.
    lease: Option<u64>,
    failures: Failures,
    completion: &'a mut C,
    done: CompletedBlobDeletions,
}

/// The list that names a row.
#[derive(Clone, Copy, PartialEq, Eq)]
enum List {
    Completed,
    Failed,
    /// Rows of unknown fate, which stay leased until the lease expires.
    Unknown,
}

impl DeletionQueue {
    /// Applies a worker's report without a lease, as many rows as fit in a message, each row completely. Rows under a live lease and rows
    /// above `up_to_height` are left alone and returned as skipped.
    ///
    /// # Errors
    /// `TooMany`; nothing has changed.
    pub fn complete(&mut self, arg: &CompleteBlobDeletions, now_ns: u64, completion: &mut impl Completion) -> Reply {
        at_most_many(arg.completed_ids.len() + arg.failed_ids.len(), MAX_ROWS)?;
        let max_retries = arg.max_retries.max(self.limits.least_retries);
        let failures = Failures { max_retries, now_ns, base_secs: 0 };
        let (lists, up_to) = ([&arg.completed_ids[..], &arg.failed_ids, &[]], arg.up_to_height.unwrap_or(u32::MAX));
        let done = CompletedBlobDeletions::default();
        let mut report = Report { lists, up_to, lease: None, failures, completion, done };
        if self.message(now_ns, |store| store.work(&mut report)).is_none() {
            // A queue that never had a row skips all numbers.
            let mut seen = BTreeSet::new();
            report.done.skipped = report.lists.concat().into_iter().filter(|id| seen.insert(*id)).collect();
        }
        Ok(report.done)
    }

    /// Applies a worker's report about its lease. Rows of other leases are left alone and returned as skipped. If nothing remains, the
    /// lease ends: its rows that were not named wait again, and its rows of unknown fate wait again when the lease would have expired. A
    /// repeated report gets the same reply. Counts are those of the lease, not of the message.
    ///
    /// # Errors
    /// `TooMany`, `UnknownToken`, `NotHolder`, `Expired`; nothing has changed.
    pub fn complete_batch(
        &mut self,
        caller: Principal,
        arg: &CompleteBlobDeletionBatch,
        (now_ns, base_secs): (u64, u64),
        completion: &mut impl Completion,
    ) -> Reply {
        let lists = [&arg.completed_ids[..], &arg.failed_ids, arg.unknown_ids.as_deref().unwrap_or_default()];
        at_most_many(lists.iter().map(|ids| ids.len()).sum(), MAX_IDS)?;
        let max_retries = arg.max_retries.max(self.limits.least_retries);
        let failures = Failures { max_retries, now_ns, base_secs };
        let done = self.message(now_ns, |store| {
            let number = match store.shown_token(caller, &arg.token)? {
                Ok(number) => number,
                Err(answer) => return Ok(answer),
            };
            let (up_to, done) = (u32::MAX, CompletedBlobDeletions::default());
            let mut report = Report { lists, up_to, lease: Some(number), failures, completion, done };
            store.work(&mut report);
            if arg.rest.is_some() && report.done.remaining == 0 {
                store.work_rest(number, &mut report);
            }
            let Report { completion, mut done, .. } = report;
            let Some(lease) = store.leases.get_mut(number) else { return Ok(done) };
            let counted = lease.count([done.removed, done.retries_incremented, done.dead]);
            [done.removed, done.retries_incremented, done.dead] = counted;
            if done.remaining == 0 {
                let (acquired_at_ns, kept) = (lease.acquired_at_ns, lease.unknown);
                let stage = if kept > 0 { Stage::Completed } else { Stage::Over };
                store.end(number, now_ns, stage, Some(&done));
                store.root.tally(Counter::Completed, 1);
                store.root.tally(Counter::Seconds, now_ns.saturating_sub(acquired_at_ns) / NS);
                store.send_back(&mut || completion.has_budget());
            }
            Ok(done)
        });
        done.unwrap_or(Err(BlobDeletionError::UnknownToken))
    }

    /// Removes a row whose blob is deleted, and returns whether it was removed. Keeps dead-letter rows with a record, and rows above the
    /// height `up_to`.
    ///
    /// # Errors
    /// `Leased`; nothing has changed.
    pub fn remove(&mut self, id: u64, up_to: u32, now_ns: u64, completion: &mut impl Completion) -> Answer<bool> {
        let removed = self.message(now_ns, |store| {
            let Some(mut row) = store.queued(id)? else { return Ok(false) };
            if row.height > up_to || row.state == BlobDeletionState::Dead && row.txid.is_some() {
                return Ok(false);
            }
            Ok(store.succeeded(&mut row, completion) == Some(RecordEnd::Gone))
        });
        removed.unwrap_or(Ok(false))
    }

    /// Counts a failure of a row. Gives the row up at `max_retries` failures. Changes nothing for a dead-letter row.
    ///
    /// # Errors
    /// `NotFound`, `Leased`; nothing has changed.
    pub fn increment(&mut self, id: u64, max_retries: u32, now_ns: u64) -> Answer<BlobDeletionRetry> {
        let max_retries = max_retries.max(self.limits.least_retries);
        let failures = Failures { max_retries, now_ns, base_secs: 0 };
        let counted = self.message(now_ns, |store| {
            let mut row = store.queued(id)?.ok_or(BlobDeletionError::NotFound)?;
            if row.state != BlobDeletionState::Dead {
                store.failed(&mut row, failures);
            }
            Ok(BlobDeletionRetry { should_remove: row.state == BlobDeletionState::Dead, retry_count: row.retries })
        });
        counted.unwrap_or(Err(BlobDeletionError::NotFound))
    }
}

impl Store {
    /// Returns a row unless it is only held.
    ///
    /// # Errors
    /// `Leased`.
    fn queued(&mut self, id: u64) -> Answer<Option<Row>> {
        let row = self.find(id).filter(|row| row.state != BlobDeletionState::Held);
        self.root.tally(Counter::NotFound, u64::from(row.is_none()));
        if row.is_some_and(|row| self.is_leased(&row)) { Err(BlobDeletionError::Leased) } else { Ok(row) }
    }

    /// Works through the lists of a report: completed, failed, unknown.
    fn work(&mut self, report: &mut Report<impl Completion>) {
        let lists = report.lists.into_iter().zip([List::Completed, List::Failed, List::Unknown]);
        let all = lists.flat_map(|(ids, list)| ids.iter().map(move |id| (*id, list)));
        let mut seen = BTreeSet::new();
        let mut looked_at = 0;
        for (id, list) in all {
            // A row counts in the first list that names it.
            if seen.insert(id) {
                let row = self.find(id);
                let queued = row.filter(|row| row.state != BlobDeletionState::Held);
                let is_leased = queued.as_ref().is_some_and(|row| self.is_leased(row));
                let is_meant = |row: &Row| match report.lease {
                    Some(number) => is_leased && row.lease == number,
                    None => !is_leased && row.height <= report.up_to,
                };
                let acts = match queued.filter(is_meant) {
                    Some(_) if !report.completion.has_budget() => break,
                    Some(mut row) => self.apply_outcome(&mut row, list, report),
                    None => false,
                };
                if !acts {
                    self.root.tally(Counter::NotFound, u64::from(report.lease.is_none() && queued.is_none()));
                    let failed_under =
                        |row: Row| row.state != BlobDeletionState::Leased && Some(row.lease) == report.lease;
                    let was_done = row.map_or((1..self.root.next_id).contains(&id), failed_under);
                    if was_done { &mut report.done.already } else { &mut report.done.skipped }.push(id);
                }
            }
            looked_at += 1;
        }
        report.done.remaining = report.lists.iter().map(|ids| ids.len() as u64).sum::<u64>() - looked_at;
    }

    /// Completes the rows of a lease that no list names.
    fn work_rest(&mut self, number: u64, report: &mut Report<impl Completion>) {
        while let Some(lease) = self.leases.get_mut(number).filter(|lease| lease.rows > lease.unknown) {
            let left = u64::from(lease.rows - lease.unknown);
            let Some(mut row) = lease.rows(&self.slots).next() else { return lease.forget_rows() };
            if !report.completion.has_budget() {
                report.done.remaining = left;
                return;
            }
            self.apply_outcome(&mut row, List::Completed, report);
        }
    }

    /// Applies a report to a row. Returns whether the row changed.
    fn apply_outcome(&mut self, row: &mut Row, list: List, report: &mut Report<impl Completion>) -> bool {
        let done = &mut report.done;
        match list {
            List::Completed => {
                let end = self.succeeded(row, report.completion);
                done.removed += u64::from(end.is_some());
                done.dead += u64::from(end == Some(RecordEnd::Kept));
                return end.is_some();
            }
            List::Failed if row.state == BlobDeletionState::Dead => return false,
            List::Failed => {
                self.failed(row, report.failures);
                let dead = row.state == BlobDeletionState::Dead;
                done.removed += u64::from(dead);
                done.dead += u64::from(dead);
                done.retries_incremented += u64::from(!dead);
            }
            List::Unknown => {
                if let Some(lease) = self.leases.get_mut(row.lease) {
                    lease.unlink(&mut self.slots, row);
                    row.order = UNKNOWN;
                    row.save(&mut self.slots);
                    lease.link(&mut self.slots, row.slot);
                    lease.unknown += 1;
                }
            }
        }
        true
    }

    /// Removes a row whose blob is deleted, and its record. If the record cannot be removed, gives the row up, or returns `None` if the row
    /// was dead already.
    fn succeeded(&mut self, row: &mut Row, completion: &mut impl Completion) -> Option<RecordEnd> {
        let end = row.txid.map_or(RecordEnd::Gone, |txid| completion.record_end(&txid));
        match end {
            RecordEnd::Gone => {
                self.remove(row);
                self.root.tally(Counter::Processed, 1);
            }
            RecordEnd::Kept if row.state == BlobDeletionState::Dead => return None,
            RecordEnd::Kept => self.give_up(row),
        }
        Some(end)
    }

    /// Counts a failure of a row that is not dead: gives the row up, or makes it back off or wait.
    fn failed(&mut self, row: &mut Row, failures: Failures) {
        let was_leased = self.is_leased(row);
        if !was_leased && row.state != BlobDeletionState::Leased {
            row.lease = 0;
        }
        row.retries = row.retries.saturating_add(1);
        row.last_retry = failures.now_ns;
        self.root.tally(Counter::Errors, 1);
        if row.retries >= failures.max_retries.max(1) {
            self.give_up(row);
        } else if was_leased && failures.base_secs > 0 {
            self.leave(row);
            let doubled = 1u64.checked_shl(row.retries.saturating_sub(1)).unwrap_or(u64::MAX);
            let secs = failures.base_secs.saturating_mul(doubled).min(MAX_BACK_OFF_SECS);
            row.order = failures.now_ns.saturating_add(secs * NS);
            self.enter(row, BlobDeletionState::BackingOff);
        } else if row.state == BlobDeletionState::Leased {
            self.move_to(row, BlobDeletionState::Waiting);
        } else {
            row.save(&mut self.slots);
        }
    }

    /// Makes a row a dead letter.
    fn give_up(&mut self, row: &mut Row) {
        self.move_to(row, BlobDeletionState::Dead);
        self.root.tally(Counter::GivenUp, 1);
    }
}
