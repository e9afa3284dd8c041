//! Pages of 4 KiB, of heap and stable memory, that creating a record changes. A message may change 75 MiB before the platform slows a
//! canister down, so a transaction that needs more is refused before any of its record is written.
//!
//! **Design.** Small records are not counted. On the heap all allocations count, even if the same message frees them; in stable memory,
//! the pages of the free or new slots that the record would get.

use super::UtxoStore;
use super::draft::{Body, Draft};
use super::record::{ENTRY, Head, INPUT, INPUTS_OF_PAGE, parents};
use coppice_interface::{UtxoCreate, UtxoRefusal};

/// Pages that the creation of a record may change; 3 MiB are left for what any message changes.
pub const MOST: u64 = 18_432;
const PAGE: u64 = 4_096;
/// Outputs and inputs up to which nothing is reckoned.
const SMALL: usize = 1_000;
/// Bytes up to which nothing is reckoned.
const SMALL_BYTES: u64 = 1 << 20;
/// Bytes of the heap that an output takes while its transaction is read, and then: its value and script, its hash.
pub const OUTPUT: u64 = 16 + 33;
/// Bytes of an output, and of an input, in a transaction at least.
const LEAST: (u64, u64) = (9, 41);
/// Pages that entering a double spend with a parent changes, and what undoes it.
pub const PARENT: u64 = 4;
/// Bytes that undoing a write takes beside what was there.
const UNDO: u64 = 64;

/// # Errors
/// `TooLarge`.
fn within(pages: u64) -> Result<(), UtxoRefusal> {
    if pages > MOST {
        return Err(UtxoRefusal::TooLarge { what: "pages of 4 KiB that its creation changes".into(), limit: MOST });
    }
    Ok(())
}

/// Checks that a transaction with these numbers of outputs and inputs, and these bytes on the heap, could fit at all.
///
/// # Errors
/// `TooLarge`.
pub fn check_least(outputs: usize, inputs: usize, bytes: usize) -> Result<(), UtxoRefusal> {
    let (outputs, inputs) = (outputs as u64, inputs as u64);
    within((bytes as u64 + (OUTPUT + u64::from(ENTRY)) * outputs + 2 * u64::from(INPUT) * inputs) / PAGE)
}

/// Returns whether a record is too small to be counted.
pub fn is_small(draft: &Draft) -> bool {
    draft.parsed.outputs.len().max(draft.parsed.inputs.len()) <= SMALL && draft.size <= SMALL_BYTES
}

impl UtxoStore {
    /// Checks that a record can be made in one message, and returns the number of heap pages that this changes. `wanted` lists the record's
    /// slots as pairs of bytes and count.
    ///
    /// # Errors
    /// `TooLarge`.
    pub(super) fn check_footprint(
        &self,
        draft: &Draft,
        head: &Head,
        item: &UtxoCreate,
        wanted: &[(u32, u32)],
    ) -> Result<u64, UtxoRefusal> {
        let parsed = &draft.parsed;
        let (outputs, inputs) = (parsed.outputs.len() as u64, parsed.inputs.len() as u64);
        // The longest script is copied to be hashed.
        let scripts = |bytes: &[u8]| (bytes.len() as u64).saturating_sub(LEAST.0 * outputs + LEAST.1 * inputs);
        let (bytes, blobs) = match &draft.body {
            Body::Whole(raw) => (raw.len() as u64 + scripts(raw), raw.len() as u64),
            Body::Wrapper(raw) => (2 * raw.len() as u64, raw.len() as u64),
            // A small one is copied into the record.
            Body::Uploaded(raw, _) => (raw.len() as u64 + scripts(raw), (raw.len() as u64).min(SMALL_BYTES)),
            Body::Outside(_) => (0, 0),
        };
        let slots: u64 = wanted.iter().map(|(_, count)| u64::from(*count)).sum();
        let written: u64 = wanted.iter().map(|(len, count)| u64::from(*len) * u64::from(*count)).sum();
        // The record is put together on the heap, and one page after the other; the directory three times.
        let buffers = u64::from(head.transaction_at()) + u64::from(ENTRY) * u64::from(head.batch.min(head.outputs));
        let inputs_of_page = if head.input_pages() > 0 { u64::from(INPUT) * u64::from(INPUTS_OF_PAGE) } else { 0 };
        let mut heap = bytes + OUTPUT * outputs + u64::from(INPUT) * inputs + buffers + inputs_of_page + 16 * slots;
        let mut pages = blobs / PAGE + 16;
        if item.conflicting {
            heap += written + UNDO * slots * 3;
            // Most spend from no parent twice.
            let parents = if PARENT * inputs > MOST { parents(&parsed.inputs).len() as u64 } else { inputs };
            pages += PARENT * parents;
        }
        let heap = heap.div_ceil(PAGE);
        within(pages + heap)?;
        within(pages + heap + self.slots.pages_of(wanted, MOST))?;
        Ok(heap)
    }
}
