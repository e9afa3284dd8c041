//! Endpoints for pruning of blocks: policy, switch, runs and status.

use super::arming_work;
use crate::operation::daemon;
use crate::state::{mutate, read};
use ic_coppice_interface::*;

pub fn set_prune_policy(change: PrunePolicyArg) -> Result<PrunePolicyChange, PruneError> {
    mutate(|state| {
        let done = state.set_prune_policy(&change)?;
        daemon::arm_work(state);
        Ok(done)
    })
}

pub fn prune_now(max_ops: u64) -> Result<PruneRun, PruneError> {
    arming_work(|state| state.prune_now(max_ops))
}

pub fn acknowledge_faults(up_to: u64) -> u64 {
    arming_work(|state| state.acknowledge_faults(up_to))
}

pub fn plan_prune(change: Option<PrunePolicyArg>) -> Result<PrunePlan, PruneError> {
    read(|state| {
        let change = change.as_ref().map(|change| (change, &state.config));
        state.pruner.plan(&state.chain, &state.blobs, &state.constraints(), change)
    })
}

pub fn get_prune_status() -> PruneStatus {
    read(|state| state.pruner.status(&state.chain, &state.blobs, &state.constraints()))
}
