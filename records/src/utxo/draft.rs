//! Draft of a record: the parsed transaction, in any of its forms, and the bytes to store.

use super::call::{Answer, Call, bad, check_height, hash_of};
use super::encoding;
use super::limits::{MAX_OUTPUTS, at_most, check_least};
use super::parse::{Parsed, Unhashed, hash_outputs, parse};
use super::record::extras::MAX_BLOCKS;
use super::record::{HEAD_BLOCKS, Hash, Head, flag, location};
use ic_coppice_interface::{
    BlockRef, ExternalStore, ExternalTransaction, MAX_BLOB_KEY, MinedIn, Outpoint, PartialTransaction, UtxoCreate,
    UtxoHash, UtxoRefusal,
};
use ic_coppice_storage::blob::{BlobPtr, BlobStore};
use std::borrow::Cow;

/// Stands for an output that is not known: like this one, which cannot be spent, it is not a UTXO.
const UNKNOWN: (u64, &[u8]) = (0, &[0x6A]);

/// A transaction's bytes.
pub enum Body<'a> {
    /// The whole transaction.
    Whole(&'a [u8]),
    /// A UTXOWrapper.
    Wrapper(Vec<u8>),
    /// The whole uploaded transaction, and its parts in the BlobStore.
    Uploaded(Vec<u8>, Vec<BlobPtr>),
    /// The bytes are in an external blob.
    External(&'a ExternalStore),
    /// The whole transaction, which lies in a block and is not copied.
    Kept {
        /// The transaction's bytes.
        raw: &'a [u8],
        /// The block.
        number: u64,
        /// The transaction's first byte in the block's body.
        offset: u64,
    },
}

/// Properties of a record to create that its transaction does not imply: those of [`UtxoCreate`].
#[derive(Clone, Copy, Debug, Default)]
pub struct Terms<'a> {
    /// The blocks that have the transaction.
    pub mined: Option<&'a MinedIn>,
    /// The outputs cannot be spent yet; `None`: while there is no block.
    pub locked: Option<bool>,
    /// The transaction is a double spend.
    pub conflicting: bool,
    /// The fee, unless the transaction contains it.
    pub fee: Option<u64>,
    /// The transaction was never recorded before.
    pub is_new: bool,
}

impl<'a> From<&'a UtxoCreate> for Terms<'a> {
    fn from(item: &'a UtxoCreate) -> Self {
        let UtxoCreate { mined, locked, conflicting, fee, is_new, .. } = item;
        Self { mined: mined.as_ref(), locked: *locked, conflicting: *conflicting, fee: *fee, is_new: *is_new }
    }
}

impl<'a> Terms<'a> {
    /// Returns the blocks that have the transaction.
    pub(super) fn blocks(&self) -> &'a [BlockRef] {
        self.mined.map_or(&[], |mined| &mined.blocks)
    }
}

/// A record to create.
pub struct Draft<'a> {
    /// The parsed transaction.
    pub parsed: Box<Parsed>,
    /// Bytes of the transaction, in the form that was given.
    pub size: u64,
    /// The transaction's bytes.
    pub body: Body<'a>,
}

/// Returns how many of these outputs are UTXOs. The sum never wraps, because there are at most [`MAX_OUTPUTS`]; a check would take a
/// tenth of the loop.
pub(super) fn utxos_among(outputs: &[Option<Hash>]) -> u32 {
    outputs.iter().fold(0, |utxos: u32, output| utxos.wrapping_add(u32::from(output.is_some())))
}

/// The last bytes of a record, which are the transaction or its location, and new blobs, which are freed if the record is not made.
pub(super) type StoredBytes<'a> = (Cow<'a, [u8]>, Vec<BlobPtr>);

