//! Run: three phases over the ordered indexes at fixed heights, within a message's budget. An interrupted run continues at its place
//! (`place.rs`) in the next message.
//!
//! ```text
//! continue_run: the phases ─▶ pass: one index, up to a height ─▶ walk: its records ─▶ preserve::step | expire::step | delete::step
//! ```
//! A *late* record became old and unmined where phase 1 of this run had passed. A pass over late records comes first in each message.

use super::place::{At, Durations, Run};
use super::step::{Message, Step};
use super::{delete, expire, preserve};
use crate::utxo::{AfterCursor, Candidate, Cursor, LATE, LOOKUP_PAGES, Order, flag};
use coppice_interface::UtxoPrunerPhase::{DeleteAtHeight, ExpirePreservations, PreserveParents};
use coppice_interface::{PruneProgress, StopReason, UtxoJobEnd, UtxoPrunerPhase, UtxoRefusal};

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
        // Late records that are old and unmined come first.
        let late = message.records.utxo.has_late(run.heights.cutoff);
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
/// do. The `late` pass always belongs to phase 1: it examines old unmined records that entered where that phase had already passed.
fn terms(run: &Run, message: &Message, late: bool) -> (UtxoPrunerPhase, Order, Option<u32>) {
    let heights = &run.heights;
    let young = heights.cutoff.checked_sub(1);
    match run.phase {
        _ if late => (PreserveParents, Order::UnminedSince, young.map(|last| LATE | last)),
        PreserveParents => (PreserveParents, Order::UnminedSince, young),
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
        PreserveParents => walk(run, message, late, (phase, order, last)),
        ExpirePreservations => walk(run, message, false, (ExpirePreservations, Order::PreserveUntil, last)),
        DeleteAtHeight => walk(run, message, false, (DeleteAtHeight, Order::DeleteAt, last)),
    }
}

