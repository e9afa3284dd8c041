//! The deletion queue, as a worker sees it. What reaches it is behind [`Queue`].

use crate::client::GivesUp;
use anyhow::Result;
use coppice_interface::StoreType;
use std::fmt;

/// How far the chain is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Heights {
    /// The highest height that was notified.
    pub current: u32,
    /// The highest block that is persisted; 0: no persister runs.
    pub persisted: u32,
}

impl Heights {
    /// Blobs may be deleted whose height is this one or lower: so many blocks below where the chain is, or below where its persister
    /// is, if one runs.
    pub fn due(self, window: u32) -> u32 {
        let height = if self.persisted == 0 { self.current } else { self.current.min(self.persisted) };
        height.saturating_sub(window)
    }
}

/// A blob that is to be deleted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// The row's number.
    pub id: u64,
    /// The blob's key.
    pub key: Vec<u8>,
    /// What kind of file it is.
    pub file_type: String,
    /// Which store has it.
    pub store: StoreType,
    /// It may be deleted from this height on.
    pub height: u32,
}

/// What a worker wants to lease.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ask {
    /// Rows of this height or a lower one.
    pub height: u32,
    /// So many rows at most.
    pub rows: u32,
    /// Seconds until the lease ends.
    pub secs: u64,
    /// In these stores; empty: in all.
    pub stores: Vec<StoreType>,
    /// Names the call: said again, it gets the same lease.
    pub request: Vec<u8>,
}

/// Rows that nobody else is given until the lease ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lease {
    /// What its holder shows.
    pub token: Vec<u8>,
    /// The rows.
    pub rows: Vec<Row>,
}

/// What a worker did of a lease.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Done {
    /// Rows whose blob is gone, or was not there.
    pub gone: Vec<u64>,
    /// Rows whose blob could not be deleted.
    pub failed: Vec<u64>,
    /// How often deleting a blob may fail.
    pub max_retries: u32,
}

/// What became of that.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Noted {
    /// Rows that were given up now.
    pub dead: u64,
    /// Numbers at the end, of those gone and then of those that failed, that were not looked at.
    pub remaining: u64,
    /// Rows that the lease has not, or not any more.
    pub skipped: Vec<u64>,
}

/// What of a store is in the queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Waiting {
    /// The store.
    pub store: StoreType,
    /// Rows that wait, are leased, or back off.
    pub rows: u64,
    /// The lowest height among those that wait.
    pub oldest: Option<u32>,
}

/// Why the queue does not do what it was asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The lease is over: it expired, was completed, or is another's.
    Over(String),
    /// It may do it later.
    Later(String),
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Over(why) | Self::Later(why) => f.write_str(why),
        }
    }
}

/// The queue of one canister.
///
/// Every method's outer error is that of the way there: [`Trials`](crate::client::Trials) decides whether the same is tried again.
pub trait Queue {
    /// From now on a call ends, its answer lost, where this says so.
    fn limit(&self, gives_up: GivesUp);

    /// How far the chain is, on the canister's word, and not on one replica's.
    fn heights(&self) -> Result<Heights>;

    /// How far the chain is and what there is in the queue: on one replica's word or, `replicated`, on the canister's.
    fn look(&self, replicated: bool) -> Result<(Heights, Vec<Waiting>)>;

    /// The first rows that wait and whose height is this one or a lower one, a thousand at most, on one replica's word.
    fn pending(&self, height: u32, rows: u32) -> Result<Vec<Row>>;

    /// Leases rows; none where nothing is due. Said again it answers the same.
    fn acquire(&self, ask: &Ask) -> Result<Result<Option<Lease>, Refusal>>;

    /// Has a lease end so many seconds from now, if that is later than it would.
    fn extend(&self, token: &[u8], secs: u64) -> Result<Result<(), Refusal>>;

    /// Says what was done. Said again it answers the same. Where nothing remains, the lease is over, and rows that it does not name wait
    /// again.
    fn complete(&self, token: &[u8], done: &Done) -> Result<Result<Noted, Refusal>>;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_height_is_the_persisters_where_one_runs_and_the_window_saturates() {
        let due = |current, persisted, window| Heights { current, persisted }.due(window);
        assert_eq!(due(100, 0, 10), 90, "no persister runs");
        assert_eq!(due(100, 95, 10), 85);
        assert_eq!(due(100, 200, 10), 90, "the persister is told of more than the chain is");
        assert_eq!((due(100, 1, 0), due(100, 1, 1), due(100, 1, 2)), (1, 0, 0));
        assert_eq!((due(0, 0, 0), due(0, 0, 10), due(9, 0, 10), due(10, 0, 10), due(11, 0, 10)), (0, 0, 0, 0, 1));
        assert_eq!((due(u32::MAX, 0, 0), due(u32::MAX, u32::MAX, u32::MAX)), (u32::MAX, 0));
    }
}
