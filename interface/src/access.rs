//! Who may call what (`docs/design.md` 8).

use crate::Role;

/// The ingress filter begins a refusal with this where the sender's message bucket is empty: the same message may pass later.
pub const RATE_LIMITED: &str = "rate limited: ";
/// Roles whose messages are not limited, because payload must not wait.
pub const FEEDERS: &[Role] = &[Role::Producer, Role::BlockProducer, Role::UtxoFeeder];

/// No role: a query. To call it as an update from outside asks for some role, unless `open_queries` is set.
pub const ANYONE: &[Role] = &[];
/// Callers that write the chain.
pub const BLOCK_PRODUCERS: &[Role] = &[Role::Producer, Role::BlockProducer];
/// Callers that write UTXO records, and say where the chain is.
pub const UTXO_FEEDERS: &[Role] = &[Role::Producer, Role::UtxoFeeder];
/// An operator may end a block's upload that a producer has begun.
pub const UPLOADERS: &[Role] = &[Role::Producer, Role::BlockProducer, Role::Operator];
/// Callers that have blobs outside deleted: a feeder, whose blobs these are, and an operator.
pub const SCHEDULERS: &[Role] = &[Role::Producer, Role::UtxoFeeder, Role::Operator];
/// An admin may roll back deeper.
pub const REVERTERS: &[Role] = &[Role::Producer, Role::BlockProducer, Role::Admin];
/// Who copies the chain, and says how far.
pub const EXPORTERS: &[Role] = &[Role::Exporter];
/// Who freezes, unfreezes and reassigns outputs.
pub const ALERTS: &[Role] = &[Role::Alert];
/// Who deletes blobs outside, and says what became of them.
pub const BLOB_WORKERS: &[Role] = &[Role::BlobWorker];
/// Who sees to pruning, exporters and the queue.
pub const OPERATORS: &[Role] = &[Role::Operator];
/// Callers that make pruning safer: they register exporters, and stop deletions. Only an admin gives a key to an exporter that has lost its
/// own, and starts deletions again.
pub const GUARDIANS: &[Role] = &[Role::Operator, Role::Admin];
/// Who changes settings and roles, and may empty the chain.
pub const ADMINS: &[Role] = &[Role::Admin];
/// Who reads the audit log and the log.
pub const AUDITORS: &[Role] = &[Role::Observer, Role::Operator, Role::Admin];
