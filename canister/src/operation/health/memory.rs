//! Findings about stable memory that is nearly full.

use super::cycles::ahead;
use super::finding::{Finding, finding};
use crate::state::State;
use ic_coppice_interface::ProblemCode;

/// Divisor: 1/`LEFT` of a cap must be left or reusable.
pub(super) const LEFT: u64 = 20;

/// Returns a finding if stable memory is near its cap. Billed pages never decrease; new blobs reuse freed memory, so what is free for blobs
/// of the chain counts as left.
pub(super) fn cap(state: &State) -> Option<Finding> {
    let (billed, cap) = (state.blobs.arena().billed_pages(), state.config.max_stable_pages);
    let left = cap.saturating_sub(billed);
    let class = state.chain.log_class();
    let reusable = state.blobs.arena().available(class) * class.granules();
    let worded = |code, what: &str| {
        let message = format!(
            "stable memory {what} max_stable_pages: {billed} of {cap} pages of 64 KiB are billed, of which new blobs can take {reusable}"
        );
        finding(code, message)
    };
    match left {
        _ if left < ahead(cap) / 4 && reusable < ahead(cap) => Some(worded(ProblemCode::MemoryAtCap, "has reached")),
        _ if left.saturating_add(reusable) < ahead(cap).max(cap / LEFT) => {
            Some(worded(ProblemCode::MemoryNearCap, "comes near"))
        }
        _ => None,
    }
}

/// Returns a finding if other code of the canister has grown stable memory.
pub(super) fn strays(state: &State) -> Option<Finding> {
    let bytes = state.blobs.arena().stray_bytes();
    let message =
        format!("{bytes} bytes of stable memory are not of this chain: they are billed, and never read or written");
    (bytes > 0).then(|| finding(ProblemCode::StrayMemory, message))
}
