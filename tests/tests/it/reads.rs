//! Queries: their answers, and each of their errors.

use coppice_tests::blocks::{self, hash, plain, plain_id};
use coppice_tests::client::Answered;
use coppice_tests::coppice::{Coppice, LOG_CLASS};
use ic_coppice_interface::*;
use serde_bytes::ByteBuf;

fn chain() -> Coppice {
    let coppice = Coppice::new();
    coppice.append_plain(100..110, 40_000);
    coppice
}

fn pruned() -> Coppice {
    let coppice = chain();
    coppice.set_policy(PrunePolicyArg { retain_blocks: Some(4), ..PrunePolicyArg::default() }).unwrap();
    assert_eq!(coppice.prune_now(10_000).blocks, 5);
    coppice
}

#[test]
fn an_empty_chain_has_no_head_and_no_blocks() {
    let coppice = Coppice::new();
    assert_eq!(coppice.head(), None);
    assert_eq!(coppice.block(0), Err(ReadError::NotFound));
    assert_eq!(coppice.location([0; 32]), Err(ReadError::NotFound));
    assert_eq!(coppice.prune_status().oldest_kept_block, None);
    assert!(coppice.anyone().health().answer().healthy);
}

#[test]
fn a_block_reads_back_as_it_was_appended() {
    let coppice = chain();
    let appended = plain(105, 3, 40_000);
    let block = coppice.block(105).unwrap();
    assert_eq!((block.body, block.receipts, block.index), (appended.body, appended.receipts, appended.index));
    assert_eq!(block.header.hash, BlockHash::from(hash(105)));
    assert_eq!(block.header.parent_hash, Some(hash(104).into()));
    assert_eq!((block.header.timestamp_secs, block.header.transactions, block.header.keys), (1_600_000_105, 3, 0));
    assert_eq!(block.header.sha256, appended.sha256);
    let receipts = blocks::receipts(105, 3).len() as u64;
    assert_eq!(block.header.lengths, [40_000, receipts, 104].into());
    let header: Result<BlockHeader, ReadError> =
        coppice.anyone().get_block_headers(105u64, 105u64).answer().map(|mut page| page.headers.remove(0));
    assert_eq!(header, Ok(block.header));
    assert_eq!(coppice.head(), Some(109));
}

#[test]
fn segments_are_read_in_parts() {
    let coppice = chain();
    let body = plain(103, 3, 40_000).body;
    let read =
        |segment: u8, offset: u64, length: u64| coppice.anyone().read_segment(103u64, segment, offset, length).answer();
    let part = read(0, 30_000, 20_000).unwrap();
    assert_eq!((part.bytes.as_slice(), part.total), (&body[30_000..], 40_000));
    assert_eq!(read(0, 40_000, 1).unwrap().bytes.len(), 0);
    assert_eq!(read(0, 40_001, 1), Err(ReadError::OutOfRange { length: 40_000 }));
    assert_eq!(read(0, u64::MAX, u64::MAX), Err(ReadError::OutOfRange { length: 40_000 }));
    assert_eq!(read(3, 0, 1), Err(ReadError::NoSuchSegment));
    assert_eq!(read(2, 0, u64::MAX).unwrap().bytes, plain(103, 3, 40_000).index);
}

#[test]
fn a_block_larger_than_a_reply_is_read_by_segments() {
    let coppice = Coppice::new();
    let large = plain(0, 2, 5_000_000);
    coppice.upload(&large, 1 << 20).unwrap();
    let limit = (2 << 20) - (64 << 10);
    let size = [&large.body, &large.receipts, &large.index].map(|bytes| bytes.len() as u64).iter().sum();
    assert_eq!(coppice.block(0), Err(ReadError::TooLarge { size, limit }));
    let mut body = Vec::new();
    loop {
        let part = coppice.anyone().read_segment(0, 0, body.len() as u64, u64::MAX).answer();
        let part = part.unwrap();
        body.extend(part.bytes.as_slice());
        if body.len() as u64 == part.total {
            break;
        }
        assert_eq!(part.bytes.len() as u64, limit);
    }
    assert_eq!(ByteBuf::from(body), large.body);
}

#[test]
fn transactions_and_receipts_are_found_by_id() {
    let coppice = chain();
    for position in 0..3u64 {
        let id = plain_id(107, position);
        assert_eq!(coppice.location(id), Ok((107, position as u32)));
        let receipt: Result<Receipt, ReadError> = coppice.anyone().get_receipt(&ByteBuf::from(id)).answer();
        let receipt = receipt.unwrap();
        assert_eq!(receipt.bytes, blocks::receipt(107, position as usize));
        assert_eq!((receipt.location.block_number, receipt.location.position), (107, position as u32));
        assert_eq!(receipt.location.block_hash, BlockHash::from(hash(107)));
    }
    let receipt = |id: &[u8]| coppice.anyone().get_receipt(&ByteBuf::from(id)).answer();
    assert_eq!(receipt(&plain_id(107, 3)), Err(ReadError::NotFound));
    assert_eq!(receipt(b"no id"), Err(ReadError::NotFound));
}

