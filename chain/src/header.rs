//! Headers: everything that is kept of a block besides its payload, in 256 bytes.
//!
//! ```text
//!   0 mark u16 0xB10C   2 reserved u16   4 transactions u32     8 number u64          16 log offset u64
//!  24 lengths 3 × u32  36 keys u32      40 timestamp u64       48 monotonic time u64
//!  56 id links u32     60 hash length u8   61 reserved, 3 bytes   64 hash 32
//!  96 seal 32                           128 SHA-256 of body, receipts, index
//! 224 references before u64
//! 232 the note of applying: height u32, 0: none  236 id u32  240 transactions u32  244 offset u32  248 replay u8
//! 249 reserved, 3 bytes                252 checksum u32 of all bytes before
//! ```
//! A block's *references* are its transactions and keys. "References before" is their sum over all earlier blocks, so the number of
//! references between any two blocks is the difference of two sums, and the blocks between are not read.
//!
//! The parent's hash is that of the header before.

use super::hash::{Hash, MAX_HASH};
use super::postings::links::links_len;
use ic_coppice_interface::BlockHeader;
use ic_coppice_interface::blocks::{self, Note};
use ic_coppice_interface::seals::Seal;
use ic_coppice_interface::segments::{MAX_BLOCK, Segment};
use ic_coppice_storage::bytes::{array_at, u16_at, u32_at, u64_at};
use ic_coppice_storage::checksum;
use serde_bytes::ByteBuf;

const MARK: u16 = 0xB10C;
/// Bytes of a header.
pub(super) const HEADER_LEN: usize = 256;
/// Bytes of a header up to the end of its hash.
pub(super) const HEAD: usize = 96;
/// Offset in a header of the note of applying.
pub(super) const NOTE: usize = 232;
const HASH_LEN: usize = 60;
const HASH: usize = 64;
const SEAL: usize = 96;
const DIGESTS: usize = 128;
const REFERENCES: usize = 224;

/// A header as it lies in memory.
pub(super) type Bytes = [u8; HEADER_LEN];

/// Returns whether these are the bytes of the header of block `number`, without damage.
pub(super) fn is_whole(bytes: &Bytes, number: u64) -> bool {
    u16_at(bytes, 0) == MARK && u64_at(bytes, 8) == number && checksum::is_right(bytes)
}

fn put(bytes: &mut Bytes, at: usize, field: &[u8]) {
    bytes[at..at + field.len()].copy_from_slice(field);
}

/// Numbers, sizes and times of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockMeta {
    /// Block number.
    pub number: u64,
    /// Log offset of the payload, in bytes.
    pub log_offset: u64,
    /// Bytes of body, receipts and index, which lie in this order.
    pub lengths: [u32; 3],
    /// Transactions in the index segment.
    pub transactions: u32,
    /// Secondary keys in the index segment.
    pub keys: u32,
    /// The producer's timestamp, in Unix seconds.
    pub timestamp_secs: u64,
    /// `min(now, max(previous, timestamp_secs))` at append: never runs backwards.
    pub monotonic: u64,
    /// Number of links of ids in the log: ids of the block that replaced a posting of a kept block.
    pub id_links: u32,
}

impl BlockMeta {
    /// Bytes of the whole payload.
    pub fn payload_len(&self) -> u64 {
        self.lengths.iter().map(|&len| u64::from(len)).sum()
    }

    /// Entries of the block in the two indexes: its references, as pruning counts them.
    pub fn references(&self) -> u64 {
        u64::from(self.transactions) + u64::from(self.keys)
    }

    /// One past the payload's last byte in the log; the links of the block's keys begin here.
    pub fn payload_end(&self) -> u64 {
        self.log_offset + self.payload_len()
    }

    /// Log offset of the links of the block's ids, after those of its keys.
    pub fn id_links_start(&self) -> u64 {
        self.payload_end() + links_len(self.keys)
    }

    /// One past the block's last byte in the log: after the payload and the links of its keys and ids.
    pub fn log_end(&self) -> u64 {
        self.id_links_start() + links_len(self.id_links)
    }

    /// Log offset of a segment.
    pub fn segment_start(&self, segment: Segment) -> u64 {
        self.log_offset + self.lengths[..segment.index()].iter().map(|&len| u64::from(len)).sum::<u64>()
    }

    fn encode(&self, r: &mut Bytes) {
        put(r, 0, &MARK.to_le_bytes());
        put(r, 4, &self.transactions.to_le_bytes());
        put(r, 8, &self.number.to_le_bytes());
        put(r, 16, &self.log_offset.to_le_bytes());
        put(r, 24, self.lengths.map(u32::to_le_bytes).as_flattened());
        put(r, 36, &self.keys.to_le_bytes());
        put(r, 40, &self.timestamp_secs.to_le_bytes());
        put(r, 48, &self.monotonic.to_le_bytes());
        put(r, 56, &self.id_links.to_le_bytes());
    }

