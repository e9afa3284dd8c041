//! Coppice: a chain's blocks, receipts and index in the stable memory of a canister, pruned without growing.
//!
//! A canister calls [`Coppice`] in its hooks and in its own methods, and exports the methods of Coppice that it has ([`export!`]). The library
//! exports nothing by itself. The package `coppice_canister` is the canister that exports all methods.
//!
//! The crate joins three others: `ic_coppice_chain` keeps the blocks, `ic_coppice_records` the UTXO records, and `ic_coppice_storage` the
//! memory of both.
//!
//! | module | holds |
//! |---|---|
//! | `library`, `exports`, `service`, `host` | the functions for the canister that contains the library, the *host*; the methods that it exports; its interface in the wasm; its memories and labels |
//! | `api` | access control, Candid encoding, endpoints, HTTP |
//! | `operation` | timers, samples, health |
//! | `state` | all that is persisted, opened once; what joins blocks and records |
//! | `logs`, `settings` | the log, the audit log, the history; settings and roles |
//! | `memory`, `places` | the one address space, and the places of the canister's own data in it |
//! | `platform` | calls of the Internet Computer that `ic_coppice_storage` does not make, with a native twin |

// Without records, what only records use has no caller.
#![cfg_attr(not(feature = "records"), allow(dead_code))]

mod api;
#[cfg(feature = "bench")]
pub mod bench;
mod exports;
mod host;
mod library;
mod logs;
mod memory;
mod operation;
mod places;
mod platform;
#[doc(hidden)]
pub mod service;
mod settings;
mod state;
#[cfg(test)]
mod tests;

pub use api::access::Inspected;
#[doc(hidden)]
pub use api::endpoints::calls;
pub use api::wire::canister_arg;
pub use host::{Digest, Memory, Route};
pub use ic_coppice_interface as interface;
pub use library::Coppice;
