//! Parser of a raw transaction: standard, extended, or with witnesses.
//!
//! ```text
//! standard: version i32 ‖ VarInt n ‖ n × input ‖ VarInt m ‖ m × output ‖ lock time u32
//! extended: version ‖ 00 00 00 00 00 ef ‖ VarInt n ‖ n × (input ‖ the output that it spends) ‖ VarInt m ‖ …
//! witness:  version ‖ 00 01 ‖ n, inputs, m, outputs ‖ n × witness ‖ lock time
//! ```
//! `bitcoin_slices` parses the pieces; their order is parsed here, because no library knows the extended form. A txid is the double
//! SHA-256 of the standard form, whichever form was given.

use super::encoding::{is_utxo, utxo_hash};
use super::limits::{MAX_INPUTS, MAX_OUTPUTS, MAX_TRANSACTION, check_least};
use super::record::Hash;
use bitcoin_slices::bsl::{TxIn, TxOut, Witness, scan_len};
use bitcoin_slices::{Error, Parse};
use coppice_interface::UtxoRefusal;
use sha2::{Digest, Sha256};

/// Bytes of the shortest input, and of the shortest output.
const LEAST_INPUT: usize = 41;
const LEAST_OUTPUT: usize = 9;

const EXTENDED: [u8; 6] = [0, 0, 0, 0, 0, 0xEF];
const WITNESS: [u8; 2] = [0, 1];

/// The parts of a transaction that a record keeps besides the bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Parsed {
    /// Double SHA-256 of the standard form.
    pub txid: Hash,
    /// The version.
    pub version: u32,
    /// The lock time.
    pub lock_time: u32,
    /// The transaction is a coinbase: its one input spends nothing.
    pub coinbase: bool,
    /// The transaction is in the extended form.
    pub extended: bool,
    /// The outpoints that the inputs spend, in order; empty for a coinbase.
    pub inputs: Vec<(Hash, u32)>,
    /// The hash of each output, `None` for an output that is no UTXO.
    pub outputs: Vec<Option<Hash>>,
    /// Satoshis, if the form is extended and the inputs spend at least as much as the outputs have.
    pub fee: Option<u64>,
}

struct Reader<'a> {
    whole: &'a [u8],
    at: usize,
}

impl<'a> Reader<'a> {
    fn bad(&self, why: impl Into<String>) -> UtxoRefusal {
        UtxoRefusal::BadTransaction { offset: self.at as u64, why: why.into() }
    }

    fn failed(&self, what: &str, error: &Error) -> UtxoRefusal {
        self.bad(match error {
            Error::MoreBytesNeeded => format!("the bytes end inside {what}"),
            Error::NonMinimalVarInt => format!("a length of {what} is longer encoded than it need be"),
            _ => format!("{what} is not valid"),
        })
    }

    fn rest(&self) -> &'a [u8] {
        &self.whole[self.at..]
    }

    fn count(&mut self, what: &str, limit: u32) -> Result<u32, UtxoRefusal> {
        let mut consumed = 0;
        let count = scan_len(self.rest(), &mut consumed).map_err(|error| self.failed(what, &error))?;
        if count > u64::from(limit) {
            return Err(UtxoRefusal::TooLarge { what: what.into(), limit: u64::from(limit) });
        }
        self.at += consumed;
        Ok(count as u32)
    }

    fn piece<T: Parse<'a> + AsRef<[u8]>>(&mut self, what: &str) -> Result<T, UtxoRefusal> {
        let parsed = T::parse(self.rest()).map_err(|error| self.failed(what, &error))?;
        self.at += parsed.consumed();
        Ok(parsed.parsed_owned())
    }

    fn word(&mut self, what: &str) -> Result<u32, UtxoRefusal> {
        let word = self.rest().first_chunk().ok_or_else(|| self.bad(format!("the bytes end inside {what}")))?;
        self.at += 4;
        Ok(u32::from_le_bytes(*word))
    }
}

/// Parses a whole transaction and computes its hashes.
///
/// # Errors
/// `BadTransaction`, `TooLarge`.
pub fn parse(raw: &[u8]) -> Result<Parsed, UtxoRefusal> {
    if raw.len() as u64 > MAX_TRANSACTION {
        return Err(UtxoRefusal::TooLarge { what: "bytes of a transaction".into(), limit: MAX_TRANSACTION });
    }
    let mut reader = Reader { whole: raw, at: 0 };
    let version = reader.word("the version")?;
    let extended = reader.rest().starts_with(&EXTENDED);
    let witness = !extended && reader.rest().starts_with(&WITNESS);
    reader.at += if extended { EXTENDED.len() } else { 2 * usize::from(witness) };

    let mut hasher = Sha256::new();
    hasher.update(&raw[..4]);
    let body = reader.at;
    let count = reader.count("inputs", MAX_INPUTS)?;
    let mut hashed = body;
    let mut inputs = Vec::with_capacity((count as usize).min(reader.rest().len() / LEAST_INPUT));
    let mut spent = Some(0u64);
    for _ in 0..count {
        let input: TxIn = reader.piece("an input")?;
        let outpoint = input.prevout();
        inputs.push((*outpoint.txid().first_chunk().expect("32 bytes"), outpoint.vout()));
        if extended {
            hasher.update(&raw[hashed..reader.at]);
            let output: TxOut = reader.piece("what an input spends")?;
            hashed = reader.at;
            spent = spent.and_then(|sum| sum.checked_add(output.value()));
        }
    }
    let count = reader.count("outputs", MAX_OUTPUTS)?;
    check_least(count as usize, inputs.len(), raw.len())?;
    let mut outputs = Vec::with_capacity((count as usize).min(reader.rest().len() / LEAST_OUTPUT));
    let mut paid = Some(0u64);
    for _ in 0..count {
        let output: TxOut = reader.piece("an output")?;
        paid = paid.and_then(|sum| sum.checked_add(output.value()));
        // The script is the last part of an output.
        outputs.push((output.value(), &raw[reader.at - output.script_pubkey().len()..reader.at]));
    }
    hasher.update(&raw[hashed..reader.at]);
    if witness {
        for _ in 0..inputs.len() {
            let _: Witness = reader.piece("a witness")?;
        }
    }
    let lock_time = reader.word("the lock time")?;
    if reader.at != raw.len() {
        return Err(reader.bad(format!("{} bytes after the lock time", raw.len() - reader.at)));
    }
    hasher.update(&raw[raw.len() - 4..]);
    let txid: Hash = Sha256::digest(hasher.finalize()).into();

    let coinbase = inputs.as_slice() == [([0; 32], u32::MAX)];
    if coinbase {
        inputs.clear();
    }
    let mut buffer = Vec::new();
    let outputs = (0..).zip(&outputs).map(|(vout, (value, script))| {
        is_utxo(*value, script).then(|| utxo_hash(&txid, vout, script, *value, &mut buffer))
    });
    Ok(Parsed {
        txid,
        version,
        lock_time,
        coinbase,
        extended,
        outputs: outputs.collect(),
        fee: spent.zip(paid).filter(|_| extended && !coinbase).and_then(|(spent, paid)| spent.checked_sub(paid)),
        inputs,
    })
}
