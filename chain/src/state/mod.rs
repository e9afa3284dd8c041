//! Persisted state of the chain: the range of kept blocks, the part of the log in use, and work that continues in later messages.
//!
//! ```text
//! blocks         base … pruned … │ oldest … kept … head │ next: the block of an upload, or in transit
//! log, in blobs     … freed …    │ log_first … … log_end │ blobs of an open upload
//! log, in bytes                             log_tail ┘    end of the last committed block, in or at the end of the last blob
//!
//! cell: 0 magic "CPCH"  4 version u16  6 started u8  8 words, u64 each:
//!       15 of `words!` below, in its order   2 × 6 of the sweeps: ids, keys   5 of the block in transit
//!       1 rollback's target + 1   6 of the reset   1 one above the highest head
//!       4 × 5 of the hashes of the head and of the oldest block's parent, and of the seals of the two: length + 1, 0 for unknown; 32 bytes
//!       4 of the certified data, 0: never computed   4 of the host's part of them, 0: none
//!       checksum u32
//! ```

/// Lists the fields of a type, in the order of their words in the cell.
macro_rules! words {
    ($type:ident: $($field:ident)*) => {
        impl $type {
            /// Words of the chain's cell.
            pub(crate) const WORDS: usize = [$(stringify!($field)),*].len();

            /// Reads the words; other fields have their defaults.
            pub(crate) fn from_words(word: impl Fn(usize) -> u64) -> Self {
                let mut read = Self::default();
                [$(read.$field),*] = std::array::from_fn(word);
                read
            }

            #[inline]
            pub(crate) fn words(&self) -> [u64; Self::WORDS] {
                [$(self.$field),*]
            }
        }
    };
}

mod reset;
mod sweep;
mod transit;

use super::hash::Hash;
use crate::places;
use ic_coppice_interface::seals::{self, Seal};
use ic_coppice_storage::bytes::{array_at, u64_at};
use ic_coppice_storage::checksum::{self, CHECKSUM};
use ic_coppice_storage::header::Header as Layout;
use ic_coppice_storage::{OpenError, Space};

pub use reset::Reset;
pub use sweep::Sweep;
pub use transit::{Transit, Way};

const LAYOUT: Layout = Layout { name: "chain state", magic: *b"CPCH", version: 5 };
const TRANSIT: usize = ChainState::WORDS + 2 * Sweep::WORDS;
const ROLLBACK: usize = TRANSIT + Transit::WORDS;
const RESET: usize = ROLLBACK + 1;
const HIGHEST: usize = RESET + Reset::WORDS;
const HASHES: usize = HIGHEST + 1;
const CERTIFIED: usize = HASHES + 4 * HASH_WORDS;
const HOST: usize = CERTIFIED + 4;
const END: usize = HEADER + 8 * (HOST + 4);
const BYTES: usize = END + CHECKSUM;
const HASH_WORDS: usize = 5;
const HEADER: usize = 8;

/// Bounds of the kept blocks and of their log. All upper bounds are exclusive.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ChainState {
    /// True if there is a block: from the first append on, until a reset.
    pub started: bool,
    /// Number of the first block since the last reset; postings count blocks from this number.
    pub base: u64,
    /// `pruned_before_block`: the number of the oldest kept block (the head is never pruned).
    pub oldest: u64,
    /// One above the head's number.
    pub next: u64,
    /// One past the last committed byte of the log.
    pub log_tail: u64,
    /// The first blob of the log that is kept.
    pub log_first: u64,
    /// One past the last blob of committed blocks.
    pub log_end: u64,
    /// The head's monotonic time, in Unix seconds.
    pub monotonic: u64,
    /// Blocks ever appended.
    pub appended_blocks: u64,
    /// Payload bytes ever appended.
    pub appended_bytes: u64,
    /// Blocks ever pruned.
    pub pruned_blocks: u64,
    /// Payload bytes ever pruned.
    pub pruned_bytes: u64,
    /// Secondary keys of the kept blocks. Keys of a block whose header is damaged stay counted after the block is removed.
    pub keys: u64,
    /// Links of ids of the kept blocks; counted like `keys`.
    pub id_links: u64,
    /// References of all blocks below `next`, pruned ones included.
    pub references: u64,
    /// References of the blocks below `oldest`; part of `references`.
    pub pruned_references: u64,
    /// Sweeps of the transaction index and of the key index.
    pub sweeps: [Sweep; 2],
    /// The block after the head if it is partly in the indexes.
    pub transit: Option<Transit>,
    /// The target of a running rollback.
    pub rollback_to: Option<u64>,
    /// Leftovers of resets.
    pub reset: Reset,
    /// One above the highest head since the last reset; limits how deep producers may roll back.
    pub highest: u64,
    /// The head's hash; `None` if there is no block, or a rollback has reached a damaged one.
    pub head_hash: Option<Hash>,
    /// The hash of the block before the oldest; `None` if there is no block, or that block's header was damaged when it was pruned.
    pub parent: Option<Hash>,
    /// The head's seal; of an empty chain, the seal before its first block. `None` while a rollback has made a damaged block the head.
    pub seal: Option<Seal>,
    /// The seal before the oldest block, or as [`seal`](Self::seal) if there is no block; `None` if the block before was damaged when it
    /// was pruned.
    pub seal_before: Option<Seal>,
    /// The certified data (`certified.rs`); zeros if they were never computed.
    pub certified: [u8; 32],
    /// Digest of the host's part of the certified data; zeros if there is none.
    pub host: [u8; 32],
}

