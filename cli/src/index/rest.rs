//! Update calls at rest: a query that says "nothing new" is one replica's word, so the subnet is asked every ten minutes.
//!
//! Blocks may come more seldom than that. The time between two update calls is then the average time between two blocks, as
//! update calls of this run said, so that no replica has a say in it.

use std::time::Duration;

/// The least time between two update calls at rest.
pub const AT_REST: Duration = Duration::from_secs(600);

/// The update calls of a run: their times, and the heads that they named.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Rest {
    /// The time of the last one, answered or not.
    asked: Option<Duration>,
    /// The time of the first answer that named a head, and the head.
    first: Option<(Duration, u64)>,
    /// The same of the last one.
    last: Option<(Duration, u64)>,
}

impl Rest {
    /// An update call was made, and answered with this head or without any.
    pub fn note(&mut self, now: Duration, head: Option<u64>) {
        self.asked = Some(now);
        if let Some(head) = head {
            self.first.get_or_insert((now, head));
            self.last = Some((now, head));
        }
    }

    /// True if no update call was made in this run.
    pub fn is_new(&self) -> bool {
        self.asked.is_none()
    }

    /// True if the last update call is too long ago to believe a query that says "nothing new".
    pub fn is_due(&self, now: Duration) -> bool {
        self.asked.is_none_or(|asked| now.saturating_sub(asked) >= self.interval())
    }

    /// The time between two update calls at rest. Ten minutes where no block has come.
    fn interval(&self) -> Duration {
        let average = match (self.first, self.last) {
            (Some((began, first)), Some((now, last))) if last > first => {
                now.saturating_sub(began).div_f64((last - first) as f64)
            }
            _ => Duration::ZERO,
        };
        average.max(AT_REST)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Update calls of a day at rest, where a block comes every so many minutes.
    fn calls_of_a_day(minutes_per_block: Option<u64>) -> u64 {
        let (mut rest, mut calls) = (Rest::default(), 0);
        for minute in 0..24 * 60 {
            let now = Duration::from_secs(60 * minute);
            if rest.is_due(now) {
                calls += 1;
                rest.note(now, Some(1_000 + minutes_per_block.map_or(0, |minutes| minute / minutes)));
            }
        }
        calls
    }

    #[test]
    fn update_calls_come_every_ten_minutes_and_no_more_often_than_blocks() {
        assert_eq!(calls_of_a_day(None), 144, "a chain that stands still");
        assert_eq!(calls_of_a_day(Some(1)), 144);
        assert_eq!(calls_of_a_day(Some(10)), 144);
        // Every ten minutes up to the first block, and every hour then.
        let hourly = calls_of_a_day(Some(60));
        assert!((24..=24 + 6).contains(&hourly), "{hourly}");
    }

    #[test]
    fn the_first_update_call_is_due_at_once_and_one_that_was_refused_is_made_again_later() {
        let mut rest = Rest::default();
        assert!(rest.is_new() && rest.is_due(Duration::ZERO));
        rest.note(Duration::from_secs(5), None);
        assert!(!rest.is_new() && !rest.is_due(Duration::from_secs(604)) && rest.is_due(Duration::from_secs(605)));
        // A reorg to a lower head is no block, and a clock that goes back is no time.
        rest.note(Duration::from_secs(700), Some(9));
        rest.note(Duration::from_secs(800), Some(3));
        assert!(!rest.is_due(Duration::ZERO) && rest.is_due(Duration::from_secs(1_400)));
    }
}
