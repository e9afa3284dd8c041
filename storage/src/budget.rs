//! Budget of one message: ops, instructions, pages, and pieces.
//!
//! An *op* is the unit in which callers count their work. For blocks it is a block, one of the two transitions of a blob that becomes
//! free, or a dropped index entry; in a rollback, a removed reference. For UTXO records it is a record, a page, a parent or a spender.
//! Instructions are measured so far and estimated for the next piece, because a piece that has begun must end. A slice of a sweep, and a part
//! of a rollback, end by a [`Meter`] instead, because the chains that they walk may have any length.
//!
//! Pages are those of stable memory that the message changes, which are counted from the budget's beginning, and reads, at most
//! [`MOST_PAGES`] and `MOST_READ`. Each op of a block changes at most one page. A slice of a sweep stops where its room ends.

use crate::{Counting, Ic, MOST_PAGES, Meter, Platform, changed_pages};

/// Estimated instructions of an op, rounded up generously: some 5,000, and 15,000 more if the platform charges for each page touched, of a
/// record and of its table. A limit met too early only costs another tick.
const INSTRUCTIONS_PER_OP: u64 = 25_000;
/// Estimated instructions of a block besides its ops.
const INSTRUCTIONS_PER_BLOCK: u64 = 60_000;
/// Estimated instructions of a slice of a sweep, which reads and writes 16 pages and a few pages of overflow.
const INSTRUCTIONS_PER_SLICE: u64 = 1_000_000;
/// Ops and pages that a first part of divisible work gets even if the budget is smaller, and without which no later part begins.
const LEAST_PART: u64 = 1_000;
/// Instructions that a first part gets even if the budget is smaller, because reading the index segment of the largest block takes tens of
/// millions.
const LEAST_INSTRUCTIONS: u64 = 100_000_000;

/// Maximum pages that a tick reads of records, of their table and of lists of double spends, or of the indexes. The platform lets a message
/// read 524,288; the rest is a margin because some reads touch one page more.
const MOST_READ: u64 = 310_000;

/// Limit of a message that its work has met.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Limit {
    /// The ops are used up.
    Ops,
    /// The instructions are used up.
    Instructions,
    /// The message would change or read more pages of memory than it should.
    Pages,
    /// The records to delete in the message are used up.
    Records,
}

/// The rest of a message's budget.
///
/// Callers ask *before* each piece of work, because a piece is never left half done: a piece that does not fit is not started. The first
/// piece always fits, so that a block that exceeds the budget is pruned alone in its tick instead of blocking pruning for ever.
#[derive(Debug)]
pub struct Budget {
    ops_left: u64,
    /// Value of the instruction counter at which no other piece begins.
    instructions_end: u64,
    /// True once a piece was admitted.
    admitted: bool,
    /// Pages that the message has read while sweeping.
    read: u64,
    /// Blocks, slices and steps of records that are left; `u64::MAX` unless the marker limits them.
    pub pieces: u64,
    /// Records left to delete; `u64::MAX` unless the pruner of records limits them.
    pub records: u64,
    /// Estimated instructions and changed pages of a dry run (`plan_prune`).
    planned: Option<(u64, u64)>,
    /// Counts the pages that the message changes.
    _counting: Counting,
}

impl Budget {
    /// Returns a budget that counts from now on.
    pub fn new(max_ops: u64, max_instructions: u64) -> Self {
        let instructions_end = Ic::instructions().saturating_add(max_instructions);
        Self {
            ops_left: max_ops,
            instructions_end,
            admitted: false,
            read: 0,
            pieces: u64::MAX,
            records: u64::MAX,
            planned: None,
            _counting: Counting::begin(),
        }
    }

    /// Returns a budget for a dry run.
    pub fn for_a_plan(max_ops: u64, max_instructions: u64) -> Self {
        Self { planned: Some((0, 0)), instructions_end: max_instructions, ..Self::new(max_ops, 0) }
    }

    /// Takes `ops` from the budget, for a block that is removed now and wholly in this message, and changes at most as many pages.
    ///
    /// # Errors
    /// The limit that the work would exceed; nothing was taken.
    pub fn admit(&mut self, ops: u64) -> Result<(), Limit> {
        if self.admitted && ops <= self.ops_left && ops > self.room() {
            return Err(Limit::Pages);
        }
        self.take(ops)
    }

    fn take(&mut self, ops: u64) -> Result<(), Limit> {
        self.pieces = self.pieces.checked_sub(1).ok_or(Limit::Ops)?;
        let estimate = INSTRUCTIONS_PER_BLOCK + ops.saturating_mul(INSTRUCTIONS_PER_OP);
        if self.admitted {
            if ops > self.ops_left {
                return Err(Limit::Ops);
            }
            let so_far = self.planned.map_or_else(Ic::instructions, |(instructions, _)| instructions);
            if so_far.saturating_add(estimate) > self.instructions_end {
                return Err(Limit::Instructions);
            }
        }
        self.admitted = true;
        let add =
            |(instructions, pages): (u64, u64)| (instructions.saturating_add(estimate), pages.saturating_add(ops));
        self.planned = self.planned.map(add);
        self.ops_left = self.ops_left.saturating_sub(ops);
        Ok(())
    }

