//! Whether all is well: what is wrong, by code, since when, and what to do.
//!
//! What is wrong is found anew by whoever asks. Since when is noted by messages and ticks that run anyway, with the sample that they take
//! (`history`), unless what is wrong knows it itself. Sentences say nothing of balances: anybody may read them.

use crate::cycles::Pause;
use crate::history::Since;
use crate::memory::{self, GrowError, WASM_PAGE, growth};
use crate::prune::Due;
use crate::state::State;
use crate::{cycles, daemon, runtime};
use coppice_interface::{Health, HeldBy, Problem, ProblemCode, Severity, UtxoRefusal};

const NS: u64 = 1_000_000_000;
/// Buckets of memory whose growth is looked ahead to.
const AHEAD_BUCKETS: u64 = 4;
/// Share of `max_stable_pages` that is to be left, or reusable.
const LEFT: u64 = 20;

/// What to do where the cap on memory is near, or reached.
const CAP_ACTION: &str =
    "Raise max_stable_pages (set_config), or have less kept (set_prune_policy): new blobs take what pruned ones leave.";

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
}

/// Something that is wrong, which does not know since when.
pub fn finding(code: ProblemCode, message: impl Into<String>) -> Finding {
    Finding { code, message: message.into(), since: None, action: None }
}

impl Finding {
    /// The same since a second since the Unix epoch.
    #[must_use]
    pub fn since_secs(self, secs: Option<u64>) -> Self {
        Self { since: secs.map(|secs| secs.saturating_mul(NS)), ..self }
    }
}

/// How bad it is, and what to do.
fn of(code: ProblemCode) -> (Severity, &'static str) {
    use ProblemCode as Code;
    use Severity::{Critical, Notice, Warning};
    match code {
        Code::TimerOverdue => (
            Critical,
            "Call prune_now(1), or append a block: each wakes the timers. Where it comes again, upgrade the canister to the same \
             module, and look into its log.",
        ),
        Code::PruneBehind => (
            Warning,
            "Raise max_ops_per_tick or max_instructions_per_tick, or lower timer_interval_secs (set_prune_policy), where the backlog \
             does not become smaller by itself.",
        ),
        Code::PruningOff => (Warning, "Call set_pruning_enabled(true), or give the policy up."),
        Code::ExportHeld => (
            Warning,
            "See to the exporter that is named (get_export_status), or take it out with remove_exporter; where none is registered, \
             register one or set require_export = false.",
        ),
        Code::CapacityExhausted => (
            Critical,
            "See to who holds pruning back: an exporter, cycles, or the daemon that is switched off; or raise target_bytes \
             (set_prune_policy).",
        ),
        Code::FloorHolds => (Warning, "Raise target_bytes or lower min_kept_blocks (set_prune_policy)."),
        Code::CyclesLow => (Critical, "Top the canister up, above min_liquid_cycles."),
        Code::TimersStopped => {
            (Critical, "Top the canister up; then call any update with a role, which starts the timers again.")
        }
        Code::GrowthUnpaid => (Critical, "Top the canister up before an append that needs memory to grow is refused."),
        Code::ReservationLimit => (
            Critical,
            "Raise reserved_cycles_limit of the canister on the platform, then in set_config; or have less kept before memory grows.",
        ),
        Code::MemoryNearCap => (Warning, CAP_ACTION),
        Code::MemoryAtCap => (Critical, CAP_ACTION),
        Code::Damaged => (
            Critical,
            "Read the log (get_logs), which names each; feed what is lost again where it is needed; then acknowledge_faults with \
             `faults` of get_prune_status.",
        ),
        Code::DamageAcknowledged => (Notice, "Nothing: an operator has seen it."),
        Code::HeadUnreadable => (Critical, "Roll back below the head, and append it again."),
        Code::SetAside => (
            Critical,
            "Read the log (get_logs); acknowledge_faults has it tried again, after an upgrade to a module that can do it.",
        ),
        Code::RecordsPassedOver => {
            (Warning, "Look at get_pruner_status; retry_record(slot) has a record looked at again.")
        }
        Code::UnminedSetAside => (
            Notice,
            "Their parents are not preserved: set their transactions as mined, or create them again; then retry_record(slot).",
        ),
        Code::PreservationBlocked => {
            (Critical, "Look at blocked_by of get_pruner_status; set_aside_unmined(slot) goes on without that record.")
        }
        Code::PrunerTrapped => (
            Critical,
            "Upgrade to a module that can read the record, then notify_block or prune_utxos with the height.",
        ),
        Code::RetentionTooShort => {
            (Warning, "Set unmined_tx_retention below block_height_retention (set_pruner_settings, set_config).")
        }
        Code::UploadOpen => {
            (Notice, "Its producer commits it; an operator's abort_block drops it, and so does its expiry.")
        }
        Code::HeadStale => (
            Warning,
            "See to the producer; where the chain is to rest, raise max_head_age_secs (set_config), or switch it off with 0.",
        ),
        Code::DeadBlobDeletions => {
            (Warning, "Look at list_dead_blob_deletions; retry_blob_deletion(id) has one tried again.")
        }
    }
}

