//! Ages of due rows: since when the oldest row of each store type has been due, however often the row was leased meanwhile.
//!
//! **Constraint.** `health` must find a row that no worker deletes, among ten million rows, whether the row waits, is leased or backs off.
//!
//! **Design.** Time is divided into half hours. Each half hour in which a message ran has a *mark*: the height below which rows were due,
//! and for each store type the number of counted rows that have been due since then. A row is *counted* from its first lease on, or from
//! its scheduling on if it was due by then, until it is removed, given up or scheduled anew; the row keeps its half hour. Leases, failures
//! and back-offs change no count. A row that was never leased waits in its lane, whose first such row has been due the longest.
//!
//! ```text
//! after the lanes:  24 × mark of 32 bytes, oldest first:  0 half hour u32, since the Unix epoch; 0: none
//!                                                         4 lowest height that was not due u32   8 rows of 6 store types u32 each
//! ```
//! The last 13 marks are exact. Older marks are merged two by two, so that all of them grow coarser with age; a merged mark keeps the earlier
//! half hour.

use super::header::STORES;
use super::lane::ROOT_AND_LANES;
use super::row::Row;
use super::{DeletionQueue, Store};
use ic_coppice_interface::{BlobDeletionState, StoreType};
use ic_coppice_storage::NS;
use ic_coppice_storage::bytes::u32_at;
use ic_coppice_storage::slots::Slots;

/// Seconds of a half hour.
const HALF_HOUR_SECS: u64 = 1_800;
/// Maximum marks.
const MOST: usize = 24;
/// Marks that are not merged: six hours and a half, which is more than `health` lets a row wait.
const EXACT: usize = 13;
const MARK: usize = 8 + 4 * STORES;
/// Bytes of the first slot: header, lanes and ages.
pub const FIRST: u32 = ROOT_AND_LANES + (MOST * MARK) as u32;

/// A half hour.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Mark {
    at: u32,
    /// The lowest height that was not due.
    due_below: u32,
    /// Counted rows that have been due since then.
    rows: [u32; STORES],
}

/// Marks of the queue, oldest first, mirrored on the heap.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Ages {
    marks: Vec<Mark>,
    changed: bool,
}

impl Ages {
    /// Reads the marks.
    ///
    /// # Errors
    /// A sentence if this code did not write the marks.
    pub fn load(slots: &Slots) -> Result<Self, String> {
        if !slots.is_inside(slots.root(), u64::from(FIRST)) {
            return Err("deletion queue: its first slot has no ages".into());
        }
        let mut bytes = Vec::new();
        slots.read_onto(&mut bytes, slots.root(), ROOT_AND_LANES, MOST * MARK);
        let mark = |b: &[u8; MARK]| Mark {
            at: u32_at(b, 0),
            due_below: u32_at(b, 4),
            rows: std::array::from_fn(|store| u32_at(b, 8 + 4 * store)),
        };
        let marks: Vec<Mark> = bytes.as_chunks().0.iter().map(mark).take_while(|mark| mark.at > 0).collect();
        if !marks.is_sorted_by(|a, b| a.at < b.at) {
            return Err("deletion queue: the ages are not in order".into());
        }
        Ok(Self { marks, changed: false })
    }

    /// Writes the marks to the first slot, if they have changed or `all` is written.
    pub fn save(&mut self, slots: &mut Slots, all: bool) {
        if !std::mem::take(&mut self.changed) && !all {
            return;
        }
        let mut bytes = [0; MOST * MARK];
        for (b, mark) in bytes.as_chunks_mut::<MARK>().0.iter_mut().zip(&self.marks) {
            b[..8].copy_from_slice([mark.at, mark.due_below].map(u32::to_le_bytes).as_flattened());
            b[8..].copy_from_slice(mark.rows.map(u32::to_le_bytes).as_flattened());
        }
        slots.write(slots.root(), ROOT_AND_LANES, &bytes);
    }

