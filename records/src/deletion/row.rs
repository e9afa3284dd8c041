//! Row of the queue: its layout in a slot.
//!
//! ```text
//!  0 kind u8 3   1 version u8 3   2 state u8, + 128: reported deleted   3 u8: lane × 2, + 1 with a UTXO record   4 retries u32   8 last retry u64   16 lease u64
//! 24 delete at height u32   28 due since u32, in half hours (`ages.rs`); 0: not counted
//! 32 order u64 ‖ id u64 ‖ 3 links u32: a treap's node (`slots::treap`) with the key (order, id);
//!                                     the links of a leased row: previous, next in the lease's ring
//! 60 next by name u32            64 next by id u32            68 hash of the name u32
//! 72 store type u8   73 bytes of the file type u8   74 bytes of the key u16   76 txid 32   108 file type ‖ key
//! ```
//! The order of a waiting row is its height; of a row that backs off, the end of the back-off; of a leased row of unknown fate, 1; of other
//! rows, 0. A row is of *unknown fate* if its holder has reported that the blob's store did not answer. A row is *reported deleted* if a
//! worker reported its blob as deleted while deletions were stopped (`reported.rs`).

use super::answer::{Answer, has_bytes};
use ic_coppice_interface::{
    BlobDeletion, BlobDeletionState, BlobName, ExternalStore, FileType, MAX_BLOB_KEY, StoreType, Txid,
};
use ic_coppice_storage::bytes::{u32_at, u64_at};
use ic_coppice_storage::slots::{SlotId, Slots};
use serde_bytes::ByteBuf;

/// Bytes before the file type.
const HEAD: u32 = 108;
const KIND: [u8; 2] = [3, 3];
/// Bytes of the longest file type.
pub const MAX_TYPE: usize = 32;

/// Flag: the row has a UTXO record.
const RECORD: u8 = 1;
/// Flag of the state's byte: the row is reported deleted.
const REPORTED: u8 = 128;

/// Offsets of the parts that are written separately.
pub mod at {
    /// Node of the treap.
    pub const NODE: u32 = 32;
    /// Links of a leased row to the previous and the next row.
    pub const BEFORE: u32 = 48;
    pub const AFTER: u32 = 52;
    pub const BY_NAME: u32 = 60;
    pub const BY_ID: u32 = 64;
    /// End of the fields that change with a row's state, except the links.
    pub const LINKS: usize = 48;
    /// Transaction id of the row's record.
    pub const TXID: u32 = 76;
}

/// Name of an external blob.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Name<'a> {
    /// Key of the blob.
    pub key: &'a [u8],
    /// File type of the blob.
    pub file_type: &'a str,
    /// Store that holds the blob.
    pub store_type: StoreType,
}

impl<'a> From<&'a BlobName> for Name<'a> {
    fn from(name: &'a BlobName) -> Self {
        Self { key: &name.blob_key, file_type: &name.file_type, store_type: name.store_type }
    }
}

impl<'a> From<&'a ExternalStore> for Name<'a> {
    fn from(store: &'a ExternalStore) -> Self {
        let file_type = match store.file_type {
            FileType::Tx => "tx",
            FileType::Outputs => "outputs",
        };
        Self { key: &store.blob_key, file_type, store_type: store.store_type }
    }
}

impl Name<'_> {
    /// # Errors
    /// `Empty`, `TooLarge`.
    pub fn check(&self) -> Answer<()> {
        has_bytes("blob_key", self.key, MAX_BLOB_KEY)?;
        has_bytes("file_type", self.file_type.as_bytes(), MAX_TYPE)
    }

    /// Returns the bytes of a row with this name.
    pub fn row_len(&self) -> u32 {
        HEAD + (self.file_type.len() + self.key.len()) as u32
    }

    /// Returns the bytes that are hashed to find the name.
    pub fn bytes(&self) -> Vec<u8> {
        [&[self.store_type as u8, self.file_type.len() as u8], self.file_type.as_bytes(), self.key].concat()
    }
}

/// Fixed fields of a row: all except its file type and key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Row {
    pub slot: SlotId,
    pub state: BlobDeletionState,
    pub retries: u32,
    pub last_retry: u64,
    /// The lease of the row, or the lease under which it last failed; 0 if none.
    pub lease: u64,
    pub height: u32,
    /// Half hour since which the row has been due; 0: not counted.
    pub due_since: u32,
    pub order: u64,
    pub id: u64,
    pub hash: u32,
    pub store_type: StoreType,
    /// Lane of the row.
    pub lane: u8,
    type_len: u8,
    key_len: u16,
    pub txid: Option<[u8; 32]>,
    /// True if a worker reported the blob as deleted while deletions were stopped.
    pub reported: bool,
}

