//! Operation: settings, roles, audit log, log, storage, health, and the switch that stops deletions.

use crate::api::access::{admin, auditor, guardian};
use crate::api::wire;
use crate::logs;
use crate::operation::{self, daemon, storage};
use crate::state::{mutate, read};
use candid::candid_method;
use coppice_interface::*;
use ic_cdk::{query, update};

/// The settings in force; for anyone.
#[query]
pub fn get_config() -> Config {
    read(|state| state.config.clone())
}

/// Changes settings; an admin's. What is left out stays; repeating the call changes nothing.
#[candid_method(update)]
#[update(
    guard = "admin",
    guard = "wire::readable::<(ConfigChange,)>",
    hidden = true,
    decode_with = "wire::arg",
    encode_with = "wire::answer"
)]
pub fn set_config(change: ConfigChange) -> Result<Config, ConfigError> {
    mutate(|state| {
        // The export guard and the uploads' expiry are settings, too.
        daemon::arm_work(state);
        let config = state.set_config("set_config", &change)?;
        daemon::watch_cycles(state);
        Ok(config)
    })
}

/// Grants a role; an admin's. 256 grants at most. A role that is granted already stays granted.
#[candid_method(update)]
#[update(
    guard = "admin",
    guard = "wire::readable::<(Grant,)>",
    hidden = true,
    decode_with = "wire::arg",
    encode_with = "wire::answer"
)]
pub fn grant_role(grant: Grant) -> Result<(), RoleError> {
    mutate(|state| state.grant_role(grant))
}

/// Takes a role back, and says whether it was granted; an admin's. The name and the bound of a registered exporter stay,
/// without a key, and hold pruning; the leases of a blob worker end. A repeated call answers `false`.
#[candid_method(update)]
#[update(
    guard = "admin",
    guard = "wire::readable::<(Grant,)>",
    hidden = true,
    decode_with = "wire::arg",
    encode_with = "wire::answer"
)]
pub fn revoke_role(grant: Grant) -> bool {
    mutate(|state| {
        let revoked = state.revoke_role(&grant);
        daemon::arm_deletions(state);
        revoked
    })
}

/// All roles that were granted; for anyone. Controllers are operators and admins besides.
#[query]
pub fn list_roles() -> Vec<Grant> {
    read(|state| state.roles.list())
}

/// Calls by which operators and admins changed something, or tried to, the newest first, from before the entry with the
/// number `cursor`; for observers, operators and admins. A page has `limit` entries at most, and 250; 0: 100.
#[candid_method(query)]
#[query(guard = "auditor", guard = "wire::readable::<(Option<u64>, u32,)>", hidden = true, decode_with = "wire::args")]
pub fn get_audit_log(cursor: Option<u64>, limit: u32) -> AuditPage {
    read(|state| state.audit.page(cursor, limit))
}

/// Where the bytes of stable memory are; for anyone.
#[query]
pub fn get_storage_status() -> StorageStatus {
    read(storage::status)
}

/// Whether all is well, and what is not; for anyone.
#[query]
pub fn health() -> Health {
    read(operation::health::health)
}

/// The lines of the canister's log of a priority, or of all, the newest first, from before the line with the number `cursor`; for observers,
/// operators and admins. A page has `limit` lines at most, and 1,000; 0: 100.
#[candid_method(query)]
#[query(
    guard = "auditor",
    guard = "wire::readable::<(Option<LogPriority>, Option<u64>, u32,)>",
    hidden = true,
    decode_with = "wire::args"
)]
pub fn get_logs(priority: Option<LogPriority>, cursor: Option<u64>, limit: u32) -> LogPage {
    logs::page(priority, cursor, limit)
}

/// Stops deletions, or starts them again; operators and admins stop them, only admins start them. While deletions are
/// stopped, ticks and calls prune no block and no UTXO record, and workers get no blob to delete; rollbacks, resets, the
/// expiry of uploads and sweeps of the indexes continue. The switch survives upgrades. Repeating the call changes nothing.
#[candid_method(update)]
#[update(
    guard = "guardian",
    guard = "wire::readable::<(bool,)>",
    hidden = true,
    decode_with = "wire::arg",
    encode_with = "wire::answer"
)]
pub fn set_deletions_stopped(stopped: bool) -> Result<(), DeletionsError> {
    mutate(|state| {
        let done = state.set_deletions_stopped(stopped);
        daemon::arm_work(state);
        daemon::arm_records(state);
        daemon::arm_deletions(state);
        done
    })
}
