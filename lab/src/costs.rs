//! Average instructions of an embedded canister's work.

use coppice_testkit::costs::Costs;
use ic_coppice_cli::report::{Amount, count};
use serde::Serialize;

/// Average instructions: those inside the messages, and those charged, including heap pages. An MB is a million bytes of payload.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Instructions {
    /// Inside appending messages, per block.
    pub per_block_appended: u64,
    /// Charged for appending messages, per block.
    pub charged_per_block_appended: u64,
    /// Inside appending messages, per MB.
    pub per_mb_appended: u64,
    /// Inside appending messages, per transaction.
    pub per_transaction_appended: u64,
    /// Inside everything that the timer starts, including idle firings and the timer library, per pruned block; 0 if none was pruned.
    pub per_block_pruned: u64,
    /// Charged for everything that the timer starts, per pruned block.
    pub charged_per_block_pruned: u64,
    /// Inside everything that the timer starts, per pruned MB.
    pub per_mb_pruned: u64,
}

/// Average instructions of applying blocks to the UTXO records.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct UtxoInstructions {
    /// Inside messages that apply blocks, per transaction, with its spends.
    pub per_transaction_applied: u64,
}

fn share(sum: u64, by: u64) -> u64 {
    if by == 0 { 0 } else { (u128::from(sum) / u128::from(by)) as u64 }
}

fn per_mb(sum: u64, bytes: u64) -> u64 {
    if bytes == 0 { 0 } else { (u128::from(sum) * 1_000_000 / u128::from(bytes)) as u64 }
}

impl Instructions {
    pub fn new(costs: &Costs, appended: Amount, pruned: Amount) -> Self {
        Self {
            per_block_appended: share(costs.append_instructions, appended.blocks),
            charged_per_block_appended: share(costs.append_charged, appended.blocks),
            per_mb_appended: per_mb(costs.append_instructions, appended.bytes),
            per_transaction_appended: share(costs.append_instructions, appended.transactions),
            per_block_pruned: share(costs.timer_instructions, pruned.blocks),
            charged_per_block_pruned: share(costs.timer_charged, pruned.blocks),
            per_mb_pruned: per_mb(costs.timer_instructions, pruned.bytes),
        }
    }

    pub fn rows(&self) -> Vec<(&'static str, String)> {
        let per = |block: u64, mb: u64| format!("{}, per MB {}", count(block), count(mb));
        let appended = per(self.per_block_appended, self.per_mb_appended);
        let mut rows = vec![
            ("instructions per block appended, inside", appended),
            ("charged per block appended, heap pages included", count(self.charged_per_block_appended)),
            ("instructions per transaction appended, inside", count(self.per_transaction_appended)),
        ];
        if self.per_block_pruned > 0 {
            let pruned = per(self.per_block_pruned, self.per_mb_pruned);
            rows.push(("instructions per block pruned, inside (all its timer)", pruned));
            rows.push(("charged per block pruned, heap pages included", count(self.charged_per_block_pruned)));
        }
        rows
    }
}

impl UtxoInstructions {
    pub fn new(costs: &Costs, transactions: u64) -> Self {
        Self { per_transaction_applied: share(costs.apply_instructions, transactions) }
    }

    pub fn rows(&self) -> [(&'static str, String); 1] {
        [("instructions per transaction applied, inside", count(self.per_transaction_applied))]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn averages_are_zero_without_pruned_blocks() {
        let costs = Costs {
            append_instructions: 3_000,
            append_charged: 6_000,
            timer_instructions: 500,
            timer_charged: 800,
            ..Costs::default()
        };
        let appended = Amount { blocks: 3, bytes: 2_000_000, transactions: 30 };
        let instructions = Instructions::new(&costs, appended, Amount::default());
        let expected = Instructions {
            per_block_appended: 1_000,
            charged_per_block_appended: 2_000,
            per_mb_appended: 1_500,
            per_transaction_appended: 100,
            per_block_pruned: 0,
            charged_per_block_pruned: 0,
            per_mb_pruned: 0,
        };
        assert_eq!(instructions, expected);
        let pruned = Amount { blocks: 2, bytes: 1_000, transactions: 5 };
        let instructions = Instructions::new(&costs, appended, pruned);
        assert_eq!((instructions.per_block_pruned, instructions.charged_per_block_pruned), (250, 400));
    }
}
