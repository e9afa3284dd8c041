mod ages;
mod collisions;
mod ends;
mod histories;
mod lanes;
mod large;
mod tokens;

use super::token::Token;
use super::*;
use candid::Principal;
use ic_coppice_interface::*;
use ic_coppice_storage::testing::{self, hash_key};
use ic_coppice_storage::twin;
use serde_bytes::ByteBuf;
use std::collections::BTreeSet;

const NS: u64 = 1_000_000_000;
const NOW: u64 = 1_700_000_000 * NS;

/// Stub: every record ends with `end`, and the message has room for `room` rows after the first.
struct Ends<'a> {
    end: RecordEnd,
    asked: &'a mut usize,
    room: u64,
    is_first: bool,
}

impl Completion for Ends<'_> {
    fn has_budget(&mut self) -> bool {
        if std::mem::take(&mut self.is_first) {
            return true;
        }
        let has_budget = self.room > 0;
        self.room = self.room.saturating_sub(1);
        has_budget
    }

    fn record_end(&mut self, _: &[u8; 32]) -> RecordEnd {
        *self.asked += 1;
        self.end
    }
}

fn open() -> DeletionQueue {
    testing::forget();
    DeletionQueue::open(&testing::arena(), hash_key()).unwrap()
}

/// Returns an empty queue.
fn fresh() -> DeletionQueue {
    twin::reset();
    open()
}

fn name(key: &[u8]) -> Name<'_> {
    Name { key, file_type: "tx", store_type: StoreType::Tx }
}

/// Schedules rows with rising heights from 0 on.
fn fill(queue: &mut DeletionQueue, rows: u64) {
    for i in 0..rows {
        queue.schedule(&name(&i.to_le_bytes()), i as u32, NOW).unwrap();
    }
}

fn worker(which: u8) -> Principal {
    Principal::from_slice(&[which; 29])
}

fn want(limit: u32) -> AcquireBlobDeletions {
    AcquireBlobDeletions {
        height: u32::MAX,
        limit,
        lock_timeout_secs: 0,
        store_types: vec![],
        request: None,
        ..Default::default()
    }
}

fn acquire(queue: &mut DeletionQueue, who: u8, limit: u32, now: u64) -> BlobDeletionLease {
    queue.acquire(worker(who), &want(limit), 0, now).unwrap().expect("something waits")
}

fn batch(token: &[u8], completed: &[u64], failed: &[u64], max_retries: u32) -> CompleteBlobDeletionBatch {
    let (completed_ids, failed_ids) = (completed.to_vec(), failed.to_vec());
    CompleteBlobDeletionBatch {
        token: ByteBuf::from(token),
        completed_ids,
        failed_ids,
        max_retries,
        ..Default::default()
    }
}

fn gone<'a>() -> Ends<'a> {
    Ends { end: RecordEnd::Gone, asked: Box::leak(Box::new(0)), room: u64::MAX, is_first: true }
}

fn complete(queue: &mut DeletionQueue, completed: &[u64], failed: &[u64], room: u64) -> CompletedBlobDeletions {
    let arg = CompleteBlobDeletions {
        completed_ids: completed.into(),
        failed_ids: failed.into(),
        max_retries: 9,
        ..Default::default()
    };
    queue.complete(&arg, 7, &mut Ends { room, ..gone() }).unwrap()
}

/// Returns the number of retried rows: 1 if the row was dead.
fn retry(queue: &mut DeletionQueue, id: u64) -> u64 {
    queue.retry(&RetryBlobDeletions::Ids(vec![id]), NOW).unwrap().retried
}

fn ids(rows: &[BlobDeletion]) -> Vec<u64> {
    rows.iter().map(|row| row.id).collect()
}

