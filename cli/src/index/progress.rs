//! Progress of an indexer on stderr: how far it is and how far behind. Nothing where there is no terminal.

use super::steps::Figures;
use crate::progress::{Bar, target};
use crate::say;

/// A bar from the first block of this run to the head, which may move.
pub struct Progress(Bar);

impl Progress {
    /// Starts it.
    pub fn new() -> Self {
        Self(Bar::new("indexing", "blocks", target()))
    }

    /// Shows how far it is.
    pub fn show(&self, figures: &Figures) {
        let behind = figures.lag.map_or("lag unknown".into(), |lag| format!("{lag} behind"));
        self.0.show(figures.blocks, figures.lag.unwrap_or_default(), behind);
    }

    /// Says something on a line of its own, with or without a terminal.
    pub fn say(&self, line: &str) {
        self.0.suspend(|| say!("{line}"));
    }
}

impl Default for Progress {
    fn default() -> Self {
        Self::new()
    }
}
