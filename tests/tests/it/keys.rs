//! Secondary keys through the interface: appended and uploaded, paged, pruned, rolled back, upgraded.

use coppice_tests::blocks::{hash, plain, plain_id, upload, with_keys};
use coppice_tests::client::Answered;
use coppice_tests::coppice::{Coppice, LOG_CLASS, blob_bytes, default_arg};
use ic_coppice_interface::*;

/// A block of three transactions, of which the first and the last have the key `a`.
fn keyed(number: u64) -> AppendBlock {
    with_keys(plain(number, 3, 1_000), &[(2, b"a"), (0, b"a"), (1, b"b"), (2, b"a")])
}

fn fork(block: AppendBlock, parent: &AppendBlock) -> AppendBlock {
    AppendBlock { hash: hash(block.number ^ 1 << 40).into(), parent_hash: parent.hash.clone(), ..block }
}

fn roll_back(coppice: &Coppice, number: u64) {
    coppice.producer().rollback_to(number, None).answer().unwrap();
}

fn rows(page: &KeyPage) -> Vec<(u64, u32)> {
    page.transactions.iter().map(|found| (found.block_number, found.position)).collect()
}

#[test]
fn appended_and_uploaded_keys_are_found_newest_first() {
    let coppice = Coppice::new();
    for number in 0..6 {
        if number % 2 == 0 {
            coppice.append(&keyed(number)).unwrap();
        } else {
            coppice.upload(&keyed(number), 300).unwrap();
        }
    }
    let page = coppice.find(b"a", None, 3).unwrap();
    assert_eq!(rows(&page), [(5, 2), (5, 0), (4, 2)]);
    for found in &page.transactions {
        assert_eq!(found.id, plain_id(found.block_number, u64::from(found.position)));
        assert_eq!(found.block_hash, hash(found.block_number).into());
    }
    let expected: Vec<_> = (0..6).rev().flat_map(|number| [(number, 2), (number, 0)]).collect();
    for limit in [0, 1, 2, 5, 12, 13, u32::MAX] {
        assert_eq!(coppice.find_all(b"a", limit), expected);
    }
    coppice.upgrade();
    assert_eq!(coppice.find_all(b"a", 5), expected);
    assert_eq!(coppice.find_all(b"b", 5), (0..6).rev().map(|number| (number, 1)).collect::<Vec<_>>());
    assert_eq!(coppice.find_all(b"", 5), []);
    assert_eq!(coppice.find(&[0; 65], None, 5), Err(KeyError::KeyTooLong { limit: 64 }));
    assert_eq!(coppice.storage().key_entries, 2);
    // The payload counts the segments only.
    let payload = |block: &AppendBlock| block.body.len() + block.receipts.len() + block.index.len();
    assert_eq!(coppice.storage().payload_bytes, (0..6).map(|number| payload(&keyed(number)) as u64).sum::<u64>());
    for number in 0..6 {
        let (found, sent) = (coppice.block(number).unwrap(), keyed(number));
        assert_eq!((found.body, found.receipts, found.index), (sent.body, sent.receipts, sent.index));
        assert_eq!(found.header.keys, 4);
    }
}

/// The links of an uploaded block's keys do not fit after its payload: the commit takes a blob for them.
#[test]
fn a_commit_whose_links_do_not_fit_allocates_a_blob() {
    let coppice = Coppice::new();
    coppice.append(&plain(0, 1, 10)).unwrap();
    let before = coppice.anyone().get_storage_status(Some(0u64)).answer().block.unwrap();
    let tail = before.lengths.sum();
    let mut block = keyed(1);
    let rest = (block.receipts.len() + block.index.len()) as u64;
    let body = u64::from(LOG_CLASS) - tail - rest;
    block = with_keys(plain(1, 3, body as usize), &[(2, b"a"), (0, b"a"), (1, b"b"), (2, b"a")]);
    let (begin, chunks) = upload(&block, 10_000);
    coppice.producer().begin_block(&begin).answer().unwrap();
    for (chunk, bytes) in (0..).zip(chunks) {
        coppice.put(1, chunk, bytes).unwrap();
    }
    assert_eq!(blob_bytes(&coppice.storage()), u64::from(LOG_CLASS), "the payload ends where the blob does");
    let id = BlockId { number: 1, hash: block.hash.clone() };
    coppice.producer().commit_block(&id).answer().unwrap();
    let owners = coppice.storage().owners;
    assert_eq!((owners[0].kept_bytes, owners[1].kept_bytes), (2 * u64::from(LOG_CLASS), 0), "{owners:?}");
    assert_eq!(coppice.find_all(b"a", 1), [(1, 2), (1, 0)]);
    let storage = coppice.anyone().get_storage_status(Some(1u64)).answer().block.unwrap();
    assert_eq!(storage.blobs.len(), 1, "the blob of the payload");
    coppice.append(&keyed(2)).unwrap();
    assert_eq!(coppice.block(1).unwrap().body, block.body);
    roll_back(&coppice, 0);
    assert_eq!(blob_bytes(&coppice.storage()), u64::from(LOG_CLASS));
    assert_eq!(coppice.find_all(b"a", 1), []);
    assert_eq!(coppice.storage().key_entries, 0);
}

