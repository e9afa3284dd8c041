//! `/health` and `/logs`.

use super::answer::{Answer, parameter};
use crate::logs;
use crate::state::State;
use candid::Principal;
use ic_coppice_interface::{LogEntry, LogPriority};
use serde_json::{Value, json};

/// Maximum bytes of the lines in a response, because an update call's reply has at most 2 MiB.
const MAX_LINES: usize = 1_900_000;

/// Responds to `/health`: status 200 if the canister is healthy, else 503.
pub fn health(state: &State) -> Answer {
    let health = crate::operation::health::health(state, Principal::anonymous());
    Answer::json(if health.healthy { 200 } else { 503 }, format!("{}\n", json!(health)))
}

/// Returns the priority of a name, or `None` (all priorities) for an unknown name.
fn priority(name: &str) -> Option<LogPriority> {
    // Other canisters number their priorities or name them.
    match name.to_ascii_lowercase().as_str() {
        "error" | "p0" => Some(LogPriority::Error),
        "info" | "p1" => Some(LogPriority::Info),
        _ => None,
    }
}

fn entry(entry: &LogEntry) -> Value {
    json!({
        "timestamp": entry.time_ns,
        "priority": entry.priority,
        "message": entry.message,
        "counter": entry.number,
    })
}

/// Responds to `/logs?priority=error&time=NANOSECONDS&sort=asc|desc`, the parameters of the minter canisters: lines of a priority (an
/// unknown name means all), at or after a time, oldest (`asc`) or newest (`desc`) first. Without `sort`, the oldest line is first, or the
/// newest if there is a `time`. The keys of a line are those of the minter canisters, too, because tools for logs read both.
///
/// If a reply cannot hold all lines, the last ones in this order are omitted, and `left_out` is their number. To poll, use `sort=asc` and
/// pass the `timestamp` of the last line as the next `time`; that line is then repeated.
pub fn logs(state: &State, parameters: &str) -> Answer {
    if !state.config.public_logs {
        let why = "the log is not public: set_config(record { public_logs = opt true }) makes it so, and get_logs is for observers\n";
        return Answer::text(403, why);
    }
    let Ok(time) = parameter(parameters, "time").map(str::parse::<u64>).transpose() else {
        return Answer::text(400, "time is nanoseconds since the Unix epoch\n");
    };
    let oldest_first = match parameter(parameters, "sort") {
        Some("asc") => true,
        Some("desc") => false,
        _ => time.is_none(),
    };
    let mut lines = logs::page(parameter(parameters, "priority").and_then(priority), None, logs::MAX_PAGE).entries;
    lines.retain(|line| time.is_none_or(|from| line.time_ns >= from));
    if oldest_first {
        lines.reverse();
    }
    let fitting = |room: &mut usize, line: String| {
        *room = room.checked_sub(line.len() + 1)?;
        Some(line)
    };
    let texts: Vec<String> = lines.iter().map(|line| entry(line).to_string()).scan(MAX_LINES, fitting).collect();
    let left_out = lines.len() - texts.len();
    Answer::json(200, format!("{{\"entries\":[{}],\"left_out\":{left_out}}}\n", texts.join(",")))
}
