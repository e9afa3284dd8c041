//! Holds everything the canister answers against what was appended.

use crate::client::{Client, Segments, Transport, Wait};
use crate::feed::{self, sha256};
use crate::ledger::{Entry, Ledger};
use crate::progress::Progress;
use crate::random::Random;
use anyhow::{Context, Result, anyhow, bail, ensure};
use coppice_interface::ReadError;
use coppice_interface::segments::{ID, Receipts};
use serde::Serialize;
use serde_bytes::ByteBuf;

/// How many transactions are looked up. Blocks are always read back whole, every one of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Depth {
    /// Every transaction of every block.
    All,
    /// Some of them, at random.
    Sample {
        /// Of each kept block.
        per_block: u64,
        /// Of all pruned blocks together.
        pruned: usize,
        /// Which ones.
        seed: u64,
    },
}

/// Of so many transactions of a block that are looked up, one is by `get_transaction_location` besides `get_receipt`: the
/// first, and so on. The canister looks an id up in one way for both.
const COMPARED: usize = 16;

/// What was verified.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Verified {
    /// Kept blocks whose header is as appended and whose segments read back to the same SHA-256.
    pub blocks: u64,
    /// Bytes of those segments.
    pub bytes: u64,
    /// Kept transactions that were found by id, where they are.
    pub transactions: u64,
    /// Receipts that were found by id, and are those of the block. An id that comes again in a later kept block has its
    /// receipt there.
    pub receipts: u64,
    /// Pruned blocks that answer `Pruned`.
    pub pruned_blocks: u64,
    /// Transactions of pruned blocks that are not found any more, nor their receipts.
    pub pruned_transactions: u64,
}

/// Verifies all blocks of the ledger; those before `oldest` must be pruned, the others kept.
///
/// # Errors
/// At the first answer that is not what was appended.
pub fn verify(client: &Client<impl Transport>, ledger: &Ledger, oldest: u64, depth: Depth) -> Result<Verified> {
    let entries = ledger.entries();
    let (gone, kept) = entries.split_at(entries.partition_point(|entry| entry.number < oldest));
    let last = kept.last().context("nothing is kept")?;
    let head = client.get_head().wait()?.map_err(|error| anyhow!("the canister has no head: {error:?}"))?;
    ensure!(last.is(&head), "the head is not the last block that was appended: {head:?}");
    let storage = client.get_storage_status().wait()?;
    let status = client.get_prune_status().wait()?;
    let expected = (kept.len() as u64, kept.iter().map(Entry::bytes).sum());
    let found: (u64, u64) = (storage.blocks, storage.payload_bytes);
    // Before the first of them the canister may have others, of which nothing is known here.
    let before = status.oldest_kept_block.is_some_and(|kept| entries.first().is_some_and(|entry| kept < entry.number));
    ensure!(before || found == expected, "blocks and payload bytes should be {expected:?}, and are {found:?}");
    // Stale entries are counted until a sweep, and what newer ones have replaced is among their number.
    let (ids, counted) = (ledger.different_from(oldest), storage.index_entries..=status.transaction_index.entries);
    ensure!(
        before || counted.contains(&ids),
        "{ids} different transactions are kept, and the index has {counted:?} entries"
    );

    let mut verified = Verified::default();
    for entry in gone {
        let answer = client.get_block(entry.number).wait()?;
        let ok = answer == Err(ReadError::Pruned { first_available: oldest });
        ensure!(ok, "block {} is pruned, yet get_block answers {:?}", entry.number, answer.map(|block| block.header));
        verified.pruned_blocks += 1;
    }
    let mut random = Random::new(match depth {
        Depth::All => 0,
        Depth::Sample { seed, .. } => seed,
    });
    for id in pick(ledger.gone_before(oldest), depth, &mut random) {
        let answers = (
            client.get_transaction_location(ByteBuf::from(id)).wait()?.err(),
            client.get_receipt(ByteBuf::from(id)).wait()?.err(),
        );
        let ok = answers == (Some(ReadError::NotFound), Some(ReadError::NotFound));
        ensure!(ok, "transaction {} is pruned, yet it is found, or fails: {answers:?}", hex(&id));
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
        for (at, position) in (0..).zip(positions(entry.transactions, depth, &mut random)) {
            let compare = at % COMPARED == 0;
            verified.receipts += u64::from(look_up(client, ledger, entry, (ids, receipts), position, compare)?);
            verified.transactions += 1;
        }
        progress.advance();
    }
    progress.finish();
    Ok(verified)
}

