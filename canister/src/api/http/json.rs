//! `/health` and `/logs`.

use super::answer::{Answer, Parameters};
use crate::logs;
use crate::state::State;
use coppice_interface::{LogEntry, LogPriority, Problem};
use serde_json::{Value, json};

/// Bytes of an answer's lines: an update call's reply has 2 MiB.
const MAX_LINES: usize = 1_900_000;

fn bytes(value: &Value) -> Vec<u8> {
    let mut bytes = value.to_string().into_bytes();
    bytes.push(b'\n');
    bytes
}

fn problem(problem: &Problem) -> Value {
    json!({
        "code": problem.code,
        "severity": format!("{:?}", problem.severity),
        "message": problem.message,
        "since": problem.since,
        "action": problem.action,
    })
}

/// `/health`: status 200 where all is well, else 503.
pub fn health(state: &State) -> Answer {
    let health = crate::operation::health::health(state);
    let value = json!({
        "healthy": health.healthy,
        "problems": health.problems.iter().map(problem).collect::<Vec<_>>(),
        "version": health.version,
        "time": health.time,
    });
    Answer::json(if health.healthy { 200 } else { 503 }, bytes(&value))
}

/// None: all, as for any other name.
fn priority(name: &str) -> Option<LogPriority> {
    // Other canisters count their priorities, or name them.
    let all = [
        ("error", LogPriority::Error),
        ("p0", LogPriority::Error),
        ("info", LogPriority::Info),
        ("p1", LogPriority::Info),
    ];
    all.into_iter().find(|(known, _)| known.eq_ignore_ascii_case(name)).map(|(_, priority)| priority)
}

fn entry(entry: &LogEntry) -> Value {
    json!({
        "timestamp": entry.time,
        "priority": format!("{:?}", entry.priority),
        "message": entry.message,
        "counter": entry.number,
    })
}

/// `/logs?priority=error&time=NANOSECONDS&sort=asc|desc`, as minters have it: lines of a priority, or of all where there is none of this name;
/// at or after a moment; the oldest or the newest first, where nobody says so the oldest without a moment, and the newest with one.
///
/// Of more than a reply holds the last in this order are left out, and `left_out` says how many: with `sort=asc` who polls goes on with the
/// `timestamp` of the last line, and hears that one again.
pub fn logs(state: &State, parameters: &Parameters) -> Answer {
    if !state.config.public_logs {
        let why = "the log is not public: set_config(record { public_logs = opt true }) makes it so, and get_logs is for observers\n";
        return Answer::text(403, why);
    }
    let time = parameters.get("time").map(str::parse::<u64>);
    if let Some(Err(_)) = time {
        return Answer::text(400, "time is nanoseconds since the Unix epoch\n");
    }
    let oldest_first = match parameters.get("sort") {
        Some("asc") => true,
        Some("desc") => false,
        _ => time.is_none(),
    };
    let from = time.and_then(Result::ok).unwrap_or(0);
    let mut lines = logs::page(parameters.get("priority").and_then(priority), None, logs::MAX_PAGE).entries;
    lines.retain(|line| line.time >= from);
    if oldest_first {
        lines.reverse();
    }
    let mut text = String::from("{\"entries\":[");
    let mut said = 0;
    for line in &lines {
        let line = entry(line).to_string();
        if text.len() + line.len() > MAX_LINES {
            break;
        }
        if said > 0 {
            text.push(',');
        }
        text.push_str(&line);
        said += 1;
    }
    text.push_str(&format!("],\"left_out\":{}}}\n", lines.len() - said));
    Answer::json(200, text.into_bytes())
}
