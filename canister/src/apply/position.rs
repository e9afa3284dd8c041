//! Persisted position of applying.
//!
//! ```text
//! cell: 0 magic "CPAP"  4 version u16  6 set u8  7 phase u8  8 base u64  16 next u64  24 offset u64
//!       32 height u32  36 id u32  40 transaction u32  44 input u32  48 hash length u8  64 hash 32
//! ```

use super::stop::Stop;
use crate::chain::Hash as BlockHash;
use crate::export::Guard;
use crate::storage::memory::Region;
use crate::storage::places;
use coppice_interface::{HeldBy, UtxoApplyStop, UtxoApplying};
use coppice_storage::bytes::{array_at, u32_at, u64_at};
use coppice_storage::header::Header;
use std::rc::Rc;

const LAYOUT: Header = Header { name: "applying of blocks", magic: *b"CPAP", version: 1 };
const BYTES: usize = 96;

/// State of the transaction at the position.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Phase {
    /// Nothing of it is done.
    #[default]
    Whole,
    /// A large transaction: its inputs before this one are checked.
    Check(u32),
    /// A large transaction: its record has the block, and its inputs before this one have spent their outputs.
    Spend(u32),
    /// A coinbase that is taken back: its record has lost the block, and is not marked yet with all that spend from it.
    Mark,
}

/// The next transaction to apply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Position {
    /// The first block that was applied.
    pub base: u64,
    /// The next block to apply.
    pub next: u64,
    /// Its height.
    pub height: u32,
    /// Its id, once it is begun.
    pub block_id: u32,
    /// Its hash, once it is begun; before that the hash of the block that was applied or taken back last, or an empty one.
    pub hash: BlockHash,
    /// Transactions of the next block that are applied.
    pub transaction: u32,
    /// The first byte of the next transaction in the body; 0: not known.
    pub offset: u64,
    /// State of the next transaction.
    pub phase: Phase,
}

impl Position {
    /// Returns whether the next block is applied in part, or taken back in part.
    pub fn is_begun(&self) -> bool {
        self.transaction > 0 || self.offset > 0 || self.phase == Phase::Mark
    }

    /// Returns the last block that is applied, completely or partly.
    pub fn last(&self) -> Option<u64> {
        if self.is_begun() { Some(self.next) } else { self.next.checked_sub(1).filter(|last| *last >= self.base) }
    }

    fn encode(&self) -> [u8; BYTES] {
        let mut b = [0; BYTES];
        let mut put = |at: usize, bytes: &[u8]| b[at..at + bytes.len()].copy_from_slice(bytes);
        let (phase, input) = match self.phase {
            Phase::Whole => (0, 0),
            Phase::Check(input) => (1, input),
            Phase::Spend(input) => (2, input),
            Phase::Mark => (3, 0),
        };
        put(0, &LAYOUT.encode());
        put(6, &[1, phase]);
        for (at, word) in [(8, self.base), (16, self.next), (24, self.offset)] {
            put(at, &word.to_le_bytes());
        }
        for (at, word) in [(32, self.height), (36, self.block_id), (40, self.transaction), (44, input)] {
            put(at, &word.to_le_bytes());
        }
        put(48, &[self.hash.as_slice().len() as u8]);
        put(64, self.hash.as_slice());
        b
    }

    fn decode(b: &[u8; BYTES]) -> Result<Self, String> {
        let bad = |what: &str| format!("{}: {what}", LAYOUT.name);
        let input = u32_at(b, 44);
        let phase = match b[7] {
            0 => Phase::Whole,
            1 => Phase::Check(input),
            2 => Phase::Spend(input),
            3 => Phase::Mark,
            other => return Err(bad(&format!("phase {other}"))),
        };
        Ok(Self {
            base: u64_at(b, 8),
            next: u64_at(b, 16),
            offset: u64_at(b, 24),
            height: u32_at(b, 32),
            block_id: u32_at(b, 36),
            transaction: u32_at(b, 40),
            hash: BlockHash::stored(&array_at(b, 64), b[48]).ok_or_else(|| bad("the hash's length"))?,
            phase,
        })
    }
}

/// The position, and why applying stands there; each has a cell.
pub struct Applier {
    cells: Rc<Region>,
    position: Option<Position>,
    stop: Option<Stop>,
}

impl Applier {
    /// Reads the cell; a cell that was never written has no position.
    ///
    /// # Errors
    /// A sentence: this code did not write the cell.
    pub fn open(cells: Rc<Region>) -> Result<Self, String> {
        let bytes: [u8; BYTES] = cells.read(places::APPLYING);
        let position = if bytes.iter().all(|&byte| byte == 0) {
            None
        } else {
            LAYOUT.check(&array_at(&bytes, 0))?;
            match bytes[6] {
                0 => None,
                1 => Some(Position::decode(&bytes)?),
                other => return Err(format!("{}: set is {other}", LAYOUT.name)),
            }
        };
        let stop = Stop::load(&cells)?;
        Ok(Self { cells, position, stop })
    }

