//! The command over a network. Its tests wait for seconds to pass more than they compute, so `scripts/test` runs them beside the others: by
//! the name of their module.

#[path = "../gateway/mod.rs"]
mod gateway;
mod over_the_network;
