//! Journal: the bytes that writes replace, so that a long operation that fails in its middle can be undone.
//!
//! Granules that are taken inside a journal are given back when it is undone, and granules that become empty inside when it is committed:
//! until then their bytes may be needed again.

use super::Slots;
use super::header::Header;
use super::reserved::Reserved;
use crate::{OS_PAGE, Platform, Raw};

/// Heap bytes of an entry besides the replaced bytes, while the list doubles.
const UNDO: u64 = 96;
/// Heap bytes of a replaced line.
const UNDO_LINE: u64 = 48;

/// Everything that an undo needs.
pub struct Journal {
    /// The header before the first change.
    pub before: Header,
    /// Offsets in the arena and the bytes that were there, oldest first.
    pub replaced: Vec<(u64, Vec<u8>)>,
    /// Granules and the lines that they had, oldest first.
    pub lines: Vec<(u64, [u8; 16])>,
    /// Granules that were taken.
    pub taken: Vec<(u64, u64)>,
    /// Granules that became empty.
    pub emptied: Vec<u64>,
    /// Estimated heap bytes.
    pub bytes: u64,
}

impl Journal {
    /// A journal without changes.
    pub fn new(before: Header) -> Self {
        Self { before, replaced: Vec::new(), lines: Vec::new(), taken: Vec::new(), emptied: Vec::new(), bytes: 0 }
    }

    /// Adds the `len` bytes at `at` before they are replaced.
    #[inline(never)]
    pub fn add<P: Platform>(&mut self, payload: Raw<P>, at: u64, len: usize) {
        let mut old = Vec::new();
        payload.read_onto(&mut old, at, len);
        self.bytes += UNDO + old.len() as u64;
        self.replaced.push((at, old));
    }

    /// Adds the line of a granule before it is replaced.
    pub fn add_line(&mut self, granule: u64, line: [u8; 16]) {
        self.bytes += UNDO_LINE;
        self.lines.push((granule, line));
    }
}

impl<P: Platform> Slots<P> {
    /// Begins a journal: all writes from now on can be undone.
    pub fn begin(&mut self) {
        self.journal = Some(Journal::new(self.header.clone()));
    }

    /// Returns whether a journal has begun.
    #[inline]
    pub fn is_undoable(&self) -> bool {
        self.journal.is_some()
    }

    /// Returns the estimated heap pages of the journal.
    pub fn journal_pages(&self) -> u64 {
        self.journal.as_ref().map_or(0, |journal| journal.bytes / OS_PAGE)
    }

    /// Keeps all changes since [`begin`](Self::begin), gives back the granules that became empty, and ends the journal.
    pub fn commit(&mut self) {
        let Some(journal) = self.journal.take() else { return };
        journal.emptied.into_iter().for_each(|granule| self.give_emptied(granule));
    }

    /// Undoes all changes since [`begin`](Self::begin), gives back the granules that were taken, and ends the journal.
    pub fn undo(&mut self) {
        let Some(journal) = self.journal.take() else { return };
        journal.replaced.iter().rev().for_each(|(at, bytes)| self.arena.payload().write(*at, bytes));
        journal.lines.iter().rev().for_each(|(granule, line)| self.arena.set_line(*granule, line));
        self.header = journal.before;
        self.leaves.forget();
        // The promises counted on room that is gone now.
        self.promise_nothing();
        if !self.reserved.get().is_nothing() {
            self.reserved.set(Reserved { other: true, ..Reserved::default() });
        }
        self.header.save(&self.space);
        journal.taken.into_iter().for_each(|(granule, granules)| self.give(granule, granules));
    }
}
