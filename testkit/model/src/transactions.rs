//! Transactions to create UTXO records from.

use crate::blocks::{self, id};
use ic_coppice_interface::*;
use serde_bytes::ByteBuf;
use sha2::{Digest, Sha256};

/// A transaction and its outputs.
#[derive(Clone, Debug)]
pub struct Tx {
    /// Its bytes, in the standard format.
    pub raw: Vec<u8>,
    /// Its id, in internal order.
    pub txid: [u8; 32],
    /// The output that each input spends.
    pub inputs: Vec<([u8; 32], u32)>,
    /// Satoshis and locking script of each output.
    pub outputs: Vec<(u64, Vec<u8>)>,
}

/// Encodes a number as Bitcoin's CompactSize.
pub fn var_int(n: u64) -> Vec<u8> {
    match n {
        0..=0xFC => vec![n as u8],
        0xFD..=0xFFFF => [&[0xFD][..], &(n as u16).to_le_bytes()].concat(),
        0x1_0000..=0xFFFF_FFFF => [&[0xFE][..], &(n as u32).to_le_bytes()].concat(),
        _ => [&[0xFF][..], &n.to_le_bytes()].concat(),
    }
}

/// Returns the bytes of a transaction of version 2 and lock time 7. With `previous`, the outputs that its inputs spend, the format is
/// extended.
pub fn serialise(
    inputs: &[([u8; 32], u32)],
    previous: Option<&[(u64, Vec<u8>)]>,
    outputs: &[(u64, Vec<u8>)],
) -> Vec<u8> {
    let output = |raw: &mut Vec<u8>, (satoshis, script): &(u64, Vec<u8>)| {
        raw.extend(satoshis.to_le_bytes());
        raw.extend(var_int(script.len() as u64));
        raw.extend(script);
    };
    let mut raw = 2u32.to_le_bytes().to_vec();
    if previous.is_some() {
        raw.extend([0, 0, 0, 0, 0, 0xEF]);
    }
    raw.extend(var_int(inputs.len() as u64));
    for (i, (txid, vout)) in inputs.iter().enumerate() {
        raw.extend(txid);
        raw.extend(vout.to_le_bytes());
        raw.extend([2, 0x51, 0x52, 0xFF, 0xFF, 0xFF, 0xFF]);
        previous.iter().for_each(|previous| output(&mut raw, &previous[i]));
    }
    raw.extend(var_int(outputs.len() as u64));
    outputs.iter().for_each(|one| output(&mut raw, one));
    raw.extend(7u32.to_le_bytes());
    raw
}

/// Returns the body of a block with these transactions: an 80-byte header, their number and their bytes.
pub fn body(txs: &[Tx]) -> Vec<u8> {
    let raws = txs.iter().flat_map(|tx| tx.raw.iter().copied());
    [0x07; 80].into_iter().chain(var_int(txs.len() as u64)).chain(raws).collect()
}

/// Returns block `number` with these transactions.
pub fn block(number: u64, txs: &[Tx]) -> AppendBlock {
    let ids: Vec<[u8; 32]> = txs.iter().map(|tx| tx.txid).collect();
    let mut block = AppendBlock { body: ByteBuf::from(body(txs)), ..blocks::block(number, &ids, 0) };
    blocks::seal(&mut block);
    block
}

/// Returns the id of a transaction with these bytes.
pub fn txid(standard: &[u8]) -> [u8; 32] {
    Sha256::digest(Sha256::digest(standard)).into()
}

impl Tx {
    /// Creates a transaction with these inputs and outputs.
    pub fn new(inputs: &[([u8; 32], u32)], outputs: &[(u64, Vec<u8>)]) -> Self {
        let raw = serialise(inputs, None, outputs);
        Self { txid: txid(&raw), raw, inputs: inputs.to_vec(), outputs: outputs.to_vec() }
    }

    /// Creates a transaction with these inputs and `outputs` outputs; its id depends on `salt`.
    pub fn of(salt: u64, inputs: &[([u8; 32], u32)], outputs: u32) -> Self {
        let script = [&[0x51][..], &salt.to_le_bytes()].concat();
        let outputs: Vec<_> = (0..u64::from(outputs)).map(|i| (1_000 + i, script.clone())).collect();
        Self::new(inputs, &outputs)
    }

    /// Creates a transaction that spends an output without a record.
    pub fn orphan(salt: u64, outputs: u32) -> Self {
        Self::of(salt, &[(id(salt ^ 0xF00D), 0)], outputs)
    }

    /// Creates a coinbase.
    pub fn coinbase(salt: u64, outputs: u32) -> Self {
        Self::of(salt, &[([0; 32], u32::MAX)], outputs)
    }

    /// Returns its id as an argument.
    pub fn id(&self) -> Txid {
        Txid::from(self.txid)
    }

    /// Returns the UTXO hash of an output.
    pub fn hash(&self, vout: u32) -> [u8; 32] {
        let (satoshis, script) = &self.outputs[vout as usize];
        let preimage = [&self.txid[..], &var_int(u64::from(vout)), script, &var_int(*satoshis)].concat();
        Sha256::digest(preimage).into()
    }

    /// Returns one of its outputs.
    pub fn outpoint(&self, vout: u32) -> Outpoint {
        Outpoint { txid: self.id(), vout }
    }

    /// Returns the spend of one of its outputs by input `vin`.
    pub fn spend(&self, vout: u32, vin: u32) -> Spend {
        Spend { txid: self.id(), vout, utxo_hash: UtxoHash::from(self.hash(vout)), vin }
    }

    /// Returns the argument that creates its record, spendable at once.
    pub fn record(&self) -> UtxoCreate {
        UtxoCreate {
            source: TransactionSource::Raw(ByteBuf::from(self.raw.as_slice())),
            mined: None,
            locked: Some(false),
            conflicting: false,
            fee: None,
            is_new: false,
        }
    }
}
