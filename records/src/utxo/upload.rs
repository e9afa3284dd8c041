//! Uploads of transactions that are larger than a message: begin, put chunks, create.
//!
//! Each feeder has one upload at a time. The bytes are written directly into the blobs in which they may stay, and count towards the limits
//! of transactions from the beginning. The list of received chunks is persisted, so that every step can be repeated, and an upgrade loses
//! nothing. `utxo_create` with the txid, by the same feeder, takes the blobs of the complete upload over, or frees them if the record keeps
//! its bytes itself. Uploads of other feeders under the same txid stay.
//!
//! Each upload lies in a cell of its own, so that a chunk costs the same at any number of uploads; a bitmap lists the cells that are
//! taken, so that an upgrade reads no other cell.
//!
//! ```text
//! cell 0:  length and CBOR of an upload, up to 4,080 bytes
//!          4,080 magic "CPTP"  4,084 version u16  4,086 reserved u16  4,088 bitmap of the other cells that are taken u64
//! others:  an upload, the same
//! ```

use super::call::{Answer, bad, hash_of};
use super::limits::{MAX_TRANSACTION, at_most};
use super::record::{Hash, location};
use crate::places;
use candid::Principal;
use ic_coppice_interface::{
    BeginTransaction, OpenTransaction, PutTransactionChunk, TransactionUploadError, Txid, UploadProgress, UtxoRefusal,
    UtxoSettings,
};
use ic_coppice_storage::Space;
use ic_coppice_storage::blob::{BlobPtr, BlobStore};
use ic_coppice_storage::cell::Cell;
use ic_coppice_storage::chunks::{ChunkError, Chunks, is_expired};
use ic_coppice_storage::header::Header;
use serde::{Deserialize, Serialize};
use serde_bytes::ByteBuf;
use std::collections::BTreeMap;
use std::ops::Range;
use std::rc::Rc;

/// The header of an upload's cell.
const UPLOAD: Header = Header { name: "upload of a transaction", magic: *b"CPTU", version: 1 };
/// Header of the word that lists the used cells.
const TAKEN: Header = Header { name: "uploads of transactions", magic: *b"CPTP", version: 1 };
/// Most bytes of an upload's state.
const LEN: usize = places::TRANSACTION_UPLOAD_LEN - 16;
/// Bytes of the largest chunk.
const MAX_CHUNK: u32 = 1 << 20;
/// Bytes of the smallest chunk, so that the list of chunks is small.
const MIN_CHUNK: u32 = 64 << 10;

/// The outcome of a step of an upload.
type Progress = Result<UploadProgress, TransactionUploadError>;

/// An upload that is open.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Open {
    /// The feeder.
    by: Principal,
    txid: Txid,
    length: u64,
    chunk_size: u32,
    parts: Vec<BlobPtr>,
    /// A byte for each chunk: 1 if the chunk has arrived.
    received: ByteBuf,
    /// Time of the last call on the upload, in Unix seconds.
    touched: u64,
}

impl Open {
    fn progress(&self) -> UploadProgress {
        let missing = self.received.iter().filter(|&&there| there == 0).count() as u32;
        UploadProgress { chunks: self.received.len() as u32, missing }
    }

    fn is_other(&self) -> TransactionUploadError {
        TransactionUploadError::OtherUpload { txid: self.txid.clone() }
    }
}

/// The open uploads of transactions, by the numbers of their cells.
pub struct Uploads {
    cells: Rc<Space>,
    open: BTreeMap<u64, Open>,
}

/// Returns the cell of an upload.
fn cell_of(nth: u64) -> Cell {
    let at = match nth.checked_sub(1) {
        None => places::TRANSACTION_UPLOAD,
        Some(nth) => places::TRANSACTION_UPLOADS + nth * places::TRANSACTION_UPLOAD_LEN as u64,
    };
    Cell { at, capacity: LEN, header: UPLOAD }
}

impl Uploads {
    /// Reads the open uploads.
    ///
    /// # Errors
    /// A sentence, if an upload cannot be decoded.
    pub(super) fn open(cells: Rc<Space>) -> Result<Self, String> {
        if cells.read(places::TRANSACTION_PLACES) != [0; 16] {
            cells.check_header(places::TRANSACTION_PLACES, &TAKEN)?;
        }
        let taken = cells.read_u64(places::TRANSACTION_PLACES + 8);
        let mut open = BTreeMap::new();
        for nth in (0..places::TRANSACTION_UPLOADS_LEN).filter(|&nth| nth == 0 || taken & 1 << nth != 0) {
            let there: Option<Option<Open>> = cell_of(nth).load(&cells)?;
            open.extend(there.flatten().map(|upload| (nth, upload)));
        }
        Ok(Self { open, cells })
    }

