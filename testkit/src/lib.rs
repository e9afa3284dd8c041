//! Test kit of the Coppice canister: generated chains, the canister in the process, and the interface of a replica over HTTP.
//!
//! ```text
//! random ─▶ chain_gen, spend_chain ─▶ demonstration ─▶ embedded ─▶ Host
//!                      encodings, single_calls ─┘        ▲  costs
//!                               api ─▶ replica ─▶ Host ──┘  producer
//! ```
//! The tests of `coppice` and the commands of `coppice-lab` use the kit, so it depends on neither. The models are a crate of their own,
//! `coppice_model`, because the stores' tests need nothing else.

// Only tests and the laboratory use this library, and most of its names say enough.
#![allow(missing_docs)]

pub mod api;
pub mod chain_gen;
pub mod costs;
pub mod demonstration;
pub mod embedded;
pub mod encodings;
pub mod producer;
pub mod random;
#[cfg(feature = "refusals")]
pub mod refusals;
pub mod replica;
pub mod single_calls;
pub mod spend_chain;
pub mod wasm;
