//! Fixed-size block records, in pages of 256 records that are granules of the arena.
//!
//! Blocks are added and removed in order, so a page holds the records of 256 consecutive numbers. A directory locates the page; up to 268
//! million blocks can be kept at a time. A page goes back to the arena with its last record.
//!
//! ```text
//! directory                                       arena
//! ┌─ header ─┬─ ring: 2^20 × u32 ────┐            ┌─ page, 64 KiB ─┐
//! │ 64 bytes │ granule + 1, 0 = none │ ─────────▶ │ 256 records    │
//! └──────────┴───────────────────────┘            └────────────────┘
//! header: 0 magic "CPBR"  4 version u16
//!
//! record, 256 bytes
//!   0 mark u16 0xB10C   2 format u16 2      4 transactions u32      8 number u64         16 log offset u64
//!  24 lengths 3 × u32  36 keys u32         40 timestamp u64        48 monotonic time u64
//!  56 id links u32     60 hash length u8   61 parent length u8     64 hash 32            96 parent 32
//! 128 SHA-256 of body, receipts, index    224 references before u64
//! 232 gap u32: bytes of the log between the block before and this one
//! 236 the note of applying: height u32, 0: none  240 id u32  244 transactions u32  248 offset u32  252 replay u8
//! 253 reserved: 3 bytes
//! ```
//! A block's *references* are its transactions and keys. "References before" is their sum over all earlier blocks, so the number of
//! references between any two blocks is the difference of two sums, and the blocks between are not read.

use super::directory::Directory;
use super::postings::links::links_len;
use crate::storage::OpenError;
use crate::storage::blob::{Class, GRANULE, SlotState};
use crate::storage::memory::{GrowError, Space};
use crate::storage::{Arena, owners};
use coppice_interface::segments::{MAX_BLOCK, Segment};
use coppice_interface::{BlockHash, BlockHeader};
use coppice_storage::bytes::{u32_at, u64_at};
use coppice_storage::header::Header;
use serde_bytes::ByteBuf;

const LAYOUT: Header = Header { name: "block records", magic: *b"CPBR", version: 6 };
const MARK: u16 = 0xB10C;
const FORMAT: u16 = 2;
/// Bytes of a record.
const RECORD: usize = 256;
/// Bytes of a record's first part: numbers, sizes and times.
const META: usize = 60;
/// Offset in a record of the sum of references.
const REFERENCES: u64 = 224;
/// Offset in a record of the gap before the block.
const GAP: u64 = 232;
/// Offset in a record of the note of applying.
const APPLIED: u64 = 236;
/// Bytes of the note.
const NOTE: usize = 17;
/// Records of a page.
pub const PAGE_RECORDS: u64 = 256;
/// Maximum pages.
const RING: u64 = 1 << 20;
const _: () = assert!(PAGE_RECORDS * RECORD as u64 == GRANULE);
/// Bytes of the longest block hash.
pub const MAX_HASH: usize = 32;

/// An opaque block hash of up to 32 bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Hash {
    bytes: [u8; MAX_HASH],
    len: u8,
}

impl Hash {
    /// Returns `None` for more than 32 bytes.
    #[inline]
    pub fn new(hash: &[u8]) -> Option<Self> {
        let mut bytes = [0; MAX_HASH];
        bytes.get_mut(..hash.len())?.copy_from_slice(hash);
        Some(Self { bytes, len: hash.len() as u8 })
    }

    /// A hash as it is stored. Copies all 32 bytes, because a copy of constant length is cheapest.
    #[inline]
    pub fn stored(bytes: &[u8; MAX_HASH], len: u8) -> Option<Self> {
        (usize::from(len) <= MAX_HASH).then_some(Self { bytes: *bytes, len })
    }

    /// A copy of the hash's bytes.
    #[inline]
    pub fn to_bytes(self) -> BlockHash {
        let mut bytes = self.bytes.to_vec();
        bytes.truncate(usize::from(self.len));
        BlockHash::from(bytes)
    }

    /// The hash's bytes.
    pub fn as_slice(&self) -> &[u8] {
        &self.bytes[..usize::from(self.len)]
    }
}