#[test]
fn a_block_without_receipts_has_none() {
    let coppice = Coppice::new();
    let mut block = plain(0, 2, 10);
    block.receipts = ByteBuf::new();
    blocks::seal(&mut block);
    coppice.append(&block).unwrap();
    let id = ByteBuf::from(plain_id(0, 1));
    assert_eq!(coppice.anyone().get_receipt(&id).answer(), Err(ReadError::NotFound));
    assert_eq!(coppice.location(plain_id(0, 1)), Ok((0, 1)));
}

#[test]
fn reads_distinguish_pruned_blocks_from_unknown_ones() {
    let coppice = pruned();
    let gone = ReadError::Pruned { first_available: 105 };
    assert_eq!(coppice.block(104), Err(gone.clone()));
    assert_eq!(
        coppice.anyone().get_block_headers(100u64, 100u64).answer().map(|mut page| page.headers.remove(0)),
        Err(gone.clone())
    );
    assert_eq!(coppice.anyone().get_storage_status(Some(100u64)).answer().block, None);
    let segment: Result<SegmentPart, ReadError> = coppice.anyone().read_segment(101u64, 0u8, 0u64, 1u64).answer();
    assert_eq!(segment, Err(gone));
    assert_eq!(coppice.block(99), Err(ReadError::NotFound), "before the first block");
    assert_eq!(coppice.block(110), Err(ReadError::NotFound), "above the head");
    assert_eq!(coppice.location(plain_id(104, 0)), Err(ReadError::NotFound));
    assert_eq!(coppice.location(plain_id(105, 0)), Ok((105, 0)));
}

#[test]
fn a_header_range_includes_both_ends_and_stops_at_the_head() {
    let coppice = pruned();
    let page = |from: u64, to: u64| coppice.anyone().get_block_headers(from, to).answer();
    let one = |number: u64| {
        coppice.anyone().get_block_headers(number, number).answer().map(|mut page| page.headers.remove(0)).unwrap()
    };
    let all =
        |numbers: std::ops::RangeInclusive<u64>| Ok(HeaderPage { headers: numbers.map(one).collect(), next: None });
    assert_eq!(page(105, 109), all(105..=109));
    assert_eq!(page(107, 107), all(107..=107));
    assert_eq!(page(106, 108), all(106..=108));
    assert_eq!((page(108, 110), page(108, u64::MAX)), (all(108..=109), all(108..=109)), "no block is above the head");
    let none = Ok(HeaderPage { headers: Vec::new(), next: None });
    assert_eq!((page(107, 106), page(u64::MAX, 0)), (none.clone(), none.clone()), "from is above to");
    assert_eq!(page(104, 109), Err(ReadError::Pruned { first_available: 105 }));
    assert_eq!(page(99, 109), Err(ReadError::NotFound), "before the first block");
    assert_eq!(page(110, u64::MAX), Err(ReadError::NotFound), "above the head");
    assert_eq!(page(u64::MAX, u64::MAX), Err(ReadError::NotFound));
    assert_eq!(
        coppice.operator().replicated().get_block_headers(105, 109).answer(),
        all(105..=109),
        "as an update call"
    );
    let empty = Coppice::new();
    assert_eq!(empty.anyone().get_block_headers(0, u64::MAX).answer(), Err(ReadError::NotFound));
    assert_eq!(empty.anyone().get_block_headers(1, 0).answer(), none);
}

#[test]
fn a_page_of_headers_has_at_most_1000_and_less_than_a_mebibyte() {
    let coppice = Coppice::new();
    coppice.append_plain(0..1_002, 1);
    let page = |from: u64, to: u64| coppice.anyone().get_block_headers(from, to).answer().unwrap();
    let (first, second) = (page(0, u64::MAX), page(1_000, u64::MAX));
    assert_eq!((first.headers.len(), first.next), (1_000, Some(1_000)));
    assert_eq!((second.headers.len(), second.next), (2, None));
    assert!(first.headers.iter().chain(&second.headers).map(|header| header.number).eq(0..1_002));
    assert_eq!((page(0, 999).headers.len(), page(0, 999).next), (1_000, None), "all that was asked for");
    assert_eq!((page(0, 1_000).headers.len(), page(0, 1_000).next), (1_000, Some(1_000)));
    // The longest header there can be: all its numbers have a fixed size, a hash has at most 32 bytes.
    let header = &first.headers[500];
    assert_eq!((header.hash.len(), header.parent_hash.as_ref().map_or(0, |parent| parent.len())), (32, 32));
    assert!(candid::encode_one(Ok::<_, ReadError>(first)).unwrap().len() < 1 << 20);
}

#[test]
fn storage_says_which_blobs_a_block_touches() {
    let coppice = pruned();
    let mut end = None;
    for number in 105..110u64 {
        let storage = coppice.anyone().get_storage_status(Some(number)).answer().block.unwrap();
        let len: u64 = storage.lengths.sum();
        assert!(end.is_none_or(|end| end == storage.log_offset), "blocks lie one after the other");
        let class = u64::from(LOG_CLASS);
        let blobs = (storage.log_offset + len).div_ceil(class) - storage.log_offset / class;
        assert_eq!(storage.blobs.len() as u64, blobs);
        assert!(storage.blobs.iter().all(|ptr| ptr.class == LOG_CLASS && ptr.generation == 1));
        end = Some(storage.log_offset + len);
    }
}