    /// Takes a step of a record from the budget. `changed` and `read` are the pages that the message will have changed and read after the
    /// step; `counted` is true for a step that begins a record to delete. No single step exceeds the page limits of a message.
    ///
    /// # Errors
    /// The limit that the step would exceed; nothing was taken.
    pub fn admit_step(&mut self, ops: u64, changed: u64, read: u64, counted: bool) -> Result<(), Limit> {
        if counted && self.records == 0 {
            return Err(Limit::Records);
        }
        if changed > MOST_PAGES || read > MOST_READ {
            return Err(Limit::Pages);
        }
        self.take(ops)?;
        self.records -= u64::from(counted);
        Ok(())
    }

    /// Returns the number of pages that the message may still change.
    pub fn room(&self) -> u64 {
        MOST_PAGES.saturating_sub(self.planned.map_or_else(changed_pages, |(_, pages)| pages))
    }

    /// Admits a part of removing `ops` references from the indexes, which can stop after any of them. Returns the number of ops that the part
    /// may take, which is never 0, and its meter, which leaves room for the `end` pages that the last op changes besides. Only the part
    /// shows what it takes, so [`charge`](Self::charge) takes it.
    ///
    /// # Errors
    /// The limit that is used up.
    pub fn admit_part(&mut self, ops: u64, end: u64) -> Result<(u64, Meter), Limit> {
        let (now, least) = (Ic::instructions(), ops.min(LEAST_PART));
        let pages = MOST_PAGES.saturating_sub(end);
        let (room, least_pages) = (pages.saturating_sub(changed_pages()), changed_pages() + LEAST_PART);
        if !std::mem::replace(&mut self.admitted, true) {
            let instructions_end = self.instructions_end.max(now.saturating_add(LEAST_INSTRUCTIONS));
            return Ok((ops.min(self.ops_left.max(LEAST_PART)), Meter::new(instructions_end, pages.max(least_pages))));
        }
        let estimate = INSTRUCTIONS_PER_BLOCK + least * INSTRUCTIONS_PER_OP;
        if self.ops_left == 0 {
            Err(Limit::Ops)
        } else if now.saturating_add(estimate) > self.instructions_end {
            Err(Limit::Instructions)
        } else if room < least {
            Err(Limit::Pages)
        } else {
            Ok((ops.min(self.ops_left), Meter::new(self.instructions_end, pages)))
        }
    }

    /// Returns whether work that is not of this budget has left the instructions and pages for a block that changes `pages` pages and as many
    /// more as a first part gets.
    pub fn has_room(&self, pages: u64) -> bool {
        Ic::instructions() < self.instructions_end && pages.saturating_add(LEAST_PART) <= self.room()
    }

    /// Returns the meter of an admitted slice.
    pub fn meter(&self) -> Meter {
        Meter::new(self.instructions_end, MOST_PAGES)
    }

    /// Checks that a slice of a sweep may be done. The numbers of dropped entries and of pages are known only after the slice, so
    /// [`charge`](Self::charge) takes them.
    ///
    /// # Errors
    /// The limit that is used up.
    pub fn admit_slice(&mut self) -> Result<(), Limit> {
        self.pieces = self.pieces.checked_sub(1).ok_or(Limit::Ops)?;
        if !std::mem::replace(&mut self.admitted, true) {
            Ok(())
        } else if self.ops_left == 0 {
            Err(Limit::Ops)
        } else if self.room() == 0 || self.read >= MOST_READ {
            Err(Limit::Pages)
        } else if Ic::instructions().saturating_add(INSTRUCTIONS_PER_SLICE) > self.instructions_end {
            Err(Limit::Instructions)
        } else {
            Ok(())
        }
    }

    /// Returns the limit that stopped a slice.
    pub fn limit_met(&self) -> Limit {
        if Ic::instructions() >= self.instructions_end { Limit::Instructions } else { Limit::Pages }
    }