#[test]
fn a_queue_without_rows_has_no_memory() {
    let mut queue = fresh();
    assert_eq!((queue.pending(u32::MAX, 0, None).len(), queue.dead(None, 0).rows.len()), (0, 0));
    assert_eq!(retry(&mut queue, 1), 0);
    let done = complete(&mut queue, &[1, 1, u64::MAX], &[1, 2], 9);
    assert_eq!(done, CompletedBlobDeletions { skipped: vec![1, u64::MAX, 2], ..Default::default() });
    assert_eq!(queue.acquire(worker(1), &want(0), 0, NOW), Ok(None));
    assert_eq!(queue.extend(worker(1), &[1; 40], 0, NOW), Err(BlobDeletionError::UnknownToken));
    assert_eq!(queue.cancel(&name(b"a"), NOW), Ok(None));
    assert_eq!(queue.increment(1, 1, NOW), Err(BlobDeletionError::NotFound));
    assert_eq!((queue.remove(1, u32::MAX, NOW, &mut gone()), queue.next_event()), (Ok(false), None));
    assert_eq!(queue.status().stores.len(), 6);
    assert_eq!(queue.list(&ListBlobDeletions::default()).rows, []);
    queue.tick(NOW);
    assert!(testing::space(places::DELETIONS).is_empty());
}

#[test]
fn rows_without_room_in_a_message_remain_for_the_next() {
    let mut queue = fresh();
    fill(&mut queue, 6);
    let complete = |queue: &mut DeletionQueue, completed: &[u64], failed: &[u64], room| {
        let done = complete(queue, completed, failed, room);
        (done.removed, done.retries_incremented, done.remaining)
    };
    assert_eq!(complete(&mut queue, &[], &[], 0), (0, 0, 0));
    assert_eq!(
        complete(&mut queue, &[3, 3, 1], &[2, 4, 5], 0),
        (1, 0, 4),
        "one row always fits, and so do rows without work"
    );
    assert_eq!(complete(&mut queue, &[3, 1], &[2, 4, 5], 2), (1, 2, 1), "rows done already take no room");
    assert_eq!(complete(&mut queue, &[], &[4, 4, 5], 9), (0, 2, 0), "a number counts once");
    let retries = queue.pending(9, 0, None).iter().map(|row| (row.id, row.retry_count)).collect::<Vec<_>>();
    assert_eq!(retries, [(2, 1), (4, 2), (5, 1), (6, 0)]);
}

/// Returns the offsets of waiting rows in the arena: a row begins with its kind, version and state.
fn waiting() -> Vec<u64> {
    let arena = testing::arena();
    let is_row = |at: &u64| arena.payload().read::<4>(*at) == [3, 3, BlobDeletionState::Waiting as u8, 0];
    (8..arena.end()).step_by(128).filter(is_row).collect()
}

fn first_waiting(queue: &DeletionQueue) -> Option<u32> {
    queue.status().stores[StoreType::Tx as usize].oldest_due
}

#[test]
fn row_of_another_version_is_not_read() {
    let mut queue = fresh();
    fill(&mut queue, 1);
    let arena = testing::arena();
    let (payload, at) = (arena.payload(), waiting()[0]);
    for (byte, wrong) in [(0, 4), (1, 0), (1, 2), (1, 4), (2, 5)] {
        let right: [u8; 1] = payload.read(at + byte);
        payload.write(at + byte, &[wrong]);
        assert_eq!(
            (queue.pending(1, 0, None).len(), complete(&mut queue, &[1], &[], 9).removed),
            (0, 0),
            "byte {byte}"
        );
        assert_eq!(queue.acquire(worker(1), &want(0), 0, NOW).unwrap().map_or(0, |lease| lease.rows.len()), 0);
        assert_eq!(first_waiting(&queue), None);
        payload.write(at + byte, &right);
    }
    assert_eq!(first_waiting(&queue), Some(0));
    assert_eq!((queue.pending(1, 0, None).len(), complete(&mut queue, &[1], &[], 9).removed), (1, 1));
}

