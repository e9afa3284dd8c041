//! Uploads: any order, any repetition, any interruption.

use coppice_tests::blocks::{block_id, plain, plain_id, upload};
use coppice_tests::client::Answered;
use coppice_tests::coppice::{Coppice, LOG_CLASS, blob_bytes};
use ic_coppice_interface::*;
use serde_bytes::ByteBuf;

fn begin(coppice: &Coppice, block: &AppendBlock, chunk_size: usize) -> Result<UploadProgress, AppendError> {
    coppice.producer().begin_block(&upload(block, chunk_size).0).answer()
}

fn commit(coppice: &Coppice, block: &AppendBlock) -> Result<Commit, UploadError> {
    coppice.producer().commit_block(&block_id(block)).answer()
}

fn abort(coppice: &Coppice, number: u64) -> Result<bool, UploadError> {
    coppice.producer().abort_block(number).answer()
}

#[test]
fn upgrades_between_all_messages_do_not_change_an_upload() {
    let coppice = Coppice::new();
    coppice.append(&plain(0, 2, 1_000)).unwrap();
    let block = plain(1, 5, 300_000);
    let (_, chunks) = upload(&block, 60_000);
    begin(&coppice, &block, 60_000).unwrap();
    coppice.upgrade();
    // Odd chunks first, then even ones, each sent twice.
    let (even, odd): (Vec<_>, Vec<_>) = chunks.iter().enumerate().partition(|(i, _)| i % 2 == 0);
    for (i, bytes) in odd.into_iter().chain(even) {
        coppice.put(1, i as u32, bytes.clone()).unwrap();
        coppice.upgrade();
        coppice.put(1, i as u32, bytes.clone()).unwrap();
        assert_eq!(coppice.head(), Some(0), "the block is invisible before the commit");
        assert_eq!(coppice.location(plain_id(1, 0)), Err(ReadError::NotFound));
    }
    let upload: Option<OpenBlock> = coppice.anyone().list_uploads().answer().block;
    assert_eq!(
        upload,
        Some(OpenBlock { number: 1, progress: UploadProgress { chunks: chunks.len() as u32, missing: 0 } })
    );
    commit(&coppice, &block).unwrap();
    coppice.upgrade();
    assert_eq!(commit(&coppice, &block), Ok(Commit::Done), "a commit is repeated after a lost answer");
    assert_eq!(coppice.block(1).unwrap().body, block.body);
    assert_eq!(coppice.location(plain_id(1, 4)), Ok((1, 4)));
    coppice.append(&plain(2, 1, 10)).unwrap();
    let owners = coppice.storage().owners;
    assert_eq!(owners[1].kept_bytes, 0, "the upload's blobs are the chain's now: {owners:?}");
}

#[test]
fn each_upload_error_is_named_and_changes_nothing() {
    let coppice = Coppice::new();
    coppice.append(&plain(0, 2, 1_000)).unwrap();
    let block = plain(1, 5, 1_000);
    assert_eq!(coppice.put(1, 0, vec![1]), Err(UploadError::NoUpload));
    assert_eq!(commit(&coppice, &block), Err(UploadError::NoUpload));
    assert_eq!(abort(&coppice, 1), Ok(false));

    assert!(matches!(begin(&coppice, &plain(2, 1, 10), 10), Err(AppendError::Gap { expected: 1 })));
    let too_large = |what: &str, limit| Err(AppendError::TooLarge { what: what.into(), limit });
    assert_eq!(begin(&coppice, &block, (1 << 20) + 1), too_large("chunk_size", 1 << 20));
    assert_eq!(begin(&coppice, &plain(1, 0, 20_000), 1), too_large("chunks", 16_384));
    let (zero, _) = upload(&block, 400);
    let zero = BeginBlock { chunk_size: 0, ..zero };
    let error = coppice.producer().begin_block(&zero).answer().unwrap_err();
    assert!(matches!(error, AppendError::BadEncoding { .. }), "{error:?}");

    let progress = begin(&coppice, &block, 400).unwrap();
    assert_eq!(begin(&coppice, &block, 400), Ok(progress), "the same again");
    assert!(matches!(begin(&coppice, &block, 500), Err(AppendError::UploadOpen(UploadOpen { .. }))));
    let (_, chunks) = upload(&block, 400);
    assert_eq!(
        coppice.put(2, 0, chunks[0].clone()),
        Err(UploadError::OtherUpload { number: 1, hash: block.hash.clone() })
    );
    assert_eq!(abort(&coppice, 2), Err(UploadError::OtherUpload { number: 1, hash: block.hash.clone() }));
    let n = chunks.len() as u32;
    assert_eq!(coppice.put(1, n, vec![]), Err(UploadError::ChunkOutOfRange { chunks: n }));
    assert_eq!(coppice.put(1, 0, vec![0; 399]), Err(UploadError::WrongLength { expected: 400 }));
    let rest = chunks[n as usize - 1].len() as u32;
    assert_eq!(coppice.put(1, n - 1, vec![0; 400]), Err(UploadError::WrongLength { expected: rest }));
    coppice.put(1, 0, chunks[0].clone()).unwrap();
    assert_eq!(coppice.put(1, 0, vec![0xAB; 400]), Err(UploadError::ChunkMismatch));
    assert_eq!(commit(&coppice, &block), Err(UploadError::Incomplete { missing: n - 1, first: 1 }));
    for (i, chunk) in chunks.iter().enumerate().skip(1) {
        coppice.put(1, i as u32, chunk.clone()).unwrap();
    }
    let stranger = AppendBlock { hash: [9; 32].into(), ..block.clone() };
    let refused = Err(UploadError::OtherUpload { number: 1, hash: block.hash.clone() });
    assert_eq!(commit(&coppice, &stranger), refused);
    assert_eq!(commit(&coppice, &block), Ok(Commit::Done));
    assert_eq!(begin(&coppice, &block, 400), Ok(UploadProgress { chunks: n, missing: 0 }), "the block is already kept");
    assert_eq!(coppice.anyone().list_uploads().answer().block, None);
}

