//! Progress on stderr: a bar on a terminal, otherwise a few lines.

use crate::say;
use crate::terminal::{LogFormat, stderr};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::cell::Cell;
use std::time::Duration;

/// Lines per stage if there is no terminal.
const LINES: u64 = 4;

/// Interval of a bar's movement while nothing advances.
const TICK: Duration = Duration::from_millis(250);

/// Returns where bars are drawn: on a terminal, unless lines are JSON.
pub fn target() -> ProgressDrawTarget {
    match stderr().format() {
        LogFormat::Text => ProgressDrawTarget::stderr(),
        LogFormat::Json => ProgressDrawTarget::hidden(),
    }
}

fn bar(total: u64, template: &str, target: ProgressDrawTarget) -> ProgressBar {
    let style = ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar());
    ProgressBar::with_draw_target(Some(total), target).with_style(style.progress_chars("=> "))
}

/// A progress bar with the done and the total count. It moves until the command ends, and is then cleared.
pub struct Bar(ProgressBar);

impl Bar {
    pub fn new(what: &'static str, unit: &str, target: ProgressDrawTarget) -> Self {
        let template = format!("{{prefix:10}} [{{bar:40}}] {{human_pos}}/{{human_len}} {unit}, {{msg}}, {{elapsed}}");
        let bar = bar(0, &template, target).with_prefix(what);
        if !bar.is_hidden() {
            bar.enable_steady_tick(TICK);
        }
        Self(bar)
    }

    /// Returns whether the bar is not drawn.
    pub fn is_hidden(&self) -> bool {
        self.0.is_hidden()
    }

    pub fn show(&self, done: u64, left: u64, message: String) {
        self.0.set_length(done.saturating_add(left));
        self.0.set_position(done);
        self.0.set_message(message);
    }

    /// Runs something that writes its own lines, with the bar hidden.
    pub fn suspend(&self, does: impl FnOnce()) {
        self.0.suspend(does);
    }
}

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
        let template = "{prefix:10} [{bar:40}] {human_pos}/{human_len} blocks, {eta} left";
        let bar = Some(bar(total, template, target()).with_prefix(what)).filter(|bar| !bar.is_hidden());
        Self { what, total, done: Cell::new(0), bar }
    }

    /// Counts one step.
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

    pub fn finish(self) {
        if let Some(bar) = self.bar {
            bar.finish();
        }
    }
}
