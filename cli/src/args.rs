//! The command line.

use crate::bench::BenchArgs;
use crate::blob_worker::args::BlobWorkerArgs;
use crate::index::args::IndexArgs;
use crate::network::NetworkArgs;
use crate::terminal::LogFormat;
use clap::{Args, Parser, Subcommand};
use std::path::PathBuf;

/// Keeps a chain in an Internet Computer canister, and prunes it for ever without growing.
#[derive(Clone, Debug, Parser)]
#[command(name = "coppice", version, arg_required_else_help = true)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
    /// How lines are written to stderr
    #[arg(long, value_enum, value_name = "FORMAT", global = true, default_value_t)]
    pub log_format: LogFormat,
}

/// The subcommands.
#[derive(Clone, Debug, Subcommand)]
pub enum Command {
    /// Append thousands of blocks to a canister, or spend their outputs, let its timer prune, and verify what is left
    Demo(DemoArgs),
    /// Feed Bitcoin blocks to a canister, and verify every transaction id and every body
    Ingest(IngestArgs),
    /// Say what a chain needs: target_bytes, stable memory that is billed, cycles a year
    Size(SizeArgs),
    /// Copy a canister's chain into SQLite or PostgreSQL, and acknowledge what is stored so that it may be pruned
    Index(IndexArgs),
    /// Show a canister's dashboard in a browser: of the demonstration, with its clock running, or of one on a network
    Serve(ServeArgs),
    /// Delete the blobs outside the canister that its deletion queue hands out, from S3 or a file system
    BlobWorker(Box<BlobWorkerArgs>),
    /// Measure what each operation costs, in instructions and in pages touched
    Bench(BenchArgs),
}

impl Command {
    /// Whether it runs a canister in this process, perhaps, whose compiled form may be kept for the next time.
    pub fn may_cache(&self) -> bool {
        match self {
            Self::Demo(args) => !args.host.no_cache,
            Self::Ingest(args) => !args.host.no_cache,
            Self::Index(args) => !args.host.no_cache,
            Self::Serve(args) => !args.host.no_cache,
            Self::Bench(args) => !args.no_cache,
            Self::Size(_) | Self::BlobWorker(_) => false,
        }
    }
}

/// Options that every command which starts a canister has.
#[derive(Clone, Debug, Default, Args)]
pub struct HostArgs {
    /// The canister's wasm, raw or gzipped; built with scripts/build-wasm if not given
    #[arg(long, value_name = "PATH", env = "COPPICE_WASM")]
    pub wasm: Option<PathBuf>,
    /// Compile the canister anew, and keep nothing of it for the next time
    #[arg(long)]
    pub no_cache: bool,
    /// Print nothing but one line of JSON on stdout
    #[arg(long)]
    pub json: bool,
}

/// Fewest blocks of a demonstration: with fewer, mainnet's block 702,861 would not be among them.
pub const MIN_DEMO_BLOCKS: u64 = 150;

/// The largest `coinbase_maturity` that a canister takes.
pub const MAX_MATURITY: i64 = u32::MAX as i64 / 2;

/// Options of `coppice demo`.
#[derive(Clone, Debug, Args)]
pub struct DemoArgs {
    /// UTXO records instead of blocks: spends, a block persister that lags, a reorg and an old unmined transaction,
    /// with every record verified
    #[arg(long)]
    pub utxo: bool,
    /// With --utxo: transactions of three and more outputs lie outside the canister, in a directory, from which a blob worker deletes
    /// them when their records have been pruned
    #[arg(long, requires = "utxo", conflicts_with = "network")]
    pub outside: bool,
    /// Blocks to append [default: 600, with --utxo 3000]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(MIN_DEMO_BLOCKS..=700_000))]
    pub blocks: Option<u64>,
    /// Seed of the generated chain; the same seed gives the same chain
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
    /// Blocks behind the head that the canister retains, at most a third of all [default: a fifth of all]; with --utxo,
    /// blocks for which a record is retained once everything of it is spent [default: 288, in a short run fewer]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub retain_blocks: Option<u64>,
    /// Write the figures into the pages that quote them
    #[arg(long, value_name = "PAGE", num_args = 1.., conflicts_with_all = ["utxo", "network"])]
    pub write: Vec<PathBuf>,
    /// End with an error where a page quotes other figures
    #[arg(long, value_name = "PAGE", num_args = 1.., conflicts_with_all = ["utxo", "network", "write"])]
    pub check: Vec<PathBuf>,
    /// Where the canister is.
    #[command(flatten)]
    pub network: NetworkArgs,
    /// What every command has.
    #[command(flatten)]
    pub host: HostArgs,
}

