//! Types of the Candid interface (`candid/coppice.did`), one file for each area. With feature `storage`: `blocks` (the
//! functions of a chain that applying calls) and `storage` (conversions).

// In the wasm, types have no comments (`candid_type`).
#![cfg_attr(target_family = "wasm", allow(missing_docs))]

pub mod access;
mod audit;
mod blob;
#[cfg(feature = "storage")]
pub mod blocks;
mod chain;
mod deletion;
mod error;
mod export;
mod hashes;
mod health;
mod http;
mod keys;
mod logs;
pub mod methods;
mod operation;
mod prune;
pub mod seals;
pub mod segments;
pub mod settings;
#[cfg(feature = "storage")]
pub mod storage;
pub mod text;
mod utxo;

pub use audit::*;
pub use blob::*;
pub use chain::*;
pub use deletion::*;
pub use error::*;
pub use export::*;
pub use hashes::*;
pub use health::*;
pub use http::*;
pub use keys::*;
pub use logs::*;
pub use operation::*;
pub use prune::*;
pub use segments::BySegment;
pub use settings::ConfigError;
pub use utxo::*;

/// The version of the interface, which changes with any of its types or methods.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");

/// The code in README.md compiles and runs.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
