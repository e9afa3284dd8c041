//! Phase 1 and what lies between the phases: parents of old unmined transactions are preserved, and preservations that have
//! expired are cleared (`pruner-service.md` 2.3).

use super::phase::{Context, Done, Phase, STEP_INPUTS, Step, keep};
use super::place::Run;
use crate::utxo::{Call, Candidate, Cursor, LATE, Order};
use coppice_interface::{Txid, UtxoBlockedBy, UtxoJobEnd, UtxoPrunerPhase, UtxoPrunerSettings, UtxoRefusal};

/// Phase 1. Should a parent go before its child is resubmitted, the child would miss its inputs: any failure ends the run.
pub struct PreserveParents;

fn blocked(slot: u32, txid: &[u8], parent: Option<&[u8]>, error: UtxoRefusal) -> UtxoJobEnd {
    let parent = parent.map(Txid::from);
    UtxoJobEnd::PreserveParents(UtxoBlockedBy { slot, txid: txid.into(), parent, error: error.into() })
}

fn is_set_aside(context: &Context, slot: u32, txid: &[u8]) -> bool {
    context.set_aside.iter().any(|aside| aside.slot == slot && aside.txid == txid)
}

impl Phase for PreserveParents {
    const PHASE: UtxoPrunerPhase = UtxoPrunerPhase::PreserveParents;
    const ORDER: Order = Order::UnminedSince;

    fn last(run: &Run, _: &UtxoPrunerSettings) -> Option<u32> {
        run.cutoff.checked_sub(1)
    }

    fn ops(of: &Candidate, done: Done, _: &UtxoPrunerSettings) -> u64 {
        1 + u64::from((of.inputs() - done.inputs.min(of.inputs())).min(STEP_INPUTS))
    }

    fn step(context: &mut Context, of: &Candidate, done: Done) -> Result<Step, UtxoJobEnd> {
        let next = preserve(context, of, done)?;
        Ok(if next < of.inputs() { Step::More(next) } else { Step::Stays })
    }

    fn unreadable(context: &mut Context, at: &Cursor, error: UtxoRefusal, broken: bool) -> Result<(), UtxoJobEnd> {
        // Where the index is broken, others lie behind that nobody would look at.
        if !broken && is_set_aside(context, at.slot, &at.txid) {
            return Ok(());
        }
        Err(blocked(at.slot, &at.txid, None, error))
    }
}

/// Preserves parents of an old unmined record, and says how many of its inputs are done.
fn preserve(context: &mut Context, of: &Candidate, done: Done) -> Result<u32, UtxoJobEnd> {
    let set_aside = is_set_aside(context, of.slot(), of.txid());
    let Context { records, settings, run, counts, .. } = context;
    let until = run.current.saturating_add(settings.parent_preservation_blocks);
    counts.old_unmined += u64::from(done.inputs == 0);
    match records.utxo.preserve_parents(of, (done.inputs, STEP_INPUTS), until, set_aside) {
        Ok(preserved) => counts.parents_preserved += preserved,
        Err((parent, error)) => return Err(blocked(of.slot(), of.txid(), Some(&parent), error)),
    }
    Ok(done.inputs.saturating_add(STEP_INPUTS))
}

/// Phase 1, of what became old and unmined where it had looked already: that, and nothing else, is looked at before more is
/// deleted.
pub struct PreserveLate;

impl Phase for PreserveLate {
    const PHASE: UtxoPrunerPhase = UtxoPrunerPhase::PreserveParents;
    const ORDER: Order = Order::UnminedSince;

    fn last(run: &Run, _: &UtxoPrunerSettings) -> Option<u32> {
        Some(LATE | run.cutoff.checked_sub(1)?)
    }

    fn ops(of: &Candidate, done: Done, settings: &UtxoPrunerSettings) -> u64 {
        PreserveParents::ops(of, done, settings)
    }

    fn step(context: &mut Context, of: &Candidate, done: Done) -> Result<Step, UtxoJobEnd> {
        // A pass that is under way, and has not come to its height, will come by.
        if !context.run.comes_by(of.unmined_since()) {
            let next = preserve(context, of, done)?;
            if next < of.inputs() {
                return Ok(Step::More(next));
            }
        }
        match context.records.utxo.on_time(of) {
            Ok(()) => Ok(Step::Left),
            // It is looked at once more the next time.
            Err(_) => Ok(Step::Stays),
        }
    }

    fn unreadable(context: &mut Context, at: &Cursor, error: UtxoRefusal, broken: bool) -> Result<(), UtxoJobEnd> {
        PreserveParents::unreadable(context, at, error, broken)
    }
}

/// Between the phases. What cannot be cleared stays preserved, which loses nothing.
pub struct ExpirePreservations;

impl Phase for ExpirePreservations {
    const PHASE: UtxoPrunerPhase = UtxoPrunerPhase::ExpirePreservations;
    const ORDER: Order = Order::PreserveUntil;

    fn last(run: &Run, _: &UtxoPrunerSettings) -> Option<u32> {
        Some(run.current)
    }

    fn ops(_: &Candidate, _: Done, _: &UtxoPrunerSettings) -> u64 {
        1
    }

    fn step(context: &mut Context, of: &Candidate, _: Done) -> Result<Step, UtxoJobEnd> {
        let Context { records, run, .. } = &mut *context;
        // Without retention it would get no height, and never another one.
        if records.settings.block_height_retention == 0 {
            return Ok(Step::Stays);
        }
        let call = Call::of_pruner(run.current, records.settings);
        match records.utxo.expire_preservation(of, &call) {
            Ok(()) => context.counts.preservations_expired += 1,
            Err(error) => {
                keep(context, of.txid(), &error);
                return Ok(Step::Stays);
            }
        }
        Ok(Step::Left)
    }

    fn unreadable(context: &mut Context, at: &Cursor, error: UtxoRefusal, _: bool) -> Result<(), UtxoJobEnd> {
        keep(context, &at.txid, &error);
        Ok(())
    }
}
