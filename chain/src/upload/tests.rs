//! Chunks that come again or in another order, and expiry.

use crate::testing::{block, fresh, id};
use crate::{Admission, ChainStore};
use candid::Principal;
use coppice_model::blocks::{block_id, upload};
use ic_coppice_interface::{Commit, PutBlockChunk, UploadError, UploadProgress};
use ic_coppice_storage::blob::BlobStore;
use serde_bytes::ByteBuf;

const KIB: usize = 1 << 10;

/// Begins an upload of block 0 in chunks of 32 KiB at time 100, and returns its chunks. The last one is shorter.
fn begun() -> (ChainStore, BlobStore, Vec<Vec<u8>>) {
    let (mut chain, mut blobs) = fresh(64 << 10);
    let (begin, chunks) = upload(&block(0, &[id(1)], 100 * KIB), 32 << 10);
    chain.begin(&mut blobs, &begin, Principal::anonymous(), &Admission::default(), 100).unwrap();
    (chain, blobs, chunks)
}

fn put(chunk: u32, bytes: &[u8]) -> PutBlockChunk {
    PutBlockChunk { number: 0, chunk, bytes: ByteBuf::from(bytes) }
}

#[test]
fn chunk_that_comes_again_changes_nothing_and_is_refused_with_other_bytes() {
    let (mut chain, mut blobs, chunks) = begun();
    let count = chunks.len() as u32;
    assert_eq!(count, 4);
    // From the last one on, each twice: bits of one byte of the bitmap are set one by one.
    for (chunk, bytes) in (0..count).zip(&chunks).rev() {
        for _ in 0..2 {
            let progress = chain.put_chunk(&mut blobs, &put(chunk, bytes), 100);
            assert_eq!(progress, Ok(UploadProgress { chunks: count, missing: chunk }), "chunk {chunk}");
        }
        let mut other = bytes.clone();
        other[0] ^= 1;
        assert_eq!(chain.put_chunk(&mut blobs, &put(chunk, &other), 100), Err(UploadError::ChunkMismatch));
    }
    let out = chain.put_chunk(&mut blobs, &put(count, &chunks[0]), 100);
    assert_eq!(out, Err(UploadError::ChunkOutOfRange { chunks: count }));
    let short = chain.put_chunk(&mut blobs, &put(1, &chunks[1][1..]), 100);
    assert_eq!(short, Err(UploadError::WrongLength { expected: 32 << 10 }));
    let whole = block(0, &[id(1)], 100 * KIB);
    let done = chain.commit_upload(&mut blobs, &block_id(&whole), &Admission::default(), 1_700_000_000);
    assert_eq!(done, Ok(Commit::Done));
    assert_eq!(chain.block(&blobs, 0).unwrap().body, whole.body);
}

#[test]
fn upload_expires_a_while_after_its_last_call() {
    let (mut chain, mut blobs, chunks) = begun();
    assert_eq!(chain.expire_upload(&mut blobs, 109, 10), None);
    chain.put_chunk(&mut blobs, &put(2, &chunks[2]), 105).unwrap();
    assert_eq!(chain.expire_upload(&mut blobs, 114, 10), None, "the chunk counts");
    assert_eq!(chain.expire_upload(&mut blobs, 115, 10), Some(0));
    assert_eq!(chain.expire_upload(&mut blobs, u64::MAX, 0), None, "there is none any more");
    assert_eq!(chain.put_chunk(&mut blobs, &put(0, &chunks[0]), 115), Err(UploadError::NoUpload));
}
