//! Plain models of Coppice over ordinary collections, for tests only.
//!
//! | module | models | compared with |
//! |---|---|---|
//! | [`chain`] | the chain, its pruning and its exporters | the stores and the endpoints natively; the wasm through Candid |
//! | [`deletion`] | the deletion queue | the queue natively |
//! | [`records`] | UTXO records and their pruner, by `docs/design/records.md` | the wasm through Candid |
//! | [`documents`] | UTXO records, by only the source documents and the `.did` | the wasm through Candid |
//!
//! No model uses the canister's code, and [`documents`] uses no other model. [`blocks`] and [`transactions`] create the inputs that
//! histories feed to the canister and to the models.

/// Returns an error with this sentence unless the condition holds.
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