/// A tick reads the first waiting row, so damage there must not stop other work.
#[test]
fn first_waiting_row_is_found_or_none_despite_damage() {
    let mut queue = fresh();
    fill(&mut queue, 300);
    assert_eq!(first_waiting(&queue), Some(0));
    let arena = testing::arena();
    let (payload, rows) = (arena.payload(), waiting());
    assert_eq!(rows.len(), 300);
    // Rows that cannot be decoded are skipped, up to a limit.
    for (lost, first) in [(1, Some(1)), (100, Some(100)), (300, None)] {
        rows[..lost].iter().for_each(|row| payload.write(row + 1, &[9]));
        assert_eq!(first_waiting(&queue), first, "{lost}");
    }
    rows.iter().for_each(|row| payload.write(row + 1, &[3]));
    // Links of the first row that lead to itself, and to no slot.
    let first = rows.iter().find(|row| payload.read(**row + 24) == 0_u32.to_le_bytes()).unwrap();
    for link in [(first / 128) as u32 + 1, u32::MAX] {
        payload.write(first + 48, &link.to_le_bytes());
        assert_eq!(first_waiting(&queue), None);
    }
}

#[test]
fn another_version_of_the_queue_is_not_opened() {
    let mut queue = fresh();
    fill(&mut queue, 1);
    let at = testing::place(queue.store.as_ref().unwrap().slots.root(), 0);
    drop(queue);
    let arena = testing::arena();
    let payload = arena.payload();
    for (byte, wrong) in [(0, b'X'), (4, 0), (4, 2), (4, 4)] {
        let right: [u8; 1] = payload.read(at + byte);
        payload.write(at + byte, &[wrong]);
        testing::forget();
        assert!(DeletionQueue::open(&testing::arena(), hash_key()).is_err(), "byte {byte}");
        payload.write(at + byte, &right);
    }
    testing::forget();
    assert!(
        DeletionQueue::open(&testing::arena(), HashKey::default()).is_err(),
        "no name is found without the hash key"
    );
    assert_eq!(open().pending_count(), 1);
}

#[test]
fn removed_rows_leave_their_memory_to_new_rows() {
    let mut queue = fresh();
    let mut sizes = Vec::new();
    for round in 0..4u64 {
        for i in 0..3_000 {
            queue.schedule(&name(&(round * 3_000 + i).to_le_bytes()), 1 + (i % 7) as u32, NOW).unwrap();
        }
        sizes.push(queue.store.as_ref().unwrap().slots.stats());
        while queue.pending_count() > 0 {
            let lease = acquire(&mut queue, 1, 1_000, NOW);
            let arg = batch(&lease.token, &ids(&lease.rows), &[], 1);
            assert_eq!(queue.complete_batch(worker(1), &arg, (NOW, 0), &mut gone()).unwrap().removed, 1_000);
        }
    }
    let [second, last] = [1, 3].map(|round| sizes[round].used_bytes + sizes[round].free_bytes);
    // The index by name has a few nodes more or fewer, which depends on the hashes of the names.
    assert!(second.abs_diff(last) < second / 50, "{sizes:?}");
}

/// Rows in leases and back-offs return without more memory, and they can be completed.
#[test]
fn at_the_memory_cap_rows_return_and_are_completed() {
    let mut queue = fresh();
    fill(&mut queue, 50);
    acquire(&mut queue, 1, 1, NOW);
    testing::fill(&mut queue.store.as_mut().unwrap().slots, 0, 0, false);
    assert_eq!(queue.schedule(&name(b"new"), 1, NOW), Err(BlobDeletionError::NoMemory(NoMemory::OutOfSpace)));
    assert_eq!(queue.admits(&name(b"new"), &[1; 32]), Err(UtxoRefusal::NoMemory(NoMemory::OutOfSpace)));
    let lease = acquire(&mut queue, 2, 20, NOW);
    let rows = ids(&lease.rows);
    let arg = batch(&lease.token, &rows[..5], &rows[5..10], 3);
    let done = queue.complete_batch(worker(2), &arg, (NOW, 10), &mut gone()).unwrap();
    assert_eq!((done.removed, done.retries_incremented), (5, 5));
    queue.tick(NOW + 400 * NS);
    assert_eq!(queue.pending(u32::MAX, 0, None).len(), 45);
    assert_eq!(queue.increment(50, 1, NOW).map(|retry| retry.should_remove), Ok(true));
    assert_eq!(retry(&mut queue, 50), 1);
}

