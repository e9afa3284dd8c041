//! Findings about applying blocks to UTXO records, and about rollbacks that take blocks back from them.

use super::super::advice::advice;
use super::super::finding::{Finding, finding};
use crate::state::State;
use ic_coppice_interface::text::many;
use ic_coppice_interface::{HeldBy, ProblemCode};
use ic_coppice_records::apply::Waits;

/// Adds the reason why applying is stopped to a finding that names the holder of pruning, if applying is that holder.
pub fn with_stop(state: &State, found: Finding, held_by: Option<&HeldBy>) -> Finding {
    let names_holder = matches!(found.code, ProblemCode::ExportHeld | ProblemCode::CapacityExhausted);
    let holds = names_holder && held_by == Some(&HeldBy::UtxoApply);
    let Some(stop) = state.records.applier.stop.as_ref().filter(|_| holds) else { return found };
    let message = format!("{}; applying has stopped at {}", found.message, stop.text);
    Finding { message, ..found }.with_action(advice(ProblemCode::ApplyingStopped).1)
}

/// Returns a finding if a transaction of the next block cannot be applied.
pub(super) fn stopped_applying(state: &State) -> Option<Finding> {
    let stop = state.records.applier.stop.as_ref()?;
    let message = format!("applying has stopped at {}", stop.text);
    Some(Finding { since: Some(stop.since_ns), ..finding(ProblemCode::ApplyingStopped, message) })
}

/// Returns findings about a rollback that waits for memory, and about records that are missing after a rollback or a replay.
pub(super) fn records_of_blocks(state: &State) -> Vec<Finding> {
    let mut found = Vec::new();
    let rollback = state.chain.state().rollback_to.zip(state.records.applier.waits.as_ref());
    if let Some((to, Waits { since_ns, number, why, .. })) = rollback {
        let message = format!(
            "the rollback to block {to} waits: block {number} cannot be taken back from the UTXO records: {why}"
        );
        found.push(Finding { since: Some(*since_ns), ..finding(ProblemCode::RollbackWaits, message) });
    }
    let (pruned, lost) = state.records.applier.counted();
    if lost.transactions > 0 {
        let (count, block) = (many(lost.transactions, "transaction"), lost.block);
        let message = format!(
            "{count} of blocks that were taken back, the last of block {block}, had been pruned and could not be restored"
        );
        found.push(finding(ProblemCode::NotRestored, message));
    }
    if pruned.transactions > 0 {
        let (count, block) = (many(pruned.transactions, "transaction"), pruned.block);
        let message = format!(
            "{count} of applied blocks, the last of block {block}, got no record, because an earlier record may have been pruned"
        );
        found.push(finding(ProblemCode::CountedAsPruned, message));
    }
    found
}
