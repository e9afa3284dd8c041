//! Persisted state of applying: the position, the block that a rollback takes back, the new-from height, counts for
//! `health`, and the treatment of missing parents.
//!
//! ```text
//! cell: 0 magic "CPAP"  4 version u16  6 phase u8  7 stage u8
//!       position, height 0: none        8 base u64  16 next u64  24 offset u64  32 height u32  36 transaction u32  40 input u32
//!       block that is taken back       44 transaction u32  48 number + 1 u64, 0: none  56 offset u64
//!       new-from height                64 height + 1 u64, 0: none
//!       counted as pruned              72 transactions u64  80 last block u64
//!       not restored                   88 transactions u64  96 last block u64
//!       block that is taken back       104 input u32
//!       missing parents                108 skipped u8
//!       last block that went           112 height + 1 u32, 0: none  116 number u64
//!       124 checksum u32
//! ```

use super::note::AppliedNote;
use super::stop::Stop;
use crate::places;
use ic_coppice_interface::blocks::Blocks;
use ic_coppice_interface::{MissingParents, UtxoApplyPosition, UtxoError};
use ic_coppice_storage::bytes::{array_at, u32_at, u64_at};
use ic_coppice_storage::header::Header;
use ic_coppice_storage::{Ic, NS, OpenError, Platform as _, Space, checksum};
use std::rc::Rc;

const LAYOUT: Header = Header { name: "applying of blocks", magic: *b"CPAP", version: 5 };
const BYTES: usize = 128;
/// Seconds after which ticks try a rollback again that waits for memory.
const RETRY_SECS: u64 = 60;

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
}

/// The next transaction to apply.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Position {
    /// The first block that was applied.
    pub base: u64,
    /// The next block to apply.
    pub next: u64,
    /// Height of the next block.
    pub height: u32,
    /// Transactions of the next block that are applied.
    pub transaction: u32,
    /// The first byte of the next transaction in the body; 0: not known.
    pub offset: u64,
    /// State of the next transaction.
    pub phase: Phase,
}

impl Position {
    /// Returns the position before a block.
    pub fn before(base: u64, next: u64, height: u32) -> Self {
        Self { base, next, height, ..Self::default() }
    }

    /// Returns whether the next block is applied in part.
    pub fn is_begun(&self) -> bool {
        self.transaction > 0 || self.offset > 0
    }

    /// Returns the height of a block, which follows from its number; `None` if heights have no such number.
    pub fn height_of(&self, number: u64) -> Option<u32> {
        let height = i128::from(self.height) + i128::from(number) - i128::from(self.next);
        u32::try_from(height).ok().filter(|height| *height > 0)
    }
}

/// Stage of a block that is taken back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Stage {
    /// The transactions before [`Back::transaction`] still have the block.
    #[default]
    Unset,
    /// The coinbase has lost the block, and is not marked yet with all that spend from it.
    Mark,
    /// The block lies at or below the pruned height: outputs are freed that deleted transactions from [`Back::transaction`] on hold.
    Free,
}

/// A block that a rollback takes back from the records.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Back {
    /// The block's number.
    pub number: u64,
    /// Bound of the stage: the transactions before the bound are left in [`Stage::Unset`], those from the bound on in [`Stage::Free`].
    pub transaction: u32,
    /// The first byte of that transaction in the body; 0: not known. Only for [`Stage::Free`].
    pub offset: u64,
    /// Inputs of that transaction whose outputs are freed. Only for [`Stage::Free`].
    pub input: u32,
    /// The stage.
    pub stage: Stage,
}

/// Transactions that `health` names.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counted {
    /// Number of transactions.
    pub transactions: u64,
    /// The block of the last one.
    pub block: u64,
}

impl Counted {
    /// Adds transactions of a block.
    pub fn add(&mut self, transactions: u64, block: u64) {
        if transactions > 0 {
            *self = Self { transactions: self.transactions.saturating_add(transactions), block };
        }
    }
}

