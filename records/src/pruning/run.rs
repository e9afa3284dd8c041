//! Run: three phases over the ordered indexes at fixed heights, within a message's budget. An interrupted run continues at its place
//! (`place.rs`) in the next message.
//!
//! ```text
//! continue_run: the phases ─▶ pass: one index, up to a height ─▶ walk: its records ─▶ preserve::step | expire::step | delete::step
//!                                                                (walk.rs)
//! ```
//! A pass over *late* records (`utxo/order.rs`) comes first in each message, whatever the phase.

use super::place::{Durations, Run};
use super::step::Message;
use super::walk::{Walk, walk};
use crate::utxo::{Cursor, LATE, Order};
use ic_coppice_interface::UtxoPrunerPhase::{DeleteAtHeight, ExpirePreservations, PreserveParents};
use ic_coppice_interface::{PruneProgress, StopReason, UtxoBlockedBy};

/// Continues a run within a message's budget. An interruption is reported in the result, not as an error.
///
/// # Errors
/// The reason that the run fails.
pub fn continue_run(
    run: &mut Run,
    message: &mut Message,
    durations: &mut Durations,
    now_ns: u64,
) -> Result<PruneProgress, UtxoBlockedBy> {
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

/// Does a pass over an index. Returns the reason if it stopped before the end. The `late` pass always belongs to phase 1, and examines all
/// late records, young ones too.
fn pass(run: &mut Run, message: &mut Message, late: bool) -> Result<Option<StopReason>, UtxoBlockedBy> {
    let phase = if late { PreserveParents } else { run.phase };
    // The highest height whose records are examined, or `None` if there is nothing to do, or the phase is switched off.
    let last = match phase {
        PreserveParents if late => Some(u32::MAX),
        PreserveParents if run.full.is_some() => Some(LATE - 1),
        PreserveParents => run.heights.cutoff.checked_sub(1),
        ExpirePreservations => Some(run.heights.current),
        DeleteAtHeight if message.settings.disable_dah_cleaner => None,
        DeleteAtHeight if run.again => Some(u32::MAX),
        DeleteAtHeight => Some(run.heights.safe),
    };
    let Some(last) = last else { return Ok(None) };
    if late {
        run.late_cursor = Cursor { key: LATE, ..Cursor::default() };
    }
    // A separate call for each phase, because one for all would cost 2 % more per record.
    match phase {
        PreserveParents => walk(run, message, Walk { phase: PreserveParents, order: Order::UnminedSince, last, late }),
        ExpirePreservations => {
            let order = Order::PreserveUntil;
            walk(run, message, Walk { phase: ExpirePreservations, order, last, late: false })
        }
        DeleteAtHeight => walk(run, message, Walk { phase: DeleteAtHeight, order: Order::DeleteAt, last, late: false }),
    }
}
