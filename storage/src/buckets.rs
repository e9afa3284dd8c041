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
use std::cell::Cell;

/// Offset of the number of handed out buckets.
const COUNT: u64 = 4;
/// Offset of the sizes of 255 memories: magic, version, two `u16`, 32 reserved bytes.
const SIZES: u64 = 3 + 1 + 2 + 2 + 32;
/// Offset of the owners.
const OWNERS: u64 = SIZES + 8 * 255;

/// Offset of the pages of a bucket.
const SIZE: u64 = 6;

/// The raw addresses of a region's buckets. Every access of stable memory reads one, so reading borrows nothing. A list that is full is
/// replaced by one of twice its length and never freed: all earlier lists together are shorter than the last one.
pub struct Addresses {
    /// The buckets that are handed out.
    known: Cell<&'static [Cell<u64>]>,
    /// The same, with room for more.
    list: Cell<&'static [Cell<u64>]>,
}

impl From<Vec<u64>> for Addresses {
    fn from(addresses: Vec<u64>) -> Self {
        let list: &[_] = addresses.into_iter().map(Cell::new).collect::<Vec<_>>().leak();
        Self { known: Cell::new(list), list: Cell::new(list) }
    }
}

impl Addresses {
    /// Returns the address of a bucket, or `None` if it is not handed out.
    #[inline(always)]
    pub fn get(&self, bucket: u64) -> Option<u64> {
        let known = self.known.get();
        (bucket < known.len() as u64).then(|| known[bucket as usize].get())
    }

    /// Adds the addresses of the next buckets.
    pub fn extend(&self, addresses: impl Iterator<Item = u64>) {
        for address in addresses {
            let count = self.known.get().len();
            if count == self.list.get().len() {
                let mut longer = self.known.get().to_vec();
                longer.resize(8.max(2 * count), Cell::new(0));
                self.list.set(longer.leak());
            }
            let list = self.list.get();
            list[count].set(address);
            self.known.set(&list[..=count]);
        }
    }

    /// Returns all addresses.
    #[cfg(test)]
    pub fn to_vec(&self) -> Vec<u64> {
        self.known.get().iter().map(Cell::get).collect()
    }
}

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
