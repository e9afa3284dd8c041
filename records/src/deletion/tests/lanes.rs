//! Lanes: a worker gets the rows that it serves, whatever other rows wait at lower heights.

use super::super::lane::MAX_LANES;
use super::*;

fn of<'a>(key: &'a [u8], store_type: StoreType, file_type: &'a str) -> Name<'a> {
    Name { key, file_type, store_type }
}

fn select(store_type: StoreType, file_type: Option<&str>) -> BlobSelector {
    BlobSelector { store_type, file_type: file_type.map(String::from) }
}

fn serving(limit: u32, selectors: Vec<BlobSelector>) -> AcquireBlobDeletions {
    AcquireBlobDeletions { selectors: Some(selectors), ..want(limit) }
}

#[test]
fn unserved_rows_do_not_starve_served_ones() {
    let mut queue = fresh();
    for i in 0..1_000u64 {
        queue.schedule(&of(&i.to_le_bytes(), StoreType::Temp, "dat"), 1, NOW).unwrap();
    }
    for i in 0..10u64 {
        queue.schedule(&of(&i.to_le_bytes(), StoreType::Temp, "tx"), 9, NOW).unwrap();
    }
    let mine = vec![select(StoreType::Temp, Some("tx"))];
    let pending = queue.pending(u32::MAX, 1_000, Some(&mine));
    let lease = queue.acquire(worker(1), &serving(1_000, mine), 0, NOW).unwrap().unwrap();
    assert_eq!(ids(&lease.rows), (1_001..=1_010).collect::<Vec<_>>());
    assert_eq!(lease.rows, pending);
    let other =
        queue.acquire(worker(2), &serving(1_000, vec![select(StoreType::Temp, None)]), 0, NOW).unwrap().unwrap();
    assert_eq!(ids(&other.rows), (1..=1_000).collect::<Vec<_>>());
}

#[test]
fn selected_lanes_are_merged_by_height_and_number_and_store_types_narrow_them() {
    let mut queue = fresh();
    let types = ["tx", "outputs", "a", "b"];
    for i in 0..48u64 {
        let (store, file_type) = (StoreType::ALL[(i % 6) as usize], types[(i % 4) as usize]);
        queue.schedule(&of(&i.to_le_bytes(), store, file_type), (48 - i) as u32 / 5, NOW).unwrap();
    }
    let mut expected: Vec<(u32, u64)> = (0..48).map(|i| ((48 - i) as u32 / 5, i + 1)).collect();
    expected.sort_unstable();
    let all = |queue: &DeletionQueue, selectors: Option<&[BlobSelector]>| ids(&queue.pending(u32::MAX, 0, selectors));
    assert_eq!(all(&queue, None), expected.iter().map(|(_, id)| *id).collect::<Vec<_>>());
    let chosen = [select(StoreType::Tx, Some("tx")), select(StoreType::Tx, None), select(StoreType::Block, Some("a"))];
    let is_chosen = |id: u64| {
        let i = id - 1;
        i.is_multiple_of(6) || StoreType::ALL[(i % 6) as usize] == StoreType::Block && types[(i % 4) as usize] == "a"
    };
    let meant: Vec<u64> = expected.iter().map(|(_, id)| *id).filter(|id| is_chosen(*id)).collect();
    assert_eq!(all(&queue, Some(&chosen)), meant);
    assert_eq!(all(&queue, Some(&[])), Vec::<u64>::new(), "an empty list of selectors selects nothing");
    let arg = AcquireBlobDeletions { store_types: vec![StoreType::Block], ..serving(0, chosen.to_vec()) };
    let lease = queue.acquire(worker(1), &arg, 0, NOW).unwrap().unwrap();
    assert!(lease.rows.iter().all(|row| row.store_type == StoreType::Block && row.file_type == "a"));
    assert_eq!(queue.acquire(worker(1), &serving(0, vec![]), 0, NOW), Ok(None));
    let many = |count| serving(1, vec![select(StoreType::Temp, Some("none")); count]);
    assert_eq!(queue.acquire(worker(1), &many(64), 0, NOW), Ok(None));
    assert_eq!(queue.acquire(worker(1), &many(65), 0, NOW), Err(BlobDeletionError::TooMany { limit: 64 }));
}

#[test]
fn sixty_fifth_lane_is_refused_and_empty_lanes_are_freed() {
    let mut queue = fresh();
    let types: Vec<String> = (0..65).map(|i| format!("type-{i}")).collect();
    let schedule = |queue: &mut DeletionQueue, of_type: &str| {
        queue.schedule(&of(b"key", StoreType::Temp, of_type), 1, NOW).map(|scheduled| scheduled.id)
    };
    for (at, of_type) in types[..64].iter().enumerate() {
        assert_eq!(schedule(&mut queue, of_type), Ok(at as u64 + 1));
    }
    let refused = Err(BlobDeletionError::TooMany { limit: 64 });
    assert_eq!(schedule(&mut queue, &types[64]), refused);
    assert_eq!(schedule(&mut queue, &types[3]), Ok(4), "a row with a lane is scheduled anew");
    for store_type in StoreType::ALL {
        for of_type in ["tx", "outputs"] {
            queue.schedule(&of(b"key", store_type, of_type), 1, NOW).unwrap();
        }
    }
    // A row that is leased, backs off or is dead keeps its lane, because it may return there.
    let lease = queue.acquire(worker(1), &serving(1, vec![select(StoreType::Temp, Some(&types[0]))]), 0, NOW).unwrap();
    let lease = lease.unwrap();
    assert_eq!(schedule(&mut queue, &types[64]), refused);
    queue = open();
    assert_eq!(schedule(&mut queue, &types[64]), refused, "after an upgrade as well");
    let failed = batch(&lease.token, &[], &[1], 1);
    assert_eq!(queue.complete_batch(worker(1), &failed, (NOW, 10), &mut gone()).unwrap().dead, 1);
    assert_eq!(schedule(&mut queue, &types[64]), refused);
    assert_eq!(retry(&mut queue, 1), 1);
    assert_eq!(complete(&mut queue, &[1], &[], 1).removed, 1);
    assert_eq!(schedule(&mut queue, &types[64]), Ok(77));
    assert_eq!(schedule(&mut queue, &types[0]), refused, "the place is taken");
    queue = open();
    let found = queue.pending(1, 0, Some(&[select(StoreType::Temp, Some(&types[64]))]));
    assert_eq!(ids(&found), [77]);
}

