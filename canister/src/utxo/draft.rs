//! A record to make: what a transaction in any of its forms says of it, and where its bytes go.

use super::extras::MAX_BLOCKS;
use super::parse::{MAX_OUTPUTS, Parsed, parse};
use super::record::{HEAD_BLOCKS, Hash, Head, flag};
use super::{Call, UtxoStore, bad, encoding, footprint, hash_of, place};
use crate::storage::blob::{BlobPtr, BlobStore, Owner};
use coppice_interface::{
    BlockRef, ExternalStore, MinedIn, OutsideTransaction, PartialTransaction, TransactionSource, UtxoCreate,
    UtxoRefusal,
};
use std::borrow::Cow;

/// A transaction's bytes.
pub enum Body<'a> {
    /// The whole transaction.
    Whole(&'a [u8]),
    /// A UTXOWrapper.
    Wrapper(Vec<u8>),
    /// The whole transaction, uploaded: its bytes, and where they lie.
    Uploaded(Vec<u8>, Vec<BlobPtr>),
    /// Elsewhere.
    Outside(&'a ExternalStore),
}

/// A record to make.
pub struct Draft<'a> {
    /// What it says.
    pub parsed: Parsed,
    /// Bytes of the transaction, as it was given.
    pub size: u64,
    /// Its bytes.
    pub body: Body<'a>,
}

impl<'a> Draft<'a> {
    /// What a transaction in any of its forms says.
    ///
    /// # Errors
    /// `BadTransaction`, `BadArgument`, `TooLarge`, `NoUpload`.
    pub(super) fn new(
        store: &UtxoStore,
        blobs: &BlobStore,
        item: &'a UtxoCreate,
        call: &Call,
    ) -> Result<Self, UtxoRefusal> {
        match &item.source {
            TransactionSource::Raw(raw) => {
                Ok(Draft { parsed: parse(raw)?, size: raw.len() as u64, body: Body::Whole(raw) })
            }
            TransactionSource::Uploaded(txid) => {
                let named = hash_of("txid", txid)?;
                // Before the upload, which is no more where the answer of the same call was lost.
                store.check_absent(&named)?;
                let (raw, parts) = store.uploads.complete(blobs, &named, crate::platform::caller())?;
                let parsed = parse(&raw)?;
                if parsed.txid != named {
                    let why = "the uploaded bytes are another transaction's; abort the upload".into();
                    return Err(UtxoRefusal::BadTransaction { at: 0, why });
                }
                Ok(Draft { parsed, size: raw.len() as u64, body: Body::Uploaded(raw, parts) })
            }
            TransactionSource::Outputs(partial) => {
                let height = item.mined.as_ref().and_then(|mined| mined.blocks.first()).map(|block| block.height);
                outputs_only(partial, height.unwrap_or(call.height), call)
            }
            TransactionSource::Outside(outside) => outside_of(outside),
        }
    }
}

fn outputs_only<'a>(partial: &PartialTransaction, height: u32, call: &Call) -> Result<Draft<'a>, UtxoRefusal> {
    let txid = hash_of("txid", &partial.txid)?;
    check_outputs(partial.total_outputs as usize)?;
    footprint::check_least(partial.total_outputs as usize, 0, 0)?;
    let mut outputs = vec![None; partial.total_outputs as usize];
    let mut buffer = Vec::new();
    let mut next = 0;
    for output in &partial.outputs {
        if output.index < next || output.index >= partial.total_outputs {
            let why = format!("{} follows {next}, of {} outputs", output.index, partial.total_outputs);
            return Err(bad("outputs", why));
        }
        next = output.index + 1;
        if encoding::is_utxo(output.satoshis, &output.script) {
            let hash = encoding::utxo_hash(&txid, output.index, &output.script, output.satoshis, &mut buffer);
            outputs[output.index as usize] = Some(hash);
        }
    }
    // A UTXOWrapper has 31 bits for it.
    call.check_block(height)?;
    let known = partial.outputs.iter().map(|output| (output.index, output.satoshis, output.script.as_slice()));
    let wrapper = encoding::wrapper(&txid, (height, partial.coinbase), known);
    let (version, lock_time, inputs) = (0, 0, Vec::new());
    let coinbase = partial.coinbase;
    Ok(Draft {
        parsed: Parsed { txid, version, lock_time, coinbase, extended: false, inputs, outputs, fee: None },
        size: wrapper.len() as u64,
        body: Body::Wrapper(wrapper),
    })
}

fn outside_of(outside: &OutsideTransaction) -> Result<Draft<'_>, UtxoRefusal> {
    place::check_outside(&outside.store)?;
    check_outputs(outside.utxo_hashes.len())?;
    footprint::check_least(outside.utxo_hashes.len(), outside.inputs.len(), 0)?;
    let inputs: Result<_, UtxoRefusal> =
        outside.inputs.iter().map(|input| Ok((hash_of("txid", &input.txid)?, input.vout))).collect();
    let outputs: Result<_, UtxoRefusal> = outside
        .utxo_hashes
        .iter()
        .map(|hash| hash.as_ref().map(|hash| hash_of("utxo_hash", hash)).transpose())
        .collect();
    if outside.coinbase && !outside.inputs.is_empty() {
        return Err(bad("inputs", "a coinbase spends nothing"));
    }
    Ok(Draft {
        parsed: Parsed {
            txid: hash_of("txid", &outside.txid)?,
            version: outside.version,
            lock_time: outside.lock_time,
            coinbase: outside.coinbase,
            extended: false,
            inputs: inputs?,
            outputs: outputs?,
            fee: None,
        },
        size: outside.size,
        body: Body::Outside(&outside.store),
    })
}

