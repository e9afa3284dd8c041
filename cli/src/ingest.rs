//! `coppice ingest`: Bitcoin blocks from files go in whole, and every one of them, and every transaction, is looked up.

use crate::args::{HostArgs, IngestArgs};
use crate::blk::{self, Found};
use crate::canister::Client;
use crate::demo::{BLOCK_INTERVAL, healthy, settle, total};
use crate::embedded::Embedded;
use crate::feed::{self, Place};
use crate::ledger::Ledger;
use crate::order::{Ordered, order};
use crate::progress::Progress;
use crate::report::{self, Amount, Instructions, Report, Storage, amount, blocks, common_rows, count, seconds_since};
use crate::verify::{Depth, Verified, verify};
use crate::wasm;
use anyhow::{Context, Result, ensure};
use bitcoin::Network;
use bitcoin::constants::genesis_block;
use bitcoin::hashes::Hash;
use coppice_canister::api::PrunePolicyArg;
use serde::Serialize;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// The figures of an ingest.
#[derive(Clone, Debug, Serialize)]
pub struct IngestReport {
    /// "ingest".
    pub command: &'static str,
    /// Number of the first block.
    pub first_block: u64,
    /// Number of the last block.
    pub last_block: u64,
    /// Hash of the last block, as it is displayed.
    pub last_hash: String,
    /// What was appended.
    pub appended: Amount,
    /// Of it, blocks that were longer than an ingress message and went in chunks.
    pub appended_in_chunks: u64,
    /// Blocks of the files that are no part of the longest chain.
    pub left_out_blocks: u64,
    /// Blocks that were found again.
    pub duplicate_blocks: u64,
    /// What was pruned.
    pub pruned: Amount,
    /// Stable memory at the end.
    #[serde(flatten)]
    pub storage: Storage,
    /// Instructions.
    pub instructions: Instructions,
    /// What was verified.
    pub verified: Verified,
    /// Wall-clock seconds, without the build.
    pub seconds: f64,
}

impl Report for IngestReport {
    fn rows(&self) -> Vec<(&'static str, String)> {
        let mut rows = vec![
            ("blocks", format!("{} to {}", count(self.first_block), count(self.last_block))),
            ("last hash", self.last_hash.clone()),
            ("appended", amount(self.appended)),
            ("of which uploaded in chunks", blocks(self.appended_in_chunks)),
            ("left out", blocks(self.left_out_blocks)),
            ("found more than once", blocks(self.duplicate_blocks)),
        ];
        if self.pruned.blocks > 0 {
            rows.push(("pruned by the timer", amount(self.pruned)));
        }
        rows.extend(common_rows(self.storage, self.instructions, self.verified, self.seconds));
        rows
    }
}

/// Feeds the blocks and prints the report.
///
/// # Errors
/// As [`run`].
pub fn command(args: &IngestArgs) -> Result<()> {
    let HostArgs { wasm, json } = &args.host;
    let ordered = read(&args.blk)?;
    let wasm = wasm::find(wasm.as_deref())?;
    report::print(&run(wasm, &ordered, args.first_number, args.retain_blocks)?, *json)
}

/// Finds the blocks of files and puts them in order; says on stderr what was skipped and what is left out.
///
/// # Errors
/// When a file cannot be read, or no block is found.
pub fn read(paths: &[PathBuf]) -> Result<Ordered> {
    let scan = blk::scan(paths)?;
    scan.notes.iter().for_each(|note| eprintln!("note: {note}"));
    let ordered = order(scan.blocks);
    ordered.left_out.iter().for_each(|run| eprintln!("note: {run}"));
    if ordered.duplicates > 0 {
        eprintln!("note: {} found more than once", blocks(ordered.duplicates as u64));
    }
    Ok(ordered)
}