#[test]
fn names_and_limits_are_checked() {
    let mut queue = fresh();
    let long = [7; 1_025];
    let types = ["", "x", &"t".repeat(32), &"t".repeat(33)];
    let mut schedule = |key: &[u8], file_type: &str| {
        let name = Name { key, file_type, store_type: StoreType::Temp };
        let scheduled = queue.schedule(&name, 0, NOW);
        assert_eq!(queue.cancel(&name, NOW).err(), scheduled.as_ref().err().cloned());
        scheduled.map(|_| ()).map_err(|error| format!("{error:?}"))
    };
    assert!(schedule(b"", "x").unwrap_err().contains("Empty { what: \"blob_key\" }"));
    assert!(schedule(b"k", types[0]).unwrap_err().contains("Empty { what: \"file_type\" }"));
    assert!(schedule(&long, "x").unwrap_err().contains("limit: 1024"));
    assert!(schedule(b"k", types[3]).unwrap_err().contains("limit: 32"));
    assert_eq!((schedule(&long[..1_024], types[2]), schedule(b"k", types[1])), (Ok(()), Ok(())));

    fill(&mut queue, 1_100);
    let acquire = |queue: &mut DeletionQueue, arg: AcquireBlobDeletions| queue.acquire(worker(1), &arg, 0, NOW);
    let refused = [
        AcquireBlobDeletions { limit: 1_001, ..want(0) },
        AcquireBlobDeletions { limit: u32::MAX, ..want(0) },
        AcquireBlobDeletions { lock_timeout_secs: 43_201, ..want(0) },
        AcquireBlobDeletions { lock_timeout_secs: u64::MAX, ..want(0) },
        AcquireBlobDeletions { request: Some(ByteBuf::new()), ..want(0) },
        AcquireBlobDeletions { request: Some(ByteBuf::from([1; 65])), ..want(0) },
    ];
    for arg in refused {
        acquire(&mut queue, arg.clone()).expect_err(&format!("{arg:?}"));
    }
    assert_eq!(queue.status().leases, []);
    let given = [(0, 0, 100, 300), (1, 43_200, 1, 43_200), (999, 1, 999, 1), (1_000, 0, 0, 300)];
    for (limit, lock_timeout_secs, rows, secs) in given {
        let lease = acquire(&mut queue, AcquireBlobDeletions { lock_timeout_secs, ..want(limit) }).unwrap();
        let Some(lease) = lease else {
            assert_eq!(rows, 0);
            continue;
        };
        assert_eq!((lease.rows.len(), lease.expires_at_ns), (rows, NOW + secs * NS));
        let longer = queue.extend(worker(1), &lease.token, 43_200, NOW).unwrap();
        assert_eq!(longer, NOW + 43_200 * NS);
        assert_eq!(queue.extend(worker(1), &lease.token, 1, NOW), Ok(longer), "never shorter");
        let refused = queue.extend(worker(1), &lease.token, 43_201, NOW);
        assert!(matches!(refused, Err(BlobDeletionError::TooLarge { limit: 43_200, .. })), "{refused:?}");
    }
    let request = Some(ByteBuf::from([1; 64]));
    queue.schedule(&name(b"one more"), 0, NOW).unwrap();
    assert!(acquire(&mut queue, AcquireBlobDeletions { request, ..want(0) }).unwrap().is_some());
    let many = CompleteBlobDeletions {
        completed_ids: vec![1; 10_001],
        failed_ids: vec![],
        max_retries: 1,
        ..Default::default()
    };
    assert_eq!(queue.complete(&many, NOW, &mut gone()), Err(BlobDeletionError::TooMany { limit: 10_000 }));
    let many = batch(&[1; 40], &[1; 1_000], &[2; 1_001], 1);
    let refused = queue.complete_batch(worker(1), &many, (NOW, 0), &mut gone());
    assert_eq!(refused, Err(BlobDeletionError::TooMany { limit: 2_000 }));
}