/// The persisted state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stored {
    /// The next transaction to apply; `None` if no block is applied.
    pub position: Option<Position>,
    /// The block that a rollback takes back.
    pub back: Option<Back>,
    /// Blocks from this height on were replaced by a rollback or a reset, so what is applied there is new; `None`: no block was replaced.
    pub new_from: Option<u32>,
    /// Transactions of applied blocks that got no record, because an earlier one may have been pruned.
    pub pruned: Counted,
    /// Transactions of blocks that were taken back whose records had been pruned.
    pub lost: Counted,
    /// The last block that was taken back or removed and whose height is known: its number and height. Without a position, the heights of
    /// the blocks below follow from it.
    pub gone: Option<(u64, u32)>,
    /// Treatment of inputs whose parents have no record: an operator's choice, which outlasts the end of applying, because the records do.
    pub missing: MissingParents,
}

impl Stored {
    fn encode(&self) -> [u8; BYTES] {
        let Self { position, back, pruned, lost, .. } = self;
        // Absent values are encoded as zeros.
        let Position { base, next, height, transaction, offset, phase } = position.unwrap_or_default();
        let (number, back) = (back.map_or(0, |back| back.number + 1), back.unwrap_or_default());
        let (phase, input) = match phase {
            Phase::Whole => (0, 0),
            Phase::Check(input) => (1, input),
            Phase::Spend(input) => (2, input),
        };
        let new_from = self.new_from.map_or(0, |height| u64::from(height) + 1);
        let (gone, gone_height) = self.gone.map_or((0, 0), |(number, height)| (number, height + 1));
        let counts = [pruned.transactions, pruned.block, lost.transactions, lost.block];
        let mut b = [0; BYTES];
        b[..8].copy_from_slice(&LAYOUT.encode());
        (b[6], b[7]) = (phase, back.stage as u8);
        b[8..32].copy_from_slice([base, next, offset].map(u64::to_le_bytes).as_flattened());
        let words = [height, transaction, input, back.transaction];
        b[32..48].copy_from_slice(words.map(u32::to_le_bytes).as_flattened());
        b[48..72].copy_from_slice([number, back.offset, new_from].map(u64::to_le_bytes).as_flattened());
        b[72..104].copy_from_slice(counts.map(u64::to_le_bytes).as_flattened());
        b[104..108].copy_from_slice(&back.input.to_le_bytes());
        b[108] = u8::from(self.missing == MissingParents::Skip);
        b[112..116].copy_from_slice(&gone_height.to_le_bytes());
        b[116..124].copy_from_slice(&gone.to_le_bytes());
        checksum::put(&mut b);
        b
    }

    /// Decodes the cell; zeros are those of a cell that was never written.
    fn decode(b: &[u8; BYTES]) -> Result<Self, String> {
        if *b == [0; BYTES] {
            return Ok(Self::default());
        }
        if !checksum::is_right(b) {
            return Err(OpenError::Damaged { name: LAYOUT.name }.into());
        }
        LAYOUT.check(&array_at(b, 0))?;
        let bad = |what: &str| format!("{}: {what}", LAYOUT.name);
        let [base, next, offset] = [8, 16, 24].map(|at| u64_at(b, at));
        let [height, transaction, input] = [32, 36, 40].map(|at| u32_at(b, at));
        let phase = match b[6] {
            0 => Phase::Whole,
            1 => Phase::Check(input),
            2 => Phase::Spend(input),
            other => return Err(bad(&format!("phase {other}"))),
        };
        let stage = [Stage::Unset, Stage::Mark, Stage::Free].get(usize::from(b[7]));
        let stage = *stage.ok_or_else(|| bad(&format!("stage {}", b[7])))?;
        let position = Position { base, next, height, transaction, offset, phase };
        let number = u64_at(b, 48).checked_sub(1);
        let (transaction, offset, input) = (u32_at(b, 44), u64_at(b, 56), u32_at(b, 104));
        let back = number.map(|number| Back { number, transaction, offset, input, stage });
        let counted = |at: usize| Counted { transactions: u64_at(b, at), block: u64_at(b, at + 8) };
        Ok(Self {
            position: Some(position).filter(|position| position.height > 0),
            back,
            new_from: u64_at(b, 64).checked_sub(1).map(|height| height as u32),
            pruned: counted(72),
            lost: counted(88),
            gone: u32_at(b, 112).checked_sub(1).map(|height| (u64_at(b, 116), height)),
            missing: match b[108] {
                0 => MissingParents::Refuse,
                1 => MissingParents::Skip,
                other => return Err(bad(&format!("missing parents {other}"))),
            },
        })
    }
}

