//! The transactions of a history: a few that spend from each other, some of them the same outputs.

use crate::blocks::id;
use crate::transactions::Tx;
use candid::encode_args;
use coppice_interface::*;
use serde_bytes::ByteBuf;
use std::collections::BTreeMap;

/// A transaction's id, in internal order.
pub type Txid = [u8; 32];

/// Whose blob outside a transaction's bytes are in.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Blob {
    /// None: they go into the record, or the BlobStore.
    Inside,
    /// Its own.
    Own,
    /// One that several transactions name.
    Shared,
}

/// A transaction as it is drawn.
#[derive(Clone, Debug)]
pub struct Template {
    /// What it spends: how far before this one the parent is (0, or before the first: one that nobody has), and which output.
    pub inputs: Vec<(u8, u8)>,
    /// It spends all outputs of the one so far before this one, and nothing else.
    pub sweeps: Option<u8>,
    /// Outputs.
    pub outputs: u32,
    /// A bit for each output that is no UTXO.
    pub data: u8,
    /// Where its bytes are.
    pub blob: Blob,
}

/// A transaction, and where its bytes are if they are outside.
#[derive(Clone, Debug)]
pub struct Transaction {
    /// Its bytes, id, inputs and outputs.
    pub tx: Tx,
    /// The UTXO hashes of its outputs.
    pub hashes: Vec<[u8; 32]>,
    /// The blob outside that its bytes are in.
    pub blob: Option<ExternalStore>,
    /// The argument that asks for its record.
    pub get: Vec<u8>,
}

/// The transactions of a history, in an order in which parents go first.
#[derive(Clone, Debug, Default)]
pub struct Family {
    /// All of them.
    pub all: Vec<Transaction>,
    numbers: BTreeMap<Txid, usize>,
}

impl Family {
    /// The transactions of these templates.
    pub fn new(templates: &[Template]) -> Self {
        let mut all: Vec<Transaction> = Vec::new();
        for (number, template) in templates.iter().enumerate() {
            let mut inputs: Vec<(Txid, u32)> = Vec::new();
            for (&(back, vout), vin) in template.inputs.iter().zip(0u64..) {
                let parent = number.checked_sub(usize::from(back)).filter(|_| back > 0).map(|parent| &all[parent]);
                let input = match parent {
                    Some(parent) => (parent.tx.txid, u32::from(vout) % parent.tx.outputs.len() as u32),
                    None => (id((0xF00D + number as u64) << 8 | vin), 0),
                };
                if !inputs.contains(&input) {
                    inputs.push(input);
                }
            }
            if let Some(parent) = template.sweeps.and_then(|back| number.checked_sub(usize::from(back.max(1)))) {
                inputs = (0..all[parent].tx.outputs.len() as u32).map(|vout| (all[parent].tx.txid, vout)).collect();
            }
            // The bytes inside must be a transaction, which has inputs.
            if inputs.is_empty() && template.blob == Blob::Inside {
                inputs.push((id((0xF00D + number as u64) << 8), 0));
            }
            let script = [&[0x51][..], &(number as u64).to_le_bytes()].concat();
            let output = |vout: u32| match u32::from(template.data).checked_shr(vout).unwrap_or(0) & 1 {
                1 => (0, vec![0x6A, vout as u8]),
                _ => (1_000 + u64::from(vout), script.clone()),
            };
            let outputs: Vec<_> = (0..template.outputs).map(output).collect();
            let tx = Tx::new(&inputs, &outputs);
            let blob_key = match template.blob {
                Blob::Inside => None,
                Blob::Own => Some(tx.id().into()),
                Blob::Shared => Some(ByteBuf::from(*b"shared")),
            };
            let file_type = if inputs.is_empty() { FileType::Outputs } else { FileType::Tx };
            // A shared blob is one row only where everything of its name is the same.
            let file_type = if template.blob == Blob::Shared { FileType::Tx } else { file_type };
            let store_type = StoreType::Tx;
            let get = encode_args((UtxoGet { txid: tx.id(), first: 0, limit: 5_000, extra_pages_cursor: None },))
                .expect("it encodes");
            let blob = blob_key.map(|blob_key| ExternalStore { blob_key, file_type, store_type });
            let hashes = (0..tx.outputs.len() as u32).map(|vout| tx.hash(vout)).collect();
            all.push(Transaction { tx, hashes, blob, get });
        }
        let numbers = all.iter().enumerate().map(|(number, one)| (one.tx.txid, number)).collect();
        Self { all, numbers }
    }

    /// One of them has more outputs, or inputs, than a message takes at once.
    pub fn has_large(&self) -> bool {
        self.all.iter().any(|one| one.tx.outputs.len() > 1_000)
    }

    /// What it is called in a report.
    pub fn name(&self, txid: &[u8]) -> String {
        let number = <&Txid>::try_from(txid).ok().and_then(|txid| self.numbers.get(txid));
        number.map_or_else(|| format!("another ({:02x}{:02x})", txid[0], txid[1]), |number| format!("#{number}"))
    }

    /// Several names, for a report.
    pub fn names<'a>(&self, txids: impl IntoIterator<Item = &'a Txid>) -> String {
        txids.into_iter().map(|txid| self.name(txid)).collect::<Vec<_>>().join(" ")
    }

    /// A report in which transactions have their names.
    pub fn brief(&self, report: &str) -> String {
        let mut brief = String::new();
        let mut rest = report;
        while let Some(from) = rest.find('[') {
            let bytes = rest[from + 1..].split(']').next().unwrap_or_default();
            let parsed: Result<Vec<u8>, _> = bytes.split(", ").map(str::parse).collect();
            brief.push_str(&rest[..from]);
            match parsed {
                Ok(txid) if txid.len() == 32 => {
                    brief.push_str(&self.name(&txid));
                    rest = &rest[from + bytes.len() + 2..];
                }
                _ => {
                    brief.push('[');
                    rest = &rest[from + 1..];
                }
            }
        }
        brief + rest
    }

    /// The transaction with this id, where it is one of the family.
    pub fn get(&self, txid: &[u8]) -> Option<&Transaction> {
        let number = <&Txid>::try_from(txid).ok().and_then(|txid| self.numbers.get(txid))?;
        Some(&self.all[*number])
    }
}

impl Transaction {
    /// Whether an output is a UTXO.
    pub fn is_utxo(&self, vout: usize) -> bool {
        self.tx.outputs[vout].0 > 0
    }

    /// One of its outputs, spent by an input of another one.
    pub fn spend(&self, vout: u32, vin: u32) -> Spend {
        Spend { txid: self.tx.id(), vout, utxo_hash: UtxoHash::from(self.hashes[vout as usize]), vin }
    }

    /// Where its bytes come from when its record is made.
    pub fn source(&self) -> TransactionSource {
        let Some(store) = self.blob.clone() else {
            return TransactionSource::Raw(ByteBuf::from(self.tx.raw.as_slice()));
        };
        let input = |(txid, vout): &(Txid, u32)| Outpoint { txid: (*txid).into(), vout: *vout };
        let hash = |vout: usize| self.is_utxo(vout).then(|| UtxoHash::from(self.hashes[vout]));
        TransactionSource::Outside(OutsideTransaction {
            txid: self.tx.id(),
            store,
            coinbase: false,
            version: 1,
            lock_time: 0,
            size: self.tx.raw.len() as u64,
            inputs: self.tx.inputs.iter().map(input).collect(),
            utxo_hashes: (0..self.tx.outputs.len()).map(hash).collect(),
        })
    }
}
