//! Tables of figures in pages: written by `scripts/bench --write`, and compared by `--check`.
//!
//! The line `<!-- figures: NAME -->` marks the table below it, which ends at the first empty line.

use super::comparison;
use super::figure::{Row, of};
use crate::figures_in_pages;
use anyhow::{Result, bail, ensure};
use ic_coppice_cli::report::count;
use std::fmt::Write;
use std::path::Path;

const MARK: &str = "<!-- figures: ";

/// Rows of one operation, by rising `n`.
struct Line<'a> {
    label: String,
    rows: Vec<&'a Row>,
}

/// A column: its heading, and the function for its cells.
type Column = (&'static str, fn(&Line) -> String);

fn or_dash(number: Option<u64>) -> String {
    number.map_or("–".into(), count)
}

impl<'a> Line<'a> {
    fn at(&self, place: usize) -> String {
        self.rows.get(place).map_or("–".into(), |row| count(row.today.counted()))
    }

    fn last(&self) -> &'a Row {
        self.rows[self.rows.len() - 1]
    }

    fn pages(&self) -> String {
        let today = &self.last().today;
        // The pages of a whole message are whole numbers.
        if today.whole.is_some() && today.pages_read.fract() == 0.0 && today.pages_written.fract() == 0.0 {
            return format!("{:.0} / {:.0}", today.pages_read, today.pages_written);
        }
        format!("{:.2} / {:.2}", today.pages_read, today.pages_written)
    }

    /// Returns how many times cheaper the canister's row among the most records is than the peer's at `place`, at one price.
    fn times(&self, place: usize, counted: fn(&Row) -> u64) -> String {
        let theirs = self.rows.get(place);
        theirs.map_or("–".into(), |theirs| comparison::times(counted(theirs) as f64, counted(self.rows[1]) as f64))
    }
}

const BLOB: &[Column] = &[
    ("n = 10", |line| line.at(0)),
    ("n = 10,000", |line| line.at(1)),
    ("n = 1,000,000", |line| line.at(2)),
    ("limit", |line| or_dash(line.last().today.limit)),
    ("tomorrow", |line| or_dash(line.rows.iter().map(|row| row.tomorrow.counted()).max())),
    ("limit", |line| or_dash(line.last().tomorrow.limit)),
    ("pages read / written", |line| line.pages()),
];

const INDEX: &[Column] = &[
    ("n = 10,000", |line| line.at(0)),
    ("n = 100,000", |line| line.at(1)),
    ("n = 1,000,000", |line| line.at(2)),
    ("limit", |line| or_dash(line.last().today.limit)),
    ("tomorrow, n = 1,000,000", |line| count(line.last().tomorrow.counted())),
    ("limit", |line| or_dash(line.last().tomorrow.limit)),
    ("pages read / written", |line| line.pages()),
];

const SWEEP: &[Column] = &[
    ("n = 1,000,000", |line| line.at(0)),
    ("n = 10,000,000", |line| line.at(1)),
    ("limit", |line| or_dash(line.last().today.limit)),
    ("tomorrow, n = 1,000,000", |line| count(line.rows[0].tomorrow.counted())),
    ("n = 10,000,000", |line| count(line.last().tomorrow.counted())),
    ("limit", |line| or_dash(line.last().tomorrow.limit)),
    ("pages read / written at 10,000,000", |line| {
        let today = &line.last().today;
        format!("{:.3} / {:.3}", today.pages_read, today.pages_written)
    }),
    ("limit written", |line| line.last().today.pages_limit.map_or("–".into(), |limit| limit.to_string())),
];

const BACKLOG: &[Column] = &[
    ("a second, n = 1,000,000", |line| or_dash(line.rows[0].today.per_second)),
    ("n = 10,000,000", |line| or_dash(line.last().today.per_second)),
    ("at least", |line| or_dash(line.last().today.least_per_second)),
    ("tomorrow, n = 1,000,000", |line| or_dash(line.rows[0].tomorrow.per_second)),
    ("n = 10,000,000", |line| or_dash(line.last().tomorrow.per_second)),
    ("the largest tick", |line| count(line.last().today.instructions)),
    ("tomorrow", |line| count(line.last().tomorrow.instructions)),
    ("limit", |line| or_dash(line.last().today.limit)),
    ("pages written by it", |line| count(line.last().today.pages_written as u64)),
    ("limit", |line| line.last().today.pages_limit.map_or("–".into(), |limit| count(limit as u64))),
];

