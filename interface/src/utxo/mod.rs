//! UTXO records (`utxo-data-model.md`): arguments, answers and errors.
//!
//! Hashes are 32 bytes in internal order. Heights are block heights; 0 is none.

mod read;
mod settings;
mod transaction;
mod write;

pub use read::*;
pub use settings::*;
pub use transaction::*;
pub use write::*;

use candid::CandidType;
use serde::{Deserialize, Serialize};
use serde_bytes::ByteBuf;

/// The largest block height: whatever is added to one still fits 32 bits.
pub const MAX_HEIGHT: u32 = u32::MAX / 2;

/// An output of a transaction.
#[derive(Clone, Debug, PartialEq, Eq, Hash, CandidType, Serialize, Deserialize)]
pub struct Outpoint {
    /// The transaction.
    pub txid: ByteBuf,
    /// Which of its outputs, from 0.
    pub vout: u32,
}

/// Who spends an output: the 36 bytes of spending data.
#[derive(Clone, Debug, PartialEq, Eq, Hash, CandidType, Serialize, Deserialize)]
pub struct Spender {
    /// The spending transaction.
    pub txid: ByteBuf,
    /// Which of its inputs, from 0.
    pub vin: u32,
}

/// A block that has a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, CandidType, Serialize, Deserialize)]
pub struct BlockRef {
    /// The chain's own number of the block: two blocks of one height have different ones.
    pub block_id: u32,
    /// Its height.
    pub height: u32,
    /// The subtree of the block that has the transaction.
    pub subtree: u32,
}

/// What was done of a batch. It is worked through in order within the instructions of one message: what does not fit is
/// not begun, and is to be sent again.
#[derive(Clone, Debug, PartialEq, Eq, CandidType, Serialize, Deserialize)]
pub struct Batch<T> {
    /// An answer for each item that was done, in the order of the items.
    pub results: Vec<T>,
    /// Items at the end of the batch that were not begun.
    pub remaining: u32,
}

/// Why something was refused. Nothing of the item has changed.
#[derive(Clone, Debug, PartialEq, Eq, CandidType, Serialize, Deserialize)]
pub enum UtxoError {
    /// There is no such transaction.
    TxNotFound,
    /// The transaction has a record already.
    TxExists,
    /// The record is being deleted; its blob outside is not gone yet. Or the blob that a new record names is to be deleted.
    BeingDeleted,
    /// Another record names the same blob outside.
    BlobTaken,
    /// The transaction is a double spend.
    Conflicting,
    /// The transaction's outputs cannot be spent yet: `utxo_set_locked`, or a block with it.
    Locked,
    /// A coinbase is spendable at this height.
    CoinbaseImmature {
        /// The first height at which it is.
        spendable_at: u32,
    },
    /// The transaction has no such output, or it is none that can be spent.
    UtxoNotFound,
    /// The output's hash is another one.
    UtxoHashMismatch {
        /// The output's hash.
        stored: ByteBuf,
    },
    /// The output is frozen.
    Frozen,
    /// The output was reassigned, and is spendable at this height.
    FrozenUntil {
        /// The first height at which it is.
        height: u32,
    },
    /// The spender spent this output before, and was pruned since: it is not taken again.
    InvalidSpend,
    /// Another transaction, or another of its inputs, spends the output.
    Spent {
        /// Which.
        by: Spender,
    },
    /// What is to be frozen is.
    AlreadyFrozen,
    /// What is to be unfrozen or reassigned is not frozen.
    UtxoNotFrozen,
    /// No block has the transaction, so that the longest chain has not.
    NotMined,
    /// Only a conflicting transaction can win over the one that it conflicts with.
    NotConflicting,
    /// The winner spends an output of a transaction that loses against a winner.
    WinnerLoses,
    /// The height is 0, which means "none".
    ZeroHeight,
    /// A height is no block's: 2^31 or more.
    BadHeight {
        /// The largest one.
        most: u32,
    },
    /// A hash does not have 32 bytes, or another argument makes no sense.
    BadArgument {
        /// Which.
        field: String,
        /// A sentence.
        why: String,
    },
    /// The bytes are no transaction.
    BadTransaction {
        /// Where, in bytes from the start.
        at: u64,
        /// A sentence.
        why: String,
    },
    /// The transaction has no outputs.
    NoOutputs,
    /// The setting `require_extended` is on, and this input does not say what it spends.
    NotExtended {
        /// Which input, from 0.
        input: u32,
    },
    /// Something is larger than it may be.
    TooLarge {
        /// What.
        what: String,
        /// The most of it.
        limit: u64,
    },
    /// The transactions' data in the BlobStore would be more than `max_external_bytes`.
    ExternalFull {
        /// The most bytes of it.
        limit: u64,
    },
    /// No upload of this transaction is complete.
    NoUpload,
    /// The transaction's bytes are kept outside the canister, there.
    Outside(ExternalStore),
    /// More instructions than a message has would be needed.
    TooMuchWork,
    /// The operator's cap on stable memory is reached, or the platform has no more.
    OutOfSpace,
    /// The balance would not pay for growing.
    LowCycles {
        /// Cycles that are missing.
        missing: u128,
    },
    /// Growing would reserve more cycles for storage than the canister's `reserved_cycles_limit` allows.
    ReservedCyclesLimit {
        /// By so many.
        missing: u128,
    },
    /// The record cannot be decoded; nothing is assumed of it.
    Corrupt {
        /// A sentence.
        why: String,
    },
}
