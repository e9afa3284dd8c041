//! Limits and units of the platform.

/// Nanoseconds of a second.
pub const NS: u64 = 1_000_000_000;

/// Bytes of payload in one reply: 2 MiB less 64 KiB for everything else in a reply.
pub const MAX_REPLY: u64 = (2 << 20) - (64 << 10);

/// Maximum pages of 4 KiB that a message changes: 68 MiB, because the platform slows a canister down above 75 MiB.
pub const MOST_PAGES: u64 = 17_408;
