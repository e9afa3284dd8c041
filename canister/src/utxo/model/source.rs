//! What a source says of its transaction, read plainly.

use super::{Call, Hash, hash_argument};
use coppice_interface::*;
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;

/// A transaction as a source gives it.
#[derive(Clone, Debug)]
pub struct Given {
    pub txid: Hash,
    pub place: TransactionPlace,
    pub file_type: FileType,
    pub bytes: Vec<u8>,
    pub size: u64,
    pub version: u32,
    pub lock_time: u32,
    pub coinbase: bool,
    pub extended: bool,
    pub inputs: Vec<(Hash, u32)>,
    /// The hash of each output, none for one that is no UTXO.
    pub outputs: Vec<Option<Hash>>,
    /// What an extended transaction pays.
    pub fee: Option<u64>,
}

pub fn sha256(bytes: &[u8]) -> Hash {
    Sha256::digest(bytes).into()
}

/// Bitcoin's VarInt.
pub fn varint(value: u64) -> Vec<u8> {
    let bytes = value.to_le_bytes();
    match value {
        0..=0xfc => vec![bytes[0]],
        0xfd..=0xffff => [&[0xfd], &bytes[..2]].concat(),
        0x1_0000..=0xffff_ffff => [&[0xfe], &bytes[..4]].concat(),
        _ => [&[0xff], &bytes[..]].concat(),
    }
}

/// The hash of an output.
pub fn utxo_hash(txid: &Hash, vout: u32, script: &[u8], satoshis: u64) -> Hash {
    sha256(&[txid, &varint(vout.into())[..], script, &varint(satoshis)].concat())
}

/// The hash, where the output is one that can be spent.
fn entry(txid: &Hash, vout: usize, script: &[u8], satoshis: u64) -> Option<Hash> {
    let data_only = script.starts_with(&[0x6a]) || script.starts_with(&[0x00, 0x6a]);
    (satoshis > 0 || !data_only).then(|| utxo_hash(txid, vout as u32, script, satoshis))
}

/// TxInpoints: each parent once, in the order in which the inputs name them.
pub fn inpoints(inputs: &[(Hash, u32)]) -> Vec<u8> {
    let mut parents: Vec<Hash> = Vec::new();
    let mut vouts: BTreeMap<Hash, Vec<u32>> = BTreeMap::new();
    for &(parent, vout) in inputs {
        if !parents.contains(&parent) {
            parents.push(parent);
        }
        vouts.entry(parent).or_default().push(vout);
    }
    let mut bytes = (parents.len() as u32).to_le_bytes().to_vec();
    parents.iter().for_each(|parent| bytes.extend(parent));
    for parent in &parents {
        bytes.extend((vouts[parent].len() as u32).to_le_bytes());
        vouts[parent].iter().for_each(|vout| bytes.extend(vout.to_le_bytes()));
    }
    bytes
}

/// A UTXOWrapper: integers of fixed width.
pub fn wrapper(txid: &Hash, height: u32, coinbase: bool, outputs: &[PartialOutput]) -> Vec<u8> {
    let mut bytes = txid.to_vec();
    bytes.extend((height * 2 + u32::from(coinbase)).to_le_bytes());
    bytes.extend((outputs.len() as u32).to_le_bytes());
    for output in outputs {
        bytes.extend(output.index.to_le_bytes());
        bytes.extend(output.satoshis.to_le_bytes());
        bytes.extend((output.script.len() as u32).to_le_bytes());
        bytes.extend(&output.script[..]);
    }
    bytes
}

