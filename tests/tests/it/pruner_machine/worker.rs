//! The queue of external blobs, and the worker that deletes them.

use super::Outcome;
use super::jobs::Cause;
use super::machine::{Machine, WORKER};
use super::steps::Pick;
use super::view::View;
use coppice_model::ensure;
use coppice_model::records::Txid;
use coppice_tests::client::Answered;
use coppice_tests::coppice::Who;
use ic_coppice_interface::*;
use std::collections::{BTreeMap, BTreeSet};

impl Machine {
    /// Checks that each record that is being deleted has a row, waiting or given up, with the name of its blob, and that there are no other
    /// rows.
    pub fn check_queue(&self, view: &View) -> Outcome {
        let mut of: BTreeSet<Txid> = BTreeSet::new();
        for row in view.pending.values().chain(view.dead.values()) {
            let txid = row.txid.as_ref().and_then(|txid| txid[..].try_into().ok());
            let txid: Txid = txid.ok_or_else(|| format!("a row without a record: {row:?}"))?;
            ensure!(of.insert(txid), "two rows of {}", self.family.name(&txid));
            let blob =
                self.records.0.get(&txid).filter(|record| record.deleting).and_then(|record| record.blob.as_ref());
            let Some(blob) = blob else { return Err(format!("{} is not going: {row:?}", self.family.name(&txid))) };
            let file_type = if blob.file_type == FileType::Tx { "tx" } else { "outputs" };
            let named = (&row.blob_key, &row.file_type[..], row.store_type);
            let height = self.records.0[&txid].delete_at_height;
            ensure!(Some(row.delete_at_height) == height, "{row:?} is not at its record's height, {height:?}");
            ensure!(named == (&blob.blob_key, file_type, blob.store_type), "{row:?} is not a row of {blob:?}");
        }
        let going = self.records.0.iter().filter(|(_, record)| record.deleting).map(|(txid, _)| *txid).collect();
        let names = self.family.names(of.symmetric_difference(&going));
        // A record with many inputs stays in deletion when its row is done, and without a row.
        let waits = of.symmetric_difference(&going).all(|txid| going.contains(txid) && self.records.0[txid].is_large());
        ensure!(waits, "rows and records in deletion differ in {names}");
        let counted = (view.status.blobs_pending, view.status.blobs_dead);
        let rows = (view.pending.len() as u64, view.dead.len() as u64);
        ensure!(counted == rows, "(pending, dead) rows are {rows:?}, and {counted:?} are counted");
        Ok(())
    }

    fn rows(&self) -> &BTreeMap<u64, BlobDeletion> {
        &self.view.as_ref().expect("the history has begun").pending
    }

    /// The worker reports some rows as deleted and some as failed.
    pub fn work(&mut self, done: u8, failed: u8, max_retries: u32) -> Outcome {
        let few: Vec<BlobDeletion> = self.coppice.anyone().get_pending_blob_deletions(self.tip, 2u32, None).answer();
        let right = |row: &BlobDeletion| self.rows().get(&row.id) == Some(row) && row.delete_at_height <= self.tip;
        let due_rows = self.rows().values().filter(|row| row.delete_at_height <= self.tip).count();
        ensure!(few.len() == due_rows.min(2) && few.iter().all(right), "of {:?} are given {few:?}", self.rows());
        let ids = |mask: u8| -> Vec<u64> {
            self.rows().keys().zip(0u32..).filter(|(_, bit)| mask >> (bit % 8) & 1 == 1).map(|(id, _)| *id).collect()
        };
        // A number that the queue does not know is skipped.
        let completed_ids: Vec<u64> = ids(done).into_iter().chain([u64::MAX]).collect();
        self.complete(completed_ids, ids(failed), max_retries)
    }

