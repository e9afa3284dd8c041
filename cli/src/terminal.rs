//! Output to stdout and stderr: every line is escaped, because parts of it come from replicas, gateways, stores and databases, which may be
//! hostile.
//!
//! A terminal obeys control characters: they can clear it, rename its window or write into its input. Other characters make text look like
//! different text. So each line passes [`printable`]; lints forbid `println!` and its kin in the rest of the command.

use serde::Serialize;
use serde_json::{Value, json};
use std::borrow::Cow;
use std::fmt::Write as _;
use std::io::{self, Write};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::SystemTime;

/// Longest line on stderr, in characters, because an HTTP error may carry megabytes.
const MAX_LINE: usize = 4_096;

/// Returns whether a character could do more than be displayed: controls (C0, DEL, C1), and characters that change the direction of text,
/// have no width, join the previous character, break lines, or are unassigned. Rust's own `Debug` escapes the same characters.
fn is_escaped(character: char) -> bool {
    !character.is_ascii_graphic() && character != ' ' && character.escape_debug().len() > 1
}

/// Returns the text on one line. Characters that a terminal could obey, and line breaks, are escaped as in JSON: `\u001b`. A JSON text
/// keeps its meaning.
pub fn printable(text: &str) -> Cow<'_, str> {
    if !text.contains(is_escaped) {
        return text.into();
    }
    let mut escaped = String::with_capacity(text.len());
    for character in text.chars() {
        if is_escaped(character) {
            for unit in character.encode_utf16(&mut [0; 2]) {
                let _ = write!(escaped, "\\u{unit:04x}");
            }
        } else {
            escaped.push(character);
        }
    }
    escaped.into()
}

/// Returns the lines, each [`printable`], with their line breaks.
pub fn printable_lines(text: &str) -> String {
    text.split('\n').map(printable).collect::<Vec<_>>().join("\n")
}

/// Returns the line, cut to a readable length.
pub fn shortened(line: &str) -> Cow<'_, str> {
    match line.char_indices().nth(MAX_LINE) {
        None => line.into(),
        Some((end, _)) => format!("{} … ({} bytes more)", &line[..end], line.len() - end).into(),
    }
}

/// The format of lines on stderr.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum LogFormat {
    /// A line of text each
    #[default]
    Text,
    /// A line of JSON each
    Json,
}

/// The level of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Level {
    /// Normal operation.
    Info,
    /// A problem; the command continues.
    Warn,
    /// An error that ends the command.
    Error,
}

/// A writer of lines, as text or JSON.
pub struct Lines {
    format: LogFormat,
    out: Mutex<Box<dyn Write + Send>>,
}

impl Lines {
    pub fn new(format: LogFormat, out: impl Write + Send + 'static) -> Self {
        Self { format, out: Mutex::new(Box::new(out)) }
    }

    pub fn format(&self) -> LogFormat {
        self.format
    }

    /// Writes a line.
    pub fn note(&self, level: Level, event: &str, message: &str) {
        self.say(level, event, message, &Value::Null);
    }

    /// Writes a line, which has more fields if it is JSON. A reader that hung up does not end the command.
    pub fn say(&self, level: Level, event: &str, message: &str, fields: &Value) {
        let message = shortened(message);
        let line = match (self.format, level) {
            (LogFormat::Json, _) => as_json(level, event, &message, fields, SystemTime::now()),
            (LogFormat::Text, Level::Info) => message.into_owned(),
            (LogFormat::Text, Level::Warn) => format!("note: {message}"),
            (LogFormat::Text, Level::Error) => format!("error: {message}"),
        };
        // One write per line, because other threads and processes write to the same place.
        let line = format!("{}\n", printable(&line));
        drop(self.out.lock().unwrap_or_else(PoisonError::into_inner).write_all(line.as_bytes()));
    }
}

fn as_json(level: Level, event: &str, message: &str, fields: &Value, now: SystemTime) -> String {
    let time = now.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_nanos() as u64;
    let mut line = json!({"time_ns": time, "level": level, "event": event, "message": message});
    if let (Some(line), Some(fields)) = (line.as_object_mut(), fields.as_object()) {
        line.extend(fields.clone());
    }
    line.to_string()
}

static STDERR: OnceLock<Arc<Lines>> = OnceLock::new();

/// Returns the writer to stderr.
pub fn stderr() -> &'static Arc<Lines> {
    STDERR.get_or_init(|| Arc::new(Lines::new(LogFormat::Text, io::stderr())))
}

