//! The largest argument of each method that the ingress filter lets in.
//!
//! A message from outside costs the canister 2,000 cycles a byte, whatever it says. The limit is twice the longest argument that the client
//! encodes for the method, so that callers whose encoder writes more are not refused, and the longest message of the platform where a
//! method takes payload. A test of the client encodes the longest arguments and compares.

/// Bytes of the longest ingress message of the platform, its envelope included, which has some 310 beside the argument.
pub const INGRESS: u64 = 2 << 20;

/// Bytes of the longest argument of a query that is called as an update; longer ones are called as queries only.
pub const QUERY: u64 = 10_000;

/// Bytes of the largest argument of each method, in the order of [`access::TABLE`](crate::access::TABLE).
pub const LARGEST: &[(&str, u64)] = &[
    ("append_block", INGRESS),
    ("begin_block", 604),
    ("put_block_chunk", INGRESS),
    ("commit_block", 128),
    ("abort_block", 30),
    ("rollback_to", 30),
    ("reset_chain", 114),
    ("get_head", 12),
    ("get_block", 30),
    ("get_block_header", 30),
    ("get_block_headers", 48),
    ("read_segment", 70),
    ("get_receipt", 84),
    ("get_transaction_location", 84),
    ("find_by_index_key", 370),
    ("get_block_storage", 30),
    ("get_upload", 12),
    ("register_exporter", 170),
    ("remove_exporter", 110),
    ("export_blocks", 222),
    ("ack_exported", 102),
    ("get_export_status", 12),
    ("utxo_create", INGRESS),
    ("utxo_spend", INGRESS),
    ("utxo_unspend", 1_070_154),
    ("utxo_set_mined", 370_156),
    ("utxo_set_on_longest_chain", 330_074),
    ("utxo_set_locked", 330_074),
    ("utxo_freeze", 720_108),
    ("utxo_unfreeze", 720_108),
    ("utxo_reassign", 1_030_128),
    ("utxo_set_conflicting", 330_060),
    ("utxo_process_conflicting", 330_060),
    ("utxo_preserve", 330_062),
    ("utxo_begin_transaction", 148),
    ("utxo_put_transaction_chunk", INGRESS),
    ("utxo_abort_transaction", 84),
    ("utxo_list_uploads", 12),
    ("utxo_get", 156),
    ("utxo_get_transaction", 156),
    ("utxo_get_inpoints", 156),
    ("utxo_get_spend", QUERY),
    ("utxo_list_unmined", 144),
    ("notify_block_persisted", 22),
    ("notify_block", 26),
    ("set_block_assembly_state", 44),
    ("prune_utxos", 22),
    ("set_heights", 84),
    ("cancel_prune_job", 30),
    ("set_pruner_settings", 600),
    ("get_pruner_settings", 12),
    ("set_aside_unmined", 22),
    ("retry_record", 22),
    ("get_pruner_status", 12),
    ("list_prune_jobs", 46),
    ("get_pending_blob_deletions", 4_630),
    ("complete_blob_deletions", 160_098),
    ("list_dead_blob_deletions", 46),
    ("retry_blob_deletions", 160_122),
    ("end_blob_deletion_leases", 76),
    ("schedule_blob_deletion", 2_286),
    ("cancel_blob_deletion", 2_250),
    ("list_blob_deletions", 294),
    ("remove_blob_deletion", 46),
    ("increment_blob_deletion_retry", 40),
    ("acquire_blob_deletion_batch", 4_904),
    ("extend_blob_deletion_batch", 102),
    ("complete_blob_deletion_batch", 32_210),
    ("get_blob_deletion_status", 12),
    ("set_prune_policy", 500),
    ("get_prune_policy", 12),
    ("set_pruning_enabled", 16),
    ("set_deletions_stopped", 16),
    ("prune_now", 30),
    ("acknowledge_faults", 30),
    ("plan_prune", 500),
    ("get_prune_status", 12),
    ("get_config", 12),
    ("set_config", 814),
    ("grant_role", 218),
    ("revoke_role", 218),
    ("list_roles", 12),
    ("get_audit_log", 46),
    ("get_logs", 82),
    ("get_storage_status", 12),
    ("health", 12),
    ("http_request", QUERY),
];

#[cfg(test)]
mod tests {
    use super::LARGEST;
    use crate::access::TABLE;

    #[test]
    fn both_tables_name_the_same_methods_in_the_same_order() {
        let names = |method: &(&'static str, u64)| method.0;
        let table: Vec<&str> = TABLE.iter().map(|(method, _)| *method).collect();
        assert_eq!(LARGEST.iter().map(names).collect::<Vec<_>>(), table);
    }
}
