//! Transactions that no message holds: begun, put in chunks, created.
//!
//! One at a time for each producer. The bytes go straight into the blobs in which they may stay, owned by the upload; which chunks are there
//! is persisted, so that every step can be repeated, and an upgrade loses nothing. `utxo_create` of the producer with the txid finds it
//! complete and takes the blobs over, or, where the record keeps its bytes itself, gives them back. What another producer has uploaded under
//! the same txid does not matter to it.
//!
//! Each lies in a cell of its own, so that a chunk costs the same however many are open; a bitmap says which cells are taken, so that an
//! upgrade reads no other.
//!
//! ```text
//! cell 0:  an upload as CBOR behind its length, up to 4,080 bytes
//!          4,080 magic "CPTP"  4,084 version u16  4,086 reserved u16  4,088 which of the other cells are taken u64
//! others:  an upload, the same
//! ```

use super::parse::MAX_TRANSACTION;
use super::record::Hash;
use super::{UtxoStore, bad, hash_of, place};
use crate::platform;
use crate::storage::blob::{BlobPtr, BlobStore, Owner};
use crate::storage::memory::{Region, cell};
use candid::Principal;
use coppice_interface::{
    BeginTransaction, OpenTransaction, PutTransactionChunk, TransactionUploadError, Txid, UploadProgress, UtxoRefusal,
    UtxoSettings,
};
use serde::{Deserialize, Serialize};
use serde_bytes::ByteBuf;
use std::collections::BTreeMap;
use std::rc::Rc;

const MAGIC: [u8; 4] = *b"CPTU";
const VERSION: u16 = 1;
const PLACES_MAGIC: [u8; 4] = *b"CPTP";
/// Bytes of an upload at most.
const LEN: usize = cell::TRANSACTION_UPLOAD_LEN - 16;
/// Bytes of the largest chunk.
const MAX_CHUNK: u32 = 1 << 20;
/// Bytes of the smallest: so that a bitmap of chunks is small.
const MIN_CHUNK: u32 = 64 << 10;

/// An upload that is open.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Open {
    /// Who began it; none where that was before it was noted: it is everybody's.
    #[serde(default)]
    by: Option<Principal>,
    txid: Txid,
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

    fn is_of(&self, by: Principal) -> bool {
        self.by.is_none_or(|owner| owner == by)
    }
}

/// The open uploads of transactions, by the numbers of their cells.
pub struct Uploads {
    cells: Rc<Region>,
    open: BTreeMap<u64, Open>,
}

/// Where an upload lies.
fn address(nth: u64) -> u64 {
    match nth.checked_sub(1) {
        None => cell::TRANSACTION_UPLOAD,
        Some(nth) => cell::TRANSACTION_UPLOADS + nth * cell::TRANSACTION_UPLOAD_LEN as u64,
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
        by: Principal,
        now: u64,
    ) -> Result<UploadProgress, TransactionUploadError> {
        self.check_absent(&hash_of("txid", &arg.txid)?)?;
        self.uploads.begin(blobs, arg, settings, by, now)
    }
}

impl Uploads {
    /// Reads what is open.
    ///
    /// # Errors
    /// A sentence where it cannot be decoded.
    pub(super) fn open(cells: Rc<Region>) -> Result<Self, String> {
        let header: [u8; 16] = cells.read(cell::TRANSACTION_PLACES);
        let version = u16::from_le_bytes([header[4], header[5]]);
        if header != [0; 16] && (header[..4] != PLACES_MAGIC || version != VERSION) {
            return Err(format!("uploads of transactions: magic {:?}, version {version}", &header[..4]));
        }
        let taken = cells.read_u64(cell::TRANSACTION_PLACES + 8);
        let mut open = BTreeMap::new();
        for nth in (0..cell::TRANSACTION_UPLOADS_LEN).filter(|&nth| nth == 0 || taken & 1 << nth != 0) {
            let there: Option<Option<Open>> = cell::load(&cells, address(nth), MAGIC, VERSION)?;
            open.extend(there.flatten().map(|upload| (nth, upload)));
        }
        Ok(Self { open, cells })
    }

