//! What comes into the queue, and what is taken back before anybody has deleted it.

use super::answer::Answer;
use super::header::Counter;
use super::row::{Name, Row};
use super::{DeletionQueue, MAX_LANES, Store};
use crate::storage::memory::{self, GrowError, NoMemory};
use coppice_interface::{BlobDeletionError, BlobDeletionState, ScheduledBlobDeletion, UtxoRefusal};

/// What scheduling the blob of a record that goes came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scheduled {
    /// The row waits, and the record goes with it.
    Waits(u64),
    /// The row is there already, for another record.
    Another(u64),
}

impl DeletionQueue {
    /// Has a blob deleted from a height on. A row of this name that is there keeps its number, gets the height, leaves the lease under
    /// which it is, and is tried from the start.
    ///
    /// # Errors
    /// `Empty`, `TooLarge`, `TooMany`, `HoldsRecord`, `TooManyRows`, `RecordsFull`, `OutOfSpace`, `LowCycles`, and nothing has changed.
    pub fn schedule(&mut self, name: &Name, height: u32, now_ns: u64) -> Answer<ScheduledBlobDeletion> {
        name.check()?;
        let most = self.limits.rows;
        memory::creating_records(|| {
            self.made().map_err(NoMemory)?;
            self.message(now_ns, |store| store.schedule(name, height, most))
                .unwrap_or(Err(BlobDeletionError::OutOfSpace))
        })
    }

    /// Takes a row out that is not leased and goes with no record, and says whether there was one.
    ///
    /// # Errors
    /// `Empty`, `TooLarge`, `HoldsRecord`, `Leased`, and nothing has changed.
    pub fn cancel(&mut self, name: &Name, now_ns: u64) -> Answer<bool> {
        name.check()?;
        let cancelled = self.message(now_ns, |store| match store.find_name(name, store.hash(name)) {
            None => {
                store.root.tally(Counter::NotFound, 1);
                Ok(false)
            }
            Some(row) if row.txid.is_some() => Err(BlobDeletionError::HoldsRecord),
            Some(row) if store.is_leased(&row) => Err(BlobDeletionError::Leased),
            Some(row) => {
                store.remove(&row);
                store.root.tally(Counter::Cancelled, 1);
                Ok(true)
            }
        });
        cancelled.unwrap_or(Ok(false))
    }

    /// Whether a record may be created that names this blob, and then [`hold`](Self::hold) has the memory that it needs.
    ///
    /// # Errors
    /// `BeingDeleted`, `BlobTaken`, `TooManyRows`, `RecordsFull`, `OutOfSpace`, `LowCycles`.
    pub fn admits(&mut self, name: &Name, txid: &[u8; 32]) -> Result<(), UtxoRefusal> {
        let (rows, limit) = self.rows();
        memory::creating_records(|| {
            let store = self.made().map_err(NoMemory)?;
            let hash = store.hash(name);
            match store.find_name(name, hash) {
                // The record of this very transaction is there, or was never taken out.
                Some(row) if row.state == BlobDeletionState::Held && row.txid.as_ref() == Some(txid) => Ok(()),
                Some(row) if row.state == BlobDeletionState::Held => Err(UtxoRefusal::BlobTaken),
                Some(_) => Err(UtxoRefusal::BeingDeleted),
                None if rows >= limit => Err(UtxoRefusal::TooManyRows { limit }),
                None => Ok(store.reserve(name, hash).map_err(NoMemory)?),
            }
        })
    }

    /// Holds the blob of a record that was created, for as long as that is there. Answers how many pages that has changed.
    pub fn hold(&mut self, name: &Name, txid: &[u8; 32]) -> u64 {
        let Some(store) = &mut self.store else { return 0 };
        let hash = store.hash(name);
        match store.find_name(name, hash) {
            Some(_) => 0,
            None => store.write(|store| store.add(name, hash, Some(*txid), 0, BlobDeletionState::Held)).1,
        }
    }

    /// Has the blob of a record deleted that goes with it. Answers how many pages that has changed, too.
    ///
    /// # Errors
    /// [`GrowError`], only where the blob was not held, and nothing has changed.
    pub fn release(&mut self, name: &Name, height: u32, txid: &[u8; 32]) -> Result<(Scheduled, u64), GrowError> {
        let (scheduled, pages) = self.made()?.write(|store| store.release(name, height, txid));
        Ok((scheduled?, pages))
    }
}

impl Store {
    fn schedule(&mut self, name: &Name, height: u32, most: u64) -> Answer<ScheduledBlobDeletion> {
        let hash = self.hash(name);
        let (id, was_leased) = match self.find_name(name, hash) {
            Some(row) if row.txid.is_some() => return Err(BlobDeletionError::HoldsRecord),
            Some(mut row) => {
                let was_leased = self.is_leased(&row);
                self.reschedule(&mut row, height, None);
                (row.id, was_leased)
            }
            None if self.root.rows() >= most => return Err(BlobDeletionError::TooManyRows { limit: most }),
            None if !self.lanes.admits(name) => {
                return Err(BlobDeletionError::TooMany { limit: MAX_LANES as u64 });
            }
            None => {
                self.reserve(name, hash).map_err(NoMemory)?;
                (self.add(name, hash, None, height, BlobDeletionState::Waiting).id, false)
            }
        };
        self.root.tally(Counter::Scheduled, 1);
        Ok(ScheduledBlobDeletion { id, was_leased })
    }

    /// Has a row wait anew, from the start; with this record, if it has none.
    fn reschedule(&mut self, row: &mut Row, height: u32, txid: Option<[u8; 32]>) {
        self.leave(row);
        if row.txid.is_none() && txid.is_some() {
            row.txid = txid;
            row.save_txid(&mut self.slots);
        }
        (row.height, row.retries, row.last_retry, row.lease) = (height, 0, 0, 0);
        self.enter(row, BlobDeletionState::Waiting);
    }

    fn release(&mut self, name: &Name, height: u32, txid: &[u8; 32]) -> Result<Scheduled, GrowError> {
        let hash = self.hash(name);
        let id = match self.find_name(name, hash) {
            Some(row) if row.txid.is_some_and(|other| other != *txid) => return Ok(Scheduled::Another(row.id)),
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
        Ok(Scheduled::Waits(id))
    }
}
