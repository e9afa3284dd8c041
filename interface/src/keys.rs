//! Lookup of transactions by secondary key.

use crate::BlockHash;
use ic_coppice_macros::candid_type;
use serde_bytes::ByteBuf;
use thiserror::Error;

/// The point that a reader of `find_by_index_key` has reached. A cursor is valid for its key without a time limit:
/// blocks that were appended since are not returned, and pruned blocks are missing.
#[candid_type]
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyCursor {
    /// The block that was read last: all newer blocks were returned.
    pub block_number: u64,
    /// The hash of the block that was read last.
    pub block_hash: BlockHash,
    /// A position in the block that was read last: its transactions from this position on were returned, earlier ones
    /// were not.
    pub position: u32,
    /// The key at which reading continues, as its number in the index segment of the block that was read last, from 0.
    pub key: u32,
    /// The newest block of which a transaction was returned.
    pub newest: u64,
    /// The number of blocks that had ever been rolled back when the page was read.
    pub rollbacks: u64,
}

/// A transaction that has the key.
#[candid_type]
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyTransaction {
    /// The number of the transaction's block.
    pub block_number: u64,
    /// The hash of the transaction's block.
    pub block_hash: BlockHash,
    /// The transaction's position in the block, from 0.
    pub position: u32,
    /// The transaction's id.
    pub id: ByteBuf,
}

/// A page of `find_by_index_key`.
#[candid_type]
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyPage {
    /// The transactions, newest first, each once. A page may have fewer than requested, or none, and still a cursor.
    pub transactions: Vec<KeyTransaction>,
    /// The cursor of the next page; `null` at the end.
    pub cursor: Option<KeyCursor>,
}

/// The reason why there is no page.
#[candid_type]
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum KeyError {
    /// The key is too long.
    #[error("the key has more than {limit} bytes")]
    KeyTooLong {
        /// The length of the longest key, in bytes.
        limit: u64,
    },
    /// Blocks above `common_ancestor` of which transactions were returned are no longer part of the chain, or may not
    /// be.
    #[error("the chain was reorganised above block {common_ancestor}: continue at the cursor of this error")]
    Reorged {
        /// The newest block that the reader's chain and this chain certainly share.
        common_ancestor: u64,
        /// The cursor with which reading continues; `null` if no returned transaction is left: start again without a
        /// cursor.
        cursor: Option<KeyCursor>,
    },
    /// The answer comes from a replica that has not reached the cursor yet: ask again.
    #[error("the replica lags behind the cursor: ask again")]
    Behind {
        /// The number of that replica's head; `null` if it has no block.
        head: Option<u64>,
    },
    /// The chain was reset since the cursor was made: start again without a cursor.
    #[error("the chain was reset: begin again without a cursor")]
    Reset {
        /// The number of the oldest kept block; `null` if there is none.
        first_available: Option<u64>,
    },
    /// No page of this key ended with this cursor.
    #[error("invalid cursor: {why}")]
    BadCursor {
        /// The reason as a sentence.
        why: String,
    },
    /// A kept block cannot be read, so it is unknown which older transactions have the key.
    #[error("block {number} cannot be read: {why}")]
    Corrupt {
        /// The block's number.
        number: u64,
        /// The reason as a sentence.
        why: String,
    },
    /// A reason that this version does not know.
    #[error("{message}")]
    Other {
        /// The reason as a stable word.
        code: String,
        /// The reason as a sentence.
        message: String,
    },
}
