//! Phase 1: parents of old unmined transactions are preserved (`pruner-service.md` 2.3). Should a parent go before its child is resubmitted,
//! the child would miss its inputs: any failure ends the run.

use super::place::Run;
use super::step::{Message, Step};
use crate::external::complete::STEP_INPUTS;
use crate::utxo::{Candidate, Cursor};
use coppice_interface::{Txid, UtxoBlockedBy, UtxoError, UtxoJobEnd, UtxoRefusal};

/// The end of a run whose parents were not preserved. Everybody may read jobs, and how many cycles are missing gives the balance away.
pub fn blocked(slot: u32, txid: &[u8], parent: Option<&[u8]>, error: impl Into<UtxoError>) -> UtxoJobEnd {
    let mut error = error.into();
    if let UtxoError::LowCycles { missing } | UtxoError::ReservedCyclesLimit { missing } = &mut error {
        *missing = 0;
    }
    let parent = parent.map(Txid::from);
    UtxoJobEnd::PreserveParents(UtxoBlockedBy { slot, txid: txid.into(), parent, error })
}

fn is_set_aside(message: &Message, slot: u32, txid: &[u8]) -> bool {
    message.set_aside.iter().any(|aside| aside.slot == slot && aside.txid == txid)
}

/// References that the next step of a record changes, from an input on.
pub fn ops(of: &Candidate, from: u32) -> u64 {
    1 + u64::from((of.head.inputs - from.min(of.head.inputs)).min(STEP_INPUTS))
}

/// Preserves the next parents of an old unmined record, from an input on. A `late` one became old and unmined where the phase had looked
/// already; it is looked at before more is deleted, and goes then where it belongs.
///
/// # Errors
/// Why the whole run ends. What was done of this record can be done again.
pub fn step(run: &Run, message: &mut Message, of: &Candidate, from: u32, late: bool) -> Result<Step, UtxoJobEnd> {
    if !late || !run.will_reach(of.head.unmined_since().unwrap_or(0)) {
        let set_aside = is_set_aside(message, of.slot, &of.head.txid);
        let until = run.heights.current.saturating_add(message.settings.parent_preservation_blocks);
        message.counts.old_unmined += u64::from(from == 0);
        match message.records.utxo.preserve_parents(of, (from, STEP_INPUTS), until, set_aside) {
            Ok(preserved) => message.counts.parents_preserved += preserved,
            Err((parent, error)) => return Err(blocked(of.slot, &of.head.txid, Some(&parent), error)),
        }
        let next = from.saturating_add(STEP_INPUTS);
        if next < of.head.inputs {
            return Ok(Step::More(next));
        }
    }
    // A late one that cannot be moved is looked at once more the next time.
    let is_moved = late && message.records.utxo.clear_late(of).is_ok();
    Ok(if is_moved { Step::Left } else { Step::Stays })
}

/// Passes over a record that cannot be read, if it was set aside. Where the index is `broken`, others lie behind that nobody would look at.
///
/// # Errors
/// Why the whole run ends.
pub fn unreadable(message: &Message, at: &Cursor, error: UtxoRefusal, broken: bool) -> Result<(), UtxoJobEnd> {
    if !broken && is_set_aside(message, at.slot, &at.txid) {
        return Ok(());
    }
    Err(blocked(at.slot, &at.txid, None, error))
}