#[test]
fn a_malformed_segment_is_refused_at_the_commit_and_the_upload_stays_open() {
    let coppice = Coppice::new();
    let mut block = plain(0, 5, 1_000);
    let last = block.index.len() - 1;
    block.index[last] = 1;
    let (_, chunks) = upload(&block, 1_000);
    begin(&coppice, &block, 1_000).unwrap();
    for (i, chunk) in chunks.into_iter().enumerate() {
        coppice.put(0, i as u32, chunk).unwrap();
    }
    let error = commit(&coppice, &block).unwrap_err();
    assert!(matches!(error, UploadError::Append(AppendError::BadEncoding { segment: 2, .. })), "{error:?}");
    assert_eq!(coppice.head(), None);
    assert_eq!(abort(&coppice, 0), Ok(true));
    assert_eq!(coppice.append(&plain(0, 5, 1_000)), Ok(()));
}

#[test]
fn uploaded_digests_are_checked_if_the_setting_is_on() {
    let coppice = Coppice::new();
    let change = ConfigChange { verify_segments: Some(true), ..ConfigChange::default() };
    coppice.operator().set_config(&change).answer().unwrap();
    let mut wrong = plain(0, 3, 2_500_000);
    wrong.sha256[0] = ByteBuf::from(vec![7; 32]);
    let error = coppice.upload(&wrong, 1 << 20).unwrap_err();
    assert!(matches!(error, UploadError::Append(AppendError::BadEncoding { segment: 0, offset: 0, .. })), "{error:?}");
    assert_eq!(abort(&coppice, 0), Ok(true));
    coppice.upload(&plain(0, 3, 2_500_000), 1 << 20).unwrap();
}

#[test]
fn an_aborted_or_expired_upload_frees_all_its_bytes() {
    let coppice = Coppice::new();
    coppice.append(&plain(0, 2, 1_000)).unwrap();
    let before = coppice.storage();
    let large = plain(1, 2, 10 * LOG_CLASS as usize);
    begin(&coppice, &large, 100_000).unwrap();
    let open = coppice.storage();
    assert!(open.owners[1].kept_bytes >= 9 * u64::from(LOG_CLASS), "{:?}", open.owners);
    assert_eq!(open.owners[0], before.owners[0], "the reservation of an upload does not count for the chain");
    assert_eq!(abort(&coppice, 1), Ok(true));
    let used = |storage: &StorageStatus| (blob_bytes(storage), storage.quarantined_bytes, storage.owners.clone());
    assert_eq!(used(&coppice.storage()), used(&before));

    begin(&coppice, &large, 100_000).unwrap();
    coppice.pass(100);
    coppice.put(1, 0, upload(&large, 100_000).1[0].clone()).unwrap();
    coppice.pass(100);
    assert!(coppice.anyone().list_uploads().answer().block.is_some(), "it was touched 100 s ago");
    coppice.pass(30);
    assert_eq!(coppice.anyone().list_uploads().answer().block, None);
    assert_eq!(used(&coppice.storage()), used(&before));
    assert_eq!(coppice.append(&plain(1, 2, 10)), Ok(()));
}

