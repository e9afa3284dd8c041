//! Peer of the UTXO store: a `StableBTreeMap` of encoded records, with three maps as its indexes.

use super::transaction::Transaction;
use super::{HEIGHT, Peer, RETENTION};
use crate::memory;
use ic_coppice_interface::Spend;
use ic_coppice_storage::Space;
use ic_stable_structures::{StableBTreeMap, Storable, storable::Bound};
use serde::{Deserialize, Serialize};
use serde_bytes::ByteBuf;
use std::borrow::Cow;
use std::ops::RangeInclusive;

/// A record: the fields of `utxo-data-model.md`.
#[derive(Serialize, Deserialize)]
pub struct Plain {
    utxos: Vec<Option<ByteBuf>>,
    record_utxos: u32,
    spent_utxos: u32,
    frozen: bool,
    locked: bool,
    conflicting: bool,
    conflicting_children: Vec<ByteBuf>,
    deleted_children: Vec<ByteBuf>,
    unmined_since: Option<u32>,
    created_at_ns: u64,
    preserve_until: Option<u32>,
    delete_at_height: Option<u32>,
    spending_height: u32,
    blocks: Vec<(u32, u32, u32)>,
    inputs: Vec<(ByteBuf, u32)>,
    transaction: ByteBuf,
    fee: u64,
    size: u64,
    coinbase: bool,
}

impl Storable for Plain {
    const BOUND: Bound = Bound::Unbounded;

    fn to_bytes(&self) -> Cow<'_, [u8]> {
        let mut bytes = Vec::new();
        ciborium::into_writer(self, &mut bytes).expect("memory");
        Cow::Owned(bytes)
    }

    fn into_bytes(self) -> Vec<u8> {
        self.to_bytes().into_owned()
    }

    fn from_bytes(bytes: Cow<'_, [u8]>) -> Self {
        ciborium::from_reader(bytes.as_ref()).expect("a record")
    }
}

/// Memories of the maps.
pub const MEMORIES: RangeInclusive<u8> = 1..=4;

/// A height and a txid.
type IndexKey = [u8; 36];

pub struct Records {
    records: StableBTreeMap<[u8; 32], Plain, Space>,
    unmined: StableBTreeMap<IndexKey, (), Space>,
    delete_at: StableBTreeMap<IndexKey, (), Space>,
    _preserve: StableBTreeMap<IndexKey, (), Space>,
}

fn index_key(height: u32, txid: &[u8; 32]) -> IndexKey {
    let mut key = [0; 36];
    key[..4].copy_from_slice(&height.to_be_bytes());
    key[4..].copy_from_slice(txid);
    key
}

impl Records {
    pub fn open() -> Self {
        let map = |at: u8| memory::bench(MEMORIES.start() + at);
        Self {
            records: StableBTreeMap::init(map(0)),
            unmined: StableBTreeMap::init(map(1)),
            delete_at: StableBTreeMap::init(map(2)),
            _preserve: StableBTreeMap::init(map(3)),
        }
    }

    fn change(&mut self, txid: &[u8; 32], change: impl FnOnce(&mut Plain)) -> Result<(), String> {
        let mut record = self.records.get(txid).ok_or("it is not there")?;
        let before = (record.unmined_since, record.delete_at_height);
        change(&mut record);
        let mined = !record.blocks.is_empty() && record.unmined_since.is_none();
        let done = mined && record.spent_utxos == record.record_utxos;
        record.delete_at_height = done.then_some(HEIGHT + RETENTION);
        let after = (record.unmined_since, record.delete_at_height);
        self.records.insert(*txid, record);
        for (index, before, after) in [(&mut self.unmined, before.0, after.0), (&mut self.delete_at, before.1, after.1)]
        {
            if before != after {
                before.map(|height| index.remove(&index_key(height, txid)));
                after.map(|height| index.insert(index_key(height, txid), ()));
            }
        }
        Ok(())
    }
}

impl Peer for Records {
    fn create(&mut self, tx: &Transaction) -> Result<(), String> {
        let parsed = &tx.parsed;
        let record = Plain {
            utxos: parsed.outputs.iter().map(|hash| hash.map(ByteBuf::from)).collect(),
            record_utxos: parsed.outputs.len() as u32,
            spent_utxos: 0,
            frozen: false,
            locked: false,
            conflicting: false,
            conflicting_children: Vec::new(),
            deleted_children: Vec::new(),
            unmined_since: Some(HEIGHT),
            created_at_ns: 0,
            preserve_until: None,
            delete_at_height: None,
            spending_height: 0,
            blocks: Vec::new(),
            inputs: parsed.inputs.iter().map(|(txid, vout)| (ByteBuf::from(*txid), *vout)).collect(),
            transaction: ByteBuf::from(tx.raw.as_slice()),
            fee: 0,
            size: tx.raw.len() as u64,
            coinbase: false,
        };
        if self.records.contains_key(&parsed.txid) {
            return Err("it is there".into());
        }
        self.records.insert(parsed.txid, record);
        self.unmined.insert(index_key(HEIGHT, &parsed.txid), ());
        Ok(())
    }

    fn spend(&mut self, tx: &Transaction, spends: &[Spend], spender: &[u8; 32]) -> Result<(), String> {
        self.change(&tx.parsed.txid, |record| {
            for spend in spends {
                let Some(Some(utxo)) = record.utxos.get_mut(spend.vout as usize) else { continue };
                if utxo.len() == 32 && utxo[..] == spend.utxo_hash[..] {
                    utxo.extend_from_slice(spender);
                    utxo.extend_from_slice(&spend.vin.to_le_bytes());
                    record.spent_utxos += 1;
                }
            }
        })
    }

    fn set_mined(&mut self, tx: &Transaction) -> Result<(), String> {
        self.change(&tx.parsed.txid, |record| {
            record.blocks.push((1, HEIGHT, 0));
            record.unmined_since = None;
            record.locked = false;
        })
    }

    fn prune(&mut self, height: u32) -> Result<u64, String> {
        let mut deleted = 0;
        while let Some((entry, ())) = self.delete_at.first_key_value()
            && entry[..4] <= height.to_be_bytes()[..]
        {
            let txid: [u8; 32] = *entry.last_chunk().expect("it ends with the txid");
            let record = self.records.get(&txid).ok_or("it is not there")?;
            for (parent, _) in &record.inputs {
                let parent: [u8; 32] = parent.as_slice().try_into().expect("32 bytes");
                if let Some(mut record) = self.records.get(&parent) {
                    record.deleted_children.push(ByteBuf::from(txid));
                    self.records.insert(parent, record);
                }
            }
            self.records.remove(&txid);
            self.delete_at.remove(&entry);
            deleted += 1;
        }
        Ok(deleted)
    }

    fn unspend(&mut self, tx: &Transaction, spends: &[Spend], spender: &[u8; 32]) -> Result<(), String> {
        self.change(&tx.parsed.txid, |record| {
            for spend in spends {
                let Some(Some(utxo)) = record.utxos.get_mut(spend.vout as usize) else { continue };
                if utxo.len() == 68 && utxo[32..64] == *spender {
                    utxo.truncate(32);
                    record.spent_utxos -= 1;
                }
            }
        })
    }
}
