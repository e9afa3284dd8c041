//! The things that `coppice get` finds, as its JSON has them.

use super::bitcoin::{self, Decoded};
use super::chain::{Chain, Header, Keyed, Page, Place};
use super::query::{Order, shown_key};
use crate::verify::hex;
use anyhow::{Context, Result, anyhow, ensure};
use ic_coppice_interface::segments::{ID, Index, Receipts};
use serde::Serialize;
use std::ops::Range;

/// The answer of the command.
#[derive(Clone, Debug, Serialize)]
pub struct Found {
    /// "get".
    pub command: &'static str,
    /// The chain: "SQLite", "PostgreSQL", or the canister.
    pub chain: String,
    /// Order of the bytes of ids and hashes: "display" or "internal".
    pub order: &'static str,
    /// The block that was asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub block: Option<Block>,
    /// The key that was asked for: its text, or `0x` and hexadecimal digits.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// The transactions: of the block, with the id, or with the key, the newest first.
    pub transactions: Vec<Transaction>,
    /// The cursor after the last transaction, if there are more.
    pub cursor: Option<String>,
    /// The reason why older transactions are not listed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub note: Option<&'static str>,
}

/// A block.
#[derive(Clone, Debug, Serialize)]
pub struct Block {
    pub number: u64,
    pub hash: String,
    /// The hash of the previous block; `None` if the canister has lost it.
    pub parent_hash: Option<String>,
    /// Unix seconds, as the chain declares them.
    pub timestamp_secs: u64,
    pub transactions: u32,
    /// Secondary keys; `None` if the chain has no payloads.
    pub keys: Option<u32>,
    /// Bytes of body, receipts and index.
    pub lengths: [u64; 3],
    /// SHA-256 of body, receipts and index.
    pub sha256: [String; 3],
    /// True if the subnet vouches for the block, false if only one replica does.
    pub confirmed: bool,
}

/// A transaction. A list by key has only its place and its id.
#[derive(Clone, Debug, Serialize)]
pub struct Transaction {
    /// Number of its block.
    pub number: u64,
    /// Position in the block, from 0.
    pub position: u32,
    pub id: String,
    pub block_hash: String,
    /// The rest, except in a list by key.
    #[serde(flatten)]
    pub whole: Option<Whole>,
}

/// The parts of a transaction that its block's segments have.
#[derive(Clone, Debug, Serialize)]
pub struct Whole {
    /// Time of the block in Unix seconds.
    pub timestamp_secs: u64,
    /// Transactions of the block.
    pub of: u32,
    /// Its keys, each as a text, or as `0x` and hexadecimal digits; `None` if the chain has no payloads.
    pub keys: Option<Vec<String>>,
    /// Its receipt, in hexadecimal digits; `Some(None)` if it has none, and `None` if the chain has no payloads.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub receipt: Option<Option<String>>,
    /// Its content, if the block's body is a Bitcoin block.
    pub bitcoin: Option<Decoded>,
}

/// The segments of a block, read and checked.
struct Contents {
    header: Header,
    /// The body; `None` without payloads.
    body: Option<Vec<u8>>,
    receipts: Option<Vec<u8>>,
    index: Vec<u8>,
}

impl Contents {
    fn read(chain: &mut impl Chain, number: u64) -> Result<Self> {
        let header = chain.header(number)?;
        let (body, receipts) = (chain.segment(&header, 0)?, chain.segment(&header, 1)?);
        let index = chain.segment(&header, 2)?.unwrap_or_default();
        Ok(Self { header, body, receipts, index })
    }

    fn index(&self) -> Result<Index<'_>> {
        let number = self.header.number;
        Index::parse(&self.index)
            .map_err(|bad| anyhow!("the index of block {number} is malformed at byte {}: {}", bad.at, bad.why))
    }

    fn transactions(&self, positions: Range<u32>, order: Order) -> Result<Vec<Transaction>> {
        let (header, index) = (&self.header, self.index()?);
        let (ids, wanted) = (index.all_ids(), positions.start as usize..positions.end as usize);
        let parse = |receipts| {
            Receipts::parse(receipts, index.transactions()).map_err(|bad| {
                anyhow!("the receipts of block {} are malformed at byte {}: {}", header.number, bad.at, bad.why)
            })
        };
        let receipts = self.receipts.as_deref().filter(|receipts| !receipts.is_empty()).map(parse).transpose()?;
        let bodies = self.body.as_ref().and_then(|body| bitcoin::transactions(body, ids, wanted.clone()));
        let mut keys = vec![Vec::new(); wanted.len()];
        for key in index.each_key().filter(|key| positions.contains(&key.transaction)) {
            let of: &mut Vec<String> = &mut keys[(key.transaction - positions.start) as usize];
            let key = shown_key(key.bytes);
            if !of.contains(&key) {
                of.push(key);
            }
        }
        let each = positions.zip(keys).enumerate().map(|(at, (position, keys))| {
            let id = index.id(position).with_context(|| {
                format!("block {} has {} transactions, and none at position {position}", header.number, ids.len())
            })?;
            let receipt = receipts.as_ref().and_then(|receipts| receipts.get(position));
            let whole = Whole {
                timestamp_secs: header.timestamp_secs,
                of: index.transactions(),
                keys: self.body.is_some().then_some(keys),
                receipt: self.receipts.is_some().then(|| receipt.map(hex)),
                bitcoin: bodies.as_ref().map(|bodies| bitcoin::decoded(&bodies[at], order)),
            };
            let (id, block_hash) = (order.show(id), order.show(&header.hash));
            Ok(Transaction { number: header.number, position, id, block_hash, whole: Some(whole) })
        });
        each.collect()
    }
}

