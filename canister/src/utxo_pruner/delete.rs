//! Phase 2: records are deleted whose height has come (`pruner-service.md` 2.3, 2.5, 2.6). Of each in this order: defensive
//! check, external data, parents, the record with its pages, its places in the indexes.

use super::phase::{Context, Phase, STEP_INPUTS, Step, pass_over};
use super::run::Run;
use crate::api::{ExternalStore, FileType, JobEnd, PrunerSettings, UtxoError};
use crate::deletion::{BlobName, DeletionQueue, Scheduled};
use crate::runtime;
use crate::utxo::{Candidate, ExternalData, Order, Place, Unstable};

/// Phase 2.
pub struct DeleteAtHeight;

fn schedule(
    queue: &mut DeletionQueue,
    store: &ExternalStore,
    height: u32,
    of: &Candidate,
) -> Result<Scheduled, UtxoError> {
    let file_type = match store.file_type {
        FileType::Tx => "tx",
        FileType::Outputs => "outputs",
    };
    let name = BlobName { key: &store.blob_key, file_type, store_type: store.store_type };
    Ok(queue.schedule(&name, height, of.txid())?)
}

/// Whether a record may go as far as its spenders are concerned; or what became of it.
fn check_children(context: &mut Context, of: &Candidate, from: u32) -> Result<Option<Step>, UtxoError> {
    let Context { records, settings, run, counts, .. } = context;
    let batch = settings.utxo_defensive_batch_read_size;
    let retention = records.settings.block_height_retention;
    let kept = match records.utxo.unstable_child(of, (from, batch), run.current, retention)? {
        Some(Unstable::Unmined) => &mut counts.skipped_child_unmined,
        Some(Unstable::Recent) => &mut counts.skipped_child_recent,
        Some(Unstable::Absent) => &mut counts.skipped_child_absent,
        None => {
            let next = from.saturating_add(batch);
            return Ok((next < of.outputs()).then_some(Step::More(next)));
        }
    };
    *kept += 1;
    Ok(Some(Step::Stays))
}

/// Has the external data of a record go; or says what became of the record.
fn external_data(context: &mut Context, of: &Candidate) -> Result<Option<Step>, UtxoError> {
    let Context { records, run, counts, .. } = context;
    match records.utxo.free_external(records.blobs, of)? {
        ExternalData::None => {}
        ExternalData::Freed { missing: false } => counts.external_files_deleted += 1,
        ExternalData::Freed { missing: true } => counts.external_files_missing += 1,
        ExternalData::Outside(store) => match schedule(records.deletions, &store, run.safe, of)? {
            Scheduled::Waits(_) => {
                records.utxo.mark_deleting(of, false);
                counts.records_deleting += 1;
                return Ok(Some(Step::Left));
            }
            // The blob goes with the record that named it first.
            Scheduled::Another(_) => {}
        },
    }
    if of.inputs() > STEP_INPUTS {
        // From here on there is no way back: the parents are told over several messages.
        records.utxo.mark_deleting(of, true);
        return Ok(Some(Step::More(0)));
    }
    Ok(None)
}

impl Phase for DeleteAtHeight {
    const ORDER: Order = Order::DeleteAt;

    fn last(run: &Run, settings: &PrunerSettings) -> Option<u32> {
        (!settings.disable_dah_cleaner).then_some(run.safe)
    }

    fn ops(of: &Candidate, from: u32, settings: &PrunerSettings) -> u64 {
        let parents = of.inputs().min(STEP_INPUTS);
        let children = match settings.utxo_defensive_enabled && !of.is_deleting() {
            true => (of.outputs() - from.min(of.outputs())).min(settings.utxo_defensive_batch_read_size),
            false => 0,
        };
        1 + u64::from(of.pages()) + u64::from(parents) + u64::from(children)
    }

    fn step(context: &mut Context, of: &Candidate, from: u32) -> Result<Step, JobEnd> {
        if !of.is_deleting() {
            context.counts.processed += u64::from(from == 0);
            if !of.may_go() {
                context.counts.record_errors += 1;
                runtime::log(&format!("pruner: the record in slot {} is kept: it is not eligible", of.slot()));
                return Ok(Step::Stays);
            }
            let checked = match context.settings.utxo_defensive_enabled {
                true => check_children(context, of, from),
                false => Ok(None),
            };
            match checked {
                Ok(None) => {}
                Ok(Some(step)) => return Ok(step),
                Err(error) => {
                    let place = Place { slot: of.slot(), ..Place::default() };
                    pass_over(context, &place, &error);
                    return Ok(Step::Stays);
                }
            }
            match external_data(context, of) {
                Ok(None) => {}
                Ok(Some(step)) => return Ok(step),
                Err(error) => {
                    context.counts.external_errors += 1;
                    runtime::log(&format!("pruner: the record in slot {} is kept: {error:?}", of.slot()));
                    return Ok(Step::Stays);
                }
            }
        }
        let Context { records, counts, .. } = context;
        let from = if of.is_deleting() { from } else { 0 };
        counts.parents_updated += records.utxo.tell_parents(of, (from, STEP_INPUTS));
        let next = from.saturating_add(STEP_INPUTS);
        if next < of.inputs() {
            return Ok(Step::More(next));
        }
        records.utxo.remove(of);
        counts.records_deleted += 1;
        counts.pages_deleted += u64::from(of.pages());
        Ok(Step::Left)
    }

    fn unreadable(context: &mut Context, place: &Place, error: UtxoError) -> Result<(), JobEnd> {
        context.counts.processed += 1;
        pass_over(context, place, &error);
        Ok(())
    }
}
