//! Tokens: the reply to each combination of holder, token and time; refused calls change nothing.

use super::*;

/// Returns a queue in which two workers each have a lease of two rows.
fn two() -> (DeletionQueue, BlobDeletionLease, BlobDeletionLease) {
    let mut queue = fresh();
    fill(&mut queue, 5);
    let (first, second) = (acquire(&mut queue, 1, 2, NOW), acquire(&mut queue, 2, 2, NOW + 1));
    assert_eq!((ids(&first.rows), ids(&second.rows)), (vec![1, 2], vec![3, 4]));
    (queue, first, second)
}

/// Returns the queue's rows and status as text.
fn shown(queue: &DeletionQueue) -> String {
    format!("{:?} {:?}", queue.list(&ListBlobDeletions { limit: 1_000, ..Default::default() }), queue.status())
}

fn work(queue: &mut DeletionQueue, who: u8, token: &[u8], completed: &[u64]) -> Result<CompletedBlobDeletions, String> {
    let done = queue.complete_batch(worker(who), &batch(token, completed, &[], 3), (NOW + 2, 10), &mut gone());
    done.map_err(|error| format!("{error:?}"))
}

#[test]
fn wrong_and_foreign_tokens_change_nothing() {
    let (mut queue, first, second) = two();
    let before = shown(&queue);
    let mut other_digest = first.token.to_vec();
    other_digest[39] ^= 1;
    let mut other_number = first.token.to_vec();
    other_number[..8].copy_from_slice(&second.token[..8]);
    let wrong =
        [&[][..], &[0; 40], &first.token[..39], &[&first.token[..], &[0]].concat(), &other_digest, &other_number]
            .map(<[u8]>::to_vec);
    for token in &wrong {
        assert_eq!(work(&mut queue, 1, token, &[1]), Err("UnknownToken".into()), "{token:?}");
        assert_eq!(queue.extend(worker(1), token, 9, NOW), Err(BlobDeletionError::UnknownToken));
    }
    assert_eq!(work(&mut queue, 2, &first.token, &[1]), Err("NotHolder".into()));
    assert_eq!(queue.extend(worker(2), &first.token, 9, NOW), Err(BlobDeletionError::NotHolder));
    assert_eq!(shown(&queue), before);
}

#[test]
fn rows_of_other_leases_are_skipped() {
    let (mut queue, first, second) = two();
    let done = work(&mut queue, 1, &first.token, &[1, 3, 5, 77]).unwrap();
    assert_eq!((done.removed, done.skipped), (1, vec![3, 5, 77]));
    let left: Vec<_> =
        queue.list(&ListBlobDeletions::default()).rows.iter().map(|row| (row.row.id, row.state)).collect();
    use BlobDeletionState::{Leased, Waiting};
    assert_eq!(left, [(2, Waiting), (3, Leased), (4, Leased), (5, Waiting)]);
    assert_eq!(work(&mut queue, 2, &second.token, &[3, 4]).unwrap().removed, 2);
}

#[test]
fn completion_without_a_lease_skips_leased_rows() {
    let (mut queue, ..) = two();
    let before = shown(&queue);
    let done = complete(&mut queue, &[1, 4], &[2, 3], 9);
    assert_eq!(done, CompletedBlobDeletions { skipped: vec![1, 4, 2, 3], ..Default::default() });
    assert_eq!(queue.remove(1, u32::MAX, NOW, &mut gone()), Err(BlobDeletionError::Leased));
    assert_eq!(queue.increment(1, 1, NOW), Err(BlobDeletionError::Leased));
    assert_eq!(queue.cancel(&name(&0u64.to_le_bytes()), NOW), Err(BlobDeletionError::Leased));
    assert_eq!(ids(&queue.pending(u32::MAX, 0, None)), [5]);
    assert_eq!(shown(&queue), before);
}

