//! Health: the present problems, each with its code, start time and remedy.
//!
//! Each call checks all conditions anew. Samples (`sampling`) record since when a problem lasts, unless the finding knows its start time.
//! Problem texts name no balance, because all callers may read them.

mod action;
mod advice;
pub(crate) mod blocks;
mod cycles;
mod finding;
mod head;
mod memory;
#[cfg(not(feature = "records"))]
#[path = "no_records.rs"]
mod records;
#[cfg(feature = "records")]
pub(crate) mod records;
mod sentences;

use crate::platform;
use crate::state::State;
use crate::state::records::FED;
use advice::advice;
use coppice_chain::pruning::Due;
use coppice_interface::text::duration;
use coppice_interface::{Health, Problem, ProblemCode, Severity};
use coppice_storage::NS;
pub use finding::{Finding, finding};
pub use head::appended_at;
pub use sentences::holder;

/// Returns all findings, including those that have not lasted long enough to be problems; `due` are the due blocks. `deep` asks for all
/// sentences, and for checks of pages that nothing else reads.
pub fn findings(state: &State, due: Option<&Due>, deep: bool) -> Vec<Finding> {
    let mut found = Vec::new();
    if let Some(due) = state.overdue(platform::time_ns()) {
        let late = platform::time_ns().saturating_sub(due) / NS;
        let message = format!("a timer of the daemon is overdue by {}", duration(late));
        found.push(Finding { since: Some(due), ..finding(ProblemCode::TimerOverdue, message) });
    }
    if !state.key.is_set() {
        let message = format!("the hash key is not drawn yet: {FED} are refused as NotReady");
        found.push(finding(ProblemCode::NotReady, message));
    }
    let State { pruner, chain, blobs, .. } = state;
    let of_due = blocks::due((pruner, chain, blobs), || state.constraints(), due, deep);
    let held_by = due.and_then(|due| due.held_by.as_ref());
    found.extend(of_due.into_iter().map(|of| match held_by.filter(|_| of.code == ProblemCode::ExportHeld) {
        Some(held_by) => records::with_stop(state, of, held_by),
        None => of,
    }));
    found.extend(state.deletions_stopped.map(|since| {
        let message = format!("set_deletions_stopped(true): {}", records::STOPPED);
        Finding { since: Some(since), ..finding(ProblemCode::DeletionsStopped, message) }
    }));
    found.extend(blocks::keyless_exporters(state));
    found.extend(blocks::exhausted(state, deep));
    found.extend(blocks::too_small(pruner, chain, blobs));
    cycles::findings(state, &mut found);
    found.extend(memory::cap(state));
    found.extend(memory::strays(state));
    found.extend(blocks::damage(state.pruner.stored(), state.lost()));
    if deep {
        found.extend(head::unreadable(state));
    }
    found.extend(records::findings(state, deep));
    found.extend(head::open_upload(state));
    found.extend(head::stuck_upload(state, &state.history.since));
    found.extend(head::stale_head(state, &state.history.since));
    if deep {
        found.extend(not_set_up(state));
    }
    found
}

/// Returns the findings about missing setup. Such a finding has no start time.
fn not_set_up(state: &State) -> impl Iterator<Item = Finding> {
    let is_meant = state.config.set_up_as_meant;
    let all = [
        (ProblemCode::NoProducer, !state.roles.has_feeder(), records::NO_FEEDER),
        (ProblemCode::NoExporter, !is_meant && state.exporters.is_empty(), "no exporter copies the chain"),
        (ProblemCode::NoPolicy, !is_meant && state.pruner.policy().is_none(), "no pruning policy is set"),
    ];
    all.into_iter().filter(|(_, is_so, _)| *is_so).map(|(code, _, message)| finding(code, message))
}

/// Returns the findings that have lasted long enough, worst first, with their severity and start time in Unix nanoseconds.
pub fn raised(state: &State) -> Vec<(Severity, u64, Finding)> {
    let now = platform::time_ns();
    let has_lasted = |found: Finding| {
        let since = found.since.or_else(|| state.history.since.of(found.code)).unwrap_or(now).min(now);
        let has_lasted = found.patience_secs == 0 || now - since > found.patience_secs.saturating_mul(NS);
        has_lasted.then(|| (advice(found.code).0, since, found))
    };
    let mut raised: Vec<_> = findings(state, state.due().as_ref(), true).into_iter().filter_map(has_lasted).collect();
    raised.sort_by_key(|(severity, _, found)| (*severity, found.code));
    raised
}

/// Returns the health report: each problem with its remedy.
pub fn health(state: &State) -> Health {
    let problem = |(severity, since, Finding { code, message, action, .. })| {
        let action = action.map_or_else(|| advice(code).1, |action| *action).say();
        Problem { code: code.to_string(), severity, message, since_ns: since, action }
    };
    let problems: Vec<Problem> = raised(state).into_iter().map(problem).collect();
    Health {
        healthy: problems.iter().all(|problem| problem.severity == Severity::Notice),
        problems,
        version: env!("CARGO_PKG_VERSION").into(),
        time_ns: platform::time_ns(),
    }
}

#[cfg(test)]
mod tests;
