//! The command line, and the commands over the network.

pub mod archive;
pub mod blob_worker;
pub mod check_proof;
pub mod completions;
pub mod get;
pub mod index;
pub mod ingest;
pub mod policy;
pub mod prove;
pub mod serve;
pub mod status;
pub mod verify;

use crate::size;
use crate::size::args::SizeArgs;
use crate::terminal::{self, LogFormat};
use blob_worker::BlobWorkerArgs;
use check_proof::CheckProofArgs;
use clap::{CommandFactory as _, Parser, Subcommand};
use completions::CompletionsArgs;
use get::GetArgs;
use index::IndexArgs;
use ingest::IngestArgs;
use policy::PolicyArgs;
use prove::ProveArgs;
use serve::ServeArgs;
use status::StatusArgs;
use std::sync::LazyLock;
use verify::VerifyArgs;

/// Operate a Coppice canister: feed blocks, copy its chain, look things up, prove blocks, see how it is, delete its external blobs
#[derive(Clone, Debug, Parser)]
#[command(name = "coppice", version = version(), arg_required_else_help = true)]
pub struct Cli {
    /// The subcommand.
    #[command(subcommand)]
    pub command: Command,
    /// Format of the lines on stderr
    #[arg(long, value_enum, value_name = "FORMAT", global = true, default_value_t)]
    pub log_format: LogFormat,
}

/// Returns the version, that of the interface, and the commit of a release.
fn version() -> &'static str {
    static VERSION: LazyLock<String> = LazyLock::new(|| {
        let commit = option_env!("COPPICE_COMMIT").unwrap_or("unknown");
        format!("{}, interface {}, commit {commit}", env!("CARGO_PKG_VERSION"), ic_coppice_interface::VERSION)
    });
    &VERSION
}

/// The subcommands.
#[derive(Clone, Debug, Subcommand)]
pub enum Command {
    /// Feed Bitcoin blocks to a canister, and verify every transaction id and every body
    Ingest(IngestArgs),
    /// Print what a chain needs: target_bytes, billed stable memory, cycles per year
    Size(SizeArgs),
    /// Copy a canister's chain into SQLite or PostgreSQL, and acknowledge what is stored so that it may be pruned
    Index(IndexArgs),
    /// Print a block, a transaction, or the transactions with a key, from a database of `index` or from a canister
    Get(GetArgs),
    /// Recompute all seals of a database of `index`, and check each of its certificates
    Verify(VerifyArgs),
    /// Write a proof that a block of a database of `index` was in the canister's chain
    Prove(ProveArgs),
    /// Check a proof of `prove`, without a database and a network, and print the block's header
    CheckProof(CheckProofArgs),
    /// Print how a canister is: what is wrong, since when, and what to do
    Status(StatusArgs),
    /// Show the pruning policy, or change it after showing what the change does
    Policy(Box<PolicyArgs>),
    /// Show a canister's dashboard in a browser
    Serve(ServeArgs),
    /// Delete the external blobs that the canister's deletion queue hands out, from S3 or a file system
    BlobWorker(Box<BlobWorkerArgs>),
    /// Print the completions of a shell
    Completions(CompletionsArgs),
}

/// Runs the command. Results go to stdout, everything else to stderr.
///
/// # Errors
/// When something cannot be read or reached, the canister refuses, or an answer differs from the input.
pub fn run(cli: Cli) -> anyhow::Result<()> {
    terminal::log_as(cli.log_format);
    match cli.command {
        Command::Ingest(args) => ingest::command(&args),
        Command::Size(args) => size::command(&args),
        Command::Index(args) => index::command(&args),
        Command::Get(args) => get::command(&args),
        Command::Verify(args) => verify::command(&args),
        Command::Prove(args) => prove::command(&args),
        Command::CheckProof(args) => check_proof::command(&args),
        Command::Status(args) => status::command(&args),
        Command::Policy(args) => policy::command(&args),
        Command::Serve(args) => serve::command(&args),
        Command::BlobWorker(args) => blob_worker::command(&args),
        Command::Completions(args) => completions::command(&args, Cli::command()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn help_of_the_script_lists_the_commands_over_a_network() {
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../scripts/run");
        let output = std::process::Command::new(script).arg("--help").output().unwrap();
        let printed = String::from_utf8(output.stdout).unwrap();
        let (_, ours) = printed.split_once("With --network").unwrap();
        let shown = ours.lines().filter(|line| line.starts_with("  "));
        let line = |of: &clap::Command| format!("  {:<11}  {}", of.get_name(), of.get_about().unwrap());
        assert_eq!(shown.collect::<Vec<_>>(), Cli::command().get_subcommands().map(line).collect::<Vec<_>>());
    }

    #[test]
    fn the_command_line_is_well_formed() {
        Cli::command().debug_assert();
        let cli = Cli::try_parse_from(["coppice", "ingest", "--blk", "a", "b", "--first-number", "7"]).unwrap();
        let Command::Ingest(args) = cli.command else { panic!("{cli:?}") };
        assert_eq!((args.blocks.blk.len(), args.blocks.plan.first_number), (2, Some(7)));
        let maturity = |arg: &[&str]| {
            let cli = Cli::try_parse_from([&["coppice", "ingest", "--blk", "a"], arg].concat()).ok()?;
            let Command::Ingest(args) = cli.command else { panic!("{cli:?}") };
            Some(args.blocks.plan.coinbase_maturity)
        };
        assert_eq!(maturity(&["--utxo"]), Some(None));
        for (given, taken) in [("0", Some(0)), ("1", Some(1)), ("2147483647", Some(2_147_483_647))] {
            assert_eq!(maturity(&["--utxo", "--coinbase-maturity", given]), Some(taken));
        }
        for refused in ["2147483648", "-1", ""] {
            assert_eq!(maturity(&["--utxo", "--coinbase-maturity", refused]), None);
        }
        assert_eq!(maturity(&["--coinbase-maturity", "1"]), None, "--coinbase-maturity needs --utxo");
        for (given, ok) in [("--port=0", true), ("--port=65536", false)] {
            assert_eq!(Cli::try_parse_from(["coppice", "serve", given]).is_ok(), ok, "{given}");
        }
    }
}