/// Lines have the canister's rows at 1,000 and 100,000 records, and the peers' rows at 100,000.
const UTXO: &[Column] = &[
    ("n = 1,000", |line| line.at(0)),
    ("n = 100,000", |line| line.at(1)),
    ("B-tree, n = 100,000", |line| line.at(2)),
    ("times cheaper", |line| line.times(2, |row| row.today.counted())),
    ("rows, n = 100,000", |line| line.at(3)),
    ("times cheaper", |line| line.times(3, |row| row.today.counted())),
    ("tomorrow, n = 100,000", |line| count(line.rows[1].tomorrow.counted())),
    ("limit", |line| or_dash(line.rows[1].tomorrow.limit)),
    ("B-tree", |line| line.rows.get(2).map_or("–".into(), |row| count(row.tomorrow.counted()))),
    ("times cheaper", |line| line.times(2, |row| row.tomorrow.counted())),
    ("rows", |line| line.rows.get(3).map_or("–".into(), |row| count(row.tomorrow.counted()))),
    ("times cheaper", |line| line.times(3, |row| row.tomorrow.counted())),
    ("pages read / written", |line| {
        let today = &line.rows[1].today;
        format!("{:.2} / {:.2}", today.pages_read, today.pages_written)
    }),
];

const MESSAGE: &[Column] = &[
    ("inside", |line| count(line.last().today.instructions)),
    ("heap pages", |line| or_dash(line.last().today.whole.map(|whole| whole.heap_pages))),
    ("charged", |line| count(line.last().today.counted())),
    ("limit", |line| or_dash(line.last().today.limit)),
    ("tomorrow: inside", |line| count(line.last().tomorrow.instructions)),
    ("charged", |line| count(line.last().tomorrow.counted())),
    ("limit", |line| or_dash(line.last().tomorrow.limit)),
    ("pages read / written", |line| line.pages()),
];

const PRUNER: &[Column] = &[
    ("n = 1,000", |line| line.at(0)),
    ("n = 100,000", |line| line.at(1)),
    ("limit", |line| or_dash(line.last().today.limit)),
    ("tomorrow, n = 100,000", |line| count(line.last().tomorrow.counted())),
    ("limit", |line| or_dash(line.last().tomorrow.limit)),
    ("pages read / written", |line| line.pages()),
];

const OBSERVE: &[Column] = &[
    ("charged", |line| count(line.last().today.counted())),
    ("limit", |line| or_dash(line.last().today.limit)),
    ("tomorrow: charged", |line| count(line.last().tomorrow.counted())),
    ("pages read / written", |line| line.pages()),
];

const QUEUE: &[Column] = &[
    ("n", |line| count(line.last().today.n)),
    ("charged, a row", |line| count(line.last().today.counted())),
    ("limit", |line| or_dash(line.last().today.limit)),
    ("tomorrow: charged", |line| count(line.last().tomorrow.counted())),
    ("pages read / written, a row", |line| line.pages()),
];