/// Feeds a chain to a canister in this process, and verifies every block and every transaction.
///
/// # Errors
/// When a block cannot be read, the canister refuses something or traps, or it answers anything but what was appended.
pub fn run(
    wasm: Vec<u8>,
    ordered: &Ordered,
    first_number: Option<u64>,
    retain_blocks: Option<u64>,
) -> Result<IngestReport> {
    let started = Instant::now();
    let (first, last) = ordered.chain.first().zip(ordered.chain.last()).context("there are no blocks to append")?;
    let length = ordered.chain.len() as u64;
    let (first_block, why) = match first_number {
        Some(number) => (number, "as asked"),
        None => number_of(first)?,
    };
    let last_block = first_block.checked_add(length - 1).context("block numbers have 64 bits")?;
    eprintln!("{} from number {first_block} on ({why})", blocks(length));

    let client = Embedded::start(wasm)?;
    let mut interval = None;
    if let Some(retain_blocks) = retain_blocks {
        let policy = PrunePolicyArg { retain_blocks: Some(retain_blocks), ..PrunePolicyArg::default() };
        interval = Some(Duration::from_secs(client.set_prune_policy(&policy)?.timer_interval_secs));
    }
    let mut ledger = Ledger::default();
    let appended_in_chunks = feed_all(&client, &ordered.chain, first_block, &mut ledger)?;
    let mut oldest = first_block;
    if let Some(interval) = interval {
        settle(&client, interval)?;
        let retained = last_block.saturating_sub(retain_blocks.unwrap_or_default());
        oldest = client.prune_status()?.oldest_kept_block.context("nothing is kept")?;
        ensure!(oldest == retained.max(first_block), "the oldest kept block is {oldest}, and should be {retained}");
    }
    let costs = client.transport().costs()?;
    let verified = verify(&client, &ledger, oldest, Depth::All)?;
    healthy(&client)?;

    let entries = ledger.entries();
    let (appended, pruned) = (total(entries), total(&entries[..(oldest - first_block) as usize]));
    Ok(IngestReport {
        command: "ingest",
        first_block,
        last_block,
        last_hash: last.hash.to_string(),
        appended,
        appended_in_chunks,
        left_out_blocks: ordered.left_out.iter().map(|run| run.blocks as u64).sum(),
        duplicate_blocks: ordered.duplicates as u64,
        pruned,
        storage: Storage::from(&client.storage_status()?),
        instructions: Instructions::new(&costs, appended, pruned),
        verified,
        seconds: seconds_since(started),
    })
}

/// The number of a chain's first block, and how it is known.
fn number_of(first: &Found) -> Result<(u64, &'static str)> {
    let genesis = genesis_block(Network::Bitcoin).block_hash();
    if first.hash == genesis {
        return Ok((0, "the first is mainnet's genesis"));
    }
    if first.header.prev_blockhash == genesis {
        return Ok((1, "the first follows mainnet's genesis"));
    }
    let (_, block) = first.load()?;
    // Blocks of version 2 and up state their height since BIP 34; before it was enforced, a few state something else.
    Ok(match block.bip34_block_height() {
        Ok(height) => (height, "the height in the first block's coinbase; --first-number says otherwise"),
        Err(_) => (0, "the first block does not state its height; --first-number says otherwise"),
    })
}

/// Appends blocks in order, and answers how many of them went in chunks.
fn feed_all(client: &Client<Embedded>, chain: &[Found], first_block: u64, ledger: &mut Ledger) -> Result<u64> {
    let progress = Progress::new("appending", chain.len() as u64);
    let mut in_chunks = 0;
    for (number, found) in (first_block..).zip(chain) {
        let (raw, block) = found.load()?;
        let place = Place {
            number,
            hash: found.hash.to_byte_array(),
            parent: found.header.prev_blockhash.to_byte_array(),
            timestamp: u64::from(found.header.time),
        };
        let block = feed::block(&place, feed::bitcoin_segments(raw, &block));
        in_chunks += u64::from(feed::send(client, &block)?);
        ledger.record(&block);
        client.transport().pass(BLOCK_INTERVAL);
        client.transport().costs()?;
        progress.advance();
    }
    progress.finish();
    Ok(in_chunks)
}
