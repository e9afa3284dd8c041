//! `coppice-lab index`: feeds a generated chain to an embedded canister, which prunes it behind the indexer.

use crate::args::{HostArgs, MIN_BLOCKS};
use crate::chain_gen::Generator;
use crate::companion::{Companion, Indexed};
use crate::embedded::Embedded;
use crate::wasm;
use anyhow::{Result, ensure};
use coppice::client::{Client, Wait};
use coppice::index::origin::{Origin, Payload};
use coppice::index::{self, DatabaseArgs, schema};
use coppice::report::{self, Report, blocks};
use coppice::site::{BLOCK_INTERVAL, Site, healthy, settle};
use coppice_interface::PrunePolicyArg;
use serde::Serialize;
use std::time::{Duration, Instant};

/// Options of `coppice-lab index`.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = schema::HELP)]
pub struct IndexArgs {
    /// Database.
    #[command(flatten)]
    pub database: DatabaseArgs,
    /// Acknowledge with --payload headers, too: the canister may then prune payloads that no database has
    #[arg(long)]
    pub ack_headers: bool,
    /// Blocks to append
    #[arg(long, value_name = "N", default_value_t = 1_000, value_parser = clap::value_parser!(u64).range(MIN_BLOCKS..=700_000))]
    pub blocks: u64,
    /// Seed of the generated chain
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
    /// Blocks below the head that the canister retains [default: a fifth of all]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub retain_blocks: Option<u64>,
    /// Common options.
    #[command(flatten)]
    pub host: HostArgs,
}

/// Figures of an indexer's run, and the comparison of its database.
#[derive(Clone, Debug, Serialize)]
pub struct IndexReport {
    /// The figures.
    #[serde(flatten)]
    pub index: index::IndexReport,
    /// Blocks that the canister's timer pruned.
    pub pruned_blocks: u64,
    /// The database, compared with the appended blocks.
    pub checked: Indexed,
}

impl Report for IndexReport {
    fn rows(&self) -> Vec<(&'static str, String)> {
        let mut rows = self.index.rows();
        let seconds = rows.pop();
        rows.push(("pruned by the timer", blocks(self.pruned_blocks)));
        rows.push(("in the database as appended", blocks(self.checked.verified_blocks)));
        rows.push(("pruned before they were indexed", blocks(self.checked.pruned_before_indexed)));
        rows.extend(seconds);
        rows
    }
}

/// Runs the indexer and prints its report.
///
/// # Errors
/// As [`run`].
pub fn command(args: &IndexArgs) -> Result<()> {
    args.database.check()?;
    ensure!(
        args.database.payload == Payload::All || args.ack_headers,
        "with --payload headers nothing is acknowledged, so the canister in this process would prune nothing; allow it \
         with --ack-headers"
    );
    report::print(&run(args, wasm::find(args.host.wasm.as_deref())?)?, args.host.json)
}

/// Feeds an embedded canister and copies its chain, while its timer prunes behind the indexer.
///
/// # Errors
/// As [`copy`].
pub fn run(args: &IndexArgs, wasm: Vec<u8>) -> Result<IndexReport> {
    let client = Embedded::start(wasm)?;
    let site = client.transport();
    copy(args, &client, site.canister().to_string(), site.now_secs())
}

/// Feeds a canister without blocks and copies its chain, while its timer prunes behind the indexer. The chain begins at a time in Unix
/// seconds.
///
/// # Errors
/// When the canister refuses something or traps, its timer does not prune, or the database differs from the appended blocks.
pub fn copy(args: &IndexArgs, client: &Client<impl Site>, canister: String, begins_at: u64) -> Result<IndexReport> {
    let started = Instant::now();
    let origin = Origin { canister: canister.clone(), network: "embedded".into(), payload: args.database.payload };
    let mut companion = Companion::start(client, &args.database.database, &origin, args.database.tables())?;
    let retain_blocks = args.retain_blocks.unwrap_or(args.blocks / 5);
    let policy = PrunePolicyArg { retain_blocks: Some(retain_blocks), ..PrunePolicyArg::default() };
    let policy = client.set_prune_policy(&policy).done()?.new;
    let generator = Generator::new(args.seed, args.blocks, begins_at, BLOCK_INTERVAL.as_secs())?;
    let ledger = companion.feed("indexing", args.blocks, generator, |_, _| Ok(()))?;
    let status = settle(client, Duration::from_secs(policy.timer_interval_secs))?;
    healthy(client, None)?;
    let retained = (retain_blocks + 1).min(args.blocks);
    ensure!(
        status.pruned_blocks == args.blocks - retained,
        "{} should be pruned, but {} are",
        blocks(args.blocks - retained),
        status.pruned_blocks
    );
    let checked = companion.verify(&ledger)?;
    let index = index::IndexReport::of(companion.engine(), canister, started)?;
    Ok(IndexReport { index, pruned_blocks: status.pruned_blocks, checked })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::{Cli, Command};
    use clap::Parser;

    /// Nothing would be pruned, so the command would show nothing.
    #[test]
    fn headers_without_ack_headers_are_refused() {
        let cli = Cli::try_parse_from(["coppice-lab", "index", "--payload", "headers"]).unwrap();
        let Command::Index(args) = cli.command else { panic!("another command") };
        let error = command(&args).unwrap_err().to_string();
        assert!(error.contains("--ack-headers"), "{error}");
    }
}
