//! Shared by the tests: the canister's wasm, a canister on an Internet Computer and its client, a reader of its exports, a canister that
//! calls it, and the blocks and transactions of `coppice_model`.

pub mod certified;
pub mod client;
pub mod coppice;
pub mod proxy;
pub mod reader;
pub mod wasm;

pub use coppice_model::{blocks, transactions};
