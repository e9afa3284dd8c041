//! What the tests share: the canister's wasm, a canister on some Internet Computer, and blocks to feed it with.

pub mod blocks;
pub mod coppice;
pub mod wasm;
