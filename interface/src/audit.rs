//! The audit log: changes by operators and admins.

use candid::{CandidType, Principal};
use coppice_macros::native_docs;
use serde::{Deserialize, Serialize};

/// Calls of one caller through one method as an operator or an admin within an hour: those that changed something, or
/// those that changed nothing. A text that is too long is cut, and ends in `…`.
#[native_docs]
#[derive(Clone, Debug, PartialEq, Eq, CandidType, Serialize, Deserialize)]
pub struct AuditEntry {
    /// The entry's number; entries are counted from 0, in the order of their first calls.
    pub number: u64,
    /// The time of the first call, in Unix nanoseconds.
    pub first_time: u64,
    /// The time of the last call, in Unix nanoseconds.
    pub last_time: u64,
    /// The number of calls.
    pub calls: u64,
    /// The principal that made the calls.
    pub caller: Principal,
    /// The method that was called; `canister_post_upgrade` where an upgrade brought settings.
    pub method: String,
    /// The argument of the last call; at most 512 bytes.
    pub argument: String,
    /// The state before the first call, of what the calls changed: `name = value`, with `; ` between. Empty where the
    /// calls were refused or changed nothing.
    pub before: String,
    /// The state after the last call, of what the calls changed.
    pub after: String,
    /// The answer to the last call: `Ok`, or the error; at most 384 bytes.
    pub result: String,
}

/// A page of the audit log.
#[native_docs]
#[derive(Clone, Debug, PartialEq, Eq, CandidType, Serialize, Deserialize)]
pub struct AuditPage {
    /// The entries, the newest first. Calls may still be added to an entry until an hour after its first call.
    pub entries: Vec<AuditEntry>,
    /// The cursor with which older entries are asked for; none where these are the oldest.
    pub cursor: Option<u64>,
}