#[test]
fn repeated_completion_gets_the_same_reply() {
    let (mut queue, first, _) = two();
    let done = work(&mut queue, 1, &first.token, &[1, 9]).unwrap();
    assert_eq!((done.removed, &done.skipped), (1, &vec![9]));
    queue = open();
    let before = shown(&queue);
    for said in [&[1, 9][..], &[2], &[]] {
        assert_eq!(work(&mut queue, 1, &first.token, said), Ok(done.clone()), "whatever the report says");
    }
    assert_eq!(work(&mut queue, 2, &first.token, &[1]), Err("NotHolder".into()));
    assert_eq!(queue.extend(worker(1), &first.token, 9, NOW), Err(BlobDeletionError::Completed));
    assert_eq!(shown(&queue), before);
}

#[test]
fn completion_over_several_messages_ends_with_the_last() {
    let (mut queue, first, _) = two();
    let arg = batch(&first.token, &[1, 2], &[], 3);
    let done = queue.complete_batch(worker(1), &arg, (NOW, 10), &mut Ends { room: 0, ..gone() }).unwrap();
    assert_eq!((done.removed, done.remaining), (1, 1));
    assert_eq!(queue.status().leases[0].rows, 1, "the lease is live");
    let done = work(&mut queue, 1, &first.token, &[1, 2]).unwrap();
    assert_eq!(
        (done.removed, done.remaining, done.already),
        (2, 0, vec![1]),
        "the whole report is sent again; counts are of the lease"
    );
    assert_eq!(queue.status().leases.len(), 1);
}

#[test]
fn expired_lease_is_reported_and_its_rows_are_given_to_others() {
    let (mut queue, first, _) = two();
    let late = first.expires_at_ns;
    assert!(work(&mut queue, 1, &first.token, &[]).is_ok());
    let (mut queue, first, _) = two();
    let token = &first.token;
    let said = |queue: &mut DeletionQueue, now| {
        queue.complete_batch(worker(1), &batch(token, &[1], &[], 3), (now, 10), &mut gone())
    };
    let taken = acquire(&mut queue, 3, 2, late);
    assert_eq!(ids(&taken.rows), [1, 2], "in their old order");
    assert_eq!(said(&mut queue, late), Err(BlobDeletionError::Expired));
    // The clock goes back; the lease stays expired.
    assert_eq!(said(&mut queue, NOW), Err(BlobDeletionError::Expired));
    assert_eq!(queue.extend(worker(1), token, 9, NOW), Err(BlobDeletionError::Expired));
    assert_eq!(queue.extend(worker(2), token, 9, NOW), Err(BlobDeletionError::NotHolder));
    assert_eq!(taken.rows[0].retry_count, 0, "an expiry is not a failure");
    assert_eq!(work(&mut queue, 3, &taken.token, &[1, 2]).unwrap().removed, 2);
}

#[test]
fn stopped_or_backward_clock_gives_no_row_twice() {
    let mut queue = fresh();
    fill(&mut queue, 100);
    let mut given = BTreeSet::new();
    for now in [NOW, NOW, NOW - 1_000 * NS, 0, u64::MAX - 1, NOW] {
        let lease = acquire(&mut queue, 1, 10, now);
        // At the end of time all earlier leases have expired, so their rows may be given again.
        if now == u64::MAX - 1 {
            given.clear();
        }
        assert!(lease.rows.iter().all(|row| given.insert(row.id)), "at {now}");
        assert!(lease.expires_at_ns >= now);
    }
}

