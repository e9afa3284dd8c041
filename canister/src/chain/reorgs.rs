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
//!
//! cell: 0 magic "CPRB"  4 version u16  6 steps u16  8 rolled back u64  16 steps: sequence u64 ‖ head u64
//! ```

use crate::storage::memory::Space;
use crate::storage::places;
use coppice_storage::bytes::{array_at, u16_at, u64_at};
use coppice_storage::header::Header;

const LAYOUT: Header = Header { name: "rollbacks", magic: *b"CPRB", version: 1 };
const HEADER: u64 = 16;
const MAX_STEPS: usize = 254;
const STEP: u64 = 16;

/// Stack of the lowest heads.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rollbacks {
    /// Blocks ever rolled back.
    count: u64,
    /// Pairs of a count of rolled-back blocks and the head at that count; both rise.
    steps: Vec<(u64, u64)>,
}

impl Rollbacks {
    /// Reads the cell; a cell that was never written has no rollbacks.
    ///
    /// # Errors
    /// A sentence that names the damage.
    pub fn load(cells: &Space) -> Result<Self, String> {
        let header: [u8; HEADER as usize] = cells.read(places::ROLLBACKS);
        if header == [0; HEADER as usize] {
            return Ok(Self::default());
        }
        LAYOUT.check(&array_at(&header, 0))?;
        let steps = u16_at(&header, 6);
        if usize::from(steps) > MAX_STEPS {
            return Err(format!("rollbacks: {steps} steps"));
        }
        let mut bytes = Vec::new();
        cells.read_onto(&mut bytes, places::ROLLBACKS + HEADER, STEP as usize * usize::from(steps));
        let steps = bytes.as_chunks::<{ STEP as usize }>().0.iter();
        let count = cells.read_u64(places::ROLLBACKS + 8);
        Ok(Self { count, steps: steps.map(|step| (u64_at(step, 0), u64_at(step, 8))).collect() })
    }

    /// Blocks ever rolled back.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Records that a block was rolled back: `head` is the new head, `oldest` the oldest kept block.
    pub fn note(&mut self, cells: &Space, head: u64, oldest: u64) {
        self.count += 1;
        while self.steps.last().is_some_and(|&(_, lowest)| lowest >= head) {
            self.steps.pop();
        }
        self.steps.push((self.count, head));
        let mut changed = self.steps.len() - 1;
        if self.steps.len() > MAX_STEPS {
            // Keep one pruned head below the others; it shows that earlier rollbacks went below them.
            let pruned = self.steps.partition_point(|&(_, head)| head + 1 < oldest);
            let first = if pruned > 1 { 0 } else { pruned };
            self.steps[first + 1].1 = self.steps[first].1;
            self.steps.remove(first);
            changed = 0;
        }
        let words = self.steps[changed..].iter().flat_map(|&(sequence, head)| [sequence, head]);
        let bytes: Vec<u8> = words.flat_map(u64::to_le_bytes).collect();
        cells.write(places::ROLLBACKS + HEADER + changed as u64 * STEP, &bytes);
        self.save_header(cells);
    }

    fn save_header(&self, cells: &Space) {
        LAYOUT.write(cells, places::ROLLBACKS);
        cells.write(places::ROLLBACKS + 6, &(self.steps.len() as u16).to_le_bytes());
        cells.write_u64(places::ROLLBACKS + 8, self.count);
    }

    /// Records that the chain was emptied, and returns the count: earlier rollbacks do not concern the next chain.
    pub fn reset(&mut self, cells: &Space) -> u64 {
        self.count += 1;
        self.steps.clear();
        self.save_header(cells);
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
    use crate::platform::native;
    use crate::storage::memory;
    use proptest::prelude::*;

    fn cells() -> Space {
        native::reset();
        memory::forget();
        crate::testing::space(memory::CELLS)
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
    fn a_cell_of_another_version_is_refused() {
        let cells = cells();
        Rollbacks::default().note(&cells, 7, 0);
        cells.write(places::ROLLBACKS + 4, &[9]);
        assert!(Rollbacks::load(&cells).unwrap_err().contains("version 9"));
    }
}
