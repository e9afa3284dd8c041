//! `coppice-lab index`: feeds a generated chain, or the blocks of files, to an embedded canister, which prunes them behind the indexer.

use crate::args::{HostArgs, MIN_BLOCKS};
use crate::lockstep_indexer::{Indexed, LockstepIndexer};
use anyhow::{Context, Result, ensure};
use coppice_testkit::chain_gen::Generator;
use coppice_testkit::embedded::Embedded;
use ic_coppice_cli::client::{BLOCK_INTERVAL, CanisterClient, Client, Wait};
use ic_coppice_cli::health::{healthy, settle};
use ic_coppice_cli::index::database::Access;
use ic_coppice_cli::index::origin::{Origin, Payload};
use ic_coppice_cli::index::{self, DatabaseArgs, schema};
use ic_coppice_cli::ingest::{number_of, read};
use ic_coppice_cli::report::{self, Report, blocks};
use ic_coppice_cli::rules::NetworkRules;
use ic_coppice_cli::stop::Stop;
use ic_coppice_cli::{feed, say};
use ic_coppice_interface::{AppendBlock, PrunePolicyArg};
use serde::Serialize;
use std::path::PathBuf;
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
    /// Bitcoin blocks to append instead of generated ones: blk*.dat files, raw blocks, or directories of them, in any order
    #[arg(long, value_name = "PATH", num_args = 1.., conflicts_with_all = ["blocks", "seed"])]
    pub blk: Vec<PathBuf>,
    /// Network by whose rules the blocks of the files are checked [default: as `ingest`]
    #[arg(long, value_name = "NAME", requires = "blk")]
    pub network_rules: Option<NetworkRules>,
    /// Number of the first block of the files [default: as `ingest`]
    #[arg(long, value_name = "N", requires = "blk")]
    pub first_number: Option<u64>,
    /// Blocks to generate
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
    report::print(&run(args, args.host.wasm()?)?, args.host.json)
}

/// Feeds an embedded canister and copies its chain, while its timer prunes behind the indexer.
///
/// # Errors
/// As [`copy`].
pub fn run(args: &IndexArgs, wasm: Vec<u8>) -> Result<IndexReport> {
    let client = Embedded::start(wasm)?;
    let embedded = client.transport();
    copy(args, &client, embedded.canister().to_string(), embedded.now_secs())
}

/// Blocks to append, and their number.
struct Source {
    length: u64,
    blocks: Box<dyn Iterator<Item = Result<AppendBlock>>>,
}

impl IndexArgs {
    /// Returns the blocks of the files, which are read one by one, or else a generated chain that begins at a time in Unix seconds.
    fn source(&self, begins_at: u64) -> Result<Source> {
        if self.blk.is_empty() {
            let blocks = Generator::new(self.seed, self.blocks, begins_at, BLOCK_INTERVAL.as_secs())?;
            return Ok(Source { length: self.blocks, blocks: Box::new(blocks.map(Ok)) });
        }
        let ordered = read(&self.blk, self.network_rules)?;
        ordered.check_whole()?;
        let chain = ordered.chain;
        let (length, first) = (chain.len() as u64, chain.first().context("there are no blocks to append")?);
        let (first_number, why) = match self.first_number {
            Some(number) => (number, "by --first-number"),
            None => number_of(first)?,
        };
        first_number.checked_add(length - 1).context("the last block number does not fit into 64 bits")?;
        say!("{} from number {first_number} on ({why})", blocks(length));
        let blocks = (first_number..).zip(chain).map(|(number, found)| {
            let (raw, decoded) = found.load()?;
            feed::bitcoin_block(number, raw, &decoded)
        });
        Ok(Source { length, blocks: Box::new(blocks) })
    }
}

/// Feeds a canister without blocks and copies its chain, while its timer prunes behind the indexer. A generated chain begins at a time in
/// Unix seconds.
///
/// # Errors
/// When a file cannot be read, the canister refuses something or traps, its timer does not prune, or the database differs from the appended
/// blocks.
pub fn copy(
    args: &IndexArgs,
    client: &Client<impl CanisterClient>,
    canister: String,
    begins_at: u64,
) -> Result<IndexReport> {
    let started = Instant::now();
    let Source { length, blocks: source } = args.source(begins_at)?;
    let origin = Origin { canister: canister.clone(), network: "embedded".into(), payload: args.database.payload };
    // The canister ends with this process, so that its blocks may be lost.
    let access = Access { volatile: true, ..args.database.access(&Stop::default()) };
    let mut indexer = LockstepIndexer::start(client, access, &origin, args.database.tables())?;
    let retain_blocks = args.retain_blocks.unwrap_or((length / 5).max(1));
    let policy = PrunePolicyArg {
        retain_blocks: Some(retain_blocks),
        timer_interval_secs: Some(60),
        ..PrunePolicyArg::default()
    };
    let policy = client.set_prune_policy(&policy).done()?.new;
    let ledger = indexer.feed("indexing", length, source, |_, _| Ok(true))?;
    let status = settle(client, Duration::from_secs(policy.timer_interval_secs))?;
    healthy(client, None)?;
    let retained = retain_blocks.saturating_add(1).min(length);
    ensure!(
        status.pruned_blocks == length - retained,
        "{} should be pruned, but {} are",
        blocks(length - retained),
        status.pruned_blocks
    );
    let checked = indexer.verify(&ledger)?;
    let index = index::IndexReport::of(indexer.engine(), canister, started)?;
    Ok(IndexReport { index, pruned_blocks: status.pruned_blocks, checked })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::{Cli, Command};
    use clap::Parser;

    /// The files hold the chain, so nothing of it is generated.
    #[test]
    fn files_exclude_options_of_the_generated_chain() {
        let parse = |more: &[&str]| Cli::try_parse_from([&["coppice-lab", "index"][..], more].concat()).is_ok();
        assert!(parse(&["--blk", "a", "b", "--first-number", "7"]));
        for more in [&["--blk", "a", "--seed", "2"][..], &["--blk", "a", "--blocks", "200"], &["--first-number", "7"]] {
            assert!(!parse(more), "{more:?}");
        }
    }

    /// Nothing would be pruned, so the command would show nothing.
    #[test]
    fn headers_without_ack_headers_are_refused() {
        let cli = Cli::try_parse_from(["coppice-lab", "index", "--payload", "headers"]).unwrap();
        let Command::Index(args) = cli.command else { panic!("another command") };
        let error = command(&args).unwrap_err().to_string();
        assert!(error.contains("--ack-headers"), "{error}");
    }
}