words! {
    ChainState: base oldest next log_tail log_first log_end monotonic appended_blocks appended_bytes pruned_blocks
    pruned_bytes keys id_links references pruned_references
}

impl ChainState {
    /// Reads the cell; a cell that was never written is an empty chain.
    ///
    /// # Errors
    /// A sentence: the cell is damaged, or has another layout.
    pub fn load(cells: &Space) -> Result<Self, String> {
        let bytes: [u8; BYTES] = cells.read(places::CHAIN);
        if bytes.iter().all(|&byte| byte == 0) {
            return Ok(Self { seal: Some(seals::FIRST), seal_before: Some(seals::FIRST), ..Self::default() });
        }
        if !checksum::is_right(&bytes) {
            return Err(OpenError::Damaged { name: LAYOUT.name }.into());
        }
        LAYOUT.check(&array_at(&bytes, 0))?;
        if bytes[6] > 1 {
            return Err(format!("chain state: started is {}", bytes[6]));
        }
        let word = |i: usize| u64_at(&bytes, HEADER + 8 * i);
        let hash = |i: usize| {
            let len = word(i).checked_sub(1)?;
            Hash::stored(&array_at(&bytes, HEADER + 8 * (i + 1)), u8::try_from(len).ok()?)
        };
        let seal = |i: usize| hash(i).map(|seal| seal.bytes);
        Ok(Self {
            started: bytes[6] == 1,
            sweeps: [0, Sweep::WORDS].map(|at| Sweep::from_words(|i| word(Self::WORDS + at + i))),
            transit: Transit::from_words(|i| word(TRANSIT + i))?,
            rollback_to: word(ROLLBACK).checked_sub(1),
            reset: Reset::from_words(|i| word(RESET + i)),
            highest: word(HIGHEST),
            head_hash: hash(HASHES),
            parent: hash(HASHES + HASH_WORDS),
            seal: seal(HASHES + 2 * HASH_WORDS),
            seal_before: seal(HASHES + 3 * HASH_WORDS),
            certified: array_at(&bytes, HEADER + 8 * CERTIFIED),
            host: array_at(&bytes, HEADER + 8 * HOST),
            ..Self::from_words(word)
        })
    }

    /// Writes the cell.
    pub fn save(&self, cells: &Space) {
        let mut bytes = [0; BYTES];
        bytes[..8].copy_from_slice(&LAYOUT.encode());
        bytes[6] = u8::from(self.started);
        // A chain of iterators would take nine times as many instructions.
        let mut places = bytes[HEADER..].as_chunks_mut::<8>().0.iter_mut();
        let mut put =
            |words: &[u64]| words.iter().zip(&mut places).for_each(|(word, place)| *place = word.to_le_bytes());
        put(&self.words());
        self.sweeps.iter().for_each(|sweep| put(&sweep.words()));
        put(&Transit::words(self.transit.as_ref()));
        put(&[self.rollback_to.map_or(0, |to| to + 1)]);
        put(&self.reset.words());
        put(&[self.highest]);
        let seal = |seal: Option<Seal>| seal.and_then(|seal| Hash::stored(&seal, seal.len() as u8));
        let hashes = [self.head_hash, self.parent, seal(self.seal), seal(self.seal_before)];
        let places = bytes[HEADER + 8 * HASHES..].chunks_mut(8 * HASH_WORDS);
        for (hash, place) in hashes.iter().zip(places) {
            if let Some(hash) = hash {
                place[0] = hash.len + 1;
                place[8..].copy_from_slice(&hash.bytes);
            }
        }
        bytes[HEADER + 8 * CERTIFIED..HEADER + 8 * HOST].copy_from_slice(&self.certified);
        bytes[HEADER + 8 * HOST..END].copy_from_slice(&self.host);
        checksum::put(&mut bytes);
        cells.write(places::CHAIN, &bytes);
    }

    /// Number of kept blocks.
    pub fn blocks(&self) -> u64 {
        self.next - self.oldest
    }

    /// Number of a block inside postings: counted from the chain's first block, and after a reset from above all numbers used before.
    pub fn counted(&self, number: u64) -> u64 {
        number - self.base + self.reset.start
    }

    /// The bound of stale postings: those with a lower number belong to removed blocks.
    pub fn bound(&self) -> u64 {
        if self.started { self.counted(self.oldest) } else { self.reset.start }
    }

    /// References of the kept blocks.
    pub fn kept_references(&self) -> u64 {
        self.references.saturating_sub(self.pruned_references)
    }

    /// The head's number.
    pub fn head(&self) -> Option<u64> {
        self.started.then(|| self.next - 1)
    }

