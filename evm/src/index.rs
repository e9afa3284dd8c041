//! Ids and secondary keys of a block, and the Coppice block that has them.
//!
//! ```text
//! id      hash of each transaction, then the hash of the block itself, whose receipt is empty
//! key     one byte for the kind ‖ the value
//!           a  address of a log's emitter, 20 bytes          s  address of the sender     (--index senders)
//!           0  first topic of a log, 32 bytes                r  address of the receiver   (--index receivers)
//!           1  second, 2  third, 3  fourth topic             c  address of the created account (--index created)
//!              (--index topics)
//! ```
//! The block's own hash as an id finds the block by its hash, one without transactions, too. Therefore counts of transactions in the canister
//! and in databases are one higher than on the chain.

use crate::{Block, Wrong};
use alloy_primitives::{Address, B256, TxKind};
use ic_coppice_client::SealError;
use ic_coppice_interface::AppendBlock;
use std::collections::BTreeSet;

/// Kinds of secondary keys that are not entered without being asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, clap::ValueEnum)]
pub enum Extra {
    /// The sender of each transaction
    Senders,
    /// The called account of each transaction
    Receivers,
    /// The account that each creation makes
    Created,
    /// The second to fourth topic of each log
    Topics,
}

impl Extra {
    /// The cost of the kind, as a sentence.
    pub fn cost(self) -> &'static str {
        match self {
            Self::Senders => "one more key for each transaction: 27 bytes of the block",
            Self::Receivers => "one more key for each transaction that calls an account: 27 bytes of the block",
            Self::Created => "one more key for each creation: 27 bytes of the block",
            Self::Topics => "at most three more keys for each log: 39 bytes of the block each",
        }
    }
}

/// A secondary key: one byte for its kind, and the value.
pub type Key = Vec<u8>;

/// The key of the logs that an account emits.
pub fn emitter(address: &Address) -> Key {
    key(b'a', address.as_slice())
}

/// The key of the logs with a topic at a position from 0 to 3.
pub fn topic(position: u8, topic: &B256) -> Key {
    key(b'0' + position, topic.as_slice())
}

fn key(kind: u8, value: &[u8]) -> Key {
    [&[kind], value].concat()
}

/// The reason why a block has no place in the canister.
#[derive(Debug, thiserror::Error)]
pub enum Unfit {
    /// The signature of a transaction belongs to no key.
    #[error(transparent)]
    Wrong(#[from] Wrong),
    /// The canister would refuse the block.
    #[error("block {number} is too large for the canister; leave out kinds of --index")]
    Seal {
        /// The block's number.
        number: u64,
        /// The limit.
        #[source]
        why: SealError,
    },
}

/// Returns the keys of a transaction, each once.
fn keys(block: &Block, position: usize, extra: &[Extra]) -> Result<BTreeSet<Key>, Wrong> {
    let wants = |kind| extra.contains(&kind);
    let (transaction, receipt) = (&block.body.transactions[position], &block.receipts[position]);
    let mut keys = BTreeSet::new();
    for log in receipt.logs() {
        keys.insert(emitter(&log.address));
        let topics = (0u8..).zip(log.topics()).filter(|(at, _)| *at == 0 || wants(Extra::Topics));
        keys.extend(topics.map(|(at, value)| topic(at, value)));
    }
    let creates = transaction.kind().is_create();
    if let TxKind::Call(to) = transaction.kind()
        && wants(Extra::Receivers)
    {
        keys.insert(key(b'r', to.as_slice()));
    }
    if wants(Extra::Senders) || creates && wants(Extra::Created) {
        let what = || format!("the sender of transaction {position}");
        let sender = transaction.sender().map_err(|why| Wrong::unreadable(block.number(), what(), why))?;
        if wants(Extra::Senders) {
            keys.insert(key(b's', sender.as_slice()));
        }
        if let Some(created) = block.created(position, sender).filter(|_| wants(Extra::Created)) {
            keys.insert(key(b'c', created.as_slice()));
        }
    }
    Ok(keys)
}

/// Returns a verified block as the canister takes it.
///
/// # Errors
/// [`Unfit`] if the canister would refuse the block, or a sender cannot be computed.
pub fn coppice_block(block: &Block, extra: &[Extra]) -> Result<AppendBlock, Unfit> {
    let header = &block.header;
    let mut made = ic_coppice_client::Block::new(header.number, block.hash.0, header.parent_hash.0, header.timestamp);
    made = made.body(block.encode_body());
    for (position, receipt) in block.encode_receipts().iter().enumerate() {
        let keys = keys(block, position, extra)?;
        let keys: Vec<&[u8]> = keys.iter().map(Vec::as_slice).collect();
        made = made.transaction(block.body.transactions[position].hash().0, Some(receipt), &keys);
    }
    made = made.transaction(block.hash.0, Some(b""), &[]);
    made.seal().map_err(|why| Unfit::Seal { number: header.number, why })
}
