//! Raw addresses of the buckets that `MemoryManager` hands out, from its header.
//!
//! The header is layout V1 of `ic-stable-structures`: the number of handed out buckets as `u16` at byte 4, the pages of a bucket as `u16` at byte 6, and from byte 2,080 on the
//! owner of each bucket, one byte each. Buckets follow the header's page in the order in which they were handed out, and none is ever
//! moved or given back.

use crate::{BUCKET, WASM_PAGE};
use ic_stable_structures::Memory;

/// Offset of the number of handed out buckets.
const COUNT: u64 = 4;
/// Offset of the owners: magic, version, two `u16`, 32 reserved bytes, and the sizes of 255 memories.
const OWNERS: u64 = 3 + 1 + 2 + 2 + 32 + 8 * 255;

/// Offset of the pages of a bucket.
const SIZE: u64 = 6;

/// Returns the pages of a bucket.
pub fn pages(raw: &impl Memory) -> u64 {
    let mut bytes = [0; 2];
    raw.read(SIZE, &mut bytes);
    u16::from_le_bytes(bytes).into()
}

/// Returns the number of buckets that are handed out.
pub fn count(raw: &impl Memory) -> u64 {
    let mut bytes = [0; 2];
    raw.read(COUNT, &mut bytes);
    u16::from_le_bytes(bytes).into()
}

/// Returns the raw address of a bucket.
pub fn address(bucket: u64) -> u64 {
    WASM_PAGE + (bucket << BUCKET.trailing_zeros())
}

/// Returns the raw addresses of the buckets of a region, in the region's order.
pub fn of(raw: &impl Memory, id: u8) -> Vec<u64> {
    let mut owners = vec![0; count(raw) as usize];
    raw.read(OWNERS, &mut owners);
    let (words, _) = owners.as_chunks::<8>();
    let mut found = Vec::new();
    let note = |found: &mut Vec<u64>, first: usize, owners: &[u8]| {
        let own = (first as u64..).zip(owners).filter(|(_, owner)| **owner == id);
        found.extend(own.map(|(bucket, _)| address(bucket)));
    };
    for (nth, word) in words.iter().enumerate() {
        // A byte of the difference is 0 for each bucket of the region: most words of a small region have none, and cost ten instructions.
        let difference = u64::from_le_bytes(*word) ^ u64::from_le_bytes([id; 8]);
        let zeros = difference.wrapping_sub(u64::from_le_bytes([1; 8])) & !difference & u64::from_le_bytes([128; 8]);
        if difference == 0 {
            // All eight are the region's, as most are of a large one.
            let first = address(8 * nth as u64);
            found.extend_from_slice(&std::array::from_fn::<u64, 8, _>(|at| first + at as u64 * BUCKET));
        } else if zeros != 0 {
            note(&mut found, 8 * nth, word);
        }
    }
    note(&mut found, 8 * words.len(), &owners[8 * words.len()..]);
    found
}
