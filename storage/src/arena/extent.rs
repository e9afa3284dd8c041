//! Extents: stable memory in equal parts of 256 MiB, each with the data of its granules in front.
//!
//! ```text
//! granule 0, 64 KiB                                granules 1 and 2, 128 KiB             granules 3 … 4,095
//! ┌──────────────────────────────┬─────────┬─────┐ ┌─ block 0 ──────────────┬─ … ─┐ ┌─────────────┬─ … ─┐
//! │ first extent: superblock × 2,│ level 0 │ l. 1│ │ 64 entries ‖ 64 lines  │     │ │ slots       │     │
//! │ counters, level 2            │ of sets │     │ │ 2 KiB                  │     │ │             │     │
//! └──────────────────────────────┴─────────┴─────┘ └────────────────────────┴─────┘ └─────────────┴─────┘
//! 0        8,192    10,240     12,288    16,384     65,536                            196,608
//!                   18,432     20,480    24,576     the sets of the other side
//! ```
//! Granule `g` lies at address `g` × 64 KiB. Levels are those of the bitmaps of `sets`; entries and lines those of `granules`.

use super::class::{BLOCK_GRANULES, ByClass, Class, GRANULE, MAX_GRANULES};
use std::ops::Range;

/// Granules of an extent, which are 64 blocks.
pub const EXTENT: u64 = 64 * BLOCK_GRANULES;
/// Bytes of an extent.
const EXTENT_BYTES: u64 = EXTENT * GRANULE;
/// Granules in front of an extent's slots.
pub const FRONT: u64 = 3;
/// Address of the counters.
pub const COUNTERS: u64 = 8_192;
/// Address of level 2 of the sets, in the first extent.
pub const LEVEL_2: u64 = 10_240;
const LEVEL_0: u64 = 12_288;
const LEVEL_1: u64 = 16_384;
const ENTRIES: u64 = GRANULE;
/// Bytes from the sets of one side to those of the other: levels 2, 0 and 1.
pub const SIDE: u64 = 8_192;
/// Bytes of a line of the sets.
pub const LINE: u64 = 64;
/// Bytes of a granule's entry, and of its line.
pub const ENTRY: u64 = 16;
const _: () = assert!(LEVEL_2 + MAX_GRANULES.div_ceil(64 * EXTENT) * LINE <= LEVEL_0);
const _: () = assert!(LEVEL_1 + LINE <= LEVEL_2 + SIDE && LEVEL_1 + LINE + SIDE <= ENTRIES);
const BLOCK_DATA: u64 = 2 * BLOCK_GRANULES * ENTRY;
/// Bytes from a granule's entry to its line.
pub const TO_LINE: u64 = BLOCK_GRANULES * ENTRY;
/// Granules up to which the arena grows by 1 MiB at a time. A larger arena grows by 4 MiB.
const SMALL: u64 = 1_024;
/// Granules of 1 MiB.
const MIB: u64 = 16;

/// Address of the extent of a granule.
#[inline(always)]
fn start(granule: u64) -> u64 {
    (granule / EXTENT).wrapping_mul(EXTENT_BYTES)
}

/// Address of the entry of a granule, which is below 2^23.
#[inline(always)]
pub fn entry(granule: u64) -> u64 {
    let block = granule % EXTENT / BLOCK_GRANULES;
    let data = block.wrapping_mul(BLOCK_DATA).wrapping_add((granule % BLOCK_GRANULES).wrapping_mul(ENTRY));
    start(granule).wrapping_add(ENTRIES).wrapping_add(data)
}

/// Address of the line of level 0 for the block of a granule.
#[inline(always)]
pub fn level_0(granule: u64) -> u64 {
    let block = granule % EXTENT / BLOCK_GRANULES;
    start(granule).wrapping_add(LEVEL_0).wrapping_add(block.wrapping_mul(LINE))
}

/// Address of the line of level 1 for the extent with this number.
#[inline(always)]
pub fn level_1(extent: u64) -> u64 {
    extent.wrapping_mul(EXTENT_BYTES).wrapping_add(LEVEL_1)
}

/// Fronts of the extents that begin in `[from, to)`.
fn fronts(from: u64, to: u64) -> u64 {
    to.div_ceil(EXTENT) - from.div_ceil(EXTENT)
}

/// Granules of `[0, end)` in front of slots.
pub fn front_granules(end: u64) -> u64 {
    fronts(0, end) * FRONT
}

/// The largest pieces of `[from, to)` that slots may be, in order. Neither end lies in a front.
pub fn pieces(from: u64, to: u64) -> impl Iterator<Item = (u64, Class)> {
    let mut at = from;
    std::iter::from_fn(move || {
        if at.is_multiple_of(EXTENT) {
            at += FRONT;
        }
        let class =
            Class::all().rev().find(|class| at.is_multiple_of(class.granules()) && at + class.granules() <= to)?;
        at += class.granules();
        Some((at - class.granules(), class))
    })
}

