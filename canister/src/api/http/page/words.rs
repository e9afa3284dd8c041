//! Numbers, the policy and the plan as text.

use crate::operation::health::holder;
use ic_coppice_chain::export::is_of_guard;
use ic_coppice_chain::pruning::policy::floor;
use ic_coppice_interface::text::duration;
use ic_coppice_interface::{HeldBy, PrunePlan, PrunePolicy, PruneProgress, PruneReason, StopReason, WaterMarks};
use time::UtcDateTime;

/// Formats a number with thousands separators.
pub fn count(number: u64) -> String {
    match number / 1_000 {
        0 => number.to_string(),
        thousands => format!("{},{:03}", count(thousands), number % 1_000),
    }
}

/// Formats a number in about four characters.
pub fn short(number: f64) -> String {
    let all = [(1e12, "T"), (1e9, "G"), (1e6, "M"), (1e4, "k")];
    match all.into_iter().find(|(from, _)| number >= *from) {
        Some((1e4, unit)) => format!("{:.1} {unit}", number / 1e3),
        Some((from, unit)) => format!("{:.2} {unit}", number / from),
        None if number < 10.0 && number.fract() > 0.0 => format!("{number:.1}"),
        None => count(number as u64),
    }
}

/// Formats bytes in binary units.
pub fn bytes(bytes: u64) -> String {
    let all = [(40, "TiB"), (30, "GiB"), (20, "MiB"), (10, "KiB")];
    match all.into_iter().find(|(shift, _)| bytes >> shift > 0) {
        Some((shift, unit)) => format!("{:.1} {unit}", bytes as f64 / (1u64 << shift) as f64),
        None => many(bytes, "byte"),
    }
}

/// Formats a time, in nanoseconds since the Unix epoch, as UTC.
pub fn moment(ns: u64) -> String {
    match UtcDateTime::from_unix_timestamp((ns / 1_000_000_000) as i64) {
        Ok(at) => format!("{} {:02}:{:02}:{:02} UTC", at.date(), at.hour(), at.minute(), at.second()),
        Err(_) => format!("{ns} ns"),
    }
}

/// Formats the time that has passed since `ns`.
pub fn ago(ns: u64, now_ns: u64) -> String {
    format!("{} ago", duration(now_ns.saturating_sub(ns) / 1_000_000_000))
}

/// Formats a count with its noun.
pub fn many(number: u64, one: &str) -> String {
    if number == 1 { format!("1 {one}") } else { format!("{} {one}s", count(number)) }
}

/// Formats a count of damaged entries, with the verb.
pub fn entries(number: u64) -> String {
    if number == 1 { "1 damaged entry was".into() } else { format!("{} damaged entries were", count(number)) }
}

/// Describes a policy and its watermarks in sentences.
pub fn policy(policy: Option<&PrunePolicy>, marks: Option<&WaterMarks>, enabled: bool) -> Vec<String> {
    let Some(policy) = policy else { return vec!["No policy is set: nothing is ever pruned.".into()] };
    let mut sentences = vec![if enabled { "Pruning is on." } else { "Pruning is switched off." }.to_string()];
    let (age, lag) = (many(policy.retain_days, "day"), many(policy.retain_blocks, "block"));
    sentences.push(match (policy.retain_days, policy.retain_blocks) {
        (0, 0) => "Neither age nor count prunes a block.".into(),
        (_, 0) => format!("Blocks are pruned when they are older than {age}."),
        (0, _) => format!("Blocks are pruned when they are more than {lag} behind the head."),
        _ => format!(
            "Blocks are pruned when they are older than {age} or more than {lag} behind the head, whichever comes first."
        ),
    });
    match marks {
        None => sentences.push("No limit of bytes is set.".into()),
        Some(marks) => {
            let [high, low, emergency] = [marks.high, marks.low, marks.emergency].map(bytes);
            sentences.push(format!(
                "Above {high} (high water) the oldest blocks are pruned until {low} are left (low water); at {emergency} (emergency water) appends are refused."
            ));
            if marks.target < policy.target_bytes {
                let [target, wanted] = [marks.target, policy.target_bytes].map(bytes);
                sentences.push(format!("max_stable_pages leaves the chain {target} of its target of {wanted}."));
            }
        }
    }
    let floor = floor(policy);
    if policy.retain_days > 0 && floor > 0 {
        let last = if floor == 1 { "block".into() } else { many(floor, "block") };
        sentences.push(format!("Age never prunes the last {last} before the head."));
    }
    let (secs, ops) = (duration(policy.timer_interval_secs), many(policy.max_ops_per_tick, "op"));
    let work = match policy.max_instructions_per_tick {
        1 => "1 instruction".into(),
        instructions => format!("{} instructions", short(instructions as f64)),
    };
    sentences.push(format!("The daemon prunes due blocks within {secs}, with at most {ops} and {work} per tick."));
    sentences
}

