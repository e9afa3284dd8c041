//! Maximum sizes: pages that a message touches, and bytes of a reply.

use super::*;
use candid::Encode;
use ic_coppice_storage::twin::Touched;

/// Pages of 75 MiB, above which the platform slows a canister down.
const MOST_DIRTIED: usize = (75 << 20) / 4_096;
/// Maximum bytes of a reply.
const MOST_BYTES: usize = 3 << 19;

fn within(touched: &Touched) {
    assert!(touched.dirtied.len() < MOST_DIRTIED, "{} pages dirtied", touched.dirtied.len());
}

#[test]
fn a_thousand_rows_with_the_longest_names_fit_in_a_reply() {
    let mut queue = fresh();
    for i in 0..1_000u32 {
        let mut key = [7; 1_024];
        key[..4].copy_from_slice(&i.to_le_bytes());
        let name = Name { key: &key, file_type: &"t".repeat(32), store_type: StoreType::PeerRegistry };
        queue.schedule_record(&name, u32::MAX, &[9; 32]).unwrap();
    }
    let pending = queue.pending(u32::MAX, 1_000, None);
    assert_eq!(pending.len(), 1_000);
    assert!(Encode!(&pending).unwrap().len() < MOST_BYTES);
    let list = queue.list(&ListBlobDeletions { limit: 5_000, ..Default::default() });
    assert_eq!(list.rows.len(), 1_000);
    assert!(Encode!(&list).unwrap().len() < MOST_BYTES);
    let (lease, touched) = twin::touching(|| acquire(&mut queue, 1, 1_000, NOW));
    within(&touched);
    assert_eq!(lease.rows, pending);
    assert!(Encode!(&Ok::<_, BlobDeletionError>(Some(lease.clone()))).unwrap().len() < MOST_BYTES);
    let failed = ids(&lease.rows);
    let fail = || queue.complete_batch(worker(1), &batch(&lease.token, &[], &failed, 1), (NOW, 10), &mut gone());
    let (done, touched) = twin::touching(fail);
    within(&touched);
    assert_eq!(done.unwrap().dead, 1_000);
    let state = Some(BlobDeletionState::Dead);
    let dead = queue.list(&ListBlobDeletions { limit: 1_000, state, ..ListBlobDeletions::default() });
    assert_eq!(dead.rows.len(), 1_000);
    assert!(Encode!(&dead).unwrap().len() < MOST_BYTES);
}

/// Rows of random heights are far apart in their treap, so each row's return touches separate pages.
fn expire(heights: impl Fn(u64) -> u32) -> (usize, usize) {
    let mut queue = fresh();
    for i in 0..256_000u64 {
        queue.schedule(&name(&i.to_le_bytes()), heights(i), NOW).unwrap();
    }
    let before = queue.pending(u32::MAX, 1_000, None);
    for i in 0..256 {
        assert_eq!(acquire(&mut queue, 1, 1_000, NOW + i).rows.len(), 1_000);
    }
    let end = NOW + 301 * NS;
    let (mut ticks, mut most) = (0, 0);
    while queue.next_event().is_some() {
        let waiting = queue.pending_count();
        let ((), touched) = twin::touching(|| queue.tick(end));
        within(&touched);
        most = most.max(touched.dirtied.len());
        ticks += 1;
        assert!(ticks < 100, "no end: {waiting}");
        let status = queue.status();
        assert!(status.leases.iter().all(|lease| lease.over), "the first message ends all leases");
    }
    let status = queue.status();
    assert_eq!(
        (status.leases.len(), status.stores[0].waiting, queue.pending(u32::MAX, 1_000, None)),
        (0, 256_000, before)
    );
    (ticks, most)
}

#[test]
fn rows_of_leases_that_expire_at_once_return_within_message_bounds() {
    let (ticks, most) = expire(|i| i as u32);
    assert!(ticks <= 3, "{ticks} ticks, {most} pages");
    let (ticks, most) = expire(|i| (i.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32) as u32);
    assert!(ticks <= 3, "{ticks} ticks, {most} pages");
}

/// While many rows return, each call is served in its own message, and no row is given twice.
#[test]
fn calls_are_served_while_rows_return() {
    let mut queue = fresh();
    for i in 0..40_000u64 {
        queue.schedule(&name(&i.to_le_bytes()), (i.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32) as u32, NOW).unwrap();
    }
    let first: Vec<_> = (0..40).map(|_| acquire(&mut queue, 1, 1_000, NOW)).collect();
    let late = NOW + 300 * NS;
    let mut given = BTreeSet::new();
    while given.len() < 40_000 {
        let (lease, touched) = twin::touching(|| queue.acquire(worker(2), &want(1_000), 0, late).unwrap());
        within(&touched);
        assert!(touched.dirtied.len() < 12_000, "{} pages", touched.dirtied.len());
        let Some(lease) = lease else { continue };
        assert!(lease.rows.iter().all(|row| given.insert(row.id)), "a row was given twice");
        assert!(lease.rows.is_sorted_by_key(|row| (row.delete_at_height, row.id)));
    }
    let said = batch(&first[0].token, &ids(&first[0].rows), &[], 1);
    assert_eq!(queue.complete_batch(worker(1), &said, (late, 0), &mut gone()), Err(BlobDeletionError::Expired));
}
