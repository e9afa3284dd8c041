//! One bucket: up to 28 entries in 512 bytes.
//!
//! ```text
//! head, 64 bytes                                        entries
//! ┌───────────┬──────────┬──────────┬───────────────┬────────────────────────┐
//! │ count u16 │ reserved │ next u32 │ 28 × tag u16  │ 28 × (hash, value) u64 │
//! └───────────┴──────────┴──────────┴───────────────┴────────────────────────┘
//! 0           2          4          8               64                      512
//! ```
//! `next` is the first overflow bucket, or 0, as a [`link`](to_word): a damaged one ends the chain. A tag is the top 16 bits of the entry's hash: a search reads only the head
//! and the entries whose tag matches.
//!
//! Sums of slots cannot overflow, because a slot is below 28. The sums use wrapping arithmetic, because each search and each split adds dozens
//! of them, and overflow checks would make an insertion a sixth more expensive.

use crate::bytes::{u16_at, u32_at};

/// Bytes of a bucket.
pub const BUCKET: u64 = 512;
/// Entries of a bucket.
pub const SLOTS: usize = 28;
/// Bytes of a bucket's head.
pub const HEAD: usize = TAGS + 2 * SLOTS;
/// Offset of the tags in the head.
pub const TAGS: usize = 8;
/// Bytes of an entry.
pub const ENTRY: usize = 16;
const _: () = assert!(HEAD + SLOTS * ENTRY == BUCKET as usize);

/// Returns the word of a link, which has 31 bits: a bit more makes the number of ones even, so that a flipped bit shows.
#[inline]
pub const fn to_word(link: u32) -> u32 {
    link | (link.count_ones() & 1) << 31
}

/// Returns the link of a word; `None` if the word is damaged.
#[inline(always)]
pub const fn to_link(word: u32) -> Option<u32> {
    if word.count_ones() & 1 == 0 { Some(word & !(1 << 31)) } else { None }
}

/// An entry: the full hash of the key, and a word that only the owner interprets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    pub hash: u64,
    pub value: u64,
}

impl Entry {
    pub fn encode(self) -> [u8; ENTRY] {
        (u128::from(self.hash) | u128::from(self.value) << 64).to_le_bytes()
    }

    pub fn decode(bytes: [u8; ENTRY]) -> Self {
        let both = u128::from_le_bytes(bytes);
        Self { hash: both as u64, value: (both >> 64) as u64 }
    }
}

/// Offset of entry `slot` in its bucket.
#[inline]
pub const fn entry_offset(slot: usize) -> u64 {
    HEAD.wrapping_add(slot.wrapping_mul(ENTRY)) as u64
}

/// Count, link and tags of a bucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Head(pub [u8; HEAD]);

impl Head {
    /// The head of an empty bucket.
    pub fn new(next: u32) -> Self {
        let mut head = Self([0; HEAD]);
        head.set_next(next);
        head
    }

    /// Number of entries.
    #[inline]
    pub fn count(&self) -> usize {
        count_of(&self.0)
    }

    #[inline]
    pub fn next(&self) -> u32 {
        next_of(&self.0)
    }

    pub fn set_next(&mut self, next: u32) {
        self.0[4..8].copy_from_slice(&to_word(next).to_le_bytes());
    }

    /// Adds an entry's tag and returns the entry's slot; the bucket must have room.
    pub fn push(&mut self, hash: u64) -> usize {
        let slot = self.count();
        self.replace(slot, hash);
        set_count(&mut self.0, slot.wrapping_add(1));
        slot
    }

    /// Sets the tag of `slot` to that of `hash`.
    pub fn replace(&mut self, slot: usize, hash: u64) {
        let at = TAGS.wrapping_add(slot.wrapping_mul(2));
        self.0[at..at.wrapping_add(2)].copy_from_slice(&((hash >> 48) as u16).to_le_bytes());
    }
}

