//! Location of a record's transaction: the bytes after the page directory are the transaction, or name its place.
//!
//! ```text
//! BlobStore: n × (offset u64, len u32, class u32, generation u32)       parts of 4 MiB, the last one shorter
//! external:  store type u8 ‖ file type u8 ‖ the blob's key
//! block:     u32 0 ‖ block u64 ‖ first byte in its body u64
//! slot:      u32 1 ‖ slot u64 ‖ u64 0
//! ```
//! A location in a block has as many bytes as parts in the BlobStore would take, so that the bytes can be copied in later.

use super::head::Head;
use super::layout::flag;
use crate::owners;
use crate::utxo::call::Answer;
use ic_coppice_interface::{ExternalStore, FileType, NoMemory, StoreType, TransactionPlace, UtxoRefusal};
use ic_coppice_storage::blob::{AllocateError, BlobPtr, BlobStore, Class, GRANULE, MAX_BLOB, PtrError};
use ic_coppice_storage::bytes::{u32_at, u64_at};
use ic_coppice_storage::slots::{SlotId, Slots};
use ic_coppice_storage::{Ic, Platform as _};
use serde_bytes::ByteBuf;

const PART: usize = 20;
/// The kinds of places of [`flag::KEPT`].
const IN_BLOCK: u32 = 0;
const IN_SLOT: u32 = 1;

/// Returns the bytes that name parts in the BlobStore.
pub fn encode_parts(parts: &[BlobPtr]) -> Vec<u8> {
    let mut out = Vec::with_capacity(parts.len() * PART);
    for part in parts {
        out.extend(part.offset.to_le_bytes());
        [part.len, part.class, part.generation].iter().for_each(|word| out.extend(word.to_le_bytes()));
    }
    out
}

/// Returns the bytes that name an external blob.
pub fn encode_external(store: &ExternalStore) -> Vec<u8> {
    [&[store.store_type as u8, store.file_type as u8], store.blob_key.as_slice()].concat()
}

/// Returns the bytes that name a place in the body of a kept block, for a transaction of `len` bytes.
pub fn encode_block(number: u64, offset: u64, len: u64) -> Vec<u8> {
    let mut out = encode_kept(IN_BLOCK, number, offset);
    out.resize((len.div_ceil(u64::from(MAX_BLOB)) as usize).max(1) * PART, 0);
    out
}

/// Returns the bytes that name the slot of a transaction.
pub fn encode_slot(slot: SlotId) -> Vec<u8> {
    encode_kept(IN_SLOT, u64::from(slot), 0)
}

fn encode_kept(kind: u32, first: u64, second: u64) -> Vec<u8> {
    [&kind.to_le_bytes()[..], &first.to_le_bytes(), &second.to_le_bytes()].concat()
}

/// Returns the slot that has a transaction's bytes, if it is a slot of their own.
pub fn own_slot(slots: &Slots, slot: SlotId, head: &Head) -> Option<SlotId> {
    if !head.is(flag::KEPT) || head.transaction_len < PART as u32 {
        return None;
    }
    let bytes: [u8; PART] = slots.read(slot, head.transaction_at());
    let named = u64_at(&bytes, 4) as SlotId;
    (u32_at(&bytes, 0) == IN_SLOT && slots.holds(named, head.size)).then_some(named)
}

/// Stores all bytes in parts, or none.
///
/// # Errors
/// `ExternalFull`, `RecordsFull`, `OutOfSpace`, `LowCycles`; nothing has changed.
pub fn store(blobs: &mut BlobStore, bytes: &[u8], limit: u64) -> Answer<Vec<BlobPtr>> {
    let parts = allocate(blobs, bytes.len() as u64, limit)?;
    for (part, bytes) in parts.iter().zip(bytes.chunks(MAX_BLOB as usize)) {
        let written = blobs.write(part, 0, bytes);
        written.unwrap_or_else(|error| Ic::trap(&format!("a new blob cannot be written: {error}")));
    }
    Ok(parts)
}

/// Allocates all parts for `len` bytes, or none.
///
/// # Errors
/// As [`store`].
pub fn allocate(blobs: &mut BlobStore, len: u64, limit: u64) -> Answer<Vec<BlobPtr>> {
    let most = u64::from(MAX_BLOB);
    let lens = (0..len.div_ceil(most)).map(|part| (len - part * most).min(most) as u32);
    let wanted: Vec<(u64, u64)> = lens.clone().filter_map(Class::for_len).map(|class| (class.granules(), 1)).collect();
    let bytes = wanted.iter().map(|(granules, _)| granules * GRANULE).sum::<u64>();
    if bytes > limit.saturating_sub(blobs.arena().kept_bytes(owners::EXTERNAL)) {
        return Err(UtxoRefusal::ExternalFull { limit });
    }
    let arena = blobs.arena();
    arena.creating(|| arena.reserve(owners::EXTERNAL, &wanted)).map_err(NoMemory::from)?;
    let mut parts = Vec::new();
    for len in lens {
        match blobs.allocate(len, owners::EXTERNAL) {
            Ok(ptr) => parts.push(ptr),
            Err(error) => {
                free_parts(blobs, &parts);
                return Err(match error {
                    AllocateError::Grow(error) => NoMemory::from(error).into(),
                    AllocateError::TooLarge { limit } => {
                        UtxoRefusal::TooLarge { what: "a part of a transaction".into(), limit: u64::from(limit) }
                    }
                });
            }
        }
    }
    Ok(parts)
}

