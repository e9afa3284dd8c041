//! Whether all is well: what is wrong, by code, since when, and what to do.
//!
//! What is wrong is found anew by whoever asks. Since when is noted by messages and ticks that run anyway, with the sample that they take
//! (`history`), unless what is wrong knows it itself. Sentences say nothing of balances: anybody may read them.

mod action;
mod advice;
mod chain;
mod deletions;
mod room;
mod words;

use crate::prune::Due;
use crate::state::State;
use crate::{daemon, runtime};
pub use action::{Action, Command};
use advice::advice;
use coppice_interface::{Health, Problem, ProblemCode, Severity};
pub use words::{abort_block, duration, holder, many, refusal, remedy, remedy_of_holder};

const NS: u64 = 1_000_000_000;

/// The remedy for an open upload.
const UPLOAD_ACTION: &str = "Its producer commits it; an operator may drop it, and its expiry does.";

/// Something that is wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// What.
    pub code: ProblemCode,
    /// A sentence.
    pub message: String,
    /// Since when, in nanoseconds since the Unix epoch, where that is known.
    pub since: Option<u64>,
    /// What to do, where that is not the same for all of its code.
    pub action: Option<Box<Action>>,
    /// It is wrong where it has lasted for longer than so many seconds; 0: at once.
    pub patience_secs: u64,
}

/// Something that is wrong, which does not know since when.
pub fn finding(code: ProblemCode, message: impl Into<String>) -> Finding {
    Finding { code, message: message.into(), since: None, action: None, patience_secs: 0 }
}

impl Finding {
    /// The same since a second since the Unix epoch.
    #[must_use]
    pub fn since_secs(self, secs: Option<u64>) -> Self {
        Self { since: secs.map(|secs| secs.saturating_mul(NS)), ..self }
    }

    /// Returns the finding with the remedy for this case, if there is one.
    #[must_use]
    pub fn with_action(self, action: impl Into<Option<Action>>) -> Self {
        Self { action: action.into().map(Box::new), ..self }
    }

    /// The same, wrong only where it has lasted for longer than so many seconds.
    #[must_use]
    pub fn lasting(self, patience_secs: u64) -> Self {
        Self { patience_secs, ..self }
    }
}

impl State {
    /// What is wrong where this is due, also what has not lasted for long enough yet. `deep`: with all sentences, and what lies on pages of
    /// its own is looked at, too: the head's record, and the first rows of the deletion queue.
    pub fn findings(&self, due: Option<&Due>, deep: bool) -> Vec<Finding> {
        let mut found = Vec::new();
        if let Some((timer, due)) = daemon::overdue(self, runtime::time_ns()) {
            let late = runtime::time_ns().saturating_sub(due) / NS;
            let message = format!("the timer for {timer} is overdue by {}", duration(late));
            found.push(Finding { since: Some(due), ..finding(ProblemCode::TimerOverdue, message) });
        }
        found.extend(self.pruner.problems(&self.chain, &self.blobs, || self.constraints(), due, deep));
        found.extend(self.deletions_stopped.map(|since| {
            let message =
                "set_deletions_stopped(true): no block and no UTXO record is pruned, and workers get no blob to delete";
            Finding { since: Some(since), ..finding(ProblemCode::DeletionsStopped, message) }
        }));
        found.extend(self.keyless_exporters());
        if !deep && self.pruner.at_emergency(&self.chain, &self.blobs) {
            // Who holds it is asked anew for a sentence only.
            found.push(finding(ProblemCode::CapacityExhausted, ""));
        } else if let Some(held_by) = self.pruner.exhausted(&self.chain, &self.blobs, || self.constraints()) {
            let message = format!("emergency water is reached, appends are refused; held by {}", holder(&held_by));
            found.push(finding(ProblemCode::CapacityExhausted, message).with_action(remedy_of_holder(&held_by)));
        }
        found.extend(self.pruner.too_small(&self.chain, &self.blobs));
        self.cycles(&mut found);
        found.extend(self.cap());
        found.extend(self.external());
        found.extend(self.records());
        found.extend(self.pruner.damage(self.lost()));
        if deep && self.chain.state().head().is_some_and(|head| self.chain.meta(head).is_none()) {
            let below = self.chain.state().head().filter(|head| *head > self.chain.state().oldest).map(|head| head - 1);
            let action = below.map(|below| {
                let text = "Roll back to the block below the head, and append the head again.";
                Action::new(text, Command::call("rollback_to", format!("({below})")))
            });
            let message = "the head's record cannot be decoded";
            found.push(finding(ProblemCode::HeadUnreadable, message).with_action(action));
        }
        found.extend(self.utxo_pruner.problems(&self.config.utxo, &self.deletions));
        // No worker is given any while deletions are stopped.
        if self.deletions_stopped.is_none() {
            found.extend(self.untaken(&self.history.since, deep));
            found.extend(self.idle_holder());
        }
        if let Some(open) = self.chain.upload_progress() {
            let (number, progress) = (open.number, open.progress);
            let message = format!(
                "the upload of block {number} is open: {} of {} missing, no other block is appended",
                progress.missing,
                many(progress.chunks.into(), "chunk")
            );
            found.push(finding(ProblemCode::UploadOpen, message).with_action(abort_block(number, UPLOAD_ACTION)));
        }
        found.extend(self.stuck_upload(&self.history.since));
        found.extend(self.stale_head(&self.history.since));
        if deep {
            found.extend(self.not_set_up());
        }
        found
    }

