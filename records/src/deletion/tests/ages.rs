//! Ages of due rows.

use super::*;

const HALF_HOUR: u64 = 1_800 * NS;
const HOUR: u64 = 2 * HALF_HOUR;

/// Returns the half hours since which the oldest row has been due, at a time; the half hour in which it became due does not count.
fn half_hours(queue: &DeletionQueue, now: u64) -> Option<u64> {
    queue.due_since(StoreType::Tx).map(|secs| (now / NS).saturating_sub(secs) / 1_800)
}

/// Notes a height at the beginning of each half hour.
fn pass(queue: &mut DeletionQueue, now: &mut u64, half_hours: u64, due: Option<u32>) {
    for _ in 0..half_hours {
        *now += HALF_HOUR;
        queue.note_due(due, *now);
    }
}

#[test]
fn row_is_as_old_as_its_height_and_its_scheduling_allow() {
    let (mut queue, mut now) = (fresh(), NOW);
    assert_eq!(half_hours(&queue, now), None, "there is no queue");
    queue.note_due(Some(5), now);
    queue.schedule(&name(b"later"), 8, now).unwrap();
    pass(&mut queue, &mut now, 20, Some(7));
    assert_eq!(half_hours(&queue, now), None);
    pass(&mut queue, &mut now, 4, Some(8));
    assert_eq!(half_hours(&queue, now), Some(2), "it is due since the first of four");
    // A row that is due when it is scheduled has its own time, however low its height.
    queue.schedule(&name(b"low"), 0, now).unwrap();
    assert_eq!(half_hours(&queue, now), Some(2));
    assert!(queue.cancel(&name(b"later"), now).unwrap().is_some());
    assert_eq!(half_hours(&queue, now + HOUR), Some(1));
    // A height that falls and rises begins anew.
    queue.schedule(&name(b"next"), 8, now).unwrap();
    queue.cancel(&name(b"low"), now).unwrap().unwrap();
    queue.schedule(&name(b"next"), 9, now).unwrap();
    pass(&mut queue, &mut now, 5, Some(9));
    pass(&mut queue, &mut now, 1, None);
    assert_eq!(half_hours(&queue, now), None);
    pass(&mut queue, &mut now, 3, Some(9));
    assert_eq!(half_hours(&queue, now), Some(1));
    assert_eq!(half_hours(&open(), now), Some(1), "an upgrade changes nothing");
}

/// A thief leases rows and gives none back; a worker fails; a worker puts its rows back.
#[test]
fn leases_failures_and_returns_make_no_row_younger() {
    let (mut queue, mut now) = (fresh(), NOW);
    fill(&mut queue, 4);
    queue.note_due(Some(9), now);
    let mut last = 0;
    for round in 0..40 {
        pass(&mut queue, &mut now, 1, Some(9));
        let lease = acquire(&mut queue, 1, 2, now);
        match round % 3 {
            0 => {}
            1 => {
                let failed = batch(&lease.token, &[], &ids(&lease.rows), 1_000);
                queue.complete_batch(worker(1), &failed, (now, 10), &mut gone()).unwrap();
            }
            _ => {
                let back = batch(&lease.token, &[], &[], 9);
                queue.complete_batch(worker(1), &back, (now, 10), &mut gone()).unwrap();
            }
        }
        let age = half_hours(&queue, now).unwrap();
        assert!(age >= last && age <= round, "round {round}: {age}");
        last = age;
    }
    assert!(last > 12, "{last}");
    // The row that is left is as old as the others.
    now += 2 * HOUR;
    queue.tick(now);
    complete(&mut queue, &[1, 2, 4], &[], 9);
    assert!(half_hours(&queue, now).unwrap() > 12);
    complete(&mut queue, &[3], &[], 9);
    assert_eq!(half_hours(&queue, now), None);
}

#[test]
fn dead_row_has_no_age_and_a_retried_one_is_new() {
    let (mut queue, mut now) = (fresh(), NOW);
    fill(&mut queue, 1);
    pass(&mut queue, &mut now, 20, Some(9));
    assert!(queue.increment(1, 1, now).unwrap().should_remove);
    assert_eq!(half_hours(&queue, now), None);
    assert_eq!(queue.retry(&RetryBlobDeletions::Ids(vec![1]), now).unwrap().retried, 1);
    assert_eq!(half_hours(&queue, now + HOUR), Some(1));
}

/// Ages of a month, one row each half hour: rows of the last six hours are exact, and no older one appears younger.
#[test]
fn many_half_hours_are_merged_and_the_last_are_exact() {
    let (mut queue, mut now) = (fresh(), NOW);
    for of in 0..1_500u64 {
        queue.note_due(Some(9), now);
        queue.schedule(&name(&of.to_le_bytes()), 9, now).unwrap();
        now += HALF_HOUR;
    }
    now -= HALF_HOUR;
    let store = queue.store.as_ref().unwrap();
    assert_eq!(Ages::load(&store.slots).unwrap(), store.ages);
    // The oldest rows go first: each time the age is that of the oldest left, or of an older one.
    for gone in 1..1_500u64 {
        complete(&mut queue, &[gone], &[], 9);
        let (age, real) = (half_hours(&queue, now + HALF_HOUR).unwrap(), 1_499 - gone);
        assert!(age >= real, "{gone}: {age}, {real}");
        assert!(if real <= 12 { age == real } else { age <= 3 * real }, "{gone}: {age}, {real}");
    }
}

#[test]
fn clock_that_goes_back_makes_no_new_half_hour() {
    let (mut queue, mut now) = (fresh(), NOW);
    fill(&mut queue, 1);
    pass(&mut queue, &mut now, 5, Some(9));
    let before = queue.due_since(StoreType::Tx);
    for back in [HOUR, 1_000 * HOUR, NOW] {
        queue.note_due(Some(9), now - back);
        queue.tick(now - back);
    }
    assert_eq!(queue.due_since(StoreType::Tx), before);
}
