//! Tests of the laboratory and of the commands over it.

mod agents;
mod chain;
mod commands;
mod demo_utxo;
mod index;
mod refusals;
mod serve;
mod size;
mod utxo;
