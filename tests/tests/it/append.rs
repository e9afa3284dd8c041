//! `append_block`: what it accepts, and each of its refusals, which change nothing.

use coppice_tests::blocks::{self, block, hash, id, plain, seal};
use coppice_tests::client::Answered;
use coppice_tests::coppice::{Coppice, LOG_CLASS, blob_bytes, default_arg};
use ic_coppice_interface::*;
use serde_bytes::ByteBuf;

/// Appends a block that is refused, and asserts that the refusal changes nothing.
fn refused(coppice: &Coppice, block: &AppendBlock) -> AppendError {
    let before = (coppice.chain(), coppice.storage());
    let error = coppice.append(block).expect_err("it must be refused");
    assert_eq!((coppice.chain(), coppice.storage()), before, "{error:?} changed something");
    error
}

fn with_head_at(number: u64) -> Coppice {
    let coppice = Coppice::new();
    coppice.append(&plain(number, 2, 300)).unwrap();
    coppice
}

#[test]
fn a_repeated_block_is_ok_and_another_with_its_number_a_conflict() {
    let coppice = with_head_at(7);
    coppice.append(&plain(8, 2, 300)).unwrap();
    let before = coppice.storage();
    for number in [7, 8] {
        assert_eq!(coppice.append(&plain(number, 2, 300)), Ok(()));
    }
    assert_eq!(coppice.storage(), before);
    let other = AppendBlock { hash: hash(99).into(), ..plain(7, 2, 300) };
    assert_eq!(refused(&coppice, &other), AppendError::Conflict { differs: vec![BlockField::Hash] });
}

/// A producer that mends a block and sends it again under the same hash is told that the kept one differs, and in what.
#[test]
fn known_block_with_other_contents_is_a_conflict_that_names_them() {
    use BlockField::*;
    let coppice = with_head_at(7);
    coppice.append(&plain(8, 2, 300)).unwrap();
    let sealed = |change: &dyn Fn(&mut AppendBlock)| {
        let mut block = plain(8, 2, 300);
        change(&mut block);
        seal(&mut block);
        block
    };
    let mended: Vec<(AppendBlock, Vec<BlockField>)> = vec![
        (sealed(&|block| block.parent_hash = hash(6).into()), vec![ParentHash]),
        (sealed(&|block| block.timestamp_secs += 1), vec![Timestamp]),
        (sealed(&|block| block.body[0] ^= 1), vec![Body]),
        (sealed(&|block| *block.receipts.last_mut().unwrap() ^= 1), vec![Receipts]),
        (sealed(&|block| block.receipts = ByteBuf::new()), vec![Receipts]),
        (sealed(&|block| block.index = plain(9, 2, 0).index), vec![Index]),
        (AppendBlock { hash: hash(8).into(), parent_hash: hash(7).into(), ..plain(9, 3, 10) }, vec![]),
    ];
    for (mut block, mut differs) in mended {
        if differs.is_empty() {
            (block.number, differs) = (8, vec![Timestamp, Body, Receipts, Index]);
        }
        let conflict = AppendError::Conflict { differs: differs.clone() };
        assert_eq!(refused(&coppice, &block), conflict);
        let (begin, _) = blocks::upload(&block, 1_000);
        assert_eq!(coppice.producer().begin_block(&begin).answer(), Err(conflict.clone()));
        let said = conflict.to_string();
        assert!(said.contains("is kept with another") && said.contains("roll back"), "{said}");
    }
    let (mut begin, _) = blocks::upload(&plain(8, 2, 300), 1_000);
    begin.lengths[0] += 1;
    let longer = coppice.producer().begin_block(&begin).answer();
    assert_eq!(longer, Err(AppendError::Conflict { differs: vec![Body] }));
    assert_eq!(coppice.append(&plain(8, 2, 300)), Ok(()));
}

/// Digests are declared: with `verify_segments` off other bytes under the same digests pass as the kept block, and with it on they do not.
#[test]
fn other_bytes_under_the_digests_of_a_known_block_are_refused_only_if_digests_are_verified() {
    let coppice = with_head_at(0);
    let verify = |verify_segments: bool| {
        coppice.configure(ConfigChange { verify_segments: Some(verify_segments), ..ConfigChange::default() });
    };
    let mut other = plain(0, 2, 300);
    other.body[5] ^= 1;
    verify(true);
    assert!(matches!(refused(&coppice, &other), AppendError::BadEncoding { segment: 0, offset: 0, .. }));
    verify(false);
    assert_eq!(coppice.append(&other), Ok(()), "lengths and declared digests are the same");
    assert_eq!(coppice.block(0).unwrap().body, plain(0, 2, 300).body, "the kept bytes are the first ones");
    other.body.push(0);
    assert_eq!(refused(&coppice, &other), AppendError::Conflict { differs: vec![BlockField::Body] });
}

