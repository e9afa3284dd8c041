//! Who may call what (`docs/design.md` 8).
//!
//! [`TABLE`] names every method of the Candid interface once; the guards on the endpoints ask the same roles before the
//! argument is decoded, and a test holds the two, and the Candid file, together.

use crate::api::Role;
use crate::{runtime, state};
use candid::Principal;

/// What a method asks of its caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Required {
    /// Nothing: a query.
    Nobody,
    /// A role; not the anonymous principal.
    Role(Role),
    /// One of two roles; not the anonymous principal.
    Either(Role, Role),
}

const fn needs(role: Role) -> Required {
    Required::Role(role)
}

/// Every method of the interface.
pub const TABLE: &[(&str, Required)] = &[
    ("append_block", needs(Role::Producer)),
    ("begin_block", needs(Role::Producer)),
    ("put_block_chunk", needs(Role::Producer)),
    ("commit_block", needs(Role::Producer)),
    ("abort_block", needs(Role::Producer)),
    ("rollback_to", needs(Role::Producer)),
    ("reset_chain", needs(Role::Operator)),
    ("get_head", Required::Nobody),
    ("get_block", Required::Nobody),
    ("get_block_header", Required::Nobody),
    ("read_segment", Required::Nobody),
    ("get_receipt", Required::Nobody),
    ("get_transaction_location", Required::Nobody),
    ("find_by_index_key", Required::Nobody),
    ("get_block_storage", Required::Nobody),
    ("get_upload", Required::Nobody),
    ("register_exporter", needs(Role::Operator)),
    ("remove_exporter", needs(Role::Operator)),
    ("export_blocks", Required::Nobody),
    ("ack_exported", needs(Role::Exporter)),
    ("get_export_status", Required::Nobody),
    ("utxo_create", needs(Role::Producer)),
    ("utxo_spend", needs(Role::Producer)),
    ("utxo_unspend", needs(Role::Producer)),
    ("utxo_set_mined", needs(Role::Producer)),
    ("utxo_set_on_longest_chain", needs(Role::Producer)),
    ("utxo_set_locked", needs(Role::Producer)),
    ("utxo_freeze", needs(Role::Alert)),
    ("utxo_unfreeze", needs(Role::Alert)),
    ("utxo_reassign", needs(Role::Alert)),
    ("utxo_set_conflicting", needs(Role::Producer)),
    ("utxo_process_conflicting", needs(Role::Producer)),
    ("utxo_preserve", needs(Role::Producer)),
    ("utxo_begin_transaction", needs(Role::Producer)),
    ("utxo_put_transaction_chunk", needs(Role::Producer)),
    ("utxo_abort_transaction", needs(Role::Producer)),
    ("utxo_get_upload", Required::Nobody),
    ("utxo_get", Required::Nobody),
    ("utxo_get_transaction", Required::Nobody),
    ("utxo_get_inpoints", Required::Nobody),
    ("utxo_get_spend", Required::Nobody),
    ("utxo_list_unmined", Required::Nobody),
    ("notify_block_persisted", needs(Role::Producer)),
    ("notify_block", needs(Role::Producer)),
    ("set_block_assembly_state", needs(Role::Producer)),
    ("prune_utxos", needs(Role::Operator)),
    ("set_heights", needs(Role::Operator)),
    ("cancel_prune_job", needs(Role::Operator)),
    ("set_pruner_settings", needs(Role::Operator)),
    ("get_pruner_settings", Required::Nobody),
    ("set_aside_unmined", needs(Role::Operator)),
    ("retry_record", needs(Role::Operator)),
    ("get_pruner_status", Required::Nobody),
    ("list_prune_jobs", Required::Nobody),
    ("get_pending_blob_deletions", Required::Nobody),
    ("complete_blob_deletions", needs(Role::BlobWorker)),
    ("list_dead_blob_deletions", Required::Nobody),
    ("retry_blob_deletion", needs(Role::Operator)),
    ("schedule_blob_deletion", Required::Either(Role::Operator, Role::Producer)),
    ("cancel_blob_deletion", Required::Either(Role::Operator, Role::Producer)),
    ("list_blob_deletions", Required::Nobody),
    ("remove_blob_deletion", needs(Role::BlobWorker)),
    ("increment_blob_deletion_retry", needs(Role::BlobWorker)),
    ("acquire_blob_deletion_batch", needs(Role::BlobWorker)),
    ("extend_blob_deletion_batch", needs(Role::BlobWorker)),
    ("complete_blob_deletion_batch", needs(Role::BlobWorker)),
    ("get_blob_deletion_status", Required::Nobody),
    ("set_prune_policy", needs(Role::Operator)),
    ("get_prune_policy", Required::Nobody),
    ("set_pruning_enabled", needs(Role::Operator)),
    ("prune_now", needs(Role::Operator)),
    ("acknowledge_faults", needs(Role::Operator)),
    ("plan_prune", Required::Nobody),
    ("get_prune_status", Required::Nobody),
    ("get_config", Required::Nobody),
    ("set_config", needs(Role::Operator)),
    ("grant_role", needs(Role::Operator)),
    ("revoke_role", needs(Role::Operator)),
    ("list_roles", Required::Nobody),
    ("get_storage_status", Required::Nobody),
    ("health", Required::Nobody),
];

fn check(role: Role) -> Result<(), String> {
    let caller = runtime::caller();
    if caller == Principal::anonymous() {
        return Err("access denied: anonymous callers change nothing".into());
    }
    if state::read(|state| state.roles.has(caller, role)) {
        return Ok(());
    }
    Err(format!("access denied: {caller} is not {role:?}; an operator can call grant_role"))
}

/// Guard of a producer's methods.
pub fn producer() -> Result<(), String> {
    check(Role::Producer)
}

/// Guard of an exporter's methods.
pub fn exporter() -> Result<(), String> {
    check(Role::Exporter)
}

/// Guard of the alert system's methods.
pub fn alert() -> Result<(), String> {
    check(Role::Alert)
}

/// Guard of a blob worker's methods.
pub fn blob_worker() -> Result<(), String> {
    check(Role::BlobWorker)
}

/// Guard of an operator's methods.
pub fn operator() -> Result<(), String> {
    check(Role::Operator)
}

/// Guard of an operator's methods that are a producer's as well.
pub fn operator_or_producer() -> Result<(), String> {
    check(Role::Producer).or_else(|_| check(Role::Operator))
}
