//! The operator's command of the Coppice canister, and the library that `coppice-lab` shares with it.
//!
//! ```text
//! ingest  blk, order ──▶ AppendBlock ──▶ feed ─┬──▶ ledger ──▶ verify ──┐
//!                    └──▶ utxo: records, spends, verify                 ├──▶ report
//! index   engine ◀───────────────────────┐     │                        │
//!                                        └── canister ◀─────────────────┘
//!                                              ▲ Transport, Reach, Site
//!                                        network (ic-agent)
//! ```
//! `blob-worker` has a picture of its own ([`blob_worker`]).
//!
//! Everything that talks to the canister does so through [`client::Client`], which knows of no host: what there is beside
//! calls is behind [`site::Site`]. The feature `network` adds what reaches other machines; `coppice-lab` does without.

// All output passes `terminal`.
#![warn(clippy::print_stdout, clippy::print_stderr)]

pub mod blk;
pub mod blob_worker;
pub mod client;
#[cfg(feature = "network")]
pub mod commands;
pub mod exit;
pub mod feed;
pub mod gateway;
pub mod http_server;
pub mod index;
pub mod ingest;
pub mod ledger;
#[cfg(feature = "network")]
pub mod network;
pub mod order;
pub mod progress;
pub mod random;
pub mod report;
pub mod site;
pub mod size;
pub mod stop;
pub mod terminal;
pub mod utxo;
pub mod verify;