/// A rollback that waits for memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Waits {
    /// Unix nanoseconds at which memory was first refused since the canister started.
    pub since_ns: u64,
    /// Unix nanoseconds before which ticks do not try again.
    pub until_ns: u64,
    /// The block that is being taken back.
    pub number: u64,
    /// The refusal.
    pub why: UtxoError,
}

/// The state of applying, and the reason why the next transaction cannot be applied; each has a cell.
pub struct Applier {
    cells: Rc<Space>,
    pub(super) stored: Stored,
    /// The reason why the next transaction cannot be applied, if a message has tried.
    pub stop: Option<Stop>,
    /// The reason why a rollback waits.
    pub waits: Option<Waits>,
}

impl Applier {
    /// Reads the cells; cells that were never written have no position.
    ///
    /// # Errors
    /// A sentence: this code did not write a cell.
    pub fn open(cells: Rc<Space>) -> Result<Self, String> {
        let stored = Stored::decode(&cells.read(places::APPLYING))?;
        let stop = Stop::load(&cells)?;
        Ok(Self { cells, stored, stop, waits: None })
    }

    /// Returns the position; `None` if no block is applied.
    pub fn position(&self) -> Option<&Position> {
        self.stored.position.as_ref()
    }

    /// Returns the treatment of inputs whose parents have no record.
    pub fn missing(&self) -> MissingParents {
        self.stored.missing
    }

    /// Keeps the reason why the next transaction cannot be applied. A repeated reason keeps its time.
    pub fn note_stop(&mut self, text: String, now_ns: u64) {
        if self.position().is_some() && self.stop.as_ref().is_none_or(|known| known.text != text) {
            self.set_stop(Some(Stop { since_ns: now_ns, text }));
        }
    }

    fn set_stop(&mut self, stop: Option<Stop>) {
        if stop != self.stop {
            Stop::save(stop.as_ref(), &self.cells);
            self.stop = stop;
        }
    }

    /// Saves the state. A stop ends with its position.
    pub(super) fn set(&mut self, stored: Stored) {
        if stored.position != self.stored.position {
            self.set_stop(None);
        }
        if stored != self.stored {
            self.stored = stored;
            self.save();
        }
    }

    fn save(&self) {
        self.cells.write(places::APPLYING, &self.stored.encode());
    }

    /// Writes both cells anew.
    pub fn rewrite(&self) {
        self.save();
        Stop::save(self.stop.as_ref(), &self.cells);
    }

    /// Ends applying. The note of a block that is partly applied gets the place of the next transaction, so that a new beginning continues
    /// there.
    pub fn end(&mut self, blocks: &mut dyn Blocks) {
        if let Some(position) = self.stored.position
            && let Some(mut note) = AppliedNote::of(blocks, position.next).filter(|_| position.is_begun())
        {
            (note.transactions, note.offset) = (position.transaction, position.offset as u32);
            note.put(blocks, position.next);
        }
        self.set(Stored { position: None, ..self.stored });
    }

    /// Ends applying because the chain was emptied. All blocks of the next chain are new.
    pub fn reset(&mut self) {
        self.waits = None;
        self.set(Stored { position: None, back: None, new_from: Some(0), gone: None, ..self.stored });
    }

    /// Returns whether a block at a height, without a note, may have been applied before: none has replaced it, and records of it may have been
    /// pruned.
    pub fn is_replay(&self, height: u32, pruned: u32) -> bool {
        height <= pruned && self.stored.new_from.is_none_or(|from| height < from)
    }

