//! The answer of `coppice get` for people: a few aligned lines for each thing.

use super::bitcoin::{Decoded, Input, Output};
use super::found::{Block, Found, Transaction, Whole};
use crate::report::count;
use crate::terminal::{self, printable};
use anyhow::Result;
use comfy_table::presets::NOTHING;
use comfy_table::{CellAlignment, Table};
use time::UtcDateTime;

/// Inputs, outputs or keys of a transaction that are printed at most.
const MOST: usize = 100;
/// Characters of a script or a receipt that are printed at most.
const CHARACTERS: usize = 80;

/// Prints the answer on stdout: for people, or as a line of JSON.
///
/// # Errors
/// When it cannot be written.
pub fn print(found: &Found, only_json: bool) -> Result<()> {
    let text = if only_json { serde_json::to_string(found)? } else { text(found) };
    Ok(terminal::print(&text)?)
}

/// Returns the answer as text.
pub fn text(found: &Found) -> String {
    let mut parts = Vec::new();
    if let Some(block) = &found.block {
        parts.push(of_block(block));
        if !found.transactions.is_empty() {
            parts.push(listed(&found.transactions));
        }
    } else if let Some(key) = &found.key {
        parts.push(format!("transactions with the key {}, newest first", printable(key)));
        parts.push(listed(&found.transactions));
    } else {
        parts.extend(found.transactions.iter().map(of_transaction));
    }
    parts.extend(found.note.map(str::to_string));
    parts.extend(found.cursor.as_ref().map(|cursor| format!("there are more: --cursor {cursor}")));
    parts.join("\n\n")
}

/// Returns a title, and rows with their names aligned.
fn aligned(title: String, rows: Vec<(String, String)>) -> String {
    let width = rows.iter().map(|(name, _)| name.chars().count()).max().unwrap_or_default();
    let row = |(name, value): (String, String)| format!("  {name:width$}  {}", printable(&value));
    [title].into_iter().chain(rows.into_iter().map(row)).collect::<Vec<_>>().join("\n")
}

fn of_block(block: &Block) -> String {
    let mut rows = vec![
        ("hash", block.hash.clone()),
        ("parent", block.parent_hash.clone()),
        ("time", moment(block.timestamp_secs)),
        ("transactions", count(block.transactions.into())),
        ("keys", block.keys.map_or("unknown: no payloads are kept".into(), |keys| count(keys.into()))),
    ];
    for (name, (length, sha256)) in
        ["body", "receipts", "index"].into_iter().zip(block.lengths.iter().zip(&block.sha256))
    {
        rows.push((name, format!("{} bytes, SHA-256 {sha256}", count(*length))));
    }
    let vouched = if block.confirmed { "by the subnet" } else { "no: one replica has sent the block" };
    rows.push(("confirmed", vouched.into()));
    aligned(format!("block {}", block.number), rows.into_iter().map(|(name, value)| (name.into(), value)).collect())
}

