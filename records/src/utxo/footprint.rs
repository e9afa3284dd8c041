//! Slots of a new record, and number of 4 KiB pages, of heap and stable memory, that creating the record changes. A message may change 75
//! MiB before the platform slows a canister down, so a transaction that needs more is refused before any of its record is written.
//!
//! **Design.** Small records are not counted. On the heap all allocations count, even if the same message frees them; in stable memory,
//! as many pages as the record's slots may touch, wherever they lie.

use super::call::Answer;
use super::draft::{Body, Draft};
use super::limits::{CREATION_PAGES, OUTPUT, PAGE, PARENT, check_pages};
use super::record::{ENTRY, HEAD_BLOCKS, Head, INPUT, INPUTS_OF_PAGE, PAGE_HEAD, parents};
use ic_coppice_storage::slots::Slots;

/// Largest number of outputs, and of inputs, of a small record.
const SMALL: usize = 1_000;
/// Maximum bytes of a small record's transaction.
const SMALL_BYTES: u64 = 1 << 20;
/// Bytes of the buffers of hashes, which double until they are long enough.
const HASHING: u64 = 128 << 10;
/// Bytes of a piece of the standard form; an extended transaction has one for each input.
const PIECE: u64 = 8;
/// Bytes that undoing a write takes besides the replaced bytes.
const UNDO: u64 = 64;

/// Returns whether a record is too small to be counted.
pub fn is_small(draft: &Draft) -> bool {
    draft.parsed.outputs.len().max(draft.parsed.inputs.len()) <= SMALL && draft.size <= SMALL_BYTES
}

/// Returns the slots of a record with this head, as pairs of bytes and count, which may be 0; not in a vector, because that would be
/// allocated and freed for each record.
pub fn wanted(head: &Head) -> [(u32, u32); 5] {
    let (pages, blocks) = (head.extra_pages, head.blocks.saturating_sub(HEAD_BLOCKS));
    let on_last = head.outputs - head.batch * pages;
    [
        (head.bytes() as u32, 1),
        (PAGE_HEAD + ENTRY * head.batch, pages.saturating_sub(1)),
        (PAGE_HEAD + ENTRY * on_last, pages.min(1)),
        (INPUT * INPUTS_OF_PAGE, head.input_pages()),
        (64 * (1 + blocks), blocks.min(1)),
    ]
}

/// Checks that a record can be made in one message, and returns the number of heap pages that making it changes.
///
/// # Errors
/// `TooLarge`.
pub fn check(slots: &Slots, draft: &Draft, head: &Head, conflicting: bool) -> Answer<u64> {
    let (parsed, wanted) = (&draft.parsed, wanted(head));
    let (outputs, inputs) = (parsed.outputs.len() as u64, parsed.inputs.len() as u64);
    let hashing = HASHING + if parsed.extended { PIECE * inputs } else { 0 };
    let (bytes, blobs) = match &draft.body {
        Body::Whole(raw) => (raw.len() as u64 + hashing, raw.len() as u64),
        Body::Wrapper(raw) => (2 * raw.len() as u64, raw.len() as u64),
        // A small transaction is copied into the record.
        Body::Uploaded(raw, _) => (raw.len() as u64 + hashing, (raw.len() as u64).min(SMALL_BYTES)),
        Body::Kept { raw, .. } => (raw.len() as u64 + hashing, 0),
        Body::External(_) => (0, 0),
    };
    let pieces: u64 = wanted.iter().map(|(_, count)| u64::from(*count)).sum();
    let written: u64 = wanted.iter().map(|(len, count)| u64::from(*len) * u64::from(*count)).sum();
    // The heap holds the record, one page at a time, and the directory three times.
    let buffers = u64::from(head.transaction_at()) + u64::from(ENTRY) * u64::from(head.batch.min(head.outputs));
    let inputs_of_page = if head.input_pages() > 0 { u64::from(INPUT) * u64::from(INPUTS_OF_PAGE) } else { 0 };
    let mut heap = bytes + OUTPUT * outputs + u64::from(INPUT) * inputs + buffers + inputs_of_page + 16 * pieces;
    let mut pages = blobs / PAGE + 16;
    if conflicting {
        heap += written + UNDO * pieces * 3;
        // Most double spends name each parent once.
        let parents = if PARENT * inputs > CREATION_PAGES { parents(&parsed.inputs).len() as u64 } else { inputs };
        pages += PARENT * parents;
    }
    let heap = heap.div_ceil(PAGE);
    check_pages((pages + heap).saturating_add(slots.pages_of(&wanted)))?;
    Ok(heap)
}
