//! The chain: blocks, their receipts and their index, from the oldest kept block to the head (`docs/design/blocks.md`).
//!
//! A block's payload goes to the append-only `log`, its metadata to a fixed-size entry in `headers`. Its *references* are its
//! transaction ids and secondary keys. A *posting* is the place of a reference: a block, and a position in the block. A
//! [`HashTable`](ic_coppice_storage::table::HashTable) leads from the hash of an id or key to its newest posting, which is verified against the
//! index segment; a *link* in the log leads from a posting to the one before it.
//!
//! ```text
//! append ──▶ table (id → newest posting)       space TRANSACTION_INDEX
//!        ──▶ table (key → newest posting)      space KEY_INDEX
//!        ──▶ log ──▶ blobs                     LOG_DIRECTORY; body ‖ receipts ‖ index ‖ links of keys and ids, over equal blobs
//!        ──▶ headers                           HEADERS: lengths, hashes, times
//!        ──▶ state                             cell CHAIN: next, log tail
//! ```
//! **One message**, for example `append_block`: the canister (`canister/src/api/endpoints/blocks.rs`) calls `ChainStore::append`, which does
//! every check, reserves memory, and then changes the five structures in the order of the picture. A trap undoes the message.
//!
//! **Between messages**
//!
//! - Readers see the blocks `oldest..next`. Each has a header, and its part of the log in the blobs `log_first..log_end`.
//! - At most one of these is under way: an upload, a rollback, the clearing after a reset. At most one block is partly in the tables.
//! - A posting below the bound ([`ChainState::bound`]) is stale: readers ignore it, and a sweep drops it later.
//!
//! **Files, in reading order**
//!
//! - `state/`, `header`, `headers`, `log`: the stored structures; `directory` locates the parts of the last two. `store` has [`ChainStore`],
//!   which owns them and the two tables.
//! - `draft`: the checks of a new block. `append`: checks, then writes payload and links to the log, references to the tables, and the
//!   header. `batch`: several blocks in one message. `upload/`: the same for a block in chunks.
//! - `postings/`: the references in the two tables and in the log, look-up by key, sweeps. `read`: all other look-ups.
//! - `remove`: the oldest block, for pruning. `rollback`: the head. `reset`: all blocks. `reorgs`: the history that readers need.
//! - `transit`: a block whose references are entered or removed over several messages.
//! - Tests: `tests`, `key_tests`, `damage_tests`, `collisions`; `histories` compares random histories with a model. `testing`: blocks,
//!   chains and damage for tests of all crates. `bench`: functions that only the bench calls.
//!
//! - `export/`: exporters, the guard, and the pages that they pull. `pruning/`: which blocks are deleted, when, and how much of it in one
//!   message. `certified`: certified data. `blocks`: kept blocks for `ic_coppice_records` (the trait `Blocks`).
//! - `places`, `owners`: all spaces, cells and owners of memory.
//!
//! A new operation is a file with methods of [`ChainStore`], and an endpoint of the canister.

mod append;
mod batch;
#[cfg(feature = "bench")]
mod bench;
mod blocks;
pub mod certified;
mod directory;
mod draft;
pub mod export;
mod hash;
mod header;
mod headers;
mod log;
pub mod owners;
pub mod places;
mod postings;
pub mod pruning;
mod read;
mod remove;
mod reorgs;
mod reset;
mod rollback;
mod state;
mod store;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
mod transit;
mod upload;

pub use batch::Batch;
pub use draft::Admission;
pub use hash::{Hash, MAX_HASH};
pub use header::{BlockMeta, Numbers, StoredHeader};
pub use ic_coppice_interface::segments::Segment;
pub use postings::sweep::{IndexTable, TableDebt};
pub use remove::{Removal, Removals, Removed};
pub use reorgs::Rollbacks;
pub use rollback::RolledBack;
pub use state::{ChainState, Sweep};
pub use store::ChainStore;

#[cfg(test)]
mod collisions;
#[cfg(test)]
mod damage_tests;
#[cfg(test)]
mod histories;
#[cfg(test)]
mod key_tests;
#[cfg(test)]
mod tests;
