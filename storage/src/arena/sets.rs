//! Eight sets of granules: the free list of each class, and the quarantine. The arena has them twice, once for each [`Side`].
//!
//! A set returns its lowest member in constant time at any size. The set is a hierarchy of bitmaps: a bit of level `k + 1` is set if a word of
//! level `k` has a set bit (and may stay set while the word is empty), so four levels of 64-bit words span 16.7 M granules (500 GiB need
//! 8.2 M). The words of the eight sets lie next to each other in one line of 64 bytes, and a line spans one block of 4 MiB, so that
//! moving, splitting and joining slots reads and writes one line. A line of level 1 spans one extent.
//!
//! | level | a bit stands for | lines | place |
//! |---|---|---|---|
//! | 0 | a granule | 64 for each extent | in front of the extent |
//! | 1 | a block of 4 MiB | one for each extent | in front of the extent |
//! | 2 | an extent of 256 MiB | 32 | in front of the first extent, and on the heap |
//! | 3 | 16 GiB | one | on the heap only |

use super::class::{Class, MAX_GRANULES, Side};
use super::extent::{self, EXTENT, LEVEL_2, LINE, SIDE};
use crate::{Platform, Raw};

const SETS: usize = 8;
/// Lines of level 2.
const LINES: u64 = MAX_GRANULES.div_ceil(64 * EXTENT);
const _: () = assert!(LINE == 8 * SETS as u64 && LINES <= 64 && EXTENT == 64 * 64);

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

/// The eight sets.
pub struct GranuleSets<P: Platform> {
    raw: Raw<P>,
    /// Bytes by which the sets of this side lie behind those of the first.
    base: u64,
    /// Lines of level 2, which are written through, and then of level 3.
    mirror: Vec<Line>,
    /// For each set a word of level 0 that is empty while its upper bits are still set, or [`NONE`].
    empty: [u64; SETS],
}

/// Lines of level 2 that an arena of `end` granules has.
fn lines(end: u64) -> usize {
    end.div_ceil(64 * EXTENT).min(LINES) as usize
}

/// No word.
const NONE: u64 = u64::MAX;

impl<P: Platform> GranuleSets<P> {
    /// Reads the upper levels of an arena of `end` granules. The cost does not depend on the number of blobs.
    pub fn open(raw: Raw<P>, side: Side, end: u64) -> Self {
        let base = side.index() as u64 * SIDE;
        let mut mirror = vec![[0; SETS]; LINES as usize + 1];
        let mut level_3 = [0; SETS];
        for (line, words) in mirror[..lines(end)].iter_mut().enumerate() {
            let bytes: [u8; LINE as usize] = raw.read(base + LEVEL_2 + line as u64 * LINE);
            for ((word, bytes), above) in words.iter_mut().zip(bytes.as_chunks().0).zip(&mut level_3) {
                *word = u64::from_le_bytes(*bytes);
                *above |= u64::from(*word != 0) << line;
            }
        }
        mirror[LINES as usize] = level_3;
        Self { raw, base, mirror, empty: [NONE; SETS] }
    }

    /// Writes level 2 of an arena of `end` granules.
    pub fn save(&self, end: u64) {
        for (line, words) in self.mirror[..lines(end)].iter().enumerate() {
            let bytes = words.map(u64::to_le_bytes);
            self.raw.write(self.base + LEVEL_2 + line as u64 * LINE, bytes.as_flattened());
        }
    }

    #[inline]
    fn level_0(&self, set: SetId, granule: u64) -> u64 {
        self.base.wrapping_add(extent::level_0(granule) + 8 * set.index() as u64)
    }

    /// Address of the word of level 1 for an extent.
    #[inline]
    fn level_1(&self, set: SetId, extent: u64) -> u64 {
        self.base.wrapping_add(extent::level_1(extent) + 8 * set.index() as u64)
    }

