//! The binary `coppice-evm`; the library holds the code.

use clap::{Parser, Subcommand};
use coppice_evm::follow::{self, FollowArgs};
use coppice_evm::rpc::{self, RpcArgs};
use ic_coppice_cli::terminal::{self, LogFormat};
use std::process::ExitCode;

/// Keep the recent part of an EVM chain in a Coppice canister, and answer the chain's JSON-RPC from there
#[derive(Clone, Debug, Parser)]
#[command(name = "coppice-evm", version, arg_required_else_help = true)]
struct Cli {
    /// The subcommand.
    #[command(subcommand)]
    command: Command,
    /// Format of the lines on stderr
    #[arg(long, value_enum, value_name = "FORMAT", global = true, default_value_t)]
    log_format: LogFormat,
}

/// The subcommands.
#[derive(Clone, Debug, Subcommand)]
enum Command {
    /// Copy a node's blocks and receipts to a canister, each verified by its hash, and follow reorgs
    Follow(FollowArgs),
    /// Answer JSON-RPC from a canister, or from a database of coppice index
    Rpc(RpcArgs),
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    terminal::log_as(cli.log_format);
    ic_coppice_cli::exit::end(match cli.command {
        Command::Follow(args) => follow::command(&args),
        Command::Rpc(args) => rpc::command(&args),
    })
}
