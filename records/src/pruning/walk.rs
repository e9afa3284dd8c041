//! Walk over the records of an ordered index: for each record the next step of its phase, within a message's budget.
//!
//! For each record, [`walk`]
//!
//! 1. finds the record after the cursor ([`next_record`]), or skips the rest of a key after which the index is broken ([`skip_key`]);
//! 2. reads the record ([`read`]), and how much of it earlier messages have done ([`Done`]);
//! 3. takes the step from the budget ([`admit`]), or ends the message;
//! 4. does the step of the phase, and keeps the new place ([`keep_place`]).

use super::place::{At, Run};
use super::step::{Message, Step};
use super::{delete, expire, preserve};
use crate::utxo::{AfterCursor, Candidate, Cursor, LOOKUP_PAGES, Order, flag};
use ic_coppice_interface::UtxoPrunerPhase::{self, DeleteAtHeight, ExpirePreservations, PreserveParents};
use ic_coppice_interface::{StopReason, UtxoBlockedBy, UtxoRefusal};
use ic_coppice_storage::slots::SlotId;

/// Bounds of a walk.
#[derive(Clone, Copy)]
pub(super) struct Walk {
    /// The phase whose steps are done.
    pub(super) phase: UtxoPrunerPhase,
    /// The index.
    pub(super) order: Order,
    /// The highest height whose records are examined.
    pub(super) last: u32,
    /// True for the pass over late records.
    pub(super) late: bool,
}

/// Part of a record that is done: its inputs and its outputs.
#[derive(Clone, Copy)]
struct Done {
    inputs: u32,
    outputs: u32,
    /// True if no step of the record was done.
    is_new: bool,
}

/// Walks over an index up to a height. Returns the reason if the walk stopped before.
#[inline(always)]
pub(super) fn walk(run: &mut Run, message: &mut Message, walk: Walk) -> Result<Option<StopReason>, UtxoBlockedBy> {
    let phase = walk.phase;
    let moved = rewind_moved(run, message, walk);
    // The record after one that has left, if it is the first under its key.
    let mut hint = None;
    loop {
        let next = match next_record(run, message, walk, hint.take()) {
            AfterCursor::End => return Ok(None),
            AfterCursor::Record(next) if moved != Some(next) => next,
            AfterCursor::Record(_) | AfterCursor::Moved | AfterCursor::Broken => {
                if skip_key(run, message, walk, moved)? {
                    continue;
                }
                return Ok(None);
            }
        };
        let at = At { phase, cursor: next };
        if message.budget.pieces == 0 || message.only.is_some_and(|only| only != at) {
            message.found = Some(at);
            return Ok(Some(StopReason::Ops));
        }
        let candidate = read(message, walk, &at);
        let done = Done::of(run, message, walk, &next, candidate.as_ref().ok());
        if let Err(reason) = admit(phase, message, candidate.as_ref().ok(), done) {
            return Ok(Some(reason));
        }
        // By reference, because moving a candidate copies 300 bytes.
        let of = match &candidate {
            Ok(of) => of,
            Err(error) => {
                unreadable(message, walk, &next, error.clone())?;
                run.advance_past(walk.late, next);
                continue;
            }
        };
        let counts = message.counts;
        let step = match phase {
            PreserveParents => preserve::step(run, message, of, done.inputs, walk.late),
            ExpirePreservations => Ok(expire::step(run, message, of)),
            DeleteAtHeight => Ok(delete::step(run, message, of, (done.inputs, done.outputs))),
        };
        // A step that lacked memory changed nothing; it is repeated when memory has grown.
        if message.records.utxo.is_growth_wanted() && matches!(step, Ok(Step::Stays) | Err(_)) {
            message.counts = counts;
            return Ok(Some(StopReason::Memory));
        }
        hint = keep_place(run, message, walk, of, next, done, step?);
    }
}

/// Moves the cursor back to the beginning of its key if its record has moved since the last message, and returns that record. Nothing moves
/// the record during this message.
#[inline(always)]
fn rewind_moved(run: &mut Run, message: &Message, walk: Walk) -> Option<Cursor> {
    let (cursor, _) = run.place(walk.late);
    if message.records.utxo.next_after(walk.order, cursor, walk.last) != AfterCursor::Moved {
        return None;
    }
    let moved = *cursor;
    cursor.slot = 0;
    Some(moved)
}

/// Returns the record after the cursor: that of the hint if it still is the first under its key.
#[inline(always)]
fn next_record(run: &mut Run, message: &Message, walk: Walk, hint: Option<(u32, SlotId)>) -> AfterCursor {
    let (cursor, _) = run.place(walk.late);
    let first = hint.and_then(|hint| message.records.utxo.first_now(walk.order, hint)).map(AfterCursor::Record);
    first.unwrap_or_else(|| message.records.utxo.next_after(walk.order, cursor, walk.last))
}