/// Seconds in words: the two largest units.
pub fn duration(secs: u64) -> String {
    let all = [(secs / 86_400, "d"), (secs / 3_600 % 24, "h"), (secs / 60 % 60, "min"), (secs % 60, "s")];
    let first = all.iter().position(|(number, _)| *number > 0).unwrap_or(3);
    let two = all.iter().skip(first).take(2).enumerate().filter(|(at, (number, _))| *at == 0 || *number > 0);
    two.map(|(_, (number, unit))| format!("{number} {unit}")).collect::<Vec<_>>().join(" ")
}

/// Who holds pruning back, in words.
pub fn holder(held_by: &HeldBy) -> String {
    match held_by {
        HeldBy::Exporter(name) => format!("exporter {name}"),
        HeldBy::NoExporter => "require_export, as no exporter is registered".into(),
        HeldBy::PruneLag => "nobody: the daemon has not come round yet".into(),
        HeldBy::Disabled => "the daemon, which is switched off".into(),
        HeldBy::LowCycles => "too few liquid cycles (health says which)".into(),
    }
}

/// Why something was refused, in words without figures of cycles: what is missing gives the balance away.
pub fn refusal(why: impl Into<UtxoRefusal>) -> String {
    let why = why.into();
    match why {
        UtxoRefusal::LowCycles { .. } => "cycles are missing for memory to grow".into(),
        UtxoRefusal::ReservedCyclesLimit { .. } => {
            "for memory to grow more cycles than reserved_cycles_limit would be reserved".into()
        }
        other => format!("{other:?}"),
    }
}

/// What to do where parents are not preserved for this reason, if it is not the record that is looked at. The parents are whole: to set the
/// record aside would have them pruned.
pub fn remedy(why: impl Into<UtxoRefusal>) -> Option<&'static str> {
    match why.into() {
        UtxoRefusal::LowCycles { .. } => {
            Some("Top the canister up; then notify_block, or prune_utxos with the height.")
        }
        UtxoRefusal::ReservedCyclesLimit { .. } => Some(
            "Raise reserved_cycles_limit of the canister on the platform, then in set_config; then notify_block, or prune_utxos with the \
             height.",
        ),
        UtxoRefusal::OutOfSpace => Some(
            "Raise max_stable_pages (set_config), or have less kept (set_prune_policy); then notify_block, or prune_utxos with the height.",
        ),
        _ => None,
    }
}