/// Bytes that are read from the front.
struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn take(&mut self, count: u64) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(usize::try_from(count).ok()?)?;
        self.0 = rest;
        Some(taken)
    }

    fn number(&mut self, width: u64) -> Option<u64> {
        Some(self.take(width)?.iter().rev().fold(0, |number, &byte| number << 8 | u64::from(byte)))
    }

    fn varint(&mut self) -> Option<u64> {
        match self.number(1)? {
            0xfd => self.number(2),
            0xfe => self.number(4),
            0xff => self.number(8),
            small => Some(small),
        }
    }

    fn var_bytes(&mut self) -> Option<&'a [u8]> {
        let length = self.varint()?;
        self.take(length)
    }
}

/// Reads a transaction's bytes; none where they are no transaction.
fn parse(bytes: &[u8]) -> Option<Given> {
    let mut reader = Reader(bytes);
    let version = reader.number(4)? as u32;
    let extended = reader.0.starts_with(&[0, 0, 0, 0, 0, 0xef]);
    let witnesses = !extended && reader.0.starts_with(&[0, 1]);
    reader.take(if extended {
        6
    } else if witnesses {
        2
    } else {
        0
    })?;

    // The transaction without what the id leaves out.
    let mut standard = version.to_le_bytes().to_vec();
    let count = reader.varint()?;
    standard.extend(varint(count));
    let (mut inputs, mut paid_in) = (Vec::new(), 0u64);
    for _ in 0..count {
        let parent: Hash = reader.take(32)?.try_into().ok()?;
        let vout = reader.number(4)? as u32;
        let script = reader.var_bytes()?;
        let sequence = reader.take(4)?;
        standard.extend([&parent[..], &vout.to_le_bytes(), &varint(script.len() as u64), script, sequence].concat());
        if extended {
            paid_in = paid_in.saturating_add(reader.number(8)?);
            reader.var_bytes()?;
        }
        inputs.push((parent, vout));
    }
    let count = reader.varint()?;
    standard.extend(varint(count));
    let (mut outputs, mut paid_out) = (Vec::new(), 0u64);
    for _ in 0..count {
        let satoshis = reader.number(8)?;
        let script = reader.var_bytes()?;
        standard.extend([&satoshis.to_le_bytes(), &varint(script.len() as u64)[..], script].concat());
        paid_out = paid_out.saturating_add(satoshis);
        outputs.push((satoshis, script));
    }
    for _ in inputs.iter().filter(|_| witnesses) {
        for _ in 0..reader.varint()? {
            reader.var_bytes()?;
        }
    }
    let lock_time = reader.number(4)? as u32;
    standard.extend(lock_time.to_le_bytes());
    if !reader.0.is_empty() || inputs.is_empty() {
        return None;
    }
    let txid = sha256(&sha256(&standard));
    let coinbase = inputs == [([0; 32], u32::MAX)];
    Some(Given {
        txid,
        place: TransactionPlace::Record,
        file_type: FileType::Tx,
        bytes: bytes.to_vec(),
        size: bytes.len() as u64,
        version,
        lock_time,
        coinbase,
        extended,
        fee: if extended && !coinbase { paid_in.checked_sub(paid_out) } else { None },
        inputs: if coinbase { Vec::new() } else { inputs },
        outputs: (0..).zip(outputs).map(|(vout, (satoshis, script))| entry(&txid, vout, script, satoshis)).collect(),
    })
}

/// Class bytes of a blob, or of several.
pub fn class_bytes(bytes: u64) -> u64 {
    let (whole, rest) = (bytes / (4 << 20), bytes % (4 << 20));
    whole * (4 << 20) + if rest == 0 { 0 } else { rest.next_power_of_two().max(64 << 10) }
}

impl Given {
    /// Class bytes that it keeps in the BlobStore.
    pub fn class_bytes(&self) -> u64 {
        match self.place {
            TransactionPlace::Blobs { .. } => class_bytes(self.bytes.len() as u64),
            _ => 0,
        }
    }
}

fn bad(field: &str) -> UtxoRefusal {
    UtxoRefusal::BadArgument { field: field.into(), why: String::new() }
}

