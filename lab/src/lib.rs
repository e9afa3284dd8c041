//! The laboratory of the Coppice canister: runs its real wasm on an embedded host, to demonstrate, feed, copy and measure it.
//!
//! ```text
//! demo    chain_gen ──┐                  ┌──▶ ledger ──▶ verify ──┐
//!                     ├──▶ feed ─────────┤                        ├──▶ report
//! ingest  files ──────┘                  └──▶ embedded ◀─ indexer ───┘
//! demo --utxo   demo_utxo: blocks, ledger, story, verify ──▲
//! bench         operations and messages, in the bench wasm
//! ```
//! The feeder, the indexer, the blob worker and their verification come from the operator's command, the library [`ic_coppice_cli`]; the
//! generated chains and the embedded canister come from [`coppice_testkit`].

// Only the commands and their tests use this library, and most of its names say enough.
#![allow(missing_docs)]
// All output goes through `ic_coppice_cli::terminal`.
#![warn(clippy::print_stdout, clippy::print_stderr)]

pub mod args;
pub mod bench;
pub mod commands;
pub mod costs;
pub mod demo;
pub mod demo_story;
pub mod demo_utxo;
pub mod failure_scenarios;
pub mod figures_in_pages;
pub mod index;
pub mod ingest;
pub mod lockstep_indexer;
pub mod serve;

/// The code in README.md compiles and runs.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
