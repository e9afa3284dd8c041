//! Ends of rows and leases: rows of unknown fate, the rest, limits of holders, dead-letter rows.

use super::super::header::Counter;
use super::*;

fn lists(token: &[u8], completed: &[u64], failed: &[u64], unknown: &[u64]) -> CompleteBlobDeletionBatch {
    CompleteBlobDeletionBatch { unknown_ids: Some(unknown.to_vec()), ..batch(token, completed, failed, 9) }
}

fn states(queue: &DeletionQueue) -> Vec<(u64, BlobDeletionState)> {
    queue.list(&ListBlobDeletions::default()).rows.iter().map(|row| (row.row.id, row.state)).collect()
}

#[test]
fn rows_of_unknown_fate_stay_leased_until_the_lease_expires() {
    use BlobDeletionState::{BackingOff, Leased, Waiting};
    let mut queue = fresh();
    fill(&mut queue, 5);
    let lease = acquire(&mut queue, 1, 4, NOW);
    let arg = lists(&lease.token, &[1], &[3], &[4]);
    let done = queue.complete_batch(worker(1), &arg, (NOW, 10), &mut gone()).unwrap();
    assert_eq!((done.removed, done.retries_incremented, &done.skipped), (1, 1, &vec![]));
    queue = open();
    assert_eq!(states(&queue), [(2, Waiting), (3, BackingOff), (4, Leased), (5, Waiting)]);
    let late = lease.expires_at_ns - 1;
    assert_eq!(queue.cancel(&name(&3u64.to_le_bytes()), late), Err(BlobDeletionError::Leased));
    assert_eq!(queue.remove(4, u32::MAX, late, &mut gone()), Err(BlobDeletionError::Leased));
    assert!(!ids(&queue.pending(u32::MAX, 0, None)).contains(&4));
    assert_eq!(queue.complete_batch(worker(1), &arg, (late, 10), &mut gone()), Ok(done), "the lease has ended");
    assert_eq!(queue.extend(worker(1), &lease.token, 300, late), Err(BlobDeletionError::Completed));
    let shown = queue.status().leases;
    assert_eq!((shown.len(), shown[0].rows, shown[0].over, shown[0].ended), (1, 1, false, true));
    queue.tick(lease.expires_at_ns);
    assert_eq!(states(&queue)[2], (4, Waiting));
    let row = &queue.list(&ListBlobDeletions::default()).rows[2].row;
    assert_eq!((row.retry_count, queue.status().leases.len()), (0, 0));
    let counters = queue.store.as_ref().unwrap().root.counters;
    let of = [Counter::Unknown, Counter::Expired, Counter::Completed];
    assert_eq!(of.map(|of| counters[of as usize]), [1, 0, 1]);
}

#[test]
fn row_of_unknown_fate_leaves_its_lease_when_scheduled_anew() {
    let mut queue = fresh();
    fill(&mut queue, 1);
    let lease = acquire(&mut queue, 1, 1, NOW);
    queue.complete_batch(worker(1), &lists(&lease.token, &[], &[], &[1]), (NOW, 10), &mut gone()).unwrap();
    let again = queue.schedule(&name(&0u64.to_le_bytes()), 9, NOW).unwrap();
    assert_eq!(again, ScheduledBlobDeletion { id: 1, was_leased: true });
    assert_eq!((queue.status().leases.len(), queue.next_event()), (0, None));
}

#[test]
fn rest_completes_all_rows_that_no_list_names() {
    let mut queue = fresh();
    fill(&mut queue, 6);
    let lease = acquire(&mut queue, 1, 6, NOW);
    queue.schedule(&name(&5u64.to_le_bytes()), 9, NOW).unwrap();
    let rest = Some(BlobDeletionRest::Completed);
    let arg = CompleteBlobDeletionBatch { rest, ..lists(&lease.token, &[], &[2], &[3]) };
    let done = queue.complete_batch(worker(1), &arg, (NOW, 10), &mut Ends { room: 1, ..gone() }).unwrap();
    assert_eq!((done.removed, done.retries_incremented, done.remaining), (0, 1, 3));
    let done = queue.complete_batch(worker(1), &arg, (NOW, 10), &mut Ends { room: 1, ..gone() }).unwrap();
    assert_eq!((done.removed, done.remaining, &done.already), (1, 2, &vec![2]));
    let done = queue.complete_batch(worker(1), &arg, (NOW, 10), &mut gone()).unwrap();
    assert_eq!((done.removed, done.retries_incremented, done.remaining, &done.already), (3, 1, 0, &vec![2]));
    assert_eq!(states(&queue).iter().map(|(id, _)| *id).collect::<Vec<_>>(), [2, 3, 6]);
    assert_eq!(queue.complete_batch(worker(1), &arg, (NOW, 10), &mut gone()), Ok(done));
}