#[test]
fn paging_survives_appends_rollbacks_and_prunes() {
    let coppice = Coppice::new();
    (0..20).for_each(|number| coppice.append(&keyed(number)).unwrap());
    let first = coppice.find(b"a", None, 4).unwrap();
    assert_eq!(rows(&first), [(19, 2), (19, 0), (18, 2), (18, 0)]);
    (20..23).for_each(|number| coppice.append(&keyed(number)).unwrap());
    coppice.upgrade();
    let second = coppice.find(b"a", first.cursor.as_ref(), 3).unwrap();
    assert_eq!(rows(&second), [(17, 2), (17, 0), (16, 2)], "new blocks are not seen");
    // The rollback removes blocks that the reader does not have.
    roll_back(&coppice, 19);
    assert_eq!(rows(&coppice.find(b"a", second.cursor.as_ref(), 1).unwrap()), [(16, 0)]);
    // The prune removes blocks that the reader has not reached.
    coppice.set_policy(PrunePolicyArg { retain_blocks: Some(4), ..PrunePolicyArg::default() }).unwrap();
    coppice.prune_now(10_000);
    let third = coppice.find(b"a", second.cursor.as_ref(), 100).unwrap();
    assert_eq!((rows(&third), third.cursor), (vec![(16, 0), (15, 2), (15, 0)], None));
    // Another chain from block 18 on: the reader keeps its transactions up to there, and continues.
    roll_back(&coppice, 18);
    let other = fork(keyed(19), &keyed(18));
    coppice.append(&other).unwrap();
    let refused = coppice.find(b"a", second.cursor.as_ref(), 100);
    let Err(KeyError::Reorged { common_ancestor: 18, cursor: Some(rest) }) = refused else { panic!("{refused:?}") };
    assert_eq!(rows(&coppice.find(b"a", Some(&rest), 1).unwrap()), [(16, 0)]);
    // Another chain from block 16 on, which is the cursor's block.
    roll_back(&coppice, 15);
    assert_eq!(
        coppice.find(b"a", Some(&rest), 1),
        Err(KeyError::Reorged { common_ancestor: 15, cursor: None }),
        "none of the reader's blocks is left"
    );
    let again = coppice.find(b"a", None, 100).unwrap();
    assert_eq!((rows(&again), again.cursor), (vec![(15, 2), (15, 0)], None));
    let late = KeyCursor { rollbacks: rest.rollbacks + 100, ..rest };
    assert_eq!(coppice.find(b"a", Some(&late), 1), Err(KeyError::Behind { head: Some(15) }));
}

/// The longest page, and the longest list of links that repeat one transaction.
#[test]
fn the_cost_of_a_key_look_up_is_bounded() {
    let (coppice, host) = Coppice::embedded(default_arg());
    let few: Vec<(u32, &[u8])> = (0..1_500).map(|transaction| (transaction, b"long" as &[u8])).collect();
    coppice.append(&with_keys(plain(0, 1_500, 10), &few)).unwrap();
    let took = || host.last_execution().unwrap().instructions;
    let page = coppice.find(b"long", None, 0).unwrap();
    assert_eq!((page.transactions.len(), page.transactions[999].position), (1_000, 500));
    println!("a page of 1,000 transactions: {} instructions", took());
    assert!(took() < 20_000_000, "{}", took());
    assert_eq!(coppice.find(b"long", page.cursor.as_ref(), u32::MAX).unwrap().transactions.len(), 500);

    let many: Vec<(u32, &[u8])> = vec![(0, b"same"); 99_000];
    coppice.upload(&with_keys(plain(1, 1, 10), &many), 1 << 20).unwrap();
    let (mut calls, mut cursor) = (0, None);
    loop {
        let page = coppice.find(b"same", cursor.as_ref(), 0).unwrap();
        assert_eq!(page.transactions.len(), usize::from(calls == 0));
        println!("many times the same: {} instructions", took());
        assert!(took() < 100_000_000, "{}", took());
        calls += 1;
        cursor = page.cursor;
        if cursor.is_none() {
            break;
        }
    }
    assert!((2..=10).contains(&calls), "{calls}");
}