/// Checks the blocks of a new record.
///
/// # Errors
/// `BadArgument` if there is no block, or a block occurs twice; `BadHeight`.
pub(super) fn check_mined(mined: &MinedIn, call: &Call) -> Answer<()> {
    let ids = || mined.blocks.iter().map(|block| block.block_id);
    if mined.blocks.is_empty() {
        return Err(bad("mined", "it names no block"));
    }
    at_most("blocks", mined.blocks.len() as u64, u64::from(HEAD_BLOCKS) + MAX_BLOCKS as u64)?;
    mined.blocks.iter().try_for_each(|block| check_height(block.height, call.most))?;
    if (1..mined.blocks.len()).any(|i| ids().take(i).any(|id| id == mined.blocks[i].block_id)) {
        return Err(bad("mined", "a block occurs twice"));
    }
    Ok(())
}

impl<'a> Draft<'a> {
    /// Returns the draft of an uploaded transaction, whose parts lie in the BlobStore.
    ///
    /// # Errors
    /// `BadTransaction`, `TooLarge`.
    pub(super) fn uploaded(named: &Hash, raw: Vec<u8>, parts: Vec<BlobPtr>) -> Answer<Self> {
        let parsed = parse(&raw)?;
        if parsed.txid != *named {
            let why = "the uploaded bytes are another transaction's; abort the upload".into();
            return Err(UtxoRefusal::BadTransaction { offset: 0, why });
        }
        Ok(Self { parsed, size: raw.len() as u64, body: Body::Uploaded(raw, parts) })
    }

    /// Returns the draft of a transaction of which only outputs are known; `height` is the transaction's.
    ///
    /// # Errors
    /// `BadArgument`, `TooLarge`, `BadHeight`.
    pub(super) fn outputs_only(partial: &PartialTransaction, height: u32, call: &Call) -> Answer<Self> {
        let txid = hash_of("txid", &partial.txid)?;
        at_most("outputs", u64::from(partial.total_outputs), u64::from(MAX_OUTPUTS))?;
        check_least(partial.total_outputs as usize, 0, 0)?;
        let mut outputs = vec![UNKNOWN; partial.total_outputs as usize];
        let mut next = 0;
        for output in &partial.outputs {
            if output.index < next || output.index >= partial.total_outputs {
                let why = format!("{} follows {next}, of {} outputs", output.index, partial.total_outputs);
                return Err(bad("outputs", why));
            }
            next = output.index + 1;
            outputs[output.index as usize] = (output.satoshis, &output.script);
        }
        let parsed = Parsed { txid, coinbase: partial.coinbase, ..Parsed::default() };
        let mut transaction = Unhashed::of_outputs(parsed, outputs);
        hash_outputs(&mut [&mut transaction]);
        // A UTXOWrapper has 31 bits for the height.
        check_height(height, call.most)?;
        let wrapper = encoding::wrapper(&txid, (height, partial.coinbase), &partial.outputs);
        Ok(Self { parsed: transaction.parsed, size: wrapper.len() as u64, body: Body::Wrapper(wrapper) })
    }

    /// Returns the draft of a transaction whose bytes are in an external blob.
    ///
    /// # Errors
    /// `BadArgument`, `TooLarge`.
    pub(super) fn external(external: &'a ExternalTransaction) -> Answer<Self> {
        match external.store.blob_key.len() {
            0 => return Err(bad("blob_key", "it is empty")),
            len if len > MAX_BLOB_KEY => return Err(bad("blob_key", format!("{len} bytes of at most {MAX_BLOB_KEY}"))),
            _ => {}
        }
        at_most("outputs", external.utxo_hashes.len() as u64, u64::from(MAX_OUTPUTS))?;
        check_least(external.utxo_hashes.len(), external.inputs.len(), 0)?;
        let input = |input: &Outpoint| hash_of("txid", &input.txid).map(|txid| (txid, input.vout));
        let output = |hash: &Option<UtxoHash>| hash.as_ref().map(|hash| hash_of("utxo_hash", hash)).transpose();
        if external.coinbase && !external.inputs.is_empty() {
            return Err(bad("inputs", "a coinbase spends nothing"));
        }
        Ok(Self {
            parsed: Box::new(Parsed {
                txid: hash_of("txid", &external.txid)?,
                version: external.version,
                lock_time: external.lock_time,
                coinbase: external.coinbase,
                inputs: external.inputs.iter().map(input).collect::<Result<_, _>>()?,
                outputs: external.utxo_hashes.iter().map(output).collect::<Result<_, _>>()?,
                ..Parsed::default()
            }),
            size: external.size,
            body: Body::External(&external.store),
        })
    }

