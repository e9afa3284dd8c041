//! The operator's command of the Coppice canister, and the library that `coppice-lab` shares with it.
//!
//! ```text
//! ingest  blk, order ──▶ AppendBlock ──▶ feed ─┬──▶ ledger ──▶ verify ──┐
//!                    └──▶ utxo: records, spends, verify                 ├──▶ report
//! index   engine ◀───────────────────────┐     │                        │
//!                                        └── canister ◀─────────────────┘
//!                                              ▲ CanisterClient
//!                                        network (ic-agent)
//! ```
//! `get`, `blob-worker`, `verify` and `prove` have their own diagrams ([`mod@get`], [`blob_worker`], [`proof`]).
//!
//! All calls of the canister go through [`client::Client`], which has its methods, over a [`client::CanisterClient`]: that of `network`, or
//! that of `coppice_testkit` for a canister in its own process. The feature `network` adds access to other machines; `coppice-lab` does not use
//! it.

// Only the commands and their tests use this library, and most of its names say enough.
#![allow(missing_docs)]
// All output goes through `terminal`.
#![warn(clippy::print_stdout, clippy::print_stderr)]

pub mod blk;
pub mod blob_worker;
pub mod client;
#[cfg(feature = "network")]
pub mod commands;
pub mod exit;
pub mod feed;
pub mod gateway;
pub mod get;
pub mod health;
pub mod http_server;
pub mod index;
pub mod ingest;
pub mod ledger;
pub mod listen;
#[cfg(feature = "network")]
pub mod network;
pub mod order;
pub mod policy;
pub mod progress;
pub mod proof;
pub mod report;
pub mod rules;
pub mod size;
#[cfg(feature = "network")]
pub mod status;
pub mod stop;
pub mod terminal;
pub mod utxo;
pub mod verify;

/// The code in README.md compiles and runs.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
