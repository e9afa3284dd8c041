//! Plain models of Coppice, over ordinary collections, for tests alone.
//!
//! | module | models | is held against |
//! |---|---|---|
//! | [`chain`] | the chain, its pruning and its exporters | the stores and the endpoints natively; the wasm through Candid |
//! | [`deletion`] | the deletion queue | the queue natively |
//! | [`records`] | UTXO records and their pruner, as `docs/design.md` 6 and 7 have them | the wasm through Candid |
//! | [`documents`] | UTXO records, from the source documents and the `.did` alone | the wasm through Candid |
//!
//! No model knows the canister's code, and [`documents`] knows no other model. [`blocks`] and [`transactions`] make what histories
//! feed to the canister and to the models.

/// Ends the function with a sentence unless something holds.
#[macro_export]
macro_rules! ensure {
    ($holds:expr, $($why:tt)+) => {
        if !$holds {
            return Err(format!($($why)+));
        }
    };
}

pub mod blocks;
pub mod chain;
pub mod deletion;
pub mod documents;
pub mod records;
pub mod transactions;
