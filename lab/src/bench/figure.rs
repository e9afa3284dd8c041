//! Measurements: a figure at one price, a row of figures at both prices, and the table of rows.

use anyhow::{Result, ensure};
use comfy_table::{CellAlignment, Table};
use serde::Serialize;

/// The cost of one operation, at one price of stable memory pages.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Figure {
    /// The measured structure.
    pub family: &'static str,
    pub op: &'static str,
    /// Bytes of the blob, key or block body; for a UTXO record, outputs; for a message on the queue, rows.
    pub size: u32,
    /// Number of other live blobs, entries, kept blocks, records, or rows.
    pub n: u64,
    /// The peer, if the figure is of a peer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub peer: Option<&'static str>,
    /// Instructions of one operation; for a whole message, those inside it.
    pub instructions: u64,
    /// Further costs of a whole message.
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    pub whole: Option<Whole>,
    /// Distinct 4 KiB pages of stable memory read per operation.
    pub pages_read: f64,
    /// Distinct 4 KiB pages of stable memory written per operation.
    pub pages_written: f64,
    /// Limit of instructions; for a whole message, of charged instructions.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<u64>,
    /// Limit of pages written.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pages_limit: Option<f64>,
    /// Operations a second of the host's clock, if the figure is of work that lasts several rounds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub per_second: Option<u64>,
    /// The least operations a second that are required.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub least_per_second: Option<u64>,
    /// Bytes of memory per existing entry.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bytes: Option<f64>,
}

/// Costs of a whole message besides the instructions inside it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Whole {
    /// 4 KiB pages of the heap whose content it changed.
    pub heap_pages: u64,
    /// Charged instructions: those inside, and 1,000 per changed heap page. The heap pages of queries are free.
    pub charged: u64,
}

impl Figure {
    /// Returns the number that the limit applies to.
    pub fn counted(&self) -> u64 {
        self.whole.map_or(self.instructions, |whole| whole.charged)
    }

    fn is_over(&self) -> bool {
        self.limit.is_some_and(|limit| self.counted() > limit)
            || self.pages_limit.is_some_and(|limit| self.pages_written > limit)
            || self.least_per_second.is_some_and(|least| self.per_second.is_none_or(|rate| rate < least))
    }
}

/// One line of the result: a figure at today's price, and the differing parts at tomorrow's.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// The figure at today's price.
    #[serde(flatten)]
    pub today: Figure,
    /// The differing parts at tomorrow's price.
    pub tomorrow: Tomorrow,
}

/// The parts of a figure that differ at the page prices of newer replicas. A tick, whose size depends on instructions, also touches other
/// pages.
#[derive(Clone, Debug, Serialize)]
pub struct Tomorrow {
    /// Instructions of one operation; for a whole message, those inside it.
    pub instructions: u64,
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    whole: Option<Whole>,
    pages_read: f64,
    /// Distinct 4 KiB pages of stable memory written per operation.
    pub pages_written: f64,
    /// Limit of the counted instructions.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<u64>,
    /// Operations a second.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub per_second: Option<u64>,
    #[serde(skip)]
    over: bool,
}

impl Row {
    /// Combines two figures of the same operation.
    ///
    /// # Errors
    /// When the figures are of different operations.
    pub fn of(today: Figure, tomorrow: &Figure) -> Result<Self> {
        let of = |figure: &Figure| (figure.family, figure.op, figure.size, figure.n, figure.peer);
        ensure!(of(&today) == of(tomorrow), "two figures of one row: {today:?} and {tomorrow:?}");
        let &Figure { instructions, whole, pages_read, pages_written, limit, per_second, .. } = tomorrow;
        let over = tomorrow.is_over();
        Ok(Self {
            today,
            tomorrow: Tomorrow { instructions, whole, pages_read, pages_written, limit, per_second, over },
        })
    }

    /// Describes the costs, if they exceed a limit at either price.
    pub fn over(&self) -> Option<String> {
        let Self { today, tomorrow } = self;
        (today.is_over() || tomorrow.over).then(|| {
            let Figure { family, op, size, n, pages_written, .. } = today;
            let (counted, later) = (today.counted(), tomorrow.counted());
            let rate = |rate: Option<u64>| rate.map_or(String::new(), |rate| format!(", {rate} a second"));
            format!(
                "{family} {op} of {size} bytes at {n}: {counted} instructions, {pages_written:.3} pages written{}; tomorrow \
                 {later} instructions, {:.3} pages{}",
                rate(today.per_second),
                tomorrow.pages_written,
                rate(tomorrow.per_second)
            )
        })
    }
}