#[test]
fn blocks_are_pruned_while_an_upload_is_open() {
    let coppice = Coppice::new();
    coppice.append_plain(0..20, 50_000);
    let large = plain(20, 2, 400_000);
    let (_, chunks) = upload(&large, 100_000);
    begin(&coppice, &large, 100_000).unwrap();
    coppice.set_policy(PrunePolicyArg { retain_blocks: Some(2), ..PrunePolicyArg::default() }).unwrap();
    for (i, chunk) in chunks.into_iter().enumerate() {
        coppice.put(20, i as u32, chunk).unwrap();
        coppice.prune_now(1);
    }
    commit(&coppice, &large).unwrap();
    coppice.prune_now(100_000);
    assert_eq!(coppice.prune_status().oldest_kept_block, Some(18));
    assert_eq!(coppice.block(20).unwrap().body, large.body);
}

/// Payloads and chunks that end exactly where a blob ends, one byte to either side, and no payload at all; each as the first block of a
/// chain and after another block.
#[test]
fn payloads_may_end_at_or_near_a_blob_boundary() {
    let class = LOG_CLASS as usize;
    for first in [false, true] {
        let before = plain(0, 3, 0);
        let preceding = if first { 0 } else { before.receipts.len() + before.index.len() };
        let exactly = class - preceding;
        for payload in [0, 1, exactly, exactly - 1, exactly + 1, class - 1, class, class + 1, 2 * class] {
            let coppice = Coppice::new();
            if !first {
                coppice.append(&before).unwrap();
            }
            let number = u64::from(!first);
            let mut block = plain(number, 0, payload);
            block.receipts = ByteBuf::new();
            block.index = ByteBuf::new();
            coppice_tests::blocks::seal(&mut block);
            coppice.upload(&block, class / 4).unwrap_or_else(|error| panic!("{payload} bytes: {error:?}"));
            assert_eq!(coppice.block(number).unwrap().body, block.body, "{payload} bytes");
            coppice.append_plain(number + 1..number + 3, 100);
            coppice.set_policy(PrunePolicyArg { retain_blocks: Some(1), ..PrunePolicyArg::default() }).unwrap();
            coppice.prune_now(1_000);
            assert_eq!(coppice.prune_status().faults, 0);
            assert_eq!(coppice.chain().len(), 2);
            assert_eq!(coppice.storage().owners[1].kept_bytes, 0);
        }
    }
}

/// The reservation of an upload does not yet count for the chain: it must not make its own commit fail.
#[test]
fn an_upload_begun_below_the_emergency_watermark_can_be_committed() {
    let coppice = Coppice::new();
    let blobs = |n: u64| n * u64::from(LOG_CLASS);
    let policy =
        PrunePolicyArg { target_bytes: Some(blobs(100)), min_kept_blocks: Some(0), ..PrunePolicyArg::default() };
    coppice.set_policy(policy).unwrap();
    coppice.append_plain(0..88, LOG_CLASS as usize - 128);
    assert!((blobs(86)..=blobs(90)).contains(&blob_bytes(&coppice.storage())));
    coppice.upload(&plain(88, 1, 10 * LOG_CLASS as usize), 100_000).unwrap();
    assert!(coppice.prune_status().estimated_kept_bytes > blobs(95), "emergency water");
    let error = coppice.append(&plain(89, 1, 1)).unwrap_err();
    assert_eq!(error, AppendError::CapacityExhausted { held_by: HeldBy::PruneLag });
    coppice.pass(60);
    coppice.append(&plain(89, 1, 1)).unwrap();
}

/// The head and the block before it are never pruned for bytes, so a block that alone exceeds the emergency watermark must not stop the
/// chain.
#[test]
fn a_block_above_the_emergency_watermark_does_not_stop_the_chain() {
    let coppice = Coppice::new();
    coppice.append_plain(0..3, 100);
    coppice.upload(&plain(3, 1, 30 * LOG_CLASS as usize), 1 << 20).unwrap();
    let target_bytes = Some(30 * u64::from(LOG_CLASS));
    coppice.set_policy(PrunePolicyArg { target_bytes, ..PrunePolicyArg::default() }).unwrap();
    for number in 4..6 {
        // The prunable blocks are not pruned yet.
        let error = coppice.append(&plain(number, 1, 100)).unwrap_err();
        assert_eq!(error, AppendError::CapacityExhausted { held_by: HeldBy::PruneLag });
        coppice.pass(60);
        assert_eq!(coppice.prune_status().pruned_before_block, number - 2);
        coppice.append(&plain(number, 1, 100)).unwrap();
    }
    coppice.pass(60);
    assert_eq!(coppice.prune_status().pruned_before_block, 4);
    coppice.append(&plain(6, 1, 100)).unwrap();
    assert!(blob_bytes(&coppice.storage()) < 3 * u64::from(LOG_CLASS));
}
