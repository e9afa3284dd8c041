//! Limits and units of the platform.

/// Nanoseconds of a second.
pub const NS: u64 = 1_000_000_000;

/// Bytes of payload in one reply: 2 MiB less room for everything else that a reply holds.
pub const MAX_REPLY: u64 = (2 << 20) - (64 << 10);

/// Pages of 4 KiB that a message changes at most: 68 MiB, of the 75 above which the platform slows a canister down.
pub const MOST_PAGES: u64 = 17_408;
