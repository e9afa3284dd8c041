//! The debug output of a canister.

use std::collections::VecDeque;

/// A record of a canister's log: debug output, or the reason of a trap.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogRecord {
    /// The number of the record; dropped records count.
    pub idx: u64,
    /// Nanoseconds since 1970.
    pub timestamp_nanos: u64,
    /// The output, or `[TRAP]: ` and the trap's message.
    pub content: Vec<u8>,
}

/// A log that drops its oldest records when it exceeds a limit.
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
    fn oldest_records_are_dropped_first() {
        let mut log = Log::default();
        for i in 0..5 {
            log.push(i, vec![0; 10], 25);
        }
        assert_eq!(log.records().iter().map(|r| r.idx).collect::<Vec<_>>(), [3, 4]);
    }
}
