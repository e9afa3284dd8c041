//! Tests of the commands without a network.

mod commands;
mod refusals;
