//! Damage that stays local: wrong and undecodable headers next to a rollback, lost blobs of the log, postings that outlive their block, and
//! the ring of the log's directory.

use super::*;
use crate::owners;
use crate::testing::{block, fresh, hash, id, reopen, with_keys};
use candid::Principal;
use coppice_model::blocks::{block_id, upload};
use ic_coppice_interface::*;
use ic_coppice_storage::blob::BlobStore;
use ic_coppice_storage::{GrowError, Meter, twin};
use serde_bytes::ByteBuf;

const CLASS: u32 = 64 << 10;
const KIB: usize = 1 << 10;

fn append(chain: &mut ChainStore, blobs: &mut BlobStore, block: &AppendBlock) -> Result<(), AppendError> {
    chain.append(blobs, block, &Admission::default(), 1_700_000_000)
}

/// A block with an id of its own and an id that every block has.
fn own(number: u64, body: usize) -> AppendBlock {
    block(number, &[id(number), id(u64::MAX)], body)
}

fn body(number: u64) -> usize {
    [100 * KIB, 10, 70 * KIB, 200 * KIB, 0, 30 * KIB][number as usize % 6]
}

/// Blocks `[0, count)`.
fn chain_of(count: u64) -> (ChainStore, BlobStore) {
    let (mut chain, mut blobs) = fresh(CLASS);
    for number in 0..count {
        append(&mut chain, &mut blobs, &own(number, body(number))).unwrap();
    }
    (chain, blobs)
}

fn is_whole(chain: &ChainStore, blobs: &BlobStore, expected: &AppendBlock) -> bool {
    chain.block(blobs, expected.number).is_ok_and(|found| {
        (&found.body, &found.receipts, &found.index) == (&expected.body, &expected.receipts, &expected.index)
            && found.header.hash == expected.hash
    })
}

/// The kept blobs are exactly those between the log's bounds, and nothing is in quarantine.
fn check_space(chain: &ChainStore, blobs: &BlobStore) {
    let state = chain.state();
    assert_eq!(blobs.arena().kept_bytes(owners::CHAIN), (state.log_end - state.log_first) * u64::from(CLASS));
    assert_eq!(blobs.arena().kept_bytes(owners::UPLOAD), 0);
    assert!(!blobs.has_quarantined());
}

/// Damage to a header.
#[derive(Clone, Copy, Debug)]
enum Harm {
    None,
    Undecodable,
    At(u64),
}

/// Kinds of damage to a header in a log that ends at `tail`.
fn harms(tail: u64) -> Vec<Harm> {
    let places = [0, u64::from(CLASS), tail / 2, tail, u64::MAX];
    [Harm::None, Harm::Undecodable].into_iter().chain(places.map(Harm::At)).collect()
}

fn harm(chain: &mut ChainStore, number: u64, harm: Harm) {
    match harm {
        Harm::None => {}
        Harm::Undecodable => chain.poison_header(number),
        Harm::At(offset) => chain.misplace_header(number, offset),
    }
}

/// However wrong the headers of the head and of the block before it are, a rollback releases no blob of a kept block. Space that cannot be
/// freed stays until it is pruned.
#[test]
fn rollback_next_to_wrong_headers_releases_no_blob_of_a_kept_block() {
    let tail = chain_of(12).0.state().log_tail;
    for of_head in harms(tail) {
        for of_before in harms(tail) {
            let (mut chain, mut blobs) = chain_of(12);
            chain.remove_oldest(&mut blobs).unwrap();
            harm(&mut chain, 11, of_head);
            harm(&mut chain, 10, of_before);
            let what = format!("head {of_head:?}, before it {of_before:?}");
            // A damaged block is not left as the head.
            let heads = if let Harm::None = of_before { 7..11 } else { 7..10 };
            for head in heads.rev() {
                chain.remove_head(&mut blobs).unwrap();
                assert_eq!(chain.state().head(), Some(head));
                for number in 1..=head.min(9) {
                    assert!(
                        is_whole(&chain, &blobs, &own(number, body(number))),
                        "{what}: block {number} after {head}"
                    );
                }
                check_space(&chain, &blobs);
            }
            (chain, blobs) = reopen(CLASS);
            for number in 8..20 {
                let new = own(number, body(number + 1));
                append(&mut chain, &mut blobs, &new).unwrap_or_else(|error| panic!("{what}: {number}: {error:?}"));
                assert!(is_whole(&chain, &blobs, &new), "{what}: {number}");
                assert_eq!(chain.location(&blobs, &id(u64::MAX)).unwrap().block_number, number);
            }
            (1..8).for_each(|number| assert!(is_whole(&chain, &blobs, &own(number, body(number))), "{what}"));
            while let Some(removed) = chain.remove_oldest(&mut blobs) {
                assert_eq!(removed.faults, Vec::<String>::new(), "{what}");
                check_space(&chain, &blobs);
            }
            chain.sweep(IndexTable::Ids, Meter::unlimited());
            assert_eq!(chain.index_stats().entries, 2, "{what}: the sweep drops what damage left");
            // Nothing is lost for good: only the head's own part of the log is kept.
            let head = chain.meta(19).unwrap();
            let kept = chain.log.blobs_end(head.log_end()) - chain.log.blob_of(head.log_offset);
            assert_eq!(blobs.arena().kept_bytes(owners::CHAIN), kept * u64::from(CLASS), "{what}");
            assert_eq!(blobs.arena().class_counters(chain.log_class()).lost, 0, "{what}");
        }
    }
}