    fn save(&self, nth: u64) {
        if let Err(why) = cell::save(&self.cells, (address(nth), LEN), MAGIC, VERSION, &self.open.get(&nth)) {
            platform::trap(&format!("the upload of a transaction: {why}"));
        }
    }

    /// Notes which cells are taken.
    fn save_taken(&self) {
        let taken = self.open.keys().filter(|&&nth| nth > 0).fold(0u64, |taken, nth| taken | 1 << nth);
        let mut header = [0; 16];
        header[..4].copy_from_slice(&PLACES_MAGIC);
        header[4..6].copy_from_slice(&VERSION.to_le_bytes());
        header[8..].copy_from_slice(&taken.to_le_bytes());
        self.cells.write(cell::TRANSACTION_PLACES, &header);
    }

    /// The upload of a producer, and its number.
    fn of(&self, by: Principal) -> Option<(u64, &Open)> {
        self.open.iter().find(|(_, open)| open.is_of(by)).map(|(&nth, open)| (nth, open))
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
        by: Principal,
        now: u64,
    ) -> Result<UploadProgress, TransactionUploadError> {
        hash_of("txid", &arg.txid)?;
        if arg.length == 0 {
            return Err(bad("length", "no transaction has 0 bytes").into());
        }
        if arg.length > MAX_TRANSACTION {
            return Err(UtxoRefusal::TooLarge { what: "bytes of a transaction".into(), limit: MAX_TRANSACTION }.into());
        }
        if !arg.chunk_size.is_power_of_two() || !(MIN_CHUNK..=MAX_CHUNK).contains(&arg.chunk_size) {
            let why = format!("{} is no power of two from {MIN_CHUNK} to {MAX_CHUNK}", arg.chunk_size);
            return Err(bad("chunk_size", why).into());
        }
        let nth = match self.of(by) {
            Some((nth, open)) => {
                if (&open.txid, open.length, open.chunk_size) != (&arg.txid, arg.length, arg.chunk_size) {
                    return Err(TransactionUploadError::OtherUpload { txid: open.txid.clone() });
                }
                nth
            }
            None => {
                let free = (0..cell::TRANSACTION_UPLOADS_LEN).find(|nth| !self.open.contains_key(nth));
                let limit = cell::TRANSACTION_UPLOADS_LEN;
                let nth = free.ok_or(TransactionUploadError::TooMany { limit })?;
                let upload = Open {
                    by: Some(by),
                    txid: arg.txid.clone(),
                    length: arg.length,
                    chunk_size: arg.chunk_size,
                    parts: place::allocate(blobs, arg.length, Owner::Upload, settings.max_external_bytes)?,
                    received: ByteBuf::from(vec![0; arg.length.div_ceil(u64::from(arg.chunk_size)) as usize]),
                    touched: now,
                };
                self.open.insert(nth, upload);
                self.save_taken();
                nth
            }
        };
        let open = self.open.get_mut(&nth).ok_or(TransactionUploadError::NoUpload)?;
        (open.by, open.touched) = (Some(by), now);
        let progress = open.progress();
        self.save(nth);
        Ok(progress)
    }

    /// What is open, how far each is, and when it expires after `expiry` seconds without a call.
    pub fn list(&self, expiry: u64) -> Vec<OpenTransaction> {
        let shown = |open: &Open| OpenTransaction {
            by: open.by,
            txid: open.txid.clone(),
            progress: open.progress(),
            expires_at: open.touched.saturating_add(expiry),
        };
        self.open.values().map(shown).collect()
    }

