//! Compares the canister's answers with the appended blocks.

use crate::client::{Client, Segments, Transport, Wait, told};
use crate::feed::{self, sha256};
use crate::ledger::{Entry, Ledger};
use crate::progress::Progress;
use anyhow::{Context, Result, anyhow, bail, ensure};
use ic_coppice_interface::segments::{ID, Receipts};
use ic_coppice_interface::{BlockHeader, ReadError};
use serde::Serialize;
use serde_bytes::ByteBuf;

/// The transactions to look up. Blocks are always all read back whole.
pub enum Depth<'a> {
    /// Every transaction of every block.
    All,
    /// A choice of transactions.
    Sample {
        /// Number per kept block.
        per_block: u64,
        /// Number over all pruned blocks.
        pruned: usize,
        /// Returns a number below another one, which makes the choice.
        below: &'a mut dyn FnMut(u64) -> u64,
    },
}

/// Interval of the look-ups by `get_transaction_location` besides `get_receipt`: the first of every 16 transactions of a block. The
/// canister resolves ids in the same way for both methods.
const COMPARED: usize = 16;

/// The result of the verification.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Verified {
    /// Kept blocks whose header is unchanged and whose segments read back to the same SHA-256.
    pub blocks: u64,
    /// Bytes of these segments.
    pub bytes: u64,
    /// Kept transactions that were found by id, at the right position.
    pub transactions: u64,
    /// Receipts that were found by id, and equal the block's. The receipt of an id that recurs in a later kept block is checked there.
    pub receipts: u64,
    /// Pruned blocks for which the canister returns `Pruned`.
    pub pruned_blocks: u64,
    /// Transactions of pruned blocks that are no longer found, and their receipts neither.
    pub pruned_transactions: u64,
}

/// Verifies all blocks of the ledger: those before `oldest` must be pruned, the others kept.
///
/// # Errors
/// At the first answer that differs from the appended blocks.
pub fn verify(client: &Client<impl Transport>, ledger: &Ledger, oldest: u64, mut depth: Depth) -> Result<Verified> {
    let entries = ledger.entries();
    let (gone, kept) = entries.split_at(entries.partition_point(|entry| entry.number < oldest));
    let last = kept.last().context("no block is kept")?;
    let head = client.get_head().wait()?.map_err(|error| anyhow!("the canister has no head: {error}"))?;
    ensure!(last.is(&head), "the head is not the last appended block, number {}, but {}", last.number, named(&head));
    let storage = client.get_storage_status(None).wait()?;
    let status = client.get_prune_status().wait()?;
    let expected = (kept.len() as u64, kept.iter().map(Entry::bytes).sum());
    let found: (u64, u64) = (storage.blocks, storage.payload_bytes);
    // The canister may hold older blocks that are not in the ledger.
    let before = status.oldest_kept_block.is_some_and(|kept| entries.first().is_some_and(|entry| kept < entry.number));
    ensure!(
        before || found == expected,
        "the canister should have {} blocks with {} payload bytes, but has {} with {}",
        expected.0,
        expected.1,
        found.0,
        found.1
    );
    // Stale entries count until a sweep removes them, including those that newer entries have replaced.
    let (ids, counted) = (ledger.different_from(oldest), storage.index_entries..=status.transaction_index.entries);
    ensure!(
        before || counted.contains(&ids),
        "{ids} different transactions are kept, but the index has {} to {} entries",
        counted.start(),
        counted.end()
    );

    let mut verified = Verified::default();
    for entry in gone {
        let answer = client.get_block(entry.number).wait()?;
        let ok = answer == Err(ReadError::Pruned { first_available: oldest });
        ensure!(ok, "block {} is pruned up to block {oldest}, but get_block differs: {}", entry.number, told(&answer));
        verified.pruned_blocks += 1;
    }
    for id in pick(ledger.gone_before(oldest), &mut depth) {
        let answer = client.get_transaction_location(ByteBuf::from(id)).wait()?;
        let ok = answer == Err(ReadError::NotFound);
        ensure!(ok, "transaction {} is pruned, but get_transaction_location differs: {}", hex(&id), told(&answer));
        let answer = client.get_receipt(ByteBuf::from(id)).wait()?;
        let ok = answer == Err(ReadError::NotFound);
        ensure!(ok, "transaction {} is pruned, but get_receipt differs: {}", hex(&id), told(&answer));
        verified.pruned_transactions += 1;
    }
    let progress = Progress::new("verifying", kept.len() as u64);
    for entry in kept {
        let segments = read_back(client, entry)?;
        verified.blocks += 1;
        verified.bytes += entry.bytes();
        let [_, receipts, index] = &segments;
        let ids = feed::ids_of(index);
        let receipts = Receipts::parse(receipts, ids.len() as u32).ok();
        for (at, position) in (0..).zip(positions(entry.transactions, &mut depth)) {
            let compare = at % COMPARED == 0;
            verified.receipts += u64::from(look_up(client, ledger, entry, (ids, receipts), position, compare)?);
            verified.transactions += 1;
        }
        progress.advance();
    }
    progress.finish();
    Ok(verified)
}

