//! Audit log: changes by operators and admins.

use candid::Principal;
use ic_coppice_macros::candid_type;

/// Calls by which one caller, as an operator or an admin, used one method within an hour: those that changed something,
/// or those that changed nothing. A text that is too long is cut, and ends with `…`.
#[candid_type]
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuditEntry {
    /// The entry's number; entries are counted from 0, in the order of their first calls.
    pub number: u64,
    /// The time of the first call, in Unix nanoseconds.
    pub first_time_ns: u64,
    /// The time of the last call, in Unix nanoseconds.
    pub last_time_ns: u64,
    /// The number of calls.
    pub calls: u64,
    /// The principal that made the calls.
    pub caller: Principal,
    /// The method that was called; `canister_post_upgrade` if an upgrade changed settings.
    pub method: String,
    /// The argument of the last call; at most 512 bytes.
    pub argument: String,
    /// The state before the first call, of the fields that the calls changed: `name = value`, separated by `; `. Empty
    /// if the calls were refused or changed nothing.
    pub before: String,
    /// The state after the last call, of the fields that the calls changed.
    pub after: String,
    /// The answer to the last call: `Ok`, or the error; at most 384 bytes.
    pub result: String,
}

/// A page of the audit log.
#[candid_type]
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuditPage {
    /// The entries, newest first. An entry may still count more calls until an hour after its first call.
    pub entries: Vec<AuditEntry>,
    /// The cursor for older entries; `null` if there are none.
    pub cursor: Option<u64>,
}
