//! Unit tests of secondary keys under damage, which only a test inside the crate can cause.

use super::*;
use crate::testing::{block, fresh, hash, id, with_keys};
use ic_coppice_interface::*;
use ic_coppice_storage::blob::BlobStore;
use ic_coppice_storage::twin;

const CLASS: u32 = 64 << 10;
const NOW: u64 = 1_700_000_000;

fn append(chain: &mut ChainStore, blobs: &mut BlobStore, block: &AppendBlock) -> Result<(), AppendError> {
    chain.append(blobs, block, &Admission { verify_segments: true, ..Admission::default() }, NOW)
}

/// A block of four transactions with these keys.
fn keyed(number: u64, keys: &[(u32, &[u8])], body: usize) -> AppendBlock {
    let ids: Vec<_> = (0..4).map(|i| id(number << 8 | i)).collect();
    with_keys(block(number, &ids, body), keys)
}

/// The block on fork `fork`, on a parent of fork `parent`.
fn on_fork(block: AppendBlock, fork: u8, parent: u8) -> AppendBlock {
    AppendBlock {
        hash: hash(block.number, fork).into(),
        parent_hash: hash(block.number.wrapping_sub(1), parent).into(),
        ..block
    }
}

type Rows = Vec<(u64, u32)>;

fn rows(page: &KeyPage) -> Rows {
    page.transactions.iter().map(|found| (found.block_number, found.position)).collect()
}

fn find(
    chain: &ChainStore,
    blobs: &BlobStore,
    key: &[u8],
    cursor: Option<&KeyCursor>,
    limit: u32,
) -> Result<KeyPage, KeyError> {
    let page = chain.find_by_key(blobs, key, cursor, limit)?;
    for found in &page.transactions {
        let header = chain.stored_header(found.block_number).unwrap();
        assert_eq!(found.block_hash, header.hash.to_bytes());
        assert_eq!(found.id, id(found.block_number << 8 | u64::from(found.position)));
    }
    Ok(page)
}

/// All transactions with a key, in pages of `limit`.
fn all(chain: &ChainStore, blobs: &BlobStore, key: &[u8], limit: u32) -> Rows {
    let (mut all, mut cursor) = (Rows::new(), None);
    loop {
        let page = find(chain, blobs, key, cursor.as_ref(), limit).unwrap();
        assert!(page.transactions.len() <= limit as usize);
        all.extend(rows(&page));
        cursor = page.cursor;
        if cursor.is_none() {
            return all;
        }
    }
}

#[test]
fn key_lookup_returns_each_transaction_once_newest_first() {
    let (mut chain, mut blobs) = fresh(CLASS);
    let long = [7; 64];
    let keys: &[(u32, &[u8])] =
        &[(3, b"a"), (0, b"a"), (1, b""), (3, b"a"), (2, b"b"), (0, b"a"), (2, &long), (2, b"a")];
    append(&mut chain, &mut blobs, &keyed(10, keys, 10)).unwrap();
    append(&mut chain, &mut blobs, &keyed(11, &[], 10)).unwrap();
    append(&mut chain, &mut blobs, &keyed(12, &[(1, b"a"), (0, b"")], 10)).unwrap();
    for limit in [1, 2, 3, 4, 5, 1_000] {
        assert_eq!(all(&chain, &blobs, b"a", limit), [(12, 1), (10, 3), (10, 2), (10, 0)], "{limit} a page");
        assert_eq!(all(&chain, &blobs, b"", limit), [(12, 0), (10, 1)]);
        assert_eq!(all(&chain, &blobs, &long, limit), [(10, 2)]);
        assert_eq!(all(&chain, &blobs, b"none has it", limit), []);
    }
    assert_eq!(find(&chain, &blobs, &[0; 65], None, 1), Err(KeyError::KeyTooLong { limit: 64 }));
    assert_eq!(find(&chain, &blobs, b"a", None, 0).unwrap().transactions.len(), 4, "0 means the maximum");
    assert_eq!(chain.key_stats().entries, 4, "an entry for each different key");
    // The links of a block's keys are not part of its payload.
    let lengths = |number| chain.header(number).unwrap().lengths.sum();
    assert_eq!(chain.payload_bytes(), lengths(10) + lengths(11) + lengths(12));
    assert_eq!(chain.state().log_tail, chain.payload_bytes() + 10 * 12);
    assert_eq!(chain.meta(11).unwrap().payload_end(), chain.meta(11).unwrap().log_end());
}

