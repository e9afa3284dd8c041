//! Time limits of the worker.
//!
//! | what | how long | of a lease of 300 s | why |
//! |---|---|---|---|
//! | lease | `--lease-secs`, 30 s to 43,200 s | 1 | it is extended when half of it is over |
//! | request to a store | a quarter of the lease | 1/4 | a request that is begun late ends before the lease does |
//! | attempt within a request | an eighth of the lease | 1/8 | a second attempt fits the request |
//! | age of the marker and of the canister's answer before a request | 5 s, or a sixteenth of the lease | 1/60 | a disk may be unmounted, or deletions stopped, while a call hangs |
//! | marker's answer once it was late | 5 s | 1/60 | a store that hangs holds up no other |
//! | call of the canister | 60 s, or a quarter of what is left, 10 s at least | 1/5 | there is time to ask again |
//! | wait between attempts | 0.25 s, doubling up to `--max-wait-secs`; within a lease a sixteenth of it | 1/16 | an error passes or repeats |
//! | telling, once it is to end | 30 s | – | a supervisor waits for 90 s |
//! | looking at markers, once it is to end | 5 s | – | the rest is for telling |
//! | belief in queries that report nothing due | `--ask-secs`, 600 s | – | one replica answers a query |

use std::time::Duration;

/// A fraction of another time, mostly of the lease's length, up to a maximum.
#[derive(Clone, Copy, Debug)]
pub struct Share {
    /// The divisor of the other time.
    pub of: u32,
    pub most: Duration,
}

impl Share {
    /// Returns this share of a length.
    pub fn of(self, length: Duration) -> Duration {
        (length / self.of).min(self.most)
    }
}

/// The longest request to a store.
pub const REQUEST: Share = Share { of: 4, most: Duration::MAX };
/// The longest attempt within a request.
pub const ATTEMPT: Share = Share { of: 2, most: Duration::MAX };
/// The maximum age of a look at the markers, and of the canister's answer that the lease is live, when a request begins.
pub const FRESH: Share = Share { of: 16, most: Duration::from_secs(5) };
/// The longest wait between attempts within a lease.
pub const PAUSE: Share = Share { of: 16, most: Duration::MAX };
/// The longest call of the canister.
pub const CALL: Duration = Duration::from_secs(60);
/// The least time that a call of the canister is given, however little of a lease is left.
pub const CALL_LEAST: Share = Share { of: 6, most: Duration::from_secs(10) };
/// The time in which a worker that is to end tries to report its work, or waits for the answer that is under way.
pub const PARTING: Share = Share { of: 2, most: Duration::from_secs(30) };
/// The longest wait for a marker when the worker is to end, or when the store was late before.
pub const LAST_LOOK: Duration = Duration::from_secs(5);
/// The longest that `init` waits for a store.
pub const INIT: Duration = Duration::from_secs(60);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::FIRST_WAIT;

    /// Returns the rows of the table at the head of the module.
    fn rows() -> Vec<&'static str> {
        let lines = include_str!("times.rs").lines().filter_map(|line| line.strip_prefix("//! "));
        lines.skip_while(|row| !row.starts_with("| what | how long |")).take_while(|row| row.starts_with('|')).collect()
    }

    #[test]
    fn table_of_the_module_equals_the_codes_times() {
        let rows = rows();
        let lease = Duration::from_secs(300);
        let request = REQUEST.of(lease);
        let attempt = ATTEMPT.of(request);
        let times = [lease, request, attempt, FRESH.of(lease), LAST_LOOK, CALL.min(lease / 4), PAUSE.of(lease)];
        for (row, time) in rows[2..].iter().zip(times) {
            let cell = row.split('|').nth(3).unwrap().trim();
            let (above, below) = cell.split_once('/').unwrap_or((cell, "1"));
            let shown = lease * above.parse::<u32>().unwrap() / below.parse::<u32>().unwrap();
            assert_eq!(time, shown, "{row}");
        }
        for (row, time) in rows[9..].iter().zip([PARTING.of(CALL), LAST_LOOK]) {
            assert!(row.contains(&format!("| {} s | – |", time.as_secs())), "{row}");
        }
        assert!(rows[7].contains("10 s at least") && CALL_LEAST.of(CALL) == Duration::from_secs(10));
        assert!(rows[8].contains("0.25 s") && FIRST_WAIT == Duration::from_millis(250));
    }

    #[test]
    fn share_of_a_lease_is_capped() {
        assert_eq!(FRESH.of(Duration::from_secs(32)), Duration::from_secs(2));
        assert_eq!(FRESH.of(Duration::from_secs(43_200)), Duration::from_secs(5));
        assert_eq!(REQUEST.of(Duration::from_secs(43_200)), Duration::from_secs(10_800));
    }
}
