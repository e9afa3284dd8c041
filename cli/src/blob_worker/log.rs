//! What a worker says on stderr: a bar on a terminal and a line a minute elsewhere, notes at once; as text or as JSON.

use super::args::LogFormat;
use super::run::Figures;
use indicatif::{HumanCount, ProgressBar, ProgressStyle};
use serde_json::{Value, json};
use std::cell::Cell;
use std::io::{IsTerminal, Write as _};
use std::time::{Duration, Instant, SystemTime};

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

/// Where a worker's events go.
pub struct Log {
    format: Option<LogFormat>,
    bar: Option<ProgressBar>,
    said: Cell<Instant>,
}

impl Log {
    /// On stderr.
    pub fn new(format: LogFormat) -> Self {
        let bar = (format == LogFormat::Text && std::io::stderr().is_terminal()).then(|| {
            let template = "{prefix:10} [{bar:40}] {human_pos}/{human_len} blobs, {msg}, {elapsed}";
            let style = ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar());
            let bar = ProgressBar::new(0).with_style(style.progress_chars("=> ")).with_prefix("deleting");
            bar.enable_steady_tick(TICK);
            bar
        });
        Self { format: Some(format), bar, said: Cell::new(Instant::now()) }
    }

    /// Nowhere.
    pub fn silent() -> Self {
        Self { format: None, bar: None, said: Cell::new(Instant::now()) }
    }

    /// Says something at once.
    pub fn note(&self, level: Level, event: &str, message: &str) {
        self.line(level, event, message, &json!({}));
    }

    /// Says how far the worker is, where it is time to.
    pub fn progress(&self, figures: &Figures, waiting: u64) {
        let message = format!("{} failed, {} put back", HumanCount(figures.failed), HumanCount(figures.left));
        if let Some(bar) = &self.bar {
            bar.set_length(figures.deleted + waiting);
            bar.set_position(figures.deleted);
            bar.set_message(message);
            return;
        }
        if self.said.get().elapsed() < EVERY {
            return;
        }
        self.said.set(Instant::now());
        let line = format!(
            "{} blobs deleted, {message}, {} in the queue, up to height {}",
            HumanCount(figures.deleted),
            HumanCount(waiting),
            figures.height
        );
        let mut fields = serde_json::to_value(figures).unwrap_or_default();
        fields["waiting"] = waiting.into();
        self.line(Level::Info, "progress", &line, &fields);
    }

    fn line(&self, level: Level, event: &str, message: &str, fields: &Value) {
        let line = match self.format {
            None => return,
            Some(LogFormat::Text) if level == Level::Warn => format!("note: {message}"),
            Some(LogFormat::Text) => message.to_string(),
            Some(LogFormat::Json) => as_json(level, event, message, fields, SystemTime::now()),
        };
        // Who does not read stderr any more does not end the worker.
        let say = || drop(writeln!(std::io::stderr(), "{line}"));
        match &self.bar {
            Some(bar) => bar.suspend(say),
            None => say(),
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
    let mut line = json!({"time_ms": time, "level": level, "event": event, "message": message});
    if let (Some(line), Some(fields)) = (line.as_object_mut(), fields.as_object()) {
        line.extend(fields.clone());
    }
    line.to_string()
}

impl Drop for Log {
    fn drop(&mut self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_json_has_when_how_grave_what_and_its_figures() {
        let now = SystemTime::UNIX_EPOCH + Duration::from_millis(1_500);
        let line = as_json(Level::Warn, "store", "no\nanswer", &json!({"failed": 3}), now);
        assert!(!line.contains('\n'), "{line}");
        let read: Value = serde_json::from_str(&line).unwrap();
        let expected =
            json!({"time_ms": 1_500, "level": "warn", "event": "store", "message": "no\nanswer", "failed": 3});
        assert_eq!(read, expected);
    }
}
