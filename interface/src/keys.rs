//! Looking secondary keys up.

use crate::BlockHash;
use candid::CandidType;
use coppice_macros::native_docs;
use serde::{Deserialize, Serialize};
use serde_bytes::ByteBuf;
use thiserror::Error;

/// How far a reader of `find_by_index_key` is. It is good for the key that it came with, as long as the reader likes: blocks
/// that were appended since are not seen, those that were pruned are not there any more.
#[native_docs]
#[derive(Clone, Debug, PartialEq, Eq, CandidType, Serialize, Deserialize)]
pub struct KeyCursor {
    /// The block that was read last: all that is newer was handed out.
    pub block_number: u64,
    /// The hash of the block that was read last.
    pub block_hash: BlockHash,
    /// A position in the block that was read last: its transactions from this position on were handed out, those before
    /// it are still to come.
    pub position: u32,
    /// The key in the index segment of the block that was read last, from 0, with which the reading goes on.
    pub key: u32,
    /// The newest block of which anything was handed out.
    pub newest: u64,
    /// The number of blocks that had ever been rolled back when the page was read.
    pub rollbacks: u64,
}

/// A transaction that has the key.
#[native_docs]
#[derive(Clone, Debug, PartialEq, Eq, CandidType, Serialize, Deserialize)]
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

/// What `find_by_index_key` hands out at a time.
#[native_docs]
#[derive(Clone, Debug, PartialEq, Eq, CandidType, Serialize, Deserialize)]
pub struct KeyPage {
    /// The transactions, newest first, each once. There may be fewer than were asked for, even none, with a cursor to go on
    /// from.
    pub transactions: Vec<KeyTransaction>,
    /// The cursor with which the next page is asked for; none where there is nothing more.
    pub cursor: Option<KeyCursor>,
}

/// Why there is no page.
#[native_docs]
#[derive(Clone, Debug, PartialEq, Eq, Error, CandidType, Serialize, Deserialize)]
pub enum KeyError {
    /// The key is longer than any may be.
    #[error("the key has more than {limit} bytes")]
    KeyTooLong {
        /// The bytes of the longest key.
        limit: u64,
    },
    /// The blocks above `common_ancestor` of which something was handed out are no longer part of the chain, or not surely.
    #[error("the chain was reorganised above block {common_ancestor}: continue at the cursor of this error")]
    Reorged {
        /// The newest block that the reader's chain and this one surely have in common.
        common_ancestor: u64,
        /// The cursor with which reading goes on; none where nothing of what was handed out is left: begin again, without a
        /// cursor.
        cursor: Option<KeyCursor>,
    },
    /// The answer is of a replica that has not come as far as the cursor yet: ask again.
    #[error("the replica lags behind the cursor: ask again")]
    Behind {
        /// The number of that replica's head; none where it has no block.
        head: Option<u64>,
    },
    /// The chain was reset since the cursor was made: begin again, without a cursor.
    #[error("the chain was reset: begin again without a cursor")]
    Reset {
        /// The oldest block that is kept; none where there is none yet.
        first_available: Option<u64>,
    },
    /// No page of this key ever ended with this cursor.
    #[error("the cursor is of no page: {why}")]
    BadCursor {
        /// The reason as a sentence.
        why: String,
    },
    /// A kept block cannot be read: which older transactions have the key is not known.
    #[error("block {number} cannot be read: {why}")]
    Corrupt {
        /// The block's number.
        number: u64,
        /// The reason as a sentence.
        why: String,
    },
    /// A reason that this version does not name.
    #[error("{message}")]
    Other {
        /// The reason as a stable word.
        code: String,
        /// The reason as a sentence.
        message: String,
    },
}