    /// Returns the findings about missing setup. These have no start time.
    fn not_set_up(&self) -> impl Iterator<Item = Finding> {
        let is_meant = self.config.set_up_as_meant;
        let all = [
            (ProblemCode::NoProducer, !self.roles.has_feeder(), "nobody has a role that feeds blocks or UTXO records"),
            (ProblemCode::NoExporter, !is_meant && self.exporters.is_empty(), "no exporter copies the chain"),
            (ProblemCode::NoPolicy, !is_meant && self.pruner.policy().is_none(), "no policy says what is pruned"),
        ];
        all.into_iter().filter(|(_, is_so, _)| *is_so).map(|(code, _, message)| finding(code, message))
    }

    /// Exporters whose key was revoked: the one that holds pruning back most is named.
    fn keyless_exporters(&self) -> Option<Finding> {
        let (name, bound) = self.exporters.keyless().min_by_key(|(_, bound)| *bound)?;
        let bound = bound.max(self.chain.state().oldest);
        let more = match self.exporters.keyless().count() - 1 {
            0 => String::new(),
            1 => "; another exporter has no key, either (get_export_status)".into(),
            more => format!("; {more} more exporters have no key (get_export_status)"),
        };
        let message =
            format!("exporter {name} has no key since its role was revoked: no block from {bound} on is pruned{more}");
        Some(finding(ProblemCode::ExporterKeyless, message).with_action(words::another_key(name)))
    }

    /// What is due.
    pub fn due(&self) -> Option<Due> {
        self.pruner.due(&self.chain, &self.blobs, self.constraints().guard().as_ref())
    }

    /// Returns the findings that have lasted for long enough, the worst first, with their severity and since when, in Unix nanoseconds.
    pub fn raised(&self) -> Vec<(Severity, u64, Finding)> {
        let now = runtime::time_ns();
        let has_lasted = |found: Finding| {
            let since = found.since.or_else(|| self.history.since.of(found.code)).unwrap_or(now).min(now);
            let has_lasted = found.patience_secs == 0 || now - since > found.patience_secs.saturating_mul(NS);
            has_lasted.then(|| (advice(found.code).0, since, found))
        };
        let mut raised: Vec<_> = self.findings(self.due().as_ref(), true).into_iter().filter_map(has_lasted).collect();
        raised.sort_by_key(|(severity, _, found)| (*severity, found.code));
        raised
    }

    /// Returns whether all is well, and each problem with what to do about it.
    pub fn health(&self) -> Health {
        let problem = |(severity, since, Finding { code, message, action, .. })| {
            let action = action.map_or_else(|| advice(code).1, |action| *action).say();
            Problem { code: code.to_string(), severity, message, since, action }
        };
        let problems: Vec<Problem> = self.raised().into_iter().map(problem).collect();
        Health {
            healthy: problems.iter().all(|problem| problem.severity == Severity::Notice),
            problems,
            version: env!("CARGO_PKG_VERSION").into(),
            time: runtime::time_ns(),
        }
    }
}

#[cfg(test)]
mod tests;
