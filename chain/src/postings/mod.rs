//! Postings: newest positions of transaction ids and keys in the two tables, and links to older ones in the log.
//!
//! ```text
//! table: hash of an id or key ──▶ posting in block 9 ──link──▶ posting in block 4 ──link──▶ block 2, pruned: the list ends
//! ```
//! A posting is a u64: 40 bits for the block, counted as [`ChainState::counted`](super::ChainState::counted) does, and 24 for the
//! position. `ids` and `keys` enter and remove references, `links` has the format that they share, `pages` reads the list of a key, and
//! `sweep` drops stale entries. Single ids are read in `read.rs`.

use crate::header::BlockMeta;
use ic_coppice_interface::segments::Index;
use ic_coppice_storage::blob::BlobStore;

pub mod ids;
pub mod keys;
pub mod links;
pub mod pages;
pub mod sweep;

/// A block whose references are entered or removed, and the blobs of the log, which has the links.
pub(crate) struct Indexed<'a> {
    pub blobs: &'a BlobStore,
    pub meta: &'a BlockMeta,
    /// The block's index segment.
    pub index: &'a Index<'a>,
}
