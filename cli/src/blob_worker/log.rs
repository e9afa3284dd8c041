//! Progress of a worker on stderr: a bar on a terminal, otherwise one line a minute; warnings are written at once.

use super::figures::Figures;
use super::watch::Watch;
use crate::progress::{self, Bar};
use crate::terminal::{Level, Lines, LogFormat, stderr};
use anyhow::{Context, Result};
use indicatif::{HumanCount, ProgressDrawTarget};
use serde_json::json;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Interval of the progress lines if there is no terminal.
const EVERY: Duration = Duration::from_secs(60);

/// Log of a worker.
pub struct Log {
    lines: Arc<Lines>,
    bar: Bar,
    /// The worker's counts; `None` before the first lease and after the end.
    latest: Arc<Mutex<Option<Figures>>>,
    /// The state for `--listen`.
    pub watch: Arc<Watch>,
}

impl Log {
    /// A log on stderr.
    ///
    /// # Errors
    /// When the thread that writes the progress cannot be started.
    pub fn new() -> Result<Self> {
        let log = Self::to(stderr().clone(), progress::target());
        if log.bar.is_hidden() {
            log.say_progress_every(EVERY)?;
        }
        Ok(log)
    }

    /// A log that discards everything.
    pub fn silent() -> Self {
        Self::to(Lines::new(LogFormat::Text, std::io::sink()).into(), ProgressDrawTarget::hidden())
    }

    fn to(lines: Arc<Lines>, target: ProgressDrawTarget) -> Self {
        Self { lines, bar: Bar::new("deleting", "blobs", target), latest: Arc::default(), watch: Arc::default() }
    }

    /// Starts a thread that reports the progress even while the worker waits for a call, a store or new work.
    fn say_progress_every(&self, every: Duration) -> Result<()> {
        let (lines, latest) = (self.lines.clone(), Arc::downgrade(&self.latest));
        let report = move || {
            while let Some(latest) = {
                std::thread::sleep(every);
                latest.upgrade()
            } {
                // `drop` clears the figures first, so that no progress line follows the final report.
                locked(&latest).as_ref().inspect(|figures| say_progress(&lines, figures));
            }
        };
        let thread = std::thread::Builder::new().name("progress".into()).spawn(report);
        thread.map(drop).context("cannot start the thread that reports progress")
    }

    /// Writes a warning at once.
    pub fn warn(&self, event: &str, message: &str) {
        if ["canister", "store"].contains(&event) {
            self.watch.failed(message);
        }
        self.bar.suspend(|| self.lines.note(Level::Warn, event, message));
    }

    /// Writes a note at once.
    pub fn note(&self, event: &str, message: &str) {
        self.bar.suspend(|| self.lines.note(Level::Info, event, message));
    }

    pub fn progress(&self, figures: &Figures) {
        self.bar.show(figures.deleted, figures.waiting, failures(figures));
        self.watch.went(figures);
        *locked(&self.latest) = Some(figures.clone());
    }
}

impl Drop for Log {
    fn drop(&mut self) {
        *locked(&self.latest) = None;
    }
}

fn locked(latest: &Mutex<Option<Figures>>) -> MutexGuard<'_, Option<Figures>> {
    latest.lock().unwrap_or_else(PoisonError::into_inner)
}

fn failures(figures: &Figures) -> String {
    format!("{} failed, {} put back", HumanCount(figures.failed), HumanCount(figures.left))
}

fn say_progress(lines: &Lines, figures: &Figures) {
    let (deleted, height) = (HumanCount(figures.deleted), figures.height);
    let (failures, in_queue) = (failures(figures), HumanCount(figures.waiting));
    let line = format!("{deleted} blobs deleted, {failures}, {in_queue} in the queue, up to height {height}");
    lines.say(Level::Info, "progress", &line, &json!(figures));
}

#[cfg(test)]
#[path = "tests/log.rs"]
pub mod tests;
