//! Audit log: changes by operators and admins, with their callers.
//!
//! All calls of one caller through one method within an hour share an entry, with the state before the first and after the last call, so
//! that a flood of calls does not overwrite the log. A full entry is followed by another, up to four in the hour; the fourth keeps its
//! newest changes. Three rings separate the entries:
//!
//! | ring | entries | calls |
//! |---|---|---|
//! | admins | 1,000 | of admins, controllers included, that changed something |
//! | operators | 1,000 | of other callers that changed something |
//! | unchanged | 500 | that were refused or changed nothing: they are counted only |
//!
//! An entry is written in the message that makes the change, so that neither exists without the other: a trap undoes both. Writing an entry
//! cannot fail, because a ring that gets no memory replaces its oldest entry early, and texts are cut.
//!
//! ```text
//! cell: 0 magic "CPAU"  4 version u16  6 reserved u16  8 entries ever written u64
//!       16 of them in the rings of admins, operators and unchanged u64 × 3  40 reserved, up to 4,096
//! ```

mod entry;
mod fields;
mod ring;

pub use entry::Call;
pub use fields::{Change, Fields, changes, field, fields, named};

use crate::{memory, places};
use entry::{Entry, Head};
use ic_coppice_interface::AuditPage;
use ic_coppice_storage::bytes::{array_at, u64_at};
use ic_coppice_storage::header::Header;
use ic_coppice_storage::{OpenError, Space};
use ring::Ring;
use std::rc::Rc;

const LAYOUT: Header = Header { name: "audit log", magic: *b"CPAU", version: 3 };
/// Bytes of the header.
const HEADER: usize = 40;
/// The ring of admins' changes.
const ADMINS: usize = 0;
/// The ring of other callers' changes.
const OPERATORS: usize = 1;
/// The ring of calls that changed nothing.
const UNCHANGED: usize = 2;
/// Maximum number of entries of one caller and method in an hour.
const IN_AN_HOUR: usize = 4;
/// Maximum entries of a page: 250 entries of 4 KiB, with field names listed twice, fit into a reply.
const MAX_PAGE: u32 = 250;
/// Entries of a page for limit 0.
const DEFAULT_PAGE: u32 = 100;

/// The three rings.
pub struct AuditLog {
    cells: Rc<Space>,
    /// Entries ever written.
    written: u64,
    rings: [Ring; 3],
}

impl AuditLog {
    /// Reads the header; a header that was never written is an empty log.
    pub fn open(cells: Rc<Space>) -> Result<Self, OpenError> {
        let header: [u8; HEADER] = cells.read(places::AUDIT);
        if header != [0; HEADER] {
            LAYOUT.check(&array_at(&header, 0))?;
        }
        let word = |which: usize| u64_at(&header, 8 + 8 * which);
        let ring = |which: usize| -> Result<Ring, OpenError> {
            let space = memory::space(places::AUDIT_RINGS[which])?;
            let slots = ic_coppice_storage::ring::Ring::open(space, places::AUDIT_LEN, places::AUDIT_LENS[which])?;
            Ok(Ring { slots, written: word(1 + which) })
        };
        let rings = [ring(ADMINS)?, ring(OPERATORS)?, ring(UNCHANGED)?];
        Ok(Self { cells, written: word(0), rings })
    }

    /// Adds a call to the entry of its caller and method, or to a new entry, which replaces the ring's oldest if the ring is full.
    pub fn note(&mut self, by_admin: bool, call: &Call, changes: Vec<Change>) {
        let of_caller = if by_admin { ADMINS } else { OPERATORS };
        let which = if changes.is_empty() { UNCHANGED } else { of_caller };
        let ring = &mut self.rings[which];
        let joined = ring.find(call).map(|(head, mut entry)| {
            entry.add(call, changes.clone());
            (head, entry)
        });
        // A flood of changes by one key fills four entries an hour, so it does not overwrite entries of others.
        let may_join = |entry: &Entry| entry.has_room() || ring.recent(call).count() >= IN_AN_HOUR;
        let (head, mut entry) = joined.filter(|(_, entry)| may_join(entry)).unwrap_or_else(|| {
            let head = Head { place: ring.written, number: self.written, first: call.time, key: call.key() };
            self.written += 1;
            let mut entry = Entry::new(call);
            entry.add(call, changes);
            (head, entry)
        });
        ring.write(&head, &entry.encode());
        self.save();
    }

    fn save(&self) {
        let words = [self.written].into_iter().chain(self.rings.iter().map(|ring| ring.written));
        let header: Vec<u8> = LAYOUT.encode().into_iter().chain(words.flat_map(u64::to_le_bytes)).collect();
        self.cells.write(places::AUDIT, &header);
    }

    /// Writes what the heap mirrors anew.
    pub fn rewrite(&self) {
        self.save();
        self.rings.iter().for_each(|ring| ring.slots.rewrite());
    }

    /// The entries of all rings before number `cursor`, newest first; at most 250, and 100 if `limit` is 0. Unreadable entries are left
    /// out.
    pub fn page(&self, cursor: Option<u64>, limit: u32) -> AuditPage {
        let limit = if limit == 0 { DEFAULT_PAGE } else { limit.min(MAX_PAGE) } as usize;
        let older = |head: &Head| cursor.is_none_or(|cursor| head.number < cursor);
        let mut rings = self.rings.each_ref().map(|ring| (ring, ring.heads().filter(older).peekable()));
        let mut entries = Vec::new();
        loop {
            let newest = rings.iter_mut().filter_map(|(ring, heads)| Some((heads.peek()?.number, ring, heads)));
            let Some((number, ring, heads)) = newest.max_by_key(|(number, ..)| *number) else {
                return AuditPage { entries, cursor: None };
            };
            if entries.len() == limit {
                return AuditPage { entries, cursor: Some(number + 1) };
            }
            let head = heads.next();
            entries.extend(head.and_then(|head| Some(ring.entry(&head)?.shown(&head))));
        }
    }
}

#[cfg(test)]
mod tests;
