//! The chain's head, and open uploads.

use super::{Action, Command, Finding, NS, abort_block, duration, finding, many};
use crate::history::Since;
use crate::runtime;
use crate::state::State;
use coppice_interface::ProblemCode;

/// Seconds for which nobody may go on with an open upload or for which calls keep it open, before `health` calls it a problem.
const PATIENCE_SECS: u64 = 3_600;

impl State {
    /// When the last block came, in Unix seconds, where that is known.
    pub fn appended_at(&self, since: &Since, now: u64) -> Option<u64> {
        // A clock that was set back makes no head of the future.
        let noticed = || since.appended_at(self.chain.state().appended_blocks);
        self.chain.appended_at().filter(|&at| at <= now).or_else(noticed)
    }

    pub(super) fn stale_head(&self, since: &Since) -> Option<Finding> {
        let (most, now) = (self.config.max_head_age_secs, runtime::time_secs());
        let appended_at = self.appended_at(since, now)?;
        let age = now.saturating_sub(appended_at);
        if most == 0 || !self.chain.state().started || age <= most {
            return None;
        }
        let head = self.chain.state().head().unwrap_or_default();
        let message = format!("no block was appended for {}: the head is block {head}", duration(age));
        Some(finding(ProblemCode::HeadStale, message).since_secs(Some(appended_at)))
    }

    /// An upload that stays open: nobody goes on with it and it does not expire yet, or calls keep that of a block from expiring while no block
    /// comes. One that has expired goes with the next tick, and where none comes another problem says so.
    pub(super) fn stuck_upload(&self, since: &Since) -> Option<Finding> {
        let (now, expiry) = (runtime::time_secs(), self.config.upload_expiry_secs);
        let is_long = |secs: u64| now.saturating_sub(secs) > PATIENCE_SECS;
        let stays = |touched: &u64| now < touched.saturating_add(expiry);
        let said = |secs: u64, what: String| finding(ProblemCode::UploadStuck, what).since_secs(Some(secs));
        let left = |touched: u64, what: &str| {
            let long = duration(now - touched);
            let message =
                format!("nobody has gone on with {what} for {long}, and upload_expiry_secs = {expiry} keeps it open");
            said(touched, message)
        };
        let block = self.chain.upload_touched().filter(|touched| stays(touched) && !self.chain.is_aborting());
        let block = block.and_then(|touched| {
            let open = self.chain.upload_progress();
            let (number, missing) = open.map_or((0, 0), |open| (open.number, open.progress.missing));
            if is_long(touched) {
                let action = abort_block(number, "Have its producer go on with it, or drop it, as an operator.");
                return Some(left(touched, &format!("the upload of block {number}")).with_action(action));
            }
            // One upload may follow the other, but for the blocks that they bring.
            let open = since.of(ProblemCode::UploadOpen)? / NS;
            let open = self.appended_at(since, now).map_or(open, |appended| appended.max(open));
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
        let transaction = || self.utxo.uploads.touched().filter(|touched| stays(touched) && is_long(*touched));
        block.or_else(|| {
            let text = "Have its producer (utxo_list_uploads) go on, or call utxo_abort_transaction; or lower upload_expiry_secs for a while, \
                 for the daemon to drop it: other uploads whose calls come less often go, too.";
            let command = Command::call("set_config", "(record { upload_expiry_secs = opt 120 })");
            let said = |touched| left(touched, "the upload of a transaction").with_action(Action::new(text, command));
            transaction().map(said)
        })
    }
}