    /// Returns the head of the record; the length of the transaction is set by [`store`](Self::store).
    pub(super) fn head(&self, terms: &Terms, call: &Call) -> Head {
        let parsed = &self.parsed;
        let batch = call.settings.utxo_batch_size;
        let mut pages = parsed.outputs.chunks(batch as usize).map(utxos_among);
        let own = pages.next().unwrap_or(0);
        let (mut extra_pages, mut spent_extra, mut total_utxos) = (0, 0, own);
        for page in pages {
            extra_pages += 1;
            total_utxos += page;
            spent_extra += u32::from(page == 0);
        }
        let blocks = terms.blocks();
        // A coinbase of two branches matures on both.
        let height = blocks.iter().map(|block| block.height).max().unwrap_or(call.height);
        let fee = parsed.fee.or(terms.fee);
        let flags = [
            (parsed.coinbase, flag::COINBASE),
            (terms.locked.unwrap_or(terms.mined.is_none()), flag::LOCKED),
            (terms.conflicting, flag::CONFLICTING),
            (parsed.extended, flag::EXTENDED),
            (fee.is_some(), flag::FEE),
            (matches!(self.body, Body::External(_)), flag::EXTERNAL | flag::NOT_INLINE),
            (matches!(self.body, Body::Wrapper(_)), flag::PARTIAL),
        ];
        let block = |i: usize| blocks.get(i).copied().unwrap_or_default();
        Head {
            flags: flags.iter().filter(|(set, _)| *set).fold(0, |flags, (_, flag)| flags | flag),
            batch,
            txid: parsed.txid,
            outputs: parsed.outputs.len() as u32,
            total_utxos,
            extra_pages,
            spent_extra,
            utxos: own,
            spending_height: if parsed.coinbase { height.saturating_add(call.settings.coinbase_maturity) } else { 0 },
            created_at_ns: call.now_ns,
            fee: fee.unwrap_or(0),
            size: self.size,
            version: parsed.version,
            lock_time: parsed.lock_time,
            inputs: parsed.inputs.len() as u32,
            blocks: blocks.len() as u32,
            head_blocks: [block(0), block(1)],
            ..Head::default()
        }
    }

    /// Stores the bytes in the BlobStore if they belong there. An uploaded transaction is there already.
    ///
    /// # Errors
    /// `ExternalFull`, `OutOfSpace`, `LowCycles`; nothing has changed.
    pub(super) fn store(&self, blobs: &mut BlobStore, head: &mut Head, call: &Call) -> Answer<StoredBytes<'_>> {
        let external = head.is_apart(call.settings);
        let mut new = Vec::new();
        let mut put = |bytes: &[u8]| {
            new = location::store(blobs, bytes, call.settings.max_external_bytes)?;
            Ok::<_, UtxoRefusal>((Cow::Owned(location::encode_parts(&new)), flag::NOT_INLINE))
        };
        let (tail, flags) = match &self.body {
            Body::External(store) => (Cow::Owned(location::encode_external(store)), 0),
            Body::Kept { raw, number, offset } => {
                (Cow::Owned(location::encode_block(*number, *offset, raw.len() as u64)), flag::KEPT)
            }
            Body::Whole(bytes) if !external => (Cow::Borrowed(*bytes), 0),
            Body::Uploaded(bytes, _) if !external => (Cow::Borrowed(bytes.as_slice()), 0),
            Body::Uploaded(_, parts) => (Cow::Owned(location::encode_parts(parts)), flag::NOT_INLINE),
            Body::Whole(bytes) => put(bytes)?,
            Body::Wrapper(bytes) => put(bytes)?,
        };
        head.flags |= flags;
        head.transaction_len = tail.len() as u32;
        Ok((tail, new))
    }
}
