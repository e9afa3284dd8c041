//! Slots of a new record.

use super::record::{ENTRY, HEAD_BLOCKS, Head, INPUT, INPUTS_OF_PAGE, PAGE_HEAD};

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
