//! A row of the queue as it lies in its slot.
//!
//! ```text
//!  0 kind u8 3        1 version u8 1       2 flags u16           4 id u64           12 delete at height u32
//! 16 retries u32     20 last retry u64    28 txid of the record that goes with it 32
//! 60 links: 3 × (key, previous, next) u32: by name, by id, by height (of one that was given up: by id among those)
//! 96 store type u8   97 bytes of the file type u8   98 bytes of the key u16   100 file type ‖ key
//! ```

use crate::api::{BlobDeletion, StoreType};
use crate::slots::{SlotId, Slots};
use serde_bytes::ByteBuf;

/// Bytes before the file type.
const HEAD: u32 = 100;
const KIND: [u8; 2] = [3, 1];

/// Flags of a row.
mod flag {
    /// It was given up.
    pub const DEAD: u16 = 1;
    /// A UTXO record goes with it.
    pub const RECORD: u16 = 2;
}

/// Where the links lie.
pub mod at {
    pub const BY_NAME: u32 = 60;
    pub const BY_ID: u32 = 72;
    pub const BY_HEIGHT: u32 = 84;
}

/// What a blob outside is called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlobName<'a> {
    /// Its key, at most 64 KiB.
    pub key: &'a [u8],
    /// What kind of file it is, at most 255 bytes.
    pub file_type: &'a str,
    /// Which store has it.
    pub store_type: StoreType,
}

impl BlobName<'_> {
    /// Bytes that a row of this name takes.
    pub fn row_len(&self) -> u32 {
        HEAD + (self.file_type.len() + self.key.len()) as u32
    }

    /// What the name is found by.
    pub fn bytes(&self) -> Vec<u8> {
        [&[self.store_type as u8, self.file_type.len() as u8], self.file_type.as_bytes(), self.key].concat()
    }
}

/// A row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// What is shown of it.
    pub shown: BlobDeletion,
    /// It was given up.
    pub dead: bool,
}

impl Row {
    /// `None` where the bytes are not those of a row that this code wrote.
    pub fn read(slots: &Slots, slot: SlotId) -> Option<Self> {
        if !slots.holds(slot, u64::from(HEAD)) {
            return None;
        }
        let b: [u8; HEAD as usize] = slots.read(slot, 0);
        let word = |at: usize| u32::from_le_bytes([b[at], b[at + 1], b[at + 2], b[at + 3]]);
        let long = |at: usize| u64::from(word(at)) | u64::from(word(at + 4)) << 32;
        let flags = u16::from_le_bytes([b[2], b[3]]);
        let (kind_len, key_len) = (usize::from(b[97]), usize::from(u16::from_le_bytes([b[98], b[99]])));
        if b[..2] != KIND || !slots.holds(slot, u64::from(HEAD) + (kind_len + key_len) as u64) {
            return None;
        }
        let mut tail = Vec::new();
        slots.read_onto(&mut tail, slot, HEAD, kind_len + key_len);
        let key = tail.split_off(kind_len);
        let shown = BlobDeletion {
            id: long(4),
            blob_key: ByteBuf::from(key),
            file_type: String::from_utf8(tail).ok()?,
            store_type: *StoreType::ALL.get(usize::from(b[96]))?,
            delete_at_height: word(12),
            retry_count: word(16),
            last_retry_at: long(20),
            txid: (flags & flag::RECORD != 0).then(|| ByteBuf::from(&b[28..60])),
        };
        Some(Self { shown, dead: flags & flag::DEAD != 0 })
    }

    /// Writes it, but for its links: those of a new row are cleared.
    pub fn write(&self, slots: &mut Slots, slot: SlotId, new: bool) {
        let shown = &self.shown;
        let flags = if self.dead { flag::DEAD } else { 0 } | if shown.txid.is_some() { flag::RECORD } else { 0 };
        let mut bytes = Vec::from(KIND);
        bytes.extend(flags.to_le_bytes());
        bytes.extend(shown.id.to_le_bytes());
        bytes.extend(shown.delete_at_height.to_le_bytes());
        bytes.extend(shown.retry_count.to_le_bytes());
        bytes.extend(shown.last_retry_at.to_le_bytes());
        bytes.extend(shown.txid.as_ref().map_or(&[0; 32][..], |txid| txid));
        if new {
            bytes.extend([0; 36]);
            bytes.extend([shown.store_type as u8, shown.file_type.len() as u8]);
            bytes.extend((shown.blob_key.len() as u16).to_le_bytes());
            bytes.extend_from_slice(shown.file_type.as_bytes());
            bytes.extend_from_slice(&shown.blob_key);
        }
        slots.write(slot, 0, &bytes);
    }

    /// Whether this is its name.
    pub fn is_named(&self, name: &BlobName) -> bool {
        let shown = &self.shown;
        (shown.blob_key.as_slice(), shown.file_type.as_str(), shown.store_type)
            == (name.key, name.file_type, name.store_type)
    }
}
