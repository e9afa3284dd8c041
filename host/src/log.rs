//! The debug output of a canister.

use std::collections::VecDeque;

/// A line of a canister's log: debug output, or why a message trapped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogRecord {
    /// Counts the records of a canister, dropped ones included.
    pub idx: u64,
    /// Nanoseconds since 1970.
    pub timestamp_nanos: u64,
    /// The output; of a trap, `[TRAP]: ` and its message.
    pub content: Vec<u8>,
}

/// A log that drops its oldest records when it gets too large.
#[derive(Clone, Default)]
pub(crate) struct Log {
    records: VecDeque<LogRecord>,
    next: u64,
    bytes: u64,
}

impl Log {
    pub(crate) fn push(&mut self, timestamp_nanos: u64, content: Vec<u8>, limit: u64) {
        self.bytes += content.len() as u64;
        self.records.push_back(LogRecord { idx: self.next, timestamp_nanos, content });
        self.next += 1;
        while self.bytes > limit
            && let Some(oldest) = self.records.pop_front()
        {
            self.bytes -= oldest.content.len() as u64;
        }
    }

    pub(crate) fn records(&self) -> Vec<LogRecord> {
        self.records.iter().cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_go_first() {
        let mut log = Log::default();
        for i in 0..5 {
            log.push(i, vec![0; 10], 25);
        }
        assert_eq!(log.records().iter().map(|r| r.idx).collect::<Vec<_>>(), [3, 4]);
    }
}
