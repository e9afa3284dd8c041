//! Test fixture: a chain whose bodies are Bitcoin blocks, and two ways from a block to records.

use crate::apply::{Applier, Outcome, Stores, TakenBack};
use crate::utxo::{Ahead, Call, Order, UtxoStore};
use coppice_model::transactions::{Tx, var_int};
use ic_coppice_chain::testing::hash;
use ic_coppice_chain::{Admission, ChainStore};
use ic_coppice_interface::segments::encode_index;
use ic_coppice_interface::*;
use ic_coppice_storage::blob::{BlobStore, Class};
use ic_coppice_storage::testing::{self, hash_key};
use ic_coppice_storage::twin;
use serde_bytes::ByteBuf;
use std::rc::Rc;

const CLASS: u32 = 1 << 20;

pub struct World {
    pub chain: ChainStore,
    pub utxo: UtxoStore,
    pub blobs: BlobStore,
    pub applier: Applier,
    pub settings: UtxoSettings,
}

/// A record, and its transaction's bytes.
pub type SeenRecord = (UtxoRecord, Result<Vec<u8>, UtxoRefusal>);

/// All that is to be seen of some transactions.
#[derive(Debug, PartialEq)]
pub struct Seen {
    pub records: Vec<Option<SeenRecord>>,
    pub orders: Vec<Vec<(u32, Vec<[u8; 32]>)>>,
    pub storage: (u64, u64, u64, u64),
}

/// The body of a block with these transactions.
pub fn body(raws: &[&[u8]]) -> Vec<u8> {
    [&[7; 80][..], &var_int(raws.len() as u64), &raws.concat()].concat()
}

/// Block `number`, whose height is its number plus 1,000.
pub fn height(number: u64) -> u32 {
    number as u32 + 1_000
}

pub fn argument(number: u64) -> UtxoApplyBlock {
    UtxoApplyBlock {
        number,
        hash: hash(number, 0).into(),
        height: height(number),
        block_id: number as u32 + 50,
        missing_parents: Some(MissingParents::Skip),
        skip: None,
        skip_rest: false,
    }
}

/// A block with this body and these ids in its index segment.
pub fn block_of(number: u64, body: Vec<u8>, ids: &[[u8; 32]]) -> AppendBlock {
    AppendBlock {
        number,
        hash: hash(number, 0).into(),
        parent_hash: hash(number.wrapping_sub(1), 0).into(),
        timestamp_secs: 1_600_000_000 + number,
        body: ByteBuf::from(body),
        index: ByteBuf::from(encode_index(ids.iter().copied(), [].into_iter()).unwrap()),
        ..AppendBlock::default()
    }
    .sealed()
}

impl World {
    pub fn new() -> Self {
        twin::reset();
        testing::forget();
        Self::open(UtxoSettings { coinbase_maturity: 2, ..UtxoSettings::default() })
    }

    fn open(settings: UtxoSettings) -> Self {
        let (cells, arena) = (testing::cells(), testing::arena());
        Self {
            chain: ChainStore::open(&arena, Rc::clone(&cells), Class::of_size(CLASS).unwrap(), hash_key()).unwrap(),
            utxo: UtxoStore::open(&arena, Rc::clone(&cells), hash_key()).unwrap(),
            blobs: BlobStore::open(arena),
            applier: Applier::open(cells).unwrap(),
            settings,
        }
    }

    /// Opens the stores as after an upgrade.
    pub fn reopen(&mut self) {
        testing::reopen();
        *self = Self::open(self.settings.clone());
    }

    pub fn append_body(&mut self, number: u64, body: Vec<u8>, ids: &[[u8; 32]]) {
        let admission = Admission::default();
        let block = block_of(number, body, ids);
        self.chain.append(&mut self.blobs, &block, &admission, 1_600_000_000 + number).unwrap();
    }

    pub fn append(&mut self, number: u64, txs: &[Tx]) {
        let raws: Vec<&[u8]> = txs.iter().map(|tx| tx.raw.as_slice()).collect();
        let ids: Vec<[u8; 32]> = txs.iter().map(|tx| tx.txid).collect();
        self.append_body(number, body(&raws), &ids);
    }

    /// Does one message.
    pub fn step(&mut self, arg: &UtxoApplyBlock) -> Result<UtxoApplied, UtxoApplyError> {
        self.outcome(arg, true).map(|outcome| outcome.applied)
    }

    /// Does one message of an operator, or of a feeder.
    pub fn outcome(&mut self, arg: &UtxoApplyBlock, by_operator: bool) -> Result<Outcome, UtxoApplyError> {
        let Self { chain, utxo, blobs, applier, settings } = self;
        testing::arena().end_reservations();
        let settings = &*settings;
        applier.apply(&mut Stores { blocks: chain, utxo, blobs, settings }, arg, by_operator)
    }

    /// Applies a block to its end, and returns the sums of the answers.
    pub fn apply(&mut self, arg: &UtxoApplyBlock) -> Result<UtxoApplied, UtxoApplyError> {
        let mut sum = UtxoApplied::default();
        loop {
            let done = self.step(arg)?;
            sum = UtxoApplied {
                has_more: done.has_more,
                known: done.known,
                transactions: done.transactions,
                created: sum.created + done.created,
                existed: sum.existed + done.existed,
                spent: sum.spent + done.spent,
                missing_parents: sum.missing_parents + done.missing_parents,
                pruned: sum.pruned + done.pruned,
            };
            if !done.has_more {
                return Ok(sum);
            }
        }
    }