/// Returns one table: heading, columns and lines.
fn table(name: &str, rows: &[Row]) -> Result<String> {
    let by_op = |family: &'static str, named: &[(&str, &'static str, Option<&str>)]| -> Vec<Line> {
        let line = |&(label, op, peer): &(&str, &'static str, Option<&str>)| Line {
            label: label.into(),
            rows: of(rows, family, op, None, peer),
        };
        named.iter().map(line).collect()
    };
    let (heading, columns, lines): (&str, &[Column], Vec<Line>) = match name {
        "blob" => ("operation", BLOB, blobs(rows)),
        "index" => {
            let named = [
                ("insert", "insert", None),
                ("get", "get", None),
                ("remove, one by one", "remove", None),
                ("insert (StableBTreeMap)", "insert", Some("btree")),
                ("get (StableBTreeMap)", "get", Some("btree")),
                ("remove, one by one (StableBTreeMap)", "remove", Some("btree")),
                ("insert (heap)", "insert", Some("heap")),
                ("get (heap)", "get", Some("heap")),
                ("remove, a generation at once (heap)", "remove", Some("heap")),
                ("insert again, at an upgrade (heap)", "rebuild", Some("heap")),
                ("a whole look-up, as a query", "look-up", None),
                ("a whole look-up (StableBTreeMap)", "look-up", Some("btree")),
                ("a whole look-up (heap)", "look-up", Some("heap")),
            ];
            ("index entry, 32-byte id", INDEX, by_op("index", &named))
        }
        "keys" => {
            let named = [
                ("insert", "key_insert", None),
                ("find", "key_find", None),
                ("remove, one by one", "key_remove", None),
            ];
            ("secondary key, 32 bytes", INDEX, by_op("index", &named))
        }
        "sweep" => {
            let named = [("prune", "prune", None), ("one by one", "prune", Some("one by one"))];
            ("prune, for each transaction", SWEEP, by_op("sweep", &named))
        }
        "backlog" => {
            let named = [("prune and sweep a backlog", "backlog", None)];
            ("references", BACKLOG, by_op("sweep", &named))
        }
        "utxo" => ("operation, outputs", UTXO, records(rows)),
        "pruner" => {
            let named = [
                ("a pruned record's share of a tick", "prune_tick", None),
                ("a run that finds nothing new among 100,000 old unmined transactions", "nothing_new", None),
            ];
            ("pruning UTXO records", PRUNER, by_op("utxo", &named))
        }
        "observe" => {
            let named = [
                ("counting a message in its histogram", "count", None),
                ("`append_block`, 100 bytes, by a feeder", "append", None),
                ("the same with the sample that a message takes once a minute", "append sampled", None),
                ("`GET /metrics` with 100 exporters", "scrape", None),
                ("the same with names of 32 bytes", "scrape, longest names", None),
                ("`GET /` with 100 exporters and a month of samples", "dashboard", None),
                ("`GET /health`", "health page", None),
                ("a path that is not there", "no such path", None),
                ("a URL of 2 MB", "a URL of 2 MB", None),
                ("100,000 empty headers", "100,000 empty headers", None),
            ];
            ("message", OBSERVE, by_op("observe", &named))
        }
        "messages" => ("message", MESSAGE, messages(rows)),
        "comparison" => return comparison::operations(rows),
        "a block" => return comparison::block(rows),
        "places" => return comparison::places(rows),
        "elsewhere" => return comparison::elsewhere(rows),
        "queue" => ("message", QUEUE, queue(rows)),
        _ => bail!("there is no table of figures {name}"),
    };
    let heads: Vec<&str> = columns.iter().map(|(head, _)| *head).collect();
    let mut text = format!("| {heading} | {} |\n|{}\n", heads.join(" | "), "---|".repeat(heads.len() + 1));
    for line in &lines {
        ensure!(!line.rows.is_empty(), "nothing was measured for {} in the table {name}", line.label);
        let cells: Vec<String> = columns.iter().map(|(_, cell)| cell(line)).collect();
        writeln!(text, "| {} | {} |", line.label, cells.join(" | "))?;
    }
    Ok(text)
}

fn blobs(rows: &[Row]) -> Vec<Line<'_>> {
    let sizes = [(4 << 10, "4 KiB"), (64 << 10, "64 KiB"), (1 << 20, "1 MiB")];
    let ops = [
        ("store", "store"),
        ("read", "read"),
        ("allocate_fresh", "allocate, nothing free"),
        ("allocate_reuse", "allocate, reusing"),
        ("release", "quarantine + release"),
        ("split_join", "allocate + quarantine + release, with six splits and six joins,"),
    ];
    sizes
        .into_iter()
        .flat_map(|(size, bytes)| ops.map(|(op, label)| (op, size, format!("{label} {bytes}"))))
        // Skips 4 KiB for operations on slots, because 64 KiB is the smallest slot.
        .filter(|(op, size, _)| match *op {
            "store" | "read" => true,
            "split_join" => *size == 64 << 10,
            _ => *size > 4 << 10,
        })
        .map(|(op, size, label)| Line { label, rows: of(rows, "blob", op, Some(size), None) })
        .collect()
}

