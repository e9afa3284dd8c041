//! Place of a run: its heights, its phase, and the record that it has come to.

use super::skipped::Skipped;
use crate::utxo::Cursor;
use coppice_interface::UtxoPrunerPhase;
use serde::{Deserialize, Serialize};

/// The heights of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Heights {
    /// Where the chain is.
    pub current: u32,
    /// Records are deleted whose height is this one or lower.
    pub safe: u32,
    /// Unmined transactions below this height are old; 0: none is.
    pub cutoff: u32,
}

/// Heights and place of a run, kept with the pruner.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Run {
    /// See there.
    pub heights: Heights,
    /// Where the run is.
    pub phase: UtxoPrunerPhase,
    /// Its number, from 1.
    pub number: u32,
    /// Phase 1 looks at all old unmined records, with these settings; none: only at those that became old since it did last.
    pub full: Option<PassTerms>,
    /// Heights were set to lower ones: phase 2 also looks at what is kept for longer than it would be by now.
    pub again: bool,
    /// That phase 1 is done was taken note of.
    pub noted: bool,
    /// Behind this late record, in the pass over late records, which begins anew in each message.
    #[serde(skip)]
    pub(super) late_cursor: Cursor,
    /// The late record behind that, and from which input on it goes on.
    pub(super) late: Option<(Cursor, u32)>,
    /// The record whose spenders are looked up, how many of its outputs are done, and how much had been taken back when that began.
    pub(super) checked: Option<(Cursor, u32, u64)>,
    /// Behind this record of the phase's index.
    pub(super) cursor: Cursor,
    /// Records that defensive mode keeps.
    pub(super) skipped: Option<Box<Skipped>>,
    /// The record behind that, and from which input on it goes on.
    pub(super) part: Option<(Cursor, u32)>,
    /// When the phase began, in Unix nanoseconds.
    pub(super) phase_since: u64,
}

/// A record that a run comes by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct At {
    /// In this phase.
    pub phase: UtxoPrunerPhase,
    /// The record.
    pub cursor: Cursor,
}

impl At {
    /// Returns whether both are the same record in the same phase. Its key may have changed.
    pub fn is_of(&self, other: &At) -> bool {
        let (cursor, known) = (&self.cursor, &other.cursor);
        self.phase == other.phase && cursor.slot == known.slot && cursor.txid == known.txid
    }
}

/// The settings that a pass goes by.
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
    /// Where the chain was.
    pub height: u32,
    /// The settings that the pass went by.
    pub terms: PassTerms,
}

/// Seconds that phases took which ended, and how many of each kind ended.
pub type Durations = [(u64, u64); 3];

impl Run {
    /// A run from its beginning; phase 1 looks at old unmined records from a height on.
    pub fn begin(number: u32, heights: Heights, (from, full): (u32, Option<PassTerms>), now_ns: u64) -> Self {
        Self {
            heights,
            phase: UtxoPrunerPhase::PreserveParents,
            number,
            full,
            again: false,
            noted: false,
            late_cursor: Cursor::default(),
            late: None,
            checked: None,
            cursor: Cursor { key: from, ..Cursor::default() },
            skipped: None,
            part: None,
            phase_since: now_ns,
        }
    }

    /// The run is over: what it has kept in defensive mode is said.
    pub fn report(self) {
        let lines = self.skipped.map(|skipped| skipped.lines());
        lines.into_iter().flatten().for_each(|line| crate::logs::info(&line));
    }

    /// Whether phase 1 has yet to look at what is unmined since a height.
    pub fn will_reach(&self, since: u32) -> bool {
        self.phase == UtxoPrunerPhase::PreserveParents && self.cursor.key < since
    }

    /// The place of a pass: behind this record; and the record behind that, with the input from which on it goes on.
    pub(super) fn place(&mut self, late: bool) -> (&mut Cursor, &mut Option<(Cursor, u32)>) {
        if late { (&mut self.late_cursor, &mut self.late) } else { (&mut self.cursor, &mut self.part) }
    }

    /// A pass goes on behind a record, which stays.
    pub(super) fn leave_behind(&mut self, late: bool, at: Cursor) {
        let (cursor, part) = self.place(late);
        (*cursor, *part) = (at, None);
    }

    /// Begins a phase.
    pub fn enter(&mut self, phase: UtxoPrunerPhase, now_ns: u64) {
        (self.phase, self.cursor, self.part, self.phase_since) = (phase, Cursor::default(), None, now_ns);
    }
}
