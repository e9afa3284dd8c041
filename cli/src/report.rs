//! Report of a command: a table, and one line of JSON with the same figures.

use crate::ledger::Entry;
use crate::terminal::{self, printable};
use crate::verify::Verified;
use anyhow::Result;
use comfy_table::presets::UTF8_FULL_CONDENSED;
use comfy_table::{CellAlignment, Table};
use ic_coppice_interface::StorageStatus;
use indicatif::HumanCount;
use serde::Serialize;
use serde_json::Value;
use std::io::{self, IsTerminal};
use std::time::Instant;
use time::UtcDateTime;

/// Maximum number of ranges in a line.
const RANGES_IN_LINE: usize = 20;

/// A report that can be printed as a table and as JSON.
pub trait Report: Serialize {
    /// Returns a table to print before the figures, if there is one.
    fn preface(&self) -> Option<String> {
        None
    }

    fn rows(&self) -> Vec<(&'static str, String)>;
}

/// Bytes of stable memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Storage {
    /// Bytes in blobs that are in use.
    pub used_bytes: u64,
    /// Bytes in free blobs, and in grown memory that new blobs can use.
    pub reusable_bytes: u64,
    /// Bytes that the platform bills.
    pub billed_bytes: u64,
}

impl Storage {
    pub fn rows(&self) -> [(&'static str, String); 3] {
        [
            ("used", bytes(self.used_bytes)),
            ("reusable", bytes(self.reusable_bytes)),
            ("billed", bytes(self.billed_bytes)),
        ]
    }
}

impl From<&StorageStatus> for Storage {
    fn from(status: &StorageStatus) -> Self {
        Self { used_bytes: status.used_bytes, reusable_bytes: status.reusable_bytes, billed_bytes: status.billed_bytes }
    }
}

/// An amount of blocks and their contents.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Amount {
    pub blocks: u64,
    /// Payload bytes: body, receipts and index.
    pub bytes: u64,
    pub transactions: u64,
}

impl Amount {
    /// Returns the total of some blocks.
    pub fn of(entries: &[Entry]) -> Self {
        Self {
            blocks: entries.len() as u64,
            bytes: entries.iter().map(Entry::bytes).sum(),
            transactions: entries.iter().map(|entry| u64::from(entry.transactions)).sum(),
        }
    }
}

/// Formats a number with separators.
pub fn count(number: u64) -> String {
    HumanCount(number).to_string()
}

/// Formats a number of bytes, exactly and in MiB.
pub fn bytes(bytes: u64) -> String {
    format!("{} bytes ({:.1} MiB)", count(bytes), bytes as f64 / f64::from(1 << 20))
}

/// Formats a number of blocks.
pub fn blocks(number: u64) -> String {
    if number == 1 { "1 block".into() } else { format!("{} blocks", count(number)) }
}

/// Formats a number of transactions.
pub fn transactions(number: u64) -> String {
    if number == 1 { "1 transaction".into() } else { format!("{} transactions", count(number)) }
}

/// Formats ranges of block numbers, at most 20 of them.
pub fn ranges(ranges: &[(u64, u64)]) -> String {
    let one = |&(first, last): &(u64, u64)| match last - first {
        0 => first.to_string(),
        _ => format!("{first} to {last}"),
    };
    let listed = ranges.iter().take(RANGES_IN_LINE).map(one).collect::<Vec<_>>().join(", ");
    listed + if ranges.len() > RANGES_IN_LINE { ", and more" } else { "" }
}

/// Returns Unix seconds as a date, if there is one, and as a number.
pub fn moment(seconds: u64) -> String {
    let date = i64::try_from(seconds).ok().and_then(|seconds| UtcDateTime::from_unix_timestamp(seconds).ok());
    date.map_or_else(
        || format!("{seconds} in Unix seconds"),
        |at| {
            let (year, month, day) = (at.year(), u8::from(at.month()), at.day());
            let (hour, minute, second) = (at.hour(), at.minute(), at.second());
            format!("{year}-{month:02}-{day:02} {hour:02}:{minute:02}:{second:02} UTC ({seconds})")
        },
    )
}

/// Seconds since a moment, to the millisecond.
pub fn seconds_since(moment: Instant) -> f64 {
    moment.elapsed().as_millis() as f64 / 1e3
}

/// Formats an amount for a table.
pub fn amount(amount: Amount) -> String {
    format!("{}, {}, {}", blocks(amount.blocks), transactions(amount.transactions), bytes(amount.bytes))
}

/// Returns the rows at the end of each report.
pub fn verified_rows(verified: Verified, seconds: f64) -> Vec<(&'static str, String)> {
    let found = format!("{}, {} receipts", transactions(verified.transactions), count(verified.receipts));
    let read_back = format!("{}, {}", blocks(verified.blocks), bytes(verified.bytes));
    let mut rows = vec![("verified: read back to the same SHA-256", read_back), ("verified: found by id", found)];
    if verified.pruned_blocks > 0 {
        rows.push(("verified: answer Pruned", blocks(verified.pruned_blocks)));
        rows.push(("verified: not found any more", transactions(verified.pruned_transactions)));
    }
    rows.push(("seconds", format!("{seconds:.1}")));
    rows
}

pub fn table(rows: impl IntoIterator<Item = (impl Into<String>, String)>) -> String {
    let mut table = Table::new();
    table.load_style(UTF8_FULL_CONDENSED);
    for (name, value) in rows {
        table.add_row([name.into(), value]);
    }
    if let Some(column) = table.column_mut(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table.to_string()
}

/// Formats a JSON value for the table, each item of a list on its own line.
fn words(value: &Value) -> String {
    match value {
        Value::String(text) => printable(text).into_owned(),
        Value::Number(number) => number.as_u64().map_or_else(|| format!("{number:.1}"), count),
        Value::Array(all) => all.iter().map(words).collect::<Vec<_>>().join("\n"),
        Value::Object(fields) => {
            fields.iter().map(|(name, value)| format!("{name} {}", words(value))).collect::<Vec<_>>().join(", ")
        }
        other => other.to_string(),
    }
}

/// Returns whether results are for programs: JSON is asked for, or stdout is not a terminal.
pub fn is_for_programs(json: bool) -> bool {
    json || !io::stdout().is_terminal()
}

/// Prints figures on stdout: a table of their fields for people, or the JSON for programs.
///
/// # Errors
/// When they cannot be written.
pub fn print_fields(figures: &impl Serialize, json: bool) -> Result<()> {
    let value = serde_json::to_value(figures)?;
    let Some(fields) = value.as_object().filter(|_| !is_for_programs(json)) else {
        return Ok(terminal::print(&serde_json::to_string(figures)?)?);
    };
    let rows = fields.iter().map(|(name, value)| (name.replace('_', " "), words(value)));
    Ok(terminal::print(&table(rows))?)
}

/// Prints a report on stdout: the table for people, or the JSON for programs.
///
/// # Errors
/// When it cannot be written.
pub fn print(report: &impl Report, json: bool) -> Result<()> {
    if is_for_programs(json) {
        return Ok(terminal::print(&serde_json::to_string(report)?)?);
    }
    if let Some(preface) = report.preface() {
        terminal::print(&preface)?;
    }
    let rows = report.rows().into_iter().map(|(name, value)| (name, printable(&value).into_owned()));
    Ok(terminal::print(&table(rows))?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_formatted_exactly_and_in_mib() {
        assert_eq!(bytes(3 << 20), "3,145,728 bytes (3.0 MiB)");
    }
}
