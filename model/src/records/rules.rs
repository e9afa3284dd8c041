//! Who may go, and when, as `docs/design.md` 7 says it: heights, the parents of old unmined transactions, defensive mode.

use super::{Hold, Record, Records, Settings, Txid};
use coppice_interface::*;
use std::collections::BTreeSet;

/// The heights that were notified.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Heights {
    /// The highest of either notification.
    pub current: u32,
    /// The highest that is persisted.
    pub persisted: u32,
}

/// A spender, as defensive mode sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Spent {
    /// Mined for long enough, or deleted and known to be.
    Stably,
    /// In no block of the longest chain.
    Unmined,
    /// Mined, but not for long enough.
    Recently,
    /// No record, and not known to be deleted.
    ByNone,
    /// A double spend that is going, and was in a block of another chain: whether that still counts is not said.
    Disputed,
}

impl Settings {
    /// Up to which height a run for `current` deletes.
    pub fn safe_height(&self, current: u32, persisted: u32) -> u32 {
        match self.pruner.safe_height_rule {
            _ if persisted == 0 => current,
            UtxoSafeHeightRule::Persisted => current.min(persisted),
            UtxoSafeHeightRule::PersistedPlusRetention => current.min(persisted + self.smallest_retention),
        }
    }

    /// Blocks after which phase 1 looks at all old unmined transactions again, at most.
    pub fn pass_interval(&self) -> u32 {
        (self.pruner.parent_preservation_blocks / 8).min(self.utxo.block_height_retention)
    }

    /// What is unmined since before this height is old; 0: nothing is.
    pub fn cutoff(&self, current: u32) -> u32 {
        current.saturating_sub(self.unmined_retention())
    }

    /// Blocks after which what is unmined is old.
    pub fn unmined_retention(&self) -> u32 {
        match self.pruner.unmined_tx_retention {
            UtxoUnminedRetention::HalfOfRetention => self.utxo.block_height_retention / 2,
            UtxoUnminedRetention::Blocks(blocks) => blocks,
        }
    }
}

impl Records {
    /// Parents of those old unmined transactions that count. Whether one does that is going is left open.
    pub fn parents_of_old(&self, cutoff: u32, counts: impl Fn(&Txid, &Record) -> bool) -> BTreeSet<Txid> {
        let old = |(txid, record): &(&Txid, &Record)| {
            record.unmined_since.is_some_and(|since| since < cutoff) && counts(txid, record)
        };
        self.0.iter().filter(old).flat_map(|(_, record)| record.parents()).collect()
    }

    /// What defensive mode sees of who holds an output, and how many blocks a spender lacks that is mined too lately. One that was
    /// deleted is stable for this output, whether it was made again or not.
    pub fn spender(&self, hold: &Hold, current: u32, retention: u32) -> (Spent, u32) {
        if hold.deleted {
            return (Spent::Stably, 0);
        }
        let Some(spender) = self.0.get(&hold.by) else { return (Spent::ByNone, 0) };
        let highest = spender.blocks.iter().map(|block| block.height).max();
        match (highest, spender.unmined_since) {
            (None, _) => (Spent::Unmined, 0),
            (Some(_), Some(_)) if spender.deleting => (Spent::Disputed, 0),
            (Some(_), Some(_)) => (Spent::Unmined, 0),
            (Some(highest), None) if current >= highest + retention => (Spent::Stably, 0),
            (Some(highest), None) => (Spent::Recently, highest + retention - current),
        }
    }

    /// Everything that spends from a record, as defensive mode sees it.
    pub fn spenders(&self, record: &Record, current: u32, retention: u32) -> BTreeSet<Spent> {
        record.holds().map(|hold| self.spender(hold, current, retention).0).collect()
    }

    /// Records that a run down to this safe height deletes, if nothing keeps them.
    pub fn due(&self, safe: u32) -> BTreeSet<Txid> {
        let due = |record: &Record| !record.deleting && record.delete_at_height.is_some_and(|height| height <= safe);
        self.0.iter().filter(|(_, record)| due(record)).map(|(txid, _)| *txid).collect()
    }
}
