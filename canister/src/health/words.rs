//! What is said in sentences: times, who holds pruning back, why something was refused.

use coppice_interface::{HeldBy, UtxoRefusal};

/// Seconds in words: the two largest units.
pub fn duration(secs: u64) -> String {
    let all = [(secs / 86_400, "d"), (secs / 3_600 % 24, "h"), (secs / 60 % 60, "min"), (secs % 60, "s")];
    let first = all.iter().position(|(number, _)| *number > 0).unwrap_or(3);
    let two = all.iter().skip(first).take(2).enumerate().filter(|(at, (number, _))| *at == 0 || *number > 0);
    two.map(|(_, (number, unit))| format!("{number} {unit}")).collect::<Vec<_>>().join(" ")
}

/// So many of something.
pub fn many(number: u64, one: &str) -> String {
    if number == 1 { format!("1 {one}") } else { format!("{number} {one}s") }
}

/// Who holds pruning back, in words.
pub fn holder(held_by: &HeldBy) -> String {
    match held_by {
        HeldBy::Exporter(name) => format!("exporter {name}"),
        HeldBy::KeylessExporter(name) => format!("exporter {name}, whose key was revoked"),
        HeldBy::NoExporter => "require_export, as no exporter is registered".into(),
        HeldBy::PruneLag => "nobody: the daemon has not come round yet".into(),
        HeldBy::Disabled => "the daemon, which is switched off".into(),
        HeldBy::Stopped => "set_deletions_stopped(true), until an admin calls set_deletions_stopped(false)".into(),
        HeldBy::Floor => "the floor, which keeps the newest blocks".into(),
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
        UtxoRefusal::RecordsFull { .. } => Some(
            "Raise max_utxo_bytes of the UTXO settings (set_config); then notify_block, or prune_utxos with the height.",
        ),
        UtxoRefusal::OutOfSpace => Some(
            "Raise max_stable_pages (set_config), or have less kept (set_prune_policy); then notify_block, or prune_utxos with the height.",
        ),
        _ => None,
    }
}