#[test]
fn rows_done_already_are_distinguished_from_skipped_rows() {
    let mut queue = fresh();
    fill(&mut queue, 8);
    assert_eq!(complete(&mut queue, &[8], &[], 9).removed, 1);
    let lease = acquire(&mut queue, 1, 4, NOW);
    let other = acquire(&mut queue, 2, 1, NOW);
    let said = batch(&lease.token, &[1], &[2], 9);
    let first = queue.complete_batch(worker(1), &said, (NOW, 10), &mut Ends { room: 0, ..gone() }).unwrap();
    assert_eq!((first.removed, first.remaining), (1, 1));
    queue.schedule(&name(&3u64.to_le_bytes()), 90, NOW).unwrap();
    let said = batch(&lease.token, &[1, 3, 4, 5, 6, 8, 9, 0], &[2], 9);
    let done = queue.complete_batch(worker(1), &said, (NOW, 10), &mut gone()).unwrap();
    assert_eq!((&done.already, &done.skipped), (&vec![1, 8], &vec![4, 5, 6, 9, 0]));
    assert_eq!((done.removed, done.retries_incremented), (2, 1), "counts of the whole lease");
    assert_eq!(ids(&other.rows), [5]);
    let without = complete(&mut queue, &[1, 5, 77, 0], &[2], 9);
    assert_eq!((without.already, without.skipped, without.retries_incremented), (vec![1], vec![5, 77, 0], 1));
}

#[test]
fn row_that_failed_last_under_the_lease_is_done_already() {
    let mut queue = fresh();
    fill(&mut queue, 3);
    let lease = acquire(&mut queue, 1, 3, NOW);
    let said = batch(&lease.token, &[], &[1, 2], 1);
    let once = queue.complete_batch(worker(1), &said, (NOW, 10), &mut Ends { room: 0, ..gone() }).unwrap();
    assert_eq!((once.dead, once.remaining), (1, 1));
    let again = queue.complete_batch(worker(1), &said, (NOW, 10), &mut gone()).unwrap();
    assert_eq!((again.dead, again.already, again.skipped), (2, vec![1], vec![]));
}

#[test]
fn row_above_the_workers_height_is_skipped() {
    let mut queue = fresh();
    fill(&mut queue, 3);
    queue.schedule(&name(&1u64.to_le_bytes()), 500, NOW).unwrap();
    let arg =
        CompleteBlobDeletions { completed_ids: vec![1, 2], failed_ids: vec![3], max_retries: 9, up_to_height: Some(1) };
    let done = queue.complete(&arg, NOW, &mut gone()).unwrap();
    assert_eq!((done.removed, done.retries_incremented, done.skipped), (1, 0, vec![2, 3]));
    assert_eq!(queue.remove(2, 499, NOW, &mut gone()), Ok(false));
    assert_eq!(queue.remove(2, 500, NOW, &mut gone()), Ok(true));
}

#[test]
fn leases_are_limited_per_holder() {
    let mut queue = fresh();
    fill(&mut queue, 100);
    queue.limits = Limits { leases: 2, ..Limits::default() };
    let leases = [acquire(&mut queue, 1, 1, NOW), acquire(&mut queue, 1, 1, NOW)];
    let full = Err(BlobDeletionError::TooManyLeases { limit: 2 });
    assert_eq!(queue.acquire(worker(1), &want(1), 0, NOW), full);
    assert_eq!(acquire(&mut queue, 2, 1, NOW).rows.len(), 1);
    assert_eq!(queue.idle_holder(), Some((worker(1), NOW)));
    // A lease with rows of unknown fate counts until it expires.
    queue.complete_batch(worker(1), &lists(&leases[0].token, &[], &[], &[1]), (NOW + 5, 10), &mut gone()).unwrap();
    assert_eq!(queue.acquire(worker(1), &want(1), 0, NOW), full);
    assert_eq!(queue.idle_holder(), Some((worker(1), NOW + 5)), "the holder completed a lease at that time");
    queue.complete_batch(worker(1), &batch(&leases[1].token, &[2], &[], 1), (NOW, 10), &mut gone()).unwrap();
    assert_eq!(queue.idle_holder(), None);
    assert!(queue.acquire(worker(1), &want(1), 0, NOW).unwrap().is_some());
}

