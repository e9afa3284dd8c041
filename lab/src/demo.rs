//! `coppice-lab demo`: appends a chain, which an indexer copies and the canister's own timer prunes behind the indexer. The indexer stops for
//! a while, and after it has resumed, stable memory stops growing.

use crate::args::DemoArgs;
use crate::costs::Instructions;
use crate::demo_story::{self, Step, Story};
use crate::demo_utxo;
use crate::figures_in_pages;
use crate::lockstep_indexer::{Indexed, LockstepIndexer};
use anyhow::{Context, Result, bail, ensure};
use coppice_testkit::chain_gen::Generator;
use coppice_testkit::embedded::Embedded;
use coppice_testkit::random::Random;
use ic_coppice_cli::client::{BLOCK_INTERVAL, CanisterClient, Client, Wait};
use ic_coppice_cli::health::{healthy, settle};
use ic_coppice_cli::index::database::Access;
use ic_coppice_cli::index::origin::{Origin, Payload};
use ic_coppice_cli::index::tables::Tables;
use ic_coppice_cli::report::{
    self, Amount, Report, Storage, amount, blocks, bytes, count, seconds_since, verified_rows,
};
use ic_coppice_cli::terminal;
use ic_coppice_cli::verify::{Depth, Verified, verify};
use ic_coppice_interface::AppendBlock;
use serde::Serialize;
use std::sync::mpsc::sync_channel;
use std::time::{Duration, Instant};

/// Default number of blocks.
pub const BLOCKS: u64 = 600;
/// The last line for people: the next command to try.
const NEXT: &str =
    "next: scripts/run serve --trouble exporter  # the dashboard of a canister whose indexer does not resume";
/// Blocks generated ahead.
const AHEAD: usize = 8;
/// Part of the run, in tenths, within which growth must have stopped.
const GROWTH_TENTHS: u64 = 6;
/// Transactions that are looked up: per kept block, and in total of pruned blocks.
const SAMPLE: (u64, usize) = (4, 4_000);

/// The figures of a demonstration.
#[derive(Clone, Debug, Default, Serialize)]
pub struct DemoReport {
    /// "demo".
    pub command: &'static str,
    pub seed: u64,
    /// Blocks below the head that are retained.
    pub retain_blocks: u64,
    pub first_block: u64,
    pub last_block: u64,
    pub appended: Amount,
    /// Appended blocks that were too long for an ingress message and were sent in chunks.
    pub appended_in_chunks: u64,
    pub pruned: Amount,
    pub kept: Amount,
    /// Stable memory at the end.
    #[serde(flatten)]
    pub storage: Storage,
    /// Billed bytes before the first block.
    pub billed_bytes_at_first: u64,
    /// The last block of the last message that made the billed bytes rise, or `None` if they never rose.
    pub growth_stopped_at_block: Option<u64>,
    /// Number of blocks appended up to and including that block.
    pub growth_stopped_after_blocks: u64,
    pub story: Vec<Step>,
    /// Instructions, if the canister runs in this process.
    pub instructions: Option<Instructions>,
    pub indexed: Indexed,
    pub verified: Verified,
    /// Wall-clock seconds, without the build.
    pub elapsed_secs: f64,
}

impl Report for DemoReport {
    fn preface(&self) -> Option<String> {
        Some(demo_story::table(&self.story))
    }

    fn rows(&self) -> Vec<(&'static str, String)> {
        let growth = match self.growth_stopped_at_block {
            None => "before the first".to_string(),
            Some(block) => {
                let (after, of) = (self.growth_stopped_after_blocks, self.appended.blocks);
                format!("{} (number {} of {})", count(block), count(after), count(of))
            }
        };
        let mut rows = vec![
            ("blocks", format!("{} to {}", count(self.first_block), count(self.last_block))),
            ("appended", amount(self.appended)),
            ("of which uploaded in chunks", blocks(self.appended_in_chunks)),
            ("pruned by the timer", amount(self.pruned)),
            ("kept", amount(self.kept)),
            ("stable memory stopped growing at block", growth),
            ("billed before the first block", bytes(self.billed_bytes_at_first)),
        ];
        rows.extend(self.indexed.rows());
        rows.extend(self.storage.rows());
        rows.extend(self.instructions.iter().flat_map(Instructions::rows));
        rows.extend(verified_rows(self.verified, self.elapsed_secs));
        rows
    }
}