/// The first bytes of a record: everything except hashes and digests. Most readers need no more, and copying bytes is the cost.
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

    /// Bytes of the links after the payload.
    pub fn links_len(&self) -> u64 {
        links_len(self.keys) + links_len(self.id_links)
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
        self.payload_end() + self.links_len()
    }

    /// Log offset of a segment.
    pub fn segment_start(&self, segment: Segment) -> u64 {
        self.log_offset + self.lengths[..segment.index()].iter().map(|&len| u64::from(len)).sum::<u64>()
    }

    fn encode(&self, r: &mut [u8; RECORD]) {
        let mut put = |at: usize, bytes: &[u8]| r[at..at + bytes.len()].copy_from_slice(bytes);
        put(0, &MARK.to_le_bytes());
        put(2, &FORMAT.to_le_bytes());
        put(4, &self.transactions.to_le_bytes());
        put(8, &self.number.to_le_bytes());
        put(16, &self.log_offset.to_le_bytes());
        for (i, len) in self.lengths.iter().enumerate() {
            put(24 + 4 * i, &len.to_le_bytes());
        }
        put(36, &self.keys.to_le_bytes());
        put(40, &self.timestamp_secs.to_le_bytes());
        put(48, &self.monotonic.to_le_bytes());
        put(56, &self.id_links.to_le_bytes());
    }

    #[inline(always)]
    fn decode(r: &[u8; META], number: u64) -> Option<Self> {
        let u16_at = |at: usize| u16::from_le_bytes([r[at], r[at + 1]]);
        let (u32_at, u64_at) = (|at: usize| u32_at(r, at), |at: usize| u64_at(r, at));
        if u16_at(0) != MARK || u16_at(2) != FORMAT || u64_at(8) != number {
            return None;
        }
        let meta = Self {
            number,
            log_offset: u64_at(16),
            lengths: [u32_at(24), u32_at(28), u32_at(32)],
            transactions: u32_at(4),
            keys: u32_at(36),
            timestamp_secs: u64_at(40),
            monotonic: u64_at(48),
            id_links: u32_at(56),
        };
        // A damaged record may contain any number: calculations with it must not overflow.
        let is_sane =
            meta.payload_len() <= MAX_BLOCK && meta.id_links <= meta.transactions && meta.log_offset < 1 << 62;
        is_sane.then_some(meta)
    }
}

/// A record without its hashes and digests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Numbers {
    /// Numbers, sizes and times.
    pub meta: BlockMeta,
    /// References of all blocks appended before this one and not rolled back.
    pub references_before: u64,
    /// Bytes of the log between the previous block and this one.
    pub gap: u32,
}

/// Everything kept of a block except its payload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BlockRecord {
    /// Numbers, sizes and times.
    pub meta: BlockMeta,
    /// Block hash.
    pub hash: Hash,
    /// The parent's hash.
    pub parent: Hash,
    /// SHA-256 of the three segments, as the producer declared them.
    pub sha256: [[u8; 32]; 3],
    /// References of all blocks appended before this one and not rolled back.
    pub references_before: u64,
    /// Bytes of the log between the previous block and this one; more than 0 after a damaged blob.
    pub gap: u32,
}

impl BlockRecord {
    /// The record in the form that callers get.
    pub fn header(&self) -> BlockHeader {
        BlockHeader {
            number: self.meta.number,
            hash: self.hash.to_bytes(),
            parent_hash: self.parent.to_bytes(),
            timestamp_secs: self.meta.timestamp_secs,
            monotonic_timestamp_secs: self.meta.monotonic,
            transactions: self.meta.transactions,
            keys: self.meta.keys,
            lengths: self.meta.lengths.map(u64::from).into(),
            sha256: self.sha256.map(ByteBuf::from).into(),
        }
    }

    fn encode(&self) -> [u8; RECORD] {
        let mut r = [0; RECORD];
        self.meta.encode(&mut r);
        let mut put = |at: usize, bytes: &[u8]| r[at..at + bytes.len()].copy_from_slice(bytes);
        put(60, &[self.hash.len, self.parent.len]);
        put(64, &self.hash.bytes);
        put(96, &self.parent.bytes);
        for (i, sha) in self.sha256.iter().enumerate() {
            put(128 + 32 * i, sha);
        }
        put(REFERENCES as usize, &self.references_before.to_le_bytes());
        put(GAP as usize, &self.gap.to_le_bytes());
        r
    }

    fn decode(r: &[u8; RECORD], number: u64) -> Option<Self> {
        let digest = |at: usize| <[u8; 32]>::try_from(&r[at..at + 32]).expect("32 bytes");
        Some(Self {
            meta: BlockMeta::decode(r.first_chunk()?, number)?,
            hash: Hash::stored(&digest(64), r[60])?,
            parent: Hash::stored(&digest(96), r[61])?,
            sha256: [digest(128), digest(160), digest(192)],
            references_before: u64::from_le_bytes(*r[REFERENCES as usize..].first_chunk()?),
            gap: u32::from_le_bytes(*r[GAP as usize..].first_chunk()?),
        })
    }
}

