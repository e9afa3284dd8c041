//! Budget of one message: ops, instructions, pages, and pieces.

use crate::platform;
use crate::platform::limits::MOST_PAGES;
use coppice_interface::StopReason;

/// Instructions that an op is expected to take, generously: some 5,000, and 15,000 more where the platform charges for each
/// page touched, of a record and of its table. A limit met too early only costs another tick.
const INSTRUCTIONS_PER_OP: u64 = 25_000;
/// Instructions that a block is expected to take beside its ops.
const INSTRUCTIONS_PER_BLOCK: u64 = 60_000;
/// Instructions that a slice of a sweep is expected to take: 16 pages and a few more of overflow, read and written.
const INSTRUCTIONS_PER_SLICE: u64 = 1_000_000;
/// Ops of work that may stop anywhere that the first piece gets, however small the budget is.
const LEAST_PART: u64 = 1_000;
/// Slices of a sweep in one message, so that it reads and changes less than 32 MiB whatever it finds there.
const MAX_SLICES: u64 = 400;

/// Pages that a tick reads of records, of their table and of lists of double spends: the platform lets a message read 524,288, and some of
/// what is read lies on one page more.
const MOST_READ: u64 = 310_000;

/// What is left of a budget.
///
/// It is asked *before* a piece of work that is never left half done: work that does not fit is not started. The first
/// piece always fits, so that a block which alone is over the budget is pruned alone in its tick and not skipped for ever.
#[derive(Debug)]
pub struct Budget {
    ops_left: u64,
    instructions_end: u64,
    admitted: bool,
    slices: u64,
    /// Blocks, slices and steps of records that are left, while fewer than possible are done.
    pub pieces: u64,
    /// Records to delete that are left.
    records: u64,
    /// Estimated instructions of a dry run (`plan_prune`).
    planned: Option<u64>,
}

impl Budget {
    /// A budget from now on.
    pub fn new(max_ops: u64, max_instructions: u64) -> Self {
        let instructions_end = platform::instructions().saturating_add(max_instructions);
        let (pieces, records) = (u64::MAX, u64::MAX);
        Self { ops_left: max_ops, instructions_end, admitted: false, slices: 0, pieces, records, planned: None }
    }

    /// A budget for work that is planned only.
    pub fn for_a_plan(max_ops: u64, max_instructions: u64) -> Self {
        Self { planned: Some(0), instructions_end: max_instructions, ..Self::new(max_ops, 0) }
    }

    /// The same for at most so many pieces.
    pub fn of_pieces(self, pieces: u64) -> Self {
        Self { pieces, ..self }
    }

    /// The same for at most so many records to delete.
    pub fn of_records(self, records: u64) -> Self {
        Self { records, ..self }
    }

    /// Takes `ops` from the budget, for work that is started now and finished in this message.
    ///
    /// # Errors
    /// Which budget the work does not fit into; nothing was taken.
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

    /// Takes a step of a record from the budget, with which a message has changed and read so many pages. `counted`: it begins a record to
    /// delete. No step changes or reads as much as a message may by itself.
    ///
    /// # Errors
    /// Which budget the step does not fit into; nothing was taken.
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

    /// Takes at most `ops` from the budget, for work that may stop anywhere, and says how many that were: never 0.
    ///
    /// # Errors
    /// Which budget is used up; nothing was taken.
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

    /// Whether a slice of a sweep may be done. How many entries it drops is known only then: [`charge`](Self::charge) takes them.
    ///
    /// # Errors
    /// Which budget is used up.
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

    /// Takes from the budget what a slice has dropped, an op each.
    pub fn charge(&mut self, dropped: u64) {
        self.ops_left = self.ops_left.saturating_sub(dropped);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::platform::native;

    #[test]
    fn slices_stop_where_the_ops_are_used_up_and_one_always_fits() {
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
    fn the_first_piece_always_fits_and_the_rest_must() {
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