fn pick(mut ids: Vec<[u8; ID]>, depth: Depth, random: &mut Random) -> Vec<[u8; ID]> {
    if let Depth::Sample { pruned, .. } = depth {
        for at in 0..pruned.min(ids.len()) {
            let other = at + random.below((ids.len() - at) as u64) as usize;
            ids.swap(at, other);
        }
        ids.truncate(pruned);
    }
    ids
}

fn positions(transactions: u32, depth: Depth, random: &mut Random) -> Vec<u32> {
    match depth {
        Depth::Sample { per_block, .. } if per_block < u64::from(transactions) => {
            (0..per_block).map(|_| random.below(u64::from(transactions)) as u32).collect()
        }
        _ => (0..transactions).collect(),
    }
}

/// Reads a block back, and compares header and hashes.
fn read_back(client: &Client<impl Transport>, entry: &Entry) -> Result<Segments> {
    let number = entry.number;
    let (header, segments) = match client.whole_block(number).wait()? {
        Ok(block) => block,
        Err(error) => bail!("block {number} is kept, yet reading it answers {error:?}"),
    };
    ensure!(entry.is(&header), "block {number} has another header than was appended: {header:?}");
    for (segment, expected) in segments.iter().zip(entry.sha256.each()) {
        let found = sha256(segment);
        ensure!(
            found == ***expected,
            "block {number} reads back to {} where {} was appended",
            hex(&found),
            hex(expected)
        );
    }
    Ok(segments)
}

/// Looks a transaction up, and its receipt; answers whether it has one. The receipt's answer says where the transaction is:
/// `get_transaction_location` is asked only where there is none, or where it is to be compared.
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
            answer => bail!(
                "transaction {}: its receipt is {} bytes, and get_receipt answers {answer:?}",
                hex(id),
                expected.len()
            ),
        },
        None => None,
    };
    let mut locations: Vec<_> = receipt.iter().map(|receipt| receipt.location.clone()).collect();
    if compare || locations.is_empty() {
        match client.get_transaction_location(ByteBuf::from(*id)).wait()? {
            Ok(location) => locations.push(location),
            Err(error) => bail!("transaction {} of block {} answers {error:?}", hex(id), entry.number),
        }
    }
    for location in locations {
        let found = (location.block_number, location.position);
        ensure!(Some(found) == expected, "transaction {} is found at {found:?}, not {expected:?}", hex(id));
        // Where it came again in a later block, that one is verified in its turn.
        ensure!(
            !is_here || location.block_hash == entry.hash,
            "transaction {} is found in block {}",
            hex(id),
            hex(&location.block_hash)
        );
    }
    Ok(receipt.is_some())
}

/// Hexadecimal digits.
pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sample_is_no_larger_than_what_there_is() {
        let ids: Vec<[u8; ID]> = (0..10).map(|id| [id; ID]).collect();
        let depth = |pruned| Depth::Sample { per_block: 3, pruned, seed: 1 };
        let mut random = Random::new(1);
        let mut picked = pick(ids.clone(), depth(4), &mut random);
        picked.sort_unstable();
        picked.dedup();
        assert_eq!(picked.len(), 4);
        assert_eq!(pick(ids.clone(), depth(40), &mut random).len(), 10);
        assert_eq!(pick(ids.clone(), Depth::All, &mut random), ids);
        assert_eq!(positions(2, depth(0), &mut random), [0, 1]);
        assert!(positions(100, depth(0), &mut random).iter().all(|&position| position < 100));
        assert_eq!(positions(100, depth(0), &mut random).len(), 3);
        assert_eq!(positions(100, Depth::All, &mut random).len(), 100);
    }
}
