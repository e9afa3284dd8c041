//! Phase 2: records are deleted whose height has come (`pruner-service.md` 2.3, 2.5, 2.6). Of each in this order: defensive
//! check, external data, parents, the record with its pages, its places in the indexes.

use super::phase::{Context, Done, Phase, STEP_INPUTS, Step, keep};
use super::place::Run;
use super::skipped::hex;
use crate::deletion::{Name, Scheduled};
use crate::logs;
use crate::storage::memory::growth;
use crate::text::refusal;
use crate::utxo::{Call, Candidate, Cursor, ExternalData, LOOKUP_PAGES, Order, Parents, STEP_PAGES, Unstable};
use coppice_interface::{UtxoJobEnd, UtxoPrunerPhase, UtxoPrunerSettings, UtxoRefusal};

/// Phase 2.
pub struct DeleteAtHeight;

/// Pages that giving back an output changes, at most: the parent, its list of double spends, and its places in the ordered indexes.
pub const RELEASED: u64 = 8;

/// Blocks after which a record is looked at again that is kept for a spender of which nobody knows when it is stable.
fn blocks_until(retention: u32) -> u32 {
    retention.max(1)
}

/// Returns whether the run looks at a record that it reaches. After heights were lowered, a postponed record may wait for a height
/// far above; the run looks at such a record, too.
fn is_due(context: &Context, of: &Candidate) -> bool {
    let Context { records, run, .. } = context;
    let key = of.key(DeleteAtHeight::ORDER);
    if key <= run.safe || !of.is_postponed() {
        return key <= run.safe;
    }
    let longest = run.safe.saturating_add(blocks_until(records.settings.block_height_retention));
    run.again && key > longest && of.delete_at() <= run.safe
}

/// What looking up some spenders of a record came to.
enum Children {
    /// They are stable, as far as this output.
    Stable(u32),
    /// One is not: the record is kept, which is counted, and goes to another height or stays where it is.
    Unstable(Step),
}

/// Looks up the next spenders of a record.
fn children(context: &mut Context, of: &Candidate, first: u32) -> Result<Children, UtxoRefusal> {
    let Context { records, settings, run, counts, skipped, .. } = context;
    let most = settings.utxo_defensive_batch_read_size;
    let retention = records.settings.block_height_retention;
    let Some(why) = records.utxo.unstable_child(of, (first, most), run.current, retention)? else {
        return Ok(Children::Stable(first.saturating_add(most).min(of.outputs())));
    };
    let (count, blocks) = match why {
        Unstable::Unmined => (&mut counts.skipped_child_unmined, blocks_until(retention)),
        Unstable::Recent(stable_at) => (&mut counts.skipped_child_recent, stable_at - run.current),
        Unstable::Absent => (&mut counts.skipped_child_absent, blocks_until(retention)),
    };
    *count += 1;
    // Without memory for that it stays, and is looked at again in the next run.
    let moved = records.utxo.postpone(of, run.safe.saturating_add(blocks));
    // If memory must grow first, the step is repeated, so the record is not noted yet.
    if !growth::is_wanted() {
        skipped.get_or_insert_default().note(of.txid(), &why);
    }
    Ok(Children::Unstable(if moved == Ok(true) { Step::Left } else { Step::Stays }))
}

/// Tells parents that a record goes.
fn tell(context: &mut Context, of: &Candidate, parents: &Parents) -> Result<(), UtxoRefusal> {
    let Context { records, run, counts, .. } = context;
    let call = Call::of_pruner(run.current, records.settings);
    let told = records.utxo.tell(of, parents, &call)?;
    counts.parents_updated += told.marked;
    counts.outputs_released += told.released;
    Ok(())
}

