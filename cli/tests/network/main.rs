//! Tests of the command over a network. They wait more than they compute, so `scripts/test` runs them in parallel with the other tests, by
//! the names of their modules.

mod applied;
mod bills;
mod blob_workers;
mod bombs;
mod certificates;
mod first_deployment;
#[path = "../gateway/mod.rs"]
mod gateway;
mod hostile;
mod index_database;
mod lying_replica;
mod monitoring;
mod net;
mod odd_files;
mod over_http;
mod over_the_network;
mod proofs;
mod rollup_page;
mod running;
mod s3;
mod served_pages;