    /// Writes what the heap mirrors anew.
    pub(super) fn rewrite(&self) {
        self.save_taken();
        for nth in self.open.keys().copied().filter(|nth| *nth > 0).chain([0]) {
            if cell_of(nth).is_damaged(&self.cells, self.open.contains_key(&nth)) {
                self.save(nth);
            }
        }
    }

    fn save(&self, nth: u64) {
        cell_of(nth).keep(&self.cells, &self.open.get(&nth));
    }

    /// Writes the bitmap of the cells that are taken.
    fn save_taken(&self) {
        let taken = self.open.keys().filter(|&&nth| nth > 0).fold(0u64, |taken, nth| taken | 1 << nth);
        self.cells.write_header(places::TRANSACTION_PLACES, &TAKEN);
        self.cells.write_u64(places::TRANSACTION_PLACES + 8, taken);
    }

    /// Returns the upload of a feeder, if it has one, and its number.
    ///
    /// # Errors
    /// `OtherUpload` if it is another transaction's; `BadArgument` if the txid does not have 32 bytes.
    fn of(&self, by: Principal, txid: &Txid) -> Result<Option<(u64, &Open)>, TransactionUploadError> {
        hash_of("txid", txid)?;
        match self.open.iter().find(|(_, open)| open.by == by) {
            Some((_, open)) if open.txid != *txid => Err(open.is_other()),
            found => Ok(found.map(|(&nth, open)| (nth, open))),
        }
    }

    /// Opens an upload. Repeating the call changes nothing.
    ///
    /// # Errors
    /// [`TransactionUploadError`], and nothing has changed.
    pub(super) fn begin(
        &mut self,
        blobs: &mut BlobStore,
        arg: &BeginTransaction,
        settings: &UtxoSettings,
        by: Principal,
        now: u64,
    ) -> Progress {
        if arg.length == 0 {
            return Err(bad("length", "no transaction has 0 bytes").into());
        }
        at_most("bytes of a transaction", arg.length, MAX_TRANSACTION)?;
        if !arg.chunk_size.is_power_of_two() || !(MIN_CHUNK..=MAX_CHUNK).contains(&arg.chunk_size) {
            let why = format!("{} must be a power of two from {MIN_CHUNK} to {MAX_CHUNK}", arg.chunk_size);
            return Err(bad("chunk_size", why).into());
        }
        let nth = match self.of(by, &arg.txid)? {
            Some((_, open)) if (open.length, open.chunk_size) != (arg.length, arg.chunk_size) => {
                return Err(open.is_other());
            }
            Some((nth, _)) => nth,
            None => {
                let free = (0..places::TRANSACTION_UPLOADS_LEN).find(|nth| !self.open.contains_key(nth));
                let nth = free.ok_or(TransactionUploadError::TooMany { limit: places::TRANSACTION_UPLOADS_LEN })?;
                let chunks = Chunks { length: arg.length, size: arg.chunk_size }.count() as usize;
                let upload = Open {
                    by,
                    txid: arg.txid.clone(),
                    length: arg.length,
                    chunk_size: arg.chunk_size,
                    parts: location::allocate(blobs, arg.length, settings.max_external_bytes)?,
                    received: ByteBuf::from(vec![0; chunks]),
                    touched: now,
                };
                self.open.insert(nth, upload);
                self.save_taken();
                nth
            }
        };
        self.touch(nth, now, |_| ())
    }

    /// Records a call for an upload and the upload's change, and returns its progress.
    fn touch(&mut self, nth: u64, now: u64, change: impl FnOnce(&mut Open)) -> Progress {
        let open = self.open.get_mut(&nth).ok_or(TransactionUploadError::NoUpload)?;
        open.touched = now;
        change(open);
        let progress = open.progress();
        self.save(nth);
        Ok(progress)
    }

    /// Returns the open uploads, with their progress, and the time at which each expires, `expiry` seconds after its last call.
    pub fn list(&self, expiry: u64) -> Vec<OpenTransaction> {
        let shown = |open: &Open| OpenTransaction {
            by: open.by,
            txid: open.txid.clone(),
            progress: open.progress(),
            expires_at_secs: open.touched.saturating_add(expiry),
        };
        self.open.values().map(shown).collect()
    }