fn found(chain: &impl Chain, order: Order) -> Found {
    Found {
        command: "get",
        chain: chain.name(),
        order: order.name(),
        block: None,
        key: None,
        transactions: Vec::new(),
        cursor: None,
        note: None,
    }
}

/// Finds a block, with some of its transactions.
pub(super) fn block(chain: &mut impl Chain, number: u64, order: Order, page: &Page) -> Result<Found> {
    let first: u32 = match &page.cursor {
        None => 0,
        Some(cursor) => cursor.parse().ok().with_context(|| {
            format!("{cursor:?} is not a cursor that a block's list ended with: begin without --cursor")
        })?,
    };
    let contents = Contents::read(chain, number)?;
    let (header, index) = (&contents.header, contents.index()?);
    let count = index.transactions();
    ensure!(
        first == 0 || first < count,
        "the cursor {first} is after the {count} transactions of block {number}: begin without --cursor"
    );
    let last = first.saturating_add(page.limit).min(count);
    let block = Block {
        number,
        hash: order.show(&header.hash),
        parent_hash: header.parent_hash.as_ref().map(|parent| order.show(parent)),
        timestamp_secs: header.timestamp_secs,
        transactions: count,
        keys: contents.body.is_some().then_some(index.keys()),
        lengths: header.lengths,
        sha256: header.sha256.each_ref().map(|sha256| hex(sha256)),
        confirmed: header.confirmed,
    };
    let transactions = contents.transactions(first..last, order)?;
    let cursor = (last < count).then(|| last.to_string());
    Ok(Found { block: Some(block), transactions, cursor, ..found(chain, order) })
}

pub(super) fn transactions(chain: &mut impl Chain, id: &[u8; ID], order: Order, page: &Page) -> Result<Found> {
    let name =
        format!("transaction {} in {} order; try --order {}", order.show(id), order.name(), order.other().name());
    let list = chain.places(id, page.cursor.as_deref(), page.limit).with_context(|| name.clone())?;
    ensure!(!list.items.is_empty() || page.cursor.is_some(), "no block here has {name}");
    let mut transactions = Vec::new();
    for Place { number, position } in list.items {
        let contents = Contents::read(chain, number)?;
        let found = contents.transactions(position..position.saturating_add(1), order)?;
        let is_it = contents.index()?.id(position) == Some(id);
        ensure!(
            is_it,
            "block {number} has another transaction at position {position}: it was replaced in a reorg, or the replica lies"
        );
        transactions.extend(found);
    }
    Ok(Found { transactions, cursor: list.cursor, note: chain.why_only_newest(), ..found(chain, order) })
}

/// Returns a hint if a key may be an id that lacks digits.
fn mistyped(key: &[u8]) -> String {
    let digits = 2 * ID;
    let is_id = (digits - 8..digits).contains(&key.len()) && key.iter().all(u8::is_ascii_hexdigit);
    if is_id { format!("; an id has {digits} hexadecimal digits, and this has {}", key.len()) } else { String::new() }
}

pub(super) fn with_key(chain: &mut impl Chain, key_bytes: &[u8], order: Order, page: &Page) -> Result<Found> {
    let list = chain.with_key(key_bytes, page.cursor.as_deref(), page.limit)?;
    let key = shown_key(key_bytes);
    let is_empty = list.items.is_empty() && page.cursor.is_none() && list.cursor.is_none();
    let of_kept = chain.where_pruned().map_or(String::new(), |archive| format!(" in a kept block; {archive}"));
    ensure!(!is_empty, "no transaction has the key {key}{of_kept}{}", mistyped(key_bytes));
    let item = |Keyed { place: Place { number, position }, block_hash, id }| Transaction {
        number,
        position,
        id: order.show(&id),
        block_hash: order.show(&block_hash),
        whole: None,
    };
    let transactions = list.items.into_iter().map(item).collect();
    Ok(Found { key: Some(key), transactions, cursor: list.cursor, ..found(chain, order) })
}
