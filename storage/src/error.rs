//! Errors of growing memory and of opening a layout.

use thiserror::Error;

/// Reasons why stable memory was not grown. Nothing has changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum GrowError {
    /// The cap on stable memory, the platform's limit or the subnet's capacity is reached.
    #[error("stable memory is used up")]
    OutOfSpace,
    /// The balance cannot pay for the new pages and also keep the required cycles.
    #[error("cycles are missing for memory to grow")]
    LowCycles {
        /// Cycles that are missing.
        missing: u128,
    },
    /// More cycles would be reserved for storage than the canister's platform settings allow.
    #[error("growing memory would reserve more cycles than reserved_cycles_limit")]
    ReservedCyclesLimit {
        /// Cycles over the limit.
        missing: u128,
    },
    /// The owners that count towards the quota have used it up.
    #[error("the quota of {limit} bytes is used up")]
    QuotaFull {
        /// The quota in bytes.
        limit: u64,
    },
    /// Deferred to a separate message: see [`Growth::put_off`](crate::Growth::put_off).
    #[error("memory growth is deferred to a separate message")]
    Later,
}

/// Reasons why a layout in stable memory cannot be opened. The contents of an unreadable layout are never guessed.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum OpenError {
    /// Another layout or another version was found.
    #[error("{name}: magic {}, version {}; this code reads {}, version {}", quoted(&.found.0), .found.1, quoted(&.expected.0), .expected.1)]
    Header {
        /// Name of the layout.
        name: &'static str,
        /// The magic and the version that the code reads.
        expected: ([u8; 4], u16),
        /// The magic and the version that were found.
        found: ([u8; 4], u16),
    },
    /// Memory for a new layout was refused.
    #[error("{name}: {why}")]
    Grow {
        /// Name of the layout.
        name: &'static str,
        /// The reason.
        why: GrowError,
    },
    /// The checksum is wrong.
    #[error(
        "{name}: damaged in stable memory. A running canister has a copy, which `pre_upgrade` writes anew: upgrade again, and do not skip it"
    )]
    Damaged {
        /// Name of the layout.
        name: &'static str,
    },
    /// The layout contradicts itself.
    #[error("{name}: {why}")]
    Corrupt {
        /// Name of the layout.
        name: &'static str,
        /// The contradiction.
        why: String,
    },
}

fn quoted(bytes: &[u8; 4]) -> String {
    format!("\"{}\"", bytes.escape_ascii())
}

impl From<OpenError> for String {
    fn from(error: OpenError) -> Self {
        error.to_string()
    }
}
