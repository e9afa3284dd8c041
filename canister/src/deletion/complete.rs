//! What a worker says of rows: deleted, failed.

use super::answer::{Answer, at_most_many};
use super::header::Counter;
use super::lease::{MAX_IDS, Stage, UNKNOWN};
use super::row::Row;
use super::{DeletionQueue, Store};
use crate::platform::limits::NS;
use crate::storage::slots::Slots;
use candid::Principal;
use coppice_interface::{
    BlobDeletionError, BlobDeletionRetry, BlobDeletionState, CompleteBlobDeletionBatch, CompleteBlobDeletions,
    CompletedBlobDeletions,
};
use std::collections::BTreeSet;

/// Numbers of rows that a completion without a lease takes.
const MAX_ROWS: usize = 10_000;
/// The longest that a row backs off.
const MAX_BACK_OFF_SECS: u64 = 3_600;

/// Outcome for the record attached to a completed row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecordEnd {
    /// Removed, or will be without another call.
    Gone,
    /// Kept: it could not be removed.
    Kept,
}

/// Callbacks into the record store while rows are completed.
pub trait Completion {
    /// Returns whether the message has room for another row, after the queue has changed `pages` pages.
    fn goes_on(&mut self, pages: u64) -> bool;

    /// Removes the record attached to a row.
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

/// A worker's report about rows, and how far it is worked through.
struct Said<'a, C> {
    /// By [`List`].
    lists: [&'a [u64]; 3],
    /// All that no list names is gone.
    rest: bool,
    /// Rows of a higher height are left alone.
    up_to: u32,
    /// The lease of the rows; none: they are under none.
    lease: Option<u64>,
    failures: Failures,
    completion: &'a mut C,
    /// No row was dealt with yet: one at least fits a message.
    is_first: bool,
    done: CompletedBlobDeletions,
}

/// The list that names a row.
#[derive(Clone, Copy, PartialEq, Eq)]
enum List {
    Completed,
    Failed,
    /// Rows whose fate is not known: they stay leased until the lease expires.
    Unknown,
}

/// Until when a row backs off that has failed so often.
fn back_off(failures: Failures, retries: u32) -> u64 {
    let doubled = failures.base_secs.saturating_mul(1u64.checked_shl(retries.saturating_sub(1)).unwrap_or(u64::MAX));
    failures.now_ns.saturating_add(doubled.min(MAX_BACK_OFF_SECS) * NS)
}

impl DeletionQueue {
    /// Takes note of what a worker did without a lease, row by row as far as a message goes: a row wholly or not at all. Those under a
    /// live lease are left alone and named, as are those above the height up to which the worker has looked.
    ///
    /// # Errors
    /// `TooMany`, and nothing has changed.
    pub fn complete(
        &mut self,
        arg: &CompleteBlobDeletions,
        now_ns: u64,
        completion: &mut impl Completion,
    ) -> Answer<CompletedBlobDeletions> {
        at_most_many(arg.completed_ids.len() + arg.failed_ids.len(), MAX_ROWS)?;
        let max_retries = arg.max_retries.max(self.limits.least_retries);
        let failures = Failures { max_retries, now_ns, base_secs: 0 };
        let up_to = arg.up_to_height.unwrap_or(u32::MAX);
        let mut said =
            Said { up_to, ..Said::new([&arg.completed_ids, &arg.failed_ids, &[]], None, failures, completion) };
        if self.message(now_ns, |store| store.work(&mut said)).is_none() {
            // A queue that never had a row knows none of them.
            let mut seen = BTreeSet::new();
            said.done.skipped = said.lists.concat().into_iter().filter(|id| seen.insert(*id)).collect();
        }
        Ok(said.done)
    }

