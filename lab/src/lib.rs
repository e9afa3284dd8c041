//! The laboratory of the Coppice canister: runs its real wasm on an embedded host, to demonstrate, feed, copy and measure it.
//!
//! ```text
//! demo    chain_gen ──┐                  ┌──▶ ledger ──▶ verify ──┐
//!                     ├──▶ feed ─────────┤                        ├──▶ report
//! ingest  files ──────┘                  └──▶ embedded ◀─ indexer ───┘
//! demo --utxo   demo_utxo: blocks, ledger, story, verify ──▲
//! bench         operations and messages, in the bench wasm
//! ```
//! The feeder, the indexer, the blob worker and their verification come from the operator's command, the library [`coppice`]. This crate
//! adds only the generation of chains, and the embedded canister.

// Only the commands and their tests use this library, and most of its names say enough.
#![allow(missing_docs)]
// All output goes through `coppice::terminal`.
#![warn(clippy::print_stdout, clippy::print_stderr)]

pub mod api;
pub mod args;
pub mod bench;
pub mod chain_gen;
pub mod commands;
pub mod costs;
pub mod demo;
pub mod demo_story;
pub mod demo_utxo;
pub mod demonstration;
pub mod embedded;
pub mod encodings;
pub mod failure_scenarios;
pub mod figures_in_pages;
pub mod index;
pub mod ingest;
pub mod lockstep_indexer;
pub mod producer;
pub mod replica;
pub mod serve;
pub mod single_calls;
pub mod spend_chain;
pub mod wasm;

/// The code in README.md compiles and runs.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
