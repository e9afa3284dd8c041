//! Tables that compare the canister with its peers: operations, all cycles of a block, and further costs of the peers.

use super::figure::{Figure, Row, of};
use super::messages::INSIDE;
use anyhow::{Context, Result, ensure};
use ic_coppice_cli::report::count;
use ic_coppice_cli::size::{DAY, GIB_SECOND, SWEEP, Size};
use std::fmt::Write;

/// Numbers of index entries and UTXO records at which operations are compared: the largest ones measured.
const IDS: u64 = 1_000_000;
const RECORDS: u64 = 100_000;
/// Most instructions of an upgrade, and bytes of the heap.
const UPGRADE: f64 = 300e9;
const HEAP: f64 = (4u64 << 30) as f64;

/// Returns how many times as much theirs is as ours.
pub fn times(theirs: f64, ours: f64) -> String {
    match theirs / ours {
        times if times >= 1_000.0 => count(times.round() as u64),
        times if times >= 0.1 => format!("{times:.1}"),
        times => format!("{times:.3}"),
    }
}

/// Returns a figure at today's price.
fn figure<'a>(
    rows: &'a [Row],
    (family, op, size): (&str, &str, Option<u32>),
    peer: Option<&str>,
    n: u64,
) -> Result<&'a Figure> {
    let mut found = of(rows, family, op, size, peer).into_iter().map(|row| &row.today);
    found.find(|figure| figure.n == n).with_context(|| format!("{family} {op} {peer:?} at {n} was not measured"))
}

/// The README's comparison: operations of the canister, the plain B-tree and the other peer, and all cycles of a block.
pub fn operations(rows: &[Row]) -> Result<String> {
    // The canister's entries are pruned by sweeps, not by removals.
    let compared = [
        ("a whole look-up of a transaction, as a query", ("index", "look-up"), "look-up", None, "heap"),
        ("the same inside: the index alone", ("index", "get"), "get", None, "heap"),
        ("enter a transaction in the index", ("index", "insert"), "insert", None, "heap"),
        ("prune a transaction from the index", ("sweep", "prune"), "remove", None, "heap"),
        ("create a UTXO record of two outputs", ("utxo", "create"), "create", Some(2), "rows"),
        ("spend its two outputs", ("utxo", "spend"), "spend", Some(2), "rows"),
        ("prune it, with two parents", ("utxo", "prune"), "prune", Some(2), "rows"),
    ];
    let mut text = String::from("| operation | Coppice | B-tree | times cheaper | other peer | times cheaper |\n");
    writeln!(text, "|{}", "---|".repeat(6))?;
    for (label, (family, op), theirs, size, second) in compared {
        let (measured, n) = if family == "utxo" { ("utxo", RECORDS) } else { ("index", IDS) };
        let ours = figure(rows, (family, op, size), None, n)?.counted();
        let [plain, second_took] = [
            figure(rows, (measured, theirs, size), Some("btree"), n)?,
            figure(rows, (measured, theirs, size), Some(second), n)?,
        ]
        .map(Figure::counted);
        let of_ours = |took: u64| times(took as f64, ours as f64);
        writeln!(
            text,
            "| {label}, among {} | {} | {} | {} | {} ({second}) | {} |",
            count(n),
            count(ours),
            count(plain),
            of_ours(plain),
            count(second_took),
            of_ours(second_took)
        )?;
    }
    let [ours, plain, heap] = sides(rows, &Size::example())?.map(|side| side.cycles());
    writeln!(
        text,
        "| all cycles of a block, in millions | {:.1} | {:.1} | {} | {:.1} (heap) | {} |",
        ours / 1e6,
        plain / 1e6,
        times(plain, ours),
        heap / 1e6,
        times(heap, ours)
    )?;
    Ok(text)
}