#[test]
fn rows_return_to_their_lanes_and_stores_are_selected() {
    let mut queue = fresh();
    let store = |i: u64| StoreType::ALL[(i % 6) as usize];
    for i in 0..60u64 {
        let name = Name { key: &i.to_le_bytes(), file_type: "tx", store_type: store(i) };
        queue.schedule(&name, (60 - i) as u32 / 7, NOW).unwrap();
    }
    let order = |queue: &DeletionQueue| queue.pending(u32::MAX, 0, None).iter().map(|row| row.id).collect::<Vec<_>>();
    let mut expected: Vec<(u32, u64)> = (0..60u64).map(|i| ((60 - i) as u32 / 7, i + 1)).collect();
    expected.sort_unstable();
    let expected: Vec<u64> = expected.into_iter().map(|(_, id)| id).collect();
    assert_eq!(order(&queue), expected);
    let of_two = AcquireBlobDeletions { store_types: vec![StoreType::Temp, StoreType::Tx], ..want(7) };
    let first = queue.acquire(worker(1), &of_two, 0, NOW).unwrap().unwrap();
    let meant: Vec<u64> =
        expected.iter().copied().filter(|id| [StoreType::Temp, StoreType::Tx].contains(&store(id - 1))).collect();
    assert_eq!(ids(&first.rows), meant[..7], "rows of two stores, in one order");
    let second = acquire(&mut queue, 2, 20, NOW);
    let rest: Vec<u64> = expected.iter().copied().filter(|id| !meant[..7].contains(id)).collect();
    assert_eq!(ids(&second.rows), rest[..20]);
    assert_eq!(order(&queue), rest[20..]);
    // One lease is completed with nothing done, the other expires.
    let done = queue.complete_batch(worker(2), &batch(&second.token, &[], &[], 1), (NOW, 10), &mut gone());
    assert_eq!(done, Ok(CompletedBlobDeletions::default()));
    assert_eq!(order(&queue), rest);
    queue.tick(first.expires_at_ns - 1);
    assert_eq!(order(&queue), rest);
    queue.tick(first.expires_at_ns);
    assert_eq!(order(&queue), expected);
}

#[test]
fn failures_under_a_lease_back_off_and_others_do_not() {
    let mut queue = fresh();
    fill(&mut queue, 1);
    let mut now = NOW;
    for secs in [10, 20, 40, 80, 160, 320, 640, 1_280, 2_560, 3_600, 3_600] {
        let lease = acquire(&mut queue, 1, 0, now);
        let failed = queue.complete_batch(worker(1), &batch(&lease.token, &[], &[1], 99), (now, 10), &mut gone());
        assert_eq!(failed.unwrap().retries_incremented, 1);
        assert_eq!((queue.next_event(), queue.pending(u32::MAX, 0, None)), (Some(now + secs * NS), vec![]));
        assert_eq!(queue.acquire(worker(1), &want(0), 0, now + secs * NS - 1), Ok(None));
        now += secs * NS;
    }
    let lease = acquire(&mut queue, 1, 0, now);
    assert_eq!(lease.rows[0].retry_count, 11);
    queue.complete_batch(worker(1), &batch(&lease.token, &[], &[1], 99), (now, 0), &mut gone()).unwrap();
    assert_eq!((queue.pending(u32::MAX, 0, None).len(), queue.next_event()), (1, None), "0: no back-off");
    assert_eq!(complete(&mut queue, &[], &[1], 9).removed, 1, "given up at 9 failures");
    assert_eq!((queue.dead_count(), queue.pending_count()), (1, 0));
    assert_eq!(queue.remove(1, u32::MAX, now, &mut gone()), Ok(true), "no record waits for it");
    assert_eq!(queue.dead_count(), 0);
}

