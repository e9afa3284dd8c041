//! Phase 1 and what lies between the phases: parents of old unmined transactions are preserved, and preservations that have
//! expired are cleared (`pruner-service.md` 2.3).

use super::phase::{Context, Phase, STEP_INPUTS, Step, pass_over};
use super::run::Run;
use crate::api::{BlockedBy, JobEnd, PrunerSettings, UtxoError};
use crate::runtime;
use crate::utxo::{Call, Candidate, Order, Place};
use serde_bytes::ByteBuf;

/// Phase 1. Should a parent go before its child is resubmitted, the child would miss its inputs: any failure ends the run.
pub struct PreserveParents;

fn blocked(slot: u32, txid: &[u8], parent: Option<&[u8]>, error: UtxoError) -> JobEnd {
    let parent = parent.map(ByteBuf::from);
    JobEnd::PreserveParents(BlockedBy { slot, txid: ByteBuf::from(txid), parent, error })
}

impl Phase for PreserveParents {
    const ORDER: Order = Order::UnminedSince;

    fn last(run: &Run, _: &PrunerSettings) -> Option<u32> {
        run.cutoff.checked_sub(1)
    }

    fn ops(of: &Candidate, from: u32, _: &PrunerSettings) -> u64 {
        1 + u64::from((of.inputs() - from.min(of.inputs())).min(STEP_INPUTS))
    }

    fn step(context: &mut Context, of: &Candidate, from: u32) -> Result<Step, JobEnd> {
        let Context { records, settings, run, counts, set_aside } = context;
        let until = run.current.saturating_add(settings.parent_preservation_blocks);
        let set_aside = set_aside.contains(&of.slot());
        counts.old_unmined += u64::from(from == 0);
        match records.utxo.preserve_parents(of, (from, STEP_INPUTS), until, set_aside) {
            Ok(preserved) => counts.parents_preserved += preserved,
            Err((parent, error)) => return Err(blocked(of.slot(), of.txid(), Some(&parent), error)),
        }
        let next = from.saturating_add(STEP_INPUTS);
        Ok(if next < of.inputs() { Step::More(next) } else { Step::Stays })
    }

    fn unreadable(context: &mut Context, place: &Place, error: UtxoError) -> Result<(), JobEnd> {
        if context.set_aside.contains(&place.slot) {
            Ok(())
        } else {
            Err(blocked(place.slot, &place.txid, None, error))
        }
    }
}

/// Between the phases.
pub struct ExpirePreservations;

impl Phase for ExpirePreservations {
    const ORDER: Order = Order::PreserveUntil;

    fn last(run: &Run, _: &PrunerSettings) -> Option<u32> {
        Some(run.current)
    }

    fn ops(_: &Candidate, _: u32, _: &PrunerSettings) -> u64 {
        1
    }

    fn step(context: &mut Context, of: &Candidate, _: u32) -> Result<Step, JobEnd> {
        let Context { records, run, counts, .. } = context;
        let call = Call { height: run.current, now_ns: runtime::time_ns(), settings: records.settings };
        records.utxo.expire_preservation(of, &call).map_err(JobEnd::ExpirePreservations)?;
        counts.preservations_expired += 1;
        Ok(Step::Left)
    }

    fn unreadable(context: &mut Context, place: &Place, error: UtxoError) -> Result<(), JobEnd> {
        pass_over(context, place, &error);
        Ok(())
    }
}
