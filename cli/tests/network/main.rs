//! The command over a network. Its tests wait for seconds to pass more than they compute, so `scripts/test` runs them beside the others: by
//! the names of their modules.

#[path = "../gateway/mod.rs"]
mod gateway;
mod lying_replica;
mod net;
mod over_the_network;
mod served_pages;
