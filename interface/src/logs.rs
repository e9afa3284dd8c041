//! Log of the canister, kept in stable memory.

use candid::CandidType;
use coppice_macros::native_docs;
use serde::{Deserialize, Serialize};

/// Priority of a line of the log.
#[native_docs]
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, CandidType, Serialize, Deserialize)]
pub enum LogPriority {
    /// Something was damaged, refused or given up.
    Error,
    /// A regular event.
    Info,
}

/// A line of the log.
#[native_docs]
#[derive(Clone, Debug, PartialEq, Eq, CandidType, Serialize, Deserialize)]
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
#[native_docs]
#[derive(Clone, Debug, PartialEq, Eq, CandidType, Serialize, Deserialize)]
pub struct LogPage {
    /// The lines, newest first.
    pub entries: Vec<LogEntry>,
    /// The cursor for older lines; `null` if there are none.
    pub cursor: Option<u64>,
}