/// Note in a block's record: the block is applied to the UTXO records, completely or partly. The note is written when applying the block
/// begins, and goes when the block is taken back whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AppliedNote {
    /// The block's height, more than 0.
    pub height: u32,
    /// The chain's own number of the block.
    pub block_id: u32,
    /// Transactions that were applied when the block was finished, or when applying last ended in its middle.
    pub transactions: u32,
    /// The byte of the body at which applying last ended in the block's middle; 0: the block is finished, or nothing of it is applied.
    pub offset: u32,
    /// The block may have been applied before its note was written: records at or below the pruned height that are absent count as pruned.
    pub is_replay: bool,
}

impl AppliedNote {
    fn encode(note: Option<&Self>) -> [u8; NOTE] {
        let mut bytes = [0; NOTE];
        if let Some(note) = note {
            for (at, word) in [(0, note.height), (4, note.block_id), (8, note.transactions), (12, note.offset)] {
                bytes[at..at + 4].copy_from_slice(&word.to_le_bytes());
            }
            bytes[16] = u8::from(note.is_replay);
        }
        bytes
    }

    fn decode(bytes: &[u8; NOTE]) -> Option<Self> {
        let [height, block_id, transactions, offset] = [0, 4, 8, 12].map(|at| u32_at(bytes, at));
        (height > 0).then_some(Self { height, block_id, transactions, offset, is_replay: bytes[16] == 1 })
    }
}

/// The records of the kept blocks.
pub struct RecordStore {
    directory: Directory,
    arena: Arena,
}

impl RecordStore {
    /// Opens the directory, or creates an empty store there.
    ///
    /// # Errors
    /// [`OpenError`].
    pub fn open(space: Space, arena: Arena) -> Result<Self, OpenError> {
        Ok(Self { directory: Directory::open(space, &LAYOUT, 4, RING)?, arena })
    }

    fn named(&self, number: u64) -> u32 {
        self.directory.space().read_u32(self.directory.at(number / PAGE_RECORDS))
    }

    fn set_named(&self, number: u64, name: u32) {
        self.directory.space().write_u32(self.directory.at(number / PAGE_RECORDS), name);
    }

    /// The granule that the ring names for `number`, or `None` if it names none in the arena.
    #[inline]
    fn named_page(&self, number: u64) -> Option<u64> {
        let granule = u64::from(self.named(number).checked_sub(1)?);
        (granule < self.arena.end() / GRANULE).then_some(granule)
    }

    /// The granule of the page of `number`, or `None` if the ring names none, or is damaged and names one that has another owner.
    fn page(&self, number: u64) -> Option<u64> {
        let granule = self.named_page(number)?;
        let entry = self.arena.entry(granule)?.ok()?;
        (entry.state == SlotState::Taken && entry.owner == owners::BLOCK_RECORDS).then_some(granule)
    }

    /// Offset in the arena of the record of `number`. Readers trust the ring, which only this store writes, and check the mark and the number
    /// of the record; writers check the page's owner.
    #[inline]
    fn address(&self, number: u64) -> Option<u64> {
        let page = self.named_page(number)?;
        Some(page.wrapping_mul(GRANULE).wrapping_add((number % PAGE_RECORDS).wrapping_mul(RECORD as u64)))
    }

    /// Reserves memory for the record of `number`; `oldest` is the oldest kept block.
    pub fn reserve(&self, number: u64, oldest: u64) -> Result<(), GrowError> {
        let (page, first) = (number / PAGE_RECORDS, oldest.min(number) / PAGE_RECORDS);
        if page - first >= RING {
            return Err(GrowError::OutOfSpace);
        }
        if self.page(number).is_some() {
            return self.arena.reserve(owners::BLOCK_RECORDS, &[]);
        }
        self.directory.reserve(first, page..page + 1)?;
        self.arena.reserve(owners::BLOCK_RECORDS, &[(Class::SMALLEST, 1)])
    }

    /// Writes a record; [`reserve`](Self::reserve) must have succeeded.
    pub fn put(&mut self, record: &BlockRecord) {
        let number = record.meta.number;
        let page = self.page(number).unwrap_or_else(|| {
            let page = self.arena.take_granules(owners::BLOCK_RECORDS, 1).unwrap_or_else(|error| {
                crate::platform::trap(&format!("block record {number}: memory was not reserved: {error}"))
            });
            self.set_named(number, page as u32 + 1);
            page
        });
        let at = page * GRANULE + number % PAGE_RECORDS * RECORD as u64;
        self.arena.payload().write(at, &record.encode());
    }