    /// Takes the ops of a slice or a part (an op for each entry that was dropped), and the pages that it read.
    pub fn charge(&mut self, ops: u64, read: u64) {
        self.ops_left = self.ops_left.saturating_sub(ops);
        self.read = self.read.saturating_add(read);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pages::pretend_changes;
    use crate::twin;

    #[test]
    fn first_slice_always_fits_and_later_ones_stop_at_the_budget() {
        twin::reset();
        let mut budget = Budget::new(1, 1);
        assert_eq!(budget.admit_slice(), Ok(()));
        budget.charge(300, 19);
        assert_eq!(budget.admit_slice(), Err(Limit::Ops));
        drop(budget);

        // Slices that change one page, those that change none, and one that changes more than a message should.
        for (changed, read, most) in [(1, 1, MOST_PAGES), (0, 20, MOST_READ / 20), (MOST_PAGES + 1, 1, 1)] {
            let mut budget = Budget::new(1, 1 << 40);
            for _ in 0..most {
                assert_eq!(budget.admit_slice(), Ok(()));
                pretend_changes(changed);
                budget.charge(0, read);
            }
            assert_eq!((budget.admit_slice(), budget.room() < MOST_PAGES), (Err(Limit::Pages), changed > 0));
        }

        let mut budget = Budget::new(1_000, 1_000_000);
        assert_eq!(budget.admit_slice(), Ok(()));
        twin::with(|world| world.instructions = 500_001);
        assert_eq!(budget.admit_slice(), Err(Limit::Instructions));
    }

    #[test]
    fn first_piece_always_fits_and_later_ones_stop_at_the_budget() {
        twin::reset();
        let mut budget = Budget::new(1, 1);
        assert_eq!(budget.admit(500), Ok(()));
        assert_eq!(budget.admit(1), Err(Limit::Ops));

        let mut budget = Budget::new(10, 1_000_000);
        assert_eq!(budget.admit(4), Ok(()));
        assert_eq!(budget.admit(7), Err(Limit::Ops));
        assert_eq!(budget.admit(6), Ok(()));
        assert_eq!(budget.admit(0), Ok(()));
        twin::with(|world| world.instructions = 980_000);
        assert_eq!(budget.admit(0), Err(Limit::Instructions));
    }

    /// A run counts the pages that its blocks have changed, and a plan those that they may change.
    #[test]
    fn ops_of_blocks_change_a_page_each_at_most() {
        twin::reset();
        for plans in [false, true] {
            let new = if plans { Budget::for_a_plan } else { Budget::new };
            let admit = |budget: &mut Budget, ops| {
                let admitted = budget.admit(ops);
                pretend_changes(if plans || admitted.is_err() { 0 } else { ops });
                admitted
            };
            let mut budget = new(1_000_000, 1 << 40);
            assert_eq!(admit(&mut budget, MOST_PAGES + 1), Ok(()), "the first piece");
            assert_eq!(admit(&mut budget, 1), Err(Limit::Pages));
            drop(budget);
            let mut budget = new(1_000_000, 1 << 40);
            let most = (admit(&mut budget, MOST_PAGES - 1), admit(&mut budget, 2));
            assert_eq!(most, (Ok(()), Err(Limit::Pages)));
            let last = (admit(&mut budget, 1), admit(&mut budget, 1), budget.room());
            assert_eq!(last, (Ok(()), Err(Limit::Pages), 0));
            assert_eq!(budget.admit_slice(), Err(Limit::Pages));
        }
    }

    #[test]
    fn parts_of_a_rollback_stop_before_their_pages_exceed_the_message() {
        twin::reset();
        let part = |budget: &mut Budget, ops, end| budget.admit_part(ops, end).map(|(ops, meter)| (ops, meter.pages()));
        let mut budget = Budget::new(1_000_000, 1 << 40);
        assert_eq!(part(&mut budget, 100_000, 50), Ok((100_000, MOST_PAGES - 50)));
        pretend_changes(MOST_PAGES - 1_000);
        assert_eq!(part(&mut budget, 100_000, 0), Ok((100_000, MOST_PAGES)));
        pretend_changes(1);
        assert_eq!(part(&mut budget, 100_000, 0), Err(Limit::Pages), "less than the least part");
        assert_eq!(part(&mut budget, 10, 990), Err(Limit::Pages), "the end has no room");
        assert_eq!(part(&mut budget, 10, 989), Ok((10, MOST_PAGES - 989)), "the end has room");
        drop(budget);
        // The first part, whatever its end changes.
        let mut budget = Budget::new(1, 1);
        pretend_changes(5);
        assert_eq!(part(&mut budget, 7, MOST_PAGES + 1), Ok((7, 1_005)));
        budget.charge(7, 0);
        assert_eq!(part(&mut budget, 1, 0), Err(Limit::Ops));
        drop(budget);
        let mut budget = Budget::new(5_000, 1 << 40);
        assert_eq!(part(&mut budget, 5_001, 0), Ok((5_000, MOST_PAGES)));
        twin::with(|world| world.instructions = (1 << 40) - 1_000_000);
        assert_eq!(part(&mut budget, 100_000, 0), Err(Limit::Instructions));
        assert_eq!(part(&mut budget, 2, 0), Ok((2, MOST_PAGES)), "a small part");
    }
}
