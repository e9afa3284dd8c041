//! The queue of blobs outside the canister that are to be deleted (`blob-deletion-api.md`, `docs/design.md` 7).
//!
//! **Constraint.** A canister deletes nothing outside: it says what may go, and somebody does it. The pruner schedules
//! thousands of blobs in a tick, and workers take them by height.
//!
//! **Design.** A row is a slot; three ordered indexes lead to it: by name (20 bits of its hash), by number, and by height. A
//! row that was given up leaves the last one for an index of its own. The region is made with the first row: who keeps
//! nothing outside pays for nothing.
//!
//! ```text
//! the first slot: 0 next number u64   8 four lines: by name, by id, by height, dead: root u32, reserved u32, rows u64
//!                 72 seed of the names' hashes u64
//! ```

mod row;

use crate::api::{BlobDeletion, BlobDeletionPage, CompleteBlobDeletions, CompletedBlobDeletions};
use crate::memory::{self, GrowError};
use crate::runtime;
use crate::slots::ring::{self, Rings};
use crate::slots::tree::{MOST_NODES, NODE};
use crate::slots::{FIRST_SLOT, SlotId, Slots};
pub use row::BlobName;
use row::{Row, at};
use serde_bytes::ByteBuf;
use std::collections::BTreeSet;
use xxhash_rust::xxh3::xxh3_64_with_seed;

/// Rows of one answer.
const MAX_ROWS: u32 = 1_000;
/// Rows of one answer where the caller does not say.
const DEFAULT_ROWS: u32 = 100;
const ROOT: u32 = 80;
/// Bits of a name's hash by which it is found: rows under each stay few up to some million rows.
const NAME_BITS: u32 = 20;

/// The queue.
pub struct DeletionQueue {
    slots: Option<Slots>,
    root: Root,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Root {
    next_id: u64,
    by_name: Rings,
    by_id: Rings,
    by_height: Rings,
    dead: Rings,
    hash_seed: u64,
}

/// What scheduling came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scheduled {
    /// The row waits, and the record goes with it.
    Waits(u64),
    /// The row waits already, for another record.
    Another(u64),
}

/// What is with the record that goes with a completed row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecordEnd {
    /// It is gone, or goes by itself.
    Gone,
    /// It made difficulties, and is still there.
    Kept,
}

/// What the queue's owner has a say in when rows are completed.
pub trait Completion {
    /// Whether the message has room for another row, behind so many.
    fn goes_on(&mut self, rows: u64) -> bool;

    /// Takes out the record that goes with a row.
    fn record_end(&mut self, txid: &[u8; 32]) -> RecordEnd;
}

impl Root {
    fn load(slots: &Slots) -> Self {
        let b: [u8; ROOT as usize] = slots.read(FIRST_SLOT, 0);
        let long = |at: usize| u64::from_le_bytes(*b[at..].first_chunk().expect("eight bytes"));
        let rings = |line: usize| Rings { tree: long(8 + 16 * line) as u32, count: long(16 + 16 * line) };
        Self {
            next_id: long(0),
            by_name: rings(0),
            by_id: rings(1),
            by_height: rings(2),
            dead: rings(3),
            hash_seed: long(72),
        }
    }

    fn save(&self, slots: &mut Slots) {
        let mut bytes = Vec::from(self.next_id.to_le_bytes());
        for rings in [self.by_name, self.by_id, self.by_height, self.dead] {
            bytes.extend(u64::from(rings.tree).to_le_bytes());
            bytes.extend(rings.count.to_le_bytes());
        }
        bytes.extend(self.hash_seed.to_le_bytes());
        slots.write(FIRST_SLOT, 0, &bytes);
    }
}

fn slots() -> Result<Slots, String> {
    Slots::open(memory::region(memory::DELETIONS))
}

impl DeletionQueue {
    /// Opens the queue, where there is one, or one that hashes with this seed. The cost does not depend on the number of rows.
    ///
    /// # Errors
    /// A sentence that says what is wrong with it.
    pub fn open(hash_seed: u64) -> Result<Self, String> {
        if memory::region(memory::DELETIONS).is_empty() {
            return Ok(Self { slots: None, root: Root { next_id: 1, hash_seed, ..Root::default() } });
        }
        let slots = slots()?;
        Ok(Self { root: Root::load(&slots), slots: Some(slots) })
    }

    /// Rows that wait.
    pub fn pending_count(&self) -> u64 {
        self.root.by_height.count
    }

    /// Rows that were given up.
    pub fn dead_count(&self) -> u64 {
        self.root.dead.count
    }

    fn hash(&self, name: &BlobName) -> u32 {
        (xxh3_64_with_seed(&name.bytes(), self.root.hash_seed) >> (64 - NAME_BITS)) as u32
    }