#[test]
fn a_cursor_outlives_new_blocks_and_pruned_ones() {
    let (mut chain, mut blobs) = fresh(CLASS);
    for number in 0..6 {
        append(&mut chain, &mut blobs, &keyed(number, &[(0, b"a"), (3, b"a")], 10)).unwrap();
    }
    let first = find(&chain, &blobs, b"a", None, 3).unwrap();
    assert_eq!(rows(&first), [(5, 3), (5, 0), (4, 3)]);
    let cursor = first.cursor.unwrap();
    assert_eq!((cursor.block_number, cursor.position, cursor.key, cursor.newest), (4, 3, 1, 5));
    append(&mut chain, &mut blobs, &keyed(6, &[(2, b"a")], 10)).unwrap();
    let second = find(&chain, &blobs, b"a", Some(&cursor), 3).unwrap();
    assert_eq!(rows(&second), [(4, 0), (3, 3), (3, 0)]);
    (0..2).for_each(|_| drop(chain.remove_oldest(&mut blobs).unwrap()));
    let last = find(&chain, &blobs, b"a", second.cursor.as_ref(), 3).unwrap();
    assert_eq!((rows(&last), &last.cursor), (vec![(2, 3), (2, 0)], &None), "pruned transactions are not returned");
    (0..3).for_each(|_| drop(chain.remove_oldest(&mut blobs).unwrap()));
    let gone = find(&chain, &blobs, b"a", Some(&cursor), 3).unwrap();
    assert_eq!(gone, KeyPage { transactions: vec![], cursor: None }, "the cursor's block is pruned, and all before it");
    assert_eq!(all(&chain, &blobs, b"a", 1), [(6, 2), (5, 3), (5, 0)]);
    let page = find(&chain, &blobs, b"a", None, 3).unwrap();
    assert_eq!((page.transactions.len(), page.cursor), (3, None), "nothing follows a full page");
}

#[test]
fn cursor_over_rolled_back_blocks_returns_reorged() {
    let (mut chain, mut blobs) = fresh(CLASS);
    for number in 0..10 {
        let keys: &[(u32, &[u8])] = if number < 8 { &[(0, b"a"), (1, b"b")] } else { &[] };
        append(&mut chain, &mut blobs, &keyed(number, keys, 10)).unwrap();
    }
    let page = find(&chain, &blobs, b"a", None, 3).unwrap();
    let cursor = page.cursor.unwrap();
    assert_eq!((cursor.block_number, cursor.newest), (5, 7));
    // Roll back blocks that the reader has not seen.
    (0..2).for_each(|_| drop(chain.remove_head(&mut blobs).unwrap()));
    assert_eq!(rows(&find(&chain, &blobs, b"a", Some(&cursor), 1).unwrap()), [(4, 0)]);
    // Roll back some blocks that the reader has seen.
    chain.remove_head(&mut blobs).unwrap();
    append(&mut chain, &mut blobs, &on_fork(keyed(7, &[(2, b"a")], 10), 1, 0)).unwrap();
    let reorged = find(&chain, &blobs, b"a", Some(&cursor), 1);
    let Err(KeyError::Reorged { common_ancestor: 6, cursor: Some(rest) }) = reorged else { panic!("{reorged:?}") };
    assert_eq!((rest.block_number, rest.position, rest.newest, rest.rollbacks), (5, 0, 6, 3));
    assert_eq!(rows(&find(&chain, &blobs, b"a", Some(&rest), 1).unwrap()), [(4, 0)]);
    // Roll back all blocks that the reader has seen.
    (0..3).for_each(|_| drop(chain.remove_head(&mut blobs).unwrap()));
    let reorged = find(&chain, &blobs, b"a", Some(&rest), 1);
    assert_eq!(reorged, Err(KeyError::Reorged { common_ancestor: 4, cursor: None }));
    append(&mut chain, &mut blobs, &on_fork(keyed(5, &[(3, b"a")], 10), 2, 0)).unwrap();
    assert_eq!(find(&chain, &blobs, b"a", Some(&cursor), 1), reorged, "also with another block of that number");
    assert_eq!(all(&chain, &blobs, b"a", 2), [(5, 3), (4, 0), (3, 0), (2, 0), (1, 0), (0, 0)]);

    let cursor = find(&chain, &blobs, b"a", None, 1).unwrap().cursor.unwrap();
    let with = |change: fn(&mut KeyCursor)| {
        let mut cursor = cursor.clone();
        change(&mut cursor);
        find(&chain, &blobs, b"a", Some(&cursor), 1)
    };
    assert_eq!(with(|cursor| cursor.rollbacks += 1), Err(KeyError::Behind { head: Some(5) }));
    assert_eq!(with(|cursor| cursor.block_number = 6), Err(KeyError::Behind { head: Some(5) }));
    let bad = |page: Result<KeyPage, KeyError>| assert!(matches!(page, Err(KeyError::BadCursor { .. })), "{page:?}");
    bad(with(|cursor| cursor.block_hash = [9; 32].into()));
    bad(with(|cursor| cursor.key = 1));
    bad(with(|cursor| cursor.key = u32::MAX));
    bad(with(|cursor| cursor.block_number = 4));
    bad(find(&chain, &blobs, b"b", Some(&cursor), 1));
}

