//! Phase 2: deletes records whose height has come (`pruner-service.md` 2.3, 2.5, 2.6).
//!
//! ```text
//! is_due ─▶ deletable ─▶ check_spenders: defensive ─▶ external_data ─▶ mark_parents ─▶ shrink: pages of a large record ─▶ remove
//! Stays     kept         Left: postponed               Left: its row    More: further   More: further pages               Left
//!                        Checked: further outputs      waits            inputs
//! ```
//! A small double spend without an external blob marks its parents before its data is freed, because marking them may fail.
//! `utxo/delete.rs` has the operations on the record.

use super::place::Run;
use super::step::{Message, Step, Stepped};
use crate::deletion::Name;
use crate::external::complete::{RELEASED, STEP_INPUTS};
use crate::utxo::{Call, Candidate, Order, Parents, STEP_PAGES, Unstable, flag};
use ic_coppice_interface::text::hex;
use ic_coppice_interface::{NoMemory, UtxoPrunerSettings, UtxoRefusal};
use ic_coppice_storage::log;

/// Returns the blocks after which a record is examined again if it is unknown when its spender becomes stable.
fn blocks_until(retention: u32) -> u32 {
    retention.max(1)
}

/// Returns the number of spenders that the next step looks up, from output `outputs` on.
pub fn lookups(of: &Candidate, outputs: u32, settings: &UtxoPrunerSettings) -> u64 {
    let children = of.head.outputs.saturating_sub(outputs).min(settings.utxo_defensive_batch_read_size);
    if settings.utxo_defensive_enabled && !of.head.is(flag::DELETING) { u64::from(children) } else { 0 }
}

/// Returns the number of references that the next step removes, changes or looks up.
pub fn ops(of: &Candidate, lookups: u64) -> u64 {
    1 + u64::from(of.head.extra_pages).min(STEP_PAGES) + u64::from(of.head.inputs.min(STEP_INPUTS)) + lookups
}

/// Returns the number of pages that the next step may change, from input `inputs` on.
pub fn changes(of: &Candidate, inputs: u32) -> u64 {
    let parents = u64::from(of.head.inputs.saturating_sub(inputs).min(STEP_INPUTS));
    let of_each = if of.head.is(flag::CONFLICTING) { RELEASED } else { 1 };
    u64::from(of.head.extra_pages).min(STEP_PAGES) + of_each * parents
}

/// Returns whether the run examines a record that it reaches. After heights were lowered, a postponed record may wait for a height far
/// above; the run examines such a record, too.
fn is_due(run: &Run, retention: u32, of: &Candidate) -> bool {
    let (key, safe) = (of.head.key(Order::DeleteAt).unwrap_or(0), run.heights.safe);
    if key <= safe || !of.head.is(flag::POSTPONED) {
        return key <= safe;
    }
    run.again && key > safe.saturating_add(blocks_until(retention)) && of.head.delete_at().unwrap_or(0) <= safe
}

/// Does a step of the defensive check: looks up the next spenders of a record, from output `first` on. An unstable spender keeps the
/// record: the record is counted, and postponed to a later height or left in place.
fn check_spenders(run: &mut Run, message: &mut Message, of: &Candidate, first: u32) -> Stepped {
    let Message { records, settings, counts, .. } = message;
    let most = settings.utxo_defensive_batch_read_size;
    let (current, retention) = (run.heights.current, records.settings.block_height_retention);
    let (why, next) = records.utxo.unstable_child(of, (first, most), current, retention)?;
    let Some(why) = why else { return Ok(Step::Checked(next)) };
    let (count, blocks) = match why {
        Unstable::Unmined => (&mut counts.skipped_child_unmined, blocks_until(retention)),
        Unstable::Recent(stable_at) => (&mut counts.skipped_child_recent, stable_at - current),
        Unstable::Absent => (&mut counts.skipped_child_absent, blocks_until(retention)),
    };
    *count += 1;
    // Without memory for the move the record stays and is examined again in the next run.
    let moved = records.utxo.postpone(of, run.heights.safe.saturating_add(blocks));
    // If memory must grow first, the step is repeated, so the record is not noted yet.
    if !message.records.utxo.is_growth_wanted() {
        run.skipped.get_or_insert_default().note(&of.head.txid, &why);
    }
    Ok(if moved == Ok(true) { Step::Left } else { Step::Stays })
}

