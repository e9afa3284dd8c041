//! The chain: blocks, their receipts and their index, from the oldest kept block to the head.
//!
//! A block's payload goes to the append-only `log`, its metadata to a fixed-size entry in `records`, and each of its transaction
//! ids and secondary keys to a [`HashTable`](crate::storage::HashTable), whose values are verified against the index segment.
//! An append does every check and reserves all memory before it changes the first of the five structures.
//!
//! ```text
//! append ──▶ table (id → newest posting)
//!        ──▶ table (key → newest posting)
//!        ──▶ log ──▶ blobs        body ‖ receipts ‖ index ‖ links of keys and ids, over equal blobs
//!        ──▶ records              lengths, hashes, times
//!        ──▶ state                next, log tail
//! ```

mod append;
mod draft;
mod log;
mod postings;
mod read;
mod records;
mod remove;
mod reorgs;
mod reset;
mod rollback;
mod state;
mod store;
mod transit;
mod upload;

pub use coppice_interface::segments::Segment;
pub use draft::Admission;
pub use postings::pages::MAX_KEY_PAGE;
pub use postings::sweep::{IndexTable, TableDebt};
pub use records::{BlockMeta, BlockRecord, Hash, MAX_HASH};
pub use remove::{Removal, Removals, Removed};
pub use reorgs::Rollbacks;
pub use rollback::RolledBack;
pub use state::{ChainState, Sweep};
pub use store::ChainStore;
pub use upload::MAX_CHUNK;

#[cfg(test)]
mod damage_tests;
#[cfg(test)]
mod histories;
#[cfg(test)]
mod key_tests;
#[cfg(test)]
mod tests;
