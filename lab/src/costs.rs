//! Sums of the costs of an embedded canister's executions.

use coppice::report::{Amount, count};
use coppice_host::{Execution, Kind, Outcome};
use serde::Serialize;

/// Methods that append blocks.
const APPENDING: [&str; 4] = ["append_block", "begin_block", "put_block_chunk", "commit_block"];
/// The method that applies blocks to the UTXO records.
const APPLYING: &str = "utxo_apply_block";
/// The prefix of the timer library's calls to its own canister.
pub const TIMER_CALLS: &str = "<ic-cdk internal>";

/// Costs of executions, as counted by the host: the instructions inside them, as `performance_counter` reports at their end, and the
/// charged instructions, which are 1,000 more for each 4 KiB page of the heap that a message changed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Costs {
    /// Messages that append a block, or upload a part of one.
    pub append_messages: u64,
    /// Instructions inside them.
    pub append_instructions: u64,
    /// Instructions charged for them.
    pub append_charged: u64,
    /// Instructions inside messages that apply blocks to the UTXO records.
    pub apply_instructions: u64,
    pub timer_firings: u64,
    /// Instructions inside everything that the timer starts: its firing, the library's calls to its canister, the daemon.
    pub timer_instructions: u64,
    /// Instructions charged for everything that the timer starts.
    pub timer_charged: u64,
    /// The first execution that trapped, if any.
    pub trap: Option<String>,
}

impl Costs {
    pub fn add(&mut self, execution: &Execution) {
        if let Outcome::Trapped { message, .. } = &execution.outcome
            && self.trap.is_none()
        {
            self.trap = Some(format!("{:?} {} trapped: {message}", execution.kind, execution.method));
        }
        // The callbacks of a firing have no method name, like the firing.
        let update = |methods: &[&str]| execution.kind == Kind::Update && methods.contains(&execution.method.as_str());
        let of_the_timer = matches!(execution.kind, Kind::Timer | Kind::ReplyCallback) && execution.method.is_empty();
        if of_the_timer || execution.method.starts_with(TIMER_CALLS) {
            self.timer_firings += u64::from(execution.kind == Kind::Timer);
            self.timer_instructions += execution.instructions;
            self.timer_charged += execution.instructions_charged;
        } else if update(&APPENDING) {
            self.append_messages += 1;
            self.append_instructions += execution.instructions;
            self.append_charged += execution.instructions_charged;
        } else if update(&[APPLYING]) {
            self.apply_instructions += execution.instructions;
        }
    }
}

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
    use candid::Principal;

    #[test]
    fn costs_are_added_to_the_right_sums() {
        let execution = |kind, method: &str, instructions| Execution {
            canister: Principal::anonymous(),
            kind,
            method: method.into(),
            instructions,
            heap_pages_written: 1,
            instructions_charged: instructions + 1_000,
            stable_pages_read: 0,
            stable_pages_written: 0,
            system_calls: 0,
            outcome: Outcome::Completed,
        };
        let mut costs = Costs::default();
        costs.add(&execution(Kind::Update, "append_block", 1));
        costs.add(&execution(Kind::Update, "put_block_chunk", 2));
        costs.add(&execution(Kind::Update, "set_config", 4));
        costs.add(&execution(Kind::InspectMessage, "append_block", 8));
        costs.add(&execution(Kind::Timer, "", 16));
        costs.add(&execution(Kind::Update, "<ic-cdk internal> timer_executor", 32));
        costs.add(&execution(Kind::ReplyCallback, "<ic-cdk internal> timer_executor", 64));
        costs.add(&execution(Kind::Update, "utxo_apply_block", 128));
        costs.add(&execution(Kind::Update, "utxo_create", 256));
        let expected = Costs {
            append_messages: 2,
            append_instructions: 3,
            append_charged: 2_003,
            apply_instructions: 128,
            timer_firings: 1,
            timer_instructions: 112,
            timer_charged: 3_112,
            trap: None,
        };
        assert_eq!(costs, expected);
        let outcome = Outcome::Trapped { code: coppice_host::ErrorCode::CanisterCalledTrap, message: "why".into() };
        costs.add(&Execution { outcome, ..execution(Kind::Timer, "", 0) });
        assert!(costs.trap.is_some_and(|trap| trap.contains("why")));
    }

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
