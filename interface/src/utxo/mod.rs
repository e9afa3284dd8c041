//! UTXO records: arguments, answers and errors.
//!
//! Hashes are 32 bytes in internal order. Heights are block heights, from 1; an absent height is an empty option.

mod applying;
mod error;
mod external;
mod read;
mod settings;
mod transaction;
mod write;

pub use applying::*;
pub use error::*;
pub use external::*;
pub use read::*;
pub use settings::*;
pub use transaction::*;
pub use write::*;

use crate::Txid;
use ic_coppice_macros::candid_type;

/// The largest block height, small enough that its sum with a number of blocks fits 32 bits.
pub const MAX_HEIGHT: u32 = u32::MAX / 2;

/// An output of a transaction.
#[candid_type]
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Outpoint {
    /// The transaction that has the output.
    pub txid: Txid,
    /// The output's number in its transaction, from 0.
    pub vout: u32,
}

/// The spender of an output: the 36 bytes of spending data.
#[candid_type]
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Spender {
    /// The spending transaction.
    pub txid: Txid,
    /// The input of the spending transaction, from 0.
    pub vin: u32,
}

/// A block that has a transaction.
#[candid_type]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BlockRef {
    /// The chain's own number of the block; two blocks of one height have different numbers.
    pub block_id: u32,
    /// The block's height.
    pub height: u32,
    /// The subtree of the block that has the transaction.
    pub subtree: u32,
}

/// Outcome of a batch. Items are handled in order, within the instructions of one message; items that do not fit are
/// not begun, and must be sent again.
#[candid_type]
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Batch<T> {
    /// The answers of the items that were handled, in the order of the items.
    pub results: Vec<T>,
    /// The number of items at the end of the batch that were not begun.
    pub remaining: u32,
}
