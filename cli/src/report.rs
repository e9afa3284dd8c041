//! What a command prints at its end: a table, and one line of JSON with the same figures.

use crate::embedded::Costs;
use crate::terminal::{self, printable};
use crate::verify::Verified;
use anyhow::Result;
use comfy_table::presets::UTF8_FULL_CONDENSED;
use comfy_table::{CellAlignment, Table};
use coppice_interface::StorageStatus;
use indicatif::HumanCount;
use serde::Serialize;
use serde_json::Value;
use std::time::Instant;

/// Something that can be printed as a table and as JSON.
pub trait Report: Serialize {
    /// A table that goes before the figures, if there is one.
    fn preface(&self) -> Option<String> {
        None
    }

    /// The table's rows.
    fn rows(&self) -> Vec<(&'static str, String)>;
}

/// Bytes of stable memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Storage {
    /// In blobs that hold something.
    pub used_bytes: u64,
    /// In blobs and grown memory that new blobs can take without growing.
    pub reusable_bytes: u64,
    /// That the platform bills.
    pub billed_bytes: u64,
}

impl From<&StorageStatus> for Storage {
    fn from(status: &StorageStatus) -> Self {
        Self { used_bytes: status.used_bytes, reusable_bytes: status.reusable_bytes, billed_bytes: status.billed_bytes }
    }
}

/// Instructions, averaged: those inside the messages, and those that are charged, heap pages included. MB are millions of
/// payload bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Instructions {
    /// Inside the messages that append, per block.
    pub per_block_appended: u64,
    /// Charged for them, per block.
    pub charged_per_block_appended: u64,
    /// Inside them per MB.
    pub per_mb_appended: u64,
    /// Inside them per transaction.
    pub per_transaction_appended: u64,
    /// Inside everything that the timer starts, idle firings and the timer library included, per block pruned; 0 where
    /// none was.
    pub per_block_pruned: u64,
    /// Charged for all that, per block pruned.
    pub charged_per_block_pruned: u64,
    /// Inside it per MB.
    pub per_mb_pruned: u64,
}

/// Blocks and what they hold.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Amount {
    /// Blocks.
    pub blocks: u64,
    /// Payload bytes: body, receipts and index.
    pub bytes: u64,
    /// Transactions.
    pub transactions: u64,
}

fn share(sum: u64, by: u64) -> u64 {
    if by == 0 { 0 } else { (u128::from(sum) / u128::from(by)) as u64 }
}

fn per_mb(sum: u64, bytes: u64) -> u64 {
    if bytes == 0 { 0 } else { (u128::from(sum) * 1_000_000 / u128::from(bytes)) as u64 }
}

impl Instructions {
    /// Averages of what was counted.
    pub fn new(costs: &Costs, appended: Amount, pruned: Amount) -> Self {
        Self {
            per_block_appended: share(costs.append_instructions, appended.blocks),
            charged_per_block_appended: share(costs.append_charged, appended.blocks),
            per_mb_appended: per_mb(costs.append_instructions, appended.bytes),
            per_transaction_appended: share(costs.append_instructions, appended.transactions),
            per_block_pruned: share(costs.timer_instructions, pruned.blocks),
            charged_per_block_pruned: share(costs.timer_charged, pruned.blocks),
            per_mb_pruned: per_mb(costs.timer_instructions, pruned.bytes),
        }
    }
}

/// A number with separators.
pub fn count(number: u64) -> String {
    HumanCount(number).to_string()
}

/// Bytes, exactly and in MiB.
pub fn bytes(bytes: u64) -> String {
    format!("{} bytes ({:.1} MiB)", count(bytes), bytes as f64 / f64::from(1 << 20))
}

/// How many blocks.
pub fn blocks(number: u64) -> String {
    if number == 1 { "1 block".into() } else { format!("{} blocks", count(number)) }
}

/// Seconds since a moment, to the millisecond.
pub fn seconds_since(moment: Instant) -> f64 {
    moment.elapsed().as_millis() as f64 / 1e3
}

/// An amount, in a table.
pub fn amount(amount: Amount) -> String {
    format!("{}, {} transactions, {}", blocks(amount.blocks), count(amount.transactions), bytes(amount.bytes))
}

