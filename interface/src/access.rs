//! Who may call what (`docs/design.md` 8).

use crate::Role;

/// What a method asks of its caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Required {
    /// Nothing: a query. To call it as an update from outside asks for some role, whichever, unless `open_queries` is set.
    Nobody,
    /// One of these roles; not the anonymous principal. An update.
    Role(&'static [Role]),
    /// The same of a query.
    Reader(&'static [Role]),
}

/// The ingress filter begins a refusal with this where the sender's message bucket is empty: the same message may pass later.
pub const RATE_LIMITED: &str = "rate limited: ";
/// Roles whose messages are not limited, because payload must not wait.
pub const FEEDERS: &[Role] = &[Role::Producer, Role::BlockProducer, Role::UtxoFeeder];

const ANYBODY: Required = Required::Nobody;
/// Callers that write the chain.
pub const BLOCK_PRODUCERS: &[Role] = &[Role::Producer, Role::BlockProducer];
const BLOCK_PRODUCER: Required = Required::Role(BLOCK_PRODUCERS);
/// Callers that write UTXO records, and say where the chain is.
pub const UTXO_FEEDERS: &[Role] = &[Role::Producer, Role::UtxoFeeder];
const UTXO_FEEDER: Required = Required::Role(UTXO_FEEDERS);
/// An operator may end a block's upload that a producer has begun.
pub const UPLOADERS: &[Role] = &[Role::Producer, Role::BlockProducer, Role::Operator];
const UPLOADER: Required = Required::Role(UPLOADERS);
/// Callers that have blobs outside deleted: a feeder, whose blobs these are, and an operator.
pub const SCHEDULERS: &[Role] = &[Role::Producer, Role::UtxoFeeder, Role::Operator];
const SCHEDULER: Required = Required::Role(SCHEDULERS);
/// An admin may roll back deeper.
pub const REVERTERS: &[Role] = &[Role::Producer, Role::BlockProducer, Role::Admin];
const REVERTER: Required = Required::Role(REVERTERS);
/// Who copies the chain, and says how far.
pub const EXPORTERS: &[Role] = &[Role::Exporter];
const EXPORTER: Required = Required::Role(EXPORTERS);
/// Who freezes, unfreezes and reassigns outputs.
pub const ALERTS: &[Role] = &[Role::Alert];
const ALERT: Required = Required::Role(ALERTS);
/// Who deletes blobs outside, and says what became of them.
pub const BLOB_WORKERS: &[Role] = &[Role::BlobWorker];
const BLOB_WORKER: Required = Required::Role(BLOB_WORKERS);
/// Who sees to pruning, exporters and the queue.
pub const OPERATORS: &[Role] = &[Role::Operator];
const OPERATOR: Required = Required::Role(OPERATORS);
/// Callers that make pruning safer: they register exporters, and stop deletions. Only an admin gives a key to an exporter that has lost its
/// own, and starts deletions again.
pub const GUARDIANS: &[Role] = &[Role::Operator, Role::Admin];
const GUARDIAN: Required = Required::Role(GUARDIANS);
/// Who changes settings and roles, and may empty the chain.
pub const ADMINS: &[Role] = &[Role::Admin];
const ADMIN: Required = Required::Role(ADMINS);
/// Who reads the audit log and the log.
pub const AUDITORS: &[Role] = &[Role::Observer, Role::Operator, Role::Admin];
const AUDITOR: Required = Required::Reader(AUDITORS);

/// Every method of the interface.
pub const TABLE: &[(&str, Required)] = &[
    ("append_block", BLOCK_PRODUCER),
    ("begin_block", BLOCK_PRODUCER),
    ("put_block_chunk", UPLOADER),
    ("commit_block", UPLOADER),
    ("abort_block", UPLOADER),
    ("rollback_to", REVERTER),
    ("reset_chain", ADMIN),
    ("get_head", ANYBODY),
    ("get_block", ANYBODY),
    ("get_block_header", ANYBODY),
    ("get_block_headers", ANYBODY),
    ("read_segment", ANYBODY),
    ("get_receipt", ANYBODY),
    ("get_transaction_location", ANYBODY),
    ("find_by_index_key", ANYBODY),
    ("get_block_storage", ANYBODY),
    ("get_upload", ANYBODY),
    ("register_exporter", GUARDIAN),
    ("remove_exporter", ADMIN),
    ("export_blocks", ANYBODY),
    ("ack_exported", EXPORTER),
    ("get_export_status", ANYBODY),
    ("utxo_create", UTXO_FEEDER),
    ("utxo_spend", UTXO_FEEDER),
    ("utxo_unspend", UTXO_FEEDER),
    ("utxo_set_mined", UTXO_FEEDER),
    ("utxo_set_on_longest_chain", UTXO_FEEDER),
    ("utxo_set_locked", UTXO_FEEDER),
    ("utxo_freeze", ALERT),
    ("utxo_unfreeze", ALERT),
    ("utxo_reassign", ALERT),
    ("utxo_set_conflicting", UTXO_FEEDER),
    ("utxo_process_conflicting", UTXO_FEEDER),
    ("utxo_preserve", UTXO_FEEDER),
    ("utxo_begin_transaction", UTXO_FEEDER),
    ("utxo_put_transaction_chunk", UTXO_FEEDER),
    ("utxo_abort_transaction", UTXO_FEEDER),
    ("utxo_list_uploads", ANYBODY),
    ("utxo_get", ANYBODY),
    ("utxo_get_transaction", ANYBODY),
    ("utxo_get_inpoints", ANYBODY),
    ("utxo_get_spend", ANYBODY),
    ("utxo_list_unmined", ANYBODY),
    ("notify_block_persisted", UTXO_FEEDER),
    ("notify_block", UTXO_FEEDER),
    ("set_block_assembly_state", UTXO_FEEDER),
    ("prune_utxos", OPERATOR),
    ("set_heights", OPERATOR),
    ("cancel_prune_job", OPERATOR),
    ("set_pruner_settings", OPERATOR),
    ("get_pruner_settings", ANYBODY),
    ("set_aside_unmined", OPERATOR),
    ("retry_record", OPERATOR),
    ("get_pruner_status", ANYBODY),
    ("list_prune_jobs", ANYBODY),
    ("get_pending_blob_deletions", ANYBODY),
    ("complete_blob_deletions", BLOB_WORKER),
    ("list_dead_blob_deletions", ANYBODY),
    ("retry_blob_deletions", OPERATOR),
    ("end_blob_deletion_leases", OPERATOR),
    ("schedule_blob_deletion", SCHEDULER),
    ("cancel_blob_deletion", SCHEDULER),
    ("list_blob_deletions", ANYBODY),
    ("remove_blob_deletion", BLOB_WORKER),
    ("increment_blob_deletion_retry", BLOB_WORKER),
    ("acquire_blob_deletion_batch", BLOB_WORKER),
    ("extend_blob_deletion_batch", BLOB_WORKER),
    ("complete_blob_deletion_batch", BLOB_WORKER),
    ("get_blob_deletion_status", ANYBODY),
    ("set_prune_policy", OPERATOR),
    ("get_prune_policy", ANYBODY),
    ("set_pruning_enabled", OPERATOR),
    ("set_deletions_stopped", GUARDIAN),
    ("prune_now", OPERATOR),
    ("acknowledge_faults", OPERATOR),
    ("plan_prune", ANYBODY),
    ("get_prune_status", ANYBODY),
    ("get_config", ANYBODY),
    ("set_config", ADMIN),
    ("grant_role", ADMIN),
    ("revoke_role", ADMIN),
    ("list_roles", ANYBODY),
    ("get_audit_log", AUDITOR),
    ("get_logs", AUDITOR),
    ("get_storage_status", ANYBODY),
    ("health", ANYBODY),
    ("http_request", ANYBODY),
];