/// A call reads postings until its meter ends.
#[test]
fn call_over_a_long_key_list_ends_at_its_limit() {
    let (mut chain, mut blobs) = fresh(CLASS);
    append(&mut chain, &mut blobs, &keyed(0, &[(2, b"a")], 10)).unwrap();
    let mut keys: Vec<(u32, &[u8])> = vec![(1, b"a"); 25_000];
    keys[3] = (0, b"a");
    append(&mut chain, &mut blobs, &keyed(1, &keys, 10)).unwrap();
    let (mut pages, mut cursor) = (Vec::new(), None);
    twin::with(|world| world.instructions_per_access = 2_000);
    loop {
        let page = find(&chain, &blobs, b"a", cursor.as_ref(), 5).unwrap();
        pages.push(rows(&page));
        cursor = page.cursor;
        if cursor.is_none() {
            break;
        }
    }
    twin::with(|world| world.instructions_per_access = 0);
    assert!((3..=12).contains(&pages.len()), "{pages:?}");
    assert_eq!((&pages[0], pages.last()), (&vec![(1, 1)], Some(&vec![(1, 0), (0, 2)])));
    assert!(pages[1..pages.len() - 1].iter().all(Vec::is_empty), "{pages:?}");
    assert_eq!(chain.remove_head(&mut blobs).unwrap().entries, 4);
    assert_eq!(all(&chain, &blobs, b"a", 5), [(0, 2)]);
}

