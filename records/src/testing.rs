//! A store of records for tests, with shortcuts for calls.

#![allow(missing_docs, clippy::new_without_default)]

use crate::utxo::{Ahead, Call, Hash, UtxoStore};
pub use coppice_model::blocks::id;
pub use coppice_model::transactions::{Tx, serialise};
use ic_coppice_interface::*;
use ic_coppice_storage::blob::{BlobStore, Class};
use ic_coppice_storage::testing::{self, arena, cells, hash_key};

/// Time of all calls, in Unix nanoseconds.
pub const NOW: u64 = 1_700_000_000_000_000_000;

pub struct World {
    pub store: UtxoStore,
    pub blobs: BlobStore,
    pub settings: UtxoSettings,
    pub height: u32,
}

pub fn raw(tx: &Tx) -> UtxoCreate {
    tx.record()
}

pub fn block(block_id: u32, height: u32) -> BlockRef {
    BlockRef { block_id, height, subtree: block_id + 7 }
}

pub fn mined(blocks: &[BlockRef]) -> Option<MinedIn> {
    Some(MinedIn { blocks: blocks.to_vec(), on_longest_chain: true })
}

impl World {
    pub fn new() -> Self {
        testing::fresh();
        let (store, blobs) = open();
        Self { store, blobs, settings: UtxoSettings::default(), height: 1_000 }
    }

    pub fn reopen(&mut self) {
        testing::reopen();
        (self.store, self.blobs) = open();
    }

    pub fn call(&self) -> Call<'static> {
        // A test has few settings, and they are small.
        Call {
            height: self.height,
            now_ns: NOW,
            settings: Box::leak(Box::new(self.settings.clone())),
            most: MAX_HEIGHT,
            missing: MissingParents::Refuse,
        }
    }

    pub fn create(&mut self, item: &UtxoCreate) -> Result<UtxoCreated, UtxoRefusal> {
        let call = self.call();
        self.store.create(&mut self.blobs, item, &mut Ahead::default(), &call)
    }

    /// Creates an unlocked record of a transaction.
    pub fn make(&mut self, tx: &Tx) {
        self.create(&raw(tx)).unwrap();
    }

    pub fn spend(&mut self, spender: &Tx, spends: &[Spend]) -> Result<u32, Vec<RefusedSpend>> {
        let call = self.call();
        self.store.spend(&TransactionSpends { spender: spender.id(), spends: spends.to_vec() }, &call)
    }

    /// Spends one output.
    pub fn spend_one(&mut self, of: &Tx, vout: u32, by: &Tx) -> Result<u32, UtxoRefusal> {
        let vin = by.inputs.iter().position(|input| *input == (of.txid, vout)).unwrap_or(0) as u32;
        self.spend(by, &[of.spend(vout, vin)]).map_err(|errors| errors[0].error.clone().into())
    }

    pub fn unspend(&mut self, of: &Tx, vout: u32, by: &Tx, vin: u32) -> Result<bool, UtxoRefusal> {
        let call = self.call();
        let item = Unspend {
            outpoint: of.outpoint(vout),
            utxo_hash: UtxoHash::from(of.hash(vout)),
            spender: Spender { txid: by.id(), vin },
        };
        let mut done = Ok(false);
        self.store.unspend_all(&[item], &call, |held| done = held);
        done
    }

    pub fn set_mined(&mut self, tx: &Tx, block: BlockRef, on_longest_chain: bool, unset: bool) -> Vec<u32> {
        let call = self.call();
        let BlockRef { block_id, height, subtree } = block;
        let item = MinedTransaction { txid: tx.id(), subtree };
        let set = UtxoSetMinedBatch {
            height: self.height,
            block_id,
            block_height: height,
            on_longest_chain,
            unset,
            items: vec![],
        };
        self.store.set_mined(&set, &item, &call, (&mut self.blobs, no_block)).unwrap()
    }

    pub fn set_locked(&mut self, tx: &Tx, locked: bool) {
        let call = self.call();
        self.store.set_locked(&tx.txid, locked, &call).unwrap();
    }

    pub fn freeze(&mut self, tx: &Tx, vout: Option<u32>, frozen: bool) -> Result<u32, UtxoRefusal> {
        let call = self.call();
        self.store.set_frozen(&FreezeTarget { txid: tx.id(), vout, utxo_hash: None }, frozen, &call)
    }

    pub fn reassign(&mut self, tx: &Tx, vout: u32, new: Hash) -> Result<u32, UtxoRefusal> {
        let call = self.call();
        let item = Reassign {
            outpoint: tx.outpoint(vout),
            utxo_hash: UtxoHash::from(tx.hash(vout)),
            new_utxo_hash: UtxoHash::from(new),
        };
        self.store.reassign(&item, &call)
    }

    pub fn set_conflicting(&mut self, tx: &Tx) -> Conflict {
        let call = self.call();
        self.store.set_conflicting(&tx.txid, &call).unwrap()
    }

    pub fn process(&mut self, winners: &[&Tx]) -> Result<ConflictResolution, ConflictError> {
        let call = self.call();
        let winners = winners.iter().map(|tx| tx.id()).collect();
        self.store.process_conflicting(&UtxoProcessConflicting { height: self.height, winners }, &call)
    }

    pub fn get(&self, tx: &Tx) -> UtxoRecord {
        self.store.get(&UtxoGet { txid: tx.id(), first: 0, limit: 10_000, extra_pages_cursor: None }).unwrap()
    }

    pub fn state(&self, tx: &Tx, vout: u32) -> SpendStatus {
        self.store.spend_states(&[tx.outpoint(vout)], self.height, MAX_HEIGHT).unwrap().remove(0).status
    }

    pub fn bytes(&self, tx: &Tx) -> (Vec<u8>, FileType) {
        let mut bytes = Vec::new();
        loop {
            let arg = UtxoGetPart {
                txid: tx.id(),
                part: UtxoPart::Transaction,
                offset: bytes.len() as u64,
                length: u64::MAX,
            };
            let part = self.store.transaction(&self.blobs, &arg, no_block).unwrap();
            bytes.extend_from_slice(&part.bytes);
            if bytes.len() as u64 == part.total {
                return (bytes, part.file_type);
            }
        }
    }
}

fn open() -> (UtxoStore, BlobStore) {
    arena().set_log_class(Class::of_size(Config::default().log_class).unwrap());
    (UtxoStore::open(&arena(), cells(), hash_key()).unwrap(), BlobStore::open(arena()))
}

/// Finds no bytes of blocks.
pub fn no_block(_: &BlobStore, _: u64, _: (u64, u64)) -> Option<Vec<u8>> {
    None
}
