//! Transactions that no message holds: begun, put in chunks, created.
//!
//! One at a time. The bytes go straight into the blobs in which they may stay, owned by the upload; which chunks are there is
//! persisted, so that every step can be repeated, and an upgrade loses nothing. `utxo_create` with the txid finds it
//! complete and takes the blobs over, or, where the record keeps its bytes itself, gives them back.

use super::parse::MAX_TRANSACTION;
use super::record::Hash;
use super::{UtxoStore, bad, hash_of, place};
use crate::api::{
    BeginTransaction, PutTransactionChunk, TransactionUploadError, UploadProgress, UtxoError, UtxoSettings,
};
use crate::blob::{BlobPtr, BlobStore, Owner};
use crate::memory::{Region, cell};
use crate::runtime;
use serde::{Deserialize, Serialize};
use serde_bytes::ByteBuf;
use std::rc::Rc;

const MAGIC: [u8; 4] = *b"CPTU";
const VERSION: u16 = 1;
/// Bytes of the largest chunk.
const MAX_CHUNK: u32 = 1 << 20;
/// Bytes of the smallest: so that a bitmap of chunks is small.
const MIN_CHUNK: u32 = 64 << 10;

/// The upload that is open.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Open {
    txid: ByteBuf,
    length: u64,
    chunk_size: u32,
    parts: Vec<BlobPtr>,
    /// A byte for each chunk: 1 where it is there.
    received: ByteBuf,
    /// Unix seconds.
    touched: u64,
}

impl Open {
    fn progress(&self) -> UploadProgress {
        let missing = self.received.iter().filter(|&&there| there == 0).count() as u32;
        UploadProgress { chunks: self.received.len() as u32, missing }
    }
}

/// The one upload of a transaction.
pub struct Uploads {
    cells: Rc<Region>,
    open: Option<Open>,
}

impl From<UtxoError> for TransactionUploadError {
    fn from(error: UtxoError) -> Self {
        Self::Refused(error)
    }
}

impl UtxoStore {
    /// Opens an upload. The same again is Ok and changes nothing.
    ///
    /// # Errors
    /// [`TransactionUploadError`], and nothing has changed: `TxExists` where the transaction has a record.
    pub fn begin_upload(
        &mut self,
        blobs: &mut BlobStore,
        arg: &BeginTransaction,
        settings: &UtxoSettings,
        now: u64,
    ) -> Result<UploadProgress, TransactionUploadError> {
        self.check_absent(&hash_of("txid", &arg.txid)?)?;
        self.uploads.begin(blobs, arg, settings, now)
    }
}

impl Uploads {
    /// Reads what is open.
    ///
    /// # Errors
    /// A sentence where it cannot be decoded.
    pub(super) fn open(cells: Rc<Region>) -> Result<Self, String> {
        let open: Option<Option<Open>> = cell::load(&cells, cell::TRANSACTION_UPLOAD, MAGIC, VERSION)?;
        Ok(Self { open: open.flatten(), cells })
    }

    fn save(&self) {
        let place = (cell::TRANSACTION_UPLOAD, cell::TRANSACTION_UPLOAD_LEN);
        if let Err(why) = cell::save(&self.cells, place, MAGIC, VERSION, &self.open) {
            runtime::trap(&format!("the upload of a transaction: {why}"));
        }
    }

    /// Opens an upload. The same again is Ok and changes nothing.
    ///
    /// # Errors
    /// [`TransactionUploadError`], and nothing has changed.
    fn begin(
        &mut self,
        blobs: &mut BlobStore,
        arg: &BeginTransaction,
        settings: &UtxoSettings,
        now: u64,
    ) -> Result<UploadProgress, TransactionUploadError> {
        hash_of("txid", &arg.txid)?;
        if arg.length == 0 || arg.length > MAX_TRANSACTION {
            return Err(UtxoError::TooLarge { what: "bytes of a transaction".into(), limit: MAX_TRANSACTION }.into());
        }
        if !arg.chunk_size.is_power_of_two() || !(MIN_CHUNK..=MAX_CHUNK).contains(&arg.chunk_size) {
            let why = format!("{} is no power of two from {MIN_CHUNK} to {MAX_CHUNK}", arg.chunk_size);
            return Err(bad("chunk_size", why).into());
        }
        if let Some(open) = &mut self.open {
            if (&open.txid, open.length, open.chunk_size) != (&arg.txid, arg.length, arg.chunk_size) {
                return Err(TransactionUploadError::OtherUpload { txid: open.txid.clone() });
            }
            open.touched = now;
        } else {
            self.open = Some(Open {
                txid: arg.txid.clone(),
                length: arg.length,
                chunk_size: arg.chunk_size,
                parts: place::allocate(blobs, arg.length, Owner::Upload, settings.max_external_bytes)?,
                received: ByteBuf::from(vec![0; arg.length.div_ceil(u64::from(arg.chunk_size)) as usize]),
                touched: now,
            });
        }
        self.save();
        self.progress().map(|(_, progress)| progress).ok_or(TransactionUploadError::NoUpload)
    }

