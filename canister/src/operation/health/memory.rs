//! Findings about memory that is nearly full: of the canister, of records, of external transactions.

use super::cycles::AHEAD_BUCKETS;
use super::finding::{Finding, finding};
use crate::state::State;
use crate::storage::blob::{Class, Owner};
use crate::storage::memory::{self, WASM_PAGE};
use coppice_interface::{ProblemCode, RECORDS_RESERVE};

/// Bytes that must be free for new records when their memory cannot grow.
const FREE: u64 = 4 << 20;
/// Divisor: 1/`LEFT` of `max_stable_pages` must be left or reusable, and 1/`LEFT` of `max_external_bytes` must be left.
const LEFT: u64 = 20;

/// Returns a finding if stable memory is near its cap. Billed pages never decrease; new blobs reuse the memory of freed ones, so reusable
/// memory counts as left.
pub(super) fn cap(state: &State) -> Option<Finding> {
    let (billed, cap) = (memory::billed_pages(), state.config.max_stable_pages);
    // The reserve is for existing UTXO records.
    let kept = RECORDS_RESERVE / WASM_PAGE;
    let (bucket, left) = (memory::BUCKET / WASM_PAGE, cap.saturating_sub(billed + kept));
    let reusable = state.blobs.reusable_bytes() / WASM_PAGE;
    let worded = |code, what: &str| {
        let message = format!(
            "stable memory {what} max_stable_pages: {billed} of {cap} pages of 64 KiB are billed, of which new blobs can take \
             {reusable}, and {kept} are the reserve of UTXO records"
        );
        finding(code, message)
    };
    match left {
        _ if left < bucket && reusable < AHEAD_BUCKETS * bucket => {
            Some(worded(ProblemCode::MemoryAtCap, "has reached"))
        }
        _ if left.saturating_add(reusable) < (AHEAD_BUCKETS * bucket).max(cap / LEFT) => {
            Some(worded(ProblemCode::MemoryNearCap, "comes near"))
        }
        _ => None,
    }
}

/// Returns a finding if the memory of records, or the number of rows of the deletion queue, is near its cap. New records reuse the slots of
/// pruned ones. An empty store reports nothing, because a small cap may be intended.
pub(super) fn records(state: &State) -> Option<Finding> {
    let (billed, cap) = (memory::manager().quota().billed(), memory::manager().quota().cap());
    let (rows, most_rows) = state.deletions.rows();
    let left = cap.saturating_sub(billed);
    let rows_left = most_rows.saturating_sub(rows);
    // Only near a cap, because each sample calls this and reading the slots' statistics takes 5,000 instructions.
    if left >= (cap / LEFT).max(memory::BUCKET) && (rows == 0 || rows_left > 0 && rows_left >= most_rows / LEFT) {
        return None;
    }
    let storage = state.utxo.storage();
    // Above the cap new records take only reusable slots.
    let free = storage.reusable_bytes + if billed > cap { 0 } else { state.utxo.unused_bytes() };
    let any = storage.records > 0 || rows > 0;
    let memory = |what: &str| {
        format!(
            "UTXO records {what} max_utxo_bytes: {billed} of {cap} bytes are billed for them, and new ones can take {free}"
        )
    };
    let queue = |what: &str| format!("the deletion queue {what} max_deletion_rows: it has {rows} of {most_rows} rows");
    let (code, message) = match any {
        false => return None,
        _ if left < memory::BUCKET && free < FREE => (ProblemCode::RecordsFull, memory("have reached")),
        _ if rows > 0 && rows_left == 0 => (ProblemCode::RecordsFull, queue("has reached")),
        _ if left.saturating_add(free) < (cap / LEFT).max(memory::BUCKET) => {
            (ProblemCode::RecordsNearFull, memory("come near"))
        }
        _ if rows > 0 && rows_left < most_rows / LEFT => (ProblemCode::RecordsNearFull, queue("comes near")),
        _ => return None,
    };
    Some(finding(code, message))
}

/// Returns a finding if the data of transactions in the BlobStore is near its limit. If nothing is kept, or the limit is 0, the limit is
/// intended.
pub(super) fn external(state: &State) -> Option<Finding> {
    let (kept, limit) = (state.blobs.kept_bytes(Owner::External), state.config.utxo.max_external_bytes);
    let left = limit.saturating_sub(kept);
    let size = |class: Option<Class>| class.map_or(0, |class| u64::from(class.size()));
    let (smallest, largest) = (size(Class::all().next()), size(Class::all().last()));
    let worded = |code, what: &str| {
        let message =
            format!("transactions in the BlobStore take {kept} of max_external_bytes = {limit} bytes: {what}");
        finding(code, message)
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
