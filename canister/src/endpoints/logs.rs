//! The log.

use crate::access::auditor;
use crate::{logs, wire};
use candid::candid_method;
use coppice_interface::{LogPage, LogPriority};
use ic_cdk::query;

/// The canister's log, for observers, operators and admins: lines of a priority, or of all, before number `cursor`, the newest first; at most
/// 1,000, and 100 where `limit` is 0.
#[candid_method(query)]
#[query(guard = "auditor", hidden = true, decode_with = "wire::args")]
fn get_logs(priority: Option<LogPriority>, cursor: Option<u64>, limit: u32) -> LogPage {
    logs::page(priority, cursor, limit)
}
