//! Token bucket of heights: bounds how far a feeder raises a height at once and per day (`docs/design/record-pruning.md`).
//!
//! The bucket holds `size` heights and refills by `per_day` a day. Fractions of a height are kept as an integer, so that thousands of small
//! draws lose nothing. A clock that goes back adds nothing.

use serde::{Deserialize, Serialize};

/// Nanoseconds of a day.
const DAY_NS: u64 = 86_400_000_000_000;

/// Settings of a bucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Heights that a full bucket holds (`max_height_jump`).
    pub size: u32,
    /// Heights that are refilled per day (`heights_per_day`); 0: the bucket bounds nothing.
    pub per_day: u32,
}

/// A bucket that refills. A new one is full.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Bucket {
    /// Heights missing from a full bucket.
    drawn: u32,
    /// Refilled fraction of the next height, in units of 1/[`DAY_NS`] of a height.
    part: u64,
    /// Time of the last refill, in Unix nanoseconds.
    at: u64,
}

/// Too few heights are left for a draw.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Empty {
    /// Heights that are left.
    pub left: u32,
    /// Time at which enough heights are there, in Unix nanoseconds; `None` if never, because the draw exceeds the bucket's size.
    pub enough_at: Option<u64>,
}

impl Bucket {
    /// Returns the bucket refilled until `now`.
    fn refilled(self, limits: Limits, now: u64) -> Self {
        let elapsed = now.saturating_sub(self.at);
        let back = u128::from(elapsed) * u128::from(limits.per_day) + u128::from(self.part);
        let (heights, part) = (back / u128::from(DAY_NS), back % u128::from(DAY_NS));
        // A bucket that was made smaller misses at most its size.
        let drawn = u128::from(self.drawn.min(limits.size)).saturating_sub(heights) as u32;
        // A full bucket keeps no fraction.
        Self { drawn, part: if drawn == 0 { 0 } else { part as u64 }, at: self.at.max(now) }
    }

    /// Returns the heights that are left.
    pub fn left(&self, limits: Limits, now: u64) -> u32 {
        limits.size - self.refilled(limits, now).drawn
    }

    /// Takes heights out.
    ///
    /// # Errors
    /// [`Empty`]; nothing has changed.
    pub fn draw(&mut self, limits: Limits, heights: u32, now: u64) -> Result<(), Empty> {
        if limits.per_day == 0 {
            return Ok(());
        }
        let bucket = self.refilled(limits, now);
        let left = limits.size - bucket.drawn;
        if heights > left {
            let missing = u128::from(heights - left) * u128::from(DAY_NS) - u128::from(bucket.part);
            let wait = missing.div_ceil(u128::from(limits.per_day));
            let enough_at = bucket.at.saturating_add(u64::try_from(wait).unwrap_or(u64::MAX));
            return Err(Empty { left, enough_at: (heights <= limits.size).then_some(enough_at) });
        }
        *self = Self { drawn: bucket.drawn + heights, ..bucket };
        Ok(())
    }

    /// Changes the limits; refills by the old limits until `now`.
    pub fn change(&mut self, (old, new): (Limits, Limits), now: u64) {
        *self = self.refilled(old, now);
        self.drawn = self.drawn.min(new.size);
    }

