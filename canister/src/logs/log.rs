//! Persistent log of the last 1,000 lines, which survives upgrades and is readable without access to the platform's log.
//!
//! A line is written in the message that it is about; if that message is undone, so is the line. The platform's log gets every line too.
//!
//! ```text
//! cell: 0 magic "CPLG"  4 version u16  6 reserved u16  8 lines ever written u64  16 reserved, up to 2,048
//! line: 0 number u64  8 Unix nanoseconds u64  16 priority u8 (0 error, 1 info)  17 reserved  18 length u16  20 reserved u32
//!       24 the text, UTF-8
//! ```

use crate::{memory, places, platform};
use ic_coppice_interface::text::cut;
use ic_coppice_interface::{LogEntry, LogPage, LogPriority};
use ic_coppice_storage::bytes::{u16_at, u64_at};
use ic_coppice_storage::header::Header;
use ic_coppice_storage::log::Priority;
pub use ic_coppice_storage::log::{error, info};
use ic_coppice_storage::ring::Ring;
use ic_coppice_storage::{OpenError, Space};
use std::cell::RefCell;
use std::rc::Rc;

const LAYOUT: Header = Header { name: "log", magic: *b"CPLG", version: 1 };
const WRITTEN: u64 = places::LOG + 8;
const TEXT: usize = 24;
/// Bytes of a line's text.
const MOST: usize = places::LOG_LINE_LEN - TEXT;
/// Maximum lines of a page.
pub const MAX_PAGE: u32 = 1_000;
/// Lines of a page for limit 0.
const DEFAULT_PAGE: u32 = 100;

/// The ring.
struct Log {
    cells: Rc<Space>,
    lines: Ring,
    written: u64,
}

thread_local! {
    static LOG: RefCell<Option<Log>> = const { RefCell::new(None) };
}

/// Reads the header; a header that was never written is an empty log.
pub fn open(cells: Rc<Space>) -> Result<(), OpenError> {
    if cells.read(places::LOG) != [0; 16] {
        cells.check_header(places::LOG, &LAYOUT)?;
    }
    let written = cells.read_u64(WRITTEN);
    let lines = Ring::open(memory::space(places::LOG_LINES)?, places::LOG_LINE_LEN, places::LOG_LINES_LEN)?;
    LOG.set(Some(Log { cells, lines, written }));
    ic_coppice_storage::log::keep(keep);
    Ok(())
}

/// Writes what the heap mirrors anew.
pub fn rewrite() {
    LOG.with_borrow(|log| {
        if let Some(log) = log {
            log.save();
            log.lines.rewrite();
        }
    });
}

/// Drops the ring, as an upgrade does.
#[cfg(test)]
pub fn forget() {
    LOG.set(None);
}

/// Keeps a line.
fn keep(priority: Priority, line: &str) {
    LOG.with_borrow_mut(|log| {
        // Before the ring is open, lines go only to the platform's log.
        if let Some(log) = log {
            log.push(priority, line, platform::time_ns());
        }
    });
}

impl Log {
    fn push(&mut self, priority: Priority, line: &str, now_ns: u64) {
        let text = cut(line, MOST);
        let mut bytes = Vec::with_capacity(TEXT + text.len());
        bytes.extend(self.written.to_le_bytes());
        bytes.extend(now_ns.to_le_bytes());
        bytes.extend([priority as u8, 0]);
        bytes.extend((text.len() as u16).to_le_bytes());
        bytes.extend([0; 4]);
        bytes.extend(text.as_bytes());
        self.lines.make_room(self.written);
        self.lines.space().write(self.lines.slot(self.written), &bytes);
        self.written += 1;
        self.save();
    }

    fn save(&self) {
        self.cells.write_header(places::LOG, &LAYOUT);
        self.cells.write_u64(WRITTEN, self.written);
    }

    /// A line; `None` if the slot holds another line or cannot be decoded.
    fn entry(&self, number: u64) -> Option<LogEntry> {
        let bytes: [u8; places::LOG_LINE_LEN] = self.lines.space().read(self.lines.slot(number));
        let word = |at: usize| u64_at(&bytes, at);
        let priority = *[LogPriority::Error, LogPriority::Info].get(usize::from(bytes[16]))?;
        let len = usize::from(u16_at(&bytes, 18));
        let message = std::str::from_utf8(bytes.get(TEXT..TEXT + len)?).ok()?.to_string();
        (word(0) == number).then(|| LogEntry { number, time_ns: word(8), priority, message })
    }
}

