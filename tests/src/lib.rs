//! What the tests share: the canister's wasm, a canister on some Internet Computer, blocks to feed it with,
//! a model to compare it with, and a reader of its exports.

pub mod blocks;
pub mod coppice;
pub mod model;
pub mod reader;
pub mod wasm;
