//! The worker's times.
//!
//! | what | how long | of a lease of 300 s | why |
//! |---|---|---|---|
//! | lease | `--lease`, 30 s to 43,200 s | 1 | it is extended when half of it is over |
//! | request to a store | a quarter of the lease | 1/4 | a request that is begun late ends before the lease does |
//! | attempt within a request | an eighth of the lease | 1/8 | a second attempt fits the request |
//! | marker's age before deletion | 5 s, or a sixteenth of the lease | 1/60 | a disk may be unmounted while a call hangs |
//! | marker's answer once it was late | 5 s | 1/60 | a store that hangs holds up no other |
//! | call of the canister | 60 s, or a quarter of what is left, 10 s at least | 1/5 | there is time to ask again |
//! | wait between attempts | 0.25 s, doubling up to `--max-wait`; within a lease a sixteenth of it | 1/16 | an error passes or repeats |
//! | telling, once it is to end | 30 s | – | a supervisor waits for 90 s |
//! | looking at markers, once it is to end | 5 s | – | the rest is for telling |

use std::time::Duration;

/// A time that goes with another one, mostly the lease's length: a fraction of it, and this much at most.
#[derive(Clone, Copy, Debug)]
pub struct Share {
    /// The other one is divided by this.
    pub of: u32,
    /// The longest.
    pub most: Duration,
}

impl Share {
    /// How long it is where the other one has a length.
    pub fn of(self, length: Duration) -> Duration {
        (length / self.of).min(self.most)
    }
}

/// The longest that a request to a store takes.
pub const REQUEST: Share = Share { of: 4, most: Duration::MAX };
/// The longest that one attempt of it takes.
pub const ATTEMPT: Share = Share { of: 2, most: Duration::MAX };
/// How old a look at the markers may be where blobs are deleted.
pub const FRESH: Share = Share { of: 16, most: Duration::from_secs(5) };
/// The longest wait between attempts within a lease.
pub const PAUSE: Share = Share { of: 16, most: Duration::MAX };
/// The longest that a call of the canister takes.
pub const CALL: Duration = Duration::from_secs(60);
/// How long a call of the canister is waited for at least, however little is left of a lease.
pub const CALL_LEAST: Share = Share { of: 6, most: Duration::from_secs(10) };
/// How long a worker that is to end tries to say what it did, or to have the answer that it waits for.
pub const PARTING: Share = Share { of: 2, most: Duration::from_secs(30) };
/// The longest that a marker is waited for by a worker that is to end, or of a store that was late before.
pub const LAST_LOOK: Duration = Duration::from_secs(5);
/// The longest that `init` waits for a store.
pub const INIT: Duration = Duration::from_secs(60);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::FIRST_WAIT;

    /// Rows of a table: those that begin so, from its head on.
    fn table<'a>(text: &'a str, begins: &'a str) -> Vec<&'a str> {
        let rows = text.lines().filter_map(|line| line.strip_prefix(begins));
        let rows = rows.skip_while(|row| !row.starts_with("| what | how long |"));
        rows.take_while(|row| row.starts_with('|')).collect()
    }

    #[test]
    fn the_page_has_the_table_and_its_shares_are_those_of_the_code() {
        let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/blob-deletion.md");
        let page = std::fs::read_to_string(page).unwrap();
        let rows = table(include_str!("times.rs"), "//! ");
        assert_eq!(table(&page, ""), rows);
        let lease = Duration::from_secs(300);
        let request = REQUEST.of(lease);
        let attempt = ATTEMPT.of(request);
        let times = [lease, request, attempt, FRESH.of(lease), LAST_LOOK, CALL.min(lease / 4), PAUSE.of(lease)];
        for (row, time) in rows[2..].iter().zip(times) {
            let said = row.split('|').nth(3).unwrap().trim();
            let (above, below) = said.split_once('/').unwrap_or((said, "1"));
            let said = lease * above.parse::<u32>().unwrap() / below.parse::<u32>().unwrap();
            assert_eq!(time, said, "{row}");
        }
        for (row, time) in rows[9..].iter().zip([PARTING.of(CALL), LAST_LOOK]) {
            assert!(row.contains(&format!("| {} s | – |", time.as_secs())), "{row}");
        }
        assert!(rows[7].contains("10 s at least") && CALL_LEAST.of(CALL) == Duration::from_secs(10));
        assert!(rows[8].contains("0.25 s") && FIRST_WAIT == Duration::from_millis(250));
    }

    #[test]
    fn a_share_of_a_lease_is_no_longer_than_its_bound() {
        assert_eq!(FRESH.of(Duration::from_secs(32)), Duration::from_secs(2));
        assert_eq!(FRESH.of(Duration::from_secs(43_200)), Duration::from_secs(5));
        assert_eq!(REQUEST.of(Duration::from_secs(43_200)), Duration::from_secs(10_800));
    }
}
