//! Dead-letter rows: retried by an operator, and dropped if there are too many.

use super::answer::{Answer, at_most_many};
use super::header::Counter;
use super::list::Merge;
use super::row::Row;
use super::{DeletionQueue, MOST_INSTRUCTIONS, Store, row_meter};
use ic_coppice_interface::{BlobDeletionState, RetriedBlobDeletions, RetryBlobDeletions};
use ic_coppice_storage::{MOST_PAGES, Meter, log};

/// Maximum row numbers in a call.
const MAX_IDS: usize = 10_000;

impl DeletionQueue {
    /// Makes dead-letter rows wait again with their retries reset, as many as fit in a message.
    ///
    /// # Errors
    /// `TooMany`; nothing has changed.
    pub fn retry(&mut self, arg: &RetryBlobDeletions, now_ns: u64) -> Answer<RetriedBlobDeletions> {
        let ids = match arg {
            RetryBlobDeletions::Ids(ids) => &ids[..],
            RetryBlobDeletions::StoreType(_) => &[],
        };
        at_most_many(ids.len(), MAX_IDS)?;
        let retried = self.message(now_ns, |store| store.retry(arg, &mut row_meter(MOST_INSTRUCTIONS, MOST_PAGES)));
        Ok(retried.unwrap_or_else(|| RetriedBlobDeletions { skipped: ids.to_vec(), ..Default::default() }))
    }
}

impl Store {
    fn retry(&mut self, arg: &RetryBlobDeletions, meter: &mut Meter) -> RetriedBlobDeletions {
        let mut done = RetriedBlobDeletions::default();
        match arg {
            RetryBlobDeletions::Ids(ids) => {
                for (at, id) in ids.iter().enumerate() {
                    if !meter.has_room() {
                        done.remaining = (ids.len() - at) as u64;
                        break;
                    }
                    match self.find(*id).filter(|row| row.state == BlobDeletionState::Dead) {
                        Some(row) => self.revive(row, &mut done),
                        None => done.skipped.push(*id),
                    }
                }
            }
            RetryBlobDeletions::StoreType(of) => {
                let mut merge = Merge::new(self, self.root.dead[*of as usize], (0, 0));
                while let Some(slot) = merge.next(self, u64::MAX) {
                    if let Some(row) = Row::read(&self.slots, slot) {
                        self.revive(row, &mut done);
                    }
                    if !meter.has_room() {
                        done.remaining = self.root.counts[BlobDeletionState::Dead as usize][*of as usize];
                        break;
                    }
                }
            }
        }
        done
    }

    /// Returns a dead-letter row to its lane.
    fn revive(&mut self, mut row: Row, done: &mut RetriedBlobDeletions) {
        (row.retries, row.lease) = (0, 0);
        self.move_to(&mut row, BlobDeletionState::Waiting);
        done.retried += 1;
    }

    /// Drops the oldest dead-letter rows without a record above `most` of these.
    pub fn bound_dead(&mut self, most: u64, mut meter: Meter) {
        let (mut dropped, mut last) = (0, 0);
        while self.root.dead_alone > most && meter.has_room() {
            let mut oldest = Merge::new(self, self.root.dead.map(|[alone, _]| alone), (0, 0));
            let Some(row) = oldest.next(self, u64::MAX).and_then(|slot| Row::read(&self.slots, slot)) else { break };
            self.remove(&row);
            (dropped, last) = (dropped + 1, row.id);
        }
        if dropped > 0 {
            self.root.tally(Counter::Dropped, dropped);
            log::info(&format!(
                "deletion queue: {dropped} dead letters up to row {last} were dropped because there are more than max_dead_blob_deletions \
                 ({most}); their blobs stay where they are"
            ));
        }
    }
}