    /// Reads the first bytes of a header, which must be whole.
    #[inline(always)]
    pub(super) fn read(r: &[u8]) -> Self {
        Self {
            number: u64_at(r, 8),
            log_offset: u64_at(r, 16),
            lengths: [u32_at(r, 24), u32_at(r, 28), u32_at(r, 32)],
            transactions: u32_at(r, 4),
            keys: u32_at(r, 36),
            timestamp_secs: u64_at(r, 40),
            monotonic: u64_at(r, 48),
            id_links: u32_at(r, 56),
        }
    }

    /// Reads the first bytes of a header that was not checked; `None` if it is certainly not that of block `number`.
    #[inline(always)]
    pub(super) fn peek(r: &[u8; HEAD], number: u64) -> Option<(Self, Hash)> {
        if u16_at(r, 0) != MARK || u64_at(r, 8) != number {
            return None;
        }
        let meta = Self::read(r);
        // A damaged header may contain any number: calculations with it must not overflow.
        let is_sane =
            meta.payload_len() <= MAX_BLOCK && meta.id_links <= meta.transactions && meta.log_offset < 1 << 62;
        if is_sane { Some((meta, Hash::stored(&array_at(r, HASH), r[HASH_LEN])?)) } else { None }
    }
}

/// A header without its digests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Numbers {
    /// Numbers, sizes and times.
    pub meta: BlockMeta,
    /// Block hash.
    pub hash: Hash,
    /// The block's seal; of a block in transit not yet known.
    pub seal: Seal,
    /// References of all blocks appended before this one and not rolled back.
    pub references_before: u64,
}

impl Numbers {
    #[inline]
    pub(super) fn read(r: &Bytes) -> Option<Self> {
        let hash = Hash::stored(&array_at(r, HASH), r[HASH_LEN])?;
        Some(Self { meta: BlockMeta::read(r), hash, seal: array_at(r, SEAL), references_before: u64_at(r, REFERENCES) })
    }

    /// Reads a header up to the note of applying that was not checked, as [`BlockMeta::peek`].
    pub(super) fn peek_numbers(r: &[u8; NOTE], number: u64) -> Option<Self> {
        let (meta, hash) = BlockMeta::peek(r.first_chunk()?, number)?;
        Some(Self { meta, hash, seal: array_at(r, SEAL), references_before: u64_at(r, REFERENCES) })
    }
}

/// Everything kept of a block except its payload and the note of applying.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredHeader {
    /// Numbers, sizes and times.
    pub meta: BlockMeta,
    /// Block hash.
    pub hash: Hash,
    /// The block's seal; of a block in transit not yet known.
    pub seal: Seal,
    /// SHA-256 of the three segments, as the producer declared them.
    pub sha256: [[u8; 32]; 3],
    /// References of all blocks appended before this one and not rolled back.
    pub references_before: u64,
}

impl StoredHeader {
    /// The header in the form that callers get.
    pub fn header(&self, parent: Option<Hash>) -> BlockHeader {
        BlockHeader {
            number: self.meta.number,
            hash: self.hash.to_bytes(),
            parent_hash: parent.map(Hash::to_bytes),
            timestamp_secs: self.meta.timestamp_secs,
            monotonic_timestamp_secs: self.meta.monotonic,
            transactions: self.meta.transactions,
            keys: self.meta.keys,
            lengths: self.meta.lengths.map(u64::from).into(),
            sha256: self.sha256.map(ByteBuf::from).into(),
            seal: ByteBuf::from(self.seal),
        }
    }

    pub(super) fn encode(&self) -> Bytes {
        let mut r = [0; HEADER_LEN];
        self.meta.encode(&mut r);
        r[HASH_LEN] = self.hash.len;
        put(&mut r, HASH, &self.hash.bytes);
        put(&mut r, SEAL, &self.seal);
        put(&mut r, DIGESTS, self.sha256.as_flattened());
        put(&mut r, REFERENCES, &self.references_before.to_le_bytes());
        checksum::put(&mut r);
        r
    }

    pub(super) fn read(r: &Bytes) -> Option<Self> {
        let Numbers { meta, hash, seal, references_before } = Numbers::read(r)?;
        let sha256 = [0, 1, 2].map(|i| array_at(r, DIGESTS + 32 * i));
        Some(Self { meta, hash, seal, sha256, references_before })
    }
}

/// Writes the note of a block, or that there is none, to a header without damage.
pub(super) fn write_note(note: Option<&Note>, r: &mut Bytes) {
    put(r, NOTE, note.unwrap_or(&[0; blocks::NOTE]));
    checksum::put(r);
}

/// Returns the note of a block; `None` if there is none.
pub(super) fn read_note(r: &Bytes) -> Option<Note> {
    let note: Note = array_at(r, NOTE);
    (note[..4] != [0; 4]).then_some(note)
}

const _: () =
    assert!(HASH + MAX_HASH == SEAL && HEAD == SEAL && NOTE + blocks::NOTE <= HEADER_LEN - checksum::CHECKSUM);
