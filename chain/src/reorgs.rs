//! History of rollbacks: lets a reader whose block was rolled back find the newest block that it still shares with the chain.
//!
//! A block's number and hash do not show when the block left the chain, so a reader's cursor has the count of blocks rolled back
//! so far. Everything rolled back since lies above the lowest head since, which is the newest block that reader and chain surely
//! share. Only the head after a rollback matters, and only until a deeper rollback, so the history is a stack of rising heads, at
//! most [`MAX_STEPS`]. When the stack is full, two pruned heads are merged, or the two oldest ones if there are not two pruned heads.
//! Then the answer may be too low, but never too high.
//!
//! ```text
//! heads after rollbacks, one block each:  5        9            7             12
//! stack of (count, head):               (1,5) │ (1,5)(2,9) │ (1,5)(3,7) │ (1,5)(3,7)(4,12)
//! a cursor made at count 1: the first step above 1 is (3,7), so block 7 is shared
//! ```

use crate::places;
use ic_coppice_storage::cell::Cell;
use ic_coppice_storage::header::Header;
use ic_coppice_storage::{OpenError, Space};
use serde::{Deserialize, Serialize};

const CELL: Cell =
    Cell { at: places::ROLLBACKS, capacity: 4_096, header: Header { name: "rollbacks", magic: *b"CPRB", version: 2 } };
const MAX_STEPS: usize = 200;

/// Stack of the lowest heads.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rollbacks {
    /// Blocks ever rolled back.
    count: u64,
    /// Pairs of a count of rolled-back blocks and the head at that count; both rise.
    steps: Vec<(u64, u64)>,
}

impl Rollbacks {
    /// Reads the cell; a cell that was never written has no rollbacks.
    pub fn load(cells: &Space) -> Result<Self, OpenError> {
        Ok(CELL.load(cells)?.unwrap_or_default())
    }

    /// Writes the cell.
    pub fn save(&self, cells: &Space) {
        CELL.keep(cells, self);
    }

    /// Blocks ever rolled back.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Records that a block was rolled back: `head` is the new head, `oldest` the oldest kept block.
    pub fn note(&mut self, cells: &Space, head: u64, oldest: u64) {
        self.count += 1;
        self.steps.truncate(self.steps.partition_point(|&(_, lowest)| lowest < head));
        self.steps.push((self.count, head));
        if self.steps.len() > MAX_STEPS {
            // Keep one pruned head below the others; it shows that earlier rollbacks went below them.
            let pruned = self.steps.partition_point(|&(_, head)| head + 1 < oldest);
            let first = if pruned > 1 { 0 } else { pruned };
            self.steps[first + 1].1 = self.steps[first].1;
            self.steps.remove(first);
        }
        self.save(cells);
    }

    /// Records that the chain was emptied, and returns the count: earlier rollbacks do not concern the next chain.
    pub fn reset(&mut self, cells: &Space) -> u64 {
        self.count += 1;
        self.steps.clear();
        self.save(cells);
        self.count
    }

    /// The lowest head since `count` blocks had been rolled back; `None` if no block was rolled back since.
    pub fn lowest_since(&self, count: u64) -> Option<u64> {
        let first = self.steps.partition_point(|&(sequence, _)| sequence <= count);
        self.steps.get(first).map(|&(_, head)| head)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ic_coppice_storage::{testing, twin};
    use proptest::prelude::*;
    use std::rc::Rc;

    fn cells() -> Rc<Space> {
        twin::reset();
        testing::forget();
        testing::cells()
    }

    proptest! {
        #[test]
        fn lowest_head_since_equals_the_minimum(heads in prop::collection::vec(0u64..2_000, 0..700)) {
            let cells = cells();
            let mut rollbacks = Rollbacks::default();
            for &head in &heads {
                rollbacks.note(&cells, head, 0);
            }
            prop_assert_eq!(&Rollbacks::load(&cells).unwrap(), &rollbacks);
            prop_assert_eq!(rollbacks.count(), heads.len() as u64);
            for since in 0..=heads.len() {
                prop_assert_eq!(rollbacks.lowest_since(since as u64), heads[since..].iter().min().copied());
            }
        }
    }

    #[test]
    fn full_stack_gives_a_lower_head_and_never_a_higher_one() {
        let cells = cells();
        let mut rollbacks = Rollbacks::default();
        let heads: Vec<u64> = (1_000..2_000).collect();
        heads.iter().for_each(|&head| rollbacks.note(&cells, head, 0));
        assert_eq!(rollbacks.steps.len(), MAX_STEPS);
        assert_eq!(Rollbacks::load(&cells).unwrap(), rollbacks);
        for (since, &head) in (0..).zip(&heads) {
            assert!(rollbacks.lowest_since(since).unwrap() <= head);
        }
        assert_eq!(rollbacks.lowest_since(0), Some(1_000));
        assert_eq!(rollbacks.lowest_since(990), Some(1_990), "the newest are exact");
    }

    #[test]
    fn full_stack_merges_pruned_heads_and_keeps_the_others_exact() {
        let cells = cells();
        let mut rollbacks = Rollbacks::default();
        let heads: Vec<u64> = (0..2_000).collect();
        // After each rollback a hundred blocks below the head are kept.
        heads.iter().for_each(|&head| rollbacks.note(&cells, head, head.saturating_sub(100)));
        assert_eq!(Rollbacks::load(&cells).unwrap(), rollbacks);
        assert_eq!(rollbacks.steps.len(), MAX_STEPS);
        let oldest = 1_999 - 100;
        for (since, &head) in (0..).zip(&heads) {
            let lowest = rollbacks.lowest_since(since).unwrap();
            if head + 1 < oldest {
                assert!(lowest <= head, "pruned as well");
            } else {
                assert_eq!(lowest, head, "exact");
            }
        }
        // More heads than the stack holds, with a pruned one below them.
        let mut rollbacks = Rollbacks::default();
        rollbacks.note(&cells, 5, 0);
        (1_000..1_500).for_each(|head| rollbacks.note(&cells, head, 900));
        assert_eq!((rollbacks.steps.len(), rollbacks.lowest_since(0)), (MAX_STEPS, Some(5)));
        assert_eq!(rollbacks.lowest_since(1), Some(1_000), "not the pruned one");
    }

    #[test]
    fn longest_stack_fits_into_the_cell() {
        let cells = cells();
        let steps = (0..MAX_STEPS as u64).map(|step| (u64::MAX - 9_000 + step, u64::MAX / 2 + step)).collect();
        let longest = Rollbacks { count: u64::MAX - 5_000, steps };
        longest.save(&cells);
        assert_eq!(Rollbacks::load(&cells), Ok(longest));
    }
}
