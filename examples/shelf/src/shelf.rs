//! The newest documents in stable memory: one store of blobs, one swept index, and a ring of pointers.
//!
//! ```text
//! name ──▶ index: number of the newest document ──▶ ring: pointer ──▶ blob: length of the name u8 ‖ name ‖ content
//!
//! cells: ┌─ state ─┬─ ring: 1,500 pointers of 24 bytes ─┐
//!        0         4,096
//! ```
//! An index entry goes stale when its document leaves the ring. Entries are not removed one by one: after each 1,500 documents a sweep
//! begins, and each document does one slice of it. Two names with one hash replace each other, as one pair in 2^64 does. Callers choose
//! names, so names are hashed under a secret key, which is set before the first document.

use ic_coppice_storage::arena::{Arena, Owner, Shares};
use ic_coppice_storage::blob::{BlobPtr, BlobStore};
use ic_coppice_storage::cell::Cell;
use ic_coppice_storage::header::Header;
use ic_coppice_storage::table::HashTable;
use ic_coppice_storage::{HashKey, KEY, Meter, Platform, Space, Terms};
use serde::{Deserialize, Serialize};

/// Documents that are kept.
pub const KEPT: u64 = 1_500;
/// Maximum length of a name, in bytes.
pub const MAX_NAME: usize = 255;
/// Maximum length of a document's content, in bytes.
pub const MAX_CONTENT: usize = 1 << 20;

const CELLS: u8 = 0;
const INDEX: u8 = 1;
const DOCUMENTS: Owner = Owner::new(0);
const NAMES: Owner = Owner::new(1);
const SHARES: Shares = Shares { spaces: Owner::new(2), strays: Owner::new(3), counted: &[] };
/// A growth must leave the cycles of a call.
const TERMS: Terms = Terms { nodes: 13, reserved_cycles_limit: u128::MAX, kept: 100_000_000 };
const STATE: Cell = Cell { at: 0, capacity: 4_096, header: Header { name: "shelf", magic: *b"SHLF", version: 2 } };
/// Bytes of a pointer.
const POINTER: u64 = 24;
const POINTERS: u64 = 4_096;

#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
struct State {
    /// Documents that were ever put.
    written: u64,
    /// The bucket at which the sweep of the index continues, if one is running.
    sweep: Option<u64>,
    /// The hash key of the index, once it is set.
    key: Option<[u8; KEY]>,
}

/// The memory of a shelf.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Memory {
    /// Entries of the index, stale ones included.
    pub entries: u64,
    /// Bytes of all documents.
    pub documents: u64,
    /// Bytes of the index.
    pub index: u64,
    /// Bytes that the platform bills.
    pub billed: u64,
}

/// The newest documents.
pub struct Shelf<P: Platform> {
    cells: Space<P>,
    arena: Arena<P>,
    blobs: BlobStore<P>,
    index: HashTable<P>,
    key: HashKey,
    state: State,
}

impl<P: Platform> Shelf<P> {
    /// Opens the shelf in stable memory, or makes an empty one.
    ///
    /// # Errors
    /// A sentence: memory is refused, or another layout was found.
    pub fn open() -> Result<Self, String> {
        let arena = Arena::open(SHARES, TERMS)?;
        let cells = Space::open(&arena, CELLS)?;
        cells.reserve(POINTERS + KEPT * POINTER).map_err(|error| error.to_string())?;
        let blobs = BlobStore::open(arena.clone());
        let state: State = STATE.load(&cells)?.unwrap_or_default();
        let key = state.key.map_or_else(HashKey::default, HashKey::of);
        let index = HashTable::open(Space::open(&arena, INDEX)?, arena.clone(), NAMES, key.clone())?;
        Ok(Self { cells, arena, blobs, index, key, state })
    }

    /// Returns whether the hash key is set.
    pub fn is_keyed(&self) -> bool {
        self.key.is_set()
    }

    /// Stores the hash key, then sets it. A key that is set stays.
    pub fn set_key(&mut self, bytes: [u8; KEY]) {
        if !self.is_keyed() {
            self.state.key = Some(bytes);
            STATE.keep(&self.cells, &self.state);
            self.key.set(bytes);
        }
    }

