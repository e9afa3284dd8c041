//! Parser of a raw transaction: standard, extended, or with witnesses.
//!
//! ```text
//! standard: version i32 ‖ VarInt n ‖ n × input ‖ VarInt m ‖ m × output ‖ lock time u32
//! extended: version ‖ 00 00 00 00 00 ef ‖ VarInt n ‖ n × (input ‖ the output that it spends) ‖ VarInt m ‖ …
//! witness:  version ‖ 00 01 ‖ n, inputs, m, outputs ‖ n × witness ‖ lock time
//! ```
//! `bitcoin_slices` parses the pieces; their order is parsed here, because no library knows the extended form. A txid is the double
//! SHA-256 of the standard form, whichever form was given.

use super::call::Answer;
use super::encoding::{self, MAX_COPIED, is_utxo};
use super::limits::{MAX_INPUTS, MAX_OUTPUTS, MAX_TRANSACTION, at_most, check_least};
use super::record::Hash;
use crate::sha256::{self, Message, Messages};
use bitcoin_slices::bsl::{TxIn, TxOut, scan_len};
use bitcoin_slices::{Error, Parse};
use ic_coppice_interface::UtxoRefusal;
use sha2::{Digest, Sha256};

/// Bytes of the shortest input, and of the shortest output.
const LEAST_INPUT: usize = 41;
const LEAST_OUTPUT: usize = 9;

const EXTENDED: [u8; 6] = [0, 0, 0, 0, 0, 0xEF];
const WITNESS: [u8; 2] = [0, 1];

/// The parts of a transaction that a record keeps besides the bytes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
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
    /// The hash of each output, `None` for an output that is not a UTXO.
    pub outputs: Vec<Option<Hash>>,
    /// Satoshis, if the form is extended and the inputs spend at least as much as the outputs have.
    pub fee: Option<u64>,
}

/// Skips items of a witness, from byte `at` on, whose lengths have one byte. Returns the byte after them, and the items that are left;
/// that byte may lie behind `bytes`.
#[inline]
pub fn pass_items(bytes: &[u8], mut at: usize, mut items: u64) -> (usize, u64) {
    while items > 0
        && let Some(&len) = bytes.get(at)
        && len < 0xFD
    {
        at += 1 + usize::from(len);
        items -= 1;
    }
    (at, items)
}

struct Reader<'a> {
    whole: &'a [u8],
    at: usize,
    /// The bytes end inside a part.
    ended: bool,
}

impl<'a> Reader<'a> {
    fn bad(&self, why: impl Into<String>) -> UtxoRefusal {
        UtxoRefusal::BadTransaction { offset: self.at as u64, why: why.into() }
    }

    fn failed(&mut self, what: &str, error: &Error) -> UtxoRefusal {
        self.ended |= matches!(error, Error::MoreBytesNeeded);
        self.bad(match error {
            Error::MoreBytesNeeded => format!("the bytes end inside {what}"),
            Error::NonMinimalVarInt => format!("a length of {what} is longer encoded than it need be"),
            _ => format!("{what} is not valid"),
        })
    }

    fn rest(&self) -> &'a [u8] {
        &self.whole[self.at..]
    }

    fn count(&mut self, what: &str, limit: u32) -> Answer<u32> {
        let count = scan_len(self.rest(), &mut self.at).map_err(|error| self.failed(what, &error))?;
        at_most(what, count, u64::from(limit))?;
        Ok(count as u32)
    }

    fn piece<T: Parse<'a> + AsRef<[u8]>>(&mut self, what: &str) -> Answer<T> {
        let parsed = T::parse(self.rest()).map_err(|error| self.failed(what, &error))?;
        self.at += parsed.consumed();
        Ok(parsed.parsed_owned())
    }

    /// Skips a witness.
    fn witness(&mut self) -> Answer<()> {
        let what = "a witness";
        let mut at = self.at;
        let mut left = scan_len(self.rest(), &mut at).map_err(|error| self.failed(what, &error))?;
        loop {
            (at, left) = pass_items(self.whole, at, left);
            if left == 0 {
                break;
            }
            let rest = self.whole.get(at..).unwrap_or_default();
            let len = scan_len(rest, &mut at).map_err(|error| self.failed(what, &error))?;
            at = at.saturating_add(usize::try_from(len).unwrap_or(usize::MAX));
            left -= 1;
        }
        if at > self.whole.len() {
            return Err(self.failed(what, &Error::MoreBytesNeeded));
        }
        self.at = at;
        Ok(())
    }

    fn word(&mut self, what: &str) -> Answer<u32> {
        let word = self.rest().first_chunk().ok_or_else(|| self.failed(what, &Error::MoreBytesNeeded))?;
        self.at += 4;
        Ok(u32::from_le_bytes(*word))
    }
}

