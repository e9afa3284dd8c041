//! The command line.

use crate::args::DemoArgs;
use crate::bench::{self, BenchArgs};
use crate::demo;
use crate::index::{self, IndexArgs};
use crate::ingest::{self, IngestArgs};
use crate::serve::{self, ServeArgs};
use clap::{Parser, Subcommand};
use ic_coppice_cli::terminal::{self, LogFormat};

/// Demonstrates and measures the canister that keeps a chain, in this process: without a network or replica.
#[derive(Clone, Debug, Parser)]
#[command(name = "coppice-lab", version, arg_required_else_help = true)]
pub struct Cli {
    /// The subcommand.
    #[command(subcommand)]
    pub command: Command,
    /// Format of lines on stderr
    #[arg(long, value_enum, value_name = "FORMAT", global = true, default_value_t)]
    pub log_format: LogFormat,
    /// Compile the canister anew, without using or filling the cache of compiled modules
    #[arg(long, global = true)]
    pub no_cache: bool,
}

/// The subcommands.
#[derive(Clone, Debug, Subcommand)]
pub enum Command {
    /// Append hundreds of blocks to a canister, or spend their outputs, let its timer prune, and verify the rest
    Demo(DemoArgs),
    /// Feed Bitcoin blocks to a canister, and verify every transaction id and every body
    Ingest(IngestArgs),
    /// Feed a generated chain to a canister that prunes it behind an indexer, which copies the chain into SQLite or PostgreSQL
    Index(IndexArgs),
    /// Show the dashboard of a demonstration in a browser, with its clock running
    Serve(ServeArgs),
    /// Measure the cost of each operation, in instructions and touched pages
    Bench(BenchArgs),
}

/// Runs the command. Results go to stdout, everything else to stderr.
///
/// # Errors
/// When something cannot be read or built, the canister refuses something, or it returns anything but what was put in.
pub fn run(cli: Cli) -> anyhow::Result<()> {
    terminal::log_as(cli.log_format);
    if !cli.no_cache {
        ic_coppice_host::set_module_cache(ic_coppice_host::default_module_cache());
    }
    match cli.command {
        Command::Demo(args) => demo::command(&args),
        Command::Ingest(args) => ingest::command(&args),
        Command::Index(args) => index::command(&args),
        Command::Serve(args) => serve::command(&args),
        Command::Bench(args) => bench::command(&args),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn help_of_the_script_lists_the_commands_of_the_laboratory() {
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../scripts/run");
        let output = std::process::Command::new(script).arg("--help").output().unwrap();
        let printed = String::from_utf8(output.stdout).unwrap();
        let (ours, _) = printed.split_once("With --network").unwrap();
        let shown = ours.lines().filter(|line| line.starts_with("  ")).map(|line| line.replace(" (default)", ""));
        let line = |of: &clap::Command| format!("  {:<11}  {}", of.get_name(), of.get_about().unwrap());
        assert_eq!(shown.collect::<Vec<_>>(), Cli::command().get_subcommands().map(line).collect::<Vec<_>>());
    }

    #[test]
    fn command_line_accepts_and_refuses_these_options() {
        Cli::command().debug_assert();
        for (args, ok) in [
            (&["demo", "--blocks", "100"][..], false),
            (&["demo", "--retain-blocks", "0"], false),
            (&["demo", "--utxo", "--external"], true),
            (&["demo", "--external"], false),
            (&["serve", "--blk", "a", "b", "--utxo", "--retain-blocks", "9"], true),
            (&["serve", "--blk", "a", "--seed", "2"], false),
            (&["serve", "--allow", "aaaaa-aa"], false),
            (&["serve", "--api", "--allow", "aaaaa-aa"], true),
            (&["serve", "--producer", "a"], false),
            (&["serve", "--producer", "a", "--api"], true),
            (&["serve", "--producer", "a", "--api", "--blk", "b"], false),
            (&["serve", "--trouble", "upload"], true),
            (&["serve", "--trouble", "none"], false),
            (&["serve", "--trouble", "cycles", "--blk", "a"], false),
            (&["serve", "--minute-secs=0"], false),
            (&["serve", "--minute-secs=60"], true),
        ] {
            assert_eq!(Cli::try_parse_from([&["coppice-lab"][..], args].concat()).is_ok(), ok, "{args:?}");
        }
    }
}
