//! Phase 2: records are deleted whose height has come (`pruner-service.md` 2.3, 2.5, 2.6). Of each in this order: defensive
//! check, external data, parents, the record with its pages, its places in the indexes.

use super::place::Run;
use super::skipped::hex;
use super::step::{Message, Step};
use crate::deletion::{Name, Scheduled};
use crate::external::complete::{RELEASED, STEP_INPUTS};
use crate::logs;
use crate::storage::memory::NoMemory;
use crate::text::refusal;
use crate::utxo::{Call, Candidate, ExternalData, Order, Parents, STEP_PAGES, Unstable, flag};
use coppice_interface::{UtxoPrunerSettings, UtxoRefusal};

/// Blocks after which a record is looked at again that is kept for a spender of which nobody knows when it is stable.
fn blocks_until(retention: u32) -> u32 {
    retention.max(1)
}

/// The highest height whose records are looked at; none while the phase is switched off.
pub fn last(run: &Run, settings: &UtxoPrunerSettings) -> Option<u32> {
    (!settings.disable_dah_cleaner).then_some(if run.again { u32::MAX } else { run.heights.safe })
}

/// Spenders that the next step looks up, from an output on.
pub fn lookups(of: &Candidate, outputs: u32, settings: &UtxoPrunerSettings) -> u64 {
    let children = of.head.outputs.saturating_sub(outputs).min(settings.utxo_defensive_batch_read_size);
    if settings.utxo_defensive_enabled && !of.head.is(flag::DELETING) { u64::from(children) } else { 0 }
}

/// References that the next step removes, changes or looks up.
pub fn ops(of: &Candidate, lookups: u64) -> u64 {
    1 + u64::from(of.head.extra_pages).min(STEP_PAGES) + u64::from(of.head.inputs.min(STEP_INPUTS)) + lookups
}

/// Pages that the next step changes, from an input on, as far as they may be very many.
pub fn changes(of: &Candidate, inputs: u32) -> u64 {
    let parents = u64::from(of.head.inputs.saturating_sub(inputs).min(STEP_INPUTS));
    let of_each = if of.head.is(flag::CONFLICTING) { RELEASED } else { 1 };
    u64::from(of.head.extra_pages).min(STEP_PAGES) + of_each * parents
}

/// Returns whether the run looks at a record that it reaches. After heights were lowered, a postponed record may wait for a height
/// far above; the run looks at such a record, too.
fn is_due(run: &Run, retention: u32, of: &Candidate) -> bool {
    let (key, safe) = (of.head.key(Order::DeleteAt).unwrap_or(0), run.heights.safe);
    if key <= safe || !of.head.is(flag::POSTPONED) {
        return key <= safe;
    }
    run.again && key > safe.saturating_add(blocks_until(retention)) && of.head.delete_at().unwrap_or(0) <= safe
}

/// Looks up the next spenders of a record, from an output on. Returns what becomes of it: one that is not stable keeps the record, which is
/// counted, and goes to another height or stays where it is.
fn children(run: &mut Run, message: &mut Message, of: &Candidate, first: u32) -> Result<Step, UtxoRefusal> {
    let Message { records, settings, counts, .. } = message;
    let most = settings.utxo_defensive_batch_read_size;
    let (current, retention) = (run.heights.current, records.settings.block_height_retention);
    let Some(why) = records.utxo.unstable_child(of, (first, most), current, retention)? else {
        return Ok(Step::Checked(first.saturating_add(most).min(of.head.outputs)));
    };
    let (count, blocks) = match why {
        Unstable::Unmined => (&mut counts.skipped_child_unmined, blocks_until(retention)),
        Unstable::Recent(stable_at) => (&mut counts.skipped_child_recent, stable_at - current),
        Unstable::Absent => (&mut counts.skipped_child_absent, blocks_until(retention)),
    };
    *count += 1;
    // Without memory for that it stays, and is looked at again in the next run.
    let moved = records.utxo.postpone(of, run.heights.safe.saturating_add(blocks));
    // If memory must grow first, the step is repeated, so the record is not noted yet.
    if !message.records.utxo.is_growth_wanted() {
        run.skipped.get_or_insert_default().note(&of.head.txid, &why);
    }
    Ok(if moved == Ok(true) { Step::Left } else { Step::Stays })
}