/// A canister with some index: cycles of a block by purpose, and bytes of the index.
struct Side {
    parts: Vec<(&'static str, f64)>,
    bytes: f64,
}

impl Side {
    fn cycles(&self) -> f64 {
        self.parts.iter().map(|(_, cycles)| cycles).sum()
    }
}

/// Returns the canister, and the canister with each peer as its index. A peer must also store a block's ids with the block; that cost is
/// not counted.
fn sides(rows: &[Row], size: &Size) -> Result<[Side; 3]> {
    let ids = size.workload.transactions as f64;
    let kept = ids * size.blocks as f64;
    let byte = (GIB_SECOND * u128::from(size.workload.days * DAY)) as f64 / f64::from(1 << 30);
    let bytes = |figure: &Figure| figure.bytes.context("the memory of an entry was not measured");
    let inserted = figure(rows, ("index", "insert", None), None, IDS)?;
    let side = |peer: Option<&str>| {
        let mut parts = size.of_a_block().to_vec();
        let mut rebuilt = 0.0;
        if let Some(peer) = peer {
            let insert = figure(rows, ("index", "insert", None), Some(peer), IDS)?;
            let remove = figure(rows, ("index", "remove", None), Some(peer), IDS)?;
            let [_, storage, _, append, _, prune] = &mut parts[..] else { unreachable!("a block has six parts") };
            storage.1 += ids * (bytes(insert)? - bytes(inserted)?) * byte;
            append.1 += ids * (insert.counted() as f64 - inserted.counted() as f64);
            prune.1 += ids * (remove.counted() as f64 - SWEEP as f64);
        }
        if peer == Some("heap") {
            rebuilt = ids * figure(rows, ("index", "rebuild", None), peer, IDS)?.counted() as f64;
        }
        parts.push(("making the index anew, at one upgrade while it is kept", rebuilt));
        anyhow::Ok(Side { parts, bytes: kept * bytes(figure(rows, ("index", "insert", None), peer, IDS)?)? })
    };
    Ok([side(None)?, side(Some("btree"))?, side(Some("heap"))?])
}

/// Returns a canister that contains Coppice: no message brings its blocks in, and the messages that make them are its own.
fn inside(rows: &[Row], size: &Size, ours: &Side) -> Result<Side> {
    let found = of(rows, "chain", "append inside", Some(INSIDE), None);
    let append = found.first().context("the append of a block from inside was not measured")?.today.counted() as f64;
    ensure!(size.workload.block_bytes == u64::from(INSIDE), "the block from inside has another size");
    let mut parts = ours.parts.clone();
    let [ingress, _, hashed, executed, ..] = &mut parts[..] else { unreachable!("a block has six parts") };
    ingress.1 = 0.0;
    executed.1 = append - hashed.1;
    Ok(Side { parts, bytes: ours.bytes })
}

/// The README's prices of the same block in the three places of Coppice.
pub fn places(rows: &[Row]) -> Result<String> {
    let size = Size::example();
    let [ours, ..] = sides(rows, &size)?;
    let inside = inside(rows, &size, &ours)?.cycles();
    let beside = ours.cycles() - ours.parts[0].1 + size.calls_of_a_block();
    let millions = |cycles: f64| format!("{:.0} M", cycles / 1e6);
    let [inside, beside, outside] = [inside, beside, ours.cycles()].map(millions);
    Ok(format!(
        "| cycles of | in your canister | beside it, by calls | outside, by ingress |\n|---|---|---|---|\n| the same block | {inside} | {beside} | \
         {outside} |\n"
    ))
}

/// The table of all cycles of a block, and their cost.
pub fn block(rows: &[Row]) -> Result<String> {
    let size = Size::example();
    let [ours, plain, heap] = sides(rows, &size)?;
    let inside = inside(rows, &size, &ours)?;
    let sides = [ours, inside, plain, heap];
    let [ours, ..] = &sides;
    let mut text = String::from(
        "| for | Coppice | of all | in your canister | B-tree index | heap index |\n|---|---|---|---|---|---|\n",
    );
    let mut line = |label: &str, share: &str, cells: [String; 4]| {
        let [ours, inside, plain, heap] = cells;
        writeln!(text, "| {label} | {ours} | {share} | {inside} | {plain} | {heap} |")
    };
    for (at, (label, cycles)) in ours.parts.iter().enumerate() {
        let share = format!("{:.1} %", cycles / ours.cycles() * 100.0);
        line(label, &share, sides.each_ref().map(|side| format!("{:.2} M", side.parts[at].1 / 1e6)))?;
    }
    line("all of it", "100 %", sides.each_ref().map(|side| format!("{:.2} M", side.cycles() / 1e6)))?;
    // 1 T cycles cost 1 XDR.
    line("a million blocks", "", sides.each_ref().map(|side| format!("{:.0} XDR", side.cycles() / 1e6)))?;
    line("times as much", "", sides.each_ref().map(|side| format!("{:.2}", side.cycles() / ours.cycles())))?;
    let gib = |side: &Side| format!("{:.1} GiB", side.bytes / f64::from(1 << 30));
    line("memory of the index of all blocks kept", "", sides.each_ref().map(gib))?;
    Ok(text)
}

/// The table of the peers' costs besides operations: memory and upgrades.
pub fn elsewhere(rows: &[Row]) -> Result<String> {
    let rebuild = figure(rows, ("index", "rebuild", None), Some("heap"), IDS)?.counted();
    let bytes = |(family, op, size, n): (&str, &str, Option<u32>, u64), peer: Option<&str>| {
        figure(rows, (family, op, size), peer, n)?.bytes.context("the memory of an entry was not measured")
    };
    let (id, record) = (("index", "insert", None, IDS), ("utxo", "create", Some(2), RECORDS));
    let heap = bytes(id, Some("heap"))?;
    let none = || "–".to_string();
    let lines = [
        (
            "bytes of memory, an id",
            [
                format!("{:.0}", bytes(id, None)?),
                format!("{:.0}", bytes(id, Some("btree"))?),
                format!("{heap:.0}"),
                none(),
            ],
        ),
        ("instructions at an upgrade, an id", [none(), none(), count(rebuild), none()]),
        (
            "ids with which an upgrade takes 300 B instructions, its limit",
            [none(), none(), count((UPGRADE / rebuild as f64) as u64), none()],
        ),
        ("ids that fill the heap's 4 GiB", [none(), none(), count((HEAP / heap) as u64), none()]),
        (
            "bytes of memory, a UTXO record of two outputs and 374 bytes",
            [
                format!("{:.0}", bytes(record, None)?),
                format!("{:.0}", bytes(record, Some("btree"))?),
                none(),
                format!("{:.0}", bytes(record, Some("rows"))?),
            ],
        ),
    ];
    let mut text = String::from("| | Coppice | B-tree | heap | rows |\n|---|---|---|---|---|\n");
    for (label, cells) in lines {
        writeln!(text, "| {label} | {} |", cells.join(" | "))?;
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(op: &'static str, peer: Option<&'static str>, instructions: u64, bytes: Option<f64>) -> Row {
        let (family, op) = op.split_once(' ').unwrap();
        let (size, n) = if family == "utxo" { (2, RECORDS) } else { (32, IDS) };
        let today = Figure { family, op, size, n, peer, instructions, bytes, ..Figure::default() };
        Row::of(today.clone(), &today).unwrap()
    }

    fn rows() -> Vec<Row> {
        let mut rows = vec![
            row("sweep prune", None, 800, None),
            row("index rebuild", Some("heap"), 1_000, None),
            row("index remove", Some("btree"), 100_000, None),
            row("index remove", Some("heap"), 1, None),
        ];
        let inside = Figure {
            family: "chain",
            op: "append inside",
            size: INSIDE,
            instructions: 15_000_000,
            ..Figure::default()
        };
        rows.push(Row::of(inside.clone(), &inside).unwrap());
        for (peer, took, bytes) in [(None, 3_000, 34.0), (Some("btree"), 70_000, 64.0), (Some("heap"), 1_500, 80.0)] {
            rows.extend(["index look-up", "index get"].map(|op| row(op, peer, took, None)));
            rows.push(row("index insert", peer, took, Some(bytes)));
        }
        for peer in [None, Some("btree"), Some("rows")] {
            let took = if peer.is_none() { 10_000 } else { 12_000 };
            rows.extend(["utxo spend", "utxo prune"].map(|op| row(op, peer, took, None)));
            rows.push(row("utxo create", peer, took, Some(500.0)));
        }
        rows
    }

    #[test]
    fn cheaper_peer_has_a_factor_below_one() {
        let table = operations(&rows()).unwrap();
        let line = |label: &str| table.lines().find(|line| line.contains(label)).unwrap().to_string();
        assert!(line("enter a transaction").ends_with("| 3,000 | 70,000 | 23.3 | 1,500 (heap) | 0.5 |"), "{table}");
        assert!(line("prune a transaction").ends_with("| 800 | 100,000 | 125.0 | 1 (heap) | 0.001 |"), "{table}");
        assert!(line("spend its two").ends_with("| 10,000 | 12,000 | 1.2 | 12,000 (rows) | 1.2 |"), "{table}");
    }

    #[test]
    fn cost_of_a_block_differs_by_the_cost_of_its_index() {
        let size = Size::example();
        let [ours, plain, heap] = sides(&rows(), &size).unwrap();
        let all: f64 = size.of_a_block().iter().map(|(_, cycles)| cycles).sum();
        assert!((ours.cycles() - all).abs() < 1.0);
        let byte = (GIB_SECOND * u128::from(30 * DAY)) as f64 / f64::from(1 << 30);
        let more = 318.0 * (67_000.0 + 99_000.0 + 30.0 * byte);
        assert!((plain.cycles() - ours.cycles() - more).abs() < 1.0, "{}", plain.cycles() - ours.cycles());
        let more = 318.0 * (-1_500.0 - 999.0 + 46.0 * byte + 1_000.0);
        assert!((heap.cycles() - ours.cycles() - more).abs() < 1.0, "{}", heap.cycles() - ours.cycles());
        assert!(places(&rows()).unwrap().contains(" M | 436 M |"));
        let table = block(&rows()).unwrap();
        assert!(table.contains("| times as much | 1.00 |"), "{table}");
        assert!(
            table.contains("| ingress of its bytes | 355.82 M | ") && table.contains(" % | 0.00 M | 355.82 M |"),
            "{table}"
        );
    }

    #[test]
    fn upgrade_and_heap_size_limit_the_heap_index() {
        let table = elsewhere(&rows()).unwrap();
        assert!(table.contains("its limit | – | – | 300,000,000 | – |"), "{table}");
        assert!(table.contains("4 GiB | – | – | 53,687,091 | – |"), "{table}");
    }

    #[test]
    fn missing_figure_is_an_error() {
        assert!(operations(&rows()[1..]).is_err() && block(&[]).is_err() && elsewhere(&[]).is_err());
    }
}