impl Tomorrow {
    /// Returns the number that the limit applies to.
    pub fn counted(&self) -> u64 {
        self.whole.map_or(self.instructions, |whole| whole.charged)
    }
}

/// Returns the rows of an operation by family, name, size and peer, ordered by `n`.
pub fn of<'a>(rows: &'a [Row], family: &str, op: &str, size: Option<u32>, peer: Option<&str>) -> Vec<&'a Row> {
    let mut found: Vec<&Row> = rows
        .iter()
        .filter(|Row { today, .. }| {
            (today.family, today.op, today.peer) == (family, op, peer) && size.is_none_or(|size| today.size == size)
        })
        .collect();
    found.sort_by_key(|row| row.today.n);
    found
}

pub fn table(rows: &[Row]) -> Table {
    let mut table = Table::new();
    table.load_style(comfy_table::presets::UTF8_FULL_CONDENSED);
    table.set_header([
        "family",
        "op",
        "size",
        "n",
        "instructions",
        "heap pages",
        "charged",
        "limit",
        "tomorrow",
        "charged",
        "limit",
        "pages read",
        "pages written",
        "limit",
    ]);
    let shown = |number: Option<u64>| number.map_or(String::new(), |number| number.to_string());
    for Row { today, tomorrow } in rows {
        let name = today.peer.map_or(today.family.to_string(), |peer| format!("{} ({peer})", today.family));
        table.add_row([
            name,
            today.op.to_string(),
            today.size.to_string(),
            today.n.to_string(),
            today.instructions.to_string(),
            shown(today.whole.map(|whole| whole.heap_pages)),
            shown(today.whole.map(|whole| whole.charged)),
            shown(today.limit),
            tomorrow.instructions.to_string(),
            shown(tomorrow.whole.map(|whole| whole.charged)),
            shown(tomorrow.limit),
            format!("{:.2}", today.pages_read),
            format!("{:.2}", today.pages_written),
            today.pages_limit.map_or(String::new(), |limit| limit.to_string()),
        ]);
    }
    for column in 2..14 {
        if let Some(column) = table.column_mut(column) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    fn figure(op: &'static str, instructions: u64, limit: Option<u64>) -> Figure {
        Figure {
            family: "blob",
            op,
            size: 4_096,
            n: 10,
            instructions,
            pages_read: 1.0,
            pages_written: 0.5,
            limit,
            ..Figure::default()
        }
    }

    #[test]
    fn row_is_over_if_either_figure_is() {
        let row = |today, tomorrow: &Figure| Row::of(today, tomorrow).unwrap();
        let fits = figure("store", 10, Some(10));
        assert_eq!(row(fits.clone(), &fits).over(), None);
        assert_eq!(row(figure("store", 10, None), &figure("store", 99, None)).over(), None);
        let over = figure("store", 11, Some(10));
        assert!(row(over.clone(), &fits).over().is_some());
        assert!(row(fits.clone(), &over).over().is_some());
        // The limit of a whole message applies to its charged instructions.
        let whole = Some(Whole { heap_pages: 1, charged: 1_010 });
        assert!(row(fits.clone(), &Figure { whole, ..fits.clone() }).over().is_some());
        assert!(row(Figure { whole, ..fits.clone() }, &fits).over().is_some());
        let pages = Figure { pages_limit: Some(0.4), ..fits.clone() };
        assert!(row(fits.clone(), &pages).over().is_some());
        assert!(row(pages, &fits).over().is_some());
        let rate = |per_second| Figure { per_second, least_per_second: Some(100), ..fits.clone() };
        assert_eq!(row(rate(Some(100)), &rate(Some(101))).over(), None);
        for slow in [Some(99), None] {
            assert!(row(rate(Some(100)), &rate(slow)).over().is_some() && row(rate(slow), &fits).over().is_some());
        }
    }

    #[test]
    fn figures_of_two_operations_are_refused() {
        Row::of(figure("store", 1, None), &figure("read", 1, None)).unwrap_err();
    }

    #[test]
    fn row_is_serialised_with_both_prices() {
        let row = Row::of(figure("store", 10, Some(11)), &figure("store", 20, Some(21))).unwrap();
        let line = serde_json::to_value(&row).unwrap();
        assert_eq!((&line["instructions"], &line["limit"]), (&10.into(), &11.into()));
        assert_eq!((&line["tomorrow"]["instructions"], &line["tomorrow"]["limit"]), (&20.into(), &21.into()));
    }
}
