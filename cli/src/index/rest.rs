//! Interval of update calls at the head: "nothing new" in a query is one replica's answer, so the subnet is asked every ten minutes.
//!
//! Blocks may be rarer than that. The interval is then the average time between two blocks, computed from this run's update calls only, so
//! that no single replica can change it.

use std::time::Duration;

/// The shortest interval between two update calls at rest.
pub const AT_REST: Duration = Duration::from_secs(600);

/// The update calls of a run: their times, and the heads in their answers.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Rest {
    /// The time of the last call, answered or not.
    asked: Option<Duration>,
    /// The time and the head of the first answer with a head.
    first: Option<(Duration, u64)>,
    /// The time and the head of the last answer with a head.
    last: Option<(Duration, u64)>,
}

impl Rest {
    /// Records an update call, and the head in its answer if there is one.
    pub fn note(&mut self, now: Duration, head: Option<u64>) {
        self.asked = Some(now);
        if let Some(head) = head {
            self.first.get_or_insert((now, head));
            self.last = Some((now, head));
        }
    }

    /// Returns whether this run has made no update call yet.
    pub fn is_new(&self) -> bool {
        self.asked.is_none()
    }

    /// Returns whether the last update call is too long ago to trust a query that reports nothing new.
    pub fn is_due(&self, now: Duration) -> bool {
        self.asked.is_none_or(|asked| now.saturating_sub(asked) >= self.interval())
    }

    /// Returns the interval of update calls at rest; ten minutes if no block has come.
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

    /// Counts the update calls of a day at rest, with a block every `minutes_per_block` minutes.
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
    fn update_calls_are_ten_minutes_apart_or_as_rare_as_blocks() {
        assert_eq!(calls_of_a_day(None), 144, "a chain that stands still");
        assert_eq!(calls_of_a_day(Some(1)), 144);
        assert_eq!(calls_of_a_day(Some(10)), 144);
        // Every ten minutes up to the first block, then every hour.
        let hourly = calls_of_a_day(Some(60));
        assert!((24..=24 + 6).contains(&hourly), "{hourly}");
    }

    #[test]
    fn update_call_is_due_at_once_and_ten_minutes_after_a_refusal() {
        let mut rest = Rest::default();
        assert!(rest.is_new() && rest.is_due(Duration::ZERO));
        rest.note(Duration::from_secs(5), None);
        assert!(!rest.is_new() && !rest.is_due(Duration::from_secs(604)) && rest.is_due(Duration::from_secs(605)));
        // A lower head after a reorg does not count as a block, and a clock that goes backwards adds no time.
        rest.note(Duration::from_secs(700), Some(9));
        rest.note(Duration::from_secs(800), Some(3));
        assert!(!rest.is_due(Duration::ZERO) && rest.is_due(Duration::from_secs(1_400)));
    }
}
