//! Refusals of growth.

/// Why stable memory was not grown. Nothing has changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GrowError {
    /// The operator's cap (`max_stable_pages`), the platform's limit or the subnet's capacity is reached.
    OutOfSpace,
    /// The balance would not pay for the new pages, and leave what the daemon needs.
    LowCycles {
        /// Cycles that are missing.
        missing: u128,
    },
    /// More cycles would be reserved for storage than the canister's settings on the platform allow.
    ReservedCyclesLimit {
        /// Cycles over the limit.
        missing: u128,
    },
    /// The memory of UTXO records has reached its own cap (`max_utxo_bytes`).
    RecordsFull,
    /// Deferred to a separate message: see [`growth::put_off`](super::growth::put_off).
    Later,
}