    /// Returns whether a rollback to block `to` ends at the head: at that block, or below it at the first one whose seal is known.
    pub fn rests(&self, to: u64) -> bool {
        self.next - 1 <= to && (self.seal.is_some() || self.next - 1 == self.oldest)
    }

    /// The head's number after a running rollback has finished.
    pub fn coming_head(&self) -> Option<u64> {
        self.head().map(|head| self.rollback_to.map_or(head, |to| to.min(head)))
    }
}

#[cfg(test)]
mod tests {
    use super::{Way, *};
    use ic_coppice_storage::{testing, twin};

    /// The cell as it lies in stable memory: 8 bytes of magic, version and `started`, then the words.
    #[test]
    fn chain_state_has_the_documented_layout() {
        twin::reset();
        testing::forget();
        let cells = testing::cells();
        let word = |i: usize| 1_000 + i as u64;
        // Written out, so that a field that is not persisted, or in another place, shows here.
        let sweep = |at: usize| Sweep {
            before: word(at),
            since: word(at + 1),
            cursor: word(at + 2),
            bound: word(at + 3),
            dropped: word(at + 4),
            finished: word(at + 5),
        };
        let reset =
            Reset { start: 2_000, used: 2_001, rollbacks: 2_002, clear_from: 2_003, clear_to: 2_004, count: 2_005 };
        let state = ChainState {
            started: true,
            base: word(0),
            oldest: word(1),
            next: word(2),
            log_tail: word(3),
            log_first: word(4),
            log_end: word(5),
            monotonic: word(6),
            appended_blocks: word(7),
            appended_bytes: word(8),
            pruned_blocks: word(9),
            pruned_bytes: word(10),
            keys: word(11),
            id_links: word(12),
            references: word(13),
            pruned_references: word(14),
            sweeps: [15, 21].map(sweep),
            transit: Some(Transit { way: Way::RolledBack, number: 1, ids: 2, keys: 3, log_end: 4 }),
            rollback_to: Some(u64::MAX - 1),
            reset,
            highest: 3_000,
            head_hash: Hash::new(&[7; 32]),
            parent: Hash::new(&[]),
            seal: Some([8; 32]),
            seal_before: None,
            certified: [9; 32],
            host: [10; 32],
        };
        state.save(&cells);
        let bytes: [u8; BYTES] = cells.read(places::CHAIN);
        assert_eq!(bytes[..8], [b'C', b'P', b'C', b'H', LAYOUT.version as u8, 0, 1, 0]);
        let words: Vec<u64> = bytes[8..END].as_chunks().0.iter().map(|word| u64::from_le_bytes(*word)).collect();
        let sweeps = 2 * Sweep::WORDS;
        let mut expected: Vec<u64> = (0..15 + sweeps).map(word).collect();
        // Way and block in transit; the rollback's target + 1; leftovers of resets; one above the highest head.
        expected.extend([3, 1, 2, 3, 4, u64::MAX]);
        expected.extend(2_000..2_000 + Reset::WORDS as u64);
        expected.push(3_000);
        // A hash of 32 bytes, and one of none.
        expected.extend([
            33,
            0x0707_0707_0707_0707,
            0x0707_0707_0707_0707,
            0x0707_0707_0707_0707,
            0x0707_0707_0707_0707,
        ]);
        expected.extend([1, 0, 0, 0, 0]);
        // A seal, an unknown one, the certified data, and the host's part of them.
        expected.push(33);
        expected.extend([0x0808_0808_0808_0808; 4]);
        expected.extend([0; 5]);
        expected.extend([0x0909_0909_0909_0909; 4]);
        expected.extend([0x0A0A_0A0A_0A0A_0A0A; 4]);
        assert_eq!(words, expected);
        assert_eq!(ChainState::load(&cells), Ok(state));
        // A flipped bit, another version and an unknown way are refused.
        for bit in 0..8 * BYTES {
            let mut damaged = bytes;
            damaged[bit / 8] ^= 1 << (bit % 8);
            cells.write(places::CHAIN, &damaged);
            assert!(ChainState::load(&cells).unwrap_err().starts_with("chain state: damaged"), "bit {bit}");
        }
        for (at, value, why) in [(4, LAYOUT.version as u8 + 1, "version"), (HEADER + 8 * TRANSIT, 4, "direction")] {
            let mut other = bytes;
            other[at] = value;
            checksum::put(&mut other);
            cells.write(places::CHAIN, &other);
            assert!(ChainState::load(&cells).unwrap_err().contains(why), "{why}");
        }
    }

    #[test]
    fn unwritten_cell_is_an_empty_chain_and_a_written_one_reads_back() {
        twin::reset();
        testing::forget();
        let cells = testing::cells();
        let first = Some(seals::FIRST);
        assert_eq!(
            ChainState::load(&cells),
            Ok(ChainState { seal: first, seal_before: first, ..ChainState::default() })
        );
        let state = ChainState { started: true, oldest: 5, next: 100, highest: 103, ..ChainState::default() };
        state.save(&cells);
        assert_eq!(ChainState::load(&cells), Ok(state));
    }
}
