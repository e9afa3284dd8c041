//! Log of the canister, kept in stable memory.

use ic_coppice_macros::candid_type;

/// Priority of a line of the log.
#[candid_type]
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum LogPriority {
    /// Something was damaged, refused or given up.
    Error,
    /// A regular event.
    Info,
}

/// A line of the log.
#[candid_type]
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogEntry {
    /// The line's number, from 0.
    pub number: u64,
    /// The moment at which the line was written, in Unix nanoseconds.
    pub time_ns: u64,
    /// The line's priority.
    pub priority: LogPriority,
    /// The text, cut to at most 1,000 bytes; a cut text ends with `…`.
    pub message: String,
}

/// A page of the log.
#[candid_type]
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogPage {
    /// The lines, newest first.
    pub entries: Vec<LogEntry>,
    /// The cursor for older lines; `null` if there are none.
    pub cursor: Option<u64>,
}
