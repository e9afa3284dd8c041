//! Findings about the chain's head and about open uploads.

use super::action::{Action, Command};
use super::advice::ABORT;
use super::finding::{Finding, finding};
use crate::platform;
use crate::state::State;
use ic_coppice_interface::text::{duration, many};
use ic_coppice_interface::{OpenBlock, ProblemCode};
use ic_coppice_storage::NS;

/// Seconds for which an open upload may be idle, or be kept open by calls, before `health` reports a problem.
const PATIENCE_SECS: u64 = 3_600;

/// Returns the time of the last append in Unix seconds, or `None` if unknown.
pub fn appended_at(state: &State) -> Option<u64> {
    // After the clock was set back the head's time may be in the future; then the noticed time counts.
    let noticed = || state.history.appended_at(state.chain.state().appended_blocks);
    state.chain.appended_at().filter(|&at| at <= platform::time_secs()).or_else(noticed)
}

/// Returns a finding if the head's header is damaged.
pub(super) fn unreadable(state: &State) -> Option<Finding> {
    let chain = state.chain.state();
    let head = chain.head().filter(|head| state.chain.meta(*head).is_none())?;
    let action = (head > chain.oldest).then(|| {
        let text = "Roll back to the block below the head, and append the head again.";
        Action::new(text, Command::call("rollback_to", format!("({}, null)", head - 1)))
    });
    Some(finding(ProblemCode::HeadUnreadable, "the head's header is damaged").with_action(action))
}

/// Returns a finding about the open upload, which blocks all other appends.
pub(super) fn open_upload(state: &State) -> Option<Finding> {
    let OpenBlock { number, progress } = state.chain.upload_progress()?;
    let (missing, chunks) = (progress.missing, many(progress.chunks.into(), "chunk"));
    let message =
        format!("the upload of block {number} is open: {missing} of {chunks} missing, no other block is appended");
    Some(finding(ProblemCode::UploadOpen, message))
}

/// Returns a finding if the head is older than `max_head_age_secs`.
pub(super) fn stale_head(state: &State) -> Option<Finding> {
    let (most, now) = (state.config.max_head_age_secs, platform::time_secs());
    let appended_at = appended_at(state)?;
    let age = now.saturating_sub(appended_at);
    if most == 0 || !state.chain.state().started || age <= most {
        return None;
    }
    let head = state.chain.state().head().unwrap_or_default();
    let message = format!("no block was appended for {}: the head is block {head}", duration(age));
    Some(finding(ProblemCode::HeadStale, message).since_secs(Some(appended_at)))
}

/// Returns a finding about the upload of a block that stays open: it is idle and does not expire yet, or calls keep it from expiring while no
/// block is appended. The next tick drops an expired upload; if no tick comes, another problem reports that.
pub(super) fn stuck_upload(state: &State) -> Option<Finding> {
    let touched =
        state.chain.upload_touched().filter(|&touched| stays(state, touched) && !state.chain.is_aborting())?;
    let open = state.chain.upload_progress();
    let (number, missing) = open.map_or((0, 0), |open| (open.number, open.progress.missing));
    if is_long(touched) {
        let message = idle(state, touched, &format!("the upload of block {number}"));
        return Some(finding(ProblemCode::UploadStuck, message).since_secs(Some(touched)));
    }
    // Successive uploads that append blocks are not a problem, so the time counts from the last append.
    let now = platform::time_secs();
    let open = state.history.since(ProblemCode::UploadOpen)? / NS;
    let open = appended_at(state).map_or(open, |appended| appended.max(open));
    let message = format!(
        "calls have kept the upload of block {number} open for {} without an append: {} {} missing",
        duration(now.saturating_sub(open)),
        many(missing.into(), "chunk"),
        if missing == 1 { "is" } else { "are" }
    );
    let text = "If its missing chunks (list_uploads) do not decrease, drop it as an operator, and check its producer.";
    let found = finding(ProblemCode::UploadStuck, message).since_secs(Some(open));
    is_long(open).then(|| found.with_action(Action::new(text, ABORT)))
}

/// Returns whether an upload whose last call came at `touched`, in Unix seconds, has not expired.
pub(super) fn stays(state: &State, touched: u64) -> bool {
    platform::time_secs() < touched.saturating_add(state.config.upload_expiry_secs)
}

/// Returns whether a time in Unix seconds is too long ago for an open upload.
pub(super) fn is_long(secs: u64) -> bool {
    platform::time_secs().saturating_sub(secs) > PATIENCE_SECS
}

pub(super) fn idle(state: &State, touched: u64, what: &str) -> String {
    let (long, expiry) = (duration(platform::time_secs() - touched), state.config.upload_expiry_secs);
    format!("{what} has been idle for {long}, and upload_expiry_secs = {expiry} keeps it open")
}