    /// The same of what a worker has leased; rows that are not of the lease are named and left alone. With this the lease ends, where
    /// nothing remains: rows of it that were not named wait again, and those of unknown fate when it would have expired. Said again, it
    /// is answered as before. Counts are those of the lease, not of the message.
    ///
    /// # Errors
    /// `TooMany`, `UnknownToken`, `NotHolder`, `Expired`, and nothing has changed.
    pub fn complete_batch(
        &mut self,
        caller: Principal,
        arg: &CompleteBlobDeletionBatch,
        (now_ns, base_secs): (u64, u64),
        completion: &mut impl Completion,
    ) -> Answer<CompletedBlobDeletions> {
        let lists = [&arg.completed_ids[..], &arg.failed_ids, arg.unknown_ids.as_deref().unwrap_or_default()];
        at_most_many(lists.iter().map(|ids| ids.len()).sum(), MAX_IDS)?;
        let max_retries = arg.max_retries.max(self.limits.least_retries);
        let failures = Failures { max_retries, now_ns, base_secs };
        let done = self.message(now_ns, |store| {
            let number = match store.shown_token(caller, &arg.token)? {
                Ok(number) => number,
                Err(answer) => return Ok(answer),
            };
            let rest = arg.rest.is_some();
            let mut said = Said { rest, ..Said::new(lists, Some(number), failures, completion) };
            store.work(&mut said);
            let Said { completion, mut done, .. } = said;
            let Some(lease) = store.leases.get_mut(number) else { return Ok(done) };
            let counted = lease.count([done.removed, done.retries_incremented, done.dead]);
            [done.removed, done.retries_incremented, done.dead] = counted;
            if done.remaining == 0 {
                let (acquired_at, kept) = (lease.acquired_at, lease.unknown);
                let stage = if kept > 0 { Stage::Completed } else { Stage::Over };
                store.end(number, now_ns, stage, Some(&done));
                store.root.tally(Counter::Completed, 1);
                store.root.tally(Counter::Seconds, now_ns.saturating_sub(acquired_at) / NS);
                store.send_back(&mut |slots| completion.goes_on(slots.pages_changed()));
            }
            Ok(done)
        });
        done.unwrap_or(Err(BlobDeletionError::UnknownToken))
    }

    /// Takes a row out whose blob is gone, and says whether it has gone. A dead letter goes only where no record waits for it, and a row
    /// only where its height is this one or lower.
    ///
    /// # Errors
    /// `Leased`, and nothing has changed.
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

    /// Counts a failure. One that has failed as often as it may is given up; said again of a dead letter nothing changes.
    ///
    /// # Errors
    /// `NotFound`, `Leased`, and nothing has changed.
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

impl<'a, C: Completion> Said<'a, C> {
    fn new(lists: [&'a [u64]; 3], lease: Option<u64>, failures: Failures, completion: &'a mut C) -> Self {
        let done = CompletedBlobDeletions::default();
        Self { lists, rest: false, up_to: u32::MAX, lease, failures, completion, is_first: true, done }
    }

    /// Returns whether the message has room for another row. The first row always fits.
    fn has_room(&mut self, slots: &Slots) -> bool {
        std::mem::take(&mut self.is_first) || self.completion.goes_on(slots.pages_changed())
    }
}

impl Store {
    /// A row of the queue: one that is held is none yet.
    ///
    /// # Errors
    /// `Leased`.
    fn queued(&mut self, id: u64) -> Answer<Option<Row>> {
        let row = self.find(id).filter(|row| row.state != BlobDeletionState::Held);
        self.root.tally(Counter::NotFound, u64::from(row.is_none()));
        if row.is_some_and(|row| self.is_leased(&row)) { Err(BlobDeletionError::Leased) } else { Ok(row) }
    }

