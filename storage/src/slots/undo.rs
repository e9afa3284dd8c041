//! Changes that are kept or undone together: see [`Journal`].

use super::Slots;
use super::journal::Journal;
use super::reserved::Reserved;
use crate::{OS_PAGE, Platform};

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
