//! `coppice ingest`.

use crate::ingest::{BlocksArgs, feed_to, read};
use crate::network::NetworkArgs;
use crate::report;
use anyhow::Result;

/// Options of `coppice ingest`.
#[derive(Clone, Debug, clap::Args)]
pub struct IngestArgs {
    /// Blocks.
    #[command(flatten)]
    pub blocks: BlocksArgs,
    /// The canister.
    #[command(flatten)]
    pub network: NetworkArgs,
    /// Print only one line of JSON on stdout
    #[arg(long)]
    pub json: bool,
}

/// Feeds the blocks and prints the report.
///
/// # Errors
/// As [`read`] and [`feed_to`]; when the network cannot be used, or the chain ends before a block without a good copy.
pub fn command(args: &IngestArgs) -> Result<()> {
    let client = args.network.connect_for("ingest")?;
    let ordered = read(&args.blocks.blk, args.blocks.network_rules)?;
    report::print(&feed_to(&client, &ordered, &args.blocks.plan)?, args.json)?;
    ordered.check_whole()
}