    /// Begins a mark if a half hour has begun since the last one. A clock that was set back changes nothing.
    pub fn advance(&mut self, now_ns: u64) {
        let at = u32::try_from(now_ns / NS / HALF_HOUR_SECS).unwrap_or(u32::MAX).max(1);
        let last = self.marks.last().copied().unwrap_or_default();
        if at > last.at {
            self.marks.push(Mark { at, rows: [0; STORES], ..last });
            self.changed = true;
            self.merge(at);
        }
    }

    /// Merges two neighbours if there are too many marks: those that are closest for their age.
    fn merge(&mut self, now: u32) {
        if self.marks.len() <= MOST {
            return;
        }
        let gap = |first: usize| {
            let [a, b] = [self.marks[first].at, self.marks[first + 1].at].map(u64::from);
            (b - a) * 1_000_000 / u64::from(now).saturating_sub(a).max(1)
        };
        let Some(first) = (0..self.marks.len() - EXACT - 1).min_by_key(|first| gap(*first)) else { return };
        let second = self.marks.remove(first + 1);
        let merged = &mut self.marks[first];
        merged.due_below = merged.due_below.min(second.due_below);
        merged.rows.iter_mut().zip(second.rows).for_each(|(rows, more)| *rows += more);
    }

    /// Returns the half hour since which a height has been due without a break, or `None` if the height is not due.
    fn due_since(&self, height: u32) -> Option<u32> {
        let due = self.marks.iter().rev().take_while(|mark| height < mark.due_below);
        due.last().map(|mark| mark.at)
    }

    /// Counts a row that comes into a state. An uncounted row is counted if it is leased, or if it waits and is due.
    pub fn enter(&mut self, row: &mut Row) {
        let now = || self.marks.last().map_or(0, |mark| mark.at);
        row.due_since = match row.state {
            BlobDeletionState::Held | BlobDeletionState::Dead => 0,
            _ if row.due_since != 0 => row.due_since,
            BlobDeletionState::Waiting => self.due_since(row.height).map_or(0, |_| now()),
            BlobDeletionState::Leased | BlobDeletionState::BackingOff => self.due_since(row.height).unwrap_or_else(now),
        };
        self.count(row, |rows| rows.saturating_add(1));
    }

    /// Takes a row that leaves its state from the counts.
    pub fn leave(&mut self, row: &Row) {
        self.count(row, |rows| rows.saturating_sub(1));
    }

    fn count(&mut self, row: &Row, change: impl Fn(u32) -> u32) {
        if row.due_since == 0 {
            return;
        }
        let at = self.marks.iter().rposition(|mark| mark.at <= row.due_since).unwrap_or(0);
        if let Some(mark) = self.marks.get_mut(at) {
            let rows = &mut mark.rows[row.store_type as usize];
            *rows = change(*rows);
            self.changed = true;
        }
    }
}

impl DeletionQueue {
    /// Notes the height up to which rows are due.
    pub fn note_due(&mut self, due: Option<u32>, now_ns: u64) {
        let Some(Store { ages, slots, .. }) = &mut self.store else { return };
        ages.advance(now_ns);
        let due_below = due.map_or(0, |due| due.saturating_add(1));
        if let Some(last) = ages.marks.last_mut() {
            ages.changed |= last.due_below != due_below;
            last.due_below = due_below;
        }
        ages.save(slots, false);
    }

    /// Returns the time since which the oldest due row of a store type has been due, in Unix seconds, whether the row waits, is leased or
    /// backs off: the end of its half hour, so that no row counts as older than it is. Reads at most some hundred rows of each lane.
    pub fn due_since(&self, store_type: StoreType) -> Option<u64> {
        let store = self.store.as_ref()?;
        let uncounted = store.first_waiting(store_type, |row| row.due_since == 0);
        let since = uncounted.and_then(|height| store.ages.due_since(height));
        let counted = store.ages.marks.iter().find(|mark| mark.rows[store_type as usize] > 0).map(|mark| mark.at);
        let oldest = since.into_iter().chain(counted).min();
        oldest.map(|at| (u64::from(at) + 1) * HALF_HOUR_SECS)
    }
}
