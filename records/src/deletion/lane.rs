//! Lanes: waiting rows by store type and file type, so that a lease does not scan rows that its worker does not serve.
//!
//! ```text
//! 12 + 64 lanes of 48 bytes, after the header's words:
//! 0 root of the treap u32   4 store type u8   5 bytes of the file type u8   6 file type 32   40 rows u64, in all states
//! ```
//! The first twelve lanes, of `tx` and `outputs` in each store, always exist, because UTXO records name these. Each of the other 64 is
//! created for its first row and freed with its last. No two lanes have file types that differ only in case, because a file system that
//! ignores case would have one file for two rows; `tx` and `outputs` are always taken, so that no row can exclude the blob of a record.

use super::answer::Answer;
use super::header::{ROOT, STORES};
use super::row::{MAX_TYPE, Name};
use ic_coppice_interface::{BlobDeletionError, BlobSelector, StoreType};
use ic_coppice_storage::bytes::u64_at;
use ic_coppice_storage::slots::{SlotId, Slots};

/// Maximum lanes besides the fixed ones.
pub const MAX_LANES: usize = 64;
/// File types whose lanes always exist.
const ALWAYS: [&str; 2] = ["tx", "outputs"];
const FIXED: usize = STORES * ALWAYS.len();
const ALL: usize = FIXED + MAX_LANES;
const LANE: u32 = 48;
/// Bytes of the first slot: header and lanes.
pub const ROOT_AND_LANES: u32 = ROOT + LANE * ALL as u32;

/// Rows of a store type and a file type.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lane {
    pub store_type: StoreType,
    pub file_type: String,
    /// Treap of the waiting rows.
    pub waiting: SlotId,
    /// Rows in all states: a lane stays until its last row is removed, so that each row can return to it.
    rows: u64,
}

impl Lane {
    fn new(store_type: StoreType, file_type: &str) -> Self {
        Self { store_type, file_type: file_type.into(), waiting: 0, rows: 0 }
    }

    /// Returns whether stores and selectors name this lane. An empty list of stores names all lanes, as do absent selectors.
    pub fn is_meant(&self, stores: &[StoreType], selectors: Option<&[BlobSelector]>) -> bool {
        let selects = |selector: &BlobSelector| {
            selector.store_type == self.store_type
                && selector.file_type.as_ref().is_none_or(|file_type| *file_type == self.file_type)
        };
        (stores.is_empty() || stores.contains(&self.store_type)) && selectors.is_none_or(|all| all.iter().any(selects))
    }

    fn encode(lane: Option<&Self>) -> [u8; LANE as usize] {
        let mut b = [0; LANE as usize];
        if let Some(Self { store_type, file_type, waiting, rows }) = lane {
            b[..4].copy_from_slice(&waiting.to_le_bytes());
            (b[4], b[5]) = (*store_type as u8, file_type.len() as u8);
            b[6..6 + file_type.len()].copy_from_slice(file_type.as_bytes());
            b[40..48].copy_from_slice(&rows.to_le_bytes());
        }
        b
    }

    fn decode(b: &[u8; LANE as usize], at: usize) -> Result<Option<Self>, String> {
        let rows = u64_at(b, 40);
        if rows == 0 {
            return Ok(None);
        }
        let lane = || {
            let file_type = b.get(6..6 + usize::from(b[5])).filter(|text| text.len() <= MAX_TYPE)?;
            Some(Self {
                store_type: *StoreType::ALL.get(usize::from(b[4]))?,
                file_type: String::from_utf8(file_type.to_vec()).ok()?,
                waiting: u32::from_le_bytes(*b.first_chunk()?),
                rows,
            })
        };
        lane().map(Some).ok_or_else(|| format!("deletion queue: lane {at} cannot be decoded"))
    }
}

/// All lanes, mirrored on the heap.
pub struct Lanes {
    all: Vec<Option<Lane>>,
    changed: [bool; ALL],
}

