//! Findings about cycles.

use super::advice::end_pause;
use super::finding::{Finding, finding};
use crate::platform;
use crate::platform::cycles::{self, Pause};
use crate::state::State;
use crate::state::records::FED;
use ic_coppice_interface::{CyclesStatus, ProblemCode, UPGRADE_CYCLES, UPGRADE_RESERVE};
use ic_coppice_storage::{GrowError, WASM_PAGE};

/// Pages of memory that must be affordable in advance: 64 MiB, or an eighth of a small canister's cap.
pub(super) fn ahead(max_stable_pages: u64) -> u64 {
    (max_stable_pages / 8).min(1_024)
}

/// Returns the liquid cycles with which no work is refused or paused: for feeding, pruning, timers and an upgrade.
pub fn wanted(state: &State) -> u128 {
    let least = [cycles::feed_min(), state.config.min_liquid_cycles, cycles::timers_need()];
    least.into_iter().fold(of_nodes(state, UPGRADE_RESERVE), u128::max)
}

/// Returns the cycles, for callers that may know them.
pub(super) fn status(state: &State) -> CyclesStatus {
    let liquid = cycles::between_messages();
    CyclesStatus { liquid, missing: wanted(state).saturating_sub(liquid) }
}

/// Returns cycles of 13 nodes in proportion to the subnet's.
fn of_nodes(state: &State, cycles: u128) -> u128 {
    cycles * u128::from(state.config.nodes) / 13
}

/// Adds findings about cycles: too few for pruning, feeding, an upgrade, timers or memory growth.
pub(super) fn findings(state: &State, found: &mut Vec<Finding>) {
    let (liquid, pause) = (cycles::between_messages(), cycles::pause());
    if liquid < state.config.min_liquid_cycles {
        let message = "liquid cycles are below min_liquid_cycles: the pruner is paused";
        found.push(finding(ProblemCode::CyclesLow, message));
    } else if pause == Some(Pause::UntilSafety) {
        let message =
            "liquid cycles were below min_liquid_cycles: the pruner is paused until its next check, within ten minutes";
        found.push(finding(ProblemCode::CyclesLow, message).with_action(end_pause()));
    }
    if liquid < cycles::feed_min() {
        let message = format!("liquid cycles are below feed_min_liquid_cycles: {FED} are refused");
        found.push(finding(ProblemCode::FeedingRefused, message));
    }
    if liquid < of_nodes(state, UPGRADE_RESERVE) {
        let [reserve, needed] = [UPGRADE_RESERVE, UPGRADE_CYCLES].map(|cycles| of_nodes(state, cycles) / 1_000_000_000);
        let message = format!(
            "liquid cycles are below {reserve} G: the platform refuses an upgrade when they are below {needed} G"
        );
        found.push(finding(ProblemCode::UpgradeUnpaid, message));
    }
    if !cycles::pay_timers(liquid) {
        found.push(finding(ProblemCode::TimersStopped, "liquid cycles do not pay for timers: no timer runs"));
    } else if pause == Some(Pause::UntilACall) {
        let message =
            "liquid cycles did not pay for timers: no timer runs until a call of a principal with a role starts them";
        found.push(finding(ProblemCode::TimersStopped, message).with_action(end_pause()));
    }
    let pages = ahead(state.config.max_stable_pages);
    let mib = (pages * WASM_PAGE) >> 20;
    match state.blobs.arena().growth().refusal(pages, platform::timer_call_cycles()) {
        Some(GrowError::LowCycles { .. }) => {
            let message = format!(
                "cycles are missing for stable memory to grow by {mib} MiB: calls that need more memory will be refused"
            );
            found.push(finding(ProblemCode::GrowthUnpaid, message));
        }
        Some(GrowError::ReservedCyclesLimit { .. }) => {
            let message = format!(
                "for stable memory to grow by {mib} MiB more cycles than reserved_cycles_limit would be reserved: what needs that \
                 will be refused"
            );
            found.push(finding(ProblemCode::ReservationLimit, message));
        }
        None | Some(GrowError::OutOfSpace | GrowError::QuotaFull { .. } | GrowError::Later) => {}
    }
}
