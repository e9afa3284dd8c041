//! What the tests share: the canister's wasm, a canister on some Internet Computer and its client, blocks to feed it with,
//! a model to compare it with, a reader of its exports, a canister that calls it, and transactions for UTXO records.

pub mod blocks;
pub mod client;
pub mod coppice;
pub mod model;
pub mod proxy;
pub mod reader;
pub mod transactions;
pub mod wasm;
