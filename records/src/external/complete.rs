//! Removal of the records of external blobs that workers have deleted.

use super::Records;
use crate::deletion::{self, Completion, DeletionQueue, MOST_INSTRUCTIONS, RecordEnd};
use crate::utxo::{Call, UtxoStore, flag};
use ic_coppice_interface::{UtxoPruneCounts, UtxoRefusal};
use ic_coppice_storage::{Counting, MOST_PAGES, Meter, log};

/// Inputs whose parents are marked, or preserved, in one step, because each parent may lie on separate pages. A record with more inputs
/// takes several steps and messages.
pub const STEP_INPUTS: u32 = 1_000;
/// Maximum pages that releasing an output changes: the parent, its list of double spends, and its places in the ordered indexes.
pub const RELEASED: u64 = 8;

/// Removes the records of completed rows within one message.
pub struct Rows<'a> {
    utxo: &'a mut UtxoStore,
    call: Call<'a>,
    totals: &'a mut UtxoPruneCounts,
    meter: Meter,
}

impl Rows<'_> {
    /// Removes the record of a deleted blob. Leaves a large record to phase 2, which marks its parents over several messages.
    fn take_out(&mut self, txid: &[u8; 32]) -> Result<(), UtxoRefusal> {
        let Self { utxo, call, totals, .. } = self;
        let of = utxo.deleting(txid)?;
        let most = if of.head.is(flag::CONFLICTING) { STEP_INPUTS / RELEASED as u32 } else { STEP_INPUTS };
        let parents = utxo.parents(&of, (0, most))?;
        if parents.next < of.head.inputs || utxo.is_large(&of) {
            utxo.list_deleting(&of)?;
            totals.external_files_deleted += 1;
            return Ok(());
        }
        let outcome = utxo.mark_parents(&of, &parents, call)?;
        utxo.remove(&of);
        totals.parents_updated += outcome.marked;
        totals.outputs_released += outcome.released;
        totals.records_deleted += 1;
        totals.external_files_deleted += 1;
        totals.pages_deleted += u64::from(of.head.extra_pages);
        Ok(())
    }
}

impl Completion for Rows<'_> {
    fn has_budget(&mut self) -> bool {
        self.meter.has_room()
    }

    fn record_end(&mut self, txid: &[u8; 32]) -> RecordEnd {
        match self.take_out(txid) {
            Ok(()) | Err(UtxoRefusal::TxNotFound) => RecordEnd::Gone,
            Err(error) => {
                log::error(&format!("pruner: the record of a deleted blob is kept: {}", error));
                RecordEnd::Kept
            }
        }
    }
}

/// Runs an operation of the queue that also removes the records of deleted blobs. `current` is the chain's height; `totals` counts the
/// removed data.
pub fn with_records<T>(
    records: &mut Records,
    current: u32,
    totals: &mut UtxoPruneCounts,
    run: impl FnOnce(&mut DeletionQueue, u64, &mut Rows) -> T,
) -> T {
    let Records { utxo, deletions, settings, .. } = records;
    let call = Call::at(current.max(1), settings);
    let _counting = Counting::begin();
    let mut rows = Rows { utxo, call, totals, meter: deletion::row_meter(MOST_INSTRUCTIONS, MOST_PAGES) };
    run(deletions, call.now_ns, &mut rows)
}