impl Lanes {
    /// Returns the lanes of an empty queue.
    pub fn new() -> Self {
        let fixed = |at: usize| Lane::new(StoreType::ALL[at / ALWAYS.len()], ALWAYS[at % ALWAYS.len()]);
        Self { all: (0..ALL).map(|at| (at < FIXED).then(|| fixed(at))).collect(), changed: [false; ALL] }
    }

    /// Reads the lanes.
    ///
    /// # Errors
    /// A sentence if this code did not write a lane.
    pub fn load(slots: &Slots) -> Result<Self, String> {
        let mut lanes = Self::new();
        if !slots.is_inside(slots.root(), u64::from(ROOT_AND_LANES)) {
            return Err("deletion queue: its first slot has no lanes".into());
        }
        let mut bytes = Vec::new();
        slots.read_onto(&mut bytes, slots.root(), ROOT, ALL * LANE as usize);
        for (at, b) in bytes.as_chunks().0.iter().enumerate() {
            if let Some(lane) = Lane::decode(b, at)? {
                lanes.all[at] = Some(lane);
            }
        }
        Ok(lanes)
    }

    /// Writes the changed lanes, or all.
    pub fn save(&mut self, slots: &mut Slots, all: bool) {
        for at in (0..ALL).filter(|at| all || self.changed[*at]) {
            slots.write(slots.root(), ROOT + at as u32 * LANE, &Lane::encode(self.all[at].as_ref()));
        }
        self.changed = [false; ALL];
    }

    /// Returns the lanes in use.
    pub fn all(&self) -> impl Iterator<Item = &Lane> {
        self.all.iter().flatten()
    }

    fn find(&self, name: &Name) -> Option<usize> {
        if let Some(at) = ALWAYS.iter().position(|of| *of == name.file_type) {
            return Some(name.store_type as usize * ALWAYS.len() + at);
        }
        let is_it = |lane: &Lane| lane.store_type == name.store_type && lane.file_type == name.file_type;
        self.all.iter().skip(FIXED).position(|lane| lane.as_ref().is_some_and(is_it)).map(|at| FIXED + at)
    }

    /// Checks that a lane for this name exists or can be created.
    ///
    /// # Errors
    /// `OtherCase`, `TooMany`.
    pub fn admit(&self, name: &Name) -> Answer<()> {
        // The lane of a file type has excluded its other spellings.
        if self.find(name).is_some() {
            return Ok(());
        }
        let is_other = |of: &str| of.eq_ignore_ascii_case(name.file_type) && of != name.file_type;
        if let Some(used) = self.all().find(|lane| is_other(&lane.file_type)) {
            return Err(BlobDeletionError::OtherCase { file_type: used.file_type.clone() });
        }
        let has_room = self.all.iter().any(Option::is_none);
        has_room.then_some(()).ok_or(BlobDeletionError::TooMany { limit: MAX_LANES as u64 })
    }

    /// Returns the lane of a new row of this name, after creating the lane if needed. Assumes that the name was
    /// [admitted](Self::admit).
    pub fn enter(&mut self, name: &Name) -> u8 {
        let free = || self.all.iter().position(Option::is_none);
        let at = self.find(name).or_else(free).expect("a lane is free because the name was admitted");
        self.all[at].get_or_insert_with(|| Lane::new(name.store_type, name.file_type)).rows += 1;
        self.changed[at] = true;
        at as u8
    }

    /// Removes a row from this lane's count.
    pub fn leave(&mut self, at: u8) {
        let at = usize::from(at);
        self.changed[at] = true;
        if let Some(lane) = &mut self.all[at] {
            lane.rows = lane.rows.saturating_sub(1);
            if lane.rows == 0 && at >= FIXED {
                self.all[at] = None;
            }
        }
    }

    /// Changes the treap of a lane.
    pub fn change(&mut self, at: u8, change: impl FnOnce(&mut SlotId)) {
        let at = usize::from(at);
        if let Some(lane) = &mut self.all[at] {
            let before = lane.waiting;
            change(&mut lane.waiting);
            self.changed[at] |= lane.waiting != before;
        }
    }
}
