//! The chain that `coppice get` reads: a canister's, or a copy in a database.

use anyhow::Result;
use ic_coppice_interface::segments::ID;

/// The data of a block besides its payload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Header {
    pub number: u64,
    pub hash: Vec<u8>,
    /// The hash of the previous block; `None` if the canister has lost it.
    pub parent_hash: Option<Vec<u8>>,
    /// Unix seconds, as the chain declares them.
    pub timestamp_secs: u64,
    /// Bytes of body, receipts and index.
    pub lengths: [u64; 3],
    /// SHA-256 of body, receipts and index.
    pub sha256: [Vec<u8>; 3],
    /// True if the subnet vouches for the block, false if only one replica does.
    pub confirmed: bool,
}

/// A transaction's place in the chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    pub number: u64,
    /// Position in the block, from 0.
    pub position: u32,
}

/// A transaction with a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Keyed {
    pub place: Place,
    pub block_hash: Vec<u8>,
    pub id: Vec<u8>,
}

/// Some items of a list, newest first, and the cursor after them if there are more.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct List<T> {
    pub items: Vec<T>,
    pub cursor: Option<String>,
}

/// The part of a list to return.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Page {
    /// The cursor that an earlier page ended with.
    pub cursor: Option<String>,
    pub limit: u32,
}

/// A chain that can be read.
pub trait Chain {
    /// Returns the chain's name for the user.
    fn name(&self) -> String;

    /// Returns a block's header.
    ///
    /// # Errors
    /// When there is no such block, or the chain cannot be read.
    fn header(&mut self, number: u64) -> Result<Header>;

    /// Returns a segment: 0 body, 1 receipts, 2 index. Returns `None` if the chain has no payloads; then an index has only ids, or is
    /// `None`, too.
    ///
    /// # Errors
    /// When the chain cannot be read.
    fn segment(&mut self, header: &Header, segment: u8) -> Result<Option<Vec<u8>>>;

    /// Returns the places of a transaction, newest first: of all blocks, or only the newest.
    ///
    /// # Errors
    /// When the cursor is invalid, or the chain cannot be read.
    fn places(&mut self, id: &[u8; ID], cursor: Option<&str>, limit: u32) -> Result<List<Place>>;

    /// Returns where to look for the transactions of pruned blocks, if the chain has none of these.
    fn where_pruned(&self) -> Option<&'static str>;

    /// Returns the reason why older places of a transaction are not returned, if they are not.
    fn why_only_newest(&self) -> Option<&'static str>;

    /// Returns the transactions with a key, newest first.
    ///
    /// # Errors
    /// When the cursor is invalid, or the chain cannot be read.
    fn with_key(&mut self, key: &[u8], cursor: Option<&str>, limit: u32) -> Result<List<Keyed>>;
}