/// Returns the refusal of a transaction of more than 16 MiB.
pub fn too_long() -> UtxoRefusal {
    UtxoRefusal::TooLarge { what: "bytes of a transaction".into(), limit: MAX_TRANSACTION }
}

/// A parsed transaction whose hashes are computed by [`hash`].
#[derive(Debug)]
pub struct Unhashed<'a> {
    /// The transaction; its id is zero and it has no outputs until they are hashed. On the heap, because it moves several times, and each
    /// move would take 200 instructions.
    pub parsed: Box<Parsed>,
    /// The transaction's bytes, in the form that was given.
    pub raw: &'a [u8],
    /// The pieces of the standard form in order, if the bytes are in another form.
    pieces: Vec<&'a [u8]>,
    /// Satoshis and locking scripts of the outputs; none after they are hashed.
    outputs: Vec<(u64, &'a [u8])>,
}

/// Reads the parts of the transaction at the start of the reader's bytes. A transaction of `known` bytes or more is expected.
fn read<'a>(reader: &mut Reader<'a>, known: usize) -> Answer<Unhashed<'a>> {
    let bytes = reader.whole;
    let version = reader.word("the version")?;
    let extended = reader.rest().starts_with(&EXTENDED);
    let witness = !extended && reader.rest().starts_with(&WITNESS);
    reader.at += if extended { EXTENDED.len() } else { 2 * usize::from(witness) };

    let mut pieces = Vec::new();
    let mut begin = reader.at;
    let count = reader.count("inputs", MAX_INPUTS)?;
    let mut inputs = Vec::with_capacity((count as usize).min(reader.rest().len() / LEAST_INPUT));
    if extended || witness {
        pieces.reserve_exact(3 + if extended { inputs.capacity() } else { 0 });
        pieces.push(&bytes[..4]);
    }
    let mut spent = Some(0u64);
    for _ in 0..count {
        let input: TxIn = reader.piece("an input")?;
        let outpoint = input.prevout();
        inputs.push((*outpoint.txid().first_chunk().expect("32 bytes"), outpoint.vout()));
        if extended {
            pieces.push(&bytes[begin..reader.at]);
            let output: TxOut = reader.piece("what an input spends")?;
            begin = reader.at;
            spent = spent.and_then(|sum| sum.checked_add(output.value()));
        }
    }
    let count = reader.count("outputs", MAX_OUTPUTS)?;
    check_least(count as usize, inputs.len(), known.max(reader.at))?;
    let mut outputs = Vec::with_capacity((count as usize).min(reader.rest().len() / LEAST_OUTPUT));
    let mut paid = Some(0u64);
    for _ in 0..count {
        let output: TxOut = reader.piece("an output")?;
        paid = paid.and_then(|sum| sum.checked_add(output.value()));
        // The script is the last part of an output.
        outputs.push((output.value(), &bytes[reader.at - output.script_pubkey().len()..reader.at]));
    }
    let end = reader.at;
    if witness {
        inputs.iter().try_for_each(|_| reader.witness())?;
    }
    let lock_time = reader.word("the lock time")?;
    if extended || witness {
        pieces.push(&bytes[begin..end]);
        pieces.push(&bytes[reader.at - 4..reader.at]);
    }
    let coinbase = inputs.as_slice() == [([0; 32], u32::MAX)];
    if coinbase {
        inputs.clear();
    }
    let fee = spent.zip(paid).filter(|_| extended && !coinbase).and_then(|(spent, paid)| spent.checked_sub(paid));
    let parsed = Parsed { version, lock_time, coinbase, extended, inputs, fee, ..Parsed::default() };
    Ok(Unhashed { parsed: Box::new(parsed), raw: &bytes[..reader.at], pieces, outputs })
}

