//! `coppice ingest`: appends Bitcoin blocks from files, then looks up every block and every transaction. With `--utxo` each block
//! is also applied to the UTXO records.

use crate::blk::{self, Found};
use crate::client::{BLOCK_INTERVAL, CanisterClient, Client, Wait};
use crate::feed;
use crate::health::{healthy, prune_due};
use crate::ledger::Ledger;
use crate::order::{Ordered, order};
use crate::progress::Progress;
use crate::report::{Amount, Report, Storage, amount, blocks, count, seconds_since, verified_rows};
use crate::rules::NetworkRules;
use crate::say;
use crate::utxo::{self, Replay, Replayed};
use crate::verify::{Depth, Verified, verify};
use anyhow::{Context, Error, Result, anyhow, bail, ensure};
use bitcoin::hashes::Hash;
use bitcoin::{BlockHash, Txid};
use ic_coppice_client::Room;
use ic_coppice_interface::{AppendBlock, BlockHeader, ProblemCode, PrunePolicyArg, ReadError};
use serde::Serialize;
use std::collections::HashSet;
use std::path::PathBuf;
use std::time::Instant;

/// The largest `coinbase_maturity` that a canister accepts.
const MAX_MATURITY: i64 = u32::MAX as i64 / 2;

/// The newest blocks of a canister among which the last common block is sought: those of a page of headers.
const NEWEST: u64 = 1_000;

/// Options that name blocks, and the plan for them.
#[derive(Clone, Debug, clap::Args)]
pub struct BlocksArgs {
    /// blk*.dat files, raw blocks, or directories of them (*.dat, *.blk, *.raw), in any order
    #[arg(long, value_name = "PATH", num_args = 1.., required = true, env = "COPPICE_BLOCKS")]
    pub blk: Vec<PathBuf>,
    /// Network by whose rules the blocks are checked: work, Merkle root, witnesses. Difficulty adjustments are not checked, because they
    /// need headers that the files may lack [default: by the files' magic; mainnet for raw blocks]
    #[arg(long, value_name = "NAME")]
    pub network_rules: Option<NetworkRules>,
    /// The plan.
    #[command(flatten)]
    pub plan: Plan,
}

/// Options for the ingest of blocks.
#[derive(Clone, Debug, Default, PartialEq, Eq, clap::Args)]
pub struct Plan {
    /// Number of the first block [default: 0 for a network's genesis, 1 for the next block, else the height in the block's coinbase, else 0]
    #[arg(long, value_name = "N")]
    pub first_number: Option<u64>,
    /// Blocks that the canister retains behind the head; older ones are pruned [default: all]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub retain_blocks: Option<u64>,
    /// Also apply the blocks to the UTXO records: a record for each transaction, and a spend for each input. An operator applies the first
    /// block
    #[arg(long)]
    pub utxo: bool,
    /// Blocks until a coinbase can be spent, 0 for the same block; for test chains. On a network the canister's own setting must be equal
    /// [default: 100, on a network the canister's setting]
    #[arg(long, value_name = "N", requires = "utxo", value_parser = clap::value_parser!(u32).range(0..=MAX_MATURITY))]
    pub coinbase_maturity: Option<u32>,
    /// Transactions that the canister refuses, and that the UTXO records are to leave out
    #[arg(long, value_name = "TXID", num_args = 1.., requires = "utxo")]
    pub leave_out: Vec<Txid>,
}

/// The report of an ingest.
#[derive(Clone, Debug, Serialize)]
pub struct IngestReport {
    /// "ingest".
    pub command: &'static str,
    pub first_block: u64,
    pub last_block: u64,
    /// Hash of the last block, in the usual display order.
    pub last_hash: String,
    /// Appended blocks, including those of earlier runs.
    pub appended: Amount,
    /// Blocks that an earlier run had appended.
    pub already_there_blocks: u64,
    /// Appended blocks that were too long for an ingress message and were uploaded in chunks.
    pub appended_in_chunks: u64,
    /// Blocks of the files that are not part of the chain with the most work, or follow a block without a good copy.
    pub left_out_blocks: u64,
    /// Blocks that were found more than once.
    pub duplicate_blocks: u64,
    /// Pruned blocks.
    pub pruned: Amount,
    /// The result of the UTXO replay, with `--utxo`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub utxo: Option<Replayed>,
    /// Stable memory at the end.
    #[serde(flatten)]
    pub storage: Storage,
    pub verified: Verified,
    /// Wall-clock seconds, without the build.
    pub elapsed_secs: f64,
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
        rows.extend(verified_rows(self.verified, self.elapsed_secs));
        rows
    }
}

/// Finds the blocks of files, checks them and puts them in order. Reports on stderr which parts were skipped and which blocks are left out.
///
/// # Errors
/// When a file cannot be read, no block is found, or the first block of the chain has no good copy.
pub fn read(paths: &[PathBuf], rules: Option<NetworkRules>) -> Result<Ordered> {
    let scan = blk::scan(paths, rules)?;
    scan.notes.iter().for_each(|note| say!("note: {note}"));
    let ordered = order(scan);
    ordered.left_out.iter().for_each(|run| say!("note: {run}"));
    ordered.strangers.iter().for_each(|stranger| say!("note: {stranger}"));
    if ordered.duplicates > 0 {
        say!("note: {} found more than once", blocks(ordered.duplicates as u64));
    }
    if ordered.chain.is_empty() {
        ordered.check_whole()?;
    }
    Ok(ordered)
}

