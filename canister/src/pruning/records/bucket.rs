//! Bucket of heights: bounds how far a feeder raises a height, at once and in a day (`docs/design.md` 7).
//!
//! The bucket holds `size` heights and refills by `per_day` a day. Parts of a height are kept as an integer, so that thousands of
//! small draws lose nothing; time that goes back gives nothing.

use serde::{Deserialize, Serialize};

/// Nanoseconds of a day.
const DAY_NS: u64 = 86_400_000_000_000;

/// The settings of a bucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Heights that a full bucket holds (`max_height_jump`).
    pub size: u32,
    /// Heights that come back in a day (`heights_per_day`); 0: the bucket bounds nothing.
    pub per_day: u32,
}

/// A bucket that refills. A new one is full.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Bucket {
    /// Heights that are missing in it.
    drawn: u32,
    /// The part of a height that has come back already, in heights by [`DAY_NS`].
    part: u64,
    /// The moment up to which it was refilled, in Unix nanoseconds.
    at: u64,
}

/// Too few heights are left for a draw.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Empty {
    /// Heights that are left.
    pub left: u32,
    /// The moment at which there are enough, in Unix nanoseconds; `None`: never, the bucket is smaller than the draw.
    pub enough_at: Option<u64>,
}

impl Bucket {
    /// The bucket with what has come back until now.
    fn refilled(self, limits: Limits, now: u64) -> Self {
        let elapsed = now.saturating_sub(self.at);
        let back = u128::from(elapsed) * u128::from(limits.per_day) + u128::from(self.part);
        let (heights, part) = (back / u128::from(DAY_NS), back % u128::from(DAY_NS));
        // A bucket that was made smaller does not lack more than it holds.
        let drawn = u128::from(self.drawn.min(limits.size)).saturating_sub(heights) as u32;
        // A full bucket keeps no part beside.
        Self { drawn, part: if drawn == 0 { 0 } else { part as u64 }, at: self.at.max(now) }
    }

    /// Heights that it holds.
    pub fn left(&self, limits: Limits, now: u64) -> u32 {
        limits.size - self.refilled(limits, now).drawn
    }

    /// Takes heights out.
    ///
    /// # Errors
    /// [`Empty`], and nothing has changed.
    pub fn draw(&mut self, limits: Limits, heights: u32, now: u64) -> Result<(), Empty> {
        if limits.per_day == 0 {
            return Ok(());
        }
        let bucket = self.refilled(limits, now);
        let left = limits.size - bucket.drawn;
        if heights > left {
            let missing = u64::from(heights - left);
            let wait = (u128::from(missing) * u128::from(DAY_NS) - u128::from(bucket.part))
                .div_ceil(u128::from(limits.per_day));
            let enough_at = bucket.at.saturating_add(u64::try_from(wait).unwrap_or(u64::MAX));
            return Err(Empty { left, enough_at: (heights <= limits.size).then_some(enough_at) });
        }
        *self = Self { drawn: bucket.drawn + heights, ..bucket };
        Ok(())
    }

    /// Changes the limits. Units up to now are refilled by the old limits.
    pub fn change(&mut self, (old, new): (Limits, Limits), now: u64) {
        *self = self.refilled(old, now);
        self.drawn = self.drawn.min(new.size);
    }

    /// Fills it, by whatever clock there was.
    pub fn fill(&mut self, now: u64) {
        *self = Self { at: now, ..Self::default() };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: u64 = 1_700_000_000_000_000_000;
    const BY_144: Limits = Limits { size: 144, per_day: 144 };
    /// A height of 144 a day.
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
    fn thousands_of_small_draws_get_what_one_large_one_gets() {
        // Seven heights a day are no whole number of nanoseconds each.
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

    /// Bitcoin has 150 blocks a day: refills of 144 run dry within 24 days, and refills of twice as many never do.
    #[test]
    fn a_chain_a_little_faster_than_its_average_is_refused_nothing_with_twice_the_heights_of_a_day() {
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
    fn a_clock_that_goes_back_gives_nothing_and_the_same_hour_is_not_given_twice() {
        let mut bucket = empty(BY_144);
        for _ in 0..1_000 {
            for hours in [2, 0, 1] {
                let now = NOW + hours * 6 * TEN_MINUTES;
                let some = left(bucket, BY_144, now);
                bucket.draw(BY_144, some, now).unwrap();
            }
        }
        // Two hours have passed once: 12 heights, whatever the clock said between.
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
    fn other_limits_are_in_force_from_their_change_on() {
        let fast = Limits { per_day: 1_440, ..BY_144 };
        let mut bucket = empty(BY_144);
        bucket.change((BY_144, fast), NOW + TEN_MINUTES);
        assert_eq!(left(bucket, fast, NOW + TEN_MINUTES), 1, "by the old ones until then");
        assert_eq!(left(bucket, fast, NOW + 2 * TEN_MINUTES), 11);
        // A smaller one lacks no more than it holds, and a larger one is not full.
        let small = Limits { size: 2, per_day: 144 };
        let mut bucket = empty(BY_144);
        bucket.change((BY_144, small), NOW);
        assert_eq!(left(bucket, small, NOW + 2 * TEN_MINUTES), 2);
        bucket.change((small, BY_144), NOW);
        assert_eq!(left(bucket, BY_144, NOW), 142);
    }

    #[test]
    fn without_a_rate_nothing_is_bounded_and_nothing_comes_back() {
        let free = Limits { per_day: 0, ..BY_144 };
        let mut bucket = empty(BY_144);
        bucket.change((BY_144, free), NOW);
        bucket.draw(free, u32::MAX, NOW).unwrap();
        bucket.change((free, BY_144), NOW + 10 * DAY_NS);
        assert_eq!(left(bucket, BY_144, NOW + 10 * DAY_NS), 0);
    }
}