    /// The record of a kept block; `None` if it cannot be decoded.
    pub fn get(&self, number: u64) -> Option<BlockRecord> {
        self.arena.payload().read_with(self.address(number)?, |bytes| BlockRecord::decode(bytes, number))
    }

    /// Numbers, sizes and times of a kept block; `None` if its record cannot be decoded.
    pub fn meta(&self, number: u64) -> Option<BlockMeta> {
        self.arena.payload().read_with(self.address(number)?, |bytes| BlockMeta::decode(bytes, number))
    }

    /// Numbers, sum of references and gap of a kept block, in one read; `None` if its record cannot be decoded.
    pub fn numbers(&self, number: u64) -> Option<Numbers> {
        self.arena.payload().read_with(self.address(number)?, |bytes: &[u8; GAP as usize + 4]| {
            let meta = BlockMeta::decode(bytes.first_chunk()?, number)?;
            let references_before = u64::from_le_bytes(*bytes[REFERENCES as usize..].first_chunk()?);
            let gap = u32::from_le_bytes(*bytes[GAP as usize..].first_chunk()?);
            Some(Numbers { meta, references_before, gap })
        })
    }

    /// References of the blocks before a kept one; `None` if its record cannot be decoded.
    pub fn references_before(&self, number: u64) -> Option<u64> {
        self.numbers(number).map(|numbers| numbers.references_before)
    }

    /// Numbers, sizes and times of a kept block, and its hash.
    #[inline(always)]
    pub fn meta_and_hash(&self, number: u64) -> Option<(BlockMeta, Hash)> {
        self.arena.payload().read_with(self.address(number)?, |bytes: &[u8; META + 4 + MAX_HASH]| {
            let meta = BlockMeta::decode(bytes.first_chunk()?, number)?;
            Some((meta, Hash::stored(bytes[META + 4..].first_chunk()?, bytes[META])?))
        })
    }

    /// The note of a kept block that is applied; `None` if the block is not applied, or its record cannot be decoded.
    pub fn applied(&self, number: u64) -> Option<AppliedNote> {
        self.arena.payload().read_with(self.address(number)?, |bytes: &[u8; APPLIED as usize + NOTE]| {
            BlockMeta::decode(bytes.first_chunk()?, number)?;
            AppliedNote::decode(bytes[APPLIED as usize..].first_chunk()?)
        })
    }

    /// Writes the note of a kept block, or removes it. A damaged record stays as it is.
    pub fn note_applied(&mut self, number: u64, note: Option<&AppliedNote>) {
        if self.page(number).is_none() || self.meta(number).is_none() {
            return;
        }
        if let Some(record) = self.address(number) {
            self.arena.payload().write(record + APPLIED, &AppliedNote::encode(note));
        }
    }

    /// Removes a record. `last_of_page`: the page has no other kept record, so it goes back to the arena.
    pub fn remove(&mut self, number: u64, last_of_page: bool) {
        let Some(page) = self.page(number) else { return };
        self.arena.payload().write(page * GRANULE + number % PAGE_RECORDS * RECORD as u64, &[0; 16]);
        if last_of_page {
            self.set_named(number, 0);
            self.arena.give_granules(owners::BLOCK_RECORDS, page);
        }
    }

    /// Points the ring's slot for `number` to another page, as damage would.
    #[cfg(test)]
    pub fn poison_page(&self, number: u64, page: u32) {
        self.set_named(number, page);
    }

