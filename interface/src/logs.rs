//! The canister's log, kept in stable memory.

use candid::CandidType;
use coppice_macros::native_docs;
use serde::{Deserialize, Serialize};

/// How much a line of the log matters.
#[native_docs]
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, CandidType, Serialize, Deserialize)]
pub enum LogPriority {
    /// Something was damaged, refused or given up.
    Error,
    /// What went as it should.
    Info,
}

/// A line of the log.
#[native_docs]
#[derive(Clone, Debug, PartialEq, Eq, CandidType, Serialize, Deserialize)]
pub struct LogEntry {
    /// The line's number, from 0.
    pub number: u64,
    /// The moment at which the line was written, in Unix nanoseconds.
    pub time: u64,
    /// How much the line matters.
    pub priority: LogPriority,
    /// At most 1,000 bytes of the text; what was longer ends with `…`.
    pub message: String,
}

/// A page of the log.
#[native_docs]
#[derive(Clone, Debug, PartialEq, Eq, CandidType, Serialize, Deserialize)]
pub struct LogPage {
    /// The lines, the newest first.
    pub entries: Vec<LogEntry>,
    /// The cursor with which older lines are asked for; none where these are the oldest.
    pub cursor: Option<u64>,
}
