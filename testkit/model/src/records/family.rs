//! Transactions of a history: a few that spend from each other, sometimes the same outputs.

use crate::blocks::id;
use crate::transactions::Tx;
use candid::encode_args;
use ic_coppice_interface::*;
use serde_bytes::ByteBuf;
use std::collections::BTreeMap;

/// A transaction's id, in internal order.
pub type Txid = [u8; 32];

/// The external blob that holds a transaction's bytes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Blob {
    /// None: the bytes go into the record or the BlobStore.
    Inside,
    /// A blob of its own.
    Own,
    /// A blob that several transactions name.
    Shared,
}

/// A transaction as generated.
#[derive(Clone, Debug)]
pub struct Template {
    /// The outputs it spends: how many places before this one the parent is (0, or before the first: a parent without a record), and the
    /// output number.
    pub inputs: Vec<(u8, u8)>,
    /// If set, it spends exactly all outputs of the transaction that many places before it.
    pub sweeps: Option<u8>,
    /// Number of outputs.
    pub outputs: u32,
    /// A bit for each output that is not a UTXO.
    pub data: u8,
    /// The place of its bytes.
    pub blob: Blob,
}

/// A transaction, and its external blob, if any.
#[derive(Clone, Debug)]
pub struct Transaction {
    /// Its bytes, id, inputs and outputs.
    pub tx: Tx,
    /// The UTXO hashes of its outputs.
    pub hashes: Vec<[u8; 32]>,
    /// The external blob that its bytes are in.
    pub blob: Option<ExternalStore>,
    /// The argument of `utxo_get` for its record.
    pub get: Vec<u8>,
}

/// The transactions of a history, parents first.
#[derive(Clone, Debug, Default)]
pub struct Family {
    /// All transactions.
    pub all: Vec<Transaction>,
    numbers: BTreeMap<Txid, usize>,
}

impl Family {
    /// Creates the transactions of these templates.
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
            // Bytes inside the record must be a transaction, which has inputs.
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
            // A shared blob is one row only if all parts of its name are the same.
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

    /// Returns true if a transaction has more outputs than a message processes at once.
    pub fn has_large(&self) -> bool {
        self.all.iter().any(|one| one.tx.outputs.len() > 1_000)
    }

    /// Returns its name for reports.
    pub fn name(&self, txid: &[u8]) -> String {
        let number = <&Txid>::try_from(txid).ok().and_then(|txid| self.numbers.get(txid));
        number.map_or_else(|| format!("another ({:02x}{:02x})", txid[0], txid[1]), |number| format!("#{number}"))
    }

    /// Returns several names for reports.
    pub fn names<'a>(&self, txids: impl IntoIterator<Item = &'a Txid>) -> String {
        txids.into_iter().map(|txid| self.name(txid)).collect::<Vec<_>>().join(" ")
    }

    /// Replaces ids by names in a report.
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

    /// Returns the transaction with this id, if it is in the family.
    pub fn get(&self, txid: &[u8]) -> Option<&Transaction> {
        let number = <&Txid>::try_from(txid).ok().and_then(|txid| self.numbers.get(txid))?;
        Some(&self.all[*number])
    }
}

impl Transaction {
    /// Returns true if an output is a UTXO.
    pub fn is_utxo(&self, vout: usize) -> bool {
        self.tx.outputs[vout].0 > 0
    }

    /// Returns the spend of one of its outputs by an input.
    pub fn spend(&self, vout: u32, vin: u32) -> Spend {
        Spend { txid: self.tx.id(), vout, utxo_hash: UtxoHash::from(self.hashes[vout as usize]), vin }
    }

    /// Returns the source of its bytes for creating its record.
    pub fn source(&self) -> TransactionSource {
        let Some(store) = self.blob.clone() else {
            return TransactionSource::Raw(ByteBuf::from(self.tx.raw.as_slice()));
        };
        let input = |(txid, vout): &(Txid, u32)| Outpoint { txid: (*txid).into(), vout: *vout };
        let hash = |vout: usize| self.is_utxo(vout).then(|| UtxoHash::from(self.hashes[vout]));
        TransactionSource::External(ExternalTransaction {
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