    /// Does one message of taking a block back. Returns the outcome, the transactions that could not be restored, and the faults.
    pub fn take_back_step(&mut self, number: u64) -> (TakenBack, u64, Vec<String>) {
        let Self { chain, utxo, blobs, applier, settings } = self;
        testing::arena().end_reservations();
        let (settings, mut faults) = (&*settings, Vec::new());
        utxo.begin_message();
        let counting = ic_coppice_storage::Counting::begin();
        let (taken, lost) =
            applier.take_back(&mut Stores { blocks: chain, utxo, blobs, settings }, number, true, &mut faults);
        drop(counting);
        (taken, lost, faults)
    }

    /// Takes a block back to its end, without a fault. Returns the number of messages.
    pub fn take_back(&mut self, number: u64) -> u32 {
        assert!(self.applier.is_applied(&self.chain, number), "block {number} is not applied");
        for messages in 1.. {
            match self.take_back_step(number) {
                (TakenBack::Part, 0, faults) if faults.is_empty() => {}
                (TakenBack::Whole, 0, faults) if faults.is_empty() => {
                    assert!(!self.applier.is_applied(&self.chain, number));
                    return messages;
                }
                other => panic!("{other:?}"),
            }
        }
        unreachable!()
    }

    pub fn call(&self, height: u32) -> Call<'static> {
        let settings = Box::leak(Box::new(self.settings.clone()));
        Call { height, now_ns: 0, settings, most: MAX_HEIGHT, missing: MissingParents::Refuse }
    }

    pub fn create(&mut self, item: &UtxoCreate, height: u32) -> Result<UtxoCreated, UtxoRefusal> {
        let call = self.call(height);
        self.utxo.create(&mut self.blobs, item, &mut Ahead::default(), &call)
    }

    /// The spends of a transaction whose parents are among these.
    fn spends(tx: &Tx, all: &[Tx]) -> TransactionSpends {
        let found = |(vin, (txid, vout)): (u32, &([u8; 32], u32))| {
            let parent = all.iter().find(|parent| parent.txid == *txid)?;
            Some(parent.spend(*vout, vin))
        };
        TransactionSpends { spender: tx.id(), spends: (0..).zip(&tx.inputs).filter_map(found).collect() }
    }

    /// Does with the single calls what applying the block does.
    pub fn single(&mut self, arg: &UtxoApplyBlock, txs: &[Tx], all: &[Tx]) {
        let call = self.call(arg.height);
        let block = BlockRef { block_id: arg.block_id, height: arg.height, subtree: 0 };
        let mined = MinedIn { blocks: vec![block], on_longest_chain: true };
        for tx in txs {
            let item = UtxoCreate { locked: None, mined: Some(mined.clone()), ..tx.record() };
            match self.utxo.create(&mut self.blobs, &item, &mut Ahead::default(), &call) {
                Ok(_) => {}
                Err(UtxoRefusal::TxExists) => {
                    let set = UtxoSetMinedBatch {
                        height: arg.height,
                        block_id: arg.block_id,
                        block_height: arg.height,
                        on_longest_chain: true,
                        unset: false,
                        items: vec![],
                    };
                    let item = MinedTransaction { txid: tx.id(), subtree: 0 };
                    self.utxo.set_mined(&set, &item, &call, (&mut self.blobs, crate::testing::no_block)).unwrap();
                }
                Err(error) => panic!("{error}"),
            }
            self.utxo.spend(&Self::spends(tx, all), &call).unwrap();
        }
    }

    pub fn record(&self, tx: &Tx) -> Option<UtxoRecord> {
        let arg = UtxoGet { txid: tx.id(), first: 0, limit: 5_000, extra_pages_cursor: None };
        self.utxo.get(&arg).ok()
    }

    pub fn transaction(&self, tx: &Tx) -> Result<Vec<u8>, UtxoRefusal> {
        let arg = UtxoGetPart { txid: tx.id(), part: UtxoPart::Transaction, offset: 0, length: u64::MAX };
        let in_blocks = crate::apply::in_blocks(&self.chain);
        self.utxo.transaction(&self.blobs, &arg, in_blocks).map(|part| part.bytes.into_vec())
    }

    pub fn seen(&self, txs: &[Tx]) -> Seen {
        let record = |tx: &Tx| {
            let mut record = self.record(tx)?;
            record.created_at_ns = 0;
            if let TransactionPlace::Blobs { parts, .. } = &mut record.transaction {
                parts.clear();
            }
            Some((record, self.transaction(tx)))
        };
        let orders = [Order::DeleteAt, Order::UnminedSince, Order::PreserveUntil, Order::CreatedAt];
        let ordered = |order: Order| {
            let mut keys = self.utxo.index(order);
            keys.iter_mut().for_each(|(_, ids)| ids.sort());
            keys
        };
        let of = self.utxo.storage();
        Seen {
            records: txs.iter().map(record).collect(),
            orders: orders.map(ordered).into(),
            storage: (of.records, of.extra_pages, of.deletable, of.unmined),
        }
    }
}
