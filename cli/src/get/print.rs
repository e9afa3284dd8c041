//! The answer of `coppice get` for people: a few aligned lines for each thing.

use super::bitcoin::{Decoded, Input, Output};
use super::result::{Block, Found, Transaction, Whole};
use crate::report::{count, moment};
use crate::terminal::{self, printable};
use anyhow::Result;
use comfy_table::presets::NOTHING;
use comfy_table::{CellAlignment, Table};

/// Inputs, outputs or keys of a transaction that are printed at most.
const MOST: usize = 100;
/// The keys or the receipt of a transaction in a database of headers.
const UNKNOWN: &str = "unknown: no payloads are kept";
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
        ("parent", block.parent_hash.clone().unwrap_or(UNKNOWN.into())),
        ("time", moment(block.timestamp_secs)),
        ("transactions", count(block.transactions.into())),
        ("keys", block.keys.map_or(UNKNOWN.into(), |keys| count(keys.into()))),
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
    let (receipts, keys) = (
        whole(|whole| whole.receipt.iter().flatten().next().is_some()),
        whole(|whole| whole.keys.iter().flatten().next().is_some()),
    );
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
        let receipt = whole.and_then(|whole| whole.receipt.as_ref()?.as_ref());
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
    rows.push(("position".into(), format!("{}, in a block of {}", transaction.position, count(whole.of.into()))));
    let keys = match &whole.keys {
        None => UNKNOWN.into(),
        Some(keys) if keys.is_empty() => "none".into(),
        Some(keys) => some(keys.iter().cloned()).join(" "),
    };
    rows.push(("keys".into(), keys));
    let receipt = match &whole.receipt {
        None => UNKNOWN.into(),
        Some(None) => "none".into(),
        Some(Some(receipt)) => match receipt.len() / 2 {
            1 => format!("1 byte: 0x{receipt}"),
            bytes => format!("{} bytes: 0x{}", count(bytes as u64), cut(receipt)),
        },
    };
    rows.push(("receipt".into(), receipt));
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::get::bitcoin::decoded;
    use crate::get::query::Order;
    use bitcoin::Network;
    use bitcoin::constants::genesis_block;
    use bitcoin::hashes::Hash;
    use ic_coppice_interface::segments::{Index, Receipts};

    fn transaction(whole: Option<Whole>) -> Transaction {
        let genesis = genesis_block(Network::Bitcoin);
        let id = Order::Display.show(genesis.txdata[0].compute_txid().as_byte_array());
        let block_hash = Order::Display.show(genesis.block_hash().as_byte_array());
        Transaction { number: 7, position: 0, id, block_hash, whole }
    }

    fn whole() -> Whole {
        let genesis = genesis_block(Network::Bitcoin);
        Whole {
            timestamp_secs: genesis.header.time.into(),
            of: 1,
            keys: Some(vec!["alice".into(), "0xff".into()]),
            receipt: Some(Some("01".repeat(100))),
            bitcoin: Some(decoded(&genesis.txdata[0], Order::Display)),
        }
    }

    fn found(transactions: Vec<Transaction>) -> Found {
        let (chain, order) = ("SQLite".into(), "display");
        Found { command: "get", chain, order, block: None, key: None, transactions, cursor: None, note: None }
    }

    #[test]
    fn transaction_is_printed_with_inputs_and_outputs() {
        let expected = "\
transaction 4a5e1e4baab89f3a32518a88c31bc87f618f76673e2cc77ab2127b7afdeda33b
  block       7
  block hash  000000000019d6689c085ae165831e934ff763ae46a2a6c172b3f1b60a8ce26f
  time        2009-01-03 18:15:05 UTC (1231006505)
  position    0, in a block of 1
  keys        alice 0xff
  receipt     100 bytes: 0x01010101010101010101010101010101010101010101010101010101010101010101010101010101…
  Bitcoin     version 1, lock time 0, 204 bytes, weight 816, outputs of 50.00000000 BTC
  input 0     coinbase, script of 77 bytes, witness of 0 items, sequence 4294967295
  output 0    50.00000000 BTC by OP_PUSHBYTES_65 04678afdb0fe5548271967f1a67130b7105cd6a828e03909a67962e0ea1f61de…";
        assert_eq!(text(&found(vec![transaction(Some(whole()))])), expected);
    }

    /// The page about the commands shows the output for a transaction of mainnet.
    #[test]
    fn page_shows_the_output_for_a_mainnet_transaction() {
        let raw = bitcoin_test_data::blocks::mainnet_702861().to_vec();
        let block: bitcoin::Block = bitcoin::consensus::deserialize(&raw).unwrap();
        let made = crate::feed::bitcoin_block(702_861, raw, &block).unwrap();
        let index = Index::parse(&made.index).unwrap();
        let receipts = Receipts::parse(&made.receipts, index.transactions()).unwrap();
        let transaction = &block.txdata[2];
        let found = found(vec![Transaction {
            number: 702_861,
            position: 2,
            id: transaction.compute_txid().to_string(),
            block_hash: block.block_hash().to_string(),
            whole: Some(Whole {
                // The generated chain around the block has times of its own.
                timestamp_secs: 1_767_227_475,
                of: index.transactions(),
                keys: Some(Vec::new()),
                receipt: Some(receipts.get(2).map(crate::verify::hex)),
                bitcoin: Some(decoded(transaction, Order::Display)),
            }),
        }]);
        let page = include_str!("../../../docs/reference/commands.md");
        assert!(page.contains(&format!("```\n{}\n```", text(&found))), "{}", text(&found));
    }

    #[test]
    fn block_is_printed_with_a_line_for_each_transaction() {
        let genesis = genesis_block(Network::Bitcoin);
        let block = Block {
            number: 7,
            hash: Order::Display.show(genesis.block_hash().as_byte_array()),
            parent_hash: Some("00".repeat(32)),
            timestamp_secs: u64::MAX,
            transactions: 2,
            keys: Some(2),
            lengths: [285, 0, 1_048],
            sha256: ["a", "b", "c"].map(str::to_string),
            confirmed: false,
        };
        let plain = Transaction {
            position: 1,
            whole: Some(Whole { bitcoin: None, keys: None, receipt: None, ..whole() }),
            ..transaction(None)
        };
        let found =
            Found { block: Some(block), cursor: Some("2".into()), ..found(vec![transaction(Some(whole())), plain]) };
        let expected = "\
block 7
  hash          000000000019d6689c085ae165831e934ff763ae46a2a6c172b3f1b60a8ce26f
  parent        0000000000000000000000000000000000000000000000000000000000000000
  time          18446744073709551615 in Unix seconds
  transactions  2
  keys          2
  body          285 bytes, SHA-256 a
  receipts      0 bytes, SHA-256 b
  index         1,048 bytes, SHA-256 c
  confirmed     no: one replica has sent the block

 position  transaction                                                       inputs  outputs  BTC          receipt bytes  keys
        0  4a5e1e4baab89f3a32518a88c31bc87f618f76673e2cc77ab2127b7afdeda33b  1       1        50.00000000  100            alice 0xff
        1  4a5e1e4baab89f3a32518a88c31bc87f618f76673e2cc77ab2127b7afdeda33b

there are more: --cursor 2";
        assert_eq!(text(&found), expected);
    }

    #[test]
    fn list_by_key_has_place_and_id() {
        let found = Found {
            key: Some("a\u{202e}b".into()),
            note: Some("a note"),
            ..found(vec![transaction(None), transaction(None)])
        };
        let expected = "\
transactions with the key a\\u202eb, newest first

 block  position  transaction
     7         0  4a5e1e4baab89f3a32518a88c31bc87f618f76673e2cc77ab2127b7afdeda33b
     7         0  4a5e1e4baab89f3a32518a88c31bc87f618f76673e2cc77ab2127b7afdeda33b

a note";
        assert_eq!(text(&found), expected);
    }

    #[test]
    fn long_lists_and_texts_are_cut() {
        let mut long = whole();
        let bitcoin = long.bitcoin.as_mut().unwrap();
        bitcoin.outputs = vec![bitcoin.outputs[0].clone(); MOST + 2];
        bitcoin.inputs = vec![bitcoin.inputs[0].clone(); MOST];
        long.keys = Some(vec!["k".into(); MOST + 1]);
        let text = text(&found(vec![transaction(Some(long))]));
        for (part, times) in
            [("\n  output ", MOST), ("… 2 more, which --json prints", 1), ("\n  input ", MOST), ("… 1 more", 1)]
        {
            assert_eq!(text.matches(part).count(), times, "{part}");
        }
        assert!(text.lines().all(|line| line.chars().count() < 300));
    }

    #[test]
    fn amounts_and_times_are_exact() {
        assert_eq!(coins(2_100_000_012_345_678), "21,000,000.12345678");
        assert_eq!(coins(7), "0.00000007");
        assert_eq!(moment(0), "1970-01-01 00:00:00 UTC (0)");
        assert_eq!(moment(1_231_006_505), "2009-01-03 18:15:05 UTC (1231006505)");
        assert_eq!(moment(253_402_300_799), "9999-12-31 23:59:59 UTC (253402300799)");
        assert_eq!(moment(253_402_300_800), "253402300800 in Unix seconds");
    }
}