    /// Has a blob deleted from a height on; with it goes the record of a transaction. A row of this name that is there
    /// already keeps its number, gets the height, and is tried from the start.
    ///
    /// # Errors
    /// [`GrowError`], and nothing has changed.
    pub fn schedule(&mut self, name: &BlobName, height: u32, txid: &[u8; 32]) -> Result<Scheduled, GrowError> {
        if self.slots.is_none() {
            let mut slots = slots().map_err(|why| {
                runtime::log(&format!("deletion queue: {why}"));
                GrowError::OutOfSpace
            })?;
            slots.allocate(ROOT)?;
            self.root.save(&mut slots);
            self.slots = Some(slots);
        }
        let hash = self.hash(name);
        let Self { slots: Some(slots), root, .. } = self else { return Err(GrowError::OutOfSpace) };
        slots.reserve(&[(name.row_len(), 1), (NODE, 3 * MOST_NODES as u32)])?;
        let mut rows = root.by_name.under(slots, at::BY_NAME, hash);
        let named = rows.find_map(|slot| Some((slot, Row::read(slots, slot).filter(|row| row.is_named(name))?)));
        drop(rows);
        if let Some((slot, mut row)) = named {
            let id = row.shown.id;
            if row.shown.txid.as_ref().is_some_and(|other| other.as_slice() != txid) {
                return Ok(Scheduled::Another(id));
            }
            leave(slots, root, slot, row.dead);
            row.dead = false;
            (row.shown.delete_at_height, row.shown.retry_count, row.shown.last_retry_at) = (height, 0, 0);
            row.shown.txid = Some(ByteBuf::from(*txid));
            row.write(slots, slot, false);
            root.by_height.enter(slots, at::BY_HEIGHT, slot, height);
            root.save(slots);
            return Ok(Scheduled::Waits(id));
        }
        let shown = BlobDeletion {
            id: root.next_id,
            blob_key: ByteBuf::from(name.key),
            file_type: name.file_type.into(),
            store_type: name.store_type,
            delete_at_height: height,
            retry_count: 0,
            last_retry_at: 0,
            txid: Some(ByteBuf::from(*txid)),
        };
        let slot = slots.allocate(name.row_len())?;
        Row { shown, dead: false }.write(slots, slot, true);
        root.by_name.enter(slots, at::BY_NAME, slot, hash);
        root.by_id.enter(slots, at::BY_ID, slot, root.next_id as u32);
        root.by_height.enter(slots, at::BY_HEIGHT, slot, height);
        root.next_id += 1;
        root.save(slots);
        Ok(Scheduled::Waits(root.next_id - 1))
    }

    fn find(&self, id: u64) -> Option<(SlotId, Row)> {
        let slots = self.slots.as_ref()?;
        let mut rows = self.root.by_id.under(slots, at::BY_ID, id as u32);
        rows.find_map(|slot| Some((slot, Row::read(slots, slot).filter(|row| row.shown.id == id)?)))
    }

    /// Rows that may be deleted at a height, by height and then as they came; 0 rows: a hundred.
    pub fn pending(&self, height: u32, limit: u32) -> Vec<BlobDeletion> {
        let Some(slots) = &self.slots else { return Vec::new() };
        let limit = if limit == 0 { DEFAULT_ROWS } else { limit.min(MAX_ROWS) } as usize;
        let mut rows = Vec::new();
        let mut from = Some(0);
        while let Some((key, _)) = from.and_then(|from| self.root.by_height.next(slots, from))
            && key <= height
            && rows.len() < limit
        {
            let under = self.root.by_height.under(slots, at::BY_HEIGHT, key);
            rows.extend(under.filter_map(|slot| Some(Row::read(slots, slot)?.shown)).take(limit - rows.len()));
            from = key.checked_add(1);
        }
        rows
    }

    /// Rows that were given up, by number; 0 rows: a hundred.
    pub fn dead(&self, cursor: Option<u64>, limit: u32) -> BlobDeletionPage {
        let Some(slots) = &self.slots else { return BlobDeletionPage { rows: Vec::new(), cursor: None } };
        let limit = if limit == 0 { DEFAULT_ROWS } else { limit.min(MAX_ROWS) } as usize;
        let mut rows: Vec<BlobDeletion> = Vec::new();
        let mut from = Some(cursor.unwrap_or(0) as u32);
        while let Some((key, _)) = from.and_then(|from| self.root.dead.next(slots, from)) {
            if rows.len() >= limit {
                return BlobDeletionPage { rows, cursor: Some(u64::from(key)) };
            }
            let under = self.root.dead.under(slots, at::BY_HEIGHT, key);
            rows.extend(under.filter_map(|slot| Some(Row::read(slots, slot)?.shown)));
            from = key.checked_add(1);
        }
        BlobDeletionPage { rows, cursor: None }
    }