fn stop(reason: Option<StopReason>) -> &'static str {
    let Some(reason) = reason else { return "for an unknown reason" };
    match reason {
        StopReason::Ops => "its ops are used up",
        StopReason::Instructions => "its instructions are used up",
        StopReason::Guard => "an exporter has not acknowledged the next blocks",
        StopReason::Pages => "it would change more pages than a message should",
        StopReason::Chunks => "its chunks are used up",
        StopReason::Stopped => "deletions are stopped",
        StopReason::Memory => "memory must grow first",
    }
}

/// Describes the plan of the next run in sentences.
pub fn plan(plan: Option<&PrunePlan>) -> Vec<String> {
    let Some(plan) = plan else { return vec!["Without a policy there is no plan.".into()] };
    let floor = plan.floor_block.map(|block| format!("The floor keeps the blocks from {} on.", count(block)));
    let Some(reason) = plan.reason else { return ["Nothing is due.".into()].into_iter().chain(floor).collect() };
    let why = match reason {
        PruneReason::Retention => "Age or count has made blocks due",
        PruneReason::Capacity => "Kept bytes are above their mark, which has made blocks due",
    };
    let mut sentences = vec![format!("{why}, those below block {}.", count(plan.target))];
    match &plan.held_by {
        None | Some(HeldBy::Floor) => {}
        Some(held_by) if is_of_guard(held_by) && plan.blocks == 0 => {
            sentences.push(format!("None of them may be pruned: they are held by {}.", holder(held_by)));
        }
        Some(held_by) if is_of_guard(held_by) => {
            let (before, holder) = (count(plan.before), holder(held_by));
            sentences.push(format!("Only those below block {before} may be pruned: the others are held by {holder}."));
        }
        Some(held_by) => sentences.push(format!("None is pruned, because of {}.", holder(held_by))),
    }
    sentences.extend(floor);
    sentences.push(match plan.blocks {
        0 => "The next tick prunes nothing.".into(),
        number => {
            let (blocks, payload) = (many(number, "block"), bytes(plan.bytes));
            let blobs = if plan.blobs == 0 { "no blob".into() } else { many(plan.blobs, "blob") };
            format!("The next tick would prune {blocks} with {payload} of payload, and free {blobs}.")
        }
    });
    match plan.progress {
        PruneProgress::Finished => {}
        PruneProgress::HasMore { reason: Some(StopReason::Guard | StopReason::Stopped) } if plan.blocks == 0 => {}
        PruneProgress::HasMore { reason } => sentences.push(format!("More would be left: {}.", stop(reason))),
    }
    sentences
}

#[cfg(test)]
mod tests {
    use super::*;
    use ic_coppice_chain::pruning::policy::marks;

    #[test]
    fn figures_are_short_and_exact_enough() {
        assert_eq!([0, 7, 999, 1_000, 1_234_567, u64::MAX].map(count)[..5], ["0", "7", "999", "1,000", "1,234,567"]);
        assert_eq!(count(u64::MAX), "18,446,744,073,709,551,615");
        assert_eq!(
            [0, 1_023, 1_024, 1_536 << 10, 5 << 40].map(bytes),
            ["0 bytes", "1,023 bytes", "1.0 KiB", "1.5 MiB", "5.0 TiB"]
        );
        let all = [0.0, 0.25, 9.96, 10.0, 9_999.0, 10_000.0, 999_949.0, 1e6, 2.5e9, 1e15].map(short);
        assert_eq!(all, ["0", "0.2", "10.0", "10", "9,999", "10.0 k", "999.9 k", "1.00 M", "2.50 G", "1000.00 T"]);
        assert_eq!(moment(1_700_000_000_000_000_000), "2023-11-14 22:13:20 UTC");
        assert_eq!(moment(0), "1970-01-01 00:00:00 UTC");
        assert!(moment(u64::MAX).starts_with("2554-07-21"));
        assert_eq!([ago(5, 0), ago(0, 61_000_000_000)], ["0 s ago", "1 min 1 s ago"]);
    }

    #[test]
    fn policy_is_described_in_sentences() {
        assert_eq!(policy(None, None, false), ["No policy is set: nothing is ever pruned."]);
        let arg = PrunePolicy { retain_days: 30, target_bytes: 1 << 30, ..PrunePolicy::default() };
        let sentences = policy(Some(&arg), marks(&arg, || u64::MAX).as_ref(), true).join(" ");
        for part in [
            "Pruning is on.",
            "older than 30 days.",
            "Above 921.6 MiB",
            "819.2 MiB are left",
            "972.8 MiB",
            "the last 16 blocks",
        ] {
            assert!(sentences.contains(part), "{part}: {sentences}");
        }
        assert!(!sentences.contains("max_stable_pages"), "{sentences}");
        let sentences = policy(Some(&arg), marks(&arg, || 1 << 29).as_ref(), true).join(" ");
        for part in ["Above 460.8 MiB", "leaves the chain 512.0 MiB of its target of 1.0 GiB"] {
            assert!(sentences.contains(part), "{part}: {sentences}");
        }
        let count = PrunePolicy { retain_blocks: 1, ..PrunePolicy::default() };
        let sentences = policy(Some(&count), None, false).join(" ");
        assert!(
            sentences.contains("switched off")
                && sentences.contains("more than 1 block behind")
                && sentences.contains("No limit"),
            "{sentences}"
        );
    }
}