/// Options of `coppice ingest`.
#[derive(Clone, Debug, Args)]
pub struct IngestArgs {
    /// blk*.dat files, raw blocks, or directories of them (*.dat, *.blk, *.raw), in any order
    #[arg(long, value_name = "PATH", num_args = 1.., required = true, env = "COPPICE_BLOCKS")]
    pub blk: Vec<PathBuf>,
    /// Number of the first block [default: 0 for mainnet's genesis, 1 after it, else the height in its coinbase, else 0]
    #[arg(long, value_name = "N")]
    pub first_number: Option<u64>,
    /// Blocks behind the head that the canister retains, and prunes those before [default: all]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub retain_blocks: Option<u64>,
    /// Replay the blocks into the UTXO store too: a record for each transaction, and what its inputs name spent
    #[arg(long)]
    pub utxo: bool,
    /// Blocks until a coinbase can be spent, 0: in its own block; for chains made for tests. On a network the canister's
    /// own setting must be this [default: 100, on a network the canister's]
    #[arg(long, value_name = "N", requires = "utxo", value_parser = clap::value_parser!(u32).range(0..=MAX_MATURITY))]
    pub coinbase_maturity: Option<u32>,
    /// Where the canister is.
    #[command(flatten)]
    pub network: NetworkArgs,
    /// What every command has.
    #[command(flatten)]
    pub host: HostArgs,
}

/// Options of `coppice serve`.
#[derive(Clone, Debug, Args)]
pub struct ServeArgs {
    /// Port on 127.0.0.1; 0: any that is free
    #[arg(long, value_name = "N", default_value_t = 8080)]
    pub port: u16,
    /// Milliseconds in which a minute of the demonstration passes
    #[arg(long, value_name = "MS", default_value_t = 1000, value_parser = clap::value_parser!(u64).range(1..=60_000))]
    pub minute_ms: u64,
    /// Seed of the generated chain
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
    /// Where the canister is.
    #[command(flatten)]
    pub network: NetworkArgs,
    /// What every command has.
    #[command(flatten)]
    pub host: HostArgs,
}

/// Options of `coppice size`.
#[derive(Clone, Debug, Args)]
pub struct SizeArgs {
    /// Payload of a block in bytes: body, receipts and index
    #[arg(long, value_name = "N", num_args = 1.., default_values_t = [16 << 10, 256 << 10, 1 << 20, 4 << 20],
        value_parser = clap::value_parser!(u64).range(1..=256 << 20))]
    pub block_bytes: Vec<u64>,
    /// Days for which blocks are retained
    #[arg(long, value_name = "N", num_args = 1.., default_values_t = [1, 30, 365],
        value_parser = clap::value_parser!(u64).range(1..=36_500))]
    pub days: Vec<u64>,
    /// Transactions of a block [default: one for each 500 bytes]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(0..=100_000))]
    pub transactions: Option<u64>,
    /// Secondary keys of a block, each of 32 bytes and another one
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = clap::value_parser!(u64).range(0..=1_000_000))]
    pub keys: u64,
    /// UTXO records that are there at a time, of transactions with two outputs; with some, each transaction of a block makes one
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = clap::value_parser!(u64).range(0..=1_000_000_000_000))]
    pub records: u64,
    /// Segments are not compared with their digests: `verify_segments` is off
    #[arg(long)]
    pub unverified: bool,
    /// Seconds between two blocks, with three decimals at most
    #[arg(long, value_name = "SECS", default_value = "600", value_parser = crate::size::interval)]
    pub interval: u64,
    /// Bytes of a blob of the log
    #[arg(long, value_name = "N", default_value_t = 1 << 20, value_parser = crate::size::log_class)]
    pub log_class: u32,
    /// Seconds between two ticks of the daemon
    #[arg(long, value_name = "SECS", default_value_t = 60, value_parser = clap::value_parser!(u64).range(1..=86_400))]
    pub timer_interval: u64,
    /// Print a line of JSON for each row instead of the table
    #[arg(long)]
    pub json: bool,
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_well_formed() {
        Cli::command().debug_assert();
        let cli = Cli::try_parse_from(["coppice", "ingest", "--blk", "a", "b", "--first-number", "7"]).unwrap();
        let Command::Ingest(args) = cli.command else { panic!("{cli:?}") };
        assert_eq!((args.blk.len(), args.first_number), (2, Some(7)));
        let maturity = |arg: &[&str]| {
            let cli = Cli::try_parse_from([&["coppice", "ingest", "--blk", "a"], arg].concat()).ok()?;
            let Command::Ingest(args) = cli.command else { panic!("{cli:?}") };
            Some(args.coinbase_maturity)
        };
        assert_eq!(maturity(&["--utxo"]), Some(None));
        for (given, taken) in [("0", Some(0)), ("1", Some(1)), ("2147483647", Some(2_147_483_647))] {
            assert_eq!(maturity(&["--utxo", "--coinbase-maturity", given]), Some(taken));
        }
        for refused in ["2147483648", "-1", ""] {
            assert_eq!(maturity(&["--utxo", "--coinbase-maturity", refused]), None);
        }
        assert_eq!(maturity(&["--coinbase-maturity", "1"]), None, "it is the UTXO store's");
        assert!(Cli::try_parse_from(["coppice", "demo", "--blocks", "100"]).is_err());
        assert!(Cli::try_parse_from(["coppice", "demo", "--retain-blocks", "0"]).is_err());
        for (given, ok) in
            [("--port=0", true), ("--port=65536", false), ("--minute-ms=0", false), ("--minute-ms=60000", true)]
        {
            assert_eq!(Cli::try_parse_from(["coppice", "serve", given]).is_ok(), ok, "{given}");
        }
        assert!(Cli::try_parse_from(["coppice", "demo", "--utxo", "--outside"]).is_ok());
        assert!(Cli::try_parse_from(["coppice", "demo", "--outside"]).is_err());
    }
}
