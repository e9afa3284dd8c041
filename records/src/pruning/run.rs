//! Run: three phases over the ordered indexes at fixed heights, within a message's budget. An interrupted run continues at its place
//! (`place.rs`) in the next message.
//!
//! ```text
//! continue_run: the phases ─▶ pass: one index, up to a height ─▶ walk: its records ─▶ preserve::step | expire::step | delete::step
//!                                                                (walk.rs)
//! ```
//! A pass over *late* records (`utxo/order.rs`) comes first in each message, whatever the phase.

use super::delete;
use super::place::{Durations, Run};
use super::step::Message;
use super::walk::{Walk, walk};
use crate::utxo::{Cursor, LATE, Order};
use ic_coppice_interface::UtxoPrunerPhase::{self, DeleteAtHeight, ExpirePreservations, PreserveParents};
use ic_coppice_interface::{PruneProgress, StopReason, UtxoJobEnd};

/// Continues a run within a message's budget. An interruption is reported in the result, not as an error.
///
/// # Errors
/// The reason that the run fails.
pub fn continue_run(
    run: &mut Run,
    message: &mut Message,
    durations: &mut Durations,
    now_ns: u64,
) -> Result<PruneProgress, UtxoJobEnd> {
    loop {
        let late = message.records.utxo.has_late();
        let mut stopped = if late { pass(run, message, true)? } else { None };
        if stopped.is_none() {
            stopped = pass(run, message, false)?;
        }
        if stopped.is_some() {
            return Ok(PruneProgress::HasMore { reason: stopped });
        }
        let (seconds, ended) = &mut durations[run.phase as usize];
        *seconds += now_ns.saturating_sub(run.phase_since) / 1_000_000_000;
        *ended += 1;
        match run.phase {
            PreserveParents => run.enter(ExpirePreservations, now_ns),
            ExpirePreservations => run.enter(DeleteAtHeight, now_ns),
            DeleteAtHeight => return Ok(PruneProgress::Finished),
        }
    }
}

/// Returns the terms of a pass: its phase, its index, and the highest height whose records are examined, or `None` if there is nothing to
/// do. The `late` pass always belongs to phase 1, and examines all late records, young ones too.
fn terms(run: &Run, message: &Message, late: bool) -> (UtxoPrunerPhase, Order, Option<u32>) {
    let heights = &run.heights;
    let oldest = if run.full.is_some() { Some(LATE - 1) } else { heights.cutoff.checked_sub(1) };
    match run.phase {
        _ if late => (PreserveParents, Order::UnminedSince, Some(u32::MAX)),
        PreserveParents => (PreserveParents, Order::UnminedSince, oldest),
        ExpirePreservations => (ExpirePreservations, Order::PreserveUntil, Some(heights.current)),
        DeleteAtHeight => (DeleteAtHeight, Order::DeleteAt, delete::last(run, &message.settings)),
    }
}

/// Does a pass over an index. Returns the reason if it stopped before the end.
fn pass(run: &mut Run, message: &mut Message, late: bool) -> Result<Option<StopReason>, UtxoJobEnd> {
    let (phase, order, last) = terms(run, message, late);
    let Some(last) = last else { return Ok(None) };
    if late {
        run.late_cursor = Cursor { key: LATE, ..Cursor::default() };
    }
    // A separate call for each phase, because one for all would cost 2 % more per record.
    match phase {
        PreserveParents => walk(run, message, Walk { phase: PreserveParents, order, last, late }),
        ExpirePreservations => {
            let order = Order::PreserveUntil;
            walk(run, message, Walk { phase: ExpirePreservations, order, last, late: false })
        }
        DeleteAtHeight => walk(run, message, Walk { phase: DeleteAtHeight, order: Order::DeleteAt, last, late: false }),
    }
}
