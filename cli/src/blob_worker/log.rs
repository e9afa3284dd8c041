//! How far a worker is, on stderr: a bar on a terminal and a line a minute elsewhere, with notes at once.

use super::figures::Figures;
use crate::progress::{self, Bar};
use crate::terminal::{Level, Lines, LogFormat, stderr};
use anyhow::{Context, Result};
use indicatif::{HumanCount, ProgressDrawTarget};
use serde_json::json;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// How often the figures are said where there is no terminal.
const EVERY: Duration = Duration::from_secs(60);

/// Where a worker's events go.
pub struct Log {
    lines: Arc<Lines>,
    bar: Bar,
    /// The worker's counts; `None` before the worker knows anything, and at its end.
    latest: Arc<Mutex<Option<Figures>>>,
}

impl Log {
    /// To stderr.
    ///
    /// # Errors
    /// When there is no thread to be had that says the progress.
    pub fn new() -> Result<Self> {
        let log = Self::to(stderr().clone(), progress::target());
        if log.bar.is_hidden() {
            log.say_progress_every(EVERY)?;
        }
        Ok(log)
    }

    /// Nowhere.
    pub fn silent() -> Self {
        Self::to(Lines::new(LogFormat::Text, std::io::sink()).into(), ProgressDrawTarget::hidden())
    }

    fn to(lines: Arc<Lines>, target: ProgressDrawTarget) -> Self {
        Self { lines, bar: Bar::new("deleting", "blobs", target), latest: Arc::default() }
    }

    /// Starts a thread that says how far the worker is, whatever the worker waits for meanwhile: a call, a store, more to do.
    fn say_progress_every(&self, every: Duration) -> Result<()> {
        let (lines, latest) = (self.lines.clone(), Arc::downgrade(&self.latest));
        let report = move || {
            while let Some(latest) = {
                std::thread::sleep(every);
                latest.upgrade()
            } {
                // No line comes behind the last one, as the figures are taken away before it.
                locked(&latest).as_ref().inspect(|figures| say_progress(&lines, figures));
            }
        };
        let thread = std::thread::Builder::new().name("progress".into()).spawn(report);
        thread.map(drop).context("no thread for the progress")
    }

    /// Says at once that something is not as it should be.
    pub fn warn(&self, event: &str, message: &str) {
        self.bar.suspend(|| self.lines.note(Level::Warn, event, message));
    }

    /// How far the worker is from now on.
    pub fn progress(&self, figures: &Figures) {
        self.bar.show(figures.deleted, figures.waiting, failures(figures));
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