/// Passes the slots of a head whose tag matches a hash to `each`, until it returns something. Rarely a slot with another tag is included, so
/// `each` must compare the entry. A loop, because iterators inside each other take twice as many instructions.
///
/// Checks four tags at a time: in `word ^ wanted`, subtracting 1 from each lane borrows from the lanes that are zero (and from a
/// lane of 1 directly above a zero lane, which is the rare case).
#[inline(always)]
pub fn search<T>(head: &[u8; HEAD], hash: u64, mut each: impl FnMut(usize) -> Option<T>) -> Option<T> {
    const ONES: u64 = 0x0001_0001_0001_0001;
    let wanted = (hash >> 48).wrapping_mul(ONES);
    let count = count_of(head);
    let mut first = 0_usize;
    for word in head[TAGS..].as_chunks::<8>().0 {
        if first >= count {
            break;
        }
        let lanes = u64::from_le_bytes(*word) ^ wanted;
        let mut zeros = lanes.wrapping_sub(ONES) & !lanes & (ONES << 15);
        while zeros != 0 {
            let slot = first.wrapping_add(zeros.trailing_zeros() as usize / 16);
            zeros &= zeros.wrapping_sub(1);
            if slot < count
                && let Some(found) = each(slot)
            {
                return Some(found);
            }
        }
        first = first.wrapping_add(4);
    }
    None
}

/// Number of entries of a bucket, or of a head. An impossible count is limited to the bucket's size, because a panic here would stop every
/// reader.
#[inline(always)]
pub fn count_of(bucket: &[u8]) -> usize {
    usize::from(u16_at(bucket, 0)).min(SLOTS)
}

/// Sets the number of entries of a bucket, or of a head.
#[inline(always)]
pub fn set_count(bucket: &mut [u8], count: usize) {
    bucket[..2].copy_from_slice(&(count as u16).to_le_bytes());
}

/// The next overflow bucket in a bucket, or in a head; 0 if there is none, or the link is damaged.
#[inline(always)]
pub fn next_of(bucket: &[u8]) -> u32 {
    to_link(u32_at(bucket, 4)).unwrap_or(0)
}

/// The bytes of a bucket with these entries, at most [`SLOTS`].
pub fn bucket_of(entries: &[Entry], next: u32) -> [u8; BUCKET as usize] {
    let mut bytes = [0; BUCKET as usize];
    let mut head = Head::new(next);
    for entry in entries {
        let at = entry_offset(head.push(entry.hash)) as usize;
        bytes[at..at + ENTRY].copy_from_slice(&entry.encode());
    }
    bytes[..HEAD].copy_from_slice(&head.0);
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn link_with_a_flipped_bit_is_none() {
        for link in [0, 1, 2, 3, 1 << 30, (1 << 31) - 1] {
            assert_eq!(to_link(to_word(link)), Some(link));
            (0..32).for_each(|bit| assert_eq!(to_link(to_word(link) ^ 1 << bit), None, "{link}: bit {bit}"));
        }
    }

    #[test]
    fn the_layout_is_part_of_the_format() {
        let entry = |i: u64| Entry { hash: i << 48 | 7, value: i };
        let bytes = bucket_of(&[entry(1), entry(2), entry(1)], 9);
        let head = Head(*bytes.first_chunk().unwrap());
        assert_eq!((head.count(), head.next()), (3, 9));
        assert_eq!(bytes[..16], [3, 0, 0, 0, 9, 0, 0, 0, 1, 0, 2, 0, 1, 0, 0, 0]);
        let mut found = Vec::new();
        let all: Option<()> = search(&head.0, 1 << 48, |slot| {
            found.push(slot);
            None
        });
        assert_eq!((all, found), (None, vec![0, 2]));
        assert_eq!(search(&head.0, 1 << 48, Some), Some(0), "the search ends with what is found");
        let second = entry_offset(1) as usize;
        assert_eq!(Entry::decode(*bytes[second..].first_chunk().unwrap()), entry(2));
        assert_eq!(second, 80);
    }
}