/// The rows that all reports end with.
pub fn common_rows(
    storage: Storage,
    instructions: Option<Instructions>,
    verified: Verified,
    seconds: f64,
) -> Vec<(&'static str, String)> {
    let per = |block: u64, mb: u64| format!("{}, per MB {}", count(block), count(mb));
    let mut rows = vec![
        ("used", bytes(storage.used_bytes)),
        ("reusable", bytes(storage.reusable_bytes)),
        ("billed", bytes(storage.billed_bytes)),
    ];
    match instructions {
        None => rows.push(("instructions", "not counted on a network".into())),
        Some(instructions) => {
            rows.push((
                "instructions per block appended, inside",
                per(instructions.per_block_appended, instructions.per_mb_appended),
            ));
            rows.push((
                "charged per block appended, heap pages included",
                count(instructions.charged_per_block_appended),
            ));
            rows.push(("instructions per transaction appended, inside", count(instructions.per_transaction_appended)));
            if instructions.per_block_pruned > 0 {
                rows.push((
                    "instructions per block pruned, inside (all its timer)",
                    per(instructions.per_block_pruned, instructions.per_mb_pruned),
                ));
                rows.push((
                    "charged per block pruned, heap pages included",
                    count(instructions.charged_per_block_pruned),
                ));
            }
        }
    }
    rows.push((
        "verified: read back to the same SHA-256",
        format!("{}, {}", blocks(verified.blocks), bytes(verified.bytes)),
    ));
    let found = format!("{} transactions, {} receipts", count(verified.transactions), count(verified.receipts));
    rows.push(("verified: found by id", found));
    if verified.pruned_blocks > 0 {
        rows.push(("verified: answer Pruned", blocks(verified.pruned_blocks)));
        rows.push(("verified: not found any more", format!("{} transactions", count(verified.pruned_transactions))));
    }
    rows.push(("seconds", format!("{seconds:.1}")));
    rows
}

/// The table.
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

/// A value in words, the items of a list in a line each.
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

/// Prints figures on stdout: a table of their fields, unless only JSON is wanted, and the JSON.
///
/// # Errors
/// When they cannot be written.
pub fn print_fields(figures: &impl Serialize, only_json: bool) -> Result<()> {
    let value = serde_json::to_value(figures)?;
    if let Some(fields) = value.as_object().filter(|_| !only_json) {
        let rows = fields.iter().map(|(name, value)| (name.replace('_', " "), words(value)));
        terminal::print(&table(rows))?;
    }
    Ok(terminal::print(&serde_json::to_string(figures)?)?)
}

/// Prints a report on stdout: the table, unless only JSON is wanted, and the JSON.
///
/// # Errors
/// When it cannot be written.
pub fn print(report: &impl Report, only_json: bool) -> Result<()> {
    let json = serde_json::to_string(report)?;
    if !only_json {
        if let Some(preface) = report.preface() {
            terminal::print(&preface)?;
        }
        let rows = report.rows().into_iter().map(|(name, value)| (name, printable(&value).into_owned()));
        terminal::print(&table(rows))?;
    }
    Ok(terminal::print(&json)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn averages_are_of_what_there_was() {
        let costs = Costs {
            append_instructions: 3_000,
            append_charged: 6_000,
            timer_instructions: 500,
            timer_charged: 800,
            ..Costs::default()
        };
        let appended = Amount { blocks: 3, bytes: 2_000_000, transactions: 30 };
        let instructions = Instructions::new(&costs, appended, Amount::default());
        let expected = Instructions {
            per_block_appended: 1_000,
            charged_per_block_appended: 2_000,
            per_mb_appended: 1_500,
            per_transaction_appended: 100,
            per_block_pruned: 0,
            charged_per_block_pruned: 0,
            per_mb_pruned: 0,
        };
        assert_eq!(instructions, expected);
        let pruned = Amount { blocks: 2, bytes: 1_000, transactions: 5 };
        let instructions = Instructions::new(&costs, appended, pruned);
        assert_eq!((instructions.per_block_pruned, instructions.charged_per_block_pruned), (250, 400));
        assert_eq!(bytes(3 << 20), "3,145,728 bytes (3.0 MiB)");
    }
}