fn records(rows: &[Row]) -> Vec<Line<'_>> {
    let ops = [
        ("create", "create"),
        ("create_raw", "create, parsed and hashed"),
        ("spend", "spend all outputs"),
        ("spend_one", "spend one output"),
        ("unspend", "unspend all outputs"),
        ("set_mined", "set_mined"),
    ];
    let with_peer = |op: &str, label: &str, size: u32| {
        let mut found = of(rows, "utxo", op, Some(size), None);
        found.truncate(2);
        for peer in ["btree", "rows"] {
            found.extend(of(rows, "utxo", op, Some(size), Some(peer)).into_iter().next_back());
        }
        Line { label: format!("{label}, {}", count(size.into())), rows: found }
    };
    let pruned = [
        ("prune", "prune, with two parents that are told"),
        ("prune_scattered", "prune, with two parents far from each other"),
    ];
    ops.into_iter()
        .flat_map(|(op, label)| super::limits::OUTPUTS.map(|size| (op, label, size)))
        .chain(pruned.map(|(op, label)| (op, label, 2)))
        .map(|(op, label, size)| with_peer(op, label, size))
        .collect()
}

fn messages(rows: &[Row]) -> Vec<Line<'_>> {
    const SMALL: Option<u32> = Some(100);
    const LARGE: Option<u32> = Some(100 << 10);
    let chain = [
        ("`append_block`, 100 bytes and 1 transaction", "append", SMALL),
        ("the same with `verify_segments`", "append verified", SMALL),
        ("`append_block`, 100 KiB and 300 transactions with receipts of 100 bytes", "append", LARGE),
        ("the same with `verify_segments`", "append verified", LARGE),
        (
            "a stranger's `append_block` of 2 MiB, refused by the ingress filter: not charged",
            "refused at the door",
            None,
        ),
        ("`export_blocks`, a page of 1 MiB of such large blocks", "export page", Some(1 << 20)),
        ("`export_blocks`, all 101 small blocks: 303 chunks, 25 KB", "export page", Some(25_048)),
        ("`get_block_headers`, 1,000 headers, as a query", "1,000 headers by query", None),
        ("the same as an update", "1,000 headers by update", None),
        ("`ack_exported`", "ack", SMALL),
        ("the same with 100 exporters", "ack of a hundred", SMALL),
        ("a firing of the timer with nothing to do, all three messages of it, and a sample", "idle firing", SMALL),
        ("`prune_now` of such a small block, and an entry of the audit log", "prune", SMALL),
        ("`prune_now` of such a large block, and an entry", "prune", LARGE),
    ];
    let records = [
        ("`utxo_create`, one record of one output", "create message"),
        ("`utxo_create`, 1,000 transactions of 374 bytes with two inputs and two outputs", "create batch message"),
        (
            "`utxo_apply_block`, a block of such transactions, which spend outputs of the block before it",
            "apply message",
        ),
        ("`utxo_set_mined`, one transaction", "set_mined message"),
        ("`utxo_spend`, one output", "spend message"),
    ];
    let upgrades = of(rows, "blob", "open", None, None);
    let of_chain = chain.map(|(label, op, size)| Line { label: label.into(), rows: of(rows, "chain", op, size, None) });
    let of_records = records.map(|(label, op)| Line { label: label.into(), rows: of(rows, "utxo", op, None, None) });
    let of_upgrades = upgrades.into_iter().map(|row| {
        let label = format!("`upgrade`, {} live blobs", count(row.today.n));
        Line { label, rows: vec![row] }
    });
    of_chain.into_iter().chain(of_records).chain(of_upgrades).collect()
}

fn queue(rows: &[Row]) -> Vec<Line<'_>> {
    let ops = [
        ("`schedule_blob_deletion`", "schedule"),
        ("`get_pending_blob_deletions`, a query", "pending"),
        ("`acquire_blob_deletion_batch`", "acquire"),
        ("`complete_blob_deletion_batch`", "complete"),
        ("both together", "lease"),
        ("both, each row with a UTXO record and two parents", "lease with records"),
        ("`complete_blob_deletions`", "complete without lease"),
        ("`remove_blob_deletion`", "remove"),
        ("`increment_blob_deletion_retry`", "increment"),
        ("leases of a quarter of all rows that expire at once, in ticks", "expire"),
        ("acquire and complete, rows by random height", "lease random"),
        ("the same that expire at once", "expire random"),
    ];
    let lines = ops.into_iter().flat_map(|(label, op)| {
        let found = of(rows, "deletion", op, None, None);
        found.into_iter().map(move |row| Line { label: label.into(), rows: vec![row] })
    });
    lines.collect()
}