fn outputs_only(partial: &PartialTransaction, height: u32, call: &Call) -> Result<Given, UtxoRefusal> {
    let txid = hash_argument("txid", &partial.txid)?;
    let rising = partial.outputs.windows(2).all(|pair| pair[0].index < pair[1].index);
    if !rising || partial.outputs.last().is_some_and(|last| last.index >= partial.total_outputs) {
        return Err(bad("outputs"));
    }
    let mut outputs = vec![None; partial.total_outputs as usize];
    for output in &partial.outputs {
        let vout = output.index as usize;
        outputs[vout] = entry(&txid, vout, &output.script, output.satoshis);
    }
    call.check_block(height)?;
    let bytes = wrapper(&txid, height, partial.coinbase, &partial.outputs);
    Ok(Given {
        txid,
        place: TransactionPlace::Blobs { file_type: FileType::Outputs, parts: Vec::new() },
        file_type: FileType::Outputs,
        size: bytes.len() as u64,
        bytes,
        version: 0,
        lock_time: 0,
        coinbase: partial.coinbase,
        extended: false,
        inputs: Vec::new(),
        outputs,
        fee: None,
    })
}

fn outside(outside: &OutsideTransaction) -> Result<Given, UtxoRefusal> {
    let txid = hash_argument("txid", &outside.txid)?;
    if outside.store.blob_key.is_empty() || outside.store.blob_key.len() > 1_024 {
        return Err(bad("blob_key"));
    }
    if outside.coinbase && !outside.inputs.is_empty() {
        return Err(bad("inputs"));
    }
    let parent =
        |input: &Outpoint| -> Result<_, UtxoRefusal> { Ok((hash_argument("inputs", &input.txid)?, input.vout)) };
    let output = |hash: &Option<UtxoHash>| hash.as_ref().map(|hash| hash_argument("utxo_hashes", hash)).transpose();
    Ok(Given {
        txid,
        place: TransactionPlace::Outside(outside.store.clone()),
        file_type: outside.store.file_type,
        bytes: Vec::new(),
        size: outside.size,
        version: outside.version,
        lock_time: outside.lock_time,
        coinbase: outside.coinbase,
        extended: false,
        inputs: outside.inputs.iter().map(parent).collect::<Result<_, _>>()?,
        outputs: outside.utxo_hashes.iter().map(output).collect::<Result<_, _>>()?,
        fee: None,
    })
}

/// Reads a source. `height` is that of the first block, if there is one, and `uploaded` the complete upload.
///
/// # Errors
/// What is wrong with it, by itself: there may be a record already.
pub fn given(
    source: &TransactionSource,
    height: u32,
    call: &Call,
    uploaded: Option<&[u8]>,
) -> Result<Given, UtxoRefusal> {
    let settings = &call.settings;
    let raw = |bytes: &[u8]| parse(bytes).ok_or(UtxoRefusal::BadTransaction { at: 0, why: String::new() });
    let mut given = match source {
        TransactionSource::Raw(bytes) => raw(bytes)?,
        TransactionSource::Uploaded(txid) => {
            let txid = hash_argument("txid", txid)?;
            let given = raw(uploaded.ok_or(UtxoRefusal::NoUpload)?)?;
            if given.txid != txid {
                return Err(UtxoRefusal::BadTransaction { at: 0, why: "it is another".into() });
            }
            given
        }
        TransactionSource::Outputs(partial) => outputs_only(partial, height, call)?,
        TransactionSource::Outside(transaction) => outside(transaction)?,
    };
    if given.outputs.is_empty() {
        return Err(UtxoRefusal::NoOutputs);
    }
    let large = given.outputs.len() > settings.utxo_batch_size as usize
        || given.bytes.len() > settings.max_tx_size_in_store as usize
        || settings.externalize_all;
    if given.place == TransactionPlace::Record && large {
        given.place = TransactionPlace::Blobs { file_type: FileType::Tx, parts: Vec::new() };
    }
    Ok(given)
}
