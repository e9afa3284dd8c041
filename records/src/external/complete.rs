//! Removal of the records of external blobs that workers have deleted.

use crate::deletion::{Completion, RecordEnd};
use crate::utxo::{Call, UtxoStore, flag};
use ic_coppice_interface::{UtxoPruneCounts, UtxoRefusal};
use ic_coppice_storage::{Meter, log};

/// Inputs whose parents are marked, or preserved, in one step, because each parent may lie on separate pages. A record with more inputs
/// takes several steps and messages.
pub const STEP_INPUTS: u32 = 1_000;
/// Maximum pages that releasing an output changes: the parent, its list of double spends, and its places in the ordered indexes.
pub const RELEASED: u64 = 8;

/// Removes the records of completed rows within one message.
pub struct Rows<'a> {
    /// The records.
    pub utxo: &'a mut UtxoStore,
    /// The chain's height and the settings.
    pub call: Call<'a>,
    /// Counts of the removed data.
    pub totals: &'a mut UtxoPruneCounts,
    /// The message's room for further rows.
    pub meter: Meter,
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
        } else {
            utxo.mark_parents(&of, &parents, call, totals)?;
            utxo.remove(&of, totals);
        }
        totals.external_files_deleted += 1;
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
