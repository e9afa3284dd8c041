//! Pruning of blocks and of UTXO records: policy, plan and run.

pub mod blocks;
pub mod marker;
pub mod records;
