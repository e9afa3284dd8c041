//! Body of a kept block, read in parts: 80-byte header ‖ VarInt n ‖ n × transaction, standard or with witnesses.

use crate::utxo::{Hash, MAX_TRANSACTION, pass_items};
use bitcoin_slices::bsl::scan_len;
use ic_coppice_interface::blocks::{Blocks, KeptBlock};
use ic_coppice_interface::segments::{ID, Segment, id_offset};
use ic_coppice_storage::blob::BlobStore;
use ic_coppice_storage::{Ic, Platform as _};

/// Bytes of a block's header.
const HEADER: u64 = 80;
/// Bytes of a window unless more are wanted: a longer transaction gets a window of its own.
pub const WINDOW: u64 = 256 << 10;

/// The reason why a body was not read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BodyError {
    /// The bytes, at this place in the body, are not what they should be.
    #[error("byte {at} of the body: {why}")]
    Bad {
        /// The byte in the body, from 0.
        at: u64,
        /// The reason as a sentence.
        why: String,
    },
    /// A blob of the log cannot be read.
    #[error("{0}")]
    Corrupt(String),
    /// The end of a transaction was not reached: the transaction is longer than asked for, or the instructions are used up.
    #[error("a message does not reach the end of the transaction")]
    Long,
}

/// Returns the error of an invalid transaction.
pub fn bad(at: u64, why: impl Into<String>) -> BodyError {
    BodyError::Bad { at, why: why.into() }
}

/// The part of a body that is in memory.
pub struct Window {
    /// The block.
    pub block: KeptBlock,
    start: u64,
    bytes: Vec<u8>,
    /// Value of the instruction counter after which a walk reads no other part.
    end: Option<u64>,
}

/// Limits of a walk over lengths.
#[derive(Clone, Copy)]
pub struct WalkLimits {
    /// Bytes of a transaction.
    bytes: u64,
    /// Value of the instruction counter.
    end: Option<u64>,
}

impl WalkLimits {
    /// A transaction that has at most as many bytes as a record's transaction.
    pub const RECORD: Self = Self { bytes: MAX_TRANSACTION, end: None };

    /// Transactions of any length, until the instruction counter reaches a value.
    pub fn until(end: u64) -> Self {
        Self { bytes: u64::MAX, end: Some(end) }
    }
}

/// The stores that have the body.
pub type Source<'a> = (&'a dyn Blocks, &'a BlobStore);

/// Receives the outpoints of inputs.
pub type Each<'a> = &'a mut dyn FnMut((Hash, u32));

impl Window {
    /// Returns the empty window of a block's body.
    pub fn new(block: KeptBlock) -> Self {
        Self { block, start: 0, bytes: Vec::new(), end: None }
    }

    fn segment(&self, (blocks, blobs): Source, segment: Segment, at: u64, len: u64) -> Result<Vec<u8>, BodyError> {
        let read = blocks.bytes(blobs, self.block.number, (segment, at, len));
        read.map_err(|error| BodyError::Corrupt(error.to_string()))
    }

    /// Returns the ids of transactions in the index segment.
    pub fn ids(&self, source: Source, transactions: std::ops::Range<u32>) -> Result<Vec<Hash>, BodyError> {
        let len = ID as u64 * u64::from(transactions.end - transactions.start);
        let bytes = self.segment(source, Segment::Index, id_offset(transactions.start), len)?;
        let ids = Some(bytes.as_chunks().0.to_vec()).filter(|ids| ids.len() == transactions.len());
        ids.ok_or_else(|| BodyError::Corrupt("the ids are not all there".into()))
    }

    /// Returns the bytes from `at` on: at least `len`, or as many as the body has.
    pub fn read(&mut self, source: Source, at: u64, len: u64) -> Result<&[u8], BodyError> {
        let end = self.start + self.bytes.len() as u64;
        let wanted = at.saturating_add(len).min(self.block.body);
        if at < self.start || wanted > end {
            if self.end.is_some_and(|end| Ic::instructions() > end) {
                return Err(BodyError::Long);
            }
            let len = wanted.max(at.saturating_add(WINDOW).min(self.block.body)).saturating_sub(at);
            self.bytes = Vec::new();
            self.bytes = self.segment(source, Segment::Body, at.min(self.block.body), len)?;
            self.start = at;
        }
        Ok(&self.bytes[(at - self.start) as usize..])
    }

