//! Limits of pruning besides the policy. The canister's `State::constraints` builds them for each message.

use super::due::Due;
use crate::ChainStore;
use crate::export::Guard;
use ic_coppice_interface::HeldBy;

/// Limits that override the policy: exporters, applying, the stop of deletions and the cycle reserve.
#[derive(Clone, Debug)]
pub struct Constraints {
    /// The first block that is not exported yet, and the exporter that holds it.
    pub exported: Option<Guard>,
    /// The next block to apply to the UTXO records.
    pub applying: Option<Guard>,
    /// Time since which deletions are stopped, in Unix nanoseconds; `None` if they are not.
    pub stopped_since: Option<u64>,
    /// Too few cycles are liquid for the daemon to prune.
    pub low_on_cycles: bool,
}

impl Constraints {
    /// Returns the block that pruning must not pass: block 0 while deletions are stopped, otherwise the first block that is not exported
    /// or not applied yet.
    pub fn guard(&self) -> Option<Guard> {
        let stopped = self.stopped_since.map(|_| Guard { before: 0, held_by: HeldBy::Stopped });
        stopped.or_else(|| self.exported.iter().chain(&self.applying).min_by_key(|guard| guard.before).cloned())
    }
}

/// Returns whether the guard allows at least one due block to be pruned.
pub fn is_possible(due: &Due, chain: &ChainStore) -> bool {
    due.before > chain.state().oldest
}
