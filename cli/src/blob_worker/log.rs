//! What a worker says on stderr: a bar on a terminal and a line a minute elsewhere, notes at once; as text or as JSON.

use super::args::LogFormat;
use super::run::Figures;
use crate::terminal::{printable, shortened};
use anyhow::{Context, Result};
use indicatif::{HumanCount, ProgressBar, ProgressDrawTarget, ProgressStyle};
use serde_json::{Value, json};
use std::io::{IsTerminal, Write};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, SystemTime};

/// How often the figures are said where there is no terminal.
const EVERY: Duration = Duration::from_secs(60);
/// How often the bar moves while nothing comes.
const TICK: Duration = Duration::from_millis(250);

/// How grave something is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Level {
    /// As it should be.
    Info,
    /// Not as it should be; the worker goes on.
    Warn,
    /// The worker ends.
    Error,
}

/// How far a worker is: what it did, and how many blobs are in the queue.
type Progress = (Figures, u64);

/// Where a worker's events go.
pub struct Log {
    lines: Lines,
    shown: Shown,
}

/// How the worker's progress is shown.
enum Shown {
    /// Not at all.
    Never,
    /// By a bar, which clears its line at its end.
    Bar(ProgressBar),
    /// By a line again and again.
    Lines(Reporter),
}

impl Log {
    /// Notes on stderr, and no progress.
    pub fn new(format: LogFormat) -> Self {
        Self { lines: Lines::new(format, std::io::stderr()), shown: Shown::Never }
    }

    /// Notes and progress on stderr.
    ///
    /// # Errors
    /// When there is no thread to be had that says the progress.
    pub fn with_progress(format: LogFormat) -> Result<Self> {
        let lines = Lines::new(format, std::io::stderr());
        let shown = if format == LogFormat::Text && std::io::stderr().is_terminal() {
            Shown::Bar(bar(ProgressDrawTarget::stderr()))
        } else {
            Shown::Lines(Reporter::start(lines.clone(), EVERY)?)
        };
        Ok(Self { lines, shown })
    }

    /// Nowhere.
    pub fn silent() -> Self {
        Self { lines: Lines::default(), shown: Shown::Never }
    }

    /// Says something at once.
    pub fn note(&self, level: Level, event: &str, message: &str) {
        let say = || self.lines.say(level, event, message, &json!({}));
        match &self.shown {
            Shown::Bar(bar) => bar.suspend(say),
            _ => say(),
        }
    }

    /// How far the worker is from now on.
    pub fn progress(&self, figures: &Figures, waiting: u64) {
        match &self.shown {
            Shown::Never => {}
            Shown::Bar(bar) => {
                bar.set_length(figures.deleted.saturating_add(waiting));
                bar.set_position(figures.deleted);
                bar.set_message(failures(figures));
            }
            Shown::Lines(reporter) => reporter.set((figures.clone(), waiting)),
        }
    }
}

fn bar(target: ProgressDrawTarget) -> ProgressBar {
    let template = "{prefix:10} [{bar:40}] {human_pos}/{human_len} blobs, {msg}, {elapsed}";
    let style = ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar());
    let bar = ProgressBar::with_draw_target(Some(0), target).with_style(style.progress_chars("=> "));
    let bar = bar.with_prefix("deleting");
    bar.enable_steady_tick(TICK);
    bar
}

fn failures(figures: &Figures) -> String {
    format!("{} failed, {} put back", HumanCount(figures.failed), HumanCount(figures.left))
}

/// Lines of text, or of JSON.
#[derive(Clone, Default)]
struct Lines {
    format: LogFormat,
    /// Where they go, if anywhere.
    out: Option<Arc<Mutex<dyn Write + Send>>>,
}

impl Lines {
    fn new(format: LogFormat, out: impl Write + Send + 'static) -> Self {
        Self { format, out: Some(Arc::new(Mutex::new(out))) }
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

    fn say_progress(&self, (figures, waiting): &Progress) {
        let line = format!(
            "{} blobs deleted, {}, {} in the queue, up to height {}",
            HumanCount(figures.deleted),
            failures(figures),
            HumanCount(*waiting),
            figures.height
        );
        let mut fields = serde_json::to_value(figures).unwrap_or_default();
        fields["waiting"] = (*waiting).into();
        self.say(Level::Info, "progress", &line, &fields);
    }
}

/// Says how far the worker is again and again, whatever the worker waits for meanwhile: a call, a store, more to do.
struct Reporter {
    /// Nothing before the worker knows anything.
    latest: Arc<Mutex<Option<Progress>>>,
    ends: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Reporter {
    fn start(lines: Lines, every: Duration) -> Result<Self> {
        let latest: Arc<Mutex<Option<Progress>>> = Arc::default();
        let (ends, ended) = channel();
        let read = latest.clone();
        let report = move || {
            while ended.recv_timeout(every) == Err(RecvTimeoutError::Timeout) {
                let progress = read.lock().unwrap_or_else(PoisonError::into_inner).clone();
                if let Some(progress) = progress {
                    lines.say_progress(&progress);
                }
            }
        };
        let thread = std::thread::Builder::new().name("progress".into()).spawn(report);
        Ok(Self { latest, ends: Some(ends), thread: Some(thread.context("no thread for the progress")?) })
    }

    fn set(&self, progress: Progress) {
        *self.latest.lock().unwrap_or_else(PoisonError::into_inner) = Some(progress);
    }
}

impl Drop for Reporter {
    fn drop(&mut self) {
        drop(self.ends.take());
        // No line comes behind the last one.
        if let Some(thread) = self.thread.take() {
            drop(thread.join());
        }
    }
}

/// From now on what panics says so in a line of JSON. What panics in a request is its failure, and no end.
pub fn panics_as_json() {
    std::panic::set_hook(Box::new(|panic| {
        let line = as_json(Level::Warn, "panic", &panic.to_string(), &json!({}), SystemTime::now());
        drop(writeln!(std::io::stderr(), "{line}"));
    }));
}

fn as_json(level: Level, event: &str, message: &str, fields: &Value, now: SystemTime) -> String {
    let time = now.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_millis() as u64;
    let level = match level {
        Level::Info => "info",
        Level::Warn => "warn",
        Level::Error => "error",
    };
    let mut line = json!({"time_ms": time, "level": level, "event": event, "message": shortened(message)});
    if let (Some(line), Some(fields)) = (line.as_object_mut(), fields.as_object()) {
        line.extend(fields.clone());
    }
    printable(&line.to_string()).into_owned()
}

#[cfg(test)]
#[path = "tests/log.rs"]
pub mod tests;
