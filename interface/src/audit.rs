//! What operators and admins have changed.

use candid::{CandidType, Principal};
use serde::{Deserialize, Serialize};

/// What somebody changed, or tried to, as an operator or an admin. A text that is too long is cut, and ends in `…`.
#[derive(Clone, Debug, PartialEq, Eq, CandidType, Serialize, Deserialize)]
pub struct AuditEntry {
    /// The entry's number; entries are counted from 0.
    pub number: u64,
    /// When the call was made, in Unix nanoseconds.
    pub time: u64,
    /// The principal that made the call.
    pub caller: Principal,
    /// The method that was called; `canister_post_upgrade` where an upgrade brought settings.
    pub method: String,
    /// The argument of the call; at most 512 bytes.
    pub argument: String,
    /// The state before the call, of what the call changed: `name = value`, with `; ` between; at most 512 bytes. Empty
    /// where nothing has changed.
    pub before: String,
    /// The state after the call, of what the call changed; at most 512 bytes.
    pub after: String,
    /// The answer: `Ok`, or the error; at most 384 bytes.
    pub result: String,
}

/// A page of the audit log.
#[derive(Clone, Debug, PartialEq, Eq, CandidType, Serialize, Deserialize)]
pub struct AuditPage {
    /// The entries, the newest first.
    pub entries: Vec<AuditEntry>,
    /// The cursor with which older entries are asked for; none where these are the oldest.
    pub cursor: Option<u64>,
}
