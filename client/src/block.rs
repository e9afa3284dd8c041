//! A block in the making: its transactions with receipts and secondary keys become the three segments.

use ic_coppice_interface::segments::{
    EncodeError, ID, MAX_BLOCK, MAX_ENTRIES, MAX_NUMBER, encode_index, encode_receipts,
};
use ic_coppice_interface::{AppendBlock, BlockHash, BySegment};
use serde_bytes::ByteBuf;

/// Bytes of the longest block hash.
const MAX_HASH: usize = 32;

/// A block in the making. [`seal`](Self::seal) returns the block as [`Client::send_block`](crate::Client::send_block) and
/// [`Client::follow`](crate::Client::follow) take it.
///
/// ```
/// use ic_coppice_client::Block;
///
/// let block = Block::new(1, [1; 32], [0; 32], 1_700_000_000)
///     .body("any bytes")
///     .transaction([7; 32], Some(b"receipt"), &[b"alice", b"bob"])
///     .transaction([8; 32], Some(b""), &[])
///     .seal()?;
/// assert_eq!(block.body.as_slice(), b"any bytes");
/// # Ok::<(), ic_coppice_client::SealError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Block {
    number: u64,
    hash: BlockHash,
    parent_hash: BlockHash,
    timestamp_secs: u64,
    body: Vec<u8>,
    ids: Vec<[u8; ID]>,
    receipts: Vec<Option<Vec<u8>>>,
    keys: Vec<(u32, Vec<u8>)>,
}

/// The reason why a block cannot be sealed: the canister would refuse it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SealError {
    /// The number is above 2^63 - 1, which is the number of the last possible block.
    #[error("the block's number is too high: at most {MAX_NUMBER}")]
    Number,
    /// The block's hash does not have 1 to 32 bytes.
    #[error("the block's hash has {bytes} bytes, not 1 to 32")]
    Hash {
        /// Bytes of the hash.
        bytes: usize,
    },
    /// The parent's hash has more than 32 bytes.
    #[error("the parent's hash has {bytes} bytes; at most 32")]
    ParentHash {
        /// Bytes of the hash.
        bytes: usize,
    },
    /// Some transactions of the block have a receipt and others do not.
    #[error(
        "transaction {without} has no receipt, and others do: a block has a receipt for each transaction, or none at all"
    )]
    Receipts {
        /// Position of the first transaction without a receipt, from 0.
        without: usize,
    },
    /// The block has more transactions and keys than [`MAX_ENTRIES`].
    #[error("the block has {entries} transactions and keys; at most {MAX_ENTRIES}")]
    TooManyEntries {
        /// Number of transactions and keys.
        entries: u64,
    },
    /// The payload is longer than [`MAX_BLOCK`].
    #[error("the block has {bytes} bytes; at most {MAX_BLOCK}")]
    TooLong {
        /// Bytes of the three segments.
        bytes: u64,
    },
    /// A segment cannot be encoded, for example because a key has more than 64 bytes.
    #[error(transparent)]
    Encode(#[from] EncodeError),
}

impl Block {
    /// Begins a block. `number` is the parent's number plus one, and any number for the first block; `hash` has 1 to 32 bytes of the
    /// caller's choice; `parent_hash` is the parent's hash, and is not checked for the first block; `timestamp_secs` is the block's time in
    /// Unix seconds.
    pub fn new(
        number: u64,
        hash: impl Into<BlockHash>,
        parent_hash: impl Into<BlockHash>,
        timestamp_secs: u64,
    ) -> Self {
        Self {
            number,
            hash: hash.into(),
            parent_hash: parent_hash.into(),
            timestamp_secs,
            body: Vec::new(),
            ids: Vec::new(),
            receipts: Vec::new(),
            keys: Vec::new(),
        }
    }

    /// Sets the body: any bytes. Only `utxo_apply_block` reads them, as an 80-byte header, a VarInt count and the transactions.
    #[must_use]
    pub fn body(self, bytes: impl Into<Vec<u8>>) -> Self {
        Self { body: bytes.into(), ..self }
    }

    /// Adds a transaction after the ones before: its id, its receipt, and the secondary keys under which it can be found, each of at most 64
    /// bytes. Either each transaction of a block has a receipt, which may be empty, or none has.
    #[must_use]
    pub fn transaction(mut self, id: [u8; ID], receipt: Option<&[u8]>, keys: &[&[u8]]) -> Self {
        // `seal` refuses more transactions than 32 bits count.
        let position = self.ids.len() as u32;
        self.ids.push(id);
        self.receipts.push(receipt.map(<[u8]>::to_vec));
        self.keys.extend(keys.iter().map(|key| (position, key.to_vec())));
        self
    }