/// Walks over an index up to a height. Returns the reason if the walk stopped before.
#[inline(always)]
fn walk(
    run: &mut Run,
    message: &mut Message,
    late: bool,
    (phase, order, last): (UtxoPrunerPhase, Order, u32),
) -> Result<Option<StopReason>, UtxoJobEnd> {
    // The cursor's record may have moved since the last message; then the walk restarts at its key. Nothing moves the record during this
    // message.
    let mut moved = None;
    let (cursor, _) = run.place(late);
    if message.records.utxo.next_after(order, cursor, last) == AfterCursor::Moved {
        moved = Some(*cursor);
        cursor.slot = 0;
    }
    // The record after one that has left, if it is the first under its key.
    let mut hint = None;
    loop {
        let (cursor, part) = run.place(late);
        let first = hint.take().and_then(|hint| message.records.utxo.first_now(order, hint)).map(AfterCursor::Record);
        let next = match first.unwrap_or_else(|| message.records.utxo.next_after(order, cursor, last)) {
            AfterCursor::End => return Ok(None),
            AfterCursor::Record(next) if moved != Some(next) => next,
            AfterCursor::Record(_) | AfterCursor::Moved | AfterCursor::Broken => {
                let at = moved.unwrap_or(*cursor);
                let why = format!("what follows it under {} in the index {order:?}", at.key);
                unreadable(phase, message, &at, UtxoRefusal::Corrupt { why }, true)?;
                let Some(key) = cursor.key.checked_add(1) else { return Ok(None) };
                (*cursor, *part) = (Cursor { key, ..Cursor::default() }, None);
                continue;
            }
        };
        let at = At { phase, cursor: next };
        if message.budget.pieces == 0 || message.only.is_some_and(|only| only != at) {
            message.found = Some(at);
            return Ok(Some(StopReason::Ops));
        }
        message.records.utxo.note_read(LOOKUP_PAGES);
        let candidate = match message.passed_over.iter().any(|other| other.is_of(&at)) {
            true => Err(UtxoRefusal::Corrupt { why: "examining the record trapped repeatedly".into() }),
            false => message.records.utxo.candidate(next.slot, Some((order, next.key))),
        };
        let is_new = part.is_none_or(|(cursor, _)| cursor != next);
        let inputs = part.filter(|_| !is_new).map_or(0, |(_, inputs)| inputs);
        let reverts = message.records.utxo.reverts();
        let is_checked = |of: &Candidate| of.head.is(flag::CHECKED);
        let checked = run.checked.filter(|&(cursor, _, before)| (cursor, before) == (next, reverts));
        let checked = checked.filter(|_| candidate.as_ref().map_or(true, is_checked));
        let outputs = checked.map_or(0, |(_, outputs, _)| outputs);
        let counted = phase == DeleteAtHeight && is_new && outputs == 0;
        if let Err(reason) = admit(phase, message, candidate.as_ref().ok(), (inputs, outputs), counted) {
            return Ok(Some(reason));
        }
        // By reference, because moving a candidate copies 300 bytes.
        let of = match &candidate {
            Ok(of) => of,
            Err(error) => {
                unreadable(phase, message, &next, error.clone(), false)?;
                run.advance_past(late, next);
                continue;
            }
        };
        let counts = message.counts;
        let step = match phase {
            PreserveParents => preserve::step(run, message, of, inputs, late),
            ExpirePreservations => Ok(expire::step(run, message, of)),
            DeleteAtHeight => Ok(delete::step(run, message, of, (inputs, outputs))),
        };
        // A step that lacked memory changed nothing; it is repeated when memory has grown.
        if message.records.utxo.is_growth_wanted() && matches!(step, Ok(Step::Stays) | Err(_)) {
            message.counts = counts;
            return Ok(Some(StopReason::Memory));
        }
        match step? {
            Step::Left => {
                let (cursor, part) = run.place(late);
                *part = None;
                hint = if cursor.slot == 0 { of.next_in(order) } else { None };
            }
            Step::More(inputs) => *run.place(late).1 = Some((next, inputs)),
            Step::Checked(now) => {
                let reverts = message.records.utxo.reverts();
                if outputs == 0 {
                    message.records.utxo.begin_check(of);
                }
                run.checked = Some((next, now, reverts));
            }
            Step::Stays => run.advance_past(late, next),
        }
    }
}

/// Takes the next step of a record from the budget; `inputs` and `outputs` are the numbers that are done.
///
/// # Errors
/// The limit that the step would exceed.
#[inline(always)]
fn admit(
    phase: UtxoPrunerPhase,
    message: &mut Message,
    of: Option<&Candidate>,
    (inputs, outputs): (u32, u32),
    counted: bool,
) -> Result<(), StopReason> {
    let (ops, changes, reads) = match (phase, of) {
        (_, None) => (1, 1, 0),
        (PreserveParents, Some(of)) => (preserve::ops(of, inputs), 0, 0),
        (ExpirePreservations, Some(_)) => (1, 0, 0),
        (DeleteAtHeight, Some(of)) => {
            let lookups = delete::lookups(of, outputs, &message.settings);
            (delete::ops(of, lookups), delete::changes(of, inputs), LOOKUP_PAGES * lookups)
        }
    };
    let utxo = &message.records.utxo;
    message.budget.admit_step(ops, utxo.pages_changed() + changes, utxo.pages_read() + reads, counted)
}

/// Skips a record that cannot be read, or after which the index is `broken`.
///
/// # Errors
/// The reason that the whole run ends.
fn unreadable(
    phase: UtxoPrunerPhase,
    message: &mut Message,
    at: &Cursor,
    error: UtxoRefusal,
    broken: bool,
) -> Result<(), UtxoJobEnd> {
    if phase == PreserveParents {
        return preserve::unreadable(message, at, error, broken);
    }
    message.counts.processed += u64::from(phase == DeleteAtHeight);
    message.keep(&at.txid, error);
    Ok(())
}
