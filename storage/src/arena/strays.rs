//! Strays: pages that other code of the canister has grown.
//!
//! **Constraint.** A library shares stable memory with all code of its canister, and nothing keeps that code from growing it. Such pages may
//! hold data.
//!
//! **Design.** Before the arena grows, it passes over strays: its end moves behind them, their granules are taken by an owner of their own,
//! and nothing is ever written to them. The rest of the last block is taken with them, though it may not be there yet. An extent whose front
//! would lie in strays is passed over as a whole.
//!
//! ```text
//! end          own pages, free   strays             taken, too   new end
//! ├──────────────────────────────┼──────────────────┼────────────┤
//! ```

use super::class::{MAX_GRANULES, Side};
use super::extent::{self, EXTENT, FRONT};
use super::granules::{Entry, SlotState};
use super::{Arena, State};
use crate::{GrowError, Growth, Platform, WASM_PAGE};

impl<P: Platform> Arena<P> {
    /// Bytes of stable memory that other code of the canister has grown: billed, and never used.
    pub fn stray_bytes(&self) -> u64 {
        let strays = self.growth().strays();
        self.with(|state| state.counters.kept(state.strays) + strays.end - strays.start) * WASM_PAGE
    }

    /// Makes the growth that was deferred.
    ///
    /// # Errors
    /// [`GrowError`] if memory is refused; the growth stays deferred.
    pub fn grow_wanted(&self) -> Result<(), GrowError> {
        self.change(|state, growth| {
            state.pass_strays(growth);
            growth.grow_wanted()
        })
    }
}

impl<P: Platform> State<P> {
    /// Moves the arena's end behind strays, if there are any.
    #[inline(never)]
    pub(super) fn pass_strays(&mut self, growth: &Growth<P>) {
        let strays = growth.strays();
        let end = self.counters.end;
        let to = extent::end_after(end, &strays);
        let mut at = end;
        while at < to {
            let next = (at / EXTENT + 1).wrapping_mul(EXTENT).min(to).min(MAX_GRANULES);
            if at.is_multiple_of(EXTENT) && extent::has_stray_front(at, end, &strays) {
                self.counters.change_kept(self.raw, self.strays, (next - at - FRONT) as i32);
            } else {
                let first = strays.start.clamp(at, next);
                extent::pieces(at, first)
                    .for_each(|(granule, class)| self.free_piece(Side::Shared, granule, class, Entry::NEW));
                for (granule, class) in extent::pieces(first, next) {
                    let (len, owner) = (class.size(), self.strays);
                    Entry { generation: 1, len, state: SlotState::Taken, class, owner }.write(self.raw, granule);
                    self.counters.change_kept(self.raw, owner, class.granules() as i32);
                }
            }
            at = next;
        }
        if to > end {
            self.counters.set_end(self.raw, to);
            self.counters.save_free(self.raw, Side::Shared);
            growth.pass(to);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arena::{Class, GRANULE};
    use crate::raw::Raw;
    use crate::testing::{self, LOG};
    use crate::twin::{self, Twin};
    use ic_stable_structures::Memory;
    use std::ops::Range;

    /// Bytes of a page that are looked at: those where the front of an extent has its data are among them.
    const LOOKED_AT: usize = 1 << 12;

    fn each_mark(pages: &Range<u64>) -> impl Iterator<Item = u64> {
        (pages.start * WASM_PAGE..pages.end * WASM_PAGE).step_by(LOOKED_AT)
    }

    /// Grows memory as other code does, and writes to all of it.
    fn stray(pages: u64) -> Range<u64> {
        let from = <Twin as Platform>::Memory::default().grow(pages) as u64;
        let pages = from..from + pages;
        each_mark(&pages).for_each(|at| Raw::<Twin>::new().write(at, b"other!!!"));
        pages
    }

    fn assert_is_as_it_was(pages: &Range<u64>) {
        each_mark(pages).for_each(|at| assert_eq!(&Raw::<Twin>::new().read(at), b"other!!!", "byte {at}"));
    }

    /// Takes blocks until the arena ends behind a granule, and writes to all of them.
    fn fill(arena: &Arena<Twin>, behind: u64) {
        while arena.end() < behind * GRANULE || arena.available(Class::LARGEST) > 0 {
            let slot = arena.take(LOG, Class::LARGEST, Class::LARGEST.size()).unwrap();
            let pages = slot.granule..slot.granule + Class::LARGEST.granules();
            each_mark(&pages).for_each(|at| Raw::<Twin>::new().write(at, &[1; 8]));
        }
        while arena.available(Class::SMALLEST) > 0 {
            let granule = arena.take_granules(LOG, 1).unwrap();
            each_mark(&(granule..granule + 1)).for_each(|at| Raw::<Twin>::new().write(at, &[1; 8]));
        }
    }

    /// Strays of several lengths, at ends in front of, at and behind the edges of blocks and extents.
    #[test]
    fn pages_that_others_grew_are_passed_over_and_never_written() {
        for end in [16, 1_000, 1_024, 4_030, 4_096, 4_160] {
            for len in [1, 65, 4_100] {
                testing::fresh();
                let arena = testing::arena();
                fill(&arena, end);
                let strays = stray(len);
                assert_eq!(arena.stray_bytes(), len * WASM_PAGE, "{len} pages from {end} on, before a growth");
                // An upgrade is not stopped.
                testing::forget();
                let arena = testing::arena();
                assert_eq!(arena.stray_bytes(), len * WASM_PAGE);
                fill(&arena, strays.end + 64);
                let passed = arena.stray_bytes() / WASM_PAGE;
                assert!((len..len + EXTENT).contains(&passed), "{passed} pages for {len} from {end} on");
                let again = stray(3);
                fill(&arena, again.end + 64);
                assert_is_as_it_was(&strays);
                assert_is_as_it_was(&again);
                assert!(arena.stray_bytes() / WASM_PAGE >= passed + 3);
                arena.rewrite();
                let stray_bytes = arena.stray_bytes();
                testing::forget();
                assert_eq!(testing::arena().stray_bytes(), stray_bytes, "the counters agree");
            }
        }
    }

    #[test]
    fn growth_of_the_arena_leaves_no_strays() {
        testing::fresh();
        let arena = testing::arena();
        fill(&arena, 4_200);
        assert_eq!(arena.stray_bytes(), 0);
        testing::forget();
        assert_eq!(testing::arena().stray_bytes(), 0);
        // A page that was grown to learn its price, before a refusal, is the arena's.
        twin::with(|world| (world.page_threshold, world.liquid_cycles) = (1_000, 84_200_000_000 + 1_500));
        let pages = Raw::<Twin>::new().pages();
        assert!(matches!(testing::arena().take(LOG, Class::LARGEST, 1), Err(GrowError::LowCycles { .. })));
        assert_eq!((Raw::<Twin>::new().pages(), testing::arena().stray_bytes()), (pages + 1, 0));
    }

    #[test]
    fn strays_at_the_cap_leave_no_room() {
        testing::fresh();
        let arena = testing::arena();
        arena.growth().set_max_pages(1_088);
        assert_eq!(arena.room(Class::LARGEST), 16);
        let strays = stray(1_072);
        assert_eq!(arena.room(Class::LARGEST), 0);
        assert_eq!(arena.take(LOG, Class::LARGEST, 1), Err(GrowError::OutOfSpace));
        assert_is_as_it_was(&strays);
    }
}
