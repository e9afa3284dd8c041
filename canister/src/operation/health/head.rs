//! Findings about the chain's head and about open uploads.

use super::action::{Action, Command};
use super::finding::{Finding, finding};
use super::sentences::abort_block;
use crate::logs::history::Since;
use crate::platform;
use crate::platform::limits::NS;
use crate::state::State;
use crate::text::{duration, many};
use coppice_interface::ProblemCode;

/// Seconds for which nobody may go on with an open upload or for which calls keep it open, before `health` calls it a problem.
const PATIENCE_SECS: u64 = 3_600;

/// When the last block came, in Unix seconds, where that is known.
pub fn appended_at(state: &State, since: &Since, now: u64) -> Option<u64> {
    // A clock that was set back makes no head of the future.
    let noticed = || since.appended_at(state.chain.state().appended_blocks);
    state.chain.appended_at().filter(|&at| at <= now).or_else(noticed)
}

/// A head whose record cannot be decoded.
pub(super) fn unreadable(state: &State) -> Option<Finding> {
    let chain = state.chain.state();
    let head = chain.head().filter(|head| state.chain.meta(*head).is_none())?;
    let action = (head > chain.oldest).then(|| {
        let text = "Roll back to the block below the head, and append the head again.";
        Action::new(text, Command::call("rollback_to", format!("({})", head - 1)))
    });
    Some(finding(ProblemCode::HeadUnreadable, "the head's record cannot be decoded").with_action(action))
}

/// The open upload, during which no other block is appended.
pub(super) fn open_upload(state: &State) -> Option<Finding> {
    let open = state.chain.upload_progress()?;
    let (number, progress) = (open.number, open.progress);
    let message = format!(
        "the upload of block {number} is open: {} of {} missing, no other block is appended",
        progress.missing,
        many(progress.chunks.into(), "chunk")
    );
    let text = "Its producer commits it; an operator may drop it, and its expiry does.";
    Some(finding(ProblemCode::UploadOpen, message).with_action(abort_block(number, text)))
}

/// A head that is older than `max_head_age_secs`.
pub(super) fn stale_head(state: &State, since: &Since) -> Option<Finding> {
    let (most, now) = (state.config.max_head_age_secs, platform::time_secs());
    let appended_at = appended_at(state, since, now)?;
    let age = now.saturating_sub(appended_at);
    if most == 0 || !state.chain.state().started || age <= most {
        return None;
    }
    let head = state.chain.state().head().unwrap_or_default();
    let message = format!("no block was appended for {}: the head is block {head}", duration(age));
    Some(finding(ProblemCode::HeadStale, message).since_secs(Some(appended_at)))
}

/// An upload that stays open: nobody goes on with it and it does not expire yet, or calls keep that of a block from expiring while no block
/// comes. One that has expired goes with the next tick, and where none comes another problem says so.
pub(super) fn stuck_upload(state: &State, since: &Since) -> Option<Finding> {
    let (now, expiry) = (platform::time_secs(), state.config.upload_expiry_secs);
    let is_long = |secs: u64| now.saturating_sub(secs) > PATIENCE_SECS;
    let stays = |touched: &u64| now < touched.saturating_add(expiry);
    let said = |secs: u64, what: String| finding(ProblemCode::UploadStuck, what).since_secs(Some(secs));
    let left = |touched: u64, what: &str| {
        let long = duration(now - touched);
        let message =
            format!("nobody has gone on with {what} for {long}, and upload_expiry_secs = {expiry} keeps it open");
        said(touched, message)
    };
    let block = state.chain.upload_touched().filter(|touched| stays(touched) && !state.chain.is_aborting());
    let block = block.and_then(|touched| {
        let open = state.chain.upload_progress();
        let (number, missing) = open.map_or((0, 0), |open| (open.number, open.progress.missing));
        if is_long(touched) {
            let action = abort_block(number, "Have its producer go on with it, or drop it, as an operator.");
            return Some(left(touched, &format!("the upload of block {number}")).with_action(action));
        }
        // One upload may follow the other, but for the blocks that they bring.
        let open = since.of(ProblemCode::UploadOpen)? / NS;
        let open = appended_at(state, since, now).map_or(open, |appended| appended.max(open));
        let message = format!(
            "calls have kept the upload of block {number} open for {}, and no block came: {} {} missing",
            duration(now.saturating_sub(open)),
            many(missing.into(), "chunk"),
            if missing == 1 { "is" } else { "are" }
        );
        let text =
            "Where its missing chunks (get_upload) become no fewer, drop it, as an operator, and see to its producer.";
        is_long(open).then(|| said(open, message).with_action(abort_block(number, text)))
    });
    let transaction = || state.utxo.uploads.touched().filter(|touched| stays(touched) && is_long(*touched));
    block.or_else(|| {
        let text = "Have its producer (utxo_list_uploads) go on, or call utxo_abort_transaction; or lower upload_expiry_secs for a while, \
             for the daemon to drop it: other uploads whose calls come less often go, too.";
        let command = Command::call("set_config", "(record { upload_expiry_secs = opt 120 })");
        let said = |touched| left(touched, "the upload of a transaction").with_action(Action::new(text, command));
        transaction().map(said)
    })
}
