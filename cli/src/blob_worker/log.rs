//! What a worker says on stderr: a bar on a terminal and a line a minute elsewhere, notes at once; as text or as JSON.

use super::args::LogFormat;
use super::run::Figures;
use crate::terminal::{printable, shortened};
use anyhow::{Context, Result};
use indicatif::{HumanCount, ProgressBar, ProgressDrawTarget, ProgressStyle};
use serde::Serialize;
use serde_json::{Value, json};
use std::io::Write;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

/// How often the figures are said where there is no terminal.
const EVERY: Duration = Duration::from_secs(60);
/// How often the bar moves while nothing comes.
const TICK: Duration = Duration::from_millis(250);

/// How grave something is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Level {
    /// As it should be.
    Info,
    /// Not as it should be; the worker goes on.
    Warn,
    /// The worker ends.
    Error,
}

/// Where a worker's events go.
pub struct Log {
    lines: Arc<Lines>,
    /// Shown on a terminal only; its line is cleared at its end.
    bar: ProgressBar,
}

/// Lines of text, or of JSON.
struct Lines {
    format: LogFormat,
    /// Where they go, if anywhere.
    out: Option<Mutex<Box<dyn Write + Send>>>,
    /// The worker's counts; `None` before the worker knows anything, and at its end.
    latest: Mutex<Option<Figures>>,
}

impl Log {
    /// Notes on stderr, and no progress.
    pub fn new(format: LogFormat) -> Self {
        Self::to(format, Some(Box::new(std::io::stderr())), ProgressDrawTarget::hidden())
    }

    /// Notes and progress on stderr: a bar on a terminal, lines elsewhere.
    ///
    /// # Errors
    /// When there is no thread to be had that says the progress.
    pub fn with_progress(format: LogFormat) -> Result<Self> {
        let target = match format {
            LogFormat::Text => ProgressDrawTarget::stderr(),
            LogFormat::Json => ProgressDrawTarget::hidden(),
        };
        let log = Self::to(format, Some(Box::new(std::io::stderr())), target);
        if log.bar.is_hidden() {
            log.say_progress_every(EVERY)?;
        }
        Ok(log)
    }

    /// Nowhere.
    pub fn silent() -> Self {
        Self::to(LogFormat::Text, None, ProgressDrawTarget::hidden())
    }

    fn to(format: LogFormat, out: Option<Box<dyn Write + Send>>, target: ProgressDrawTarget) -> Self {
        let template = "{prefix:10} [{bar:40}] {human_pos}/{human_len} blobs, {msg}, {elapsed}";
        let style = ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar());
        let bar = ProgressBar::with_draw_target(Some(0), target).with_style(style.progress_chars("=> "));
        let bar = bar.with_prefix("deleting");
        if !bar.is_hidden() {
            bar.enable_steady_tick(TICK);
        }
        Self { lines: Arc::new(Lines { format, out: out.map(Mutex::new), latest: Mutex::default() }), bar }
    }

    /// Starts a thread that says how far the worker is, whatever the worker waits for meanwhile: a call, a store, more to do.
    fn say_progress_every(&self, every: Duration) -> Result<()> {
        let lines = Arc::downgrade(&self.lines);
        let report = move || {
            while let Some(lines) = {
                std::thread::sleep(every);
                lines.upgrade()
            } {
                lines.say_progress();
            }
        };
        let thread = std::thread::Builder::new().name("progress".into()).spawn(report);
        thread.map(drop).context("no thread for the progress")
    }

    /// Says something at once.
    pub fn note(&self, level: Level, event: &str, message: &str) {
        self.bar.suspend(|| self.lines.say(level, event, message, &json!({})));
    }

    /// How far the worker is from now on.
    pub fn progress(&self, figures: &Figures) {
        self.bar.set_length(figures.deleted.saturating_add(figures.waiting));
        self.bar.set_position(figures.deleted);
        self.bar.set_message(failures(figures));
        *self.lines.latest() = Some(figures.clone());
    }
}

impl Drop for Log {
    fn drop(&mut self) {
        // No line comes behind the last one.
        *self.lines.latest() = None;
    }
}

fn failures(figures: &Figures) -> String {
    format!("{} failed, {} put back", HumanCount(figures.failed), HumanCount(figures.left))
}

impl Lines {
    fn latest(&self) -> MutexGuard<'_, Option<Figures>> {
        self.latest.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn say(&self, level: Level, event: &str, message: &str, fields: &Value) {
        let Some(out) = &self.out else { return };
        let line = match self.format {
            LogFormat::Text if level == Level::Warn => format!("note: {}\n", printable(&shortened(message))),
            LogFormat::Text => format!("{}\n", printable(&shortened(message))),
            LogFormat::Json => as_json(level, event, message, fields, SystemTime::now()) + "\n",
        };
        // In one piece, as others write there, too. Who does not read it any more does not end the worker.
        drop(out.lock().unwrap_or_else(PoisonError::into_inner).write_all(line.as_bytes()));
    }

    fn say_progress(&self) {
        let latest = self.latest();
        let Some(figures) = &*latest else { return };
        let (deleted, height) = (HumanCount(figures.deleted), figures.height);
        let (failures, in_queue) = (failures(figures), HumanCount(figures.waiting));
        let line = format!("{deleted} blobs deleted, {failures}, {in_queue} in the queue, up to height {height}");
        self.say(Level::Info, "progress", &line, &json!(figures));
    }
}

/// From now on what panics says so in a line of JSON. What panics in a request is its failure, and no end.
pub fn panics_as_json() {
    std::panic::set_hook(Box::new(|panic| Log::new(LogFormat::Json).note(Level::Warn, "panic", &panic.to_string())));
}

fn as_json(level: Level, event: &str, message: &str, fields: &Value, now: SystemTime) -> String {
    let time = now.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_millis() as u64;
    let mut line = json!({"time_ms": time, "level": level, "event": event, "message": shortened(message)});
    if let (Some(line), Some(fields)) = (line.as_object_mut(), fields.as_object()) {
        line.extend(fields.clone());
    }
    printable(&line.to_string()).into_owned()
}

#[cfg(test)]
#[path = "tests/log.rs"]
pub mod tests;