    /// Returns the position; `None` if no block is applied.
    pub fn position(&self) -> Option<&Position> {
        self.position.as_ref()
    }

    /// Returns why applying stands at its position, if a transaction there could not be applied.
    pub fn stop(&self) -> Option<&Stop> {
        self.stop.as_ref()
    }

    /// Keeps the reason why applying stands at its position. A repeated reason keeps its time.
    pub fn note_stop(&mut self, stop: &UtxoApplyStop, now_ns: u64) {
        let text = stop.to_string();
        if self.position.is_some() && self.stop.as_ref().is_none_or(|known| known.text != text) {
            self.set_stop(Some(Stop { since_ns: now_ns, text }));
        }
    }

    fn set_stop(&mut self, stop: Option<Stop>) {
        if stop != self.stop {
            Stop::save(stop.as_ref(), &self.cells);
            self.stop = stop;
        }
    }

    /// Saves a position; `None` ends applying. A stop ends with its position.
    pub fn set(&mut self, position: Option<Position>) {
        if position != self.position {
            self.set_stop(None);
            self.position = position;
            let mut none = [0; BYTES];
            none[..8].copy_from_slice(&LAYOUT.encode());
            self.cells.write(places::APPLYING, &position.map_or(none, |position| position.encode()));
        }
    }

    /// Returns the bound that pruning must not pass: the next block to apply.
    pub fn guard(&self) -> Option<Guard> {
        self.position.map(|position| Guard { before: position.next, held_by: HeldBy::UtxoApply })
    }

    /// Returns the last applied block if it lies above block `number`, so that a rollback to `number` would remove it.
    pub fn above(&self, number: u64) -> Option<u64> {
        self.position.and_then(|position| position.last()).filter(|last| *last > number)
    }

    /// Returns the position as callers get it.
    pub fn status(&self) -> Option<UtxoApplying> {
        let Position { base, next, height, transaction, .. } = self.position?;
        Some(UtxoApplying { base, next, height, transactions: transaction })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::platform::native;
    use crate::storage::memory;

    fn position(phase: Phase) -> Position {
        Position {
            base: 0x0108,
            next: 0x0210,
            height: 0x20,
            block_id: 0x24,
            hash: BlockHash::stored(&[7; 32], 32).unwrap(),
            transaction: 0x28,
            offset: 0x0318,
            phase,
        }
    }

    #[test]
    fn position_has_the_documented_layout_and_is_read_back() {
        native::reset();
        memory::forget();
        let cells = Rc::new(memory::region(memory::CELLS));
        cells.reserve(places::END).unwrap();
        let mut applier = Applier::open(Rc::clone(&cells)).unwrap();
        assert_eq!(applier.position(), None);
        let phases = [(Phase::Whole, 0, 0), (Phase::Check(9), 1, 9), (Phase::Spend(10), 2, 10), (Phase::Mark, 3, 0)];
        for (phase, code, input) in phases {
            let position = position(phase);
            applier.set(Some(position));
            let bytes: [u8; BYTES] = cells.read(places::APPLYING);
            assert_eq!(bytes[..8], [b'C', b'P', b'A', b'P', 1, 0, 1, code]);
            assert_eq!([u64_at(&bytes, 8), u64_at(&bytes, 16), u64_at(&bytes, 24)], [0x0108, 0x0210, 0x0318]);
            assert_eq!([32, 36, 40, 44].map(|at| u32_at(&bytes, at)), [0x20, 0x24, 0x28, input]);
            assert_eq!((bytes[48], bytes[64]), (32, 7));
            assert_eq!(Applier::open(Rc::clone(&cells)).unwrap().position(), Some(&position));
        }
        applier.set(None);
        assert_eq!(Applier::open(Rc::clone(&cells)).unwrap().position(), None);
        for (at, value) in [(4, 2), (6, 2)] {
            cells.write(places::APPLYING + at, &[value]);
            assert!(Applier::open(Rc::clone(&cells)).is_err(), "byte {at}");
            cells.write(places::APPLYING, &LAYOUT.encode());
        }
        cells.write(places::APPLYING + 6, &[1, 4]);
        assert!(Applier::open(cells).is_err());
    }

    #[test]
    fn last_block_is_the_one_that_is_begun_or_the_one_before_it() {
        let begun = position(Phase::Whole);
        assert_eq!(begun.last(), Some(0x0210));
        let whole = Position { transaction: 0, offset: 0, ..begun };
        assert_eq!(whole.last(), Some(0x020F));
        assert_eq!(Position { phase: Phase::Mark, ..whole }.last(), Some(0x0210));
        assert_eq!(Position { base: whole.next, ..whole }.last(), None);
        assert_eq!(Position { base: 0, next: 0, ..whole }.last(), None);
    }
}
