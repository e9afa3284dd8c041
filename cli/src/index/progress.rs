//! Progress of an indexer on stderr: how far it is and how far behind. Nothing where there is no terminal.

use super::steps::Figures;
use crate::terminal::say;
use indicatif::{ProgressBar, ProgressStyle};
use std::io::IsTerminal;
use std::time::Duration;

/// How often the bar moves while nothing comes.
const TICK: Duration = Duration::from_millis(250);

/// A bar from the first block of this run to the head, which may move.
pub struct Progress(Option<ProgressBar>);

impl Progress {
    /// Starts it.
    pub fn new() -> Self {
        Self(std::io::stderr().is_terminal().then(|| {
            let template = "{prefix:10} [{bar:40}] {human_pos}/{human_len} blocks, {msg}, {elapsed}";
            let style = ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar());
            let bar = ProgressBar::new(0).with_style(style.progress_chars("=> ")).with_prefix("indexing");
            bar.enable_steady_tick(TICK);
            bar
        }))
    }

    /// Shows how far it is.
    pub fn show(&self, figures: &Figures) {
        if let Some(bar) = &self.0 {
            bar.set_length(figures.blocks.saturating_add(figures.lag.unwrap_or_default()));
            bar.set_position(figures.blocks);
            bar.set_message(figures.lag.map_or("lag unknown".into(), |lag| format!("{lag} behind")));
        }
    }

    /// Says something on a line of its own, with or without a terminal.
    pub fn say(&self, line: &str) {
        match &self.0 {
            Some(bar) => bar.suspend(|| say!("{line}")),
            None => say!("{line}"),
        }
    }
}

impl Default for Progress {
    fn default() -> Self {
        Self::new()
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if let Some(bar) = &self.0 {
            bar.finish_and_clear();
        }
    }
}