/// However wrong the headers of two neighbours are, in the middle or at the head, pruning releases no blob of a kept block. Space that
/// cannot be freed with them is freed with a later block.
#[test]
fn pruning_next_to_wrong_headers_releases_no_blob_of_a_kept_block() {
    let tail = chain_of(12).0.state().log_tail;
    for first in [0, 4, 10] {
        for of_first in harms(tail) {
            for of_second in harms(tail) {
                let (mut chain, mut blobs) = chain_of(12);
                harm(&mut chain, first, of_first);
                harm(&mut chain, first + 1, of_second);
                let what = format!("block {first} {of_first:?}, the next {of_second:?}");
                while let Some(removed) = chain.remove_oldest(&mut blobs) {
                    let kept = (removed.number + 1..12).filter(|number| !(first..first + 2).contains(number));
                    for number in kept {
                        assert!(
                            is_whole(&chain, &blobs, &own(number, body(number))),
                            "{what}: block {number} after {}",
                            removed.number
                        );
                    }
                    check_space(&chain, &blobs);
                }
                // After more blocks are added and pruned, only the head's own part of the log is kept.
                let new = |number| own(number, body(number));
                for number in 12..18 {
                    append(&mut chain, &mut blobs, &new(number)).unwrap_or_else(|error| panic!("{what}: {error:?}"));
                    assert!(is_whole(&chain, &blobs, &new(number)), "{what}: {number}");
                }
                while chain.remove_oldest(&mut blobs).is_some() {
                    check_space(&chain, &blobs);
                }
                assert!(is_whole(&chain, &blobs, &new(17)), "{what}");
                let head = chain.meta(17).unwrap();
                let kept = chain.log.blobs_end(head.log_end()) - chain.log.blob_of(head.log_offset);
                assert_eq!(blobs.arena().kept_bytes(owners::CHAIN), kept * u64::from(CLASS), "{what}");
                assert_eq!(blobs.arena().class_counters(chain.log_class()).lost, 0, "{what}");
            }
        }
    }
}

/// Uploads and commits a block.
fn enter(chain: &mut ChainStore, blobs: &mut BlobStore, block: &AppendBlock) -> Result<(), AppendError> {
    let (begin, chunks) = upload(block, 1 << 20);
    chain.begin(blobs, &begin, Principal::anonymous(), &Admission::default(), 0)?;
    for (chunk, bytes) in (0..).zip(chunks) {
        chain.put_chunk(blobs, &PutBlockChunk { number: block.number, chunk, bytes: ByteBuf::from(bytes) }, 0).unwrap();
    }
    let done = chain.commit_upload(blobs, &block_id(block), &Admission::default(), 1_700_000_000);
    assert_eq!(done, Ok(Commit::Done));
    Ok(())
}

