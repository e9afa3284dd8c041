//! Blocks of the EVM in a Coppice canister.
pub mod answer;
pub mod block;
pub mod error;
pub mod index;
pub mod receipt;
pub mod transaction;
mod verify;

pub use block::Block;
pub use error::Wrong;
pub use receipt::Receipt;
pub use transaction::Transaction;