    /// Fills the bucket and restarts its clock at `now`.
    pub fn fill(&mut self, now: u64) {
        *self = Self { at: now, ..Self::default() };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: u64 = 1_700_000_000_000_000_000;
    const BY_144: Limits = Limits { size: 144, per_day: 144 };
    /// Time for one height at 144 a day.
    const TEN_MINUTES: u64 = DAY_NS / 144;

    fn left(bucket: Bucket, limits: Limits, now: u64) -> u32 {
        let left = bucket.clone().draw(limits, u32::MAX, now).unwrap_err().left;
        assert_eq!(bucket.left(limits, now), left);
        left
    }

    fn empty(limits: Limits) -> Bucket {
        let mut bucket = Bucket::default();
        bucket.draw(limits, limits.size, NOW).unwrap();
        bucket
    }

    #[test]
    fn a_full_bucket_gives_its_size_and_no_more() {
        let mut bucket = Bucket::default();
        assert_eq!(bucket.draw(BY_144, 145, NOW), Err(Empty { left: 144, enough_at: None }));
        bucket.draw(BY_144, 144, NOW).unwrap();
        let refused = Err(Empty { left: 0, enough_at: Some(NOW + TEN_MINUTES) });
        assert_eq!(bucket.draw(BY_144, 1, NOW), refused);
        assert_eq!(bucket.draw(BY_144, 1, NOW + TEN_MINUTES - 1), refused, "the moment stays");
        bucket.draw(BY_144, 0, NOW).unwrap();
        bucket.draw(BY_144, 1, NOW + TEN_MINUTES).unwrap();
        assert_eq!(left(bucket, BY_144, NOW + TEN_MINUTES), 0);
        assert_eq!(left(bucket, BY_144, NOW + TEN_MINUTES + 100 * DAY_NS), 144, "a hundred days fill it once");
    }

    #[test]
    fn small_draws_get_as_much_as_one_large_draw() {
        // At seven heights a day a height takes no whole number of nanoseconds.
        for per_day in [7, 144, 10_000, u32::MAX / 2] {
            let limits = Limits { size: 1 << 20, per_day };
            let mut bucket = empty(limits);
            let (mut drawn, mut now) = (0_u64, NOW);
            for step in 0..20_000 {
                now += step * 7_919;
                let some = left(bucket, limits, now);
                bucket.draw(limits, some, now).unwrap();
                drawn += u64::from(some);
            }
            let all = u128::from(now - NOW) * u128::from(per_day) / u128::from(DAY_NS);
            assert_eq!(u128::from(drawn), all, "{per_day} a day");
        }
    }

    /// Bitcoin has 150 blocks a day: refills of 144 run dry within 24 days; refills of twice as many never do.
    #[test]
    fn refill_of_twice_the_average_never_refuses_a_faster_chain() {
        for (per_day, refused) in [(144, true), (288, false)] {
            let limits = Limits { size: 144, per_day };
            let mut bucket = Bucket::default();
            let is_refused = |block: u64| bucket.draw(limits, 1, NOW + block * DAY_NS / 150).is_err();
            assert_eq!((0..24 * 150).any(is_refused), refused, "{per_day}");
        }
    }

    #[test]
    fn refused_draws_neither_gain_nor_lose() {
        let mut bucket = empty(BY_144);
        for minute in 0..10_u64 {
            assert!(bucket.draw(BY_144, 1, NOW + minute * TEN_MINUTES / 10).is_err());
        }
        bucket.draw(BY_144, 1, NOW + TEN_MINUTES).unwrap();
    }

    #[test]
    fn a_clock_that_goes_back_adds_no_heights() {
        let mut bucket = empty(BY_144);
        for _ in 0..1_000 {
            for hours in [2, 0, 1] {
                let now = NOW + hours * 6 * TEN_MINUTES;
                let some = left(bucket, BY_144, now);
                bucket.draw(BY_144, some, now).unwrap();
            }
        }
        // Two hours have passed once: 12 heights, whatever the clock showed in between.
        assert_eq!(left(bucket, BY_144, NOW + 3 * 6 * TEN_MINUTES), 6);
        bucket.fill(NOW);
        assert_eq!(left(bucket, BY_144, 0), 144, "filled, by whatever clock");
    }

    #[test]
    fn the_largest_values_do_not_overflow() {
        let limits = Limits { size: u32::MAX / 2, per_day: u32::MAX / 2 };
        let mut bucket = empty(limits);
        assert_eq!(left(bucket, limits, u64::MAX), limits.size);
        let slow = Limits { per_day: 1, ..limits };
        let refused = bucket.draw(slow, limits.size, NOW).unwrap_err();
        assert_eq!(refused, Empty { left: 0, enough_at: Some(u64::MAX) });
    }

    #[test]
    fn changed_limits_apply_from_the_change_on() {
        let fast = Limits { per_day: 1_440, ..BY_144 };
        let mut bucket = empty(BY_144);
        bucket.change((BY_144, fast), NOW + TEN_MINUTES);
        assert_eq!(left(bucket, fast, NOW + TEN_MINUTES), 1, "by the old ones until then");
        assert_eq!(left(bucket, fast, NOW + 2 * TEN_MINUTES), 11);
        // A smaller bucket misses at most its size; a larger one is not full.
        let small = Limits { size: 2, per_day: 144 };
        let mut bucket = empty(BY_144);
        bucket.change((BY_144, small), NOW);
        assert_eq!(left(bucket, small, NOW + 2 * TEN_MINUTES), 2);
        bucket.change((small, BY_144), NOW);
        assert_eq!(left(bucket, BY_144, NOW), 142);
    }

    #[test]
    fn without_a_rate_draws_are_unbounded_and_nothing_is_refilled() {
        let free = Limits { per_day: 0, ..BY_144 };
        let mut bucket = empty(BY_144);
        bucket.change((BY_144, free), NOW);
        bucket.draw(free, u32::MAX, NOW).unwrap();
        bucket.change((free, BY_144), NOW + 10 * DAY_NS);
        assert_eq!(left(bucket, BY_144, NOW + 10 * DAY_NS), 0);
    }
}
