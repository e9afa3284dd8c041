//! Pruning of blocks and of UTXO records: policy, plan and run.

pub mod blocks;
pub mod records;
pub mod work;
