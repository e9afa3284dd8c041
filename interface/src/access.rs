//! Access table: the roles that may call each kind of method (`docs/design/interface.md`).

use crate::Role;

/// Prefix of the ingress filter's refusal if the sender's message bucket is empty: the same message may pass later.
pub const RATE_LIMITED: &str = "rate limited: ";
/// Roles whose messages are not limited, because payload must not wait.
pub const FEEDERS: &[Role] = &[Role::Producer, Role::BlockProducer, Role::UtxoFeeder];

/// No role, for queries. An ingress message that calls a query as an update needs some role unless `open_queries` is
/// set.
pub const ANYONE: &[Role] = &[];
/// Callers that write the chain.
pub const BLOCK_PRODUCERS: &[Role] = &[Role::Producer, Role::BlockProducer];
/// Callers that write UTXO records and notify heights.
pub const UTXO_FEEDERS: &[Role] = &[Role::Producer, Role::UtxoFeeder];
/// Callers that apply kept blocks to the UTXO records; an operator applies the first one.
pub const APPLIERS: &[Role] = &[Role::Producer, Role::UtxoFeeder, Role::Operator];
/// Callers that may write, commit and abort a block upload: a producer its own, an operator that of any producer.
pub const UPLOADERS: &[Role] = &[Role::Producer, Role::BlockProducer, Role::Operator];
/// Callers that schedule the deletion of external blobs: feeders, which own the blobs, and operators.
pub const SCHEDULERS: &[Role] = &[Role::Producer, Role::UtxoFeeder, Role::Operator];
/// Callers that roll the chain back; an admin may go deeper than a producer.
pub const REVERTERS: &[Role] = &[Role::Producer, Role::BlockProducer, Role::Admin];
/// Callers that copy the chain and acknowledge blocks.
pub const EXPORTERS: &[Role] = &[Role::Exporter];
/// Callers that freeze, unfreeze and reassign outputs.
pub const ALERTS: &[Role] = &[Role::Alert];
/// Callers that delete external blobs and report the outcome.
pub const BLOB_WORKERS: &[Role] = &[Role::BlobWorker];
/// Callers that operate pruning, exporters and the queue.
pub const OPERATORS: &[Role] = &[Role::Operator];
/// Callers that make pruning safer: they register exporters and stop deletions. Only an admin registers a new key for
/// an exporter whose key was revoked, and starts deletions again.
pub const GUARDIANS: &[Role] = &[Role::Operator, Role::Admin];
/// Callers that change settings and roles, and may reset the chain.
pub const ADMINS: &[Role] = &[Role::Admin];
/// Callers that read the audit log and the log.
pub const AUDITORS: &[Role] = &[Role::Observer, Role::Operator, Role::Admin];