/// Returns how many of these outputs are UTXOs. The sum never wraps, because there are at most [`MAX_OUTPUTS`]; a check would take a
/// tenth of the loop.
pub(super) fn utxos_among(outputs: &[Option<Hash>]) -> u32 {
    outputs.iter().fold(0, |utxos: u32, output| utxos.wrapping_add(u32::from(output.is_some())))
}

fn check_outputs(outputs: usize) -> Result<(), UtxoRefusal> {
    if outputs > MAX_OUTPUTS as usize {
        return Err(UtxoRefusal::TooLarge { what: "outputs".into(), limit: u64::from(MAX_OUTPUTS) });
    }
    Ok(())
}

/// Where a transaction's bytes are now.
pub(super) struct Stored<'a> {
    /// The last bytes of the record: the transaction, or where it lies.
    pub tail: Cow<'a, [u8]>,
    /// New blobs, to be given back should the record not be made.
    pub blobs: Vec<BlobPtr>,
}

/// # Errors
/// `BadArgument` where there is no block, or one occurs twice; `BadHeight`.
pub(super) fn check_mined(mined: &MinedIn, call: &Call) -> Result<(), UtxoRefusal> {
    let ids = || mined.blocks.iter().map(|block| block.block_id);
    if mined.blocks.is_empty() {
        return Err(bad("mined", "it names no block"));
    }
    let limit = HEAD_BLOCKS as usize + MAX_BLOCKS;
    if mined.blocks.len() > limit {
        return Err(UtxoRefusal::TooLarge { what: "blocks".into(), limit: limit as u64 });
    }
    mined.blocks.iter().try_for_each(|block| call.check_block(block.height))?;
    if (1..mined.blocks.len()).any(|i| ids().take(i).any(|id| id == mined.blocks[i].block_id)) {
        return Err(bad("mined", "a block occurs twice"));
    }
    Ok(())
}

impl<'a> Draft<'a> {
    /// The head of the record, of which the transaction's length is not known yet.
    pub(super) fn head(&self, item: &UtxoCreate, call: &Call) -> Head {
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
        let blocks = item.mined.as_ref().map_or(&[][..], |mined| &mined.blocks);
        // A coinbase of two branches matures on the later one too.
        let height = blocks.iter().map(|block| block.height).max().unwrap_or(call.height);
        let fee = parsed.fee.or(item.fee);
        let flags = [
            (parsed.coinbase, flag::COINBASE),
            (item.locked.unwrap_or(item.mined.is_none()), flag::LOCKED),
            (item.conflicting, flag::CONFLICTING),
            (parsed.extended, flag::EXTENDED),
            (fee.is_some(), flag::FEE),
            (matches!(self.body, Body::Outside(_)), flag::OUTSIDE | flag::EXTERNAL),
            (matches!(self.body, Body::Wrapper(_)), flag::PARTIAL),
        ];
        let none = BlockRef { block_id: 0, height: 0, subtree: 0 };
        let block = |i: usize| blocks.get(i).copied().unwrap_or(none);
        Head {
            flags: flags.iter().filter(|(set, _)| *set).fold(0, |flags, (_, flag)| flags | flag),
            batch,
            txid: parsed.txid,
            outputs: parsed.outputs.len() as u32,
            total_utxos,
            extra_pages,
            spent_extra,
            utxos: own,
            spent: 0,
            frozen: 0,
            frozen_extra: 0,
            spending_height: match parsed.coinbase {
                true => height.saturating_add(call.settings.coinbase_maturity),
                false => 0,
            },
            extras: 0,
            created_at: call.now_ns,
            fee: fee.unwrap_or(0),
            size: self.size,
            version: parsed.version,
            lock_time: parsed.lock_time,
            inputs: parsed.inputs.len() as u32,
            transaction_len: 0,
            blocks: blocks.len() as u32,
            head_blocks: [block(0), block(1)],
            links: Default::default(),
            note: 0,
        }
    }

    /// Stores the bytes in the BlobStore if they belong there. What was uploaded lies there already.
    ///
    /// # Errors
    /// `ExternalFull`, `OutOfSpace`, `LowCycles`; nothing has changed.
    pub(super) fn store(&self, blobs: &mut BlobStore, head: &mut Head, call: &Call) -> Result<Stored<'_>, UtxoRefusal> {
        let settings = call.settings;
        let limit = settings.max_external_bytes;
        let external = settings.externalize_all
            || head.extra_pages > 0
            || head.input_pages() > 0
            || self.size > u64::from(settings.max_tx_size_in_store);
        let mut new = Vec::new();
        let tail = match &self.body {
            Body::Outside(store) => Cow::Owned(place::encode_outside(store)),
            Body::Whole(bytes) if !external => Cow::Borrowed(*bytes),
            Body::Uploaded(bytes, _) if !external => Cow::Borrowed(bytes.as_slice()),
            Body::Uploaded(_, parts) => {
                let kept = blobs.kept_bytes(Owner::External).saturating_add(place::class_bytes(self.size));
                if kept > limit {
                    return Err(UtxoRefusal::ExternalFull { limit });
                }
                blobs.check_records(parts.iter().map(|part| part.class))?;
                head.flags |= flag::EXTERNAL;
                Cow::Owned(place::encode_parts(parts))
            }
            Body::Whole(bytes) => {
                new = place::store(blobs, bytes, limit)?;
                head.flags |= flag::EXTERNAL;
                Cow::Owned(place::encode_parts(&new))
            }
            Body::Wrapper(bytes) => {
                new = place::store(blobs, bytes, limit)?;
                head.flags |= flag::EXTERNAL;
                Cow::Owned(place::encode_parts(&new))
            }
        };
        head.transaction_len = tail.len() as u32;
        Ok(Stored { tail, blobs: new })
    }
}
