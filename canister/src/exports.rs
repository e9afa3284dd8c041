//! Exports of a canister: sets of methods, of which each canister names those that it has.

/// Exports the methods of the named sets from the canister's crate, and declares `coppice_methods`, which passes the filter of ingress
/// messages their names.
///
/// | set | methods |
/// |---|---|
/// | `readers` | all queries of blocks, `health`, `http_request`, `ack_exported` |
/// | `operators` | settings, roles, exporters, policy, pruning |
/// | `producers` | the calls that bring blocks in, roll back and reset |
/// | `records` | UTXO records and the deletion queue of their blobs; needs the feature `records` |
///
/// A canister without `producers` appends its blocks itself ([`Coppice::append`](crate::Coppice::append)).
///
/// ```
/// ic_coppice::export!(readers, operators);
///
/// #[ic_cdk::query]
/// fn balance() -> u64 {
///     7
/// }
/// # fn main() { assert!(coppice_methods()[0].contains(&"health")); }
/// ```
///
/// A method that the canister's crate also declares is an error of the build, because the crate then has two symbols of one name:
///
/// ```compile_fail
/// ic_coppice::export!(readers, operators);
///
/// #[ic_cdk::query]
/// fn health() -> u64 {
///     7
/// }
/// # fn main() { assert!(coppice_methods()[0].contains(&"health")); }
/// ```
#[macro_export]
macro_rules! export {
    ($($set:ident),+ $(,)?) => {
        $($crate::methods!(export $set);)+

        /// Returns the names of the exported methods, by set.
        fn coppice_methods() -> &'static [&'static [&'static str]] {
            &[$($crate::methods!(names $set)),+]
        }
    };
}

/// Exports the methods of a set, or lists their names.
#[doc(hidden)]
#[macro_export]
macro_rules! methods {
    ($do:ident readers) => {
        $crate::methods! { @$do
            query get_head, query get_tip_certificate, query get_block, query get_block_headers, query read_segment,
            query get_receipt, query get_transaction_location, query find_by_index_key,
            query export_blocks, update ack_exported, query get_export_status,
            query plan_prune, query get_prune_status,
            query get_config, query list_roles, query get_audit_log, query get_logs, query get_storage_status,
            query list_uploads, query health, query http_request,
        }
    };
    ($do:ident operators) => {
        $crate::methods! { @$do
            update register_exporter, update remove_exporter,
            update set_prune_policy, update prune_now, update acknowledge_faults,
            update set_deletions_stopped, update set_config, update grant_role, update revoke_role,
        }
    };
    ($do:ident producers) => {
        $crate::methods! { @$do
            update append_block, update append_blocks, update append_compressed,
            update begin_block, update put_block_chunk, update commit_block, update abort_block,
            update rollback_to, update reset_chain,
        }
    };
    ($do:ident records) => {
        $crate::methods! { @$do
            update utxo_create, update utxo_spend, update utxo_unspend, update utxo_set_mined,
            update utxo_set_on_longest_chain, update utxo_set_locked,
            update utxo_freeze, update utxo_unfreeze, update utxo_reassign,
            update utxo_set_conflicting, update utxo_process_conflicting, update utxo_preserve,
            update utxo_apply_block, update utxo_stop_applying,
            update utxo_begin_transaction, update utxo_put_transaction_chunk, update utxo_abort_transaction,
            query utxo_get, query utxo_get_transaction, query utxo_get_spend, query utxo_list_unmined,
            update utxo_notify_block_persisted, update utxo_notify_block, update utxo_set_block_assembly_state,
            update utxo_prune, update utxo_set_heights, update utxo_cancel_prune_job, update utxo_set_pruner_settings,
            update utxo_skip_record, query utxo_get_pruner_status, query utxo_list_prune_jobs,
            query get_pending_blob_deletions, update complete_blob_deletions, update retry_blob_deletions,
            update end_blob_deletion_leases, update schedule_blob_deletion, update cancel_blob_deletion,
            query list_blob_deletions, update remove_blob_deletion, update increment_blob_deletion_retry,
            update acquire_blob_deletion_batch, update extend_blob_deletion_batch, update complete_blob_deletion_batch,
            query get_blob_deletion_status,
        }
    };
    (@export $($kind:ident $name:ident,)*) => {
        $(const _: () = {
            #[cfg_attr(target_family = "wasm", unsafe(export_name = concat!("canister_", stringify!($kind), " ", stringify!($name))))]
            #[cfg_attr(not(target_family = "wasm"), unsafe(export_name = concat!("canister_", stringify!($kind), ".", stringify!($name))))]
            extern "C" fn export() {
                $crate::calls::$name();
            }
        };)*
    };
    (@names $($kind:ident $name:ident,)*) => { &[$(stringify!($name)),*] };
}

#[cfg(test)]
mod tests {
    use ic_coppice_interface::methods::{Method, TABLE};

    #[test]
    fn sets_have_each_method_once() {
        let sets: [&[&str]; 4] =
            [methods!(names readers), methods!(names operators), methods!(names producers), methods!(names records)];
        let mut all = sets.concat();
        all.sort_unstable();
        let mut expected: Vec<&str> = TABLE.iter().map(|method| method.name).collect();
        expected.sort_unstable();
        assert_eq!(all, expected);
        let of = |name: &&str| TABLE.iter().find(|method| method.name == *name).unwrap();
        assert!(sets[3].iter().map(of).all(Method::is_of_records));
        assert!(sets[..3].concat().iter().map(of).all(|method| !method.is_of_records()));
        assert!(sets[0].iter().map(of).all(|method| method.is_query || method.name == "ack_exported"));
        assert!(sets[1..3].concat().iter().map(of).all(|method| !method.is_query));
    }
}
