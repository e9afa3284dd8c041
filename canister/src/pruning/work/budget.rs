//! Budget of one message: ops, instructions, pages, and pieces.
//!
//! An *op* is the unit in which callers count their work. For blocks it is a block, one of the two transitions of a blob that becomes
//! free, or a dropped index entry; in a rollback, a removed reference. For UTXO records it is a record, a page, a parent or a spender.
//! Instructions are measured so far and estimated for the next piece, because a piece that has begun must end.

use crate::platform;
use crate::platform::limits::MOST_PAGES;
use coppice_interface::StopReason;

/// Estimated instructions of an op, rounded up generously: some 5,000, and 15,000 more if the platform charges for each page touched, of a
/// record and of its table. A limit met too early only costs another tick.
const INSTRUCTIONS_PER_OP: u64 = 25_000;
/// Estimated instructions of a block besides its ops.
const INSTRUCTIONS_PER_BLOCK: u64 = 60_000;
/// Estimated instructions of a slice of a sweep, which reads and writes 16 pages and a few pages of overflow.
const INSTRUCTIONS_PER_SLICE: u64 = 1_000_000;
/// Ops that a first part of divisible work gets even if the budget is smaller.
const LEAST_PART: u64 = 1_000;
/// Maximum slices of a sweep in one message, so that the message reads and changes less than 32 MiB in every case.
const MAX_SLICES: u64 = 400;

/// Maximum pages that a tick reads of records, of their table and of lists of double spends. The platform lets a message read 524,288; the
/// rest is a margin because some reads touch one page more.
const MOST_READ: u64 = 310_000;

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
    /// Slices of sweeps that were admitted.
    slices: u64,
    /// Blocks, slices and steps of records that are left; `u64::MAX` unless the marker limits them.
    pub pieces: u64,
    /// Records left to delete.
    records: u64,
    /// Estimated instructions of a dry run (`plan_prune`).
    planned: Option<u64>,
}

impl Budget {
    /// Returns a budget that counts from now on.
    pub fn new(max_ops: u64, max_instructions: u64) -> Self {
        let instructions_end = platform::instructions().saturating_add(max_instructions);
        let (pieces, records) = (u64::MAX, u64::MAX);
        Self { ops_left: max_ops, instructions_end, admitted: false, slices: 0, pieces, records, planned: None }
    }

    /// Returns a budget for a dry run.
    pub fn for_a_plan(max_ops: u64, max_instructions: u64) -> Self {
        Self { planned: Some(0), instructions_end: max_instructions, ..Self::new(max_ops, 0) }
    }

    /// Limits the budget to `pieces` pieces.
    pub fn of_pieces(self, pieces: u64) -> Self {
        Self { pieces, ..self }
    }

    /// Limits the budget to `records` records to delete.
    pub fn of_records(self, records: u64) -> Self {
        Self { records, ..self }
    }

    /// Takes `ops` from the budget, for work that is started now and finished in this message.
    ///
    /// # Errors
    /// The limit that the work would exceed; nothing was taken.
    pub fn admit(&mut self, ops: u64) -> Result<(), StopReason> {
        self.pieces = self.pieces.checked_sub(1).ok_or(StopReason::Ops)?;
        let estimate = INSTRUCTIONS_PER_BLOCK + ops.saturating_mul(INSTRUCTIONS_PER_OP);
        if self.admitted {
            if ops > self.ops_left {
                return Err(StopReason::Ops);
            }
            let so_far = self.planned.unwrap_or_else(platform::instructions);
            if so_far.saturating_add(estimate) > self.instructions_end {
                return Err(StopReason::Instructions);
            }
        }
        self.admitted = true;
        self.planned = self.planned.map(|planned| planned.saturating_add(estimate));
        self.ops_left = self.ops_left.saturating_sub(ops);
        Ok(())
    }

