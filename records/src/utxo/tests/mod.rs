//! Tests of the UTXO store, by subject.

mod create;
mod large;
mod memory;
mod pages;
mod states;
