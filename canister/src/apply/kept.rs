//! One transaction of a kept block: for a record that is created from it, and for a record that names its place.

use super::window::{BodyError, Window, bad};
use crate::chain::{ChainStore, Segment};
use crate::storage::blob::BlobStore;
use crate::utxo::{Hash, MAX_TRANSACTION};
use coppice_interface::{ReadError, UtxoRefusal};
use coppice_storage::bytes::u64_at;

/// Returns the bytes of a transaction in the body of a kept block.
///
/// # Errors
/// `NotKept`; `BadTransaction` if the body is no block; `TooLarge`, `Corrupt`.
pub fn transaction(chain: &ChainStore, blobs: &BlobStore, number: u64, position: u32) -> Result<Vec<u8>, UtxoRefusal> {
    let refused = |error: BodyError| match error {
        BodyError::Bad { at, why } => UtxoRefusal::BadTransaction { offset: at, why: format!("block {number}: {why}") },
        BodyError::Corrupt(why) => UtxoRefusal::Corrupt { why },
    };
    let meta = chain.find(number).map_err(|error| match error {
        ReadError::Corrupt { why } => UtxoRefusal::Corrupt { why },
        _ => UtxoRefusal::NotKept,
    })?;
    if position >= meta.transactions {
        return Err(UtxoRefusal::NotKept);
    }
    let mut window = Window::new(meta);
    let start = window.offset_of((chain, blobs), position).map_err(refused)?;
    let end = window.end_of((chain, blobs), start).map_err(refused)?;
    if end - start > MAX_TRANSACTION {
        return Err(UtxoRefusal::TooLarge { what: "bytes of a transaction".into(), limit: MAX_TRANSACTION });
    }
    bytes_of(chain, blobs, number, (start, end - start)).ok_or(UtxoRefusal::NotKept)
}

/// Returns bytes of the body of a kept block: the first one, and their number; `None` if the block is not kept or has no such bytes.
pub fn bytes_of(chain: &ChainStore, blobs: &BlobStore, number: u64, (at, len): (u64, u64)) -> Option<Vec<u8>> {
    let meta = chain.find(number).ok()?;
    let body = u64::from(meta.lengths[Segment::Body.index()]);
    at.checked_add(len).filter(|end| *end <= body)?;
    chain.read_part(blobs, &meta, (Segment::Body, at, len)).ok().map(|bytes| bytes.into_vec())
}

/// Checks that no id occurs twice in a block; `at` is the first byte of its first transaction.
///
/// # Errors
/// `Bad`.
pub(super) fn check_distinct(ids: &[Hash], at: u64) -> Result<(), BodyError> {
    let mut sorted: Vec<(u64, u32)> = ids.iter().zip(0..).map(|(id, nth)| (u64_at(id, 0), nth)).collect();
    // Nearly always the first bytes differ.
    sorted.sort_unstable_by(|a, b| a.0.cmp(&b.0).then_with(|| ids[a.1 as usize].cmp(&ids[b.1 as usize])));
    for pair in sorted.windows(2) {
        let [first, second] = [pair[0].1, pair[1].1];
        if pair[0].0 == pair[1].0 && ids[first as usize] == ids[second as usize] {
            let (first, second) = (first.min(second), first.max(second));
            let why = format!("transactions {first} and {second} have the same id in the index segment");
            return Err(bad(at, why));
        }
    }
    Ok(())
}