/// Appends a chain to a canister, after the canister's head if the head is one of the blocks, and verifies every block and every
/// transaction.
///
/// # Errors
/// When a block cannot be read, the canister refuses something or traps, an answer differs from what was appended, the canister's head is
/// of another chain, or its `coinbase_maturity` differs from the plan's.
pub fn feed_to(client: &Client<impl CanisterClient>, ordered: &Ordered, plan: &Plan) -> Result<IngestReport> {
    let &Plan { first_number, retain_blocks, utxo, coinbase_maturity, ref leave_out } = plan;
    let started = Instant::now();
    let (first, last) = ordered.chain.first().zip(ordered.chain.last()).context("there are no blocks to append")?;
    let length = ordered.chain.len() as u64;
    let there = already_there(client, &ordered.chain)?;
    let (first_block, why) = match (there.number, first_number) {
        (Some(number), None) => (number, "by the canister's head"),
        (Some(there), Some(number)) => {
            ensure!(
                there == number,
                "--first-number {number}, but in the canister the first block has number {there}; leave the option out"
            );
            (number, "by --first-number and the canister's head")
        }
        (None, Some(number)) => (number, "by --first-number"),
        (None, None) => number_of(first)?,
    };
    let last_block = first_block.checked_add(length - 1).context("the last block number does not fit into 64 bits")?;
    if utxo {
        utxo::check_numbers(first, first_block, last_block)?;
        utxo::check_maturity(client, coinbase_maturity)?;
    }
    say!("{} from number {first_block} on ({why})", blocks(length));
    if there.blocks > 0 {
        say!("the canister already has {} of them", count(there.blocks));
    }

    if let Some(retain_blocks) = retain_blocks {
        let policy = PrunePolicyArg { retain_blocks: Some(retain_blocks), ..PrunePolicyArg::default() };
        let change = client.set_prune_policy(&policy).done()?;
        if let Some(old) = change.old.filter(|old| old.retain_blocks != retain_blocks) {
            say!("the policy's retain_blocks was {}, and is now {retain_blocks}", old.retain_blocks);
        }
    }
    let mut fed =
        Fed { replay: utxo.then(|| Replay::start(client, first_block, leave_out)).transpose()?, ..Fed::default() };
    fed.feed_all(client, &ordered.chain, first_block, there.blocks)?;
    let Fed { ledger, in_chunks, replay } = fed;
    if retain_blocks.is_some() {
        prune_due(client)?;
    }
    let kept_from = client.get_prune_status().wait()?.oldest_kept_block.context("nothing is kept")?;
    // The canister may hold older blocks than the files.
    let oldest = kept_from.max(first_block);
    if let Some(retain_blocks) = retain_blocks {
        let retained = last_block.saturating_sub(retain_blocks).max(first_block);
        ensure!(oldest == retained, "the oldest kept block is {oldest}, but should be {retained}");
    } else if there.blocks == 0 {
        ensure!(oldest == first_block, "the oldest kept block is {oldest}, but nothing should have been pruned");
    }
    let verified = verify(client, &ledger, oldest, Depth::All)?;
    let utxo = replay.map(|replay| replay.finish(client)).transpose()?;
    // This command has no block assembly, and leaves the pruning of records to the node that has one.
    healthy(client, utxo.is_some().then_some(ProblemCode::UtxoPrunerWaits))?;

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
        left_out_blocks: ordered.left_out_blocks(),
        duplicate_blocks: ordered.duplicates as u64,
        pruned,
        utxo,
        storage: Storage::from(&client.get_storage_status(None).wait()?),
        verified,
        elapsed_secs: seconds_since(started),
    })
}

/// The part of a chain that a canister already has.
struct There {
    blocks: u64,
    /// The number of the chain's first block.
    number: Option<u64>,
}

/// Finds a canister's head among the blocks.
fn already_there(client: &Client<impl CanisterClient>, chain: &[Found]) -> Result<There> {
    let head = match client.get_head().wait()? {
        Err(ReadError::NotFound) => return Ok(There { blocks: 0, number: None }),
        Err(error) => bail!("the canister's head cannot be read: {error}"),
        Ok(head) => head,
    };
    let is_child = |found: &Found| *head.hash == found.header.prev_blockhash.to_byte_array();
    let blocks = match chain.iter().position(|found| *head.hash == found.hash.to_byte_array()) {
        Some(at) => at as u64 + 1,
        None if chain.first().is_some_and(is_child) => 0,
        None => return Err(apart(client, &head, chain)?),
    };
    let number = (head.number + 1).checked_sub(blocks);
    Ok(There { blocks, number: Some(number.context("the file starts before block 0 of the canister's chain")?) })
}