    pub fn complete(&mut self, completed_ids: Vec<u64>, failed_ids: Vec<u64>, max_retries: u32) -> Outcome {
        let (mut rows, mut dead) = (self.rows().clone(), BTreeSet::new());
        let mut expected = CompletedBlobDeletions::default();
        let mut gone: Vec<Txid> = Vec::new();
        for id in &completed_ids {
            if let Some(row) = rows.remove(id) {
                expected.removed += 1;
                gone.push(row.txid.as_deref().and_then(|txid| txid[..].try_into().ok()).expect("a row of a record"));
            } else {
                expected.skipped.push(*id);
            }
        }
        for id in failed_ids.iter().filter(|id| !completed_ids.contains(id)) {
            let Some(row) = rows.get_mut(id) else { continue };
            row.retry_count += 1;
            if row.retry_count >= max_retries.max(1) {
                rows.remove(id);
                dead.insert(*id);
                expected.removed += 1;
                expected.dead += 1;
            } else {
                expected.retries_incremented += 1;
            }
        }
        let names = self.family.names(&gone);
        self.note(format!("a worker did those of {names}, and failed at {failed_ids:?} ({max_retries} tries)"));
        let at = self.at(self.heights.current.max(1));
        let arg = CompleteBlobDeletions { completed_ids, failed_ids, max_retries, ..Default::default() };
        let answer: Result<CompletedBlobDeletions, BlobDeletionError> =
            self.call(WORKER, "complete_blob_deletions", (arg,))?;
        ensure!(answer.as_ref() == Ok(&expected), "the answer to the worker is {answer:?}, expected {expected:?}");
        dead.extend(self.view.as_ref().expect("the history has begun").dead.keys());
        // The next run updates the parents of a record with many inputs.
        gone.retain(|txid| !self.records.0[txid].is_large());
        for txid in &gone {
            self.records.remove(txid, at);
            self.deleted.insert(*txid);
            self.touch(*txid);
        }
        self.seen_often("a blob was deleted with its record", gone.len() as u64);
        self.seen_often("a blob is retried", expected.retries_incremented);
        self.seen_often("a blob was given up", expected.dead);
        self.look(Cause::Nothing)?;
        let retries = |rows: &BTreeMap<u64, BlobDeletion>| -> Vec<(u64, u32)> {
            rows.values().map(|row| (row.id, row.retry_count)).collect()
        };
        let (shown, expected) = (retries(self.rows()), retries(&rows));
        ensure!(shown == expected, "rows and retries are {shown:?}, expected {expected:?}");
        let shown: BTreeSet<u64> = self.view.as_ref().expect("it was looked at").dead.keys().copied().collect();
        ensure!(shown == dead, "{shown:?} are given up, expected {dead:?}");
        Ok(())
    }

    /// An operator retries a row that was given up, or one that was not.
    pub fn retry(&mut self, Pick(number): Pick) -> Outcome {
        let view = self.view.as_ref().expect("the history has begun");
        let dead: Vec<u64> = view.dead.keys().copied().collect();
        let id = match dead.len() {
            0 => view.pending.keys().next().copied().unwrap_or(1),
            some => dead[usize::from(number) % some],
        };
        let waits = view.pending.len();
        self.note(format!("retry_blob_deletions({id})"));
        let answer: Result<RetriedBlobDeletions, BlobDeletionError> =
            self.call(Who::Controller, "retry_blob_deletions", (RetryBlobDeletions::Ids(vec![id]),))?;
        let retried = answer.map_err(|error| format!("{error:?}"))?;
        self.look(Cause::Nothing)?;
        if dead.is_empty() {
            ensure!(retried.skipped == [id], "nothing was given up: {retried:?}");
            return Ok(());
        }
        ensure!(retried.retried == 1, "row {id} was given up: {retried:?}");
        self.seen("a blob that was given up is retried");
        let row = self.rows().get(&id).cloned();
        let waits_anew = row.as_ref().is_some_and(|row| row.retry_count == 0) && self.rows().len() == waits + 1;
        ensure!(waits_anew, "{row:?} does not wait");
        Ok(())
    }
}