impl Row {
    /// Returns a new row of this name, which is not written yet.
    pub fn new(slot: SlotId, id: u64, name: &Name, hash: u32, lane: u8) -> Self {
        Self {
            slot,
            state: BlobDeletionState::Waiting,
            retries: 0,
            last_retry: 0,
            lease: 0,
            height: 0,
            due_since: 0,
            order: 0,
            id,
            hash,
            store_type: name.store_type,
            lane,
            type_len: name.file_type.len() as u8,
            key_len: name.key.len() as u16,
            txid: None,
            reported: false,
        }
    }

    /// Reads a row, or returns `None` if this code did not write the bytes.
    pub fn read(slots: &Slots, slot: SlotId) -> Option<Self> {
        // Every slot has as many bytes. The whole row is checked below.
        if !slots.contains(slot) {
            return None;
        }
        let row = slots.read_with(slot, 0, |b: &[u8; HEAD as usize]| {
            let (word, long) = (|at| u32_at(b, at), |at| u64_at(b, at));
            if b[..2] != KIND {
                return None;
            }
            Some(Self {
                slot,
                state: *BlobDeletionState::ALL.get(usize::from(b[2] & !REPORTED))?,
                retries: word(4),
                last_retry: long(8),
                lease: long(16),
                height: word(24),
                due_since: word(28),
                order: long(32),
                id: long(40),
                hash: word(68),
                store_type: *StoreType::ALL.get(usize::from(b[72]))?,
                lane: b[3] >> 1,
                type_len: b[73],
                key_len: u16::from_le_bytes([b[74], b[75]]),
                txid: (b[3] & RECORD != 0).then(|| *b[76..].first_chunk().expect("32 bytes")),
                reported: b[2] & REPORTED != 0,
            })
        })?;
        slots.holds(slot, u64::from(HEAD) + row.tail_len() as u64).then_some(row)
    }

    /// Returns whether the row was given up and no record waits for it.
    pub fn is_dead_alone(&self) -> bool {
        self.state == BlobDeletionState::Dead && self.txid.is_none()
    }

    fn tail_len(&self) -> usize {
        usize::from(self.type_len) + usize::from(self.key_len)
    }

    /// Writes the fields that change with the row's state, except the links.
    pub fn save(&self, slots: &mut Slots) {
        slots.write(self.slot, 0, &self.head());
    }

    fn head(&self) -> [u8; at::LINKS] {
        let mut b = [0; at::LINKS];
        let flags = self.lane << 1 | if self.txid.is_some() { RECORD } else { 0 };
        let state = self.state as u8 | if self.reported { REPORTED } else { 0 };
        b[..4].copy_from_slice(&[KIND[0], KIND[1], state, flags]);
        b[4..8].copy_from_slice(&self.retries.to_le_bytes());
        b[8..24].copy_from_slice([self.last_retry, self.lease].map(u64::to_le_bytes).as_flattened());
        b[24..32].copy_from_slice([self.height, self.due_since].map(u32::to_le_bytes).as_flattened());
        b[32..48].copy_from_slice([self.order, self.id].map(u64::to_le_bytes).as_flattened());
        b
    }

    /// Writes a whole new row.
    pub fn create(&self, slots: &mut Slots, name: &Name) {
        let mut bytes = Vec::with_capacity(name.row_len() as usize);
        bytes.extend(self.head());
        bytes.extend([0; 20]);
        bytes.extend(self.hash.to_le_bytes());
        bytes.extend([self.store_type as u8, self.type_len]);
        bytes.extend(self.key_len.to_le_bytes());
        bytes.extend(self.txid.unwrap_or_default());
        bytes.extend_from_slice(name.file_type.as_bytes());
        bytes.extend_from_slice(name.key);
        slots.write(self.slot, 0, &bytes);
    }

    /// Returns whether the row has this name.
    pub fn is_named(&self, slots: &Slots, name: &Name) -> bool {
        let lens = (usize::from(self.type_len), usize::from(self.key_len));
        if (self.store_type, lens) != (name.store_type, (name.file_type.len(), name.key.len())) {
            return false;
        }
        let mut tail = Vec::new();
        slots.read_onto(&mut tail, self.slot, HEAD, self.tail_len());
        tail.starts_with(name.file_type.as_bytes()) && tail.ends_with(name.key)
    }

    /// Returns the row as callers see it, or `None` if its file type is not UTF-8.
    pub fn shown(&self, slots: &Slots) -> Option<BlobDeletion> {
        let mut file_type = Vec::new();
        slots.read_onto(&mut file_type, self.slot, HEAD, self.tail_len());
        let key = file_type.split_off(self.type_len.into());
        Some(BlobDeletion {
            id: self.id,
            blob_key: ByteBuf::from(key),
            file_type: String::from_utf8(file_type).ok()?,
            store_type: self.store_type,
            delete_at_height: self.height,
            retry_count: self.retries,
            last_retry_at_ns: Some(self.last_retry).filter(|at| *at > 0),
            txid: self.txid.map(Txid::from),
        })
    }
}
