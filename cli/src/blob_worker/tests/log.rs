//! What is said, and how often.

use super::*;
use indicatif::InMemoryTerm;
use serde_json::Value;
use std::io::Write;
use std::time::Instant;

/// What was written.
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
    /// Its lines.
    pub fn lines(&self) -> Vec<String> {
        String::from_utf8(self.0.lock().unwrap().clone()).unwrap().lines().map(Into::into).collect()
    }
}

impl Log {
    /// A log that says the progress so often.
    pub fn every(every: Duration, format: LogFormat) -> (Self, Written) {
        let written = Written::default();
        let log = Self::to(Lines::new(format, written.clone()).into(), ProgressDrawTarget::hidden());
        log.say_progress_every(every).unwrap();
        (log, written)
    }
}

/// Waits until what is said is so.
fn wait_for<T: std::fmt::Debug>(said: impl Fn() -> T, is: impl Fn(&T) -> bool) {
    let began = Instant::now();
    while !is(&said()) {
        assert!(began.elapsed() < Duration::from_secs(60), "{:?}", said());
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn figures() -> Figures {
    Figures { deleted: 1_234, failed: 1, left: 2, height: 77, waiting: 5_678, ..Figures::default() }
}

#[test]
fn a_line_says_how_far_it_is_again_and_again_though_nothing_new_comes() {
    let said = "1,234 blobs deleted, 1 failed, 2 put back, 5,678 in the queue, up to height 77";
    let (log, written) = Log::every(Duration::from_millis(1), LogFormat::Text);
    log.progress(&Figures { waiting: 9, ..Figures::default() });
    log.progress(&figures());
    wait_for(|| written.lines(), |lines| lines.iter().filter(|line| *line == said).count() >= 3);
    drop(log);
    let many = written.lines().len();
    assert!(written.lines()[..many - 1].iter().all(|line| line == said || line.starts_with("0 blobs deleted")));

    let (log, written) = Log::every(Duration::from_millis(1), LogFormat::Json);
    log.progress(&figures());
    wait_for(|| written.lines(), |lines| !lines.is_empty());
    let line: Value = serde_json::from_str(&written.lines()[0]).unwrap();
    let found = ["level", "event", "message", "deleted", "failed", "left", "height", "waiting"].map(|name| &line[name]);
    let expected = json!(["info", "progress", said, 1_234, 1, 2, 77, 5_678]);
    assert_eq!(found.to_vec(), expected.as_array().unwrap().iter().collect::<Vec<_>>());
}

#[test]
fn no_line_comes_before_its_time_and_notes_come_at_once() {
    assert_eq!(EVERY, Duration::from_secs(60), "a line a minute");
    let (log, written) = Log::every(Duration::from_secs(3_600), LogFormat::Text);
    (0..10_000).for_each(|_| log.progress(&figures()));
    assert!(written.lines().is_empty());
    log.warn("store", "it is away");
    log.warn("store", "it is there");
    assert_eq!(written.lines(), ["note: it is away", "note: it is there"]);
    // It waits for no line when it ends.
    drop(log);
    assert_eq!(written.lines().len(), 2);
}

#[test]
fn on_a_terminal_a_bar_says_how_far_it_is_and_notes_stand_above_it() {
    let terminal = InMemoryTerm::new(10, 120);
    let target = ProgressDrawTarget::term_like(Box::new(terminal.clone()));
    let written = Written::default();
    let log = Log::to(Lines::new(LogFormat::Text, written.clone()).into(), target);
    log.progress(&Figures { waiting: 3_766, ..figures() });
    let a_quarter =
        format!("deleting   [{}>{}] 1,234/5,000 blobs, 1 failed, 2 put back, ", "=".repeat(9), " ".repeat(30));
    wait_for(|| terminal.contents(), |shown| shown.starts_with(&a_quarter));
    log.warn("store", "it is away");
    assert_eq!(written.lines(), ["note: it is away"], "it writes to the terminal as well, while there is no bar");
    log.progress(&Figures { deleted: 5_000, waiting: 0, ..figures() });
    let all = format!("[{}] 5,000/5,000 blobs", "=".repeat(40));
    wait_for(|| terminal.contents(), |shown| shown.contains(&all));
    assert_eq!(terminal.contents().lines().count(), 1, "one line moves");
    drop(log);
    assert_eq!(terminal.contents(), "", "and is gone at the end");
}
