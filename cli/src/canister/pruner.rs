//! The client's calls of the pruner of UTXO records.

use super::{Caller, Client, Transport};
use anyhow::{Context, Result, anyhow};
use coppice_interface::*;

impl<T: Transport> Client<T> {
    /// `notify_block_persisted`.
    ///
    /// # Errors
    /// Also when the canister refuses the height.
    pub fn notify_block_persisted(&self, height: u32) -> Result<UtxoNotifyOutcome> {
        let result: Result<_, UtxoPrunerError> = self.update(Caller::Producer, "notify_block_persisted", (height,))?;
        result.map_err(|error| anyhow!("notify_block_persisted: the canister refuses height {height}: {error:?}"))
    }

    /// `notify_block`.
    ///
    /// # Errors
    /// Also when the canister refuses the height.
    pub fn notify_block(&self, height: u32, mined_set: bool) -> Result<UtxoNotifyOutcome> {
        let result: Result<_, UtxoPrunerError> = self.update(Caller::Producer, "notify_block", (height, mined_set))?;
        result.map_err(|error| anyhow!("notify_block: the canister refuses height {height}: {error:?}"))
    }

    /// `set_block_assembly_state`.
    pub fn set_block_assembly_state(&self, state: UtxoBlockAssemblyState) -> Result<()> {
        let method = "set_block_assembly_state";
        let arg = candid::encode_args((state,)).with_context(|| format!("{method}: argument"))?;
        let reply = self.transport.update(Caller::Producer, method, arg)?;
        candid::decode_args(&reply).with_context(|| format!("{method}: the answer is not what the interface says"))
    }

    /// `prune_utxos`: the job, as far as its first tick brought it, or the canister's own reason why there is none.
    pub fn prune_utxos(&self, height: u32) -> Result<Result<UtxoPruneJob, UtxoPrunerError>> {
        self.update(Caller::Operator, "prune_utxos", (height,))
    }

    /// `set_pruner_settings`.
    ///
    /// # Errors
    /// Also when the canister refuses the settings.
    pub fn set_pruner_settings(&self, change: &UtxoPrunerSettingsChange) -> Result<UtxoPrunerSettings> {
        let result: Result<_, UtxoPrunerError> = self.update(Caller::Operator, "set_pruner_settings", (change,))?;
        result.map_err(|error| anyhow!("the canister refuses the pruner's settings: {error:?}"))
    }

    /// `get_pruner_settings`.
    pub fn pruner_settings(&self) -> Result<UtxoPrunerSettings> {
        self.query("get_pruner_settings", ())
    }

    /// `get_pruner_status`.
    pub fn pruner_status(&self) -> Result<UtxoPrunerStatus> {
        self.query("get_pruner_status", ())
    }

    /// `list_prune_jobs`: a page of jobs from the cursor on, the last first.
    pub fn prune_jobs(&self, cursor: Option<u64>, limit: u32) -> Result<UtxoPruneJobPage> {
        self.query("list_prune_jobs", (cursor, limit))
    }
}
