//! The log.

use crate::access::auditor;
use crate::{logs, wire};
use candid::candid_method;
use coppice_interface::{LogPage, LogPriority};
use ic_cdk::query;

/// The lines of the canister's log of a priority, or of all, the newest first, from before the line with the number `cursor`; for observers,
/// operators and admins. A page has `limit` lines at most, and 1,000; 0: 100.
#[candid_method(query)]
#[query(
    guard = "auditor",
    guard = "wire::readable::<(Option<LogPriority>, Option<u64>, u32,)>",
    hidden = true,
    decode_with = "wire::args"
)]
fn get_logs(priority: Option<LogPriority>, cursor: Option<u64>, limit: u32) -> LogPage {
    logs::page(priority, cursor, limit)
}
