//! Tests of the UTXO store, by subject. `world` is their fixture, which the tests of the records pruner use, too.

mod create;
mod large;
mod memory;
mod pages;
mod states;
pub mod world;