/// Marks the parents' outputs for a record that is being deleted.
fn mark_parents(run: &Run, message: &mut Message, of: &Candidate, parents: &Parents) -> Result<(), UtxoRefusal> {
    let Message { records, counts, .. } = message;
    let call = Call::at(run.heights.current, records.settings);
    records.utxo.mark_parents(of, parents, &call, counts)
}

/// Frees the external data of a record. Returns whether the record now waits for a worker to delete its external blob.
fn external_data(message: &mut Message, of: &Candidate) -> Result<bool, UtxoRefusal> {
    let Message { records, counts, .. } = message;
    let Some(store) = records.utxo.free_external(records.blobs, of, counts)? else { return Ok(false) };
    let (name, height) = (Name::from(&store), of.head.delete_at().unwrap_or(0));
    let scheduled = records.deletions.schedule_record(&name, height, &of.head.txid);
    let (_, is_of_another) = scheduled.map_err(NoMemory::from)?;
    // If the row belongs to another record, the blob is deleted with that record.
    if !is_of_another {
        records.utxo.mark_deleting(of, false);
        counts.records_deleting += 1;
    }
    Ok(!is_of_another)
}

/// Does the next step of a record of which `done` inputs and outputs are done. Keeps a record that cannot be deleted.
#[inline(always)]
pub fn step(run: &mut Run, message: &mut Message, of: &Candidate, done: (u32, u32)) -> Step {
    try_step(run, message, of, done).unwrap_or_else(|error| message.keep(&of.head.txid, error))
}

#[inline(always)]
fn try_step(run: &mut Run, message: &mut Message, of: &Candidate, (from, outputs): (u32, u32)) -> Stepped {
    // Phase 1 may have passed records that became due since; the next run deletes them.
    if of.head.is_left_by(run.number) || !is_due(run, message.records.settings.block_height_retention, of) {
        return Ok(Step::Stays);
    }
    let going = of.head.is(flag::DELETING);
    if !going {
        message.counts.processed += u64::from(outputs == 0);
        if !of.head.deletable() {
            return Err(UtxoRefusal::Corrupt { why: "the record is not eligible for deletion".into() });
        }
        if message.settings.utxo_defensive_enabled && outputs < of.head.outputs {
            let step = check_spenders(run, message, of, outputs)?;
            if step != Step::Checked(of.head.outputs) {
                return Ok(step);
            }
        }
    }
    let parents = message.records.utxo.parents(of, (from, STEP_INPUTS))?;
    // Marking the parents of a double spend may fail, and freed data could not be restored.
    let large = !going && (parents.next < of.head.inputs || message.records.utxo.is_large(of));
    let parents_first = of.head.is(flag::CONFLICTING) && !of.head.is(flag::EXTERNAL) && !large;
    if parents_first {
        mark_parents(run, message, of, &parents)?;
    }
    if !going {
        match external_data(message, of) {
            Ok(false) => {}
            Ok(true) => return Ok(Step::Left),
            Err(error) => {
                message.counts.external_errors += 1;
                let txid = hex(&of.head.txid);
                log::error(&format!("pruner: the record of transaction {txid} keeps its data: {error}"));
                return Ok(Step::Stays);
            }
        }
        if large {
            // The deletion is irreversible from here on: several steps mark the parents.
            message.records.utxo.mark_deleting(of, true);
            return Ok(Step::More(0));
        }
    }
    if !parents_first {
        mark_parents(run, message, of, &parents)?;
    }
    let Message { records, counts, .. } = message;
    if parents.next < of.head.inputs {
        return Ok(Step::More(parents.next));
    }
    if let Some(pages) = records.utxo.shrink(of) {
        counts.pages_deleted += pages;
        return Ok(Step::More(of.head.inputs));
    }
    records.utxo.remove(of, counts);
    Ok(Step::Left)
}