/// The lines of a priority, or all lines, before number `cursor`, newest first; at most 1,000, and 100 if `limit` is 0. Unreadable lines
/// are left out.
pub fn page(priority: Option<LogPriority>, cursor: Option<u64>, limit: u32) -> LogPage {
    let limit = if limit == 0 { DEFAULT_PAGE } else { limit.min(MAX_PAGE) } as usize;
    LOG.with_borrow(|log| {
        let Some(log) = log else { return LogPage { entries: Vec::new(), cursor: None } };
        let kept = log.lines.kept(log.written);
        let end = cursor.map_or(kept.end, |cursor| cursor.min(kept.end));
        let mut entries = Vec::new();
        for number in (kept.start..end).rev() {
            if entries.len() == limit {
                return LogPage { entries, cursor: Some(number + 1) };
            }
            let entry = log.entry(number);
            entries.extend(entry.filter(|entry| priority.is_none_or(|priority| entry.priority == priority)));
        }
        LogPage { entries, cursor: None }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory;
    use crate::platform::native;

    fn reopen() {
        memory::forget();
        forget();
        let cells = ic_coppice_storage::testing::cells();
        open(cells).unwrap();
    }

    fn fresh() {
        native::reset();
        reopen();
    }

    fn numbers(page: &LogPage) -> Vec<u64> {
        page.entries.iter().map(|entry| entry.number).collect()
    }

    #[test]
    fn last_thousand_lines_survive_an_upgrade_and_are_paged() {
        fresh();
        assert_eq!(page(None, None, 0), LogPage { entries: vec![], cursor: None });
        for number in 0..2_345 {
            if number % 3 == 0 {
                error(&format!("line {number}"))
            } else {
                info(&format!("line {number}"))
            }
            if number % 700 == 0 {
                reopen();
            }
        }
        let all = page(None, None, u32::MAX);
        assert_eq!(numbers(&all), (1_345..2_345).rev().collect::<Vec<_>>());
        assert!(
            all.cursor.is_none() && all.entries.iter().all(|entry| entry.message == format!("line {}", entry.number))
        );
        let (mut found, mut cursor) = (Vec::new(), None);
        loop {
            let next = page(Some(LogPriority::Error), cursor, 7);
            assert!(next.entries.len() <= 7);
            found.extend(numbers(&next));
            cursor = next.cursor;
            if cursor.is_none() {
                break;
            }
        }
        assert_eq!(found, (1_345..2_345).rev().filter(|number| number % 3 == 0).collect::<Vec<_>>());
        assert_eq!(page(None, None, 0).entries.len(), 100);
        assert_eq!(page(None, Some(u64::MAX), 1), page(None, None, 1));
        for behind in [0, 5, 1_345] {
            assert_eq!(page(None, Some(behind), 5), LogPage { entries: vec![], cursor: None });
        }
    }

    #[test]
    fn long_line_is_cut_and_damaged_line_is_left_out() {
        fresh();
        for text in [String::new(), "x".repeat(1_000), "x".repeat(1_001), "ß".repeat(5_000)] {
            info(&text);
        }
        let found: Vec<String> = page(None, None, 0).entries.into_iter().rev().map(|entry| entry.message).collect();
        assert_eq!((found[0].len(), found[1].len(), found[2].len()), (0, 1_000, 1_000));
        assert!(found[2].ends_with('…') && found[3].ends_with('…') && found[3].len() > 990);
        // Line n lies in slot n + 1.
        let lines = ic_coppice_storage::testing::space(places::LOG_LINES);
        lines.write(2 * 1_024 + 16, &[7]);
        lines.write(3 * 1_024 + 18, &[0xFF, 0xFF]);
        lines.write(4 * 1_024 + TEXT as u64, &[0xFF]);
        assert_eq!(numbers(&page(None, None, 0)), [0]);
    }

    /// The layout, byte by byte.
    #[test]
    fn the_layout_is_what_it_was() {
        fresh();
        native::with(|world| world.time_ns = 0x0102);
        info("no");
        error("hm");
        let (cells, lines) =
            (ic_coppice_storage::testing::cells(), ic_coppice_storage::testing::space(places::LOG_LINES));
        assert_eq!(places::LOG, 190_464);
        assert_eq!(cells.read::<16>(places::LOG), *b"CPLG\x01\0\0\0\x02\0\0\0\0\0\0\0");
        let line: [u8; 26] = lines.read(2 * 1_024);
        assert_eq!(line, *b"\x01\0\0\0\0\0\0\0\x02\x01\0\0\0\0\0\0\0\0\x02\0\0\0\0\0hm");
        for (byte, wrong) in [(0, b'X'), (4, 0), (4, 2), (5, 1)] {
            let header: [u8; 16] = cells.read(places::LOG);
            let mut bytes = header;
            bytes[byte] = wrong;
            cells.write(places::LOG, &bytes);
            assert!(open(ic_coppice_storage::testing::cells()).is_err(), "byte {byte}");
            cells.write(places::LOG, &header);
        }
    }
}