#[test]
fn append_with_a_gap_or_a_wrong_parent_is_refused() {
    let coppice = with_head_at(7);
    assert_eq!(refused(&coppice, &plain(9, 1, 1)), AppendError::Gap { expected: 8 });
    let orphan = AppendBlock { parent_hash: hash(99).into(), ..plain(8, 1, 1) };
    assert_eq!(refused(&coppice, &orphan), AppendError::WrongParent { expected: hash(7).into() });
    assert_eq!(coppice.append(&plain(8, 1, 1)), Ok(()));
}

#[test]
fn append_of_a_pruned_number_names_the_first_available_one() {
    let coppice = with_head_at(0);
    coppice.append_plain(1..10, 100);
    coppice.set_policy(PrunePolicyArg { retain_blocks: Some(4), ..PrunePolicyArg::default() }).unwrap();
    coppice.prune_now(1_000);
    assert_eq!(refused(&coppice, &plain(2, 3, 100)), AppendError::Pruned { first_available: 5 });
}

#[test]
fn an_oversized_part_is_refused_with_its_limit() {
    let coppice = with_head_at(0);
    let too_large = |block: AppendBlock| match refused(&coppice, &block) {
        AppendError::TooLarge { what, limit } => (what, limit),
        error => panic!("{error:?}"),
    };
    let long = BlockHash::from([1; 33]);
    assert_eq!(too_large(AppendBlock { hash: long.clone(), ..plain(1, 0, 0) }), ("hash".into(), 32));
    assert_eq!(too_large(AppendBlock { parent_hash: long, ..plain(1, 0, 0) }), ("parent_hash".into(), 32));
    for number in [1 << 63, u64::MAX] {
        assert_eq!(too_large(AppendBlock { number, ..plain(1, 0, 0) }), ("number".into(), (1 << 63) - 1));
    }
    // 200,000 keys of zero bytes take 1.2 MB.
    let mut index = blocks::index(&[id(1)]);
    index.truncate(36);
    index.extend(200_000u32.to_le_bytes());
    index.extend([0; 6].repeat(200_000));
    let mut many = AppendBlock { index: ByteBuf::from(index), ..plain(1, 1, 0) };
    seal(&mut many);
    assert_eq!(too_large(many), ("transactions + keys".into(), 100_000));
    // Blocks of more than 256 MiB can only be announced.
    let (mut begin, _) = blocks::upload(&plain(1, 0, 10), 1 << 20);
    begin.lengths[0] = 256 << 20;
    let error = coppice.producer().begin_block(&begin).answer().unwrap_err();
    assert_eq!(error, AppendError::TooLarge { what: "block".into(), limit: 256 << 20 });
}

#[test]
fn a_malformed_segment_is_refused_with_its_position() {
    let coppice = with_head_at(0);
    let place = |block: AppendBlock| match refused(&coppice, &block) {
        AppendError::BadEncoding { segment, offset, why } => {
            assert!(!why.is_empty());
            (segment, offset)
        }
        error => panic!("{error:?}"),
    };
    let good = plain(1, 2, 50);
    let cut = |bytes: &ByteBuf| ByteBuf::from(bytes[..bytes.len() - 1].to_vec());
    assert_eq!(place(AppendBlock { index: cut(&good.index), ..good.clone() }), (2, good.index.len() as u64 - 1));
    assert_eq!(place(AppendBlock { receipts: cut(&good.receipts), ..good.clone() }).0, 1);
    // A count whose product with 32 does not fit 32 bits.
    let wraps = ByteBuf::from([0x0800_0000u32.to_le_bytes(), [0; 4]].concat());
    assert_eq!(place(AppendBlock { index: wraps, receipts: ByteBuf::new(), ..good.clone() }), (2, 8));
    let receipts = ByteBuf::from(blocks::receipts(1, 3));
    assert_eq!(place(AppendBlock { receipts, ..good.clone() }), (1, 0));
    assert_eq!(place(AppendBlock { hash: BlockHash::default(), ..good.clone() }), (0, 0));
    let mut short = good.clone();
    short.sha256[1] = ByteBuf::from(vec![0; 31]);
    assert_eq!(place(short), (1, 0));
    // A block without any receipts is well-formed.
    let mut none = AppendBlock { receipts: ByteBuf::new(), ..good };
    seal(&mut none);
    assert_eq!(coppice.append(&none), Ok(()));
}

#[test]
fn digests_are_checked_if_the_setting_is_on() {
    let coppice = with_head_at(0);
    let mut wrong = plain(1, 2, 50);
    wrong.sha256[1] = ByteBuf::from(vec![0; 32]);
    let change = ConfigChange { verify_segments: Some(true), ..ConfigChange::default() };
    coppice.operator().set_config(&change).answer().unwrap();
    assert!(matches!(refused(&coppice, &wrong), AppendError::BadEncoding { segment: 1, offset: 0, .. }));
    assert_eq!(coppice.append(&plain(1, 2, 50)), Ok(()));
    let change = ConfigChange { verify_segments: Some(false), ..ConfigChange::default() };
    coppice.operator().set_config(&change).answer().unwrap();
    let wrong = AppendBlock { sha256: wrong.sha256, ..plain(2, 2, 50) };
    assert_eq!(coppice.append(&wrong), Ok(()), "the producer's declaration is only kept");
}