    /// Puts a document, in place of the oldest one if the shelf is full, and returns its number.
    ///
    /// # Errors
    /// A sentence: there is no hash key, the document is too long, or memory is refused. Nothing has changed.
    pub fn put(&mut self, name: &str, content: &[u8]) -> Result<u64, String> {
        if !self.is_keyed() {
            return Err("the hash key is not set".into());
        }
        if name.len() > MAX_NAME || content.len() > MAX_CONTENT {
            return Err(format!("a name has at most {MAX_NAME} bytes, and a document {MAX_CONTENT}"));
        }
        let length = [name.len() as u8];
        let document = [&length, name.as_bytes(), content].concat();
        // The index has its memory before anything changes, so that its entry is not refused after the blob was made.
        self.index.reserve(1).map_err(|error| error.to_string())?;
        let blob = self.blobs.store(&document, DOCUMENTS).map_err(|error| error.to_string())?;
        let number = self.state.written;
        if let Some(oldest) = number.checked_sub(KEPT) {
            self.drop_document(oldest);
        }
        self.cells.write(slot(number), &encode(blob));
        if let Err(error) = self.index.put(self.index.hash(name.as_bytes()), number) {
            P::trap(&error.to_string());
        }
        self.state.written += 1;
        self.sweep();
        STATE.keep(&self.cells, &self.state);
        self.arena.end_reservations();
        Ok(number)
    }

    /// Returns the newest document of a name.
    pub fn get(&self, name: &str) -> Option<Vec<u8>> {
        let number = self.index.get(self.index.hash(name.as_bytes()))?;
        if !kept(self.state.written).contains(&number) {
            return None;
        }
        let document = self.blobs.read(&self.pointer(number)).ok()?;
        let (&length, rest) = document.split_first()?;
        let (of, content) = rest.split_at_checked(length.into())?;
        (of == name.as_bytes()).then(|| content.to_vec())
    }

    /// Returns the memory in use.
    pub fn memory(&self) -> Memory {
        Memory {
            entries: self.index.stats().entries,
            documents: self.arena.kept_bytes(DOCUMENTS),
            index: self.arena.kept_bytes(NAMES),
            billed: self.arena.billed_pages() * ic_coppice_storage::WASM_PAGE,
        }
    }

    fn pointer(&self, number: u64) -> BlobPtr {
        decode(self.cells.read(slot(number)))
    }

    /// Frees a document. This message overwrites the only pointer to its blob, so the memory may be used again at once.
    fn drop_document(&mut self, number: u64) {
        let blob = self.pointer(number);
        if let Err(error) = self.blobs.free(&blob).and_then(|_| self.blobs.release(&blob)) {
            P::trap(&format!("document {number}: {error}"));
        }
    }

    /// Sweeps a slice of the index if a sweep is running or due.
    fn sweep(&mut self) {
        let written = self.state.written;
        let due = written.is_multiple_of(KEPT).then_some(0);
        if let Some(bucket) = self.state.sweep.or(due) {
            let oldest = kept(written).start;
            self.state.sweep = self.index.sweep(bucket, oldest, oldest, Meter::unlimited()).next;
        }
    }
}

/// Returns the numbers of the kept documents when `written` were ever put.
fn kept(written: u64) -> std::ops::Range<u64> {
    written.saturating_sub(KEPT)..written
}

/// Returns the offset of a document's pointer.
fn slot(number: u64) -> u64 {
    POINTERS + number % KEPT * POINTER
}

/// Encodes a pointer: offset u64, and length, class and generation u32.
fn encode(blob: BlobPtr) -> [u8; 24] {
    let both = |low: u32, high: u32| u64::from(low) | u64::from(high) << 32;
    let words = [blob.offset, both(blob.len, blob.class), blob.generation.into()].map(u64::to_le_bytes);
    words.as_flattened().try_into().expect("three words")
}

fn decode(bytes: [u8; 24]) -> BlobPtr {
    let word = |at: usize| u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
    let offset = u64::from(word(0)) | u64::from(word(4)) << 32;
    BlobPtr { offset, len: word(8), class: word(12), generation: word(16) }
}