    /// Moves the position down to a block that is taken back or removed, with the height that its note has or that follows from its number,
    /// and lowers the new-from height. Applying ends if the block's number has no height.
    pub fn lower(&mut self, number: u64, noted: Option<u32>) {
        let Stored { position, new_from, gone, .. } = self.stored;
        let height = match (noted, position) {
            (Some(noted), _) => Some(noted),
            (None, Some(position)) => position.height_of(number),
            (None, None) => {
                gone.and_then(|(of, height)| Some(u64::from(height).saturating_sub(of.checked_sub(number)?) as u32))
            }
        };
        let position = position.and_then(|position| {
            let is_above = number < position.next || number == position.next && position.is_begun();
            if is_above { Some(Position::before(position.base.min(number), number, height?)) } else { Some(position) }
        });
        let new_from = [new_from, height].into_iter().flatten().min();
        let gone = height.map(|height| (number, height)).or(gone);
        self.set(Stored { position, new_from, gone, ..self.stored });
    }

    /// Returns the next block to apply, which pruning must not pass.
    pub fn next(&self) -> Option<u64> {
        self.position().map(|position| position.next)
    }

    /// Returns the position as callers get it.
    pub fn status(&self) -> Option<UtxoApplyPosition> {
        let Position { base, next, height, transaction, .. } = *self.position()?;
        Some(UtxoApplyPosition { base, next, height, transactions: transaction, missing_parents: self.missing() })
    }

    /// Returns the transactions that were counted as pruned, and those that could not be restored.
    pub fn counted(&self) -> (Counted, Counted) {
        (self.stored.pruned, self.stored.lost)
    }

    /// Forgets the counts, because an operator has seen them.
    pub fn acknowledge(&mut self) {
        self.set(Stored { pruned: Counted::default(), lost: Counted::default(), ..self.stored });
    }

