//! Reads of one transaction of a kept block, for a record that is created from it, and for a record that names its place.

use super::window::{BodyError, WalkLimits, Window};
use crate::utxo::{self, BytesOf, Hash};
use ic_coppice_interface::blocks::Blocks;
use ic_coppice_interface::segments::Segment;
use ic_coppice_interface::{ReadError, UtxoRefusal};
use ic_coppice_storage::blob::BlobStore;
use ic_coppice_storage::{Ic, Platform as _};
use std::ops::Range;

/// Instructions after which the search for a transaction gives up. Skipping through the lengths of a body of 256 MiB takes at most 9 billion.
const INSTRUCTIONS: u64 = 10_000_000_000;

/// Returns the bytes of a transaction in the body of a kept block.
///
/// # Errors
/// `NotKept`; `BadTransaction` if the body is not a block; `TooLarge`, `TooMuchWork`, `Corrupt`.
pub fn transaction(blocks: &dyn Blocks, blobs: &BlobStore, number: u64, position: u32) -> Result<Vec<u8>, UtxoRefusal> {
    let refused = |error: BodyError| match error {
        BodyError::Bad { at, why } => UtxoRefusal::BadTransaction { offset: at, why: format!("block {number}: {why}") },
        BodyError::Corrupt(why) => UtxoRefusal::Corrupt { why },
        BodyError::Long => UtxoRefusal::TooMuchWork,
    };
    let block = blocks.kept(number).map_err(|error| match error {
        ReadError::Corrupt { why } => UtxoRefusal::Corrupt { why },
        _ => UtxoRefusal::NotKept,
    })?;
    if position >= block.transactions {
        return Err(UtxoRefusal::NotKept);
    }
    let (source, mut window) = ((blocks, blobs), Window::new(block));
    let limits = WalkLimits::until(Ic::instructions().saturating_add(INSTRUCTIONS));
    let first = window.begin(source).map_err(refused)?;
    let start = (0..position).try_fold(first, |at, _| window.end_of(source, at, limits)).map_err(refused)?;
    let end = window.end_of(source, start, WalkLimits::RECORD).map_err(|error| match error {
        BodyError::Long => utxo::too_long(),
        error => refused(error),
    })?;
    bytes_of(blocks, blobs, number, (start, end - start)).ok_or(UtxoRefusal::NotKept)
}

/// Returns ids of transactions of a kept block; none if they cannot be read.
pub fn ids(blocks: &dyn Blocks, blobs: &BlobStore, number: u64, transactions: Range<u32>) -> Vec<Hash> {
    let window = blocks.kept(number).ok().map(Window::new);
    window.and_then(|window| window.ids((blocks, blobs), transactions).ok()).unwrap_or_default()
}

/// Returns bytes of the body of a kept block: the first one, and their number; `None` if the block is not kept or has no such bytes.
pub fn bytes_of(blocks: &dyn Blocks, blobs: &BlobStore, number: u64, (at, len): (u64, u64)) -> Option<Vec<u8>> {
    let block = blocks.kept(number).ok()?;
    at.checked_add(len).filter(|end| *end <= block.body)?;
    blocks.bytes(blobs, number, (Segment::Body, at, len)).ok()
}

/// Returns the reader of bytes of kept blocks.
pub fn in_blocks(blocks: &dyn Blocks) -> impl BytesOf {
    |blobs: &BlobStore, number, part| bytes_of(blocks, blobs, number, part)
}
