//! Endpoints for operation: settings, roles, audit log, log, storage, health, and the switch that stops deletions.

use super::{arming, arming_work};
use crate::logs;
use crate::operation::{self, daemon, storage};
use crate::platform;
use crate::state::{mutate, read};
use ic_coppice_interface::*;

pub fn get_config() -> Config {
    read(|state| state.config.clone())
}

pub fn set_config(change: ConfigChange) -> Result<Config, ConfigError> {
    mutate(|state| {
        // Settings include the export guard and the uploads' expiry, which may create work.
        daemon::arm_work(state);
        let config = state.set_config("set_config", &change)?;
        daemon::watch_cycles(state);
        Ok(config)
    })
}

pub fn grant_role(grant: Grant) -> Result<(), RoleError> {
    mutate(|state| state.grant_role(grant))
}

pub fn revoke_role(grant: Grant) -> bool {
    arming(|state| state.revoke_role(&grant))
}

pub fn list_roles() -> Vec<Grant> {
    read(|state| state.roles.list())
}

pub fn get_audit_log(cursor: Option<u64>, limit: u32) -> AuditPage {
    read(|state| state.audit.page(cursor, limit))
}

pub fn get_storage_status(block: Option<u64>) -> StorageStatus {
    read(|state| StorageStatus {
        block: block.and_then(|number| state.chain.storage(number).ok()),
        ..storage::status(state)
    })
}

pub fn list_uploads() -> OpenUploads {
    read(|state| OpenUploads { block: state.chain.upload_progress(), transactions: state.open_transactions() })
}

pub fn health() -> Health {
    read(|state| operation::health::health(state, platform::caller()))
}

pub fn get_logs(priority: Option<LogPriority>, cursor: Option<u64>, limit: u32) -> LogPage {
    logs::page(priority, cursor, limit)
}

pub fn set_deletions_stopped(stopped: bool) -> Result<(), DeletionsError> {
    arming_work(|state| state.set_deletions_stopped(stopped))
}
