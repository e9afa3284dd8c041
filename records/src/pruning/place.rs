//! Place of a run: its heights, its phase and its current record. Persisted with each tick, and continued by the next.

use super::skipped::Skipped;
use crate::utxo::Cursor;
use ic_coppice_interface::UtxoPrunerPhase;
use serde::{Deserialize, Serialize};

/// Heights of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Heights {
    /// Height of the chain.
    pub current: u32,
    /// Records whose height is at most this one are deleted.
    pub safe: u32,
    /// Unmined transactions below this height are old; 0 if none is.
    pub cutoff: u32,
}

/// Heights and place of a run, persisted with the pruner.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Run {
    pub heights: Heights,
    /// Current phase.
    pub phase: UtxoPrunerPhase,
    /// Number of the run, from 1.
    pub number: u32,
    /// Settings of a full pass, in which phase 1 examines all old unmined records; `None` if it examines only those that became old since
    /// the last pass.
    pub full: Option<PassTerms>,
    /// Heights were set lower: phase 2 also examines records that are postponed to heights that are now too high.
    pub again: bool,
    /// True once the end of phase 1 was recorded.
    pub noted: bool,
    /// Cursor of the pass over late records; the pass starts anew in each message.
    #[serde(skip)]
    pub(super) late_cursor: Cursor,
    /// The late record after `late_cursor`, and the input at which it continues.
    pub(super) late: Option<(Cursor, u32)>,
    /// The record whose spenders are looked up, the number of its outputs that are done, and the counter of reverts when the check began.
    pub(super) checked: Option<(Cursor, u32, u64)>,
    /// Cursor in the phase's index.
    pub(super) cursor: Cursor,
    /// Records that defensive mode keeps.
    pub(super) skipped: Option<Box<Skipped>>,
    /// The record after `cursor`, and the input at which it continues.
    pub(super) part: Option<(Cursor, u32)>,
    /// Time at which the phase began, in Unix nanoseconds.
    pub(super) phase_since: u64,
}

/// A record in a phase of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct At {
    /// The phase.
    pub phase: UtxoPrunerPhase,
    /// The record.
    pub cursor: Cursor,
}

impl At {
    /// Returns whether both are the same record in the same phase. The record's key may have changed.
    pub fn is_of(&self, other: &At) -> bool {
        let (cursor, known) = (&self.cursor, &other.cursor);
        self.phase == other.phase && cursor.slot == known.slot && cursor.txid == known.txid
    }
}

/// Settings that a pass depends on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PassTerms {
    /// Blocks for which parents are preserved.
    pub promise: u32,
    /// Blocks after which an unmined record is old.
    pub unmined_retention: u32,
    /// Blocks after which a spent record is deleted.
    pub retention: u32,
}

/// A pass over all old unmined records.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FullPass {
    /// Height of the chain at that pass.
    pub height: u32,
    /// Settings at that pass.
    pub terms: PassTerms,
}

/// Per phase: the seconds that it took in total, and how often it ended.
pub type Durations = [(u64, u64); 3];

impl Run {
    /// Ends the run: logs the records that defensive mode kept.
    pub fn report(self) {
        let lines = self.skipped.map(|skipped| skipped.lines());
        lines.into_iter().flatten().for_each(|line| ic_coppice_storage::log::info(&line));
    }

    /// Returns the place of a pass: its cursor; and the record after that, with the input at which it continues.
    pub(super) fn place(&mut self, late: bool) -> (&mut Cursor, &mut Option<(Cursor, u32)>) {
        if late { (&mut self.late_cursor, &mut self.late) } else { (&mut self.cursor, &mut self.part) }
    }

    /// Moves a pass past a record that stays.
    pub(super) fn advance_past(&mut self, late: bool, at: Cursor) {
        let (cursor, part) = self.place(late);
        (*cursor, *part) = (at, None);
    }

    /// Begins a phase.
    pub fn enter(&mut self, phase: UtxoPrunerPhase, now_ns: u64) {
        (self.phase, self.cursor, self.part, self.phase_since) = (phase, Cursor::default(), None, now_ns);
    }
}