#[test]
fn blob_of_a_record_cannot_be_scheduled_or_held_by_others() {
    let mut queue = fresh();
    let (blob, first, second) = (name(b"blob"), [1; 32], [2; 32]);
    assert_eq!(queue.admits(&blob, &first), Ok(()));
    (0..2).for_each(|_| queue.hold(&blob, &first));
    assert_eq!((queue.admits(&blob, &first), queue.admits(&blob, &second)), (Ok(()), Err(UtxoRefusal::BlobTaken)));
    assert_eq!(queue.schedule(&blob, 1, NOW), Err(BlobDeletionError::HoldsRecord));
    assert_eq!(queue.cancel(&blob, NOW), Err(BlobDeletionError::HoldsRecord));
    assert_eq!((queue.pending_count(), queue.pending(u32::MAX, 0, None)), (0, vec![]));
    assert_eq!(queue.acquire(worker(1), &want(0), 0, NOW), Ok(None));
    assert_eq!(queue.remove(1, u32::MAX, NOW, &mut gone()), Ok(false));
    assert_eq!(queue.increment(1, 1, NOW), Err(BlobDeletionError::NotFound));
    assert_eq!(complete(&mut queue, &[1], &[], 9).skipped, [1]);
    assert_eq!(queue.status().stores[0].held, 1);

    assert_eq!(queue.schedule_record(&blob, 5, &first).unwrap(), (1, false));
    assert_eq!(queue.admits(&blob, &second), Err(UtxoRefusal::BeingDeleted));
    assert_eq!(queue.schedule(&blob, 1, NOW), Err(BlobDeletionError::HoldsRecord));
    assert_eq!(queue.cancel(&blob, NOW), Err(BlobDeletionError::HoldsRecord));
    // Removing a dead-letter row with a record removes neither.
    assert_eq!(queue.increment(1, 0, NOW), Ok(BlobDeletionRetry { should_remove: true, retry_count: 1 }));
    assert_eq!(queue.increment(1, 9, NOW), Ok(BlobDeletionRetry { should_remove: true, retry_count: 1 }), "again");
    let mut ends = gone();
    assert_eq!((queue.remove(1, u32::MAX, NOW, &mut ends), *ends.asked), (Ok(false), 0));
    assert_eq!((queue.cancel(&blob, NOW), queue.dead_count()), (Err(BlobDeletionError::HoldsRecord), 1));
    let mut ends = gone();
    let arg =
        CompleteBlobDeletions { completed_ids: vec![1], failed_ids: vec![], max_retries: 1, ..Default::default() };
    assert_eq!((queue.complete(&arg, NOW, &mut ends).unwrap().removed, *ends.asked), (1, 1));
    assert_eq!(queue.admits(&blob, &second), Ok(()));
}

/// Dead-letter rows as [`DeletionQueue::list`] pages them.
pub struct DeadPage {
    pub rows: Vec<BlobDeletion>,
    pub cursor: Option<u64>,
}

impl DeletionQueue {
    pub(super) fn dead(&self, cursor: Option<u64>, limit: u32) -> DeadPage {
        let state = Some(BlobDeletionState::Dead);
        let page = self.list(&ListBlobDeletions { cursor, limit, state, ..ListBlobDeletions::default() });
        DeadPage { rows: page.rows.into_iter().map(|listed| listed.row).collect(), cursor: page.cursor }
    }
}
