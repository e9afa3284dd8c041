//! Header of the queue, in its first slot: roots of the indexes, numbers of rows by state, and counters.
//!
//! ```text
//! words of 64 bits:  0 "CPDQ" ‖ version u16 ‖ 0   1 next row's number   2 roots of the chains: by name ‖ by number
//!                    3…8 treaps of dead rows, a word for each store type: alone ‖ with a record
//!                    9 treap of rows that back off ‖ slot of the leases   10 next lease's number   11 leases that ended   12 secret
//!                    13 dead rows alone   14…43 rows: 5 states × 6 store types   44… counters; then the lanes
//! ```
//! A dead-letter row without a UTXO record is *alone*; only such rows are dropped if there are too many.

use ic_coppice_interface::{BlobDeletionState, StoreType};
use ic_coppice_storage::bytes::{array_at, u64_at};
use ic_coppice_storage::header::Header;
use ic_coppice_storage::slots::{SlotId, Slots};

const LAYOUT: Header = Header { name: "deletion queue", magic: *b"CPDQ", version: 3 };
/// Number of store types.
pub const STORES: usize = StoreType::ALL.len();
const STATES: usize = BlobDeletionState::ALL.len();
const COUNTS: usize = DEAD + STORES + 5;
const DEAD: usize = 3;
const COUNTERS: usize = COUNTS + STORES * STATES;
const WORDS: usize = COUNTERS + Counter::Dropped as usize + 1;
/// Bytes of the header.
pub const ROOT: u32 = 8 * WORDS as u32;

/// Declares the counters, each with the name of its metric.
macro_rules! counters {
    ($($(#[$doc:meta])* $counter:ident $metric:literal)*) => {
        /// A counter since the queue was created.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Counter {
            $($(#[$doc])* $counter),*
        }

        /// Names of the counters' metrics, in order.
        pub const METRICS: [&str; WORDS - COUNTERS] = [$($metric),*];
    };
}

counters! {
    /// Schedulings of rows.
    Scheduled "pruner_blob_deletion_scheduled_total"
    /// Rows that were cancelled.
    Cancelled "pruner_blob_deletion_cancelled_total"
    /// Rows whose blob was deleted.
    Processed "pruner_blob_deletion_processed_total"
    /// Numbers and names without a row.
    NotFound "pruner_blob_deletion_not_found_total"
    /// Failed deletions.
    Errors "pruner_blob_deletion_errors_total"
    /// Rows that were given up.
    GivenUp "coppice_pruner_blob_deletion_given_up_total"
    /// Acquired leases.
    Acquired "coppice_pruner_blob_deletion_leases_acquired_total"
    /// Extensions of leases.
    Extended "coppice_pruner_blob_deletion_leases_extended_total"
    /// Completed leases.
    Completed "coppice_pruner_blob_deletion_leases_completed_total"
    /// Expired leases.
    Expired "coppice_pruner_blob_deletion_leases_expired_total"
    /// Sum of the seconds from acquiring a lease to completing it.
    Seconds "pruner_blob_deletion_duration_seconds_sum"
    /// Completed leases whose rows of unknown fate returned at expiry.
    Unknown "coppice_pruner_blob_deletion_leases_unknown_total"
    /// Leases ended by an operator, or by a stop of deletions.
    Ended "coppice_pruner_blob_deletion_leases_ended_total"
    /// Dead-letter rows that were dropped because there were too many.
    Dropped "coppice_pruner_blob_deletion_dead_dropped_total"
}

/// Header of the queue, mirrored on the heap and written with each message that changes it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Root {
    pub next_id: u64,
    /// Chains of rows by the hash of the name.
    pub by_name: SlotId,
    /// Chains of rows by number.
    pub by_id: SlotId,
    /// Treap of the rows that back off.
    pub backing_off: SlotId,
    /// Treaps of dead rows by store type: rows without a record, and rows with one.
    pub dead: [[SlotId; 2]; STORES],
    /// Number of dead rows without a record.
    pub dead_alone: u64,
    /// Slot of the leases.
    pub leases: SlotId,
    pub next_lease: u64,
    /// Number of leases that ever ended.
    pub ended: u64,
    /// Secret from which priorities and tokens are made.
    pub secret: u64,
    /// Rows by state and store type.
    pub counts: [[u64; STORES]; STATES],
    /// Values by [`Counter`].
    pub counters: [u64; WORDS - COUNTERS],
}

const fn both(low: SlotId, high: SlotId) -> u64 {
    low as u64 | (high as u64) << 32
}

impl Root {
    /// Returns the header of an empty queue.
    pub fn new(secret: u64) -> Self {
        Self { next_id: 1, next_lease: 1, secret, ..Self::default() }
    }

    /// Reads the header.
    ///
    /// # Errors
    /// A sentence if this code did not write the header.
    pub fn load(slots: &Slots) -> Result<Self, String> {
        if !slots.is_inside(slots.root(), u64::from(ROOT)) {
            return Err("deletion queue: its first slot is too short for the header".into());
        }
        let bytes: [u8; ROOT as usize] = slots.read(slots.root(), 0);
        LAYOUT.check(&array_at(&bytes, 0))?;
        let words: [u64; WORDS] = std::array::from_fn(|at| u64_at(&bytes, 8 * at));
        let halves = |at: usize| (words[at] as u32, (words[at] >> 32) as u32);
        let ((by_name, by_id), (backing_off, leases)) = (halves(2), halves(DEAD + STORES));
        let mut root = Self { next_id: words[1], by_name, by_id, backing_off, leases, ..Self::default() };
        root.dead = std::array::from_fn(|store| halves(DEAD + store).into());
        [root.next_lease, root.ended, root.secret, root.dead_alone] = [4, 3, 2, 1].map(|back| words[COUNTS - back]);
        root.counts.as_flattened_mut().copy_from_slice(&words[COUNTS..COUNTERS]);
        root.counters.copy_from_slice(&words[COUNTERS..]);
        Ok(root)
    }

    /// Writes the header.
    pub fn save(&self, slots: &mut Slots) {
        let mut words = [0; WORDS];
        let layout = u64::from_le_bytes(LAYOUT.encode());
        words[..3].copy_from_slice(&[layout, self.next_id, both(self.by_name, self.by_id)]);
        for (word, [alone, kept]) in words[DEAD..].iter_mut().zip(self.dead) {
            *word = both(alone, kept);
        }
        let more = [both(self.backing_off, self.leases), self.next_lease, self.ended, self.secret, self.dead_alone];
        words[DEAD + STORES..COUNTS].copy_from_slice(&more);
        words[COUNTS..COUNTERS].copy_from_slice(self.counts.as_flattened());
        words[COUNTERS..].copy_from_slice(&self.counters);
        slots.write(slots.root(), 0, words.map(u64::to_le_bytes).as_flattened());
    }

    /// Adds `more` to a counter.
    pub fn tally(&mut self, counter: Counter, more: u64) {
        self.counters[counter as usize] += more;
    }

    /// Returns the number of all rows.
    pub fn rows(&self) -> u64 {
        self.counts.iter().flatten().sum()
    }

    /// Returns the number of rows in a state.
    pub fn count(&self, state: BlobDeletionState) -> u64 {
        self.counts[state as usize].iter().sum()
    }
}
