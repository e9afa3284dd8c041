//! The audit log: what operators and admins have changed, the last 1,000 of it.
//!
//! An entry is written in the message that changes something, so that there is never one without the other: a trap undoes both. Writing one
//! cannot fail: the ring's place is reserved since the installation, and texts are cut.
//!
//! ```text
//! cell: 0 magic "CPAU"  4 version u16  6 reserved u16  8 entries ever written u64  16 reserved, up to 2,048
//!       then slots of 2,048 bytes: entry n lies in slot n % 1,000
//! slot: 0 number u64  8 nanoseconds since the Unix epoch u64
//!       16 lengths 6 × u16: caller, method, argument, before, after, result  28 these, one behind the other
//! ```

mod fields;

pub use fields::{Fields, field, fields};

use crate::memory::{Region, cell};
use crate::runtime;
use crate::state::State;
use candid::Principal;
use coppice_interface::{AuditEntry, AuditPage};
use std::fmt::Debug;
use std::rc::Rc;

const MAGIC: [u8; 4] = *b"CPAU";
const VERSION: u16 = 1;
const WRITTEN: u64 = cell::AUDIT + 8;
const TEXTS: usize = 28;
/// Bytes at most of caller, method, argument, before, after and result.
const MOST: [usize; 6] = [29, 48, 512, 512, 512, 384];
/// Entries of one answer.
const MAX_PAGE: u32 = 500;
/// Entries of one answer where the caller does not say.
const DEFAULT_PAGE: u32 = 100;

/// The ring.
pub struct AuditLog {
    cells: Rc<Region>,
    /// Entries ever written.
    written: u64,
}

fn slot_of(number: u64) -> u64 {
    cell::AUDIT + (1 + number % cell::AUDIT_ENTRIES) * cell::AUDIT_LEN as u64
}

/// So much of a text as fits, and a mark where that is not all.
pub fn cut(text: &str, most: usize) -> String {
    const MARK: &str = "…";
    if text.len() <= most {
        return text.into();
    }
    let end = (0..=most - MARK.len()).rev().find(|&end| text.is_char_boundary(end)).unwrap_or(0);
    format!("{}{MARK}", &text[..end])
}

impl AuditLog {
    /// Reads the header; one never written is an empty log.
    ///
    /// # Errors
    /// A sentence that says what is wrong with it.
    pub fn open(cells: Rc<Region>) -> Result<Self, String> {
        let header: [u8; 16] = cells.read(cell::AUDIT);
        let version = u16::from_le_bytes([header[4], header[5]]);
        if header != [0; 16] && (header[..4] != MAGIC || version != VERSION) {
            return Err(format!("audit log: magic {:?}, version {version}; this code reads {VERSION}", &header[..4]));
        }
        let written = cells.read_u64(WRITTEN);
        Ok(Self { cells, written })
    }

    /// Adds an entry; the oldest goes where there are 1,000. Its number does not count.
    pub fn push(&mut self, entry: &AuditEntry) {
        let AuditEntry { method, argument, before, after, result, .. } = entry;
        let mut slot = Vec::with_capacity(cell::AUDIT_LEN);
        slot.extend(self.written.to_le_bytes());
        slot.extend(entry.time.to_le_bytes());
        let texts = [method, argument, before, after, result];
        let texts = texts.iter().zip(&MOST[1..]).map(|(text, &most)| cut(text, most).into_bytes());
        let texts: Vec<Vec<u8>> = [entry.caller.as_slice().to_vec()].into_iter().chain(texts).collect();
        texts.iter().for_each(|text| slot.extend((text.len() as u16).to_le_bytes()));
        texts.iter().for_each(|text| slot.extend(text));
        self.cells.write(slot_of(self.written), &slot);
        self.written += 1;
        let mut header = [0; 16];
        header[..4].copy_from_slice(&MAGIC);
        header[4..6].copy_from_slice(&VERSION.to_le_bytes());
        header[8..].copy_from_slice(&self.written.to_le_bytes());
        self.cells.write(cell::AUDIT, &header);
    }

    /// An entry; none where its slot holds another one, or nothing that this code writes.
    fn entry(&self, number: u64) -> Option<AuditEntry> {
        let slot: [u8; cell::AUDIT_LEN] = self.cells.read(slot_of(number));
        let u64_at = |at: usize| u64::from_le_bytes(slot[at..at + 8].try_into().expect("eight bytes"));
        if u64_at(0) != number {
            return None;
        }
        let mut at = TEXTS;
        let mut parts = (0..MOST.len()).map(|i| {
            let len = usize::from(u16::from_le_bytes([slot[16 + 2 * i], slot[17 + 2 * i]]));
            at += len;
            slot.get(at - len..at).filter(|_| len <= MOST[i])
        });
        let caller = Principal::try_from_slice(parts.next()??).ok()?;
        let mut text = || Some(std::str::from_utf8(parts.next()??).ok()?.to_string());
        Some(AuditEntry {
            number,
            time: u64_at(8),
            caller,
            method: text()?,
            argument: text()?,
            before: text()?,
            after: text()?,
            result: text()?,
        })
    }

    /// The entries before number `cursor`, the newest first; at most 500, and 100 where `limit` is 0. One that cannot be read is left out.
    pub fn page(&self, cursor: Option<u64>, limit: u32) -> AuditPage {
        let limit = if limit == 0 { DEFAULT_PAGE } else { limit.min(MAX_PAGE) };
        let oldest = self.written.saturating_sub(cell::AUDIT_ENTRIES);
        let end = cursor.map_or(self.written, |cursor| cursor.min(self.written));
        let from = end.saturating_sub(u64::from(limit)).max(oldest);
        let entries = (from..end).rev().filter_map(|number| self.entry(number)).collect();
        AuditPage { entries, cursor: (from > oldest && from < end).then_some(from) }
    }
}

