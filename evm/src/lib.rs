//! Chains of the EVM in a Coppice canister: the library of `coppice-evm`.
//!
//! ```text
//! follow   node ──▶ block: read, verify ──▶ index: ids, keys ──▶ client.follow ──▶ canister
//! rpc      canister, database ──▶ source: proved ──▶ block: decode, verify ──▶ answer: JSON ──▶ wallets, explorers
//! ```
//! `docs/guide/evm.md` is the guide. In reading order: [`transaction`], [`receipt`], [`block`], [`error`], [`index`], [`answer`], [`node`],
//! [`follow`], [`source`], [`rpc`].

// All output goes through `terminal`.
#![warn(clippy::print_stdout, clippy::print_stderr)]

pub mod answer;
pub mod block;
pub mod error;
pub mod follow;
pub mod index;
pub mod node;
pub mod receipt;
pub mod rpc;
pub mod source;
#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;
pub mod transaction;
mod verify;

pub use block::Block;
pub use error::Wrong;
pub use receipt::Receipt;
pub use transaction::Transaction;
