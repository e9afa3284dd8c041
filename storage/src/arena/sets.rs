//! Eight sets of granules: the free list of each class, and the quarantine.
//!
//! A set returns its lowest member in constant time at any size. It is a hierarchy of bitmaps: a bit of level `k + 1`
//! is set if a word of level `k` has a set bit (and may stay set while the word is empty), so four levels of 64-bit words span 16.7 M granules (500 GiB need
//! 8.2 M). The words of the eight sets lie next to each other in one line of 64 bytes, and a line spans one block of 4 MiB, so that
//! moving, splitting and joining slots reads and writes one line. The upper levels have a constant size of 130 KB: they are mirrored on the heap, read whole
//! at start-up, and written through, except level 3, which start-up computes from level 2.
//!
//! ```text
//! region: ┌─ header 4096 ─┬─ level 3 ─┬─ level 2 ─┬─ level 1 ─┬─ level 0 ──────┐
//!         │ counters      │ 1 line    │ 32 lines  │ 2000 lines│ 128,000 lines  │
//!         └───────────────┴───────────┴───────────┴───────────┴────────────────┘
//! line, 64 bytes: eight words u64, one of each set
//! ```

use super::class::{Class, MAX_GRANULES};
use crate::{Platform, Region};

/// Bytes reserved at the start of the region for the counters.
pub const HEADER: u64 = 4096;
const SETS: usize = 8;
const LINE: u64 = 8 * SETS as u64;
const LINES: [u64; 4] =
    [MAX_GRANULES.div_ceil(64), MAX_GRANULES.div_ceil(64 * 64), MAX_GRANULES.div_ceil(64 * 64 * 64), 1];
/// First line of each level in the mirror of levels 1 to 3, which starts with level 3.
const MIRROR: [u64; 4] = [0, 1 + LINES[2], 1, 0];
const MIRROR_LINES: u64 = 1 + LINES[2] + LINES[1];
const LEVEL_0: u64 = (HEADER + MIRROR_LINES * LINE).next_multiple_of(4096);
/// Bytes of the whole region.
pub const REGION: u64 = LEVEL_0 + LINES[0] * LINE;

/// One of the eight sets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SetId(u8);

impl SetId {
    /// Blobs that were freed and not yet released.
    pub const QUARANTINE: Self = Self(Class::COUNT as u8);

    /// The free slots of a class.
    #[inline]
    pub fn free(class: Class) -> Self {
        Self(class.index() as u8)
    }

    /// The set's word in a [`Line`].
    #[inline]
    pub fn index(self) -> usize {
        usize::from(self.0)
    }
}

/// The words of the eight sets for one block.
pub type Line = [u64; SETS];

/// The eight sets, and the region's header for the counters.
pub struct GranuleSets<P: Platform> {
    region: Region<P>,
    mirror: Vec<u64>,
    /// For each set a word of level 0 that is empty while its upper bits are still set, or [`NONE`].
    empty: [u64; SETS],
}

/// No word.
const NONE: u64 = u64::MAX;

impl<P: Platform> GranuleSets<P> {
    /// Reads the upper levels. The cost does not depend on the number of blobs.
    pub fn open(region: Region<P>) -> Self {
        let mut mirror = region.read_words(HEADER, MIRROR_LINES as usize * SETS);
        for set in (0..SETS as u8).map(SetId) {
            mirror[Self::upper(set, 3, 0)] = (0..LINES[2])
                .map(|word| u64::from(mirror[Self::upper(set, 2, word)] != 0) << word)
                .fold(0, |all, bit| all | bit);
        }
        Self { region, mirror, empty: [NONE; SETS] }
    }

    /// Returns the region, for access to the header.
    #[inline]
    pub fn region(&self) -> &Region<P> {
        &self.region
    }

    #[inline]
    fn level_0(set: SetId, granule: u64) -> u64 {
        LEVEL_0 + granule / 64 * LINE + 8 * set.index() as u64
    }