/// Frees parts whose last reference is removed in the same message. A damaged part is logged and kept.
pub fn free_parts(blobs: &mut BlobStore, parts: &[BlobPtr]) {
    for part in parts {
        if let Err(error) = blobs.free(part).and_then(|_| blobs.release(part)) {
            ic_coppice_storage::log::error(&format!("a part of a transaction, {part:?}: {error}"));
        }
    }
}

/// Frees the parts of a deleted transaction. Returns false if an earlier, interrupted deletion has freed all of them.
///
/// # Errors
/// `Corrupt` if a part does not match its pointer; nothing has changed.
pub fn free(blobs: &mut BlobStore, parts: &[ic_coppice_interface::BlobPtr]) -> Answer<bool> {
    let mut there = Vec::with_capacity(parts.len());
    for part in parts.iter().map(Into::into) {
        match blobs.check(&part) {
            Ok(()) => there.push(part),
            Err(PtrError::NotUsed | PtrError::StaleGeneration { .. }) => {}
            Err(error) => return Err(UtxoRefusal::Corrupt { why: format!("a part of the transaction: {error}") }),
        }
    }
    free_parts(blobs, &there);
    Ok(!there.is_empty())
}

/// Reads `len` bytes from byte `offset` of the joined parts.
///
/// # Errors
/// `Corrupt` if a part cannot be read.
pub fn read(blobs: &BlobStore, parts: impl Iterator<Item = BlobPtr>, offset: u64, len: u64) -> Answer<Vec<u8>> {
    let mut out = Vec::with_capacity(len as usize);
    let (mut start, end) = (0, offset + len);
    for part in parts {
        let (from, to) = (offset.max(start), end.min(start + u64::from(part.len)));
        if from < to {
            blobs
                .read_onto(&mut out, &part, (from - start) as u32, (to - from) as u32)
                .map_err(|error| UtxoRefusal::Corrupt { why: format!("a part of the transaction: {error}") })?;
        }
        start += u64::from(part.len);
    }
    Ok(out)
}

/// Returns the location of a record's transaction.
///
/// # Errors
/// `Corrupt` if the location cannot be decoded.
pub fn of(slots: &Slots, slot: SlotId, head: &Head) -> Answer<TransactionPlace> {
    if !head.is(flag::NOT_INLINE | flag::KEPT) || own_slot(slots, slot, head).is_some() {
        return Ok(TransactionPlace::Record);
    }
    let mut bytes = Vec::new();
    slots.read_onto(&mut bytes, slot, head.transaction_at(), head.transaction_len as usize);
    if head.is(flag::KEPT) {
        if bytes.len() < PART || u32_at(&bytes, 0) != IN_BLOCK {
            return Err(UtxoRefusal::Corrupt { why: "the place of the transaction".into() });
        }
        return Ok(TransactionPlace::Block { number: u64_at(&bytes, 4), offset: u64_at(&bytes, 12) });
    }
    if head.is(flag::EXTERNAL) {
        let known = bytes.first().and_then(|store| StoreType::ALL.get(usize::from(*store)));
        let (Some(&store_type), Some(file_type)) = (known, bytes.get(1)) else {
            return Err(UtxoRefusal::Corrupt { why: "the name of the external blob".into() });
        };
        return Ok(TransactionPlace::External(ExternalStore {
            blob_key: ByteBuf::from(&bytes[2..]),
            file_type: if *file_type == 0 { FileType::Tx } else { FileType::Outputs },
            store_type,
        }));
    }
    let parts = bytes.as_chunks::<PART>().0.iter().map(|part| {
        let word = |at: usize| u32_at(part, at);
        BlobPtr { offset: u64_at(part, 0), len: word(8), class: word(12), generation: word(16) }
    });
    Ok(TransactionPlace::Blobs { file_type: file_type(head), parts: parts.map(Into::into).collect() })
}

/// Returns the kind of file that a record's transaction is.
pub fn file_type(head: &Head) -> FileType {
    if head.is(flag::PARTIAL) { FileType::Outputs } else { FileType::Tx }
}
