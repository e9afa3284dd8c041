//! Findings about pruning of blocks: lag, exporters, damage, and a target that is too small.

use super::action::{Action, Command};
use super::finding::{Finding, finding};
use super::records;
use super::sentences::{another_key, holder, remedy_of_holder};
use crate::platform;
use crate::state::State;
use ic_coppice_chain::ChainStore;
use ic_coppice_chain::pruning::{Constraints, Due, ExportHeld, Pruner, Stored, policy};
use ic_coppice_interface::text::{duration, many};
use ic_coppice_interface::{ProblemCode, PruneStatus};
use ic_coppice_storage::WASM_PAGE;
use ic_coppice_storage::blob::BlobStore;

/// Seconds for which ticks may end with work left.
const PATIENCE_SECS: u64 = 600;

/// Returns findings about due blocks. Without `deep` the call is cheap, because only sentences need the constraints.
pub fn due(
    (pruner, chain, blobs): (&Pruner, &ChainStore, &BlobStore),
    constraints: impl FnOnce() -> Constraints,
    due: Option<&Due>,
    deep: bool,
) -> Vec<Finding> {
    let (mut found, now) = (Vec::new(), platform::time_secs());
    // A sweep may lag even if no block is due.
    if pruner.behind_since_secs.is_some_and(|since| due.is_none() || now.saturating_sub(since) > PATIENCE_SECS) {
        let status = pruner.status(chain, blobs, &constraints());
        found.extend(lagging(&status, pruner.interval_secs()));
    }
    let Some(due) = due else { return found };
    if let Some(held) = pruner.export_held(chain, blobs, due, deep) {
        let worded = if deep { export_held(pruner, chain, &held, due) } else { finding(ProblemCode::ExportHeld, "") };
        found.push(worded.since_secs(held.since));
    }
    if !pruner.is_enabled() {
        found.push(finding(ProblemCode::PruningOff, "pruning is due and switched off"));
    }
    found
}

/// Returns a finding if ticks have ended with work left for too long, with an estimate of the remaining time.
pub fn lagging(status: &PruneStatus, interval_secs: u64) -> Option<Finding> {
    let (backlog, now) = (&status.backlog, platform::time_secs());
    let behind = backlog.behind_since_secs.map_or(0, |since| now.saturating_sub(since));
    if behind <= PATIENCE_SECS.max(2 * interval_secs) {
        return None;
    }
    let left = match backlog.empty_in_secs {
        Some(secs) => format!("done in about {}", duration(secs)),
        None if backlog.blocks == 0 => "only a sweep is left".into(),
        None => "never done at this rate".into(),
    };
    let message = format!(
        "pruning has been behind for {}: {} with {}, and {} in the indexes; {} an hour pruned, {} appended; {left}",
        duration(behind),
        many(backlog.blocks, "block"),
        many(backlog.references, "reference"),
        if backlog.debt == 1 { "1 stale entry".into() } else { format!("{} stale entries", backlog.debt) },
        many(backlog.pruned_per_hour, "block"),
        backlog.appended_per_hour
    );
    Some(finding(ProblemCode::PruneBehind, message).since_secs(backlog.behind_since_secs))
}

fn export_held(pruner: &Pruner, chain: &ChainStore, held: &ExportHeld, due: &Due) -> Finding {
    let Some(held_by) = &due.held_by else { return finding(ProblemCode::ExportHeld, "") };
    let emergency = match held.until_emergency {
        Some(0) => "no room is left: emergency water is reached".into(),
        Some(secs) => format!("at the last hour's rate emergency water comes in about {}", duration(secs)),
        None if !held.is_limited => "no capacity limit is set".into(),
        None if !held.is_rate_known => "how long it is to emergency water is not known yet".into(),
        None => "emergency water is not coming nearer".into(),
    };
    let water = if held.is_full { "kept bytes are above high water; " } else { "" };
    let patience = pruner.policy().map_or(0, |policy| policy.max_export_lag_secs);
    let blocks = due.held(chain.state().oldest);
    let (are, have) = if blocks == 1 { ("is", "has") } else { ("are", "have") };
    let message = format!(
        "{water}{} that {are} due {have} been held back for {} by {} (max_export_lag_secs is {patience}); {emergency}",
        many(blocks, "block"),
        duration(held.secs),
        holder(held_by),
    );
    finding(ProblemCode::ExportHeld, message).with_action(remedy_of_holder(held_by))
}

