//! Options of several commands.

use anyhow::Result;
use clap::Args;
use coppice_testkit::wasm;
use ic_coppice_cli::terminal::write_line;
use std::path::PathBuf;

/// Options of every command that starts a canister.
#[derive(Clone, Debug, Default, Args)]
pub struct HostArgs {
    /// The canister's wasm, raw or gzipped; built with scripts/build-wasm if not given
    #[arg(long, value_name = "PATH", env = "COPPICE_WASM")]
    pub wasm: Option<PathBuf>,
    /// Print nothing but one line of JSON on stdout
    #[arg(long)]
    pub json: bool,
}

impl HostArgs {
    /// Returns the canister's wasm.
    ///
    /// # Errors
    /// When the file cannot be read or is not wasm, or the build fails.
    pub fn wasm(&self) -> Result<Vec<u8>> {
        wasm::find(self.wasm.as_deref(), write_line)
    }
}

/// Fewest blocks of a demonstration: with fewer, mainnet's block 702,861 would not be among them.
pub const MIN_BLOCKS: u64 = 150;

/// Options of `coppice-lab demo`.
#[derive(Clone, Debug, Args)]
pub struct DemoArgs {
    /// Demonstrate UTXO records instead of blocks: spends, a lagging block persister, a reorg and an old unmined transaction, with every
    /// record verified
    #[arg(long)]
    pub utxo: bool,
    /// With --utxo: keep transactions of three or more outputs in external blobs, files of a directory; a blob worker deletes the files
    /// after their records were pruned
    #[arg(long, requires = "utxo")]
    pub external: bool,
    /// Blocks to append [default: 600, with --utxo 3000]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(MIN_BLOCKS..=700_000))]
    pub blocks: Option<u64>,
    /// Seed of the generated chain; the same seed gives the same chain
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
    /// Blocks below the head that the canister retains, at most a third of all [default: a fifth of all]; with --utxo, blocks for which a
    /// record is retained once all its outputs are spent [default: 288, fewer in a short run]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub retain_blocks: Option<u64>,
    /// Write the figures into the pages that quote them
    #[arg(long, value_name = "PAGE", num_args = 1.., conflicts_with = "utxo")]
    pub write: Vec<PathBuf>,
    /// End with an error if a page quotes different figures
    #[arg(long, value_name = "PAGE", num_args = 1.., conflicts_with_all = ["utxo", "write"])]
    pub check: Vec<PathBuf>,
    /// Common options.
    #[command(flatten)]
    pub host: HostArgs,
}
