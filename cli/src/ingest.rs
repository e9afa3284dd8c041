//! `coppice ingest`: Bitcoin blocks from files go in whole, and every one of them, and every transaction, is looked up. With
//! `--utxo` they are replayed into the UTXO store as well.

use crate::blk::{self, Found};
use crate::client::{Client, Wait};
use crate::feed::{self, Header};
use crate::ledger::Ledger;
use crate::order::{Ordered, order};
use crate::progress::Progress;
use crate::report::{Amount, Report, Storage, amount, blocks, count, seconds_since, verified_rows};
use crate::say;
use crate::site::{BLOCK_INTERVAL, Site, healthy, settle};
use crate::utxo::{self, Replay, Replayed};
use crate::verify::{Depth, Verified, verify};
use anyhow::{Context, Result, bail, ensure};
use bitcoin::Network;
use bitcoin::constants::genesis_block;
use bitcoin::hashes::Hash;
use coppice_interface::{PrunePolicyArg, PrunePolicyChange, ReadError};
use serde::Serialize;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// The largest `coinbase_maturity` that a canister takes.
const MAX_MATURITY: i64 = u32::MAX as i64 / 2;

/// Options that name blocks, and say what to do with them.
#[derive(Clone, Debug, clap::Args)]
pub struct BlocksArgs {
    /// blk*.dat files, raw blocks, or directories of them (*.dat, *.blk, *.raw), in any order
    #[arg(long, value_name = "PATH", num_args = 1.., required = true, env = "COPPICE_BLOCKS")]
    pub blk: Vec<PathBuf>,
    /// Plan.
    #[command(flatten)]
    pub plan: Plan,
}

/// Options that say what to do with blocks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::Args)]
pub struct Plan {
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
}

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
    /// What was appended, or had been in a run before.
    pub appended: Amount,
    /// Blocks that were there already, from a run before.
    pub already_there_blocks: u64,
    /// Of what was appended, blocks that were longer than an ingress message and went in chunks.
    pub appended_in_chunks: u64,
    /// Blocks of the files that are no part of the longest chain.
    pub left_out_blocks: u64,
    /// Blocks that were found again.
    pub duplicate_blocks: u64,
    /// What was pruned.
    pub pruned: Amount,
    /// What became of the UTXO store, where it got the blocks too.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub utxo: Option<Replayed>,
    /// Stable memory at the end.
    #[serde(flatten)]
    pub storage: Storage,
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
        if self.already_there_blocks > 0 {
            rows.push(("there already", blocks(self.already_there_blocks)));
        }
        if self.pruned.blocks > 0 {
            rows.push(("pruned by the timer", amount(self.pruned)));
        }
        rows.extend(self.utxo.iter().flat_map(Replayed::rows));
        rows.extend(self.storage.rows());
        rows.extend(verified_rows(self.verified, self.seconds));
        rows
    }
}

/// Finds the blocks of files and puts them in order; says on stderr what was skipped and what is left out.
///
/// # Errors
/// When a file cannot be read, or no block is found.
pub fn read(paths: &[PathBuf]) -> Result<Ordered> {
    let scan = blk::scan(paths)?;
    scan.notes.iter().for_each(|note| say!("note: {note}"));
    let ordered = order(scan.blocks);
    ordered.left_out.iter().for_each(|run| say!("note: {run}"));
    if ordered.duplicates > 0 {
        say!("note: {} found more than once", blocks(ordered.duplicates as u64));
    }
    Ok(ordered)
}

