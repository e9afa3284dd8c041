//! Meter of a message: the instructions and changed pages after which a loop takes no further step.
//!
//! **Constraint.** A chooser of keys can choose keys of one bucket, and then each search walks a chain of thousands of buckets. So the cost
//! of a step is known only after the step, and a number of steps bounds nothing.
//!
//! **Design.** A loop asks before each step. The first step always has room, so that the smallest budget makes progress. Reading the
//! platform's counter takes 200 instructions, so the meter reads it before every 16th step only: 15 steps more, of 15 M instructions each in
//! a chain of 100,000 entries, are part of the margin of every budget. A loop whose steps take more asks an exact meter. Changed pages are
//! those of the whole message ([`changed_pages`]).

use crate::{Platform, changed_pages};
use std::marker::PhantomData;

/// Steps from one reading of the counter to the next.
const EVERY: u64 = 16;

/// Limits of a message's loop, in instructions and changed pages.
pub struct Meter<P = crate::Ic> {
    /// Value of the instruction counter at which no further step begins.
    end: u64,
    /// Instructions from the first reading of the counter to the end, until the counter is read.
    lasts: Option<u64>,
    /// Number of changed pages at which no further step begins.
    pages: u64,
    /// Number of changed pages when the loop began.
    began: u64,
    /// Steps that were admitted or refused.
    steps: u64,
    /// Steps from one reading of the counter to the next.
    every: u64,
    /// True once the counter has reached `end`.
    is_over: bool,
    #[cfg(any(test, feature = "testing"))]
    pub(crate) most_steps: u64,
    platform: PhantomData<P>,
}

impl<P: Platform> Meter<P> {
    /// Returns a meter that ends at this value of the instruction counter, or when the message has changed so many pages
    /// ([`changed_pages`]).
    pub fn new(end: u64, pages: u64) -> Self {
        Self {
            end,
            lasts: None,
            pages,
            began: 0,
            steps: 0,
            every: EVERY,
            is_over: false,
            #[cfg(any(test, feature = "testing"))]
            most_steps: u64::MAX,
            platform: PhantomData,
        }
    }

    /// Returns a meter that ends so many instructions after its first reading of the counter, or after this number of changed pages. Fewer
    /// than 16 steps read no counter.
    pub fn lasting(instructions: u64, pages: u64) -> Self {
        Self { lasts: Some(instructions), ..Self::new(u64::MAX, pages) }
    }

    /// Returns a meter that never ends.
    pub fn unlimited() -> Self {
        Self::new(u64::MAX, u64::MAX)
    }

    /// Reads the counter before each step but the first, because a step may take hundreds of millions of instructions.
    pub fn exact(self) -> Self {
        Self { every: 1, ..self }
    }

    /// Returns the number of changed pages at which no further step begins.
    #[cfg(test)]
    pub fn pages(&self) -> u64 {
        self.pages
    }

    /// Takes the first change after the message has changed `pages` pages as the loop's first one, which always fits
    /// ([`is_full`](Self::is_full)).
    pub fn since(self, pages: u64) -> Self {
        Self { began: pages, ..self }
    }

    /// Returns whether a change of `pages` pages would exceed the limit of pages, and is not the loop's first change.
    pub fn is_full(&self, pages: u64) -> bool {
        let changed = changed_pages();
        changed > self.began && changed.saturating_add(pages) > self.pages
    }

    /// Returns whether the last reading of the counter was at the end or after it.
    pub fn is_over(&self) -> bool {
        self.is_over
    }

    /// Returns whether the instructions and the changed pages admit another step. The first step always may begin.
    #[inline]
    pub fn has_room(&mut self) -> bool {
        let is_first = self.steps == 0;
        self.has_time() && (is_first || changed_pages() < self.pages)
    }

    /// Returns whether the instructions admit another step. The first step always may begin.
    #[inline]
    pub fn has_time(&mut self) -> bool {
        let step = self.steps;
        self.steps = step.wrapping_add(1);
        #[cfg(any(test, feature = "testing"))]
        if step >= self.most_steps {
            return false;
        }
        if step == 0 {
            return true;
        }
        if step.is_multiple_of(self.every) && !self.is_over {
            let now = P::instructions();
            if let Some(lasts) = self.lasts.take() {
                self.end = now.saturating_add(lasts);
            }
            self.is_over = now >= self.end;
        }
        !self.is_over
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pages::{Counting, pretend_changes};
    use crate::twin::{self, Twin};

    /// Returns the number of steps that a meter admits, if each step takes so many instructions and changes so many pages.
    fn steps(mut meter: Meter<Twin>, instructions: u64, pages: u64) -> u64 {
        twin::reset();
        let _counting = Counting::begin();
        let mut steps = 0;
        while steps < 1_000 && meter.has_room() {
            pretend_changes(pages);
            steps += 1;
            twin::with(|world| world.instructions += instructions);
        }
        assert!(steps == 1_000 || !meter.has_room(), "a meter that has ended stays so");
        steps
    }

    #[test]
    fn first_step_has_room_and_later_ones_end_at_the_limit_met_first() {
        assert_eq!(steps(Meter::new(0, 0), 1, 1), 1);
        assert_eq!(steps(Meter::new(0, u64::MAX), 1, 1), 16, "the counter is read before every 16th step");
        assert_eq!(steps(Meter::new(160, u64::MAX), 10, 1), 16);
        assert_eq!(steps(Meter::new(161, u64::MAX), 10, 1), 32);
        assert_eq!(steps(Meter::new(161, 12), 10, 3), 4);
        assert_eq!([0, 30, 31].map(|end| steps(Meter::new(end, u64::MAX).exact(), 10, 1)), [1, 3, 4]);
        assert_eq!(steps(Meter::lasting(0, u64::MAX), 10, 1), 16);
        assert_eq!(steps(Meter::lasting(160, u64::MAX), 10, 1), 32);
        assert_eq!(steps(Meter::lasting(161, u64::MAX), 10, 1), 48);
        assert_eq!(steps(Meter::unlimited(), u64::MAX / 1_000, 3), 1_000);
        assert_eq!(steps(Meter::unlimited().of_steps(7), 1, 1), 7);
    }

    #[test]
    fn first_change_fits_and_the_next_must_not_exceed_the_pages() {
        let _counting = Counting::begin();
        let meter = Meter::<Twin>::new(u64::MAX, 3);
        assert!(!meter.is_full(9));
        pretend_changes(1);
        assert_eq!([2, 3].map(|pages| meter.is_full(pages)), [false, true]);
        assert!(!meter.since(1).is_full(9), "the first change of a loop that began after one page");
    }
}