/// With any damage, later blocks are still found, unknown results are errors, and no answer is wrong.
#[test]
fn key_lookup_in_damaged_data_is_corrupt_and_never_wrong() {
    let keys: &[(u32, &[u8])] = &[(0, b"a"), (1, b"b")];
    let world = || {
        let (mut chain, mut blobs) = fresh(CLASS);
        for number in 0..8 {
            append(&mut chain, &mut blobs, &keyed(number, keys, 60_000)).unwrap();
        }
        (chain, blobs)
    };
    let corrupt = |page: Result<KeyPage, KeyError>, of: u64| {
        assert!(matches!(page, Err(KeyError::Corrupt { number, .. }) if number == of), "{page:?}");
    };
    // The header of a block in the middle.
    let (mut chain, mut blobs) = world();
    chain.poison_header(5);
    let page = find(&chain, &blobs, b"a", None, 10).unwrap();
    assert_eq!(rows(&page), [(7, 0), (6, 0)], "what comes before it");
    corrupt(find(&chain, &blobs, b"a", page.cursor.as_ref(), 10), 5);
    while chain.state().oldest < 6 {
        chain.remove_oldest(&mut blobs).unwrap();
    }
    assert_eq!(all(&chain, &blobs, b"a", 10), [(7, 0), (6, 0)]);
    // A blob with links and keys.
    let (mut chain, mut blobs) = world();
    let blob = chain.log.blob_of(chain.meta(7).unwrap().payload_end());
    chain.poison_log(blob);
    corrupt(find(&chain, &blobs, b"b", None, 10), 7);
    let removed = chain.remove_head(&mut blobs).unwrap();
    assert!(removed.faults.iter().any(|fault| fault.starts_with("block 7: its index segment")), "{:?}", removed.faults);

    // The head's header: its keys stay in the table, and name positions that another block has later.
    for fork in [&[] as &[(u32, &[u8])], &[(3, b"b"), (2, b"a")], &[(0, b"b")], &[(0, b"c"), (0, b"b"), (0, b"b")]] {
        let (mut chain, mut blobs) = world();
        chain.poison_header(7);
        assert_eq!(chain.remove_head(&mut blobs).unwrap().faults.len(), 1);
        for key in [b"a", b"b"] {
            assert_eq!(all(&chain, &blobs, key, 1), [], "older postings are unreachable");
        }
        append(&mut chain, &mut blobs, &on_fork(keyed(7, fork, 10), 1, 0)).unwrap();
        let of_7 = |key: &[u8]| -> Rows {
            let mut rows: Rows = fork.iter().filter(|(_, has)| *has == key).map(|(at, _)| (7, *at)).collect();
            rows.sort();
            rows.dedup();
            rows.into_iter().rev().collect()
        };
        for key in [b"a", b"b", b"c"] {
            assert_eq!(all(&chain, &blobs, key, 1), of_7(key), "{fork:?}");
        }
        append(&mut chain, &mut blobs, &on_fork(keyed(8, &[(1, b"a"), (0, b"b")], 10), 1, 1)).unwrap();
        assert_eq!(all(&chain, &blobs, b"a", 1), [vec![(8, 1)], of_7(b"a")].concat(), "{fork:?}");
        chain.remove_head(&mut blobs).unwrap();
        for key in [b"a", b"b", b"c"] {
            assert_eq!(all(&chain, &blobs, key, 1), of_7(key), "{fork:?}");
        }
        while chain.state().oldest < 7 {
            assert!(chain.remove_oldest(&mut blobs).unwrap().faults.is_empty());
        }
    }
}

/// A link to nothing, or in a circle.
#[test]
fn a_damaged_link_ends_the_call() {
    let (mut chain, mut blobs) = fresh(CLASS);
    for number in 0..4 {
        append(&mut chain, &mut blobs, &keyed(number, &[(0, b"a"), (1, b"a")], 10)).unwrap();
    }
    let links = chain.meta(3).unwrap().payload_end();
    let link = |previous: u64, at: u32| [&previous.to_le_bytes()[..], &at.to_le_bytes()].concat();
    let value = |number: u64, key: u64| number << 24 | key;
    let at = 4 + 4 * 32 + 4;
    for damaged in [link(value(3, 0), at), link(value(3, 1), at), link(value(2, 1), at + 1), link(0, u32::MAX)] {
        chain.log.write(&mut blobs, links, &damaged).unwrap();
        let first = find(&chain, &blobs, b"a", None, 1).unwrap();
        assert_eq!(rows(&first), [(3, 1)]);
        let second = find(&chain, &blobs, b"a", first.cursor.as_ref(), 1);
        let third = second.and_then(|page| match page.cursor {
            Some(cursor) => find(&chain, &blobs, b"a", Some(&cursor), 1),
            None => Ok(page),
        });
        match third {
            Err(KeyError::Corrupt { number: 3, .. }) => {}
            Ok(page) => assert_eq!((rows(&page), page.cursor), (vec![], None), "not a key of this hash"),
            other => panic!("{other:?}"),
        }
    }
    chain.log.write(&mut blobs, links, &link(value(9, 0), at)).unwrap();
    assert!(chain.remove_head(&mut blobs).unwrap().faults.is_empty());
    assert_eq!(all(&chain, &blobs, b"a", 5), [], "a link to a removed block ends the list");
}