    /// Has a row tried again that was given up.
    ///
    /// # Errors
    /// `None` inside where there is no such row; [`GrowError`], and nothing has changed.
    pub fn revive(&mut self, id: u64) -> Result<Option<BlobDeletion>, GrowError> {
        let Some((slot, mut row)) = self.find(id).filter(|(_, row)| row.dead) else { return Ok(None) };
        let Self { slots: Some(slots), root, .. } = self else { return Ok(None) };
        slots.reserve(&[(NODE, MOST_NODES as u32)])?;
        leave(slots, root, slot, true);
        row.dead = false;
        row.shown.retry_count = 0;
        row.write(slots, slot, false);
        root.by_height.enter(slots, at::BY_HEIGHT, slot, row.shown.delete_at_height);
        root.save(slots);
        Ok(Some(row.shown))
    }

    /// Gives a row up. Where there is no memory for that it waits on.
    fn give_up(&mut self, slot: SlotId, mut row: Row) -> bool {
        let Self { slots: Some(slots), root, .. } = self else { return false };
        if slots.reserve(&[(NODE, MOST_NODES as u32)]).is_err() {
            row.write(slots, slot, false);
            return false;
        }
        leave(slots, root, slot, row.dead);
        row.dead = true;
        row.write(slots, slot, false);
        root.dead.enter(slots, at::BY_HEIGHT, slot, row.shown.id as u32);
        root.save(slots);
        true
    }

    fn remove(&mut self, slot: SlotId, row: &Row) {
        let Self { slots: Some(slots), root, .. } = self else { return };
        leave(slots, root, slot, row.dead);
        let (name, id) = (ring::link(slots, slot, at::BY_NAME), ring::link(slots, slot, at::BY_ID));
        root.by_name.leave(slots, at::BY_NAME, slot, name, false);
        root.by_id.leave(slots, at::BY_ID, slot, id, false);
        slots.free(slot);
        root.save(slots);
    }

    /// Takes note of what a worker did, row by row as far as a message goes: a row wholly or not at all. Rows that the queue does
    /// not know, and those that were given up already and failed again, are passed over.
    pub fn complete(
        &mut self,
        arg: &CompleteBlobDeletions,
        now_ns: u64,
        completion: &mut impl Completion,
    ) -> CompletedBlobDeletions {
        let completed: BTreeSet<u64> = arg.completed_ids.iter().copied().collect();
        let ids = arg.completed_ids.iter().map(|id| (*id, true));
        let ids = ids.chain(arg.failed_ids.iter().map(|id| (*id, false)));
        let mut done = CompletedBlobDeletions::default();
        let mut seen = BTreeSet::new();
        let mut begun = 0;
        for (id, is_gone) in ids {
            if begun > 0 && !completion.goes_on(begun) {
                break;
            }
            begun += 1;
            if !seen.insert((id, is_gone)) {
                continue;
            }
            if is_gone {
                self.succeeded(id, completion, &mut done);
            } else if !completed.contains(&id) {
                self.failed(id, arg.max_retries, now_ns, &mut done);
            }
        }
        done.remaining = (arg.completed_ids.len() + arg.failed_ids.len()) as u64 - begun;
        done
    }

    fn succeeded(&mut self, id: u64, completion: &mut impl Completion, done: &mut CompletedBlobDeletions) {
        let Some((slot, row)) = self.find(id) else { return };
        let txid = row.shown.txid.as_ref().and_then(|txid| <&[u8; 32]>::try_from(txid.as_slice()).ok());
        match txid.map_or(RecordEnd::Gone, |txid| completion.record_end(txid)) {
            RecordEnd::Gone => self.remove(slot, &row),
            RecordEnd::Kept if row.dead => return,
            RecordEnd::Kept if self.give_up(slot, row) => done.dead += 1,
            RecordEnd::Kept => return,
        }
        done.removed += 1;
    }

    fn failed(&mut self, id: u64, max_retries: u32, now_ns: u64, done: &mut CompletedBlobDeletions) {
        let Some((slot, mut row)) = self.find(id).filter(|(_, row)| !row.dead) else { return };
        row.shown.retry_count += 1;
        row.shown.last_retry_at = now_ns;
        if row.shown.retry_count >= max_retries.max(1) {
            if row.shown.txid.is_none() {
                self.remove(slot, &row);
                done.removed += 1;
            } else if self.give_up(slot, row) {
                done.removed += 1;
                done.dead += 1;
            } else {
                done.retries_incremented += 1;
            }
        } else if let Some(slots) = &mut self.slots {
            row.write(slots, slot, false);
            done.retries_incremented += 1;
        }
    }
}

/// Takes a row from those that wait, or from those that were given up.
fn leave(slots: &mut Slots, root: &mut Root, slot: SlotId, dead: bool) {
    let link = ring::link(slots, slot, at::BY_HEIGHT);
    let rings = if dead { &mut root.dead } else { &mut root.by_height };
    rings.leave(slots, at::BY_HEIGHT, slot, link, true);
}

#[cfg(test)]
mod tests;
