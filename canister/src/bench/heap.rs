//! Peer of the index: ids on the heap, in eight generations of blocks.
//!
//! A new block's ids go to the newest generation, and pruning drops a generation once all of its blocks are pruned. The index is lost at
//! an upgrade and made anew from the index segments of the kept blocks.

use ic_coppice_interface::segments::ID;
use std::collections::{HashMap, VecDeque};
use std::hash::{BuildHasher, Hash, Hasher};
use std::mem::size_of;

/// Generations that are there at most.
const GENERATIONS: u64 = 8;

/// Hashes eight bytes of an id, which is a hash itself, with a secret seed, because senders choose ids.
#[derive(Clone, Copy)]
struct Seeded(u64);

const MULTIPLIER: u64 = 0xA24B_AED4_963E_E407;

struct Digest(u64);

impl BuildHasher for Seeded {
    type Hasher = Digest;

    fn build_hasher(&self) -> Digest {
        Digest(self.0)
    }
}

impl Hasher for Digest {
    fn write(&mut self, bytes: &[u8]) {
        let word = u64::from_le_bytes(*bytes.first_chunk().expect("an id has 32 bytes"));
        let product = u128::from(word ^ self.0) * u128::from(MULTIPLIER);
        self.0 = product as u64 ^ (product >> 64) as u64;
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
struct Id([u8; ID]);

impl Hash for Id {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write(&self.0);
    }
}

/// Block, counted from the first one of its generation, and position.
type Place = (u32, u32);

struct Generation {
    first: u64,
    ids: HashMap<Id, Place, Seeded>,
}

pub struct HeapIndex {
    seed: Seeded,
    /// Blocks of a generation.
    span: u64,
    generations: VecDeque<Generation>,
}

impl HeapIndex {
    /// Returns an empty index for a window of `window` blocks.
    pub fn new(window: u64, seed: u64) -> Self {
        // The window lies across one generation more than it fills.
        let span = window.div_ceil(GENERATIONS - 1).max(1);
        Self { seed: Seeded(seed), span, generations: VecDeque::new() }
    }

    /// Enters a block's ids. If an id occurs twice in a generation, its newer place replaces the older one.
    pub fn insert<'a>(&mut self, number: u64, ids: impl Iterator<Item = &'a [u8; ID]>) {
        let newest = self.generations.back();
        if newest.is_none_or(|newest| number >= newest.first + self.span) {
            // As large as the generation before, so that no table grows while it fills.
            let room = newest.map_or(0, |newest| newest.ids.len());
            let ids = HashMap::with_capacity_and_hasher(room, self.seed);
            self.generations.push_back(Generation { first: number, ids });
        }
        let newest = self.generations.back_mut().expect("there is one");
        let block = (number - newest.first) as u32;
        newest.ids.extend((0..).zip(ids).map(|(position, id)| (Id(*id), (block, position))));
    }

    /// The newest place of an id, where its block is not below `oldest`.
    pub fn get(&self, id: &[u8; ID], oldest: u64) -> Option<(u64, u32)> {
        let id = Id(*id);
        let found = self.generations.iter().rev().find_map(|generation| {
            generation.ids.get(&id).map(|(block, position)| (generation.first + u64::from(*block), *position))
        });
        found.filter(|(number, _)| *number >= oldest)
    }

    /// Drops the generations all of whose blocks are below `oldest`. Returns how many ids they had.
    pub fn prune(&mut self, oldest: u64) -> u64 {
        let mut dropped = 0;
        while let Some(generation) = self.generations.pop_front_if(|generation| generation.first + self.span <= oldest)
        {
            dropped += generation.ids.len() as u64;
        }
        dropped
    }

    /// Bytes of the heap: each table has a power of two of slots and a control byte for each, and is filled to seven eighths at most.
    pub fn bytes(&self) -> u64 {
        let slots = |ids: &HashMap<Id, Place, Seeded>| (ids.capacity() * 8 / 7).next_power_of_two() as u64;
        let slot = size_of::<(Id, Place)>() as u64 + 1;
        self.generations.iter().map(|generation| slots(&generation.ids) * slot).sum()
    }
}
