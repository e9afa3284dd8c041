//! Looking secondary keys up.

use candid::CandidType;
use serde::{Deserialize, Serialize};
use serde_bytes::ByteBuf;

/// How far a reader of `find_by_index_key` is. It is good for the key that it came with, as long as the reader likes: blocks
/// that were appended since are not seen, those that were pruned are not there any more.
#[derive(Clone, Debug, PartialEq, Eq, CandidType, Serialize, Deserialize)]
pub struct KeyCursor {
    /// The block that was read last: all that is newer was handed out.
    pub block_number: u64,
    /// Its hash.
    pub block_hash: ByteBuf,
    /// Of that block the transactions from this position on were handed out, where they have the key.
    pub position: u32,
    /// Which of the keys in that block's index segment was read last, from 0: where the reading goes on.
    pub key: u32,
    /// The newest block of which anything was handed out.
    pub newest: u64,
    /// Blocks that had ever been rolled back when the page was read.
    pub rollbacks: u64,
}

/// A transaction that has the key.
#[derive(Clone, Debug, PartialEq, Eq, CandidType, Serialize, Deserialize)]
pub struct KeyTransaction {
    /// Its block's number.
    pub block_number: u64,
    /// Its block's hash.
    pub block_hash: ByteBuf,
    /// Its position in the block, from 0.
    pub position: u32,
    /// Its id.
    pub id: ByteBuf,
}

/// What `find_by_index_key` hands out at a time.
#[derive(Clone, Debug, PartialEq, Eq, CandidType, Serialize, Deserialize)]
pub struct KeyPage {
    /// Newest first, each transaction once. There may be fewer than were asked for, even none, with a cursor to go on from.
    pub transactions: Vec<KeyTransaction>,
    /// Where the next page starts; none where there is nothing more.
    pub cursor: Option<KeyCursor>,
}

/// Why there is no page.
#[derive(Clone, Debug, PartialEq, Eq, CandidType, Serialize, Deserialize)]
pub enum KeyError {
    /// No key is so long.
    KeyTooLong {
        /// Bytes of the longest.
        limit: u64,
    },
    /// Of what was handed out, everything above `common_ancestor` is no longer part of the chain, or not surely.
    Reorged {
        /// The newest block that the reader's chain and this one surely have in common.
        common_ancestor: u64,
        /// Where to go on; none where nothing of what was handed out is left: begin again, without a cursor.
        cursor: Option<KeyCursor>,
    },
    /// The answer is of a replica that has not come as far as the cursor yet: ask again.
    Behind {
        /// Its head's number.
        head: Option<u64>,
    },
    /// The chain was reset since the cursor was made: begin again, without a cursor.
    Reset {
        /// The oldest block that is kept; none where there is none yet.
        first_available: Option<u64>,
    },
    /// No page of this key ever ended with this cursor.
    BadCursor {
        /// A sentence.
        why: String,
    },
    /// A kept block cannot be read: which older transactions have the key is not known.
    Corrupt {
        /// Its number.
        number: u64,
        /// A sentence.
        why: String,
    },
}