/// Has the external data of a record go. Answers whether the record now waits for somebody to delete it outside.
fn external_data(context: &mut Context, of: &Candidate) -> Result<bool, UtxoRefusal> {
    let Context { records, counts, .. } = context;
    match records.utxo.free_external(records.blobs, of)? {
        ExternalData::None => {}
        ExternalData::Freed { missing: false } => counts.external_files_deleted += 1,
        ExternalData::Freed { missing: true } => counts.external_files_missing += 1,
        ExternalData::Outside(store) => {
            let (scheduled, pages) = records.deletions.release(&Name::from(&store), of.delete_at(), of.txid())?;
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

impl DeleteAtHeight {
    /// Spenders that the next step looks up.
    fn lookups(of: &Candidate, done: Done, settings: &UtxoPrunerSettings) -> u64 {
        let children = of.outputs().saturating_sub(done.outputs).min(settings.utxo_defensive_batch_read_size);
        if settings.utxo_defensive_enabled && !of.is_deleting() { u64::from(children) } else { 0 }
    }
}

impl Phase for DeleteAtHeight {
    const PHASE: UtxoPrunerPhase = UtxoPrunerPhase::DeleteAtHeight;
    const ORDER: Order = Order::DeleteAt;

    fn last(run: &Run, settings: &UtxoPrunerSettings) -> Option<u32> {
        (!settings.disable_dah_cleaner).then_some(if run.again { u32::MAX } else { run.safe })
    }

    fn ops(of: &Candidate, done: Done, settings: &UtxoPrunerSettings) -> u64 {
        let parents = of.inputs().min(STEP_INPUTS);
        1 + u64::from(of.pages()).min(STEP_PAGES) + u64::from(parents) + Self::lookups(of, done, settings)
    }

    fn reads(of: &Candidate, done: Done, settings: &UtxoPrunerSettings) -> u64 {
        LOOKUP_PAGES * Self::lookups(of, done, settings)
    }

    fn changes(of: &Candidate, done: Done) -> u64 {
        let parents = u64::from(of.inputs().saturating_sub(done.inputs).min(STEP_INPUTS));
        let of_each = if of.is_conflicting() { RELEASED } else { 1 };
        u64::from(of.pages()).min(STEP_PAGES) + of_each * parents
    }

    fn step(context: &mut Context, of: &Candidate, done: Done) -> Result<Step, UtxoJobEnd> {
        let stays = |context: &mut Context, error: &UtxoRefusal| {
            keep(context, of.txid(), error);
            Ok(Step::Stays)
        };
        // Phase 1 may have passed by what has become due since.
        if of.is_left_by(context.run.number) || !is_due(context, of) {
            return Ok(Step::Stays);
        }
        let going = of.is_deleting();
        if !going {
            context.counts.processed += u64::from(done.outputs == 0);
            if !of.may_go() {
                return stays(context, &UtxoRefusal::Corrupt { why: "it is not eligible".into() });
            }
            if context.settings.utxo_defensive_enabled && done.outputs < of.outputs() {
                match children(context, of, done.outputs) {
                    Ok(Children::Stable(outputs)) if outputs < of.outputs() => return Ok(Step::Checked(outputs)),
                    Ok(Children::Stable(_)) => {}
                    Ok(Children::Unstable(step)) => return Ok(step),
                    Err(error) => return stays(context, &error),
                }
            }
        }
        let from = done.inputs;
        let parents = match context.records.utxo.parents(of, (from, STEP_INPUTS)) {
            Ok(parents) => parents,
            Err(error) => return stays(context, &error),
        };
        // Of a double spend telling may fail, and what was freed would not come back.
        let large = !going && (parents.next < of.inputs() || context.records.utxo.is_large(of));
        let tell_first = of.is_conflicting() && !of.is_outside() && !large;
        if tell_first && let Err(error) = tell(context, of, &parents) {
            return stays(context, &error);
        }
        if !going {
            match external_data(context, of) {
                Ok(false) => {}
                Ok(true) => return Ok(Step::Left),
                Err(error) => {
                    context.counts.external_errors += 1;
                    logs::error(&format!(
                        "pruner: the record of transaction {} keeps its data: {}",
                        hex(of.txid()),
                        refusal(error)
                    ));
                    return Ok(Step::Stays);
                }
            }
            if large {
                // From here on there is no way back: the parents are told over several steps.
                context.records.utxo.mark_deleting(of, true);
                return Ok(Step::More(0));
            }
        }
        if !tell_first && let Err(error) = tell(context, of, &parents) {
            return stays(context, &error);
        }
        let Context { records, counts, .. } = context;
        if parents.next < of.inputs() {
            return Ok(Step::More(parents.next));
        }
        if let Some(pages) = records.utxo.shrink(of) {
            counts.pages_deleted += pages;
            return Ok(Step::More(of.inputs()));
        }
        records.utxo.remove(of);
        counts.records_deleted += 1;
        counts.pages_deleted += u64::from(of.pages());
        Ok(Step::Left)
    }

    fn unreadable(context: &mut Context, at: &Cursor, error: UtxoRefusal, _: bool) -> Result<(), UtxoJobEnd> {
        context.counts.processed += 1;
        keep(context, &at.txid, &error);
        Ok(())
    }
}