    #[inline]
    fn upper(set: SetId, level: usize, word: u64) -> usize {
        (MIRROR[level] + word) as usize * SETS + set.index()
    }

    #[inline]
    fn write_upper(&mut self, at: usize, value: u64) {
        self.mirror[at] = value;
        // Level 3 is not persisted: start-up computes it from level 2.
        if at >= SETS {
            self.region.write_u64(HEADER + 8 * at as u64, value);
        }
    }

    /// Returns the lowest member, and the word that has it.
    #[inline]
    pub fn first(&mut self, set: SetId) -> Option<(u64, u64)> {
        loop {
            let mut at = 0;
            for level in (1..4).rev() {
                let word = self.mirror[Self::upper(set, level, at)];
                if word == 0 {
                    return None;
                }
                at = at.wrapping_mul(64).wrapping_add(u64::from(word.trailing_zeros()));
            }
            let word = self.word(set, at.wrapping_mul(64));
            if word != 0 {
                return Some((at.wrapping_mul(64).wrapping_add(u64::from(word.trailing_zeros())), word));
            }
            self.clear(set, at);
        }
    }

    /// Returns the word of a set for the 64 granules of the block of `granule`.
    #[inline]
    pub fn word(&self, set: SetId, granule: u64) -> u64 {
        self.region.read_u64(Self::level_0(set, granule))
    }

    /// Replaces the word `old` of a set for the block of `granule`.
    #[inline]
    pub fn set_word(&mut self, set: SetId, granule: u64, old: u64, new: u64) {
        self.region.write_u64(Self::level_0(set, granule), new);
        self.note(set, granule, old, new);
    }

    /// Notes in the upper levels that a word of level 0 was replaced.
    #[inline]
    fn note(&mut self, set: SetId, granule: u64, old: u64, new: u64) {
        match (old == 0, new == 0) {
            (true, false) => self.filled(set, granule / 64),
            (false, true) => self.emptied(set, granule / 64),
            _ => {}
        }
    }

    /// Returns the words of all sets for the block of a granule.
    #[inline]
    pub fn line(&self, granule: u64) -> Line {
        self.region.read_with(Self::level_0(SetId(0), granule), |bytes: &[u8; LINE as usize]| {
            let words = bytes.as_chunks::<8>().0;
            std::array::from_fn(|set| u64::from_le_bytes(words[set]))
        })
    }

    /// Replaces the words `old` of all sets for the block of a granule. Writes once, from the first word that changes to the last.
    pub fn set_line(&mut self, granule: u64, old: &Line, new: &Line) {
        let changes = |set: &usize| old[*set] != new[*set];
        let Some(first) = (0..SETS).find(changes) else { return };
        let end = 1 + (first..SETS).rfind(changes).unwrap_or(first);
        let bytes = new.map(u64::to_le_bytes);
        self.region.write(Self::level_0(SetId(first as u8), granule), bytes[first..end].as_flattened());
        for set in (first..end).filter(changes) {
            self.note(SetId(set as u8), granule, old[set], new[set]);
        }
    }

    /// Adds a granule. No effect if it is a member.
    #[inline]
    pub fn insert(&mut self, set: SetId, granule: u64) {
        let old = self.word(set, granule);
        self.set_word(set, granule, old, old | 1 << (granule % 64));
    }

    /// Removes a granule. No effect if it is not a member.
    #[inline]
    pub fn remove(&mut self, set: SetId, granule: u64) {
        let old = self.word(set, granule);
        self.set_word(set, granule, old, old & !(1 << (granule % 64)));
    }

    /// Sets the upper bits after a word of level 0 got its first member.
    #[inline]
    fn filled(&mut self, set: SetId, index: u64) {
        if self.empty[set.index()] == index {
            self.empty[set.index()] = NONE;
        } else {
            self.set(set, index);
        }
    }