/// Sets the format of lines on stderr, if nothing was written yet; with JSON also that of panics.
pub fn log_as(format: LogFormat) {
    STDERR.get_or_init(|| Arc::new(Lines::new(format, io::stderr())));
    if format == LogFormat::Json {
        std::panic::set_hook(Box::new(|panic| stderr().note(Level::Warn, "panic", &panic.to_string())));
    }
}

/// Writes a line to stderr.
pub fn write_line(line: &str) {
    stderr().note(Level::Info, "note", line);
}

/// Writes lines to stdout. A reader that has ended, such as `head`, wants no more.
///
/// # Errors
/// When stdout is full.
pub fn print(text: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    match writeln!(out, "{}", printable_lines(text)).and_then(|()| out.flush()) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        printed => printed,
    }
}

/// Writes text to stdout as it is: a script of this command, or a page whose lines are [`printable`] between its own colours.
///
/// # Errors
/// When stdout is full.
pub fn print_page(text: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    match writeln!(out, "{text}").and_then(|()| out.flush()) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        printed => printed,
    }
}

/// Writes a value to stdout as a line of JSON, without a copy in memory. Its texts must need no [`printable`]. A reader that has ended is
/// an error, because its copy is not whole.
///
/// # Errors
/// When it cannot be written.
pub fn print_json(value: &impl Serialize) -> io::Result<()> {
    let mut out = io::BufWriter::new(io::stdout().lock());
    serde_json::to_writer(&mut out, value)?;
    writeln!(out)?;
    out.flush()
}

/// Writes a line to stderr, with the arguments of `format!`.
#[macro_export]
macro_rules! say {
    ($($arg:tt)*) => { $crate::terminal::write_line(&format!($($arg)*)) };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn characters_that_a_terminal_obeys_are_escaped() {
        for (text, expected) in [
            ("plain: 1 \"x\" 'y' \\ {z}", "plain: 1 \"x\" 'y' \\ {z}"),
            ("déjà vu … 区块 ✓ │", "déjà vu … 区块 ✓ │"),
            ("\x1b[2J\x07\0\t\r\n\x7f", "\\u001b[2J\\u0007\\u0000\\u0009\\u000d\\u000a\\u007f"),
            ("\u{9b}2J\u{85}\u{9d}0;x\u{9c}", "\\u009b2J\\u0085\\u009d0;x\\u009c"),
            ("a\u{202e}b\u{2066}c\u{200f}d\u{61c}", "a\\u202eb\\u2066c\\u200fd\\u061c"),
            ("\u{200b}\u{feff}\u{2028}\u{ad}\u{301}", "\\u200b\\ufeff\\u2028\\u00ad\\u0301"),
            ("\u{e0041}", "\\udb40\\udc41"),
            ("", ""),
        ] {
            assert_eq!(printable(text), expected);
        }
        assert!((0..=u32::from(char::MAX)).filter_map(char::from_u32).filter(|c| c.is_control()).all(is_escaped));
    }

    #[test]
    fn escaped_json_keeps_its_value() {
        let value = serde_json::json!({ "why\u{9b}": "a\x1b[2J\u{9b}b\u{202e}\u{e0041}\n\"\\" });
        let line = serde_json::to_string(&value).unwrap();
        let printed = printable(&line);
        assert!(printed.is_ascii() && printed != line);
        assert_eq!(serde_json::from_str::<Value>(&printed).unwrap(), value);
    }

    #[test]
    fn json_line_has_time_level_event_message_and_fields() {
        let now = SystemTime::UNIX_EPOCH + std::time::Duration::from_millis(1_500);
        let line = as_json(Level::Warn, "store", "no\nanswer", &json!({"failed": 3}), now);
        assert!(!line.contains('\n'), "{line}");
        let read: Value = serde_json::from_str(&line).unwrap();
        let expected =
            json!({"time_ns": 1_500_000_000, "level": "warn", "event": "store", "message": "no\nanswer", "failed": 3});
        assert_eq!(read, expected);
    }

    #[test]
    fn line_breaks_are_kept_and_long_lines_are_cut() {
        assert_eq!(printable_lines("a\u{7}\nb\n"), "a\\u0007\nb\n");
        assert_eq!(shortened(&"é".repeat(MAX_LINE)), "é".repeat(MAX_LINE));
        let cut = shortened(&"é".repeat(MAX_LINE + 3)).into_owned();
        assert!(cut.ends_with("é … (6 bytes more)"), "{cut}");
    }
}