impl State {
    fn cycles(&self, found: &mut Vec<Finding>) {
        let (liquid, pause) = (cycles::between_messages(), cycles::pause());
        let low = if liquid < self.config.min_liquid_cycles {
            Some("liquid cycles are below min_liquid_cycles: the pruner is paused")
        } else if pause == Some(Pause::UntilTheNet) {
            Some("liquid cycles were below min_liquid_cycles: the pruner is paused, and looks within ten minutes")
        } else {
            None
        };
        found.extend(low.map(|message| finding(ProblemCode::CyclesLow, message)));
        let stopped = if !cycles::pay_timers(liquid) {
            Some("liquid cycles do not pay for timers: none runs")
        } else if pause == Some(Pause::UntilACall) {
            Some("liquid cycles did not pay for timers: none runs until a call of somebody with a role starts them")
        } else {
            None
        };
        found.extend(stopped.map(|message| finding(ProblemCode::TimersStopped, message)));
        let (pages, mib) = (AHEAD_BUCKETS * memory::BUCKET / WASM_PAGE, (AHEAD_BUCKETS * memory::BUCKET) >> 20);
        match growth::refusal(pages) {
            Some(GrowError::LowCycles { .. }) => {
                let message = format!(
                    "cycles are missing for stable memory to grow by {mib} MiB: what needs that will be refused"
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
            None | Some(GrowError::OutOfSpace | GrowError::Later) => {}
        }
    }

    /// Billed pages never become fewer: what blobs leave is taken by new ones, so it counts as what is left.
    fn cap(&self) -> Option<Finding> {
        let (billed, cap) = (memory::billed_pages(), self.config.max_stable_pages);
        let (bucket, left) = (memory::BUCKET / WASM_PAGE, cap.saturating_sub(billed));
        let reusable = self.blobs.reusable_bytes() / WASM_PAGE;
        let said = |code, what: &str| {
            finding(
                code,
                format!(
                    "stable memory {what} max_stable_pages: {billed} of {cap} pages of 64 KiB are billed, and new blobs can take \
                     {reusable} of them"
                ),
            )
        };
        match left {
            _ if left < bucket && reusable < AHEAD_BUCKETS * bucket => {
                Some(said(ProblemCode::MemoryAtCap, "has reached"))
            }
            _ if left.saturating_add(reusable) < (AHEAD_BUCKETS * bucket).max(cap / LEFT) => {
                Some(said(ProblemCode::MemoryNearCap, "comes near"))
            }
            _ => None,
        }
    }

    fn stale_head(&self, since: &Since) -> Option<Finding> {
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

    /// What is wrong where this is due. `deep`: with all sentences, and the head's record is looked at, too, which lies on a page of its own.
    pub fn findings(&self, due: Option<&Due>, deep: bool) -> Vec<Finding> {
        let mut found = Vec::new();
        if let Some((timer, due)) = daemon::overdue(self, runtime::time_ns()) {
            let late = runtime::time_ns().saturating_sub(due) / NS;
            let message = format!("the timer for {timer} is overdue by {}", duration(late));
            found.push(Finding { since: Some(due), ..finding(ProblemCode::TimerOverdue, message) });
        }
        found.extend(self.pruner.problems(&self.chain, &self.blobs, &self.constraints(), due, deep));
        if !deep && self.pruner.at_emergency(&self.chain, &self.blobs) {
            // Who holds it is asked anew for a sentence only.
            found.push(finding(ProblemCode::CapacityExhausted, ""));
        } else if let Some(held_by) = self.pruner.exhausted(&self.chain, &self.blobs, || self.constraints()) {
            let message = format!("emergency water is reached, appends are refused; held by {}", holder(&held_by));
            found.push(finding(ProblemCode::CapacityExhausted, message));
        }
        if self.pruner.floor_holds(&self.chain, &self.blobs) {
            let message = "kept bytes are above high water, and min_kept_blocks leave nothing to prune";
            found.push(finding(ProblemCode::FloorHolds, message));
        }
        self.cycles(&mut found);
        found.extend(self.cap());
        found.extend(self.pruner.damage(self.lost()));
        if deep && self.chain.state().head().is_some_and(|head| self.chain.meta(head).is_none()) {
            found.push(finding(ProblemCode::HeadUnreadable, "the head's record cannot be decoded"));
        }
        found.extend(self.utxo_pruner.problems(&self.config.utxo, &self.deletions));
        if let Some(open) = self.chain.upload_progress() {
            let (number, progress) = (open.number, open.progress);
            let message = format!(
                "the upload of block {number} is open: {} of {} chunks are missing, no other block is appended",
                progress.missing, progress.chunks
            );
            found.push(finding(ProblemCode::UploadOpen, message));
        }
        found.extend(self.stale_head(&self.history.since));
        found
    }

    /// What is due.
    pub fn due(&self) -> Option<Due> {
        self.pruner.due(&self.chain, &self.blobs, self.constraints().guard.as_ref())
    }

    /// Whether all is well.
    pub fn health(&self) -> Health {
        let now = runtime::time_ns();
        let problem = |Finding { code, message, since, action }: Finding| {
            let (severity, usual) = of(code);
            let action = action.unwrap_or(usual);
            let since = since.or_else(|| self.history.since.of(code)).unwrap_or(now);
            Problem { code, severity, message, since: since.min(now), action: action.into() }
        };
        let mut problems: Vec<Problem> = self.findings(self.due().as_ref(), true).into_iter().map(problem).collect();
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
mod tests {
    use super::*;

    #[test]
    fn every_code_has_its_place_and_says_what_to_do() {
        for (at, code) in ProblemCode::ALL.into_iter().enumerate() {
            assert_eq!(code as usize, at);
            let (_, action) = of(code);
            assert!(action.ends_with('.') && action.len() > 20, "{code:?}: {action}");
        }
    }

    #[test]
    fn the_severity_of_every_code_is_the_manuals() {
        let manual = include_str!("../../docs/operations.md");
        let row = |line: &str| {
            let (code, rest) = line.strip_prefix("| `")?.split_once("` | ")?;
            let severity = rest.split(" | ").next().filter(|word| ["critical", "warning", "notice"].contains(word))?;
            Some((code.to_string(), severity.to_string()))
        };
        let mut said: Vec<(String, String)> = manual.lines().filter_map(row).collect();
        let is = |code: ProblemCode| (format!("{code:?}"), format!("{:?}", of(code).0).to_lowercase());
        let mut all = ProblemCode::ALL.map(is);
        said.sort();
        all.sort();
        assert_eq!(said, all);
    }

    /// An update sees fewer liquid cycles than a query, and a timer's work fewer still: all go by what is liquid between messages.
    #[test]
    fn cycles_are_low_as_the_daemon_sees_them() {
        use crate::runtime::native;
        use crate::state;
        use coppice_interface::{CanisterArg, ConfigChange, InitArg};
        native::reset();
        memory::forget();
        crate::logs::forget();
        state::init(Some(CanisterArg::Init(InitArg::default()))).unwrap();
        let change = ConfigChange { min_liquid_cycles: Some(1_000_000_000_000), ..ConfigChange::default() };
        state::mutate(|state| state.set_config("set_config", &change)).unwrap();
        daemon::arm();
        let a_call = native::with(|world| world.timer_call_cycles);
        let codes = |liquid: u128, replicated: bool| -> Vec<ProblemCode> {
            native::with(|world| (world.liquid_cycles, world.replicated) = (liquid, replicated));
            let problems = state::read(State::health).problems;
            problems.into_iter().map(|problem| problem.code).filter(|code| *code != ProblemCode::GrowthUnpaid).collect()
        };
        let min = 1_000_000_000_000;
        assert_eq!(codes(min, false), []);
        assert_eq!(codes(min - 1, false), [ProblemCode::CyclesLow]);
        assert_eq!((codes(min - a_call, true), codes(min - a_call - 1, true)), (vec![], vec![ProblemCode::CyclesLow]));
        assert_eq!(codes(3 * a_call, false), [ProblemCode::CyclesLow]);
        let stopped = [ProblemCode::CyclesLow, ProblemCode::TimersStopped];
        assert_eq!((codes(3 * a_call - 1, false), codes(2 * a_call - 1, true)), (stopped.to_vec(), stopped.to_vec()));
        // After a top-up the daemon stands still until the net, or a call, looks again: not all is well until then.
        for (liquid, code) in [(min - a_call - 1, ProblemCode::CyclesLow), (9, ProblemCode::TimersStopped)] {
            native::with(|world| world.liquid_cycles = liquid);
            daemon::watch_cycles();
            assert_eq!(codes(u128::MAX, false), [code]);
            daemon::watch_cycles();
            assert_eq!(codes(u128::MAX, false), []);
        }
    }

    #[test]
    fn a_head_that_cannot_be_read_is_named_until_another_is_the_head() {
        use crate::state;
        use coppice_interface::{CanisterArg, InitArg};
        runtime::native::reset();
        memory::forget();
        crate::logs::forget();
        runtime::native::with(|world| world.time_ns = 1_700_000_000_000_000_000);
        state::init(Some(CanisterArg::Init(InitArg::default()))).unwrap();
        let append = |number| {
            state::mutate(|state| {
                let (block, admission) = (crate::testing::block(number, &[], 10), state.admission());
                state.chain.append(&mut state.blobs, &block, &admission, 1_700_000_000).unwrap();
            });
        };
        let severity = || {
            let problems = state::read(State::health).problems;
            problems.iter().find(|problem| problem.code == ProblemCode::HeadUnreadable).map(|problem| problem.severity)
        };
        (1..4).for_each(append);
        assert_eq!(severity(), None);
        state::mutate(|state| state.chain.poison_record(3));
        assert_eq!(severity(), Some(Severity::Critical));
        // What `health` says to do.
        state::mutate(|state| state.chain.remove_head(&mut state.blobs)).unwrap();
        assert_eq!(severity(), None);
        append(3);
        assert_eq!(severity(), None);
    }

    #[test]
    fn durations_have_two_units() {
        let all = [0, 59, 60, 3_599, 3_600, 86_399, 86_400, 1_000_000, u64::MAX].map(duration);
        let expected = ["0 s", "59 s", "1 min", "59 min 59 s", "1 h", "23 h 59 min", "1 d", "11 d 13 h"];
        assert_eq!(all[..8], expected);
        assert!(all[8].ends_with('h'));
    }
}