    /// Returns the lowest member, and the word that has it.
    #[inline(always)]
    pub fn first(&mut self, set: SetId) -> Option<(u64, u64)> {
        loop {
            let word = self.mirror[LINES as usize][set.index()];
            if word == 0 {
                return None;
            }
            let line = u64::from(word.trailing_zeros());
            let extent = line * 64 + u64::from(self.mirror[line as usize][set.index()].trailing_zeros());
            let blocks = self.raw.read_u64(self.level_1(set, extent));
            if blocks == 0 {
                // Only after damage.
                self.set_extent(set, extent, false);
                continue;
            }
            let at = extent * 64 + u64::from(blocks.trailing_zeros());
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
        self.raw.read_u64(self.level_0(set, granule))
    }

    /// Replaces the word `old` of a set for the block of `granule`.
    #[inline(always)]
    pub fn set_word(&mut self, set: SetId, granule: u64, old: u64, new: u64) {
        self.raw.write_u64(self.level_0(set, granule), new);
        self.note(set, granule, old, new);
    }

    /// Notes in the upper levels that a word of level 0 was replaced.
    #[inline(always)]
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
        self.raw.read_with(self.level_0(SetId(0), granule), |bytes: &[u8; LINE as usize]| {
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
        self.raw.write(self.level_0(SetId(first as u8), granule), bytes[first..end].as_flattened());
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

    /// Records that a word of level 0 lost its last member. The word's upper bits stay until another word is empty, because sets with few members
    /// lose and get them in turn.
    #[inline]
    fn emptied(&mut self, set: SetId, index: u64) {
        let before = std::mem::replace(&mut self.empty[set.index()], index);
        if before != NONE && before != index {
            self.clear(set, before);
        }
    }

    #[cold]
    fn set(&mut self, set: SetId, index: u64) {
        let (extent, bit) = (index / 64, 1 << (index % 64));
        let at = self.level_1(set, extent);
        let old = self.raw.read_u64(at);
        if old & bit == 0 {
            self.raw.write_u64(at, old | bit);
        }
        self.set_extent(set, extent, true);
    }

    /// Clears the upper bits of an empty word of level 0.
    #[cold]
    fn clear(&mut self, set: SetId, index: u64) {
        if self.empty[set.index()] == index {
            self.empty[set.index()] = NONE;
        }
        let at = self.level_1(set, index / 64);
        let left = self.raw.read_u64(at) & !(1 << (index % 64));
        self.raw.write_u64(at, left);
        if left == 0 {
            self.set_extent(set, index / 64, false);
        }
    }

    /// Sets or clears the bit of an extent in level 2, and computes that of level 3.
    fn set_extent(&mut self, set: SetId, extent: u64, is_set: bool) {
        let (line, bit) = ((extent / 64) as usize, 1 << (extent % 64));
        let word = &mut self.mirror[line][set.index()];
        let new = if is_set { *word | bit } else { *word & !bit };
        if new == *word {
            return;
        }
        *word = new;
        self.raw.write_u64(self.base + LEVEL_2 + line as u64 * LINE + 8 * set.index() as u64, new);
        let top = &mut self.mirror[LINES as usize][set.index()];
        *top = *top & !(1 << line) | u64::from(new != 0) << line;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing;
    use crate::twin::Twin;
    use ic_stable_structures::Memory;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    fn open() -> GranuleSets<Twin> {
        // Sparse memory of the largest arena.
        let memory = <Twin as Platform>::Memory::default();
        memory.grow(MAX_GRANULES - memory.size());
        GranuleSets::open(Raw::new(), Side::Counted, MAX_GRANULES)
    }

    proptest! {
        /// Compared with a `BTreeSet`, over the whole range, with a reopening in the middle.
        #[test]
        fn sets_agree_with_a_model(steps in prop::collection::vec((0u8..8, 0u8..10, 0u64..MAX_GRANULES, 0u64..70), 1..200)) {
            crate::twin::reset();
            testing::forget();
            let mut sets = open();
            let mut model: Vec<BTreeSet<u64>> = vec![BTreeSet::new(); 8];
            let half = steps.len() / 2;
            for (step, (set, to, far, near)) in steps.into_iter().enumerate() {
                if step == half {
                    testing::forget();
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