fn with_tables(page: &str, rows: &[Row]) -> Result<String> {
    let mut text = String::with_capacity(page.len());
    let mut lines = page.lines();
    while let Some(line) = lines.next() {
        text.push_str(line);
        text.push('\n');
        let named = line.strip_prefix(MARK).and_then(|rest| rest.strip_suffix(" -->"));
        // `coppice-lab demo` writes its own figures.
        if let Some(name) = named.filter(|name| *name != "demo") {
            text.push_str(&table(name, rows)?);
            // The old table ends at the first empty line.
            if lines.by_ref().any(str::is_empty) {
                text.push('\n');
            }
        }
    }
    Ok(text)
}

/// Writes the tables into a page.
///
/// # Errors
/// When the page cannot be read or written, has no table, or a row of a table was not measured.
pub fn write(path: &Path, rows: &[Row]) -> Result<()> {
    figures_in_pages::replace(path, MARK, |page| with_tables(page, rows))
}

/// Compares the tables of a page.
///
/// # Errors
/// As [`write()`]; also when the page has different figures, with the first of its lines.
pub fn check(path: &Path, rows: &[Row]) -> Result<()> {
    let (page, measured) = figures_in_pages::compare(path, MARK, |page| with_tables(page, rows))?;
    let mut others = figures_in_pages::others(&page, &measured, figures_in_pages::near);
    if others.is_empty() && page.lines().count() == measured.lines().count() {
        return Ok(());
    }
    others.truncate(5);
    bail!(
        "{} has figures that differ from the measured ones (scripts/bench --write updates them):\n{}",
        path.display(),
        others.join("\n")
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::figure::Figure;
    use std::fs;

    fn row(op: &'static str, n: u64, instructions: u64) -> Row {
        let today = Figure {
            family: "index",
            op,
            size: 32,
            n,
            instructions,
            pages_read: 0.5,
            pages_written: 1.0,
            limit: Some(6_000),
            ..Figure::default()
        };
        let tomorrow = Figure { instructions: 2 * instructions, ..today.clone() };
        Row::of(today, &tomorrow).unwrap()
    }

    fn rows(instructions: u64) -> Vec<Row> {
        let of_op = |op| [1_000_000, 10_000, 100_000].map(|n| row(op, n, instructions + n / 1_000));
        ["key_insert", "key_find", "key_remove"].into_iter().flat_map(of_op).collect()
    }

    const PAGE: &str = "# Costs\n\n<!-- figures: keys -->\n| old |\n| 1 |\n\nText.\n";

    #[test]
    fn table_is_written_between_its_mark_and_the_next_empty_line() {
        let written = with_tables(PAGE, &rows(1_500)).unwrap();
        let expected = [
            "# Costs",
            "",
            "<!-- figures: keys -->",
            "| secondary key, 32 bytes | n = 10,000 | n = 100,000 | n = 1,000,000 | limit | tomorrow, n = 1,000,000 | limit | pages read / written |",
            "|---|---|---|---|---|---|---|---|",
            "| insert | 1,510 | 1,600 | 2,500 | 6,000 | 5,000 | 6,000 | 0.50 / 1.00 |",
        ];
        assert_eq!(written.lines().take(6).collect::<Vec<_>>(), expected);
        assert!(written.ends_with("|\n\nText.\n"), "{written}");
        assert_eq!(with_tables(&written, &rows(1_500)).unwrap(), written);
    }

    #[test]
    fn page_agrees_within_a_twentieth_only() {
        let path = std::env::temp_dir().join(format!("coppice-figures-{}.md", std::process::id()));
        fs::write(&path, PAGE).unwrap();
        assert!(check(&path, &rows(100_000)).is_err(), "a page that was never written");
        write(&path, &rows(100_000)).unwrap();
        for (now, agrees) in [(100_000, true), (104_900, true), (96_000, true), (107_000, false), (90_000, false)] {
            assert_eq!(check(&path, &rows(now)).is_ok(), agrees, "{now}");
        }
        let longer = fs::read_to_string(&path).unwrap().replace("\n\nText", "\n| more |\n\nText");
        fs::write(&path, longer).unwrap();
        assert!(check(&path, &rows(100_000)).is_err(), "a line that was not measured");
        fs::write(&path, "# No table\n").unwrap();
        assert!(check(&path, &rows(100_000)).is_err());
        fs::remove_file(&path).unwrap();
    }

    #[test]
    fn unknown_table_or_missing_figure_is_an_error() {
        assert!(with_tables("<!-- figures: nothing -->\n", &rows(1)).is_err());
        assert!(with_tables("<!-- figures: keys -->\n", &rows(1)[3..]).is_err());
    }
}
