//! `coppice index`: pulls a canister's chain into a database, and acknowledges what is stored so that it may be pruned.
//!
//! ```text
//!              export_blocks          chunks            one transaction
//!  canister ───────────────▶ engine ─────────▶ assemble ───────────────▶ store ──▶ SQLite, PostgreSQL
//!      ▲                       │                                           │
//!      └───── ack_exported ────┴───────────── only what is committed ──────┘
//! ```
//! The canister is one on a network, or one in this process that is fed with a generated chain and prunes it behind the
//! indexer.

pub mod args;
mod ask;
pub mod assemble;
pub mod change;
pub mod companion;
mod confirm;
pub mod database;
pub mod engine;
#[cfg(test)]
mod fake;
mod page;
pub mod progress;
mod reorg;
mod rest;
pub mod run;
pub mod schema;
mod secure;
pub mod steps;
pub mod store;
#[cfg(test)]
mod tests;

use crate::chain_gen::Generator;
use crate::client::{Client, Reach, Wait};
use crate::demo::{BLOCK_INTERVAL, healthy, settle};
use crate::embedded::Embedded;
use crate::ledger::Ledger;
use crate::network::Network;
use crate::progress::Progress;
use crate::report::{self, Report, blocks, bytes, count, seconds_since};
use crate::site::Site;
use crate::stop::Stop;
use crate::terminal::say;
use crate::{feed, wasm};
use anyhow::{Result, ensure};
use args::IndexArgs;
use ask::Word;
use companion::{Companion, Indexed};
use coppice_interface::PrunePolicyArg;
use engine::{Engine, ensure_registered};
use run::Until;
use serde::Serialize;
use std::time::{Duration, Instant};
use steps::{Figures, Onward, Options};
use store::{Held, Origin, Store};

/// The most ranges of numbers in a report.
const RANGES: usize = 1_000;
/// The most ranges of numbers in a line.
const RANGES_IN_LINE: usize = 20;

/// Numbers of blocks as ranges.
fn on_one_word(ranges: &[(u64, u64)]) -> String {
    let one = |&(first, last): &(u64, u64)| match last - first {
        0 => first.to_string(),
        _ => format!("{first} to {last}"),
    };
    let listed = ranges.iter().take(RANGES_IN_LINE).map(one).collect::<Vec<_>>().join(", ");
    listed + if ranges.len() > RANGES_IN_LINE { ", and more" } else { "" }
}

/// The figures of an indexer's run.
#[derive(Clone, Debug, Serialize)]
pub struct IndexReport {
    /// "index".
    pub command: &'static str,
    /// "SQLite" or "PostgreSQL".
    pub database: &'static str,
    /// The canister's principal.
    pub canister: String,
    /// What this run did.
    #[serde(flatten)]
    pub figures: Figures,
    /// What the database holds, of this run and those before.
    pub held: Held,
    /// Blocks that stand on one replica's word: ranges of numbers, both inclusive, the lowest 1,000 ranges.
    pub unconfirmed_ranges: Vec<(u64, u64)>,
    /// Of a canister in this process: blocks that its timer pruned.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pruned_blocks: Option<u64>,
    /// Of a canister in this process: what the database holds, against what was appended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub checked: Option<Indexed>,
    /// Wall-clock seconds, without the build.
    pub seconds: f64,
}

impl Report for IndexReport {
    fn rows(&self) -> Vec<(&'static str, String)> {
        let Self { figures, held, .. } = self;
        let number = |number: Option<u64>| number.map_or("none".into(), count);
        let lag = |lag: Option<u64>| lag.map_or("unknown: no update call has named a head".into(), blocks);
        let mut rows = vec![
            ("canister", self.canister.clone()),
            ("database", self.database.into()),
            ("holds blocks", format!("{} to {}", number(held.first), number(held.last))),
            ("holds", format!("{}, {} transactions", blocks(held.blocks), count(held.transactions))),
            ("missing between them", blocks(held.gap_blocks)),
            ("taken out by reorgs, and kept", blocks(held.orphaned_blocks)),
            ("on one replica's word", blocks(held.unconfirmed_blocks)),
            ("confirmed by the subnet now", blocks(figures.confirmed)),
            ("indexed now", format!("{}, {} transactions", blocks(figures.blocks), count(figures.transactions))),
            ("verified: SHA-256 of every segment", bytes(figures.bytes)),
            ("reorgs followed", format!("{}, {} taken out", count(figures.reorgs), blocks(figures.removed_blocks))),
            ("gaps left", format!("{}, {}", count(figures.gaps), blocks(figures.gap_blocks))),
            ("answers to queries not confirmed", count(figures.unconfirmed)),
            ("tried again", count(figures.retried)),
            ("acknowledgements", count(figures.acks)),
            ("acknowledged before block", number(figures.acknowledged_before)),
            ("lag", lag(figures.lag)),
            ("largest lag", lag(figures.largest_lag)),
        ];
        if !self.unconfirmed_ranges.is_empty() {
            rows.push(("of one replica: blocks", on_one_word(&self.unconfirmed_ranges)));
        }
        if let Some(pruned) = self.pruned_blocks {
            rows.push(("pruned by the timer", blocks(pruned)));
        }
        if let Some(checked) = &self.checked {
            rows.push(("in the database as appended", blocks(checked.verified_blocks)));
            rows.push(("pruned before they were indexed", blocks(checked.pruned_before_indexed)));
        }
        rows.push(("seconds", format!("{:.1}", self.seconds)));
        rows
    }
}

