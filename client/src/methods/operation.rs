//! Configuration, roles, storage and health.

use super::methods;
use coppice_interface::*;

methods! {
    /// The configuration.
    query get_config() -> Config;

    /// Changes the configuration: what is left out stays. For admins.
    ///
    /// Repeating it changes nothing more.
    update set_config(change: &ConfigChange) -> Config, or ConfigError;

    /// Gives somebody a role. For admins.
    ///
    /// Repeating it changes nothing.
    update grant_role(grant: &Grant) -> (), or RoleError;

    /// Takes a role from somebody. For admins. Answers whether there was such a grant. An exporter keeps its name and its bound, without a
    /// key, and holds pruning until an admin registers a principal under that name or removes it.
    ///
    /// Repeating it answers that there is none.
    update revoke_role(grant: &Grant) -> bool;

    /// Who has which role; controllers, who are operators and admins, are not among them.
    query list_roles() -> Vec<Grant>;

    /// Calls by which operators and admins changed something, or tried to, the newest first: from the cursor on, `limit` entries, at most 250;
    /// 0: 100. For observers, operators and admins.
    query get_audit_log(cursor: Option<u64>, limit: u32) -> AuditPage;

    /// The log's lines of a priority, or of all, the last first: from the cursor on, `limit` lines, 1,000 at most; 0: 100. For observers,
    /// operators and admins.
    query get_logs(priority: Option<LogPriority>, cursor: Option<u64>, limit: u32) -> LogPage;

    /// What memory holds, by region and by owner.
    query get_storage_status() -> StorageStatus;

    /// Whether anything needs somebody's attention, and what.
    query health() -> Health;

    /// A page of the canister's, as a gateway would ask for it: the dashboard, metrics, health, the log.
    query http_request(request: &HttpRequest) -> HttpResponse;
}