/// Returns a table with a line for each transaction.
fn listed(transactions: &[Transaction]) -> String {
    let whole = |each: fn(&Whole) -> bool| transactions.iter().any(|of| of.whole.as_ref().is_some_and(each));
    let (of_block, bitcoin) = (whole(|_| true), whole(|whole| whole.bitcoin.is_some()));
    let (receipts, keys) =
        (whole(|whole| whole.receipt.is_some()), whole(|whole| whole.keys.iter().flatten().next().is_some()));
    let mut table = Table::new();
    table.load_style(NOTHING);
    let header =
        [(!of_block, "block"), (true, "position"), (true, "transaction"), (bitcoin, "inputs"), (bitcoin, "outputs")];
    let more = [(bitcoin, "BTC"), (receipts, "receipt bytes"), (keys, "keys")];
    table.set_header(header.into_iter().chain(more).filter(|(shown, _)| *shown).map(|(_, name)| name));
    for transaction in transactions {
        let whole = transaction.whole.as_ref();
        let decoded = whole.and_then(|whole| whole.bitcoin.as_ref());
        let number = |of: fn(&Decoded) -> usize| decoded.map_or(String::new(), |decoded| count(of(decoded) as u64));
        let receipt = whole.and_then(|whole| whole.receipt.as_ref());
        let keys_of = whole.and_then(|whole| whole.keys.as_ref()).map(|keys| keys.join(" ")).unwrap_or_default();
        let row = [
            (!of_block, transaction.number.to_string()),
            (true, transaction.position.to_string()),
            (true, transaction.id.clone()),
            (bitcoin, number(|decoded| decoded.inputs.len())),
            (bitcoin, number(|decoded| decoded.outputs.len())),
            (bitcoin, decoded.map(|decoded| coins(decoded.satoshis)).unwrap_or_default()),
            (receipts, receipt.map(|receipt| count(receipt.len() as u64 / 2)).unwrap_or_default()),
            (keys, cut(&printable(&keys_of))),
        ];
        table.add_row(row.into_iter().filter(|(shown, _)| *shown).map(|(_, value)| value));
    }
    for name in 0..2 {
        if let Some(column) = table.column_mut(name).filter(|_| name == 0 || !of_block) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    table.lines().map(|line| line.trim_end().to_string()).collect::<Vec<_>>().join("\n")
}

fn of_transaction(transaction: &Transaction) -> String {
    let mut rows: Vec<(String, String)> = vec![("block".into(), transaction.number.to_string())];
    rows.push(("block hash".into(), transaction.block_hash.clone()));
    let Some(whole) = &transaction.whole else { return aligned(transaction.id.clone(), rows) };
    rows.push(("time".into(), moment(whole.timestamp_secs)));
    rows.push(("position".into(), format!("{} of {}", transaction.position, count(whole.of.into()))));
    let keys = match &whole.keys {
        None => "unknown: no payloads are kept".into(),
        Some(keys) if keys.is_empty() => "none".into(),
        Some(keys) => some(keys.iter().cloned()).join(" "),
    };
    rows.push(("keys".into(), keys));
    let receipt = |receipt: &String| format!("{} bytes: 0x{}", count(receipt.len() as u64 / 2), cut(receipt));
    rows.push(("receipt".into(), whole.receipt.as_ref().map_or("none".into(), receipt)));
    if let Some(decoded) = &whole.bitcoin {
        let Decoded { version, lock_time, bytes, weight, satoshis, inputs, outputs } = decoded;
        let (bytes, weight) = (count(*bytes as u64), count(*weight));
        let about = format!(
            "version {version}, lock time {lock_time}, {bytes} bytes, weight {weight}, outputs of {} BTC",
            coins(*satoshis)
        );
        rows.push(("Bitcoin".into(), about));
        rows.extend(numbered("input", inputs.iter().map(input)));
        rows.extend(numbered("output", outputs.iter().map(output)));
    }
    aligned(format!("transaction {}", transaction.id), rows)
}

/// Returns the first texts, and a last one with the number of the others.
fn some(texts: impl ExactSizeIterator<Item = String>) -> Vec<String> {
    let more = texts.len().saturating_sub(MOST);
    let more = (more > 0).then(|| format!("… {} more, which --json prints", count(more as u64)));
    texts.take(MOST).chain(more).collect()
}

/// Returns a row for each of the first texts, with its number, and a row with the number of the others.
fn numbered(name: &str, texts: impl ExactSizeIterator<Item = String>) -> Vec<(String, String)> {
    let names = (0..).map(|at| if at < MOST { format!("{name} {at}") } else { String::new() });
    names.zip(some(texts)).collect()
}

fn input(input: &Input) -> String {
    let spends = input.spends.as_ref().map_or("coinbase".into(), |spends| format!("spends {spends}"));
    let (script, witness) = (input.script.len() as u64 / 2, input.witness.len() as u64);
    format!(
        "{spends}, script of {} bytes, witness of {} items, sequence {}",
        count(script),
        count(witness),
        input.sequence
    )
}

fn output(output: &Output) -> String {
    let to =
        output.address.as_ref().map_or_else(|| format!("by {}", cut(&output.asm)), |address| format!("to {address}"));
    format!("{} BTC {to}", coins(output.satoshis))
}

/// Returns the beginning of a long text.
fn cut(text: &str) -> String {
    match text.char_indices().nth(CHARACTERS) {
        None => text.into(),
        Some((end, _)) => format!("{}…", &text[..end]),
    }
}

/// Returns satoshis as bitcoins, exactly.
fn coins(satoshis: u64) -> String {
    format!("{}.{:08}", count(satoshis / 100_000_000), satoshis % 100_000_000)
}

/// Returns Unix seconds as a date, if there is one, and as a number.
fn moment(seconds: u64) -> String {
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
