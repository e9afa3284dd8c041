//! One bucket: up to 31 entries in 512 bytes.
//!
//! ```text
//! ┌───────────┬──────────┬──────────┬──────────┬───────────────────────┐
//! │ count u16 │ reserved │ next u32 │ reserved │ 31 × (hash, value) u64│
//! └───────────┴──────────┴──────────┴──────────┴───────────────────────┘
//! 0           2          4          8          16                    512
//! ```
//! `next` is the first overflow bucket, 0 for none.

/// Bytes of a bucket.
pub const BUCKET: u64 = 512;
/// Entries of a bucket.
pub const SLOTS: usize = 31;
const HEADER: usize = 16;
const ENTRY: usize = 16;

/// What a table holds: the full hash of the key, and a word that is the owner's business.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    pub hash: u64,
    pub value: u64,
}

impl Entry {
    pub fn encode(self) -> [u8; ENTRY] {
        let mut bytes = [0; ENTRY];
        bytes[..8].copy_from_slice(&self.hash.to_le_bytes());
        bytes[8..].copy_from_slice(&self.value.to_le_bytes());
        bytes
    }
}

/// Count and link of a bucket.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BucketHeader {
    pub count: u16,
    pub next: u32,
}

impl BucketHeader {
    pub fn encode(self) -> [u8; 8] {
        let mut bytes = [0; 8];
        bytes[..2].copy_from_slice(&self.count.to_le_bytes());
        bytes[4..].copy_from_slice(&self.next.to_le_bytes());
        bytes
    }

    pub fn decode(bytes: [u8; 8]) -> Self {
        let word = u64::from_le_bytes(bytes);
        // A count that could not be is cut to what fits: a torn bucket can't be, and a panic here would stop every reader.
        Self { count: (word as u16).min(SLOTS as u16), next: (word >> 32) as u32 }
    }
}

/// Where entry `slot` lies in its bucket.
pub const fn entry_offset(slot: usize) -> u64 {
    (HEADER + slot * ENTRY) as u64
}

/// A whole bucket in the heap.
pub struct Bucket(pub [u8; BUCKET as usize]);

impl Bucket {
    pub fn header(&self) -> BucketHeader {
        BucketHeader::decode(self.0[..8].try_into().expect("eight bytes"))
    }

    /// Entries that are in use, with their slot.
    #[inline]
    pub fn entries(&self) -> impl Iterator<Item = Entry> {
        let count = usize::from(self.header().count);
        self.0[HEADER..HEADER + count * ENTRY].chunks_exact(ENTRY).map(|bytes| Entry {
            hash: u64::from_le_bytes(bytes[..8].try_into().expect("eight bytes")),
            value: u64::from_le_bytes(bytes[8..].try_into().expect("eight bytes")),
        })
    }

    /// A bucket of these entries, at most [`SLOTS`].
    pub fn of(entries: &[Entry], next: u32) -> Self {
        let mut bytes = [0; BUCKET as usize];
        bytes[..8].copy_from_slice(&BucketHeader { count: entries.len() as u16, next }.encode());
        for (slot, entry) in entries.iter().enumerate() {
            let at = entry_offset(slot) as usize;
            bytes[at..at + ENTRY].copy_from_slice(&entry.encode());
        }
        Self(bytes)
    }
}
