//! A change of the pruning policy: what differs before and after, and what the change would prune.

use crate::report::count;
use ic_coppice_interface::text::many;
use ic_coppice_interface::{PrunePlan, PrunePolicy};
use serde_json::{Map, Value};

/// Returns the settings of a policy by their names.
fn settings(policy: &PrunePolicy) -> Map<String, Value> {
    match serde_json::to_value(policy) {
        Ok(Value::Object(settings)) => settings,
        _ => Map::new(),
    }
}

fn shown(value: &Value) -> String {
    value.as_u64().map_or_else(|| value.to_string(), count)
}

/// Returns each setting of a policy with its value.
pub fn all(policy: &PrunePolicy) -> Vec<(String, String)> {
    settings(policy).into_iter().map(|(name, value)| (name, shown(&value))).collect()
}

/// Returns the settings that differ, each with its values before and after.
pub fn differences(before: Option<&PrunePolicy>, after: &PrunePolicy) -> Vec<(String, String)> {
    let before = before.map(settings);
    let of = |(name, after): (String, Value)| {
        let before = before.as_ref().and_then(|before| before.get(&name));
        let text = match before {
            Some(before) if *before == after => return None,
            Some(before) => format!("{} → {}", shown(before), shown(&after)),
            None => format!("not set → {}", shown(&after)),
        };
        Some((name, text))
    };
    settings(after).into_iter().filter_map(of).collect()
}

/// Returns a sentence about what a policy would prune now.
pub fn plan(plan: &PrunePlan) -> String {
    let held = plan.held_by.as_ref().map_or(String::new(), |held_by| format!("; the rest is held: {held_by}"));
    match plan.blocks {
        0 if plan.reason.is_none() => "It would prune nothing now.".into(),
        0 => format!("It would prune nothing now{}.", held.replace("; the rest is", ": what is due is")),
        blocks => {
            let blocks = many(blocks, "block").replacen(&blocks.to_string(), &count(blocks), 1);
            format!(
                "Its next tick would prune {blocks} below block {}, {} bytes{held}.",
                count(plan.before),
                count(plan.bytes)
            )
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ic_coppice_interface::{HeldBy, PruneProgress, PruneReason};

    #[test]
    fn only_changed_settings_are_shown() {
        let before = PrunePolicy { retain_days: 30, ..PrunePolicy::default() };
        let after = PrunePolicy { retain_days: 7, target_bytes: 5_000_000, ..before.clone() };
        let expected = [("retain_days", "30 → 7"), ("target_bytes", "0 → 5,000,000")];
        let owned = |(name, text): (&str, &str)| (name.to_string(), text.to_string());
        assert_eq!(differences(Some(&before), &after), expected.map(owned));
        assert_eq!(differences(Some(&before), &before), []);
        let new = differences(None, &after);
        assert!(new.contains(&owned(("retain_days", "not set → 7"))), "{new:?}");
        assert_eq!(new.len(), all(&after).len());
    }

    #[test]
    fn plan_is_a_sentence() {
        let plan_of = |blocks, reason, held_by| PrunePlan {
            policy: PrunePolicy::default(),
            reason,
            retain_min_block: 0,
            target: 0,
            before: 1_012,
            held_by,
            floor_block: None,
            blocks,
            ops: 0,
            blobs: 0,
            bytes: 5_000,
            progress: PruneProgress::Finished,
        };
        assert_eq!(plan(&plan_of(0, None, None)), "It would prune nothing now.");
        let due = Some(PruneReason::Retention);
        assert_eq!(plan(&plan_of(1, due, None)), "Its next tick would prune 1 block below block 1,012, 5,000 bytes.");
        let held = plan(&plan_of(1_000, due, Some(HeldBy::Exporter("archive".into()))));
        assert!(
            held.starts_with("Its next tick would prune 1,000 blocks") && held.contains("the rest is held: "),
            "{held}"
        );
        let none = plan(&plan_of(0, due, Some(HeldBy::Exporter("archive".into()))));
        assert!(none.starts_with("It would prune nothing now: what is due is held: "), "{none}");
    }
}
