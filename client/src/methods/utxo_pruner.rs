//! The pruner of UTXO records.

use super::methods;
use coppice_interface::*;

methods! {
    /// Says that blocks are persisted up to this height. For feeders.
    ///
    /// Repeating it changes nothing.
    update notify_block_persisted(height: u32) -> UtxoNotifyOutcome, or UtxoPrunerError;

    /// Says that the chain is at this height, and whether the block's transactions are set mined. For feeders.
    ///
    /// Repeating it changes nothing.
    update notify_block(height: u32, mined_set: bool) -> UtxoNotifyOutcome, or UtxoPrunerError;

    /// Prunes at this height, and answers the job as far as its first tick brought it. For operators.
    ///
    /// Repeating it begins another job, of what is due then.
    update prune_utxos(height: u32) -> UtxoPruneJob, or UtxoPrunerError;

    /// Sets the heights by hand. For operators.
    ///
    /// Repeating it cancels the job that it made, and makes another one.
    update set_heights(heights: &UtxoSetHeights) -> UtxoHeightsSet, or UtxoPrunerError;

    /// Cancels a job that waits or runs. For operators.
    ///
    /// Repeated, it is refused as `NotOpen`.
    update cancel_prune_job(id: u64) -> UtxoPruneJob, or UtxoPrunerError;

    /// Changes the pruner's settings: what is left out stays. For operators.
    ///
    /// Repeating it changes nothing more.
    update set_pruner_settings(change: &UtxoPrunerSettingsChange) -> UtxoPrunerSettings, or UtxoPrunerError;

    /// The pruner's settings.
    query get_pruner_settings() -> UtxoPrunerSettings;

    /// Sets aside the unmined record in this slot, which cannot be read and stops pruning: 100 of them at most. For operators.
    ///
    /// Repeating it changes nothing.
    update set_aside_unmined(slot: u32) -> (), or UtxoPrunerError;

    /// Takes back that a record is set aside or left alone. For operators.
    ///
    /// Repeated, it is refused as `NotBlocking`.
    update retry_record(slot: u32) -> (), or UtxoPrunerError;

    /// Heights, jobs, sums and metrics.
    query get_pruner_status() -> UtxoPrunerStatus;

    /// Jobs, the last first, from the cursor on: `limit` of them, 500 at most; 0: 100.
    query list_prune_jobs(cursor: Option<u64>, limit: u32) -> UtxoPruneJobPage;
}

impl<T: crate::Transport> crate::Client<T> {
    /// Says whether blocks are being assembled: nothing is pruned while they are not. For feeders.
    ///
    /// Repeating it changes nothing.
    ///
    /// # Errors
    /// When there is no answer.
    pub async fn set_block_assembly_state(&self, state: UtxoBlockAssemblyState) -> Result<(), crate::CallError> {
        self.update_silent("set_block_assembly_state", (state,)).await
    }
}

/// The one method that answers nothing at all.
#[cfg(test)]
pub(super) fn assembly(types: &mut candid::types::internal::TypeContainer) -> super::Signature {
    let args = vec![types.add::<UtxoBlockAssemblyState>()];
    super::Signature { method: "set_block_assembly_state", query: false, args, replies: Vec::new() }
}