/// Runs the indexer and prints its report.
///
/// # Errors
/// As [`Engine::step`]; when the network, the canister or the database cannot be used.
pub fn command(args: &IndexArgs) -> Result<()> {
    // A database that cannot be is said before anything is built or reached.
    if args.insecure_database {
        database::Kind::of(&args.database)?;
    } else {
        secure::ensure_secure(&args.database)?;
    }
    ensure!(
        args.network.network.is_some() || args.acknowledges(),
        "with --payload headers nothing is acknowledged, so that the canister in this process would prune nothing: --ack-headers \
         says that it may"
    );
    let report = match args.network.connect()? {
        Some(client) => network(args, &client, &Stop::on_signals()?)?,
        None => embedded(args, wasm::find(args.host.wasm.as_deref())?)?,
    };
    report::print(&report, args.host.json)
}

/// Copies the chain of a canister on a network, until the head, or for ever.
///
/// # Errors
/// As [`command`].
pub fn network(args: &IndexArgs, client: &Client<Network>, stop: &Stop) -> Result<IndexReport> {
    let started = Instant::now();
    let site = client.transport();
    let canister = site.canister().to_string();
    let origin = Origin { canister: canister.clone(), network: site.url().into(), payload: args.payload };
    let store = Store::open(&args.database, &origin)?;
    let ack_every = args.acknowledges().then_some(args.ack_every);
    if !args.acknowledges() && !args.no_ack {
        say!("note: nothing is acknowledged, as no payload is kept; --ack-headers acknowledges all the same");
    }
    let until = Until { caught_up: args.until_caught_up, max_wait: args.max_wait() };
    run::bound_calls(client, stop, run::LAST_CALL);
    let mut retried = 0;
    if ack_every.is_some() {
        // Said now, and not after the first gigabyte. The second time the canister itself is asked.
        let mut word = Word::Query;
        let ensure = || ensure_registered(client, std::mem::replace(&mut word, Word::Update));
        run::retried(&until, stop, &mut retried, ensure)?;
    }
    let options = Options {
        page_bytes: args.page_bytes,
        ack_every,
        skip_damaged: args.skip_damaged,
        accept_reset: args.accept_reset,
        keep_orphaned: args.keep_orphaned,
    };
    let mut engine = Engine::open(client, store, options, Onward)?;
    engine.count_retried(retried);
    run::run(&mut engine, &until, stop)?;
    report_of(&mut engine, canister, started)
}

fn report_of<T: Reach>(engine: &mut Engine<'_, T>, canister: String, started: Instant) -> Result<IndexReport> {
    Ok(IndexReport {
        command: "index",
        database: engine.store().kind().name(),
        canister,
        figures: engine.figures(),
        held: engine.store().held()?,
        unconfirmed_ranges: engine.store().unconfirmed_ranges(RANGES)?,
        pruned_blocks: None,
        checked: None,
        seconds: seconds_since(started),
    })
}

/// Feeds a canister in this process and copies its chain, while its timer prunes behind.
///
/// # Errors
/// When the canister refuses something or traps, its timer does not prune, or the database holds anything but what was
/// appended.
pub fn embedded(args: &IndexArgs, wasm: Vec<u8>) -> Result<IndexReport> {
    let started = Instant::now();
    let client = Embedded::start(wasm)?;
    let canister = client.transport().canister().to_string();
    let origin = Origin { canister: canister.clone(), network: "embedded".into(), payload: args.payload };
    let mut companion = Companion::start(&client, &args.database, &origin)?;
    let retain_blocks = args.retain_blocks.unwrap_or(args.blocks / 5);
    let policy = PrunePolicyArg { retain_blocks: Some(retain_blocks), ..PrunePolicyArg::default() };
    let policy = client.set_prune_policy(&policy).done()?.new;
    let mut ledger = Ledger::default();
    let now = client.transport().now_secs();
    let generator = Generator::new(args.seed, args.blocks, now, BLOCK_INTERVAL.as_secs())?;
    companion.index_while(|pace| {
        let progress = Progress::new("indexing", args.blocks);
        for block in generator {
            feed::send(&client, &block)?;
            ledger.record(&block);
            pace.appended()?;
            client.transport().pass(BLOCK_INTERVAL);
            client.transport().costs()?;
            progress.advance();
        }
        progress.finish();
        Ok(())
    })?;
    let status = settle(&client, Duration::from_secs(policy.timer_interval_secs))?;
    healthy(&client)?;
    let retained = (retain_blocks + 1).min(args.blocks);
    ensure!(
        status.pruned_blocks == args.blocks - retained,
        "{} should be pruned, and {} are",
        blocks(args.blocks - retained),
        status.pruned_blocks
    );
    let checked = companion.verify(&ledger)?;
    let mut report = report_of(companion.engine(), canister, started)?;
    report.pruned_blocks = Some(status.pruned_blocks);
    report.checked = Some(checked);
    Ok(report)
}