impl DemoReport {
    /// Checks that stable memory stopped growing early enough to show it.
    ///
    /// # Errors
    /// When it did not.
    pub fn check_growth(&self) -> Result<()> {
        let (after, of) = (self.growth_stopped_after_blocks, self.appended.blocks);
        ensure!(
            after * 10 <= of * GROWTH_TENTHS,
            "stable memory still grew at block {after} of {of}; with {} blocks retained it should have stopped within {} % \
             (in a short run a single long block may come late: --blocks)",
            self.retain_blocks,
            GROWTH_TENTHS * 10
        );
        Ok(())
    }
}

/// Runs the demonstration and prints its report.
///
/// # Errors
/// As [`play`]; also when stable memory kept growing.
pub fn command(args: &DemoArgs) -> Result<()> {
    if args.utxo {
        return demo_utxo::command(args);
    }
    let json = args.host.json;
    let blocks = args.blocks.unwrap_or(BLOCKS);
    let plan = Plan::new(blocks, args.retain_blocks, args.seed)?;
    let report = run(args.host.wasm()?, plan)?;
    report::print(&report, json)?;
    if !report::is_for_programs(json) {
        terminal::print(NEXT)?;
    }
    report.check_growth()?;
    let rows = report.rows();
    args.write.iter().try_for_each(|page| figures_in_pages::write(page, &rows))?;
    args.check.iter().try_for_each(|page| figures_in_pages::check(page, &rows))
}

/// Length and seed of a demonstration.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    blocks: u64,
    retain_blocks: u64,
    seed: u64,
}

impl Plan {
    /// Creates a plan of `blocks` blocks, which retains `retain_blocks` below the head; default: a fifth of all.
    ///
    /// # Errors
    /// When more than a third is retained.
    pub fn new(blocks: u64, retain_blocks: Option<u64>, seed: u64) -> Result<Self> {
        let retain_blocks = retain_blocks.unwrap_or(blocks / 5);
        if retain_blocks > blocks / 3 {
            bail!(
                "to see growth stop, retain at most a third of the {blocks} blocks; {retain_blocks} is more \
                 (--retain-blocks)"
            );
        }
        Ok(Self { blocks, retain_blocks, seed })
    }
}

/// Runs the demonstration in this process.
///
/// # Errors
/// As [`play`].
pub fn run(wasm: Vec<u8>, plan: Plan) -> Result<DemoReport> {
    let client = Embedded::start(wasm)?;
    let embedded = client.transport();
    let canister = embedded.canister().to_string();
    let origin = Origin { canister, network: "embedded".into(), payload: Payload::Headers };
    let report = play(&client, plan, embedded.now_secs(), &origin)?;
    let instructions = Some(Instructions::new(&embedded.costs(), report.appended, report.pruned));
    Ok(DemoReport { instructions, ..report })
}