/// Slots of a class that `[from, to)` holds. Neither end lies in a front.
pub fn slots(from: u64, to: u64, class: Class) -> u64 {
    let size = class.granules();
    (to / size).saturating_sub(from.div_ceil(size)).saturating_sub(fronts(from, to) * FRONT.div_ceil(size))
}

/// The next end of an arena that ends at `end`.
pub fn next_end(end: u64) -> u64 {
    if end < SMALL { end + MIB } else { (end / BLOCK_GRANULES + 1) * BLOCK_GRANULES }
}

/// The last end of an arena in memory of `pages` pages.
pub fn last_end(pages: u64) -> u64 {
    let most = pages.min(MAX_GRANULES);
    most - most % if most < SMALL { MIB } else { BLOCK_GRANULES }
}

/// The end of an arena after it has passed over strays: behind them, and behind an extent whose front is among them, because that extent
/// has no place for the data of its granules.
pub fn end_after(end: u64, strays: &Range<u64>) -> u64 {
    if strays.end <= end || strays.is_empty() {
        return end;
    }
    // The first end behind the strays that an arena may have.
    let to = strays.end.next_multiple_of(if strays.end <= SMALL { MIB } else { BLOCK_GRANULES }).min(MAX_GRANULES);
    let last = (to - 1) / EXTENT * EXTENT;
    if has_stray_front(last, end, strays) { last + EXTENT } else { to }
}

/// Returns whether the front of the extent at a granule is among strays. The front of an extent that the arena has begun is its own.
pub fn has_stray_front(extent: u64, end: u64, strays: &Range<u64>) -> bool {
    extent >= end && strays.start < extent + FRONT && extent < strays.end
}

/// Free slots by class after an arena that ends at `end` has grown to `to`: a new piece joins the free slots of the last block, whose line
/// of the sets is `line`.
pub fn grown(free: &ByClass, line: &[u64; 8], end: u64, to: u64) -> ByClass {
    let (mut free, mut line) = (*free, *line);
    for (granule, mut class) in pieces(end, to) {
        if granule / BLOCK_GRANULES == end / BLOCK_GRANULES {
            let mut at = granule;
            while let Some(larger) = class.larger()
                && let buddy = (at ^ class.granules()) % BLOCK_GRANULES
                && line[class.index()] >> buddy & 1 == 1
            {
                line[class.index()] &= !(1 << buddy);
                // A set bit of a slot that is not free only after damage.
                free[class.index()] = free[class.index()].saturating_sub(1);
                at &= !class.granules();
                class = larger;
            }
            line[class.index()] |= 1 << (at % BLOCK_GRANULES);
        }
        free[class.index()] += 1;
    }
    free
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn data_of_all_granules_lie_in_front_of_their_extent() {
        assert_eq!([entry(0), entry(63), entry(64), entry(EXTENT)], [65_536, 66_544, 67_584, EXTENT_BYTES + 65_536]);
        assert_eq!(entry(EXTENT - 1) + ENTRY + TO_LINE, FRONT * GRANULE);
        assert_eq!([level_0(63), level_0(64), level_0(EXTENT + 1)], [12_288, 12_352, EXTENT_BYTES + 12_288]);
        assert_eq!(level_0(EXTENT - 1) + LINE, level_1(0));
        assert_eq!(MAX_GRANULES % EXTENT, 0);
    }

    #[test]
    fn pieces_are_all_slots_between_two_ends() {
        let sizes = |from, to| pieces(from, to).map(|(at, class)| (at, class.granules())).collect::<Vec<_>>();
        assert_eq!(sizes(0, 16), [(3, 1), (4, 4), (8, 8)]);
        assert_eq!(sizes(16, 64), [(16, 16), (32, 32)]);
        assert_eq!(sizes(64, 192), [(64, 64), (128, 64)]);
        assert_eq!(sizes(4_032, 4_160), [(4_032, 64), (4_099, 1), (4_100, 4), (4_104, 8), (4_112, 16), (4_128, 32)]);
        for (from, to) in [(0, 16), (16, 48), (0, 4_096), (4_032, 4_160), (1_024, 3 * EXTENT + 64), (64, 64)] {
            let granules: u64 = pieces(from, to).map(|(_, class)| class.granules()).sum();
            assert_eq!(granules, to - from - fronts(from, to) * FRONT, "{from} to {to}");
            for class in Class::all() {
                let split = pieces(from, to).map(|(_, of)| of.granules() / class.granules()).sum::<u64>();
                assert_eq!(slots(from, to, class), split, "{from} to {to}, {class:?}");
            }
        }
    }

    #[test]
    fn arena_ends_at_a_mebibyte_while_small_and_then_at_a_block() {
        assert_eq!([0, 1_008, 1_024, 1_072].map(next_end), [16, 1_024, 1_088, 1_088]);
        assert_eq!([last_end(15), last_end(16), last_end(1_023), last_end(1_087)], [0, 16, 1_008, 1_024]);
        assert_eq!(last_end(u64::MAX), MAX_GRANULES);
    }
}