/// If the log's last blob is lost, through its own entry or the directory's, the log continues in a new blob. Blocks outside the lost blob
/// can be read, pruned and rolled back.
#[test]
fn log_with_a_lost_last_blob_continues_in_a_new_blob() {
    for (by_entry, uploaded) in [(false, false), (true, false), (false, true), (true, true)] {
        for rolled_back in [false, true] {
            let what = format!("entry {by_entry}, uploaded {uploaded}, rolled back {rolled_back}");
            let (mut chain, mut blobs) = chain_of(3);
            // The block ends in the middle of a blob that does not contain the block before.
            let lies_in = own(3, 150 * KIB);
            append(&mut chain, &mut blobs, &lies_in).unwrap();
            let last = chain.state().log_end - 1;
            assert!(
                chain.log.blob_of(chain.meta(2).unwrap().log_end()) < last
                    && chain.state().log_tail % u64::from(CLASS) > 0
            );
            if by_entry {
                blobs.poison(&chain.log.ptr(last).unwrap());
            } else {
                chain.poison_log(last);
            }
            let new = own(4, 90 * KIB);
            let enter = |chain: &mut ChainStore, blobs: &mut BlobStore, block: &AppendBlock| {
                if uploaded { enter(chain, blobs, block) } else { append(chain, blobs, block) }
            };
            enter(&mut chain, &mut blobs, &new).unwrap();
            (chain, blobs) = reopen(CLASS);
            let meta = chain.meta(4).unwrap();
            assert_eq!(meta.log_offset, chain.log.start_of(last + 1), "{what}: after the lost blob");
            assert!(is_whole(&chain, &blobs, &new), "{what}");
            assert!(matches!(chain.block(&blobs, 3), Err(ReadError::Corrupt { .. })), "{what}");
            assert_eq!(chain.location(&blobs, &id(u64::MAX)).unwrap().block_number, 4);
            (0..3).for_each(|number| assert!(is_whole(&chain, &blobs, &own(number, body(number))), "{what}"));
            if rolled_back {
                let out = chain.remove_head(&mut blobs).unwrap();
                assert_eq!((out.number, out.faults), (4, vec![]), "{what}");
                assert_eq!(chain.state().log_tail, chain.meta(3).unwrap().log_end(), "{what}");
                enter(&mut chain, &mut blobs, &new).unwrap();
                assert_eq!(chain.meta(4).unwrap().log_offset, meta.log_offset, "{what}: after it again");
                assert!(is_whole(&chain, &blobs, &new), "{what}");
                // Also remove the damaged block: its blobs before the lost one can be released.
                assert_eq!(chain.remove_head(&mut blobs).unwrap().faults, Vec::<String>::new());
                let out = chain.remove_head(&mut blobs).unwrap();
                assert_eq!(out.number, 3, "{what}: {:?}", out.faults);
                assert!(!out.faults.is_empty(), "{what}");
                assert_eq!(chain.state().log_tail, chain.meta(2).unwrap().log_end(), "{what}");
                assert_eq!(blobs.arena().class_counters(chain.log_class()).lost, 1, "{what}");
                enter(&mut chain, &mut blobs, &lies_in).unwrap();
                assert!(is_whole(&chain, &blobs, &lies_in), "{what}");
                enter(&mut chain, &mut blobs, &new).unwrap();
                assert!(is_whole(&chain, &blobs, &new), "{what}");
            }
            enter(&mut chain, &mut blobs, &own(5, 10)).unwrap();
            let mut faults = Vec::new();
            while let Some(removed) = chain.remove_oldest(&mut blobs) {
                faults.extend(removed.faults);
            }
            assert_eq!(faults.len(), usize::from(!rolled_back), "{what}: {faults:?}");
            assert_eq!(blobs.arena().class_counters(chain.log_class()).lost, 1, "{what}");
            check_space(&chain, &blobs);
            assert!(is_whole(&chain, &blobs, &own(5, 10)), "{what}");
        }
    }
}