#[test]
fn file_type_that_differs_in_case_from_one_in_use_is_refused() {
    use StoreType::{Subtree, Temp, Tx};
    let mut queue = fresh();
    let schedule = |queue: &mut DeletionQueue, key: u8, store_type, of_type: &str| {
        queue.schedule(&of(&[key], store_type, of_type), 1, NOW).map(|scheduled| scheduled.id)
    };
    let refused = |used: &str| Err(BlobDeletionError::OtherCase { file_type: used.into() });
    // UTXO records have their file types always in use.
    for store_type in StoreType::ALL {
        assert_eq!(schedule(&mut queue, 1, store_type, "TX"), refused("tx"));
        assert_eq!(schedule(&mut queue, 1, store_type, "Outputs"), refused("outputs"));
    }
    assert_eq!(queue.rows().0, 0);
    assert_eq!(schedule(&mut queue, 1, Subtree, "subtreeData"), Ok(1));
    assert_eq!(schedule(&mut queue, 1, Subtree, "subtreedata"), refused("subtreeData"), "the same blob");
    assert_eq!(schedule(&mut queue, 2, Subtree, "SubtreeData"), refused("subtreeData"), "another blob");
    assert_eq!(schedule(&mut queue, 2, Temp, "SUBTREEDATA"), refused("subtreeData"), "another store");
    assert_eq!(schedule(&mut queue, 2, Temp, "subtreeData"), Ok(2));
    assert_eq!(schedule(&mut queue, 1, Subtree, "subtreeMeta"), Ok(3), "capitals are allowed");
    assert_eq!(schedule(&mut queue, 1, Tx, "\u{e9}"), Ok(4));
    queue = open();
    assert_eq!(schedule(&mut queue, 3, Subtree, "subtreedata"), refused("subtreeData"), "after an upgrade as well");
    // A dead-letter row is a row; the last row gives the file type back.
    assert_eq!(queue.cancel(&of(&[1], Subtree, "subtreeData"), NOW).unwrap().unwrap().id, 1);
    assert_eq!(queue.increment(2, 1, NOW).map(|retry| retry.should_remove), Ok(true));
    assert_eq!(schedule(&mut queue, 3, Subtree, "subtreedata"), refused("subtreeData"));
    assert_eq!(queue.cancel(&of(&[2], Temp, "subtreeData"), NOW).unwrap().unwrap().id, 2);
    assert_eq!(schedule(&mut queue, 3, Subtree, "subtreedata"), Ok(5));
    assert_eq!(schedule(&mut queue, 1, Subtree, "subtreeData"), refused("subtreedata"));
    // A record's blob is held whatever else is scheduled.
    assert_eq!(queue.admits(&name(b"record"), &[1; 32]), Ok(()));
    queue.hold(&name(b"record"), &[1; 32]);
}

#[test]
fn other_case_is_refused_with_all_lanes_taken() {
    let mut queue = fresh();
    for at in 0..MAX_LANES {
        queue.schedule(&of(b"key", StoreType::Temp, &format!("type-{at}")), 1, NOW).unwrap();
    }
    let mut schedule = |of_type| queue.schedule(&of(b"key", StoreType::Block, of_type), 1, NOW);
    assert_eq!(schedule("TYPE-63"), Err(BlobDeletionError::OtherCase { file_type: "type-63".into() }));
    assert_eq!(schedule("TYPE-64"), Err(BlobDeletionError::TooMany { limit: 64 }));
}

#[test]
fn with_a_safety_window_the_given_height_is_ignored() {
    let mut queue = fresh();
    fill(&mut queue, 4);
    let mut acquire = |window: u32, reached: u32| {
        let arg = AcquireBlobDeletions { safety_window: Some(window), height: 1_000, ..want(10) };
        let lease = queue.acquire(worker(1), &arg, reached, NOW).unwrap();
        lease.map(|lease| {
            queue.complete_batch(worker(1), &batch(&lease.token, &[], &[], 1), (NOW, 0), &mut gone()).unwrap();
            (lease.height, ids(&lease.rows))
        })
    };
    for (window, reached) in [(0, 0), (10, 0), (10, 9), (10, 10), (u32::MAX, u32::MAX)] {
        assert_eq!(acquire(window, reached), None, "even a row of height 0 is not due: {window}, {reached}");
    }
    assert_eq!(acquire(10, 11), Some((1, vec![1, 2])));
    assert_eq!(acquire(0, 1), Some((1, vec![1, 2])));
    assert_eq!(acquire(1, u32::MAX), Some((u32::MAX - 1, vec![1, 2, 3, 4])));
}
