//! Figures of a canister, a line each.

use super::Seen;
use super::wrap::{COLUMNS, words};
use crate::report::count;
use crate::size::GIB_SECOND;
use ic_coppice_interface::text::{duration, many};
use ic_coppice_interface::{PruneStatus, cycles_of_ticks};
use indicatif::BinaryBytes;

/// Seconds of a day.
const DAY: u64 = 86_400;
/// Characters of a figure's name.
const NAME: usize = 10;
/// Characters of the bar.
const BAR: usize = 40;

/// Returns the lines with the figures.
pub fn lines(seen: &Seen) -> Vec<String> {
    let Seen { prune, storage, .. } = seen;
    let mut lines = vec![line("head", &head(seen)), line("kept", &kept(prune))];
    lines.extend(wrapped("backlog", &backlog(prune)));
    lines.push(line("exporters", &exporters(seen)));
    if let (Some(utxo), Some(records)) = (&storage.utxo, &seen.records) {
        let text = format!(
            "{}, {} due at height {}; {} of {}",
            many_counted(utxo.records, "UTXO record"),
            count(utxo.deletable),
            count(records.current_height.into()),
            bytes(utxo.kept_bytes),
            bytes(utxo.max_bytes)
        );
        lines.push(line("records", &text));
    }
    if let Some(queue) = &seen.queue {
        let sum = |of: fn(&ic_coppice_interface::StoreDeletions) -> u64| queue.stores.iter().map(of).sum::<u64>();
        let text = format!(
            "{}: {} wait, {} leased, {} back off, {} dead",
            many_counted(queue.rows, "external blob"),
            count(sum(|store| store.waiting)),
            count(sum(|store| store.leased)),
            count(sum(|store| store.backing_off)),
            count(sum(|store| store.dead))
        );
        let due = queue.stores.iter().filter_map(|store| store.due_since_ns).min();
        let due =
            due.map(|at| format!("; due for {}", duration(seen.health.time_ns.saturating_sub(at) / 1_000_000_000)));
        lines.push(line("queue", &(text + &due.unwrap_or_default())));
    }
    let memory = format!(
        "{} billed of {}, {} reusable",
        bytes(storage.billed_bytes),
        bytes(storage.max_bytes),
        bytes(storage.reusable_bytes)
    );
    lines.push(line("memory", &memory));
    lines.extend(cycles(seen).into_iter().flat_map(|text| wrapped("cycles", &text)));
    let whose = format!("{}, canister {}", seen.health.version, seen.canister);
    lines.push(line("version", &whose));
    lines
}

/// Returns a figure whose end matters, whole.
fn wrapped(name: &str, text: &str) -> Vec<String> {
    let lines = words(text, NAME + 1);
    lines.iter().enumerate().map(|(at, words)| line(if at == 0 { name } else { "" }, words.trim_start())).collect()
}

fn line(name: &str, text: &str) -> String {
    let line = format!("{name:<NAME$} {text}");
    match line.char_indices().nth(COLUMNS) {
        None => line,
        Some(_) => line.chars().take(COLUMNS - 1).chain(['…']).collect(),
    }
}

fn bytes(bytes: u64) -> String {
    BinaryBytes(bytes).to_string()
}

fn many_counted(number: u64, one: &str) -> String {
    many(number, one).replacen(&number.to_string(), &count(number), 1)
}

fn head(seen: &Seen) -> String {
    match (seen.prune.head, seen.prune.oldest_kept_block) {
        (Some(head), Some(oldest)) => {
            format!(
                "block {}; {} kept from block {} on",
                count(head),
                many_counted(seen.storage.blocks, "block"),
                count(oldest)
            )
        }
        (Some(head), None) => format!("block {}; none is kept", count(head)),
        (None, _) => "no block was appended".into(),
    }
}

/// Returns the kept bytes, as a bar with the watermarks: `L` low, `H` high, `E` emergency.
fn kept(prune: &PruneStatus) -> String {
    let kept = prune.capacity_bytes;
    let Some(marks) = prune.water_marks else { return format!("{}, no limit of bytes", bytes(kept)) };
    let full = marks.target.max(1);
    let at = |value: u64| ((u128::from(value) * BAR as u128 / u128::from(full)) as usize).min(BAR);
    let mut bar: Vec<char> = (0..BAR).map(|place| if place < at(kept) { '=' } else { ' ' }).collect();
    for (mark, letter) in [(marks.low, 'L'), (marks.high, 'H'), (marks.emergency, 'E')] {
        bar[at(mark).min(BAR - 1)] = letter;
    }
    let share = u128::from(kept) * 100 / u128::from(marks.emergency.max(1));
    format!("[{}] {share} % of {}", bar.into_iter().collect::<String>(), bytes(marks.emergency))
}

fn backlog(prune: &PruneStatus) -> String {
    let backlog = &prune.backlog;
    let left = match backlog.empty_in_secs {
        _ if backlog.blocks == 0 => "nothing waits to be pruned".into(),
        Some(secs) => format!("{} to prune, done in about {}", many_counted(backlog.blocks, "block"), duration(secs)),
        None => format!("{} to prune, not shrinking", many_counted(backlog.blocks, "block")),
    };
    match &prune.held_by {
        Some(held_by) if backlog.held_blocks > 0 => {
            format!("{left}; {} held: {held_by}", count(backlog.held_blocks))
        }
        _ => left,
    }
}

fn exporters(seen: &Seen) -> String {
    let exporters = &seen.export.exporters;
    let Some(slowest) = exporters.iter().max_by_key(|exporter| (exporter.lag_blocks, exporter.lag_secs)) else {
        return "none is registered".into();
    };
    let key = if slowest.principal.is_none() { ", without a key" } else { "" };
    let lag = match slowest.lag_blocks {
        0 => "up to date".into(),
        blocks => format!("{} behind, for {}", many_counted(blocks, "block"), duration(slowest.lag_secs)),
    };
    match exporters.len() - 1 {
        0 => format!("{}{key}: {lag}", slowest.name),
        others => format!("{}{key}: {lag}; {others} more with a smaller lag", slowest.name),
    }
}

/// Returns the cycles, and the days for which they pay storage and an idle daemon, if the caller may know them.
fn cycles(seen: &Seen) -> Option<String> {
    let cycles = seen.health.cycles?;
    let tera = |cycles: u128| format!("{:.3} T", cycles as f64 / 1e12);
    let storage = (u128::from(seen.storage.billed_bytes) * GIB_SECOND * u128::from(DAY)) >> 30;
    let interval = seen.prune.policy.as_ref().map_or(u64::MAX, |policy| policy.timer_interval_secs);
    let nodes = seen.config.nodes;
    let a_day = storage * u128::from(nodes) / 13 + cycles_of_ticks(interval, DAY, nodes);
    let left = match cycles.missing {
        0 => {
            let days = cycles.liquid.saturating_sub(seen.config.min_liquid_cycles) / a_day.max(1);
            format!("{} days of storage and timers, without feeding", count(u64::try_from(days).unwrap_or(u64::MAX)))
        }
        // Rounded up, as the canister does.
        missing => format!("{} missing", tera(missing.next_multiple_of(1_000_000_000))),
    };
    Some(format!("{} liquid, {left}", tera(cycles.liquid)))
}