/// If the last blob is lost while an upload is written into it, the commit reports damage, and the upload can be aborted.
#[test]
fn upload_into_a_lost_blob_can_be_aborted() {
    let (mut chain, mut blobs) = chain_of(4);
    let new = own(4, 90 * KIB);
    let (begin, mut chunks) = upload(&new, 1 << 20);
    chain.begin(&mut blobs, &begin, Principal::anonymous(), &Admission::default(), 0).unwrap();
    let (tail, last) = (chain.state().log_tail, chain.state().log_end - 1);
    assert!(tail % u64::from(CLASS) > 0);
    blobs.poison(&chain.log.ptr(last).unwrap());
    let put = PutBlockChunk { number: 4, chunk: 0, bytes: ByteBuf::from(chunks.remove(0)) };
    assert!(matches!(chain.put_chunk(&mut blobs, &put, 0), Err(UploadError::Corrupt { .. })));
    assert_eq!(chain.abort_upload(&mut blobs, 4), Ok(true));
    check_space(&chain, &blobs);
    enter(&mut chain, &mut blobs, &new).unwrap();
    assert!(is_whole(&chain, &blobs, &new));
    // The same with a blob that belongs to the upload.
    let new = own(5, 200 * KIB);
    let (begin, mut chunks) = upload(&new, 1 << 20);
    chain.begin(&mut blobs, &begin, Principal::anonymous(), &Admission::default(), 0).unwrap();
    blobs.poison(&chain.log.ptr(chain.state().log_end + 1).unwrap());
    let put = PutBlockChunk { number: 5, chunk: 0, bytes: ByteBuf::from(chunks.remove(0)) };
    assert!(matches!(chain.put_chunk(&mut blobs, &put, 0), Err(UploadError::Corrupt { .. })));
    assert_eq!(chain.abort_upload(&mut blobs, 5), Ok(true));
    assert_eq!(
        blobs.arena().class_counters(chain.log_class()).lost,
        1,
        "the upload's own; the other is still in the log"
    );
    check_space(&chain, &blobs);
    enter(&mut chain, &mut blobs, &new).unwrap();
    assert!(is_whole(&chain, &blobs, &new));
}

/// A rolled-back block that could not be read leaves its postings. No look-up finds them, neither before nor after another block has its
/// number, and a later sweep drops them.
#[test]
fn postings_left_by_damage_are_dropped_by_the_sweep() {
    let (mut chain, mut blobs) = fresh(CLASS);
    for number in 0..4 {
        append(&mut chain, &mut blobs, &own(number, 10)).unwrap();
    }
    let lost: Vec<_> = (100..150).map(id).collect();
    append(&mut chain, &mut blobs, &block(4, &lost, 10)).unwrap();
    chain.poison_header(4);
    assert_eq!(chain.remove_head(&mut blobs).unwrap().faults.len(), 1);
    let gone = |chain: &ChainStore, blobs: &BlobStore| {
        lost.iter().all(|id| chain.location(blobs, id) == Err(ReadError::NotFound))
    };
    assert!(gone(&chain, &blobs));
    for number in 4..9 {
        append(&mut chain, &mut blobs, &own(number, 10)).unwrap();
        assert!(gone(&chain, &blobs), "{number}");
    }
    assert_eq!(chain.index_stats().entries, 1 + 9 + 50);
    // A sweep keeps them while a block with their number is kept, and drops them afterwards.
    chain.remove_oldest(&mut blobs).unwrap();
    chain.sweep(IndexTable::Ids, Meter::unlimited());
    assert_eq!(chain.index_stats().entries, 1 + 8 + 50);
    (0..4).for_each(|_| drop(chain.remove_oldest(&mut blobs).unwrap()));
    assert_eq!(chain.sweep(IndexTable::Ids, Meter::unlimited()).dropped, 4 + 50);
    assert_eq!((chain.index_stats().entries, chain.debt(IndexTable::Ids).debt), (1 + 4, 0));
    assert!(gone(&chain, &blobs));
}

