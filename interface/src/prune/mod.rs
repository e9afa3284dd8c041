//! Pruning: of blocks by a policy, of UTXO records by heights.

mod blocks;
mod records;

pub use blocks::*;
pub use records::*;