/// Tells parents that a record goes.
fn tell(run: &Run, message: &mut Message, of: &Candidate, parents: &Parents) -> Result<(), UtxoRefusal> {
    let Message { records, counts, .. } = message;
    let call = Call::at(run.heights.current, records.settings);
    let told = records.utxo.mark_parents(of, parents, &call)?;
    counts.parents_updated += told.marked;
    counts.outputs_released += told.released;
    Ok(())
}

/// Has the external data of a record go. Answers whether the record now waits for somebody to delete it outside.
fn external_data(message: &mut Message, of: &Candidate) -> Result<bool, UtxoRefusal> {
    let Message { records, counts, .. } = message;
    match records.utxo.free_external(records.blobs, of)? {
        ExternalData::None => {}
        ExternalData::Freed { missing: false } => counts.external_files_deleted += 1,
        ExternalData::Freed { missing: true } => counts.external_files_missing += 1,
        ExternalData::Outside(store) => {
            let (scheduled, pages) = records
                .deletions
                .release(&Name::from(&store), of.head.delete_at().unwrap_or(0), &of.head.txid)
                .map_err(NoMemory)?;
            records.utxo.note_pages(pages);
            match scheduled {
                Scheduled::Waits(_) => {
                    records.utxo.mark_deleting(of, false);
                    counts.records_deleting += 1;
                    return Ok(true);
                }
                // It was not held, and goes with the record that named it first.
                Scheduled::Another(_) => {}
            }
        }
    }
    Ok(false)
}

/// Does the next of a record, of which so many inputs and outputs are done. One that cannot be deleted is kept.
#[inline(always)]
pub fn step(run: &mut Run, message: &mut Message, of: &Candidate, done: (u32, u32)) -> Step {
    try_step(run, message, of, done).unwrap_or_else(|error| {
        message.keep(&of.head.txid, error);
        Step::Stays
    })
}

#[inline(always)]
fn try_step(
    run: &mut Run,
    message: &mut Message,
    of: &Candidate,
    (from, outputs): (u32, u32),
) -> Result<Step, UtxoRefusal> {
    // Phase 1 may have passed by what has become due since.
    if of.head.is_left_by(run.number) || !is_due(run, message.records.settings.block_height_retention, of) {
        return Ok(Step::Stays);
    }
    let going = of.head.is(flag::DELETING);
    if !going {
        message.counts.processed += u64::from(outputs == 0);
        if !of.head.deletable() {
            return Err(UtxoRefusal::Corrupt { why: "it is not eligible".into() });
        }
        if message.settings.utxo_defensive_enabled && outputs < of.head.outputs {
            let step = children(run, message, of, outputs)?;
            if step != Step::Checked(of.head.outputs) {
                return Ok(step);
            }
        }
    }
    let parents = message.records.utxo.parents(of, (from, STEP_INPUTS))?;
    // Of a double spend telling may fail, and what was freed would not come back.
    let large = !going && (parents.next < of.head.inputs || message.records.utxo.is_large(of));
    let tell_first = of.head.is(flag::CONFLICTING) && !of.head.is(flag::OUTSIDE) && !large;
    if tell_first {
        tell(run, message, of, &parents)?;
    }
    if !going {
        match external_data(message, of) {
            Ok(false) => {}
            Ok(true) => return Ok(Step::Left),
            Err(error) => {
                message.counts.external_errors += 1;
                let (txid, why) = (hex(&of.head.txid), refusal(error));
                logs::error(&format!("pruner: the record of transaction {txid} keeps its data: {why}"));
                return Ok(Step::Stays);
            }
        }
        if large {
            // From here on there is no way back: the parents are told over several steps.
            message.records.utxo.mark_deleting(of, true);
            return Ok(Step::More(0));
        }
    }
    if !tell_first {
        tell(run, message, of, &parents)?;
    }
    let Message { records, counts, .. } = message;
    if parents.next < of.head.inputs {
        return Ok(Step::More(parents.next));
    }
    if let Some(pages) = records.utxo.shrink(of) {
        counts.pages_deleted += pages;
        return Ok(Step::More(of.head.inputs));
    }
    records.utxo.remove(of);
    counts.records_deleted += 1;
    counts.pages_deleted += u64::from(of.head.extra_pages);
    Ok(Step::Left)
}
