//! Reusable stable memory for canisters of the Internet Computer.
//!
//! Stable memory can be grown but never shrunk, every byte grown is billed, and growth can be refused. So each data structure of this
//! crate reserves the memory that an operation needs before it changes anything, reuses freed memory in constant time, and costs the
//! same at any number of entries.
//!
//! | module | holds |
//! |---|---|
//! | [`arena`], [`Growth`] | stable memory and its allocator: slots of 64 KiB to 4 MiB that split and join; growth under a cap and the balance |
//! | [`space`] | addresses of one structure, which grow by leaves of 64 KiB; a structure of another crate may live there |
//! | [`chunks`] | the chunks of an upload |
//! | [`cell`], [`ring`] | small values at fixed places, as CBOR; the last entries of a sequence |
//! | [`blob`] | blobs of up to 4 MiB |
//! | [`slots`] | slots of 128 bytes to 4 MiB in the arena, and ordered indexes that are linked through them |
//! | [`table`], [`HashKey`] | a hash table with bulk removal of old entries (sweeps); the secret key of its hash |
//! | [`Meter`], [`Budget`], [`turns`] | the instructions and pages after which a message's loop ends; what a message's work may take; a way past work that traps |
//! | [`log`] | lines about damage and work |
//!
//! The platform is a type parameter, a [`Platform`]: [`Ic`] on a canister, and [`twin::Twin`], which tests control, in native builds.

pub mod arena;
pub mod blob;
mod budget;
pub mod bytes;
pub mod cbor;
pub mod cell;
pub mod checksum;
pub mod chunks;
mod error;
mod growth;
mod hash_key;
pub mod header;
mod ic;
pub mod log;
mod meter;
mod pages;
mod platform;
mod raw;
pub mod ring;
pub mod slots;
pub mod space;
mod superblock;
pub mod table;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
pub mod turns;
#[cfg(not(target_family = "wasm"))]
pub mod twin;

pub use budget::{Budget, Limit};
pub use error::{GrowError, OpenError};
pub use growth::{Growth, Terms};
pub use hash_key::{HashKey, KEY};
pub use ic::Ic;
pub use meter::Meter;
pub use pages::{Counting, changed_pages};
pub use platform::Platform;
pub use raw::Raw;
pub use space::Space;

/// Nanoseconds of a second.
pub const NS: u64 = 1_000_000_000;
/// Maximum pages of 4 KiB that a message changes: 68 MiB, because the platform slows a canister down above 75 MiB.
pub const MOST_PAGES: u64 = 17_408;
/// Bytes of a WebAssembly page, the unit of stable memory.
pub const WASM_PAGE: u64 = 65_536;
/// Bytes of the pages by which the platform charges reads and writes.
pub const OS_PAGE: u64 = 4_096;

/// The code in README.md compiles and runs.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
