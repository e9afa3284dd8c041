//! Head of an entry: its place, number, time and key, in 36 bytes before the CBOR.

use crate::places;

/// Bytes before an entry.
pub const HEAD: usize = 36;
/// Bytes of the longest entry.
pub const MOST: usize = places::AUDIT_LEN - HEAD;
/// An entry's head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Head {
    /// Number of the entry within its ring.
    pub place: u64,
    /// Number of the entry over all rings.
    pub number: u64,
    /// The time of the first call, in Unix nanoseconds.
    pub first: u64,
    /// Hash of caller and method.
    pub key: u64,
}
