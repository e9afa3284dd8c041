//! Reasons that several errors share: readiness, memory, heights, arguments, open uploads.

use candid::types::{Serializer, Type, TypeInner};
use candid::{CandidType, Principal};
use ic_coppice_macros::candid_type;
use serde::{Deserialize, Serialize};
use thiserror::Error;

/// The reason why memory was refused.
#[candid_type]
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum NoMemory {
    /// Stable memory has reached the operator's cap (`max_stable_pages`), the platform's limit or the subnet's capacity.
    #[error("stable memory is full: raise max_stable_pages, or let pruning make room")]
    OutOfSpace,
    /// The memory of UTXO records and of the deletion queue has reached `max_utxo_bytes`, and none of it that is free
    /// holds what is new.
    #[error(
        "UTXO records and the deletion queue have reached max_utxo_bytes ({limit}): raise it, or let pruning make room"
    )]
    RecordsFull {
        /// The most bytes that records and rows may touch.
        limit: u64,
    },
    /// The balance would not pay for the growth of memory, or is below `feed_min_liquid_cycles`.
    #[error("cycles are missing: top up the canister")]
    LowCycles {
        /// The number of missing cycles; 0 in the status of a job, because every caller may read the status.
        missing: u128,
    },
    /// Growth would reserve more cycles for storage than the canister's `reserved_cycles_limit` allows.
    #[error(
        "memory would reserve more cycles than reserved_cycles_limit: raise that limit on the platform and in set_config"
    )]
    ReservedCyclesLimit {
        /// The number of cycles above the limit; 0 in the status of a job, because every caller may read the status.
        missing: u128,
    },
}

/// The canister enters nothing yet, because it has not drawn its hash key. It draws the key in the first seconds after an
/// installation; `health` reports a key that is late.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error, Serialize, Deserialize)]
#[error("the canister draws its hash key, which takes some seconds after an installation: send the call again")]
pub struct NotReady;

/// `null`, so that the case of an error has no payload.
impl CandidType for NotReady {
    fn _ty() -> Type {
        TypeInner::Null.into()
    }

    fn idl_serialize<S: Serializer>(&self, serializer: S) -> Result<(), S::Error> {
        serializer.serialize_null(())
    }
}

/// A height that was refused.
#[candid_type]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum BadHeight {
    /// The height is 0; heights begin with 1.
    #[error("the height is 0; heights begin with 1")]
    Zero,
    /// The height is 2^31 or more, or above the highest height that is accepted now. While heights are block numbers, an
    /// empty chain accepts no height.
    #[error("the height is above {most}, the highest that is accepted now")]
    TooHigh {
        /// The highest height that is accepted now.
        most: u32,
    },
}

/// An argument, or a setting, with an invalid value.
#[candid_type]
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{field}: {why}")]
pub struct BadArgument {
    /// The name of the field.
    pub field: String,
    /// The reason as a sentence.
    pub why: String,
}

impl BadArgument {
    /// Returns the error for a field.
    pub fn new(field: &str, why: impl Into<String>) -> Self {
        Self { field: field.into(), why: why.into() }
    }
}

/// The open block upload.
#[candid_type]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("an upload is open: its producer or an operator commits or aborts it")]
pub struct UploadOpen {
    /// The producer that began the upload.
    pub by: Principal,
    /// The moment at which the upload expires unless it is continued, in Unix seconds.
    pub expires_at_secs: u64,
}
