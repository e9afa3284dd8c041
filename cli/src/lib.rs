//! The operator's command of the Coppice canister.
//!
//! ```text
//! demo    chain_gen ──┐                              ┌──▶ ledger ──▶ verify ──┐
//!                     ├──▶ AppendBlock ──▶ feed ─────┤                        ├──▶ report
//! ingest  blk, order ─┘                              └──▶ canister ◀── index ─┘
//!                    └──▶ utxo: records, spends, verify ──────▲
//! demo --utxo   demo_utxo: blocks, ledger, story, verify ─────┤
//!                                                            │ Transport, Site
//!                                               ┌────────────┴───────────┐
//!                                               ▼                        ▼
//!                                    embedded (coppice_host)     network (ic-agent)
//! ```
//! `blob-worker` has a picture of its own ([`blob_worker`]).
//!
//! Everything that talks to the canister does so through [`client::Client`], which knows of no host: what there is beside
//! calls, a clock that can be moved and counts of instructions, is behind [`site::Site`].

// All output passes `terminal`.
#![warn(clippy::print_stdout, clippy::print_stderr)]

pub mod args;
pub mod bench;
pub mod blk;
pub mod blob_worker;
pub mod chain_gen;
pub mod client;
pub mod demo;
pub mod demo_utxo;
pub mod embedded;
pub mod exit;
pub mod feed;
pub mod http_server;
pub mod index;
pub mod ingest;
pub mod ledger;
pub mod network;
pub mod order;
pub mod progress;
pub mod quoted;
pub mod report;
pub mod serve;
pub mod site;
pub mod size;
pub mod stop;
pub mod terminal;
pub mod utxo;
pub mod verify;
pub mod wasm;

use args::{Cli, Command};

/// Does what the command line says. Results go to stdout, everything else to stderr.
///
/// # Errors
/// When something cannot be read or built, the canister refuses something, or what it answers is not what was put in.
pub fn run(cli: Cli) -> anyhow::Result<()> {
    terminal::log_as(cli.log_format);
    if cli.command.may_cache() {
        coppice_host::set_module_cache(coppice_host::default_module_cache());
    }
    match cli.command {
        Command::Demo(args) => demo::command(&args),
        Command::Ingest(args) => ingest::command(&args),
        Command::Size(args) => size::command(&args),
        Command::Index(args) => index::command(&args),
        Command::Serve(args) => serve::command(&args),
        Command::BlobWorker(args) => blob_worker::command(&args),
        Command::Bench(args) => bench::command(&args),
    }
}
