//! Whether all is well: what is wrong, by code, since when, and what to do.
//!
//! What is wrong is found anew by whoever asks. Since when is noted by messages and ticks that run anyway, with the sample that they take
//! (`history`), unless what is wrong knows it itself. Sentences say nothing of balances: anybody may read them.

mod advice;
mod chain;
mod deletions;
mod room;
mod words;

use crate::prune::Due;
use crate::state::State;
use crate::{daemon, runtime};
use advice::advice;
use coppice_interface::{Health, Problem, ProblemCode, Severity};
pub use words::{duration, holder, many, refusal, remedy};

const NS: u64 = 1_000_000_000;

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
    pub action: Option<&'static str>,
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
            found.push(finding(ProblemCode::CapacityExhausted, message));
        }
        found.extend(self.pruner.too_small(&self.chain, &self.blobs));
        self.cycles(&mut found);
        found.extend(self.cap());
        found.extend(self.external());
        found.extend(self.records());
        found.extend(self.pruner.damage(self.lost()));
        if deep && self.chain.state().head().is_some_and(|head| self.chain.meta(head).is_none()) {
            found.push(finding(ProblemCode::HeadUnreadable, "the head's record cannot be decoded"));
        }
        found.extend(self.utxo_pruner.problems(&self.config.utxo, &self.deletions));
        // No worker is given any while deletions are stopped.
        if self.deletions_stopped.is_none() {
            found.extend(self.untaken(&self.history.since, deep));
        }
        if let Some(open) = self.chain.upload_progress() {
            let (number, progress) = (open.number, open.progress);
            let message = format!(
                "the upload of block {number} is open: {} of {} chunks are missing, no other block is appended",
                progress.missing, progress.chunks
            );
            found.push(finding(ProblemCode::UploadOpen, message));
        }
        found.extend(self.stuck_upload(&self.history.since));
        found.extend(self.stale_head(&self.history.since));
        found
    }

    /// Exporters whose key was revoked: the one that holds pruning back most is named.
    fn keyless_exporters(&self) -> Option<Finding> {
        let (name, bound) = self.exporters.keyless().min_by_key(|(_, bound)| *bound)?;
        let bound = bound.max(self.chain.state().oldest);
        let more = match self.exporters.keyless().count() - 1 {
            0 => String::new(),
            more => format!("; {more} more exporters have no key (get_export_status)"),
        };
        let message =
            format!("exporter {name} has no key since its role was revoked: no block from {bound} on is pruned{more}");
        Some(finding(ProblemCode::ExporterKeyless, message))
    }

    /// What is due.
    pub fn due(&self) -> Option<Due> {
        self.pruner.due(&self.chain, &self.blobs, self.constraints().guard().as_ref())
    }

    /// Whether all is well.
    pub fn health(&self) -> Health {
        let now = runtime::time_ns();
        let problem = |Finding { code, message, since, action, patience_secs }: Finding| {
            let since = since.or_else(|| self.history.since.of(code)).unwrap_or(now).min(now);
            let has_lasted = patience_secs == 0 || now - since > patience_secs.saturating_mul(NS);
            let (severity, usual) = advice(code);
            let action = action.unwrap_or(usual).into();
            has_lasted.then_some(Problem { code, severity, message, since, action })
        };
        let found = self.findings(self.due().as_ref(), true);
        let mut problems: Vec<Problem> = found.into_iter().filter_map(problem).collect();
        problems.sort_by_key(|problem| (problem.severity, problem.code));
        Health {
            healthy: problems.iter().all(|problem| problem.severity == Severity::Notice),
            problems,
            version: env!("CARGO_PKG_VERSION").into(),
            time: now,
        }
    }
}

#[cfg(test)]
mod tests;
