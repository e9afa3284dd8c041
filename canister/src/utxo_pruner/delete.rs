//! Phase 2: records are deleted whose height has come (`pruner-service.md` 2.3, 2.5, 2.6). Of each in this order: defensive
//! check, external data, parents, the record with its pages, its places in the indexes.

use super::phase::{Context, Phase, STEP_INPUTS, Step, keep};
use super::run::Run;
use crate::api::{ExternalStore, FileType, JobEnd, PrunerSettings, UtxoError};
use crate::deletion::{BlobName, DeletionQueue, Scheduled};
use crate::runtime;
use crate::utxo::{Candidate, Cursor, ExternalData, Order, Unstable};

/// Phase 2.
pub struct DeleteAtHeight;

fn schedule(queue: &mut DeletionQueue, store: &ExternalStore, of: &Candidate) -> Result<Scheduled, UtxoError> {
    let file_type = match store.file_type {
        FileType::Tx => "tx",
        FileType::Outputs => "outputs",
    };
    let name = BlobName { key: &store.blob_key, file_type, store_type: store.store_type };
    Ok(queue.schedule(&name, of.delete_at(), of.txid())?)
}

/// Whether all spenders of a record are stable, else it is counted. All of them in one message, whatever they take: between two
/// messages one that was looked at may become unmined.
fn children_are_stable(context: &mut Context, of: &Candidate) -> Result<bool, UtxoError> {
    let Context { records, settings, run, counts, .. } = context;
    let batch = settings.utxo_defensive_batch_read_size;
    let retention = records.settings.block_height_retention;
    let mut first = 0;
    while first < of.outputs() {
        let kept = match records.utxo.unstable_child(of, (first, batch), run.current, retention)? {
            Some(Unstable::Unmined) => &mut counts.skipped_child_unmined,
            Some(Unstable::Recent) => &mut counts.skipped_child_recent,
            Some(Unstable::Absent) => &mut counts.skipped_child_absent,
            None => {
                first = first.saturating_add(batch);
                continue;
            }
        };
        *kept += 1;
        return Ok(false);
    }
    Ok(true)
}

/// Has the external data of a record go. Answers whether the record now waits for somebody to delete it outside.
fn external_data(context: &mut Context, of: &Candidate) -> Result<bool, UtxoError> {
    let Context { records, counts, .. } = context;
    match records.utxo.free_external(records.blobs, of)? {
        ExternalData::None => {}
        ExternalData::Freed { missing: false } => counts.external_files_deleted += 1,
        ExternalData::Freed { missing: true } => counts.external_files_missing += 1,
        ExternalData::Outside(store) => match schedule(records.deletions, &store, of)? {
            Scheduled::Waits(_) => {
                records.utxo.mark_deleting(of, false);
                counts.records_deleting += 1;
                return Ok(true);
            }
            // The blob goes with the record that named it first.
            Scheduled::Another(_) => {}
        },
    }
    Ok(false)
}

impl Phase for DeleteAtHeight {
    const ORDER: Order = Order::DeleteAt;

    fn last(run: &Run, settings: &PrunerSettings) -> Option<u32> {
        (!settings.disable_dah_cleaner).then_some(run.safe)
    }

    fn ops(of: &Candidate, _: u32, settings: &PrunerSettings) -> u64 {
        let parents = of.inputs().min(STEP_INPUTS);
        let children = if settings.utxo_defensive_enabled && !of.is_deleting() { of.outputs() } else { 0 };
        1 + u64::from(of.pages()) + u64::from(parents) + u64::from(children)
    }

    fn step(context: &mut Context, of: &Candidate, from: u32) -> Result<Step, JobEnd> {
        let stays = |context: &mut Context, error: &UtxoError| {
            keep(context, of.slot(), error);
            Ok(Step::Stays)
        };
        let going = of.is_deleting();
        if !going {
            context.counts.processed += 1;
            if !of.may_go() {
                return stays(context, &UtxoError::Corrupt { why: "it is not eligible".into() });
            }
            if context.settings.utxo_defensive_enabled {
                match children_are_stable(context, of) {
                    Ok(true) => {}
                    Ok(false) => return Ok(Step::Stays),
                    Err(error) => return stays(context, &error),
                }
            }
        }
        let parents = match context.records.utxo.parents(of, (from, STEP_INPUTS)) {
            Ok(parents) => parents,
            Err(error) => return stays(context, &error),
        };
        if !going {
            match external_data(context, of) {
                Ok(false) => {}
                Ok(true) => return Ok(Step::Left),
                Err(error) => {
                    context.counts.external_errors += 1;
                    runtime::log(&format!("pruner: the record in slot {} keeps its data: {error:?}", of.slot()));
                    return Ok(Step::Stays);
                }
            }
            if of.inputs() > STEP_INPUTS {
                // From here on there is no way back: the parents are told over several steps.
                context.records.utxo.mark_deleting(of, true);
                return Ok(Step::More(0));
            }
        }
        let Context { records, counts, .. } = context;
        counts.parents_updated += records.utxo.tell(of, &parents);
        let next = from.saturating_add(STEP_INPUTS);
        if next < of.inputs() {
            return Ok(Step::More(next));
        }
        records.utxo.remove(of);
        counts.records_deleted += 1;
        counts.pages_deleted += u64::from(of.pages());
        Ok(Step::Left)
    }

    fn unreadable(context: &mut Context, at: &Cursor, error: UtxoError, _: bool) -> Result<(), JobEnd> {
        context.counts.processed += 1;
        keep(context, at.slot, &error);
        Ok(())
    }
}