    /// Keeps the reason why a rollback waits, and returns whether the reason is new; `None`: the rollback continues.
    pub fn set_waits(&mut self, waits: Option<(u64, UtxoError)>) -> bool {
        let known = self.waits.take();
        let Some((number, why)) = waits else { return false };
        let now = Ic::now_ns();
        let since_ns = known.as_ref().map_or(now, |waits| waits.since_ns);
        self.waits = Some(Waits { since_ns, until_ns: now + RETRY_SECS * NS, number, why });
        known.is_none()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ic_coppice_storage::{testing, twin};

    fn position(phase: Phase) -> Position {
        Position { base: 0x0108, next: 0x0210, height: 0x20, transaction: 0x28, offset: 0x0318, phase }
    }

    fn cells() -> Rc<Space> {
        twin::reset();
        testing::forget();
        testing::cells()
    }

    #[test]
    fn state_has_the_documented_layout_and_is_read_back() {
        let cells = cells();
        let mut applier = Applier::open(Rc::clone(&cells)).unwrap();
        assert_eq!(applier.stored, Stored::default());
        let phases = [(Phase::Whole, 0, 0), (Phase::Check(9), 1, 9), (Phase::Spend(10), 2, 10)];
        let stages = [(Stage::Unset, 0), (Stage::Mark, 1), (Stage::Free, 2)];
        for ((phase, of_phase, input), (stage, of_stage)) in phases.into_iter().zip(stages) {
            let stored = Stored {
                position: Some(position(phase)),
                back: Some(Back { number: 0x0430, transaction: 0x2C, offset: 0x0538, input: 0x68, stage }),
                new_from: Some(0x40),
                pruned: Counted { transactions: 0x48, block: 0x50 },
                lost: Counted { transactions: 0x58, block: 0x60 },
                gone: Some((0x0670, 0x71)),
                missing: MissingParents::Skip,
            };
            applier.set(stored);
            let bytes: [u8; BYTES] = cells.read(places::APPLYING);
            assert_eq!(bytes[..8], [b'C', b'P', b'A', b'P', 5, 0, of_phase, of_stage]);
            assert_eq!([8, 16, 24].map(|at| u64_at(&bytes, at)), [0x0108, 0x0210, 0x0318]);
            assert_eq!([32, 36, 40, 44, 104].map(|at| u32_at(&bytes, at)), [0x20, 0x28, input, 0x2C, 0x68]);
            assert_eq!([48, 56, 64].map(|at| u64_at(&bytes, at)), [0x0431, 0x0538, 0x41]);
            assert_eq!([72, 80, 88, 96].map(|at| u64_at(&bytes, at)), [0x48, 0x50, 0x58, 0x60]);
            assert_eq!((bytes[108], u32_at(&bytes, 112), u64_at(&bytes, 116)), (1, 0x72, 0x0670));
            assert_eq!(Applier::open(Rc::clone(&cells)).unwrap().stored, stored);
        }
        applier.set(Stored { new_from: Some(0), ..Stored::default() });
        assert_eq!(Applier::open(Rc::clone(&cells)).unwrap().stored.new_from, Some(0), "0 is a height");
        let whole = Stored::default().encode();
        for bit in 0..8 * BYTES {
            let mut damaged = whole;
            damaged[bit / 8] ^= 1 << (bit % 8);
            cells.write(places::APPLYING, &damaged);
            assert!(Applier::open(Rc::clone(&cells)).is_err_and(|why| why.contains("damaged")), "bit {bit}");
        }
        for (at, value) in [(4, 6), (6, 3), (7, 3), (108, 2)] {
            let mut other = whole;
            other[at] = value;
            checksum::put(&mut other);
            cells.write(places::APPLYING, &other);
            assert!(Applier::open(Rc::clone(&cells)).is_err_and(|why| !why.contains("damaged")), "byte {at}");
        }
    }

    #[test]
    fn position_goes_down_with_the_head_and_the_height_with_the_number() {
        let mut applier = Applier::open(cells()).unwrap();
        applier.lower(7, Some(107));
        assert_eq!((applier.position(), applier.stored.new_from), (None, Some(107)), "only the note has a height");
        let set = |applier: &mut Applier, position| {
            applier.set(Stored { position: Some(position), new_from: None, ..Stored::default() });
        };
        let at = |applier: &Applier| (applier.position().copied(), applier.stored.new_from);
        let before = Position::before(5, 10, 20);
        // A block that is not applied yet, the next one, an applied one, one below the base.
        for (number, expected, new_from) in [
            (12, before, 22),
            (10, before, 20),
            (9, Position::before(5, 9, 19), 19),
            (3, Position::before(3, 3, 13), 13),
        ] {
            set(&mut applier, before);
            applier.lower(number, None);
            assert_eq!(at(&applier), (Some(expected), Some(new_from)), "{number}");
        }
        // A block whose note has another height than its number implies.
        set(&mut applier, before);
        applier.lower(9, Some(300));
        assert_eq!(at(&applier), (Some(Position::before(5, 9, 300)), Some(300)));
        // A block that is partly applied.
        set(&mut applier, Position { transaction: 1, offset: 90, ..before });
        applier.lower(10, None);
        assert_eq!(at(&applier), (Some(before), Some(20)));
        // Without a position the heights below follow from the last note.
        applier.set(Stored::default());
        for (number, noted, new_from) in
            [(12, None, None), (11, Some(40), Some(40)), (11, None, Some(40)), (8, None, Some(37)), (0, None, Some(29))]
        {
            applier.lower(number, noted);
            assert_eq!(at(&applier), (None, new_from), "{number}");
        }
        applier.lower(20, None);
        assert_eq!(at(&applier), (None, Some(29)), "a block above has no height");
        // A number without a height.
        set(&mut applier, Position::before(50, 60, 5));
        applier.lower(55, None);
        assert_eq!(at(&applier), (None, None));
    }

    #[test]
    fn block_is_a_replay_at_or_below_the_pruned_height_unless_it_was_replaced() {
        let mut applier = Applier::open(cells()).unwrap();
        assert_eq!([9, 10, 11].map(|height| applier.is_replay(height, 10)), [true, true, false]);
        applier.lower(0, Some(10));
        assert_eq!([9, 10, 11].map(|height| applier.is_replay(height, 10)), [true, false, false]);
        applier.reset();
        assert_eq!([1, 9, 10].map(|height| applier.is_replay(height, 10)), [false; 3]);
    }
}