/// The directory of the log's blobs is a ring: the log still works after the blob numbers have gone round the ring.
#[test]
fn the_ring_of_the_directory_wraps() {
    let (mut chain, mut blobs) = fresh(CLASS);
    let ring = ic_coppice_storage::blob::MAX_GRANULES / (u64::from(CLASS) / ic_coppice_storage::blob::GRANULE);
    let first = 3 * ring - 5;
    (chain.state.log_first, chain.state.log_end) = (first, first);
    chain.state.log_tail = chain.log.start_of(first);
    chain.save();
    for number in 0..8 {
        append(&mut chain, &mut blobs, &own(number, 100 * KIB)).unwrap();
    }
    assert!(chain.state().log_end > 3 * ring + 5);
    enter(&mut chain, &mut blobs, &own(8, 300 * KIB)).unwrap();
    (chain, blobs) = reopen(CLASS);
    (0..8).for_each(|number| assert!(is_whole(&chain, &blobs, &own(number, 100 * KIB)), "{number}"));
    assert!(is_whole(&chain, &blobs, &own(8, 300 * KIB)));
    for head in (4..8).rev() {
        assert_eq!(chain.remove_head(&mut blobs).unwrap().faults, Vec::<String>::new());
        assert_eq!(chain.state().head(), Some(head));
        check_space(&chain, &blobs);
    }
    append(&mut chain, &mut blobs, &own(5, 400 * KIB)).unwrap();
    while let Some(removed) = chain.remove_oldest(&mut blobs) {
        assert_eq!(removed.faults, Vec::<String>::new());
        check_space(&chain, &blobs);
    }
    assert!(is_whole(&chain, &blobs, &own(5, 400 * KIB)));
    // Exactly as many blobs as the ring has.
    let state = *chain.state();
    assert_eq!(chain.log.reserve(&blobs, owners::CHAIN, state.log_first, state.log_end..state.log_end), Ok(()));
    let refused = chain.log.reserve(&blobs, owners::CHAIN, state.log_end - ring, state.log_end..state.log_end + 1);
    assert_eq!(refused, Err(GrowError::OutOfSpace));
}

fn skip_oldest(chain: &mut ChainStore, blobs: &mut BlobStore) -> Option<Removed> {
    let removal = chain.removals(u64::MAX).next(chain)?;
    Some(chain.skip(blobs, removal))
}

/// Skipping a block whose removal traps frees the range that the next block's header gives, unless that is damaged.
#[test]
fn skipped_block_loses_only_its_own_blobs() {
    let lost = |chain: &ChainStore, blobs: &BlobStore| blobs.arena().class_counters(chain.log_class()).lost;
    for wrong in [false, true] {
        let (mut chain, mut blobs) = chain_of(12);
        if wrong {
            chain.misplace_header(1, chain.state().log_tail);
        }
        skip_oldest(&mut chain, &mut blobs).unwrap();
        assert_eq!(chain.state().oldest, 1);
        assert_eq!(lost(&chain, &blobs), if wrong { 0 } else { 1 });
        check_space(&chain, &blobs);
        (2..12).for_each(|number| assert!(is_whole(&chain, &blobs, &own(number, body(number))), "{wrong}: {number}"));
        assert_eq!(chain.debt(IndexTable::Ids).debt, 2);
        while let Some(removed) = chain.remove_oldest(&mut blobs) {
            assert_eq!(removed.faults.is_empty(), !wrong || removed.number != 1, "{:?}", removed.faults);
            check_space(&chain, &blobs);
        }
        // The link of the damaged block stays counted.
        let link = if wrong { 12 } else { 0 };
        assert_eq!(chain.payload_bytes() + link, chain.meta(11).unwrap().payload_len());
        chain.sweep(IndexTable::Ids, Meter::unlimited());
        assert_eq!((chain.index_stats().entries, chain.debt(IndexTable::Ids).debt), (2, 0));
    }
    let (mut chain, mut blobs) = chain_of(1);
    assert_eq!(skip_oldest(&mut chain, &mut blobs), None, "the head is never removed");
    // If the block is the last of a page of headers, that page is lost, and a new one is created.
    let (mut chain, mut blobs) = fresh(CLASS);
    for number in 0..300 {
        append(&mut chain, &mut blobs, &own(number, 10)).unwrap();
    }
    (0..255).for_each(|_| drop(chain.remove_oldest(&mut blobs).unwrap()));
    skip_oldest(&mut chain, &mut blobs).unwrap();
    for number in 300..1_000 {
        append(&mut chain, &mut blobs, &own(number, 10)).unwrap();
        assert_eq!(chain.remove_oldest(&mut blobs).unwrap().faults, Vec::<String>::new());
    }
    assert_eq!(chain.hash(999).map(Hash::to_bytes), Some(hash(999, 0).into()));
    twin::with(|world| world.log.clear());
}

