//! Log lines of a worker, and their intervals.

use super::*;
use indicatif::InMemoryTerm;
use serde_json::Value;
use std::io::Write;
use std::time::Instant;

/// A writer that keeps what was written.
#[derive(Clone, Default)]
pub struct Written(Arc<Mutex<Vec<u8>>>);

impl Write for Written {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().extend(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl Written {
    pub fn lines(&self) -> Vec<String> {
        String::from_utf8(self.0.lock().unwrap().clone()).unwrap().lines().map(Into::into).collect()
    }
}

impl Log {
    /// Creates a log with this interval of progress lines.
    pub fn every(every: Duration, format: LogFormat) -> (Self, Written) {
        let written = Written::default();
        let log = Self::to(Lines::new(format, written.clone()).into(), ProgressDrawTarget::hidden());
        log.say_progress_every(every).unwrap();
        (log, written)
    }
}

fn wait_for<T: std::fmt::Debug>(value: impl Fn() -> T, is: impl Fn(&T) -> bool) {
    let began = Instant::now();
    while !is(&value()) {
        assert!(began.elapsed() < Duration::from_secs(60), "{:?}", value());
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn figures() -> Figures {
    Figures { deleted: 1_234, failed: 1, left: 2, height: 77, waiting: 5_678, ..Figures::default() }
}

#[test]
fn progress_line_is_repeated_without_news() {
    let expected_line = "1,234 blobs deleted, 1 failed, 2 put back, 5,678 in the queue, up to height 77";
    let (log, written) = Log::every(Duration::from_millis(1), LogFormat::Text);
    log.progress(&Figures { waiting: 9, ..Figures::default() });
    log.progress(&figures());
    wait_for(|| written.lines(), |lines| lines.iter().filter(|line| *line == expected_line).count() >= 3);
    drop(log);
    let many = written.lines().len();
    assert!(
        written.lines()[..many - 1].iter().all(|line| line == expected_line || line.starts_with("0 blobs deleted"))
    );

    let (log, written) = Log::every(Duration::from_millis(1), LogFormat::Json);
    log.progress(&figures());
    wait_for(|| written.lines(), |lines| !lines.is_empty());
    let line: Value = serde_json::from_str(&written.lines()[0]).unwrap();
    let found = ["level", "event", "message", "deleted", "failed", "left", "height", "waiting"].map(|name| &line[name]);
    let expected = json!(["info", "progress", expected_line, 1_234, 1, 2, 77, 5_678]);
    assert_eq!(found.to_vec(), expected.as_array().unwrap().iter().collect::<Vec<_>>());
}

#[test]
fn progress_lines_wait_for_their_interval_and_warnings_do_not() {
    assert_eq!(EVERY, Duration::from_secs(60), "one line a minute");
    let (log, written) = Log::every(Duration::from_secs(3_600), LogFormat::Text);
    (0..10_000).for_each(|_| log.progress(&figures()));
    assert!(written.lines().is_empty());
    log.warn("store", "it is away");
    log.warn("store", "it is there");
    assert_eq!(written.lines(), ["note: it is away", "note: it is there"]);
    // The drop waits for no line.
    drop(log);
    assert_eq!(written.lines().len(), 2);
}

#[test]
fn bar_shows_progress_on_a_terminal_with_warnings_above() {
    let terminal = InMemoryTerm::new(10, 120);
    let target = ProgressDrawTarget::term_like(Box::new(terminal.clone()));
    let written = Written::default();
    let log = Log::to(Lines::new(LogFormat::Text, written.clone()).into(), target);
    log.progress(&Figures { waiting: 3_766, ..figures() });
    let a_quarter =
        format!("deleting   [{}>{}] 1,234/5,000 blobs, 1 failed, 2 put back, ", "=".repeat(9), " ".repeat(30));
    wait_for(|| terminal.contents(), |shown| shown.starts_with(&a_quarter));
    log.warn("store", "it is away");
    assert_eq!(written.lines(), ["note: it is away"], "the warning goes to the terminal while the bar is hidden");
    log.progress(&Figures { deleted: 5_000, waiting: 0, ..figures() });
    let all = format!("[{}] 5,000/5,000 blobs", "=".repeat(40));
    wait_for(|| terminal.contents(), |shown| shown.contains(&all));
    assert_eq!(terminal.contents().lines().count(), 1, "one line moves");
    drop(log);
    assert_eq!(terminal.contents(), "", "the bar is cleared at the end");
}
