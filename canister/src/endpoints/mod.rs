//! Candid endpoints, an area a file; `lib.rs` has those of the chain.

mod deletion;
mod http;
mod logs;
mod pruner;
mod stop;
mod utxo;