/// Runs the demonstration on a canister without blocks. The chain begins at a time in Unix seconds.
///
/// # Errors
/// When the canister refuses something or traps, its timer does not prune, it returns anything but the appended blocks, or the indexer's
/// database differs from them.
pub fn play(client: &Client<impl CanisterClient>, plan: Plan, begins_at: u64, origin: &Origin) -> Result<DemoReport> {
    let started = Instant::now();
    let Plan { blocks, retain_blocks, seed } = plan;
    // The indexer's database is verified and then deleted.
    let directory = tempfile::tempdir().context("no temporary directory")?;
    let database = format!("sqlite://{}", directory.path().join("index.db").display());
    let mut indexer = LockstepIndexer::start(client, Access::volatile(&database), origin, Tables::NONE)?;
    let policy = client.set_prune_policy(&demo_story::policy(retain_blocks)).done()?.new;
    let billed_bytes_at_first = client.get_storage_status(None).wait()?.billed_bytes;

    let generator = Generator::new(seed, blocks, begins_at, BLOCK_INTERVAL.as_secs())?;
    let first_block = generator.first();
    let (mut appended_in_chunks, mut billed_bytes, mut growth) = (0, billed_bytes_at_first, None);
    let mut story = Story::new(blocks);
    let note = |blocks: &[AppendBlock], in_chunks| {
        appended_in_chunks += in_chunks;
        let billed = client.get_storage_status(None).wait()?.billed_bytes;
        if billed > billed_bytes {
            (billed_bytes, growth) = (billed, blocks.last().map(|block| block.number));
        }
        story.appended(client, blocks.len(), billed)
    };
    let ledger = std::thread::scope(|scope| {
        // Generating and hashing a block takes about as long as appending it.
        let (sender, receiver) = sync_channel(AHEAD);
        scope.spawn(move || {
            for block in generator {
                if sender.send(block).is_err() {
                    // Feeding has failed and reports the reason.
                    return;
                }
            }
        });
        indexer.feed("appending", blocks, receiver.into_iter().map(Ok), note)
    })?;
    let status = settle(client, Duration::from_secs(policy.timer_interval_secs))?;

    let last_block = first_block + blocks - 1;
    let oldest = last_block - retain_blocks;
    let found = (status.head, status.oldest_kept_block, status.pruned_blocks);
    let expected = (Some(last_block), Some(oldest), oldest - first_block);
    ensure!(found == expected, "head, oldest kept block and pruned blocks should be {expected:?}, but are {found:?}");
    let (per_block, pruned) = SAMPLE;
    let mut random = Random::new(seed);
    let below = &mut |bound| random.below(bound);
    let verified = verify(client, &ledger, oldest, Depth::Sample { per_block, pruned, below })?;
    let indexed = indexer.verify(&ledger)?;
    indexer.unregister()?;

    let entries = ledger.entries();
    let (gone, kept) = entries.split_at(entries.partition_point(|entry| entry.number < oldest));
    let (appended, pruned) = (Amount::of(entries), Amount::of(gone));
    ensure!(
        status.pruned_bytes == pruned.bytes,
        "{} bytes were pruned; the canister reports {}",
        pruned.bytes,
        status.pruned_bytes
    );
    healthy(client, None)?;
    Ok(DemoReport {
        command: "demo",
        seed,
        retain_blocks,
        first_block,
        last_block,
        appended,
        appended_in_chunks,
        pruned,
        kept: Amount::of(kept),
        storage: Storage::from(&client.get_storage_status(None).wait()?),
        billed_bytes_at_first,
        growth_stopped_at_block: growth,
        growth_stopped_after_blocks: growth.map_or(0, |block| block - first_block + 1),
        story: story.end(&status, billed_bytes, growth),
        instructions: None,
        indexed,
        verified,
        elapsed_secs: seconds_since(started),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn growth_must_stop_within_the_first_six_tenths() {
        let report = |after| DemoReport {
            appended: Amount { blocks: 100, ..Amount::default() },
            growth_stopped_after_blocks: after,
            ..DemoReport::default()
        };
        report(0).check_growth().unwrap();
        report(60).check_growth().unwrap();
        assert!(report(61).check_growth().is_err());
    }

    #[test]
    fn too_long_window_is_refused_before_the_run() {
        let error = Plan::new(200, Some(150), 1).unwrap_err().to_string();
        assert!(error.contains("--retain-blocks"), "{error}");
    }
}