impl State {
    /// Changes something for an operator or an admin, and notes that in the audit log: `shown` is what of the state the change is about.
    ///
    /// # Errors
    /// What `change` answers, which is noted too.
    pub fn noting<T, E: Debug>(
        &mut self,
        method: &str,
        argument: impl Into<String>,
        shown: impl Fn(&Self) -> Fields,
        change: impl FnOnce(&mut Self) -> Result<T, E>,
    ) -> Result<T, E> {
        let before = shown(self);
        let result = change(self);
        let (before, after) = fields::differences(&before, &shown(self));
        self.audit.push(&AuditEntry {
            number: 0,
            time: runtime::time_ns(),
            caller: runtime::caller(),
            method: method.into(),
            argument: argument.into(),
            before,
            after,
            result: result.as_ref().map_or_else(|error| format!("{error:?}"), |_| "Ok".into()),
        });
        result
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory;
    use crate::runtime::native;

    fn log() -> AuditLog {
        let cells = Rc::new(memory::region(memory::CELLS));
        cells.reserve(cell::END).unwrap();
        AuditLog::open(cells).unwrap()
    }

    fn fresh() -> AuditLog {
        native::reset();
        memory::forget();
        log()
    }

    fn entry(number: u64) -> AuditEntry {
        AuditEntry {
            number,
            time: 7 + number,
            caller: Principal::from_slice(&[3; 29]),
            method: "set_config".into(),
            argument: format!("{number}"),
            before: "a = 1".into(),
            after: "a = 2".into(),
            result: "Ok".into(),
        }
    }

    #[test]
    fn the_last_thousand_are_kept_over_an_upgrade_and_paged() {
        let mut audit = fresh();
        assert_eq!(audit.page(None, 0), AuditPage { entries: vec![], cursor: None });
        for number in 0..2_345 {
            audit.push(&entry(number));
            if number % 700 == 0 {
                memory::forget();
                audit = log();
            }
        }
        let (mut found, mut cursor) = (Vec::new(), None);
        loop {
            let page = audit.page(cursor, 77);
            assert!(page.entries.len() <= 77);
            found.extend(page.entries);
            cursor = page.cursor;
            if cursor.is_none() {
                break;
            }
        }
        assert_eq!(found, (1_345..2_345).rev().map(entry).collect::<Vec<_>>());
        // A limit of nothing is the default, one of everything the most; a cursor may be any number.
        let page = |cursor, limit| audit.page(cursor, limit);
        assert_eq!((page(None, 0).entries.len(), page(None, u32::MAX).entries.len()), (100, 500));
        assert_eq!(page(None, 1), AuditPage { entries: vec![entry(2_344)], cursor: Some(2_344) });
        assert_eq!(page(Some(u64::MAX), 1), page(None, 1));
        assert_eq!(page(Some(1_346), 5), AuditPage { entries: vec![entry(1_345)], cursor: None });
        for behind in [0, 5, 1_345] {
            assert_eq!(page(Some(behind), 5), AuditPage { entries: vec![], cursor: None });
        }
    }

    #[test]
    fn a_text_that_is_too_long_is_cut_between_two_characters() {
        let mut audit = fresh();
        let [long, wide] = ["x".repeat(5_000), "ß".repeat(5_000)];
        let caller = Principal::from_slice(&[255; 29]);
        for text in [&long, &wide] {
            let [method, argument, before, after, result] = [(); 5].map(|()| text.clone());
            audit.push(&AuditEntry { number: 0, time: u64::MAX, caller, method, argument, before, after, result });
        }
        let page = audit.page(None, 10).entries;
        for (found, text) in page.iter().rev().zip([&long, &wide]) {
            let texts = [&found.method, &found.argument, &found.before, &found.after, &found.result];
            for (cut, most) in texts.into_iter().zip(&MOST[1..]) {
                assert!(cut.len() <= *most && cut.len() + 4 > *most, "{} of {most}", cut.len());
                assert!(cut.strip_suffix('…').is_some_and(|begin| text.starts_with(begin)), "{cut}");
            }
            assert_eq!((found.caller, found.time), (caller, u64::MAX));
        }
        assert_eq!(page.len(), 2);
        assert_eq!(TEXTS + MOST.iter().sum::<usize>(), 2_025, "the longest entry fits its slot of 2,048");
        assert_eq!([cut("abc", 3), cut("abcd", 3), cut("äöü", 5), cut("", 3)], ["abc", "…", "ä…", ""]);
    }

    #[test]
    fn an_entry_that_is_damaged_is_left_out_and_another_version_refused() {
        let mut audit = fresh();
        (0..5).for_each(|number| audit.push(&entry(number)));
        let cells = memory::region(memory::CELLS);
        for (byte, wrong) in [(0, 9), (17, 1), (19, 0xFF), (16, 31), (60, 0xFF)] {
            let at = slot_of(2) + byte;
            let [right] = cells.read(at);
            cells.write(at, &[wrong]);
            let kept: Vec<u64> = audit.page(None, 0).entries.iter().map(|entry| entry.number).collect();
            assert_eq!(kept, [4, 3, 1, 0], "byte {byte}");
            cells.write(at, &[right]);
        }
        assert_eq!(audit.page(None, 0).entries.len(), 5);
        for (byte, wrong) in [(0, b'X'), (4, 0), (4, 2), (5, 1)] {
            let [right] = cells.read(cell::AUDIT + byte);
            cells.write(cell::AUDIT + byte, &[wrong]);
            assert!(AuditLog::open(Rc::new(memory::region(memory::CELLS))).is_err(), "byte {byte}");
            cells.write(cell::AUDIT + byte, &[right]);
        }
    }
}
