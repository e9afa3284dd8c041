//! `/health` and `/logs`.

use super::{Answer, Parameters};
use crate::logs;
use crate::state::State;
use coppice_interface::{LogEntry, LogPriority, Problem};
use serde_json::{Value, json};

/// Bytes of an answer's lines: a reply has 2 MiB.
const MAX_LINES: usize = 1_500_000;

fn bytes(value: &Value) -> Vec<u8> {
    let mut bytes = value.to_string().into_bytes();
    bytes.push(b'\n');
    bytes
}

fn problem(problem: &Problem) -> Value {
    json!({
        "code": format!("{:?}", problem.code),
        "severity": format!("{:?}", problem.severity),
        "message": problem.message,
        "since": problem.since,
        "action": problem.action,
    })
}

/// `/health`: status 200 where all is well, else 503.
pub fn health(state: &State) -> Answer {
    let health = state.health();
    let value = json!({
        "healthy": health.healthy,
        "problems": health.problems.iter().map(problem).collect::<Vec<_>>(),
        "version": health.version,
        "time": health.time,
    });
    Answer::json(if health.healthy { 200 } else { 503 }, bytes(&value))
}

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

/// `/logs?priority=error&time=NANOSECONDS&sort=asc|desc`: lines of a priority, or of all; later than a moment; the oldest or the newest
/// first, where nobody says otherwise the oldest.
pub fn logs(state: &State, parameters: &Parameters) -> Answer {
    if !state.config.public_logs {
        let why = "the log is not public: set_config(record { public_logs = opt true }) makes it so, and get_logs is for observers\n";
        return Answer::text(403, why);
    }
    let bad = |what: &str| Answer::text(400, format!("{what}\n"));
    let priority = match parameters.get("priority").map(priority) {
        Some(None) => return bad("priority is error or info"),
        given => given.flatten(),
    };
    let Ok(time) = parameters.get("time").map_or(Ok(0), str::parse::<u64>) else {
        return bad("time is nanoseconds since the Unix epoch");
    };
    let oldest_first = match parameters.get("sort") {
        None | Some("asc") => true,
        Some("desc") => false,
        Some(_) => return bad("sort is asc or desc"),
    };
    let newest = logs::page(priority, None, logs::MAX_PAGE).entries;
    let mut room = MAX_LINES;
    let mut lines: Vec<Value> = newest
        .iter()
        .filter(|line| line.time > time)
        .take_while(|line| {
            // A character of the text may take six in JSON.
            let needed = 6 * line.message.len() + 200;
            let fits = room >= needed;
            room = room.saturating_sub(needed);
            fits
        })
        .map(entry)
        .collect();
    if oldest_first {
        lines.reverse();
    }
    Answer::json(200, bytes(&json!({ "entries": lines })))
}
