//! The chain's head, and its open upload.

use super::{Finding, duration, finding};
use crate::history::Since;
use crate::runtime;
use crate::state::State;
use coppice_interface::ProblemCode;

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
}