    /// Reads the header and the number of transactions, which must be that of the index segment. Returns the first byte of the first
    /// transaction.
    pub fn begin(&mut self, source: Source) -> Result<u64, BodyError> {
        if self.block.body < HEADER {
            return Err(bad(0, format!("the body has {} bytes, and a block's header {HEADER}", self.block.body)));
        }
        let (count, at) = self.var_int(source, HEADER, "the number of transactions")?;
        if count != u64::from(self.block.transactions) {
            let indexed = self.block.transactions;
            return Err(bad(HEADER, format!("the body has {count} transactions, and the index segment {indexed}")));
        }
        Ok(at)
    }

    /// Reads a VarInt. Returns it, and the byte after it.
    fn var_int(&mut self, source: Source, at: u64, what: &str) -> Result<(u64, u64), BodyError> {
        let mut consumed = 0;
        let count = scan_len(self.read(source, at, 9)?, &mut consumed);
        let count = count.map_err(|_| bad(at, format!("{what} is not a VarInt of minimal length")))?;
        Ok((count, at + consumed as u64))
    }

    fn skip(&self, at: u64, bytes: u64, what: &str) -> Result<u64, BodyError> {
        let end = at.checked_add(bytes).filter(|end| *end <= self.block.body);
        end.ok_or_else(|| bad(at, format!("the body ends inside {what}")))
    }

    /// Returns the byte after the transaction that begins at `at`, as far as a walk goes. Nothing but lengths is read.
    pub fn end_of(&mut self, source: Source, at: u64, limits: WalkLimits) -> Result<u64, BodyError> {
        self.walk(source, at, limits, &mut |_| {})
    }

    /// Passes the outpoint of each input of the transaction that begins at `at`, and returns the byte after the transaction, as far as a walk
    /// goes.
    pub fn walk(&mut self, source: Source, at: u64, limits: WalkLimits, each: Each) -> Result<u64, BodyError> {
        let last = at.saturating_add(limits.bytes);
        self.end = limits.end;
        let end = self.walk_to(source, at, last, each);
        self.end = None;
        end.and_then(|end| if end > last { Err(BodyError::Long) } else { Ok(end) })
    }

    /// Walks the transaction that begins at `at`. Parts that are passed on end at byte `last` or before.
    fn walk_to(&mut self, source: Source, at: u64, last: u64, each: Each) -> Result<u64, BodyError> {
        let mut at = self.skip(at, 4, "a transaction's version")?;
        let is_witness = self.read(source, at, 2)?.starts_with(&[0, 1]);
        at += if is_witness { 2 } else { 0 };
        let (inputs, after) = self.var_int(source, at, "the number of inputs")?;
        at = after;
        for _ in 0..inputs {
            let end = self.skip(at, 36, "an input")?;
            let outpoint = self.part(source, at, 36, last)?;
            if let (Some(txid), Some(vout)) = (outpoint.first_chunk(), outpoint[32..].first_chunk()) {
                each((*txid, u32::from_le_bytes(*vout)));
            }
            at = end;
            let (script, after) = self.var_int(source, at, "the length of a script")?;
            at = self.skip(after, script.saturating_add(4), "an input")?;
        }
        let (outputs, after) = self.var_int(source, at, "the number of outputs")?;
        at = after;
        for _ in 0..outputs {
            at = self.skip(at, 8, "an output")?;
            self.part(source, at, 1, last)?;
            let (script, after) = self.var_int(source, at, "the length of a script")?;
            at = self.skip(after, script, "an output")?;
        }
        for _ in 0..if is_witness { inputs } else { 0 } {
            self.part(source, at, 1, last)?;
            let (mut items, after) = self.var_int(source, at, "the number of a witness's items")?;
            at = after;
            while items > 0 {
                let (passed, left) = pass_items(self.part(source, at, 1, last)?, 0, items);
                (at, items) = (self.skip(at, passed as u64, "a witness")?, left);
                if passed == 0 && items > 0 {
                    let (item, after) = self.var_int(source, at, "the length of a witness's item")?;
                    (at, items) = (self.skip(after, item, "a witness")?, items - 1);
                }
            }
        }
        self.skip(at, 4, "the lock time")
    }

    /// Reads a part of a transaction that ends at byte `last` of the body or before.
    fn part(&mut self, source: Source, at: u64, len: u64, last: u64) -> Result<&[u8], BodyError> {
        if at > last { Err(BodyError::Long) } else { self.read(source, at, len) }
    }
}