/// Skips what follows the cursor under its key, where the index is broken; phase 1 does not. Returns whether there is a next key.
///
/// # Errors
/// The reason that the whole run ends.
fn skip_key(run: &mut Run, message: &mut Message, walk: Walk, moved: Option<Cursor>) -> Result<bool, UtxoBlockedBy> {
    let (cursor, part) = run.place(walk.late);
    let at = moved.unwrap_or(*cursor);
    let error = UtxoRefusal::Corrupt { why: format!("what follows it under {} in the index {:?}", at.key, walk.order) };
    // Phase 1 would miss the records after the break.
    if walk.phase == PreserveParents {
        return Err(preserve::blocked(at.slot, &at.txid, None, error));
    }
    unreadable(message, walk, &at, error)?;
    let Some(key) = cursor.key.checked_add(1) else { return Ok(false) };
    (*cursor, *part) = (Cursor { key, ..Cursor::default() }, None);
    Ok(true)
}

/// Reads a record, unless examining it trapped repeatedly.
///
/// # Errors
/// `Corrupt`.
#[inline(always)]
fn read(message: &mut Message, walk: Walk, at: &At) -> Result<Candidate, UtxoRefusal> {
    message.records.utxo.note_read(LOOKUP_PAGES);
    if message.skipped.iter().any(|other| other.is_of(at)) {
        return Err(UtxoRefusal::Corrupt { why: "examining the record trapped repeatedly".into() });
    }
    message.records.utxo.candidate(at.cursor.slot, Some((walk.order, at.cursor.key)))
}

impl Done {
    /// Returns the part of a record that is done. Outputs count only if nothing was reverted since they were checked.
    #[inline(always)]
    fn of(run: &mut Run, message: &Message, walk: Walk, next: &Cursor, candidate: Option<&Candidate>) -> Self {
        let (_, part) = run.place(walk.late);
        let part = part.filter(|(cursor, _)| cursor == next);
        let reverts = message.records.utxo.reverts();
        let checked = run.checked.filter(|&(cursor, _, before)| (cursor, before) == (*next, reverts));
        let checked = checked.filter(|_| candidate.is_none_or(|of| of.head.is(flag::CHECKED)));
        let inputs = part.map_or(0, |(_, inputs)| inputs);
        Self { inputs, outputs: checked.map_or(0, |(_, outputs, _)| outputs), is_new: part.is_none() }
    }
}

/// Keeps the place after a step. Returns a hint for the next record if this one has left the index.
#[inline(always)]
fn keep_place(
    run: &mut Run,
    message: &mut Message,
    walk: Walk,
    of: &Candidate,
    next: Cursor,
    done: Done,
    step: Step,
) -> Option<(u32, SlotId)> {
    match step {
        Step::Left => {
            let (cursor, part) = run.place(walk.late);
            *part = None;
            return if cursor.slot == 0 { of.next_in(walk.order) } else { None };
        }
        Step::More(inputs) => *run.place(walk.late).1 = Some((next, inputs)),
        Step::Checked(now) => {
            let reverts = message.records.utxo.reverts();
            if done.outputs == 0 {
                message.records.utxo.begin_check(of);
            }
            run.checked = Some((next, now, reverts));
        }
        Step::Stays => run.advance_past(walk.late, next),
    }
    None
}

/// Takes the next step of a record from the budget.
///
/// # Errors
/// The limit that the step would exceed.
#[inline(always)]
fn admit(phase: UtxoPrunerPhase, message: &mut Message, of: Option<&Candidate>, done: Done) -> Result<(), StopReason> {
    let Done { inputs, outputs, is_new } = done;
    let counted = phase == DeleteAtHeight && is_new && outputs == 0;
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
    let pages = (utxo.pages_changed() + changes, utxo.pages_read() + reads);
    message.budget.admit_step(ops, pages.0, pages.1, counted).map_err(StopReason::from)
}

/// Passes over a record that cannot be read. Phase 1 passes over only what an operator skips.
///
/// # Errors
/// The reason that the whole run ends.
fn unreadable(message: &mut Message, walk: Walk, at: &Cursor, error: UtxoRefusal) -> Result<(), UtxoBlockedBy> {
    if walk.phase == PreserveParents {
        let is_skipped = preserve::skips(message, at.slot, &at.txid);
        return if is_skipped { Ok(()) } else { Err(preserve::blocked(at.slot, &at.txid, None, error)) };
    }
    message.counts.processed += u64::from(walk.phase == DeleteAtHeight);
    message.keep(&at.txid, error);
    Ok(())
}