    /// Takes one chunk; the same bytes again are Ok.
    ///
    /// # Errors
    /// [`TransactionUploadError`], and nothing has changed.
    pub fn put(
        &mut self,
        blobs: &mut BlobStore,
        arg: &PutTransactionChunk,
        by: Principal,
        now: u64,
    ) -> Result<UploadProgress, TransactionUploadError> {
        hash_of("txid", &arg.txid)?;
        let nth = self.of(by).ok_or(TransactionUploadError::NoUpload)?.0;
        let open = self.open.get_mut(&nth).ok_or(TransactionUploadError::NoUpload)?;
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
            let part_len = u64::from(crate::storage::blob::MAX_BLOB);
            let part = &open.parts[(start / part_len) as usize];
            let written = blobs.write(part, (start % part_len) as u32, &arg.bytes);
            written.map_err(|error| UtxoRefusal::Corrupt { why: format!("a part of the upload: {error:?}") })?;
            open.received[arg.chunk as usize] = 1;
        }
        (open.by, open.touched) = (Some(by), now);
        let progress = open.progress();
        self.save(nth);
        Ok(progress)
    }

    /// The bytes of a transaction that a producer has uploaded whole, and where they lie.
    ///
    /// # Errors
    /// `NoUpload`, `Corrupt`.
    pub(super) fn complete(
        &self,
        blobs: &BlobStore,
        txid: &Hash,
        by: Principal,
    ) -> Result<(Vec<u8>, Vec<BlobPtr>), UtxoRefusal> {
        let open = self.of(by).map(|(_, open)| open);
        let open = open.filter(|open| open.txid.as_slice() == txid && open.progress().missing == 0);
        let open = open.ok_or(UtxoRefusal::NoUpload)?;
        Ok((place::read(blobs, &open.parts, 0, open.length)?, open.parts.clone()))
    }

    /// Closes the upload with these parts, of which a record was made: that keeps its blobs, or they are given back.
    pub(super) fn close(&mut self, blobs: &mut BlobStore, parts: &[BlobPtr], kept: bool) {
        if kept {
            for part in parts {
                if let Err(error) = blobs.set_owner(part, Owner::External) {
                    platform::trap(&format!("a part of the upload, {part:?}: {error:?}; abort it"));
                }
            }
        } else {
            place::release(blobs, parts);
        }
        let nth = self.open.iter().find(|(_, open)| open.parts == parts).map(|(&nth, _)| nth);
        if let Some(nth) = nth {
            self.open.remove(&nth);
            self.save(nth);
            self.save_taken();
        }
    }

    /// Drops the open upload of a producer if it is of this transaction, and says whether it was.
    ///
    /// # Errors
    /// `OtherUpload`; `BadArgument` where the txid does not have 32 bytes.
    pub fn abort(&mut self, blobs: &mut BlobStore, txid: &Txid, by: Principal) -> Result<bool, TransactionUploadError> {
        hash_of("txid", txid)?;
        match self.of(by) {
            None => Ok(false),
            Some((_, open)) if open.txid != *txid => {
                Err(TransactionUploadError::OtherUpload { txid: open.txid.clone() })
            }
            Some((nth, _)) => {
                self.drop_open(blobs, nth);
                Ok(true)
            }
        }
    }

    /// When the upload that was left alone for longest was touched last, in Unix seconds.
    pub fn touched(&self) -> Option<u64> {
        self.open.values().map(|open| open.touched).min()
    }

    /// Drops the uploads that nobody has touched for `expiry` seconds, and says how many.
    pub fn expire(&mut self, blobs: &mut BlobStore, now: u64, expiry: u64) -> usize {
        let expired = self.open.iter().filter(|(_, open)| now.saturating_sub(open.touched) >= expiry);
        let expired: Vec<u64> = expired.map(|(&nth, _)| nth).collect();
        expired.iter().for_each(|&nth| self.drop_open(blobs, nth));
        expired.len()
    }

    fn drop_open(&mut self, blobs: &mut BlobStore, nth: u64) {
        if let Some(open) = self.open.remove(&nth) {
            place::release(blobs, &open.parts);
            self.save(nth);
            self.save_taken();
        }
    }
}