    /// Takes a step of a record from the budget. `changed` and `read` are the pages that the message will have changed and read after the
    /// step; `counted` is true for a step that begins a record to delete. No single step exceeds the page limits of a message.
    ///
    /// # Errors
    /// The limit that the step would exceed; nothing was taken.
    pub fn admit_step(&mut self, ops: u64, changed: u64, read: u64, counted: bool) -> Result<(), StopReason> {
        if counted && self.records == 0 {
            return Err(StopReason::Chunks);
        }
        if changed > MOST_PAGES || read > MOST_READ {
            return Err(StopReason::Pages);
        }
        self.admit(ops)?;
        self.records -= u64::from(counted);
        Ok(())
    }

    /// Takes at most `ops` from the budget for work that can stop anywhere. Returns the number taken, which is never 0.
    ///
    /// # Errors
    /// The limit that is used up; nothing was taken.
    pub fn admit_part(&mut self, ops: u64) -> Result<u64, StopReason> {
        let instructions = self.instructions_end.saturating_sub(platform::instructions() + INSTRUCTIONS_PER_BLOCK);
        let granted = ops.min(self.ops_left).min(instructions / INSTRUCTIONS_PER_OP);
        if granted == 0 && self.admitted {
            return Err(if self.ops_left == 0 { StopReason::Ops } else { StopReason::Instructions });
        }
        let granted = if self.admitted { granted } else { granted.max(ops.min(LEAST_PART)) };
        self.admitted = true;
        self.ops_left = self.ops_left.saturating_sub(granted);
        Ok(granted)
    }

    /// Checks that a slice of a sweep may be done. The number of dropped entries is known only after the slice, so [`charge`](Self::charge)
    /// takes them.
    ///
    /// # Errors
    /// The limit that is used up.
    pub fn admit_slice(&mut self) -> Result<(), StopReason> {
        self.pieces = self.pieces.checked_sub(1).ok_or(StopReason::Ops)?;
        if self.admitted {
            if self.ops_left == 0 || self.slices >= MAX_SLICES {
                return Err(StopReason::Ops);
            }
            if platform::instructions().saturating_add(INSTRUCTIONS_PER_SLICE) > self.instructions_end {
                return Err(StopReason::Instructions);
            }
        }
        self.admitted = true;
        self.slices += 1;
        Ok(())
    }

    /// Takes one op from the budget for each entry that a slice dropped.
    pub fn charge(&mut self, dropped: u64) {
        self.ops_left = self.ops_left.saturating_sub(dropped);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::platform::native;

    #[test]
    fn first_slice_always_fits_and_later_ones_stop_at_the_budget() {
        native::reset();
        let mut budget = Budget::new(1, 1);
        assert_eq!(budget.admit_slice(), Ok(()));
        budget.charge(300);
        assert_eq!(budget.admit_slice(), Err(StopReason::Ops));

        let mut budget = Budget::new(15_000, 1 << 40);
        assert_eq!((0..).take_while(|_| budget.admit_slice().is_ok()).count() as u64, MAX_SLICES);

        let mut budget = Budget::new(1_000, 1_000_000);
        assert_eq!(budget.admit_slice(), Ok(()));
        native::with(|world| world.instructions = 500_001);
        assert_eq!(budget.admit_slice(), Err(StopReason::Instructions));
    }

    #[test]
    fn first_piece_always_fits_and_later_ones_stop_at_the_budget() {
        native::reset();
        let mut budget = Budget::new(1, 1);
        assert_eq!(budget.admit(500), Ok(()));
        assert_eq!(budget.admit(1), Err(StopReason::Ops));

        let mut budget = Budget::new(10, 1_000_000);
        assert_eq!(budget.admit(4), Ok(()));
        assert_eq!(budget.admit(7), Err(StopReason::Ops));
        assert_eq!(budget.admit(6), Ok(()));
        assert_eq!(budget.admit(0), Ok(()));
        native::with(|world| world.instructions = 980_000);
        assert_eq!(budget.admit(0), Err(StopReason::Instructions));
    }
}
