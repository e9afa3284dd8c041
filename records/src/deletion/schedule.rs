//! Scheduling: rows that are created or removed without a worker, of blobs that callers schedule or cancel, and of UTXO records.
//!
//! ```text
//! utxo_create ─▶ admits, hold: the row is held ─▶ the pruner deletes the record ─▶ release: the row waits
//! schedule_blob_deletion ─▶ schedule: the row waits ─▶ cancel: the row is removed
//! ```

use super::answer::Answer;
use super::header::Counter;
use super::row::{Name, Row, at};
use super::{DeletionQueue, Store};
use ic_coppice_interface::{
    BlobDeletionError, BlobDeletionState, CancelledBlobDeletion, NoMemory, NotReady, ScheduledBlobDeletion, UtxoRefusal,
};
use ic_coppice_storage::GrowError;

impl DeletionQueue {
    /// Schedules the deletion of a blob from a height on. An existing row of this name keeps its number, gets the height, leaves its lease,
    /// and its retries restart at 0.
    ///
    /// # Errors
    /// `Empty`, `TooLarge`, `NotReady`, `OtherCase`, `TooMany`, `HoldsRecord`, `TooManyRows`, `RecordsFull`, `OutOfSpace`, `LowCycles`;
    /// nothing has changed.
    pub fn schedule(&mut self, name: &Name, height: u32, now_ns: u64) -> Answer<ScheduledBlobDeletion> {
        name.check()?;
        if !self.key.is_set() {
            return Err(NotReady.into());
        }
        let most = self.limits.rows;
        let arena = self.arena.clone();
        arena.creating(|| {
            self.get_or_make().map_err(NoMemory::from)?;
            self.message(now_ns, |store| store.schedule(name, height, most))
                .unwrap_or(Err(BlobDeletionError::NoMemory(NoMemory::OutOfSpace)))
        })
    }

    /// Removes a row that is not leased and has no record. Returns the row, or `None` if there was none.
    ///
    /// # Errors
    /// `Empty`, `TooLarge`, `HoldsRecord`, `Leased`; nothing has changed.
    pub fn cancel(&mut self, name: &Name, now_ns: u64) -> Answer<Option<CancelledBlobDeletion>> {
        name.check()?;
        let cancelled = self.message(now_ns, |store| match store.find_name(name, store.hash(name)) {
            None => {
                store.root.tally(Counter::NotFound, 1);
                Ok(None)
            }
            Some(row) if row.txid.is_some() => Err(BlobDeletionError::HoldsRecord),
            Some(row) if store.is_leased(&row) => Err(BlobDeletionError::Leased),
            Some(row) => {
                store.remove(&row);
                store.root.tally(Counter::Cancelled, 1);
                Ok(Some(CancelledBlobDeletion { id: row.id, reported_deleted: row.reported }))
            }
        });
        cancelled.unwrap_or(Ok(None))
    }

    /// Checks that a record that names this blob may be created, and reserves the memory for [`hold`](Self::hold).
    ///
    /// # Errors
    /// `BeingDeleted`, `BlobTaken`, `TooManyRows`, `RecordsFull`, `OutOfSpace`, `LowCycles`.
    pub fn admits(&mut self, name: &Name, txid: &[u8; 32]) -> Result<(), UtxoRefusal> {
        let (rows, limit) = self.rows();
        let arena = self.arena.clone();
        arena.creating(|| {
            let store = self.get_or_make().map_err(NoMemory::from)?;
            let hash = store.hash(name);
            match store.find_name(name, hash) {
                // The same transaction's record exists, or its row was never removed.
                Some(row) if row.state == BlobDeletionState::Held && row.txid.as_ref() == Some(txid) => Ok(()),
                Some(row) if row.state == BlobDeletionState::Held => Err(UtxoRefusal::BlobTaken),
                Some(_) => Err(UtxoRefusal::BeingDeleted),
                None if rows >= limit => Err(UtxoRefusal::TooManyRows { limit }),
                None => Ok(store.reserve(name, hash).map_err(NoMemory::from)?),
            }
        })
    }

    /// Holds the blob of a created record for as long as the record exists.
    pub fn hold(&mut self, name: &Name, txid: &[u8; 32]) {
        let Some(store) = &mut self.store else { return };
        let hash = store.hash(name);
        if store.find_name(name, hash).is_none() {
            store.write(|store| store.add(name, hash, Some(*txid), 0, BlobDeletionState::Held));
        }
    }

    /// Schedules the blob of a record; the completion of the row also removes the record. Returns the row's number, and whether the row
    /// belongs to another record and is left alone.
    ///
    /// # Errors
    /// [`GrowError`], only if the blob was not held; nothing has changed.
    pub fn schedule_record(&mut self, name: &Name, height: u32, txid: &[u8; 32]) -> Result<(u64, bool), GrowError> {
        self.get_or_make()?.write(|store| store.schedule_record(name, height, txid))
    }
}

impl Store {
    fn schedule(&mut self, name: &Name, height: u32, most: u64) -> Answer<ScheduledBlobDeletion> {
        let hash = self.hash(name);
        let (id, was_leased) = match self.find_name(name, hash) {
            Some(row) if row.txid.is_some() => return Err(BlobDeletionError::HoldsRecord),
            Some(mut row) => (row.id, self.reschedule(&mut row, height, None)),
            None if self.root.rows() >= most => return Err(BlobDeletionError::TooManyRows { limit: most }),
            None => {
                self.lanes.admit(name)?;
                self.reserve(name, hash).map_err(NoMemory::from)?;
                (self.add(name, hash, None, height, BlobDeletionState::Waiting).id, false)
            }
        };
        self.root.tally(Counter::Scheduled, 1);
        Ok(ScheduledBlobDeletion { id, was_leased })
    }

    /// Makes a row wait again with its retries reset, and attaches the record if the row has none. Returns whether the row was leased.
    fn reschedule(&mut self, row: &mut Row, height: u32, txid: Option<[u8; 32]>) -> bool {
        let was_leased = self.is_leased(row);
        self.leave(row);
        if let (None, Some(txid)) = (row.txid, txid) {
            row.txid = Some(txid);
            self.slots.write(row.slot, at::TXID, &txid);
        }
        (row.height, row.retries, row.last_retry, row.lease) = (height, 0, 0, 0);
        (row.reported, row.due_since) = (false, 0);
        self.enter(row, BlobDeletionState::Waiting);
        was_leased
    }

    fn schedule_record(&mut self, name: &Name, height: u32, txid: &[u8; 32]) -> Result<(u64, bool), GrowError> {
        let hash = self.hash(name);
        let id = match self.find_name(name, hash) {
            Some(row) if row.txid.is_some_and(|other| other != *txid) => return Ok((row.id, true)),
            Some(mut row) => {
                self.reschedule(&mut row, height, Some(*txid));
                row.id
            }
            None => {
                self.reserve(name, hash)?;
                self.add(name, hash, Some(*txid), height, BlobDeletionState::Waiting).id
            }
        };
        self.root.tally(Counter::Scheduled, 1);
        Ok((id, false))
    }
}