    /// What is open, and how far it is.
    pub fn progress(&self) -> Option<(ByteBuf, UploadProgress)> {
        self.open.as_ref().map(|open| (open.txid.clone(), open.progress()))
    }

    /// Takes one chunk; the same bytes again are Ok.
    ///
    /// # Errors
    /// [`TransactionUploadError`], and nothing has changed.
    pub fn put(
        &mut self,
        blobs: &mut BlobStore,
        arg: &PutTransactionChunk,
        now: u64,
    ) -> Result<UploadProgress, TransactionUploadError> {
        let open = self.open.as_mut().ok_or(TransactionUploadError::NoUpload)?;
        if open.txid != arg.txid {
            return Err(TransactionUploadError::OtherUpload { txid: open.txid.clone() });
        }
        let chunks = open.received.len() as u32;
        if arg.chunk >= chunks {
            return Err(TransactionUploadError::ChunkOutOfRange { chunks });
        }
        let start = u64::from(arg.chunk) * u64::from(open.chunk_size);
        let expected = (open.length - start).min(u64::from(open.chunk_size));
        if arg.bytes.len() as u64 != expected {
            return Err(TransactionUploadError::WrongLength { expected: expected as u32 });
        }
        if open.received[arg.chunk as usize] == 1 {
            if place::read(blobs, &open.parts, start, expected)? != arg.bytes.as_slice() {
                return Err(TransactionUploadError::ChunkMismatch);
            }
        } else {
            // A part is a multiple of a chunk, so that a chunk lies in one.
            let part_len = u64::from(crate::blob::MAX_BLOB);
            let part = &open.parts[(start / part_len) as usize];
            let written = blobs.write(part, (start % part_len) as u32, &arg.bytes);
            written.map_err(|error| UtxoError::Corrupt { why: format!("a part of the upload: {error:?}") })?;
            open.received[arg.chunk as usize] = 1;
        }
        open.touched = now;
        let progress = open.progress();
        self.save();
        Ok(progress)
    }

    /// The bytes of a transaction that is there whole, and where they lie.
    ///
    /// # Errors
    /// `NoUpload`, `Corrupt`.
    pub(super) fn complete(&self, blobs: &BlobStore, txid: &Hash) -> Result<(Vec<u8>, Vec<BlobPtr>), UtxoError> {
        let open = self.open.as_ref().filter(|open| open.txid.as_slice() == txid && open.progress().missing == 0);
        let open = open.ok_or(UtxoError::NoUpload)?;
        Ok((place::read(blobs, &open.parts, 0, open.length)?, open.parts.clone()))
    }

    /// Closes an upload of which a record was made: that keeps its blobs, or they are given back.
    pub(super) fn close(&mut self, blobs: &mut BlobStore, parts: &[BlobPtr], kept: bool) {
        if kept {
            for part in parts {
                if let Err(error) = blobs.set_owner(part, Owner::External) {
                    runtime::trap(&format!("a part of the upload, {part:?}: {error:?}; abort it"));
                }
            }
        } else {
            place::release(blobs, parts);
        }
        self.open = None;
        self.save();
    }

    /// Drops the open upload if it is of this transaction, and says whether it was.
    ///
    /// # Errors
    /// `OtherUpload`.
    pub fn abort(&mut self, blobs: &mut BlobStore, txid: &[u8]) -> Result<bool, TransactionUploadError> {
        match &self.open {
            None => Ok(false),
            Some(open) if open.txid.as_slice() != txid => {
                Err(TransactionUploadError::OtherUpload { txid: open.txid.clone() })
            }
            Some(_) => {
                self.drop_open(blobs);
                Ok(true)
            }
        }
    }

    /// When the open upload was touched last, in Unix seconds.
    pub fn touched(&self) -> Option<u64> {
        self.open.as_ref().map(|open| open.touched)
    }

    /// Drops an upload that nobody has touched for `expiry` seconds, and says whether it did.
    pub fn expire(&mut self, blobs: &mut BlobStore, now: u64, expiry: u64) -> bool {
        let expired = self.open.as_ref().is_some_and(|open| now.saturating_sub(open.touched) >= expiry);
        if expired {
            self.drop_open(blobs);
        }
        expired
    }

    fn drop_open(&mut self, blobs: &mut BlobStore) {
        if let Some(open) = self.open.take() {
            place::release(blobs, &open.parts);
            self.save();
        }
    }
}