    /// Notes that a word of level 0 lost its last member. Its upper bits stay until another word is empty, because sets with few members
    /// lose and get them in turn.
    #[inline]
    fn emptied(&mut self, set: SetId, index: u64) {
        let before = std::mem::replace(&mut self.empty[set.index()], index);
        if before != NONE && before != index {
            self.clear(set, before);
        }
    }

    #[cold]
    fn set(&mut self, set: SetId, mut index: u64) {
        for level in 1..4 {
            let (at, bit) = (Self::upper(set, level, index / 64), 1 << (index % 64));
            let old = self.mirror[at];
            if old & bit != 0 {
                return;
            }
            self.write_upper(at, old | bit);
            if old != 0 {
                return;
            }
            index /= 64;
        }
    }

    /// Clears the upper bits of an empty word of level 0.
    #[cold]
    fn clear(&mut self, set: SetId, mut index: u64) {
        if self.empty[set.index()] == index {
            self.empty[set.index()] = NONE;
        }
        for level in 1..4 {
            let at = Self::upper(set, level, index / 64);
            let new = self.mirror[at] & !(1 << (index % 64));
            self.write_upper(at, new);
            if new != 0 {
                return;
            }
            index /= 64;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture;
    use crate::twin::Twin;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    fn open() -> GranuleSets<Twin> {
        let region = fixture::region(fixture::SETS);
        region.reserve(REGION).unwrap();
        GranuleSets::open(region)
    }

    #[test]
    fn the_region_fits_one_bucket() {
        const { assert!(REGION <= crate::BUCKET) };
        const { assert!(LINES[2] <= 64, "level 3 is one word") };
    }

    proptest! {
        /// Compared with a `BTreeSet`, over the whole range, with a reopening in the middle.
        #[test]
        fn sets_agree_with_a_model(steps in prop::collection::vec((0u8..8, 0u8..10, 0u64..MAX_GRANULES, 0u64..70), 1..200)) {
            crate::twin::reset();
            fixture::forget();
            let mut sets = open();
            let mut model: Vec<BTreeSet<u64>> = vec![BTreeSet::new(); 8];
            let half = steps.len() / 2;
            for (step, (set, to, far, near)) in steps.into_iter().enumerate() {
                if step == half {
                    fixture::forget();
                    sets = open();
                }
                // Half of the granules lie close together, so that words fill and empty.
                let granule = if far % 2 == 0 { far } else { near };
                let id = SetId(set);
                let member = model[usize::from(set)].range(granule..).next().copied().unwrap_or(granule);
                match to {
                    8 => {
                        sets.remove(id, member);
                        model[usize::from(set)].remove(&member);
                    }
                    9 => {
                        // A member of this set, and a lower set, change in one write.
                        let lower = set / 2;
                        let old = sets.line(member);
                        let mut new = old;
                        new[usize::from(set)] &= !(1 << (member % 64));
                        new[usize::from(lower)] |= 1 << (member % 64);
                        sets.set_line(member, &old, &new);
                        model[usize::from(set)].remove(&member);
                        model[usize::from(lower)].insert(member);
                        prop_assert_eq!(sets.line(member), new);
                    }
                    to if to < 4 && to != set => {
                        sets.remove(id, member);
                        sets.insert(SetId(to), member);
                        model[usize::from(set)].remove(&member);
                        model[usize::from(to)].insert(member);
                    }
                    _ => {
                        sets.insert(id, granule);
                        prop_assert_eq!(sets.word(id, granule) >> (granule % 64) & 1, 1);
                        model[usize::from(set)].insert(granule);
                    }
                }
                // Sets whose first member is not asked for keep the bits of an empty word.
                for set in (0..8u8).filter(|set| step % 3 == 0 || *set == id.0) {
                    prop_assert_eq!(sets.first(SetId(set)).map(|(first, _)| first), model[usize::from(set)].first().copied());
                }
            }
        }
    }
}