    /// Stores one chunk. The same bytes again are accepted.
    ///
    /// # Errors
    /// [`TransactionUploadError`], and nothing has changed.
    pub fn put(&mut self, blobs: &mut BlobStore, arg: &PutTransactionChunk, by: Principal, now: u64) -> Progress {
        let (nth, open) = self.of(by, &arg.txid)?.ok_or(TransactionUploadError::NoUpload)?;
        let refused = |why| match why {
            ChunkError::OutOfRange { chunks } => TransactionUploadError::ChunkOutOfRange { chunks },
            ChunkError::WrongLength { expected } => TransactionUploadError::WrongLength { expected },
        };
        let chunks = Chunks { length: open.length, size: open.chunk_size };
        let Range { start, end } = chunks.place(arg.chunk, arg.bytes.len()).map_err(refused)?;
        if open.received[arg.chunk as usize] == 1 {
            if location::read(blobs, open.parts.iter().copied(), start, end - start)? != arg.bytes.as_slice() {
                return Err(TransactionUploadError::ChunkMismatch);
            }
        } else {
            // A part is a multiple of a chunk, so that a chunk lies in one.
            let part_len = u64::from(ic_coppice_storage::blob::MAX_BLOB);
            let part = &open.parts[(start / part_len) as usize];
            let written = blobs.write(part, (start % part_len) as u32, &arg.bytes);
            written.map_err(|error| UtxoRefusal::Corrupt { why: format!("a part of the upload: {error}") })?;
        }
        self.touch(nth, now, |open| open.received[arg.chunk as usize] = 1)
    }

    /// Returns the bytes of a transaction that a feeder has uploaded whole, and their parts in the BlobStore.
    ///
    /// # Errors
    /// `NoUpload`, `Corrupt`.
    pub(super) fn complete(&self, blobs: &BlobStore, txid: &Hash, by: Principal) -> Answer<(Vec<u8>, Vec<BlobPtr>)> {
        let mut whole = self.open.values().filter(|open| open.by == by && open.progress().missing == 0);
        let open = whole.find(|open| open.txid.as_slice() == txid).ok_or(UtxoRefusal::NoUpload)?;
        Ok((location::read(blobs, open.parts.iter().copied(), 0, open.length)?, open.parts.clone()))
    }

    /// Closes the upload with these parts after a record was created. The record keeps the blobs if `kept`; otherwise they are freed.
    pub(super) fn close(&mut self, blobs: &mut BlobStore, parts: &[BlobPtr], kept: bool) {
        if !kept {
            location::free_parts(blobs, parts);
        }
        let nth = self.open.iter().find(|(_, open)| open.parts == parts).map(|(&nth, _)| nth);
        nth.and_then(|nth| self.remove(nth));
    }

    fn remove(&mut self, nth: u64) -> Option<Open> {
        let removed = self.open.remove(&nth)?;
        self.save(nth);
        self.save_taken();
        Some(removed)
    }

    /// Drops the open upload of a feeder, and returns whether there was one.
    ///
    /// # Errors
    /// `OtherUpload`; `BadArgument` if the txid does not have 32 bytes.
    pub fn abort(&mut self, blobs: &mut BlobStore, txid: &Txid, by: Principal) -> Result<bool, TransactionUploadError> {
        let open = self.of(by, txid)?.map(|(nth, _)| nth);
        open.into_iter().for_each(|nth| self.drop_open(blobs, nth));
        Ok(open.is_some())
    }

    /// Returns the earliest last call of any upload, in Unix seconds.
    pub fn touched(&self) -> Option<u64> {
        self.open.values().map(|open| open.touched).min()
    }

    /// Drops the uploads without a call for `expiry` seconds, and returns their number.
    pub fn expire(&mut self, blobs: &mut BlobStore, now: u64, expiry: u64) -> usize {
        let expired = self.open.iter().filter(|(_, open)| is_expired(open.touched, now, expiry));
        let expired: Vec<u64> = expired.map(|(&nth, _)| nth).collect();
        expired.iter().for_each(|&nth| self.drop_open(blobs, nth));
        expired.len()
    }

    fn drop_open(&mut self, blobs: &mut BlobStore, nth: u64) {
        if let Some(open) = self.remove(nth) {
            location::free_parts(blobs, &open.parts);
        }
    }
}