#[test]
fn append_at_the_emergency_watermark_names_what_holds_pruning_back() {
    let coppice = with_head_at(0);
    // High watermark 18 blobs, emergency watermark 19, of a target of 20.
    let target_bytes = Some(20 * u64::from(LOG_CLASS));
    let policy = PrunePolicyArg {
        target_bytes,
        timer_interval_secs: Some(3_600),
        min_kept_blocks: Some(0),
        pruning_enabled: Some(false),
        ..PrunePolicyArg::default()
    };
    coppice.set_policy(policy).unwrap();
    let mut number = 1;
    while blob_bytes(&coppice.storage()) < 19 * u64::from(LOG_CLASS) {
        coppice.append(&plain(number, 3, 50_000)).unwrap();
        number += 1;
    }
    let next = plain(number, 3, 10);
    assert_eq!(refused(&coppice, &next), AppendError::CapacityExhausted { held_by: HeldBy::Disabled });
    assert!(!coppice.anyone().health().answer().healthy);
    coppice
        .operator()
        .set_prune_policy(&PrunePolicyArg { pruning_enabled: Some(true), ..PrunePolicyArg::default() })
        .answer()
        .unwrap();
    assert_eq!(refused(&coppice, &next), AppendError::CapacityExhausted { held_by: HeldBy::PruneLag });
    coppice.pass(1);
    assert_eq!(coppice.append(&next), Ok(()), "the refused append was followed by a tick at once");
    assert!(coppice.anyone().health().answer().healthy);
}

#[test]
fn append_at_the_operators_cap_is_out_of_space() {
    let coppice = Coppice::with(InitArg { max_stable_pages: Some(5_120), ..default_arg() });
    let mut number = 0;
    let error = loop {
        let block = plain(number, 1, 1_900_000);
        match coppice.append(&block) {
            Ok(()) => number += 1,
            Err(error) => break error,
        }
    };
    assert_eq!(error, AppendError::NoMemory(NoMemory::OutOfSpace));
    assert!(number > 10, "{number} blocks of 1.9 MB fit into 256 MiB besides the reserve");
    assert_eq!(refused(&coppice, &plain(number, 1, 1_900_000)), AppendError::NoMemory(NoMemory::OutOfSpace));
    let health: Health = coppice.anyone().health().answer();
    assert!(health.problems.iter().any(|problem| problem.code == ProblemCode::MemoryAtCap), "{health:?}");
    let change = ConfigChange { max_stable_pages: Some(8_192), ..ConfigChange::default() };
    coppice.operator().set_config(&change).answer().unwrap();
    assert_eq!(coppice.append(&plain(number, 1, 1_900_000)), Ok(()));
    assert!(coppice.anyone().health().answer().problems.iter().all(|problem| problem.code != ProblemCode::MemoryAtCap));
}

#[test]
fn append_while_an_upload_is_open_is_refused() {
    let coppice = with_head_at(0);
    let (begin, _) = blocks::upload(&plain(1, 1, 1_000), 100);
    coppice.producer().begin_block(&begin).answer().unwrap();
    assert!(matches!(refused(&coppice, &plain(1, 1, 1_000)), AppendError::UploadOpen(UploadOpen { .. })));
    assert_eq!(coppice.append(&plain(0, 2, 300)), Ok(()), "a kept block is still Ok");
    assert_eq!(coppice.producer().abort_block(1u64).answer(), Ok(true));
    assert_eq!(coppice.append(&plain(1, 1, 1_000)), Ok(()));
}

#[test]
fn a_repeated_id_gives_its_newest_transaction() {
    let coppice = Coppice::new();
    let twice = id(1);
    coppice.append(&block(0, &[twice, id(2)], 10)).unwrap();
    coppice.append(&block(1, &[id(3), twice, id(4), twice], 10)).unwrap();
    coppice.append(&block(2, &[id(5)], 10)).unwrap();
    assert_eq!(coppice.location(twice), Ok((1, 3)));
    coppice.set_policy(PrunePolicyArg { retain_blocks: Some(1), ..PrunePolicyArg::default() }).unwrap();
    coppice.prune_now(1);
    assert_eq!(coppice.location(twice), Ok((1, 3)), "only the oldest block's own entry is removed");
    assert_eq!(coppice.location(id(2)), Err(ReadError::NotFound));
    let table = coppice.prune_status().transaction_index;
    assert_eq!(
        (table.entries, table.debt),
        (5, 2),
        "the newest of the repeated id, ids 2, 3, 4, 5; at most two are stale"
    );
    assert_eq!(coppice.prune_now(10).dropped, 1);
    assert_eq!(coppice.storage().index_entries, 4, "id 3, 4, 5 and the newest of the repeated one");
}