#[test]
fn leases_ended_by_an_operator_return_rows_after_a_quarter_of_their_length() {
    let mut queue = fresh();
    fill(&mut queue, 3);
    assert_eq!(queue.end_leases(Some(worker(1)), NOW), 0);
    let request = Some(ByteBuf::from([1]));
    let hours = AcquireBlobDeletions { lock_timeout_secs: 43_200, request: request.clone(), ..want(1) };
    let long = queue.acquire(worker(1), &hours, 0, NOW).unwrap().unwrap();
    let short = acquire(&mut queue, 1, 1, NOW);
    acquire(&mut queue, 2, 1, NOW);
    let now = short.expires_at_ns - 10 * NS;
    assert_eq!((queue.end_leases(Some(worker(1)), now), queue.end_leases(Some(worker(1)), now)), (2, 0));
    queue = open();
    for token in [&long.token, &short.token] {
        let said = batch(token, &[1, 2], &[], 1);
        assert_eq!(queue.complete_batch(worker(1), &said, (now, 10), &mut gone()), Err(BlobDeletionError::Expired));
    }
    assert_eq!(queue.acquire(worker(1), &hours, 0, now), Err(BlobDeletionError::Expired));
    assert_eq!(queue.cancel(&name(&0u64.to_le_bytes()), now), Err(BlobDeletionError::Leased));
    queue.tick(short.expires_at_ns);
    assert_eq!(ids(&queue.pending(u32::MAX, 0, None)), [2, 3], "the lease would have expired before");
    queue.tick(now + 10_800 * NS - 1);
    assert_eq!(ids(&queue.pending(u32::MAX, 0, None)), [2, 3]);
    queue.tick(now + 10_800 * NS);
    assert_eq!(ids(&queue.pending(u32::MAX, 0, None)), [1, 2, 3]);
    let counters = queue.store.as_ref().unwrap().root.counters;
    assert_eq!([Counter::Ended, Counter::Expired].map(|of| counters[of as usize]), [2, 1], "worker 2's expired");
}

#[test]
fn row_is_given_up_at_the_larger_of_setting_and_workers_limit() {
    let mut queue = fresh();
    fill(&mut queue, 1);
    queue.limits = Limits { least_retries: 3, ..Limits::default() };
    assert!(!queue.increment(1, 1, NOW).unwrap().should_remove);
    let lease = acquire(&mut queue, 1, 1, NOW);
    let said = batch(&lease.token, &[], &[1], 0);
    assert_eq!(queue.complete_batch(worker(1), &said, (NOW, 0), &mut gone()).unwrap().dead, 0);
    let arg = CompleteBlobDeletions { failed_ids: vec![1], max_retries: 4, ..Default::default() };
    assert_eq!(queue.complete(&arg, NOW, &mut gone()).unwrap().dead, 0, "the worker's limit is four");
    assert_eq!(queue.increment(1, 1, NOW), Ok(BlobDeletionRetry { should_remove: true, retry_count: 4 }));
}

#[test]
fn dead_letters_above_the_setting_are_dropped_except_those_with_records() {
    let mut queue = fresh();
    let record = name(b"record");
    queue.schedule_record(&record, 0, &[7; 32]).unwrap();
    fill(&mut queue, 6);
    queue.limits = Limits { dead: 2, ..Limits::default() };
    assert_eq!(complete(&mut queue, &[], &[1], 9).dead, 0);
    let arg = CompleteBlobDeletions { failed_ids: vec![1, 4, 3, 6, 2], max_retries: 1, ..Default::default() };
    assert_eq!(queue.complete(&arg, NOW, &mut gone()).unwrap().dead, 5);
    assert_eq!(ids(&queue.dead(None, 0).rows), [1, 4, 6], "row 1 has a record");
    queue = open();
    queue.limits = Limits { dead: 0, ..Limits::default() };
    queue.tick(NOW);
    assert_eq!((ids(&queue.dead(None, 0).rows), queue.dead_count()), (vec![1], 1));
    assert_eq!(queue.store.as_ref().unwrap().root.counters[Counter::Dropped as usize], 4);
}

#[test]
fn dead_letters_are_retried_by_store_or_by_numbers() {
    let mut queue = fresh();
    for i in 0..6u64 {
        let store_type = if i < 4 { StoreType::Temp } else { StoreType::Block };
        queue.schedule(&Name { key: &[i as u8], file_type: "dat", store_type }, 1, NOW).unwrap();
    }
    let all: Vec<u64> = (1..=6).collect();
    let arg = CompleteBlobDeletions { failed_ids: all, max_retries: 1, ..Default::default() };
    assert_eq!(queue.complete(&arg, NOW, &mut gone()).unwrap().dead, 6);
    let page = queue.dead(None, 4);
    assert_eq!((ids(&page.rows), page.cursor), (vec![1, 2, 3, 4], Some(5)));
    assert_eq!(ids(&queue.dead(page.cursor, 4).rows), [5, 6]);
    let retry = |queue: &mut DeletionQueue, which| queue.retry(&which, NOW);
    let done = retry(&mut queue, RetryBlobDeletions::StoreType(StoreType::Temp)).unwrap();
    assert_eq!((done.retried, done.remaining), (4, 0));
    let done = retry(&mut queue, RetryBlobDeletions::Ids(vec![5, 5, 1, 99])).unwrap();
    assert_eq!((done.retried, done.skipped), (1, vec![5, 1, 99]));
    assert_eq!(ids(&queue.dead(None, 0).rows), [6]);
    assert_eq!(queue.pending(u32::MAX, 0, None).iter().map(|row| row.retry_count).sum::<u32>(), 0);
    let many = retry(&mut queue, RetryBlobDeletions::Ids(vec![1; 10_001]));
    assert_eq!(many, Err(BlobDeletionError::TooMany { limit: 10_000 }));
}
