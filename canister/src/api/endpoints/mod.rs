//! Candid endpoints, an area a file: each asks its guard, calls the state, and answers.

pub mod blocks;
mod deletion;
pub mod export;
mod http;
pub mod operation;
pub mod prune;
mod records;
mod utxo;
