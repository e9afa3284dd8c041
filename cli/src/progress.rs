//! Progress on stderr: a bar on a terminal, a line now and then elsewhere.

use crate::terminal::say;
use indicatif::{ProgressBar, ProgressStyle};
use std::cell::Cell;
use std::io::IsTerminal;

/// Lines that are printed where there is no terminal.
const LINES: u64 = 4;

/// One stage of the work.
pub struct Progress {
    what: &'static str,
    total: u64,
    done: Cell<u64>,
    bar: Option<ProgressBar>,
}

impl Progress {
    /// Starts a stage of `total` steps.
    pub fn new(what: &'static str, total: u64) -> Self {
        let bar = std::io::stderr().is_terminal().then(|| {
            let template = "{prefix:10} [{bar:40}] {human_pos}/{human_len} blocks, {eta} left";
            let style = ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar());
            ProgressBar::new(total).with_style(style.progress_chars("=> ")).with_prefix(what)
        });
        Self { what, total, done: Cell::new(0), bar }
    }

    /// One step is done.
    pub fn advance(&self) {
        let before = self.done.replace(self.done.get() + 1);
        match &self.bar {
            Some(bar) => bar.inc(1),
            None if before * LINES / self.total.max(1) != (before + 1) * LINES / self.total.max(1) => {
                say!("{}: {} of {} blocks", self.what, before + 1, self.total);
            }
            None => {}
        }
    }

    /// The stage is over.
    pub fn finish(self) {
        if let Some(bar) = self.bar {
            bar.finish();
        }
    }
}