/// Returns a finding if appends are refused because kept bytes have reached emergency water.
pub(super) fn exhausted(state: &State, deep: bool) -> Option<Finding> {
    let State { pruner, chain, blobs, .. } = state;
    // Only a sentence names the holder.
    if !deep {
        return pruner.at_emergency(chain, blobs).then(|| finding(ProblemCode::CapacityExhausted, ""));
    }
    let held_by = pruner.exhausted(chain, blobs, || state.constraints())?;
    let bounded =
        pruner.marks(chain, blobs).zip(pruner.policy()).filter(|(marks, policy)| marks.target < policy.target_bytes);
    let bounded = bounded.map_or(String::new(), |(marks, policy)| {
        let (emergency, target) = (marks.emergency, policy.target_bytes);
        format!(" ({emergency} bytes, because max_stable_pages does not leave target_bytes, {target})")
    });
    let message = format!("emergency water{bounded} is reached, appends are refused; held by {}", holder(&held_by));
    let found = finding(ProblemCode::CapacityExhausted, message).with_action(remedy_of_holder(&held_by));
    Some(records::with_stop(state, found, Some(&held_by)))
}

/// Returns a finding if the head and the block before it exceed the target.
pub fn too_small(pruner: &Pruner, chain: &ChainStore, blobs: &BlobStore) -> Option<Finding> {
    let (policy, (kept, marks)) = (pruner.policy()?, pruner.above_smallest_target(chain, blobs)?);
    let target = policy::target_for(policy, kept);
    let is_emergency = kept >= marks.emergency;
    let (water, mark) = if is_emergency { ("emergency", marks.emergency) } else { ("high", marks.high) };
    let (method, article, setting, least) = if target > policy.target_bytes {
        ("set_prune_policy", "a ", "target_bytes", target)
    } else {
        // The target suffices, and memory does not.
        let more = (target - marks.target).div_ceil(WASM_PAGE);
        ("set_config", "", "max_stable_pages", blobs.arena().growth().max_pages() + more)
    };
    let message = format!(
        "the head and the block before it, which capacity leaves, take {kept} bytes, and {water} water is at {mark}: appends go on; \
         blocks of this size need {article}{setting} of at least {least}"
    );
    let raise = Command::call(method, format!("(record {{ {setting} = opt {least} }})"));
    Some(finding(ProblemCode::FloorHolds, message).with_action(Action::new(format!("Raise {setting}."), raise)))
}

/// Returns findings about damaged entries, lost slots of the blob store, and work that is skipped because it traps. `lost` is the number of
/// lost slots.
pub(super) fn damage(stored: &Stored, lost: u64) -> Vec<Finding> {
    let mut found = Vec::new();
    let Stored { faults, acknowledged_faults: seen, acknowledged_lost, turns, .. } = stored;
    let lost_new = lost.saturating_sub(*acknowledged_lost);
    let worded = |faults: u64, lost: u64| {
        let (entries, were) = if faults == 1 { ("entry", "was") } else { ("entries", "were") };
        format!(
            "{faults} damaged {entries} {were} skipped by the daemon or a rollback, {} of the blob store written off",
            many(lost, "slot")
        )
    };
    if *faults > *seen || lost_new > 0 {
        found.push(finding(ProblemCode::Damaged, worded(faults - seen, lost_new)));
    } else if *faults > 0 || lost > 0 {
        found.push(finding(ProblemCode::DamageAcknowledged, worded(*faults, lost)));
    }
    if let [first, rest @ ..] = turns.skipped() {
        let more =
            if rest.is_empty() { String::new() } else { format!(", and {} more (get_prune_status)", rest.len()) };
        found.push(finding(ProblemCode::WorkSkipped, format!("skipped because it traps: {first}{more}")));
    }
    found
}

/// Returns a finding about exporters whose key was revoked; the message names the exporter that holds pruning back most.
pub(super) fn keyless_exporters(state: &State) -> Option<Finding> {
    let (name, bound) = state.exporters.keyless().min_by_key(|(_, bound)| *bound)?;
    let bound = bound.max(state.chain.state().oldest);
    let more = match state.exporters.keyless().count() - 1 {
        0 => String::new(),
        1 => "; another exporter has no key, either (get_export_status)".into(),
        more => format!("; {more} more exporters have no key (get_export_status)"),
    };
    let message =
        format!("exporter {name} has no key since its role was revoked: no block from {bound} on is pruned{more}");
    Some(finding(ProblemCode::ExporterKeyless, message).with_action(another_key(name)))
}
