//! Rules of deletion, by `docs/design/record-pruning.md`: heights, the parents of old unmined transactions, defensive mode.

use super::{Hold, Record, Records, Settings, Txid};
use ic_coppice_interface::*;
use std::collections::BTreeSet;

/// The notified heights.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Heights {
    /// The highest of either notification.
    pub current: u32,
    /// The highest persisted height.
    pub persisted: u32,
}

/// A spender, as defensive mode sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Spent {
    /// Mined long enough ago, or known to be deleted.
    Stably,
    /// In no block of the longest chain.
    Unmined,
    /// Mined too recently.
    Recently,
    /// Has no record, and is not known to be deleted.
    ByNone,
    /// A double spend that is being deleted, and was in a block of another chain. The design leaves open whether that block still counts.
    Disputed,
}

impl Settings {
    /// Returns the height up to which a run for `current` deletes.
    pub fn safe_height(&self, current: u32, persisted: u32) -> u32 {
        match self.pruner.safe_height_rule {
            _ if persisted == 0 => current,
            UtxoSafeHeightRule::Persisted => current.min(persisted),
            UtxoSafeHeightRule::PersistedPlusRetention => current.min(persisted + self.smallest_retention),
        }
    }

    /// Returns the most blocks between two passes of phase 1 over all old unmined transactions.
    pub fn pass_interval(&self) -> u32 {
        (self.pruner.parent_preservation_blocks / 8).min(self.utxo.block_height_retention)
    }

    /// Returns the height before which an unmined transaction is old; 0: none is old.
    pub fn cutoff(&self, current: u32) -> u32 {
        current.saturating_sub(self.unmined_retention())
    }

    /// Returns the blocks after which an unmined transaction is old.
    pub fn unmined_retention(&self) -> u32 {
        match self.pruner.unmined_tx_retention {
            UtxoUnminedRetention::HalfOfRetention => self.utxo.block_height_retention / 2,
            UtxoUnminedRetention::Blocks(blocks) => blocks,
        }
    }
}

impl Records {
    /// Returns the parents of the old or late unmined transactions that `counts` accepts. The caller decides about records being deleted.
    pub fn parents_of_old(&self, cutoff: u32, counts: impl Fn(&Txid, &Record) -> bool) -> BTreeSet<Txid> {
        let old = |(txid, record): &(&Txid, &Record)| {
            let old = record.late || record.unmined_since.is_some_and(|since| since < cutoff);
            old && counts(txid, record)
        };
        self.0.iter().filter(old).flat_map(|(_, record)| record.parents()).collect()
    }

    /// Returns the live unmined transactions that hold outputs of a record and have it among their parents. A feeder may name a spender that
    /// has no such input.
    pub fn live_unmined_spenders<'a>(
        &'a self,
        txid: &'a Txid,
        record: &'a Record,
    ) -> impl Iterator<Item = (&'a Txid, &'a Record)> {
        let holds = record.holds().filter(|hold| !hold.deleted);
        let spenders = holds.filter_map(|hold| self.0.get_key_value(&hold.by));
        spenders.filter(|(_, spender)| spender.is_live_unmined() && spender.parents().contains(txid))
    }

    /// Returns the class of an output's spender in defensive mode, and how many blocks a recently mined spender still lacks. A deleted
    /// spender is stable for this output, even if its record was created again.
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

    /// Returns the classes of all spenders of a record in defensive mode.
    pub fn spenders(&self, record: &Record, current: u32, retention: u32) -> BTreeSet<Spent> {
        record.holds().map(|hold| self.spender(hold, current, retention).0).collect()
    }

    /// Returns the records that a run down to this safe height deletes, if nothing preserves them.
    pub fn due(&self, safe: u32) -> BTreeSet<Txid> {
        let due = |record: &Record| !record.deleting && record.delete_at_height.is_some_and(|height| height <= safe);
        self.0.iter().filter(|(_, record)| due(record)).map(|(txid, _)| *txid).collect()
    }
}
