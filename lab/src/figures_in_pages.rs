//! Quotation of the demonstration's figures in pages: `coppice-lab demo --write` writes them (`scripts/bench --write` calls it), and
//! `--check` compares them.
//!
//! The line `<!-- figures: demo -->` above a code block marks a quotation. Each line of the block is a row of the report, found by its
//! name; a page chooses the rows that it quotes.

use anyhow::{Context, Result, bail, ensure};
use std::fs;
use std::path::Path;

const MARK: &str = "<!-- figures: demo -->";
const FENCE: &str = "```";
/// Width of the name column.
const NAME: usize = 56;

/// A row of a report: its name and its value.
pub type Row = (&'static str, String);

/// Returns the name of the row that a line quotes.
fn name(line: &str) -> &str {
    line.split("  ").next().unwrap_or_default()
}

fn with_figures(page: &str, rows: &[Row]) -> Result<String> {
    let mut text = String::with_capacity(page.len());
    let (mut marked, mut inside) = (false, false);
    for line in page.lines() {
        let fence = line.starts_with(FENCE);
        let is_row = inside && !fence;
        inside = if fence { marked && !inside } else { inside };
        marked = line == MARK || marked && fence && inside;
        if is_row {
            let name = name(line);
            let (_, value) = rows.iter().find(|(row, _)| *row == name).with_context(|| format!("no row {name:?}"))?;
            text.push_str(&format!("{name:<NAME$}{value}"));
        } else {
            text.push_str(line);
        }
        text.push('\n');
    }
    Ok(text)
}

/// Returns a marked page twice: as it is, and with the measured figures that `with` inserts.
///
/// # Errors
/// When the page cannot be read, has no such mark, or a figure is missing.
pub fn compare(path: &Path, mark: &str, with: impl FnOnce(&str) -> Result<String>) -> Result<(String, String)> {
    let page = fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
    ensure!(page.contains(mark), "{} has no line {mark}", path.display());
    let measured = with(&page)?;
    Ok((page, measured))
}

/// Writes the figures that `with` inserts into a page.
///
/// # Errors
/// As [`compare`]; also when the page cannot be written.
pub fn replace(path: &Path, mark: &str, with: impl FnOnce(&str) -> Result<String>) -> Result<()> {
    let (_, measured) = compare(path, mark, with)?;
    fs::write(path, measured).with_context(|| format!("cannot write {}", path.display()))
}

/// Returns the lines of a page that disagree with the measured lines, each with the measured one.
pub fn others(page: &str, measured: &str, agree: fn(&str, &str) -> bool) -> Vec<String> {
    let lines = page.lines().zip(measured.lines()).filter(|(page, now)| !agree(page, now));
    lines.map(|(page, now)| format!("{page}\n  measured: {now}")).collect()
}

/// Returns whether two lines have equal words, and numbers that differ by less than a twentieth. So a page needs rewriting when a figure
/// has changed, not when a compiler has laid out the code differently.
pub fn near(page: &str, measured: &str) -> bool {
    let number = |word: &str| word.replace(',', "").parse::<f64>().ok();
    let near = |(a, b): (&str, &str)| {
        a == b || number(a).zip(number(b)).is_some_and(|(a, b)| (a - b).abs() <= (b.abs() / 20.0).max(0.02))
    };
    let (page, measured) = (page.split_whitespace(), measured.split_whitespace());
    page.clone().count() == measured.clone().count() && page.zip(measured).all(near)
}

/// Returns whether a row counts instructions. These change when a compiler lays out the code differently.
pub fn counts_instructions(name: &str) -> bool {
    name.starts_with("instructions") || name.starts_with("charged")
}

/// Returns whether two lines are equal; counts of instructions may differ by a twentieth.
fn agree(page: &str, measured: &str) -> bool {
    page == measured || counts_instructions(name(page)) && near(page, measured)
}

/// Writes the figures into a page.
///
/// # Errors
/// When the page cannot be read or written, has no quotation, or quotes a row that the report does not have.
pub fn write(path: &Path, rows: &[Row]) -> Result<()> {
    replace(path, MARK, |page| with_figures(page, rows))
}

/// Compares the figures quoted by a page.
///
/// # Errors
/// As [`write()`]; also when the page has different figures, with its lines.
pub fn check(path: &Path, rows: &[Row]) -> Result<()> {
    let other = differing(path, rows)?;
    if !other.is_empty() {
        bail!(
            "{} quotes figures that differ from the demonstration's (scripts/bench --write updates them):\n{}",
            path.display(),
            other.join("\n")
        );
    }
    Ok(())
}

/// Returns the lines of a page with different figures, each with the measured line.
///
/// # Errors
/// As [`write()`].
pub fn differing(path: &Path, rows: &[Row]) -> Result<Vec<String>> {
    let (page, measured) = compare(path, MARK, |page| with_figures(page, rows))?;
    Ok(others(&page, &measured, agree))
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: &str = "# A page\n\n```\nkept  no row\n```\n\n<!-- figures: demo -->\n```\nkept  1 block\ncharged per block appended    1,000\n```\n\n```\nkept  no row\n```\n";

    fn rows(kept: u64, charged: &str) -> Vec<Row> {
        vec![("kept", format!("{kept} blocks")), ("billed", "7".into()), ("charged per block appended", charged.into())]
    }

    #[test]
    fn only_the_rows_named_in_the_marked_block_are_replaced() {
        let written = with_figures(PAGE, &rows(2, "2,000")).unwrap();
        let lines: Vec<&str> = written.lines().collect();
        assert_eq!(lines[8], format!("kept{}2 blocks", " ".repeat(52)));
        assert_eq!(lines[9], format!("charged per block appended{}2,000", " ".repeat(30)));
        assert_eq!(
            [&lines[..8], &lines[10..]].concat(),
            [&PAGE.lines().collect::<Vec<_>>()[..8], &PAGE.lines().collect::<Vec<_>>()[10..]].concat()
        );
        assert_eq!(with_figures(&written, &rows(2, "2,000")).unwrap(), written);
        assert!(with_figures(PAGE, &rows(2, "2,000")[1..]).is_err(), "a row that does not exist");
    }

    #[test]
    fn figures_must_be_equal_and_instructions_within_a_twentieth() {
        let path = std::env::temp_dir().join(format!("coppice-quoted-{}.md", std::process::id()));
        fs::write(&path, PAGE).unwrap();
        assert!(check(&path, &rows(2, "100,000")).is_err(), "a page that was never written");
        write(&path, &rows(2, "100,000")).unwrap();
        for (kept, charged, agrees) in [
            (2, "100,000", true),
            (2, "104,900", true),
            (2, "107,000", false),
            (3, "100,000", false),
            (2, "96,000", true),
            (2, "x", false),
        ] {
            assert_eq!(check(&path, &rows(kept, charged)).is_ok(), agrees, "{kept}, {charged}");
        }
        fs::write(&path, "# No figures\n").unwrap();
        assert!(check(&path, &rows(2, "100,000")).is_err());
        fs::remove_file(&path).unwrap();
    }
}