/// A damaged sum of references is not used, so kept blocks stay counted.
#[test]
fn rollback_ignores_a_damaged_sum_of_references() {
    for (damaged, sum) in [(5, 0), (5, u64::MAX), (4, 0), (4, u64::MAX), (3, 0)] {
        let (mut chain, mut blobs) = chain_of(6);
        (0..2).for_each(|_| drop(chain.remove_oldest(&mut blobs).unwrap()));
        chain.headers.poison(damaged, 224, &u64::to_le_bytes(sum));
        chain.remove_head(&mut blobs).unwrap();
        // A damaged block is not left as the head.
        let kept = if damaged == 4 { 2 } else { 3 };
        assert_eq!(chain.state().kept_references(), kept * 2, "block {damaged} says {sum}");
    }
}

/// If the links of a block's keys cannot be read, its ids are removed all the same, in whatever slice they are.
#[test]
fn rollback_with_damaged_key_links_still_removes_the_ids() {
    for slice in [1, 2, 3, 100] {
        let (mut chain, mut blobs) = fresh(CLASS);
        append(&mut chain, &mut blobs, &block(0, &[id(1)], 10)).unwrap();
        let with_body = |body| with_keys(block(1, &[id(2), id(3), id(4)], body), &[(0, b"a"), (1, b"b"), (2, b"c")]);
        let beside = with_body(0);
        let beside = beside.receipts.len() + beside.index.len();
        // The payload ends at the end of a blob, so that the links have a blob of their own.
        let body = 2 * CLASS as usize - chain.state().log_tail as usize - beside;
        append(&mut chain, &mut blobs, &with_body(body)).unwrap();
        let links = chain.log.blob_of(chain.meta(1).unwrap().payload_end());
        chain.poison_log(links);
        chain.small_slices = Some(slice);
        chain.begin_rollback(0);
        let mut faults = Vec::new();
        while chain.rollback_left().is_some() {
            faults.extend(chain.continue_rollback(&mut blobs, slice, Meter::unlimited()).faults);
        }
        assert!(faults.iter().any(|fault| fault.contains("links of its keys")), "{faults:?}");
        assert_eq!((chain.index_stats().entries, chain.key_stats().entries), (1, 3), "slices of {slice}");
        assert!(chain.location(&blobs, &id(1)).is_ok());
    }
}

/// A rollback that cannot finish is dropped with the chain, if the reset gives it up.
#[test]
fn reset_may_drop_a_rollback_that_cannot_finish() {
    for begun in [false, true] {
        let (mut chain, mut blobs) = chain_of(6);
        chain.begin_rollback(2);
        chain.small_slices = Some(1);
        if begun {
            assert!(chain.continue_rollback(&mut blobs, 1, Meter::unlimited()).began);
        }
        let head = chain.hash(chain.state().head().unwrap()).unwrap();
        assert_eq!(chain.check_reset(head.as_slice(), false, 120), Err(ResetError::RollbackUnderway { to: 2 }));
        assert_eq!(chain.check_reset(head.as_slice(), true, 120), Ok(()));
        chain.reset();
        while chain.to_clear() > 0 {
            assert_eq!(chain.clear(&mut blobs), Vec::<String>::new());
        }
        (chain, blobs) = reopen(CLASS);
        assert_eq!(blobs.arena().kept_bytes(owners::CHAIN), 0);
        append(&mut chain, &mut blobs, &own(4, 100)).unwrap();
        assert_eq!(chain.location(&blobs, &id(4)).unwrap().block_number, 4);
        assert_eq!(chain.location(&blobs, &id(5)), Err(ReadError::NotFound));
        check_space(&chain, &blobs);
    }
}

/// A page ends before a damaged header, which the next call reports; the blocks after it can be read.
#[test]
fn reply_with_headers_ends_before_a_damaged_one() {
    let (chain, _) = chain_of(8);
    chain.poison_header(5);
    let page = |from: u64, to: u64| {
        let page = chain.headers(from, to);
        page.map(|page| (page.headers.iter().map(|header| header.number).collect::<Vec<_>>(), page.next))
    };
    assert_eq!(page(2, 7), Ok((vec![2, 3, 4], Some(5))));
    assert_eq!(page(2, 4), Ok((vec![2, 3, 4], None)));
    assert!(matches!(page(5, 7), Err(ReadError::Corrupt { why }) if why.contains("block 5")));
    assert_eq!(page(6, u64::MAX), Ok((vec![6, 7], None)));
}