    /// Works through what was completed, what failed, what is not known, and then the rest; of a lease, or of none.
    fn work(&mut self, said: &mut Said<impl Completion>) {
        let lists = said.lists.into_iter().zip([List::Completed, List::Failed, List::Unknown]);
        let all = lists.flat_map(|(ids, list)| ids.iter().map(move |id| (*id, list)));
        let mut seen = BTreeSet::new();
        let mut looked_at = 0;
        for (id, list) in all {
            // A row counts in the first list that names it.
            if seen.insert(id) {
                let row = self.find(id);
                let queued = row.filter(|row| row.state != BlobDeletionState::Held);
                let is_leased = queued.as_ref().is_some_and(|row| self.is_leased(row));
                let is_meant = |row: &Row| match said.lease {
                    Some(number) => is_leased && row.lease == number,
                    None => !is_leased && row.height <= said.up_to,
                };
                let acts = match queued.filter(is_meant) {
                    Some(_) if !said.has_room(&self.slots) => break,
                    Some(mut row) => self.take_note(&mut row, list, said),
                    None => false,
                };
                if !acts {
                    self.root.tally(Counter::NotFound, u64::from(said.lease.is_none() && queued.is_none()));
                    let failed_under =
                        |row: Row| row.state != BlobDeletionState::Leased && Some(row.lease) == said.lease;
                    let was_done = row.map_or((1..self.root.next_id).contains(&id), failed_under);
                    if was_done { &mut said.done.already } else { &mut said.done.skipped }.push(id);
                }
            }
            looked_at += 1;
        }
        said.done.remaining = said.lists.iter().map(|ids| ids.len() as u64).sum::<u64>() - looked_at;
        if let Some(number) = said.lease.filter(|_| said.rest && said.done.remaining == 0) {
            self.work_rest(number, said);
        }
    }

    /// Completes the rows of a lease that no list names.
    fn work_rest(&mut self, number: u64, said: &mut Said<impl Completion>) {
        while let Some(lease) = self.leases.get_mut(number).filter(|lease| lease.rows > lease.unknown) {
            let left = u64::from(lease.rows - lease.unknown);
            let Some(mut row) = lease.rows(&self.slots).next() else { return lease.forget_rows() };
            if !said.has_room(&self.slots) {
                said.done.remaining = left;
                return;
            }
            self.take_note(&mut row, List::Completed, said);
        }
    }

    /// Answers whether something was done.
    fn take_note(&mut self, row: &mut Row, list: List, said: &mut Said<impl Completion>) -> bool {
        let done = &mut said.done;
        match list {
            List::Completed => {
                let end = self.succeeded(row, said.completion);
                done.removed += u64::from(end.is_some());
                done.dead += u64::from(end == Some(RecordEnd::Kept));
                return end.is_some();
            }
            List::Failed if row.state == BlobDeletionState::Dead => return false,
            List::Failed => {
                self.failed(row, said.failures);
                let dead = row.state == BlobDeletionState::Dead;
                done.removed += u64::from(dead);
                done.dead += u64::from(dead);
                done.retries_incremented += u64::from(!dead);
            }
            List::Unknown => {
                if let Some(lease) = self.leases.get_mut(row.lease) {
                    lease.take_out(&mut self.slots, row);
                    row.order = UNKNOWN;
                    row.save(&mut self.slots);
                    lease.push(&mut self.slots, row.slot);
                    lease.unknown += 1;
                }
            }
        }
        true
    }

    /// A row's blob is gone, and its record goes, too. Where that makes difficulties the row is given up; none: it was already.
    fn succeeded(&mut self, row: &mut Row, completion: &mut impl Completion) -> Option<RecordEnd> {
        self.taken[row.store_type as usize] = true;
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

    /// A row's blob could not be deleted, of a row that was not given up.
    fn failed(&mut self, row: &mut Row, failures: Failures) {
        let was_leased = self.is_leased(row);
        if !was_leased && row.state != BlobDeletionState::Leased {
            row.lease = 0;
        }
        self.taken[row.store_type as usize] = true;
        row.retries = row.retries.saturating_add(1);
        row.last_retry = failures.now_ns;
        self.root.tally(Counter::Errors, 1);
        if row.retries >= failures.max_retries.max(1) {
            self.give_up(row);
        } else if was_leased && failures.base_secs > 0 {
            self.leave(row);
            row.order = back_off(failures, row.retries);
            self.enter(row, BlobDeletionState::BackingOff);
        } else if row.state == BlobDeletionState::Leased {
            self.move_to(row, BlobDeletionState::Waiting);
        } else {
            row.save(&mut self.slots);
        }
    }

    fn give_up(&mut self, row: &mut Row) {
        self.move_to(row, BlobDeletionState::Dead);
        self.root.tally(Counter::GivenUp, 1);
    }
}
