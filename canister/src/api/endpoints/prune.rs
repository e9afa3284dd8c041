//! Pruning of blocks: policy, switch, runs and status.

use crate::api::access::operator;
use crate::api::wire;
use crate::operation::daemon;
use crate::settings::config::Settings as _;
use crate::state::{mutate, read};
use candid::candid_method;
use coppice_interface::*;
use ic_cdk::{query, update};

/// Changes the policy by which blocks are pruned; an operator's. What is left out stays. A first policy switches pruning
/// on. The same change again changes nothing.
#[candid_method(update)]
#[update(
    guard = "operator",
    guard = "wire::readable::<(PrunePolicyArg,)>",
    hidden = true,
    decode_with = "wire::arg",
    encode_with = "wire::answer"
)]
pub fn set_prune_policy(change: PrunePolicyArg) -> Result<PrunePolicyChange, PruneError> {
    mutate(|state| {
        let done = state.set_prune_policy(&change)?;
        daemon::arm_work(state);
        Ok(done)
    })
}

/// The policy in force; none where none was set. For anyone.
#[query]
pub fn get_prune_policy() -> Option<PrunePolicy> {
    read(|state| state.pruner.policy().cloned())
}

/// Lets the timer prune blocks, or stops it; an operator's. It asks for a policy. Repeating the call changes nothing.
#[candid_method(update)]
#[update(
    guard = "operator",
    guard = "wire::readable::<(bool,)>",
    hidden = true,
    decode_with = "wire::arg",
    encode_with = "wire::answer"
)]
pub fn set_pruning_enabled(enabled: bool) -> Result<(), PruneError> {
    mutate(|state| {
        daemon::arm_work(state);
        state.set_pruning_enabled(enabled)
    })
}

/// One bounded run by hand, also where pruning is disabled, never past what exporters have not acknowledged; an operator's.
/// It does `max_ops` at most, and 15,000; 0 is refused. Calling again goes on with what is left.
#[candid_method(update)]
#[update(
    guard = "operator",
    guard = "wire::readable::<(u64,)>",
    hidden = true,
    decode_with = "wire::arg",
    encode_with = "wire::answer"
)]
pub fn prune_now(max_ops: u64) -> Result<PruneRun, PruneError> {
    mutate(|state| {
        daemon::arm_work(state);
        state.prune_now(max_ops)
    })
}

/// Notes that an operator has seen the first `up_to` faults, and has what was set aside tried again where these are all; an
/// operator's. Answers how many are acknowledged; 0 changes nothing, and so does a repeated call.
#[candid_method(update)]
#[update(
    guard = "operator",
    guard = "wire::readable::<(u64,)>",
    hidden = true,
    decode_with = "wire::arg",
    encode_with = "wire::answer"
)]
pub fn acknowledge_faults(up_to: u64) -> u64 {
    mutate(|state| {
        daemon::arm_work(state);
        state.acknowledge_faults(up_to)
    })
}

/// What the next run would do, why, and what holds it back, under the policy in force, or with these changes of it; for
/// anyone. Nothing is pruned.
#[candid_method(query)]
#[query(guard = "wire::readable::<(Option<PrunePolicyArg>,)>", hidden = true, decode_with = "wire::arg")]
pub fn plan_prune(change: Option<PrunePolicyArg>) -> Result<PrunePlan, PruneError> {
    read(|state| {
        let change = change.as_ref().map(|change| (change, state.config.class()));
        state.pruner.plan(&state.chain, &state.blobs, &state.constraints(), change)
    })
}

/// Everything that an operator needs to see of the pruning of blocks; for anyone.
#[query]
pub fn get_prune_status() -> PruneStatus {
    read(|state| state.pruner.status(&state.chain, &state.blobs, &state.constraints()))
}