fn pick(mut ids: Vec<[u8; ID]>, depth: &mut Depth) -> Vec<[u8; ID]> {
    if let Depth::Sample { pruned, below, .. } = depth {
        for at in 0..ids.len().min(*pruned) {
            let other = at + below((ids.len() - at) as u64) as usize;
            ids.swap(at, other);
        }
        ids.truncate(*pruned);
    }
    ids
}

fn positions(transactions: u32, depth: &mut Depth) -> Vec<u32> {
    match depth {
        Depth::Sample { per_block, below, .. } if *per_block < u64::from(transactions) => {
            (0..*per_block).map(|_| below(u64::from(transactions)) as u32).collect()
        }
        _ => (0..transactions).collect(),
    }
}

/// Reads a block back, and compares its header and digests.
fn read_back(client: &Client<impl Transport>, entry: &Entry) -> Result<Segments> {
    let number = entry.number;
    let (header, segments) = match client.whole_block(number).wait()? {
        Ok(block) => block,
        Err(error) => bail!("block {number} is kept, but cannot be read: {error}"),
    };
    ensure!(entry.is(&header), "block {number} has another header than the appended block: {}", named(&header));
    for (segment, expected) in segments.iter().zip(entry.sha256.each()) {
        let found = sha256(segment);
        ensure!(
            found == ***expected,
            "block {number} reads back with digest {}, but {} was appended",
            hex(&found),
            hex(expected)
        );
    }
    Ok(segments)
}

/// Looks up a transaction and its receipt; returns whether it has a receipt. The receipt includes the location, so
/// `get_transaction_location` is called only for a transaction without a receipt, or if `compare` is set.
fn look_up(
    client: &Client<impl Transport>,
    ledger: &Ledger,
    entry: &Entry,
    (ids, receipts): (&[[u8; ID]], Option<Receipts>),
    position: u32,
    compare: bool,
) -> Result<bool> {
    let id = ids.get(position as usize).with_context(|| format!("block {}: no id {position}", entry.number))?;
    let expected = ledger.newest(id);
    let is_here = expected == Some((entry.number, position));
    let receipt = match receipts.and_then(|receipts| receipts.get(position)).filter(|_| is_here) {
        Some(expected) => match client.get_receipt(ByteBuf::from(*id)).wait()? {
            Ok(receipt) if *receipt.bytes == *expected => Some(receipt),
            Ok(receipt) => bail!(
                "transaction {}: its receipt has {} bytes, but get_receipt returns others, {} bytes",
                hex(id),
                expected.len(),
                receipt.bytes.len()
            ),
            Err(error) => bail!("transaction {}: its receipt cannot be read: {error}", hex(id)),
        },
        None => None,
    };
    let mut locations: Vec<_> = receipt.iter().map(|receipt| receipt.location.clone()).collect();
    if compare || locations.is_empty() {
        match client.get_transaction_location(ByteBuf::from(*id)).wait()? {
            Ok(location) => locations.push(location),
            Err(error) => bail!("transaction {} of block {} is not found: {error}", hex(id), entry.number),
        }
    }
    for location in locations {
        let found = (location.block_number, location.position);
        ensure!(
            Some(found) == expected,
            "transaction {} is found {}, not {}",
            hex(id),
            place(found),
            expected.map_or("anywhere".into(), place)
        );
        // If the id recurs in a later block, the check of that block compares the hash.
        ensure!(
            !is_here || location.block_hash == entry.hash,
            "transaction {} is found in block {}",
            hex(id),
            hex(&location.block_hash)
        );
    }
    Ok(receipt.is_some())
}

/// Returns a header's number, hash and time in words.
fn named(header: &BlockHeader) -> String {
    format!(
        "block {} with the hash {}, {} transactions and the time {}",
        header.number,
        hex(&header.hash[..]),
        header.transactions,
        header.timestamp_secs
    )
}

/// Returns a transaction's place in words.
fn place((block, position): (u64, u32)) -> String {
    format!("in block {block} at position {position}")
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use coppice_testkit::random::Random;

    #[test]
    fn sample_is_capped_at_the_available_transactions() {
        let ids: Vec<[u8; ID]> = (0..10).map(|id| [id; ID]).collect();
        let mut random = Random::new(1);
        let mut below = |bound| random.below(bound);
        let mut picked = |pruned| pick(ids.clone(), &mut Depth::Sample { per_block: 3, pruned, below: &mut below });
        let mut few = picked(4);
        few.sort_unstable();
        few.dedup();
        assert_eq!(few.len(), 4);
        assert_eq!(picked(40).len(), 10);
        assert_eq!(pick(ids.clone(), &mut Depth::All), ids);
        let mut three = Depth::Sample { per_block: 3, pruned: 0, below: &mut below };
        assert_eq!(positions(2, &mut three), [0, 1]);
        assert!(positions(100, &mut three).iter().all(|&position| position < 100));
        assert_eq!(positions(100, &mut three).len(), 3);
        assert_eq!(positions(100, &mut Depth::All).len(), 100);
    }
}