    /// Overwrites a record so that it cannot be decoded.
    #[cfg(test)]
    pub fn poison(&self, number: u64) {
        let at = self.address(number).unwrap();
        self.arena.payload().write(at, &[0xEE; 16]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::platform::native;
    use crate::storage::memory::{self, BLOCK_RECORDS};

    fn open() -> RecordStore {
        RecordStore::open(crate::testing::space(BLOCK_RECORDS), memory::arena().unwrap()).unwrap()
    }

    pub fn record(number: u64) -> BlockRecord {
        let meta = BlockMeta {
            number,
            log_offset: number % 1_000_000 * 1000,
            lengths: [1, 2, 3],
            transactions: 4,
            keys: 5,
            timestamp_secs: 6,
            monotonic: 7,
            id_links: 2,
        };
        BlockRecord {
            meta,
            hash: Hash::new(&[number as u8; 32]).unwrap(),
            parent: Hash::new(b"short").unwrap(),
            sha256: [[1; 32], [2; 32], [3; 32]],
            references_before: number / 7,
            gap: number as u32 % 3,
        }
    }

    #[test]
    fn records_read_back_and_pages_are_reused() {
        native::reset();
        memory::forget();
        let mut store = open();
        let first = u64::MAX / 2;
        let window = 600;
        let kept = || memory::arena().unwrap().kept_bytes(owners::BLOCK_RECORDS);
        for number in first..first + 5_000 {
            store.reserve(number, first).unwrap();
            store.put(&record(number));
            if number >= first + window {
                let gone = number - window;
                assert_eq!(store.get(gone), Some(record(gone)));
                assert_eq!(store.meta(gone), Some(record(gone).meta));
                assert_eq!(store.references_before(gone), Some(gone / 7));
                assert_eq!(store.meta_and_hash(gone), Some((record(gone).meta, record(gone).hash)));
                store.remove(gone, (gone + 1) % PAGE_RECORDS == 0);
                assert_eq!(store.get(gone), None);
            }
            if number == first + 3_000 {
                memory::forget();
                store = open();
            }
        }
        assert_eq!(store.get(first + 4_999), Some(record(first + 4_999)));
        assert_eq!(kept(), 3 * GRANULE, "600 records");
        (first + 4_400..first + 5_000).for_each(|number| store.remove(number, (number + 1) % PAGE_RECORDS == 0));
        assert!(kept() <= GRANULE, "only the page of the next record");
    }

    /// A page that does not exist, that is free, or that another store has: an access would trap on every retry, or return foreign bytes.
    #[test]
    fn record_on_a_page_of_another_owner_is_none() {
        for page in [7, 8, 4_000_000_000, u32::MAX] {
            native::reset();
            memory::forget();
            let mut store = open();
            for number in 0..300 {
                store.reserve(number, 0).unwrap();
                store.put(&record(number));
            }
            assert_eq!(memory::arena().unwrap().take_granules(owners::RECORDS, 1), Ok(6));
            store.poison_page(270, page);
            assert_eq!((store.get(270), store.meta(270), store.meta_and_hash(270)), (None, None, None));
            assert_eq!(store.numbers(270), None);
            store.remove(270, true);
            assert_eq!(store.get(255), Some(record(255)), "the other records are readable");
            store.reserve(300, 0).unwrap();
            store.put(&record(300));
            assert_eq!((store.get(300), store.get(299)), (Some(record(300)), None), "on a page of its own");
        }
    }

    #[test]
    fn note_of_applying_is_read_back_and_goes_with_its_record() {
        native::reset();
        memory::forget();
        let mut store = open();
        for number in [3, 4] {
            store.reserve(number, 3).unwrap();
            store.put(&record(number));
        }
        assert_eq!(store.applied(3), None);
        let note =
            AppliedNote { height: 0x0102, block_id: 0x0304, transactions: 0x0506, offset: 0x0708, is_replay: true };
        store.note_applied(3, Some(&note));
        assert_eq!((store.applied(3), store.applied(4), store.get(3)), (Some(note), None, Some(record(3))));
        let at = store.address(3).unwrap() + APPLIED;
        let bytes: [u8; NOTE] = store.arena.payload().read(at);
        assert_eq!(bytes, [2, 1, 0, 0, 4, 3, 0, 0, 6, 5, 0, 0, 8, 7, 0, 0, 1]);
        store.note_applied(3, None);
        assert_eq!(store.applied(3), None);
        store.note_applied(3, Some(&note));
        store.put(&record(3));
        assert_eq!(store.applied(3), None, "another block has the number");
        store.poison(4);
        store.note_applied(4, Some(&note));
        assert_eq!(store.applied(4), None);
    }

    #[test]
    fn undecodable_record_is_none() {
        native::reset();
        memory::forget();
        let mut store = open();
        store.reserve(3, 3).unwrap();
        store.put(&record(3));
        assert_eq!(store.get(3 + RING * PAGE_RECORDS), None, "same slot of the ring, another number");
        store.poison(3);
        assert_eq!(store.get(3), None);
        assert_eq!(store.reserve(RING * PAGE_RECORDS, 3), Err(GrowError::OutOfSpace));
        // More links than ids: a reader that relied on the count would read that many.
        let mut damaged = record(3);
        damaged.meta.id_links = damaged.meta.transactions + 1;
        store.put(&damaged);
        assert_eq!((store.get(3), store.meta(3), store.references_before(3)), (None, None, None));
        assert!(Hash::new(&[0; 33]).is_none());
    }
}
