//! The chain's head, and open uploads.

use super::{Finding, duration, finding};
use crate::history::Since;
use crate::runtime;
use crate::state::State;
use coppice_interface::ProblemCode;

/// Seconds for which nobody may go on with an open upload before `health` calls it a problem.
const PATIENCE_SECS: u64 = 3_600;

impl State {
    pub(super) fn stale_head(&self, since: &Since) -> Option<Finding> {
        let (most, now) = (self.config.max_head_age_secs, runtime::time_secs());
        // A clock that was set back makes no head of the future.
        let noticed = || since.appended_at(self.chain.state().appended_blocks);
        let appended_at = self.chain.appended_at().filter(|&at| at <= now).or_else(noticed)?;
        let age = now.saturating_sub(appended_at);
        if most == 0 || !self.chain.state().started || age <= most {
            return None;
        }
        let head = self.chain.state().head().unwrap_or_default();
        let message = format!("no block was appended for {}: the head is block {head}", duration(age));
        Some(finding(ProblemCode::HeadStale, message).since_secs(Some(appended_at)))
    }

    /// The upload of a block, or of a transaction, that nobody goes on with and that does not expire yet. One that has expired goes with the
    /// next tick, and where none comes another problem says so.
    pub(super) fn abandoned_upload(&self) -> Option<Finding> {
        let (now, expiry) = (runtime::time_secs(), self.config.upload_expiry_secs);
        let stays = |touched: &u64| now < touched.saturating_add(expiry);
        let block = self.chain.upload_touched().filter(|_| !self.chain.is_aborting());
        let transaction = self.utxo.uploads.touched();
        let is_left = |touched: &u64| stays(touched) && now.saturating_sub(*touched) > PATIENCE_SECS;
        let said = |touched: u64, what: &str| {
            let message = format!(
                "nobody has gone on with {what} for {}, and upload_expiry_secs = {expiry} keeps it open",
                duration(now - touched)
            );
            finding(ProblemCode::UploadAbandoned, message).since_secs(Some(touched))
        };
        let number = || self.chain.upload_progress().map_or(0, |open| open.number);
        let block = block.filter(is_left).map(|touched| said(touched, &format!("the upload of block {}", number())));
        block.or_else(|| transaction.filter(is_left).map(|touched| said(touched, "the upload of a transaction")))
    }
}
