//! Findings about memory of records that is nearly full, and about the upload of a transaction.

use super::super::action::{Action, Command};
use super::super::advice::RECORDS_ACTION;
use super::super::finding::{Finding, finding};
use super::super::head::{idle, is_long, stays};
use super::super::memory::LEFT;
use crate::state::State;
use crate::state::records::settings_of;
use ic_coppice_interface::ProblemCode;
use ic_coppice_records::owners;
use ic_coppice_storage::blob::Class;

/// Bytes that must be left for new records, or free in their slots.
const FREE: u64 = 4 << 20;

/// Returns a finding if the memory of records, or the number of rows of the deletion queue, is near its cap. An empty store reports nothing,
/// because a small cap may be intended.
pub(super) fn records(state: &State) -> Option<Finding> {
    let (kept, cap) = (state.blobs.arena().touched_bytes(), state.blobs.arena().quota());
    let (rows, most_rows) = state.records.deletions.rows();
    let left = cap.saturating_sub(kept);
    let rows_left = most_rows.saturating_sub(rows);
    // Only near a cap, because each sample calls this and reading the slots' statistics takes 5,000 instructions.
    if left >= (cap / LEFT).max(4 * FREE) && (rows == 0 || rows_left > 0 && rows_left >= most_rows / LEFT) {
        return None;
    }
    let storage = state.records.utxo.storage();
    let free = storage.reusable_bytes;
    let memory = |code, what: &str| {
        let bytes = format!("they keep {kept} of {cap} bytes, and {free} of these are free");
        Some(finding(code, format!("UTXO records {what} max_utxo_bytes: {bytes}")))
    };
    // The setting of rows is another one than that of memory.
    let queue = |code, what: &str| {
        let message = format!("the deletion queue {what} max_deletion_rows: it has {rows} of {most_rows} rows");
        let raise = "(record { utxo = opt record { max_deletion_rows = opt #max_deletion_rows# } })";
        Some(finding(code, message).with_action(Action::new(RECORDS_ACTION, Command::call("set_config", raise))))
    };
    match left.saturating_add(free) {
        _ if storage.records == 0 && rows == 0 => None,
        _ if left < FREE && free < FREE => memory(ProblemCode::RecordsFull, "have reached"),
        _ if rows > 0 && rows_left == 0 => queue(ProblemCode::RecordsFull, "has reached"),
        room if room < (cap / LEFT).max(4 * FREE) => memory(ProblemCode::RecordsNearFull, "come near"),
        _ if rows > 0 && rows_left < most_rows / LEFT => queue(ProblemCode::RecordsNearFull, "comes near"),
        _ => None,
    }
}

/// Returns a finding if the data of transactions in the BlobStore is near its limit. If nothing is kept, or the limit is 0, the limit is
/// intended.
pub(super) fn external(state: &State) -> Option<Finding> {
    let (kept, limit) =
        (state.blobs.arena().kept_bytes(owners::EXTERNAL), settings_of(&state.config).max_external_bytes);
    let left = limit.saturating_sub(kept);
    let [smallest, largest] = [Class::SMALLEST, Class::LARGEST].map(|class| u64::from(class.size()));
    let worded = |code, what: &str| {
        let taken = format!("{kept} of max_external_bytes = {limit} bytes");
        finding(code, format!("transactions in the BlobStore take {taken}: {what}"))
    };
    match left {
        _ if kept == 0 || limit == 0 => None,
        _ if left < smallest => Some(worded(ProblemCode::ExternalFull, "further transactions are refused")),
        _ if left < (limit / LEFT).max(largest.min(limit / 2)) => {
            Some(worded(ProblemCode::ExternalNearFull, "transactions that need more than is left are refused"))
        }
        _ => None,
    }
}

/// Returns a finding about the upload of a transaction that is idle and does not expire yet.
pub(super) fn stuck_transaction(state: &State) -> Option<Finding> {
    let touched = state.transaction_touched().filter(|&touched| stays(state, touched) && is_long(touched))?;
    let message = idle(state, touched, "the upload of a transaction");
    Some(finding(ProblemCode::TransactionUploadStuck, message).since_secs(Some(touched)))
}
