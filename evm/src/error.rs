//! Reasons why a block of the EVM is refused.

use alloy_primitives::B256;

/// A block that is not sent, or not answered with, because it does not prove itself.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Wrong {
    /// A field of the header is not the one that the rest of the block leads to.
    #[error("block {number}: {field} is {found}, and the header has {expected}")]
    Mismatch {
        /// The block's number.
        number: u64,
        /// The name of the field, as in the JSON of the execution API.
        field: &'static str,
        /// The value of the header.
        expected: B256,
        /// The value that was computed.
        found: B256,
    },
    /// The header is not the one with the expected hash.
    #[error("block {number}: hash is {found}, and should be {expected}")]
    Hash {
        /// The block's number.
        number: u64,
        /// The hash under which the block was asked for, or that the node reports.
        expected: B256,
        /// The hash of the header.
        found: B256,
    },
    /// A transaction has a type that this version cannot encode.
    #[error("block {number}: transaction {position} has the unknown type 0x{ty:02x}; known are 0x00 to 0x04 and 0x7e")]
    Type {
        /// The block's number.
        number: u64,
        /// The position of the transaction in the block, from 0.
        position: usize,
        /// The type, or the first byte of the encoding.
        ty: u8,
    },
    /// A part of the block cannot be read.
    #[error("block {number}: {what} cannot be read: {why}")]
    Unreadable {
        /// The block's number.
        number: u64,
        /// The part.
        what: String,
        /// The reason.
        why: String,
    },
    /// Two parts of the block contradict each other.
    #[error("block {number}: {why}")]
    Contradiction {
        /// The block's number.
        number: u64,
        /// The parts, as a sentence.
        why: String,
    },
}

impl Wrong {
    pub(crate) fn unreadable(number: u64, what: impl Into<String>, why: impl ToString) -> Self {
        Self::Unreadable { number, what: what.into(), why: why.to_string() }
    }

    pub(crate) fn contradiction(number: u64, why: impl Into<String>) -> Self {
        Self::Contradiction { number, why: why.into() }
    }
}
