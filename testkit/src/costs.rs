//! Costs of an embedded canister's executions, summed.

use ic_coppice_host::{Execution, Kind, Outcome};

/// Methods that append blocks.
const APPENDING: [&str; 6] =
    ["append_block", "append_blocks", "append_compressed", "begin_block", "put_block_chunk", "commit_block"];
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
        let outcome = Outcome::Trapped { code: ic_coppice_host::ErrorCode::CanisterCalledTrap, message: "why".into() };
        costs.add(&Execution { outcome, ..execution(Kind::Timer, "", 0) });
        assert!(costs.trap.is_some_and(|trap| trap.contains("why")));
    }
}