impl<'a> Unhashed<'a> {
    /// Parses the transaction at the start of `bytes`, which may go on after it. Returns `None` if the bytes end inside it.
    ///
    /// # Errors
    /// `BadTransaction`, `TooLarge`.
    pub fn first(bytes: &'a [u8]) -> Answer<Option<Self>> {
        let whole = &bytes[..bytes.len().min(MAX_TRANSACTION as usize)];
        let mut reader = Reader { whole, at: 0, ended: false };
        match read(&mut reader, 0) {
            Ok(read) => Ok(Some(read)),
            Err(_) if reader.ended && whole.len() as u64 == MAX_TRANSACTION => Err(too_long()),
            Err(_) if reader.ended => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Parses a whole transaction.
    ///
    /// # Errors
    /// `BadTransaction`, `TooLarge`.
    pub fn whole(raw: &'a [u8]) -> Answer<Self> {
        at_most("bytes of a transaction", raw.len() as u64, MAX_TRANSACTION)?;
        let mut reader = Reader { whole: raw, at: 0, ended: false };
        let read = read(&mut reader, raw.len())?;
        match reader.rest().len() {
            0 => Ok(read),
            more => Err(reader.bad(format!("{more} bytes after the lock time"))),
        }
    }

    /// Returns a transaction of which nothing is known but the id and outputs: their satoshis and locking scripts.
    pub fn of_outputs(parsed: Parsed, outputs: Vec<(u64, &'a [u8])>) -> Self {
        Self { parsed: Box::new(parsed), raw: &[], pieces: Vec::new(), outputs }
    }

    /// Computes the id, and returns it.
    pub fn id(&mut self) -> Hash {
        sha256::double_digests(&mut Ids { all: &mut [self], next: 0 }, 1);
        self.parsed.txid
    }

    /// Returns the number of outputs.
    pub fn outputs(&self) -> usize {
        self.outputs.len()
    }

    /// Returns the standard form. If it has several pieces, it is appended to the buffer or, if it is long, hashed.
    fn standard(&self, buffer: &mut Vec<u8>) -> Message<'a> {
        if self.pieces.is_empty() {
            return Message::Slice(self.raw);
        }
        if self.raw.len() > MAX_COPIED {
            let hasher = self.pieces.iter().fold(Sha256::new(), |hasher, piece| hasher.chain_update(piece));
            return Message::Known(Sha256::digest(hasher.finalize()).into());
        }
        buffer.reserve(self.raw.len() + sha256::ROOM);
        self.pieces.iter().for_each(|piece| buffer.extend_from_slice(piece));
        Message::Written
    }
}

/// Returns whether the bytes are a whole transaction with this id. Hashes no output.
pub fn is_transaction(raw: &[u8], txid: &Hash) -> bool {
    Unhashed::whole(raw).is_ok_and(|mut transaction| transaction.id() == *txid)
}

/// Computes the ids of transactions, and the hashes of their outputs.
pub fn hash(transactions: &mut [&mut Unhashed]) {
    let count = transactions.len();
    sha256::double_digests(&mut Ids { all: transactions, next: 0 }, count);
    hash_outputs(transactions);
}

/// Computes the hashes of the outputs of transactions whose ids are known.
pub fn hash_outputs(transactions: &mut [&mut Unhashed]) {
    let mut count = 0;
    for transaction in &mut *transactions {
        transaction.parsed.outputs = vec![None; transaction.outputs.len()];
        count += transaction.outputs.len();
    }
    sha256::digests(&mut Outputs { all: transactions, next: (0, 0) }, count);
    transactions.iter_mut().for_each(|transaction| transaction.outputs.clear());
}

/// The transactions whose ids are computed.
struct Ids<'s, 't, 'a> {
    all: &'s mut [&'t mut Unhashed<'a>],
    next: usize,
}

impl<'a> Messages<'a> for Ids<'_, '_, 'a> {
    type Key = usize;

    fn next(&mut self, buffer: &mut Vec<u8>) -> Option<(usize, Message<'a>)> {
        let at = self.next;
        let message = self.all.get(at)?.standard(buffer);
        self.next += 1;
        Some((at, message))
    }

    fn done(&mut self, at: usize, digest: Hash) {
        self.all[at].parsed.txid = digest;
    }
}

/// The transactions whose outputs are hashed, and the place of the next output.
struct Outputs<'s, 't, 'a> {
    all: &'s mut [&'t mut Unhashed<'a>],
    next: (usize, usize),
}

impl<'a> Messages<'a> for Outputs<'_, '_, 'a> {
    type Key = (usize, usize);

    fn next(&mut self, buffer: &mut Vec<u8>) -> Option<((usize, usize), Message<'a>)> {
        loop {
            let (at, vout) = self.next;
            let Unhashed { parsed, outputs, .. } = &**self.all.get(at)?;
            let Some(&(satoshis, script)) = outputs.get(vout) else {
                self.next = (at + 1, 0);
                continue;
            };
            self.next = (at, vout + 1);
            if is_utxo(satoshis, script) {
                let message = encoding::message(buffer, &parsed.txid, vout as u32, satoshis, script);
                return Some(((at, vout), message));
            }
        }
    }

    fn done(&mut self, (at, vout): (usize, usize), digest: Hash) {
        self.all[at].parsed.outputs[vout] = Some(digest);
    }
}

/// Parses a whole transaction and computes its hashes.
///
/// # Errors
/// `BadTransaction`, `TooLarge`.
pub fn parse(raw: &[u8]) -> Answer<Box<Parsed>> {
    let mut read = Unhashed::whole(raw)?;
    hash(&mut [&mut read]);
    Ok(read.parsed)
}