#[test]
fn repeated_request_returns_the_live_lease() {
    let mut queue = fresh();
    fill(&mut queue, 9);
    let named = |of: u8| AcquireBlobDeletions { request: Some(ByteBuf::from([of])), ..want(2) };
    let first = queue.acquire(worker(1), &named(1), 0, NOW).unwrap().unwrap();
    assert_eq!(queue.acquire(worker(1), &named(1), 0, NOW + 5), Ok(Some(first.clone())));
    let asked_for_more = AcquireBlobDeletions { limit: 9, height: 1, ..named(1) };
    assert_eq!(queue.acquire(worker(1), &asked_for_more, 0, NOW), Err(BlobDeletionError::OtherRequest));
    let mut queue = open();
    assert_eq!(
        queue.acquire(worker(1), &asked_for_more, 0, NOW),
        Err(BlobDeletionError::OtherRequest),
        "after an upgrade as well"
    );
    // Rows that have left the lease are not given again.
    queue.schedule(&name(&0u64.to_le_bytes()), 50, NOW).unwrap();
    let again = queue.acquire(worker(1), &named(1), 0, NOW).unwrap().unwrap();
    assert_eq!((again.token, ids(&again.rows)), (first.token.clone(), vec![2]));
    let others = [queue.acquire(worker(1), &named(2), 0, NOW), queue.acquire(worker(2), &named(1), 0, NOW)];
    let others = others.map(|lease| ids(&lease.unwrap().unwrap().rows));
    assert_eq!(others, [vec![3, 4], vec![5, 6]]);
    assert!(work(&mut queue, 1, &first.token, &[2]).is_ok());
    assert_eq!(queue.acquire(worker(1), &named(1), 0, NOW), Err(BlobDeletionError::Completed));
    queue.tick(NOW + 300 * NS);
    assert_eq!(queue.acquire(worker(1), &named(2), 0, NOW), Err(BlobDeletionError::Expired));
    queue = open();
    assert_eq!(
        queue.acquire(worker(2), &named(1), 0, NOW),
        Err(BlobDeletionError::Expired),
        "after an upgrade as well"
    );
    assert_eq!(queue.status().leases, [], "no request made a lease");
    // After 256 more ends the request is forgotten.
    queue.schedule(&name(b"again"), 1, NOW).unwrap();
    for _ in 0..256 {
        let lease = acquire(&mut queue, 3, 1, NOW);
        assert_eq!(work(&mut queue, 3, &lease.token, &[]).unwrap().removed, 0);
    }
    assert!(queue.acquire(worker(1), &named(1), 0, NOW).unwrap().is_some());
}

#[test]
fn row_scheduled_anew_leaves_its_lease() {
    let (mut queue, first, _) = two();
    let scheduled = queue.schedule(&name(&1u64.to_le_bytes()), 90, NOW).unwrap();
    assert_eq!(scheduled, ScheduledBlobDeletion { id: 2, was_leased: true });
    assert_eq!(ids(&queue.pending(u32::MAX, 0, None)), [5, 2]);
    let done = work(&mut queue, 1, &first.token, &[1, 2]).unwrap();
    assert_eq!((done.removed, done.skipped), (1, vec![2]), "the old worker's report on the row does not count");
    let again = queue.schedule(&name(&1u64.to_le_bytes()), 1, NOW).unwrap();
    assert_eq!(again, ScheduledBlobDeletion { id: 2, was_leased: false });
    assert_eq!(ids(&queue.pending(u32::MAX, 0, None)), [2, 5]);
}

#[test]
fn leases_are_bounded_and_the_last_ends_are_kept() {
    let mut queue = fresh();
    fill(&mut queue, 300);
    let mut leases: Vec<_> = (0..256u64).map(|i| acquire(&mut queue, 1, 1, NOW + i)).collect();
    let refused = queue.acquire(worker(1), &want(1), 0, NOW);
    assert_eq!(refused, Err(BlobDeletionError::TooManyLeases { limit: 256 }));
    queue = open();
    assert_eq!(queue.acquire(worker(1), &want(1), 0, NOW), refused, "after an upgrade as well");
    for lease in &leases {
        assert_eq!(work(&mut queue, 1, &lease.token, &[lease.rows[0].id]).unwrap().removed, 1);
    }
    assert_eq!(work(&mut queue, 1, &leases[0].token, &[]).unwrap().removed, 1, "256 are known");
    leases.push(acquire(&mut queue, 1, 1, NOW));
    queue.tick(leases[256].expires_at_ns);
    queue = open();
    assert_eq!(work(&mut queue, 1, &leases[256].token, &[]), Err("Expired".into()));
    assert_eq!(work(&mut queue, 1, &leases[0].token, &[]), Err("UnknownToken".into()));
    assert_eq!(work(&mut queue, 1, &leases[1].token, &[]).unwrap().removed, 1);
    let tokens: BTreeSet<_> = leases.iter().map(|lease| lease.token.to_vec()).collect();
    assert_eq!(tokens.len(), leases.len());
    assert!(leases.iter().all(|lease| Token::parse(&lease.token).is_some()));
}
