//! Health: the present problems, each with its code, start time and remedy.
//!
//! Each call checks all conditions anew. Samples (`sampling`) record since when a problem lasts, unless the finding knows its start time.
//! Problem texts name no balance, because all callers may read them.
//!
//! - `finding`: a condition that holds. `blocks`, `cycles`, `head`, `memory`, `records/`: the checks. `causes`: the order.
//! - `action`: types of remedies. `advice`: the remedy of each code. `sentences`: that of each holder of pruning. `values`, `say`: the text.

mod action;
mod advice;
pub(crate) mod blocks;
mod causes;
mod cycles;
mod finding;
mod head;
mod memory;
pub(crate) mod records;
mod say;
mod sentences;
mod values;

use crate::platform::{self, cycles as liquid};
use crate::state::State;
use crate::state::records::{FED, KEPT};
use advice::advice;
use candid::Principal;
use finding::Raised;
pub use finding::{Finding, finding};
pub use head::appended_at;
use ic_coppice_chain::Admission;
use ic_coppice_chain::pruning::Due;
use ic_coppice_interface::access::AUDITORS;
use ic_coppice_interface::text::duration;
use ic_coppice_interface::{AppendError, Health, Problem, ProblemCode, Severity};
use ic_coppice_storage::NS;
use say::say;
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
    found.extend(of_due.into_iter().map(|of| records::with_stop(state, of, held_by)));
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
    found.extend(if deep { head::unreadable(state) } else { None });
    if KEPT {
        found.extend(records::findings(state, deep));
    }
    found.extend(head::open_upload(state));
    found.extend(head::stuck_upload(state));
    found.extend(head::stale_head(state));
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

/// Returns the findings that have lasted long enough, as [`causes::order`] sorts them.
pub fn raised(state: &State) -> Vec<Raised> {
    let now = platform::time_ns();
    let has_lasted = |found: Finding| {
        let since = found.since.or_else(|| state.history.since(found.code)).map(|since| since.min(now));
        let has_lasted =
            found.patience_secs == 0 || now - since.unwrap_or(now) > found.patience_secs.saturating_mul(NS);
        has_lasted.then(|| (advice(found.code).0, since, found))
    };
    let mut raised = findings(state, state.due().as_ref(), true).into_iter().filter_map(has_lasted).collect();
    causes::order(&mut raised);
    raised
}

/// Returns the health report: each problem with its remedy. `caller` may know the balance only with a role that reads the log.
pub fn health(state: &State, caller: Principal) -> Health {
    let may_know = AUDITORS.iter().any(|&role| state.roles.has(caller, role));
    let cycles = may_know.then(|| cycles::status(state));
    let problem = |(severity, since_ns, Finding { code, message, action, .. })| {
        let action = say(&action.map_or_else(|| advice(code).1, |action| *action), state, cycles);
        Problem { code: code.to_string(), severity, message, since_ns, action }
    };
    let problems: Vec<Problem> = raised(state).into_iter().map(problem).collect();
    Health {
        healthy: problems.iter().all(|problem| problem.severity == Severity::Notice),
        problems,
        appends_refused: appends_refused(state),
        cycles,
        version: env!("CARGO_PKG_VERSION").into(),
        time_ns: platform::time_ns(),
        looked_at_ns: Some(state.clock.sampled_secs * NS).filter(|&at| at > 0),
    }
}

/// Returns the reason why the next block would be refused.
fn appends_refused(state: &State) -> Option<String> {
    // A query knows no message that compared the cycles.
    let admission = Admission { missing_cycles: liquid::feed_missing(), ..state.admission() };
    Some(match state.chain.check_next(&admission).err()? {
        AppendError::CapacityExhausted { held_by } => {
            format!("emergency water is reached; held by {}", holder(&held_by))
        }
        AppendError::UploadOpen(_) => {
            let number = state.chain.upload_progress().map_or(0, |open| open.number);
            format!("the upload of block {number} is open until it is done or dropped")
        }
        error => error.to_string(),
    })
}

#[cfg(test)]
mod tests;
