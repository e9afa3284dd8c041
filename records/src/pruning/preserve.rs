//! Phase 1: preserves the parents of old unmined transactions (`pruner-service.md` 2.3). Any failure ends the run, because a child that is
//! resubmitted after its parent was deleted would miss its inputs.

use super::place::{PassTerms, Run};
use super::step::{Message, Step};
use crate::external::complete::STEP_INPUTS;
use crate::utxo::{Candidate, flag};
use ic_coppice_interface::{Txid, UtxoBlockedBy, UtxoRefusal};

/// Returns the reason that parents could not be preserved. The reason has no number of missing cycles, because all callers may read jobs
/// and the number reveals the balance.
pub fn blocked(slot: u32, txid: &[u8], parent: Option<&[u8]>, error: impl Into<UtxoRefusal>) -> UtxoBlockedBy {
    let error = error.into();
    let (parent, code, why) = (parent.map(Txid::from), error.code(), error.to_string());
    UtxoBlockedBy { slot, txid: txid.into(), parent, code, why }
}

/// Returns whether an operator has a record skipped that cannot be read, or whose parents cannot.
pub fn skips(message: &Message, slot: u32, txid: &[u8]) -> bool {
    message.unreadable.iter().any(|at| at.slot == slot && at.txid == txid)
}

/// Returns the number of references that the next step of a record changes, from input `from` on.
pub fn ops(of: &Candidate, from: u32) -> u64 {
    1 + u64::from((of.head.inputs - from.min(of.head.inputs)).min(STEP_INPUTS))
}

/// Returns the height up to which the parents of a young record are preserved (of a double spend none), or `None` if all parents of the
/// record are.
fn due_by(run: &Run, of: &Candidate, late: bool) -> Option<u32> {
    let since = of.head.unmined_since().filter(|since| !late && *since >= run.heights.cutoff)?;
    let young = |terms: PassTerms| since.saturating_add(terms.unmined_retention);
    run.full.map(|terms| if of.head.is(flag::CONFLICTING) { 0 } else { young(terms) })
}

/// Preserves the next parents of an unmined record, from input `from` on: all parents of an old or late record, and those of a young record
/// that are due before it is old. A `late` record then moves to its regular place in the index.
///
/// # Errors
/// The reason that the whole run ends. The steps done for this record can be repeated.
pub fn step(run: &Run, message: &mut Message, of: &Candidate, from: u32, late: bool) -> Result<Step, UtxoBlockedBy> {
    let skips_unreadable = skips(message, of.slot, &of.head.txid);
    let until = run.heights.current.saturating_add(message.settings.parent_preservation_blocks);
    let due_by = due_by(run, of, late);
    message.counts.old_unmined += u64::from(from == 0 && due_by.is_none());
    let utxo = &mut message.records.utxo;
    let done = utxo.preserve_parents(of, (from, STEP_INPUTS), (until, due_by), skips_unreadable);
    let (preserved, next) = done.map_err(|(parent, error)| blocked(of.slot, &of.head.txid, Some(&parent), error))?;
    message.counts.parents_preserved += preserved;
    if next < of.head.inputs {
        return Ok(Step::More(next));
    }
    // A late record that cannot be moved is examined again in the next pass.
    let is_moved = late && message.records.utxo.clear_late(of).is_ok();
    Ok(if is_moved { Step::Left } else { Step::Stays })
}
