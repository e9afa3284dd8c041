//! Reports of deleted blobs while deletions are stopped: each row is marked as *reported deleted*, and nothing else changes.
//!
//! A worker that sent its requests to the blob's store before the stop cannot cancel the requests. The worker's report deletes no row and no
//! record, because an operator decides after the stop about the row; the mark tells the operator that the blob may be gone. The mark stays
//! until the row is scheduled anew.

use super::answer::{Answer, Reply, at_most_many};
use super::lease::MAX_IDS;
use super::row::Row;
use super::token::Token;
use super::{DeletionQueue, Store, complete};
use candid::Principal;
use ic_coppice_interface::{BlobDeletionError, BlobDeletionState, CompleteBlobDeletionBatch, CompleteBlobDeletions};
use std::collections::BTreeSet;

impl DeletionQueue {
    /// Marks the completed rows of a report without a lease. Rows of a lease and rows above `up_to_height` are not marked.
    ///
    /// # Errors
    /// `TooMany`; otherwise always `Stopped`.
    pub fn report(&mut self, arg: &CompleteBlobDeletions, now_ns: u64) -> Reply {
        at_most_many(arg.completed_ids.len() + arg.failed_ids.len(), complete::MAX_ROWS)?;
        let up_to = arg.up_to_height.unwrap_or(u32::MAX);
        self.message(now_ns, |store| store.report(&arg.completed_ids, None, up_to));
        Err(BlobDeletionError::Stopped)
    }

    /// Marks a row whose blob is reported as deleted, as [`report`](Self::report) does.
    ///
    /// # Errors
    /// Always `Stopped`.
    pub fn report_row(&mut self, id: u64, up_to: u32, now_ns: u64) -> Answer<bool> {
        self.message(now_ns, |store| store.report(&[id], None, up_to));
        Err(BlobDeletionError::Stopped)
    }

    /// Marks the completed rows of a report about a lease, except rows of other leases. A lease that was completed before the stop repeats its
    /// reply.
    ///
    /// # Errors
    /// `TooMany`, `UnknownToken`, `NotHolder`; otherwise always `Stopped`.
    pub fn report_batch(&mut self, caller: Principal, arg: &CompleteBlobDeletionBatch, now_ns: u64) -> Reply {
        let others = [&arg.failed_ids[..], arg.unknown_ids.as_deref().unwrap_or_default()];
        at_most_many(arg.completed_ids.len() + others.iter().map(|ids| ids.len()).sum::<usize>(), MAX_IDS)?;
        let reported = self.message(now_ns, |store| {
            match store.shown_token(caller, &arg.token) {
                Ok(Err(reply)) => return Ok(reply),
                // The stop has ended the lease.
                Ok(Ok(_)) | Err(BlobDeletionError::Expired) => {}
                Err(error) => return Err(error),
            }
            let number = Token::parse(&arg.token).map(|token| token.number);
            store.report(&arg.completed_ids, number, u32::MAX);
            if let (Some(number), Some(_)) = (number, arg.rest) {
                let named: BTreeSet<u64> = others.concat().into_iter().collect();
                let rows = store.leases.get(number).map(|lease| lease.rows(&store.slots).collect::<Vec<_>>());
                let rest = rows.into_iter().flatten().filter(|row| !named.contains(&row.id));
                rest.for_each(|row| store.mark_reported(row));
            }
            Err(BlobDeletionError::Stopped)
        });
        reported.unwrap_or(Err(BlobDeletionError::UnknownToken))
    }
}

impl Store {
    /// Marks rows that a report without a lease, or about this lease, would complete.
    fn report(&mut self, ids: &[u64], lease: Option<u64>, up_to: u32) {
        for id in ids {
            let row = self.find(*id).filter(|row| row.state != BlobDeletionState::Held && row.height <= up_to);
            let may_report = |row: &Row| !self.is_leased(row) || Some(row.lease) == lease;
            if let Some(row) = row.filter(may_report) {
                self.mark_reported(row);
            }
        }
    }

    fn mark_reported(&mut self, mut row: Row) {
        if !row.reported {
            row.reported = true;
            row.save(&mut self.slots);
        }
    }
}
