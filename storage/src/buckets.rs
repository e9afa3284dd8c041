//! Raw addresses of the buckets that `MemoryManager` hands out, from its header.
//!
//! The header is layout V1 of `ic-stable-structures`:
//!
//! ```text
//! 4      u16   number of handed out buckets
//! 6      u16   pages of a bucket
//! 40     u64…  pages of each memory
//! 2,080  u8…   owner of each bucket
//! ```
//!
//! Buckets follow the header's page in the order in which they were handed out. No bucket is ever moved or given back.

use crate::{BUCKET, WASM_PAGE};
use ic_stable_structures::Memory;

/// Offset of the number of handed out buckets.
const COUNT: u64 = 4;
/// Offset of the sizes of 255 memories: magic, version, two `u16`, 32 reserved bytes.
const SIZES: u64 = 3 + 1 + 2 + 2 + 32;
/// Offset of the owners.
const OWNERS: u64 = SIZES + 8 * 255;

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

/// Returns the raw addresses of the buckets of each region, in the region's order.
pub fn by_region(raw: &impl Memory, regions: u8) -> Vec<Vec<u64>> {
    let mut owners = vec![0; count(raw) as usize];
    raw.read(OWNERS, &mut owners);
    let mut sizes = vec![0; usize::from(regions) * 8];
    raw.read(SIZES, &mut sizes);
    // Exact capacities, because a list that grows is copied, and each byte of a copy is charged.
    let lists = sizes.as_chunks::<8>().0.iter().map(|pages| u64::from_le_bytes(*pages).div_ceil(BUCKET / WASM_PAGE));
    let mut found: Vec<Vec<u64>> = lists.map(|buckets| Vec::with_capacity(buckets as usize)).collect();
    let mut first = address(0);
    let (words, rest) = owners.as_chunks::<8>();
    for word in words {
        if u64::from_le_bytes(*word) == u64::from_le_bytes([word[0]; 8]) {
            // All eight are of one region, as most are of a large one.
            if let Some(buckets) = found.get_mut(usize::from(word[0])) {
                buckets.extend((0..8).map(|at| first + at * BUCKET));
            }
        } else {
            note(&mut found, first, word);
        }
        first += 8 * BUCKET;
    }
    note(&mut found, first, rest);
    found
}

/// Adds the buckets from the raw address `first` on to their owners.
fn note(found: &mut [Vec<u64>], first: u64, owners: &[u8]) {
    for (at, owner) in (0..).zip(owners) {
        if let Some(buckets) = found.get_mut(usize::from(*owner)) {
            buckets.push(first + at * BUCKET);
        }
    }
}