    /// Returns the block with its three segments and their SHA-256. A block without transactions has no receipts and no index.
    ///
    /// # Errors
    /// [`SealError`] if the canister would refuse the block, wherever it belongs.
    pub fn seal(self) -> Result<AppendBlock, SealError> {
        let Self { number, hash, parent_hash, timestamp_secs, body, ids, receipts, keys } = self;
        if number > MAX_NUMBER {
            return Err(SealError::Number);
        }
        if !(1..=MAX_HASH).contains(&hash.len()) {
            return Err(SealError::Hash { bytes: hash.len() });
        }
        if parent_hash.len() > MAX_HASH {
            return Err(SealError::ParentHash { bytes: parent_hash.len() });
        }
        let entries = ids.len() as u64 + keys.len() as u64;
        if entries > MAX_ENTRIES {
            return Err(SealError::TooManyEntries { entries });
        }
        let without = receipts.iter().position(Option::is_none);
        let receipts: Vec<Vec<u8>> = receipts.into_iter().flatten().collect();
        if let Some(without) = without.filter(|_| !receipts.is_empty()) {
            return Err(SealError::Receipts { without });
        }
        let keys = keys.iter().map(|(transaction, key)| (*transaction, key.as_slice()));
        let (mut receipts_segment, mut index) = (Vec::new(), Vec::new());
        if !ids.is_empty() {
            index = encode_index(ids.into_iter(), keys)?;
        }
        if !receipts.is_empty() {
            receipts_segment = encode_receipts(&receipts)?;
        }
        let bytes = [&body, &receipts_segment, &index].iter().map(|segment| segment.len() as u64).sum();
        if bytes > MAX_BLOCK {
            return Err(SealError::TooLong { bytes });
        }
        let block = AppendBlock {
            number,
            hash,
            parent_hash,
            timestamp_secs,
            body: ByteBuf::from(body),
            receipts: ByteBuf::from(receipts_segment),
            index: ByteBuf::from(index),
            sha256: BySegment::default(),
        };
        Ok(block.sealed())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ic_coppice_interface::segments::{Index, Receipts};

    fn block() -> Block {
        Block::new(7, [1; 32], [0; 32], 9)
    }

    #[test]
    fn sealed_block_has_the_transactions_receipts_and_keys_that_were_added() {
        let block = block()
            .body([5; 3])
            .transaction([1; 32], Some(b"one"), &[b"alice", &[9; 64]])
            .transaction([2; 32], Some(b""), &[])
            .transaction([3; 32], Some(b"three"), &[b""])
            .seal()
            .unwrap();
        assert_eq!((block.number, &block.hash[..], &block.parent_hash[..]), (7, &[1; 32][..], &[0; 32][..]));
        assert_eq!((block.timestamp_secs, block.body.as_slice()), (9, &[5; 3][..]));
        let index = Index::parse(&block.index).unwrap();
        assert_eq!(index.all_ids(), [[1; 32], [2; 32], [3; 32]]);
        let keys: Vec<_> = index.each_key().map(|key| (key.transaction, key.bytes)).collect();
        assert_eq!(keys, [(0, &b"alice"[..]), (0, &[9; 64]), (2, b"")]);
        let receipts = Receipts::parse(&block.receipts, 3).unwrap();
        assert_eq!([0, 1, 2].map(|at| receipts.get(at)), [Some(&b"one"[..]), Some(b""), Some(b"three")]);
        assert_eq!(block.sha256, block.clone().sealed().sha256);
    }

    #[test]
    fn block_without_transactions_or_receipts_leaves_the_segments_empty() {
        let empty = block().seal().unwrap();
        assert!(empty.body.is_empty() && empty.receipts.is_empty() && empty.index.is_empty());
        let without = block().transaction([1; 32], None, &[]).transaction([2; 32], None, &[b"key"]).seal().unwrap();
        assert!(without.receipts.is_empty() && Index::parse(&without.index).unwrap().transactions() == 2);
        let mixed = block().transaction([1; 32], Some(b""), &[]).transaction([2; 32], None, &[]).seal();
        assert_eq!(mixed, Err(SealError::Receipts { without: 1 }));
    }

    #[test]
    fn each_limit_of_the_canister_is_an_error_of_seal() {
        assert_eq!(Block::new(1 << 63, [1; 32], [0; 32], 0).seal(), Err(SealError::Number));
        assert!(Block::new((1 << 63) - 1, [1; 32], [0; 32], 0).seal().is_ok());
        let hashed = |hash: usize, parent: usize| {
            Block::new(1, BlockHash::from(vec![1; hash]), BlockHash::from(vec![1; parent]), 0).seal().map(|_| ())
        };
        assert_eq!(hashed(0, 32), Err(SealError::Hash { bytes: 0 }));
        assert_eq!(hashed(33, 32), Err(SealError::Hash { bytes: 33 }));
        assert_eq!(hashed(1, 33), Err(SealError::ParentHash { bytes: 33 }));
        assert_eq!((hashed(1, 0), hashed(32, 32)), (Ok(()), Ok(())));
        let key = |bytes: usize| block().transaction([1; 32], None, &[b"", &vec![0; bytes]]).seal().map(|_| ());
        assert_eq!((key(64), key(65)), (Ok(()), Err(SealError::Encode(EncodeError::KeyTooLong { key: 1 }))));
        let keys = vec![&b""[..]; MAX_ENTRIES as usize - 1];
        let full = block().transaction([1; 32], None, &keys);
        assert!(full.clone().seal().is_ok());
        let entries = MAX_ENTRIES + 1;
        assert_eq!(full.transaction([2; 32], None, &[]).seal(), Err(SealError::TooManyEntries { entries }));
        // The index of one transaction without keys has 40 bytes.
        let long = |body: u64| block().body(vec![0; body as usize]).transaction([1; 32], None, &[]).seal().map(|_| ());
        assert_eq!(long(MAX_BLOCK - 39), Err(SealError::TooLong { bytes: MAX_BLOCK + 1 }));
    }
}