/// Explains why blocks cannot follow the canister's head, and names what helps.
fn apart(client: &Client<impl CanisterClient>, head: &BlockHeader, chain: &[Found]) -> Result<Error> {
    let oldest = client.get_prune_status().wait()?.oldest_kept_block.unwrap_or(head.number);
    let from = oldest.max((head.number + 1).saturating_sub(NEWEST));
    let newest = client.get_block_headers(from, head.number).wait()?;
    let newest = newest.map_err(|error| anyhow!("the canister's newest blocks cannot be read: {error}"))?.headers;
    let before = chain.first().map(|first| first.header.prev_blockhash);
    let known: HashSet<BlockHash> = chain.iter().map(|found| found.hash).chain(before).collect();
    let hash = |header: &BlockHeader| BlockHash::from_slice(&header.hash).unwrap_or_else(|_| BlockHash::all_zeros());
    let common = newest.iter().rev().find(|header| known.contains(&hash(header)));
    let there = format!("the canister's head, number {} ({})", head.number, hash(head));
    let Some(common) = common else {
        return Ok(anyhow!(
            "{there}, is not among these blocks and not the parent of the first, and neither are the {} below it: name files whose \
             blocks follow the head, or the canister of these blocks",
            blocks((newest.len() as u64).saturating_sub(1))
        ));
    };
    let number = common.number;
    if chain.last().is_some_and(|last| last.hash == hash(common)) {
        return Ok(anyhow!(
            "{there}, is ahead of these blocks, which end with its block {number}: name the files with the blocks above"
        ));
    }
    Ok(anyhow!(
        "{there}, is on another branch than these blocks; the last block of both is number {number} ({}): make it the head, which \
         takes applied blocks back from the UTXO records: rollback_to '({number} : nat64, null)', which a producer may call within \
         max_rollback_blocks, and an admin always. Then start this command again",
        hash(common)
    ))
}

/// Returns the number of a chain's first block, and the reason for that number.
///
/// # Errors
/// When the block cannot be read.
pub fn number_of(first: &Found) -> Result<(u64, &'static str)> {
    let geneses = NetworkRules::ALL.map(NetworkRules::genesis);
    if geneses.contains(&first.hash) {
        return Ok((0, "the first block is the genesis of its network"));
    }
    if geneses.contains(&first.header.prev_blockhash) {
        return Ok((1, "the first block follows the genesis of its network"));
    }
    let (_, block) = first.load()?;
    // Blocks of version 2 and above hold their height (BIP 34); before that rule was enforced, a few hold something else.
    Ok(match block.bip34_block_height() {
        Ok(height) => (height, "the height in the first block's coinbase; set another with --first-number"),
        Err(_) => (0, "the first block does not hold its height; set another with --first-number"),
    })
}

/// The state of a running ingest.
#[derive(Default)]
struct Fed {
    ledger: Ledger,
    in_chunks: u64,
    replay: Option<Replay>,
}

impl Fed {
    /// Appends the new blocks in order, many in a message, and replays all blocks, because an interrupted run may have stopped within any of
    /// them.
    fn feed_all(
        &mut self,
        client: &Client<impl CanisterClient>,
        chain: &[Found],
        first_block: u64,
        there: u64,
    ) -> Result<()> {
        let progress = Progress::new("appending", chain.len() as u64);
        let (mut waiting, mut room) = (Vec::new(), Room::default());
        // Applied blocks hold pruning back, so the first block of a replay is applied before blocks follow that could have it pruned.
        let alone = if self.replay.is_some() { first_block.max(1) } else { 0 };
        for (number, found) in (first_block..).zip(chain) {
            let (raw, transactions) = found.load()?;
            let block = feed::bitcoin_block(number, raw, &transactions)?;
            if number - first_block < there {
                self.follow_up(client, &block, &transactions)?;
                progress.advance();
                continue;
            }
            if !room.takes(&block) {
                self.append(client, &mut waiting, &progress)?;
                room = Room::default();
                room.takes(&block);
            }
            waiting.push((block, transactions));
            if number <= alone {
                self.append(client, &mut waiting, &progress)?;
                room = Room::default();
            }
        }
        self.append(client, &mut waiting, &progress)?;
        progress.finish();
        Ok(())
    }

    /// Appends blocks, and lets the time of a block pass after each.
    fn append(
        &mut self,
        client: &Client<impl CanisterClient>,
        waiting: &mut Vec<(AppendBlock, bitcoin::Block)>,
        progress: &Progress,
    ) -> Result<()> {
        let (blocks, transactions): (Vec<_>, Vec<_>) = waiting.drain(..).unzip();
        self.in_chunks += feed::send(client, &blocks)?;
        for (block, transactions) in blocks.iter().zip(&transactions) {
            self.follow_up(client, block, transactions)?;
            client.transport().pass(BLOCK_INTERVAL)?;
            progress.advance();
        }
        Ok(())
    }

    /// Replays an appended block, and records it.
    fn follow_up(
        &mut self,
        client: &Client<impl CanisterClient>,
        block: &AppendBlock,
        transactions: &bitcoin::Block,
    ) -> Result<()> {
        if let Some(replay) = &mut self.replay {
            replay.block(client, block.number, transactions)?;
        }
        self.ledger.record(block);
        Ok(())
    }
}
