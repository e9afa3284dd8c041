//! What operators and admins have changed.

use candid::{CandidType, Principal};
use serde::{Deserialize, Serialize};

/// What somebody changed, or tried to, as an operator or an admin. A text that is too long is cut, and ends in `…`.
#[derive(Clone, Debug, PartialEq, Eq, CandidType, Serialize, Deserialize)]
pub struct AuditEntry {
    /// Entries are counted from 0.
    pub number: u64,
    /// Nanoseconds since the Unix epoch.
    pub time: u64,
    /// Who.
    pub caller: Principal,
    /// The method; `canister_post_upgrade` where an upgrade brought settings.
    pub method: String,
    /// Its argument; at most 512 bytes.
    pub argument: String,
    /// What it changed, as that was before: `name = value`, with `; ` between; at most 512 bytes. Empty where nothing has changed.
    pub before: String,
    /// The same as it is since; at most 512 bytes.
    pub after: String,
    /// `Ok`, or the error; at most 384 bytes.
    pub result: String,
}

/// A page of the audit log.
#[derive(Clone, Debug, PartialEq, Eq, CandidType, Serialize, Deserialize)]
pub struct AuditPage {
    /// The newest first.
    pub entries: Vec<AuditEntry>,
    /// Where older ones begin; none where these are the last.
    pub cursor: Option<u64>,
}