/// Feeds a chain to a canister, from behind its head where that is one of the blocks, and verifies every block and every
/// transaction.
///
/// # Errors
/// When a block cannot be read, the canister refuses something or traps, it answers anything but what was appended, its head is
/// another chain's, or its `coinbase_maturity` is not the plan's.
pub fn feed_to(client: &Client<impl Site>, ordered: &Ordered, plan: Plan) -> Result<IngestReport> {
    let Plan { first_number, retain_blocks, utxo, coinbase_maturity } = plan;
    let started = Instant::now();
    let (first, last) = ordered.chain.first().zip(ordered.chain.last()).context("there are no blocks to append")?;
    let length = ordered.chain.len() as u64;
    let there = already_there(client, &ordered.chain)?;
    let (first_block, why) = match (there.number, first_number) {
        (Some(number), None) => (number, "as the canister's head says"),
        (Some(there), Some(number)) => {
            ensure!(there == number, "--first-number {number}, but the canister has the first block as number {there}");
            (number, "as asked, and as the canister's head says")
        }
        (None, Some(number)) => (number, "as asked"),
        (None, None) => number_of(first)?,
    };
    let last_block = first_block.checked_add(length - 1).context("block numbers have 64 bits")?;
    if utxo {
        utxo::check_numbers(first, first_block, last_block)?;
        utxo::check_maturity(client, coinbase_maturity)?;
    }
    say!("{} from number {first_block} on ({why})", blocks(length));
    if there.blocks > 0 {
        say!("{} of them are there already", count(there.blocks));
    }

    let mut interval = None;
    if let Some(retain_blocks) = retain_blocks {
        let policy = PrunePolicyArg { retain_blocks: Some(retain_blocks), ..PrunePolicyArg::default() };
        let PrunePolicyChange { old, new } = client.set_prune_policy(&policy).done()?;
        if let Some(old) = old.filter(|old| old.retain_blocks != retain_blocks) {
            say!("the policy's retain_blocks was {}, and is {retain_blocks} now", old.retain_blocks);
        }
        interval = Some(Duration::from_secs(new.timer_interval_secs));
    }
    let mut fed = Fed { replay: utxo.then(|| Replay::start(client)).transpose()?, ..Fed::default() };
    fed.feed_all(client, &ordered.chain, first_block, there.blocks)?;
    let Fed { ledger, in_chunks, replay } = fed;
    if let Some(interval) = interval {
        settle(client, interval)?;
    }
    let kept_from = client.get_prune_status().wait()?.oldest_kept_block.context("nothing is kept")?;
    // Before the files begin there may be others.
    let oldest = kept_from.max(first_block);
    if let Some(retain_blocks) = retain_blocks {
        let retained = last_block.saturating_sub(retain_blocks).max(first_block);
        ensure!(oldest == retained, "the oldest kept block is {oldest}, and should be {retained}");
    } else if there.blocks == 0 {
        ensure!(oldest == first_block, "the oldest kept block is {oldest}, and nothing should be pruned");
    }
    let verified = verify(client, &ledger, oldest, Depth::All)?;
    let utxo = replay.map(|replay| replay.finish(client)).transpose()?;
    healthy(client)?;

    let entries = ledger.entries();
    let (appended, pruned) = (Amount::of(entries), Amount::of(&entries[..(oldest - first_block) as usize]));
    Ok(IngestReport {
        command: "ingest",
        first_block,
        last_block,
        last_hash: last.hash.to_string(),
        appended,
        already_there_blocks: there.blocks,
        appended_in_chunks: in_chunks,
        left_out_blocks: ordered.left_out.iter().map(|run| run.blocks as u64).sum(),
        duplicate_blocks: ordered.duplicates as u64,
        pruned,
        utxo,
        storage: Storage::from(&client.get_storage_status().wait()?),
        verified,
        seconds: seconds_since(started),
    })
}

/// What a canister has of a chain.
struct There {
    /// Blocks.
    blocks: u64,
    /// The number of the chain's first block.
    number: Option<u64>,
}

/// Finds a canister's head among the blocks.
fn already_there(client: &Client<impl Site>, chain: &[Found]) -> Result<There> {
    let head = match client.get_head().wait()? {
        Err(ReadError::NotFound) => return Ok(There { blocks: 0, number: None }),
        Err(error) => bail!("the canister's head cannot be read: {error:?}"),
        Ok(head) => head,
    };
    let is_child = |found: &Found| *head.hash == found.header.prev_blockhash.to_byte_array();
    let blocks = match chain.iter().position(|found| *head.hash == found.hash.to_byte_array()) {
        Some(at) => at as u64 + 1,
        None if chain.first().is_some_and(is_child) => 0,
        None => bail!(
            "the canister's head, number {}, is none of these blocks, nor the parent of the first: they cannot follow it",
            head.number
        ),
    };
    let number = (head.number + 1).checked_sub(blocks);
    Ok(There { blocks, number: Some(number.context("the canister numbers these blocks below 0")?) })
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

/// What is known while blocks go in.
#[derive(Default)]
struct Fed {
    ledger: Ledger,
    in_chunks: u64,
    replay: Option<Replay>,
}

impl Fed {
    /// Appends blocks in order but those that are there, and replays all of them into the UTXO store: an interrupted run may
    /// have left any block of it half done.
    fn feed_all(&mut self, client: &Client<impl Site>, chain: &[Found], first_block: u64, there: u64) -> Result<()> {
        let progress = Progress::new("appending", chain.len() as u64);
        for (number, found) in (first_block..).zip(chain) {
            let (raw, transactions) = found.load()?;
            let header = Header {
                number,
                hash: found.hash.to_byte_array(),
                parent: found.header.prev_blockhash.to_byte_array(),
                timestamp: u64::from(found.header.time),
            };
            let block = feed::block(&header, feed::bitcoin_segments(raw, &transactions));
            let new = number - first_block >= there;
            if new {
                self.in_chunks += u64::from(feed::send(client, &block)?);
            }
            if let Some(replay) = &mut self.replay {
                replay.block(client, number, &transactions)?;
            }
            if new {
                client.transport().pass(BLOCK_INTERVAL)?;
            }
            self.ledger.record(&block);
            progress.advance();
        }
        progress.finish();
        Ok(())
    }
}
