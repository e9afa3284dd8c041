//! The canister's log, kept in stable memory.

use candid::CandidType;
use serde::{Deserialize, Serialize};

/// How much a line of the log matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, CandidType, Serialize, Deserialize)]
pub enum LogPriority {
    /// Something was damaged, refused or given up.
    Error,
    /// What went as it should.
    Info,
}

/// A line of the log.
#[derive(Clone, Debug, PartialEq, Eq, CandidType, Serialize, Deserialize)]
pub struct LogEntry {
    /// Its number, from 0.
    pub number: u64,
    /// When it was written, in nanoseconds since the Unix epoch.
    pub time: u64,
    /// How much it matters.
    pub priority: LogPriority,
    /// At most 1,000 bytes of it; what was longer ends with `…`.
    pub message: String,
}

/// Lines of the log, the newest first.
#[derive(Clone, Debug, PartialEq, Eq, CandidType, Serialize, Deserialize)]
pub struct LogPage {
    /// The lines.
    pub entries: Vec<LogEntry>,
    /// Where to go on; none where there is nothing older.
    pub cursor: Option<u64>,
}
