//! Tests of sweeps.

use super::super::pool::PAGE_BUCKETS;
use super::super::{Change, HashTable, Slice, TableStats};
use super::{audit, fresh, reopen};
use crate::testing::histories;
use crate::twin::{self, Twin};
use crate::{Counting, Meter, changed_pages};
use proptest::prelude::*;
use std::collections::BTreeMap;

/// Walks to the end, and returns the numbers of slices, of dropped and of late entries.
fn walk(table: &mut HashTable<Twin>, bound: u64, first_bound: u64) -> (u64, u64, u64) {
    let (mut from, mut slices, mut dropped, mut late) = (Some(0), 0, 0, 0);
    while let Some(at) = from {
        let slice = table.sweep(at, bound, first_bound, Meter::unlimited());
        (slices, dropped, late) = (slices + 1, dropped + slice.dropped, late + slice.late);
        from = slice.next;
    }
    (slices, dropped, late)
}

#[test]
fn walk_drops_stale_entries_only() {
    let mut table = fresh();
    let n = 50_000u64;
    let hash = |table: &HashTable<Twin>, i: u64| table.hash(&i.to_le_bytes());
    for i in 0..n {
        table.put(hash(&table, i), i).unwrap();
    }
    let TableStats { buckets, .. } = table.stats();
    assert_eq!(walk(&mut table, n / 9, n / 18), (buckets.div_ceil(PAGE_BUCKETS), n / 9, n / 9 - n / 18));
    assert_eq!(table.stats().buckets, buckets, "not sparse");
    for i in 0..n {
        assert_eq!(table.get(hash(&table, i)), (i >= n / 9).then_some(i));
    }
    assert_eq!(table.sweep(buckets, u64::MAX, 0, Meter::unlimited()), Slice::default());
    audit(&table);
    let (slices, dropped, _) = walk(&mut table, u64::MAX, 0);
    assert_eq!(dropped, n - n / 9);
    assert!(slices <= 2 * buckets.div_ceil(PAGE_BUCKETS), "{slices} slices");
    assert_eq!(table.stats(), TableStats { entries: 0, overflow_buckets: 0, buckets: PAGE_BUCKETS });
    let nothing = table.sweep(0, u64::MAX, 0, Meter::unlimited());
    assert_eq!((nothing.next, nothing.dropped, nothing.late), (None, 0, 0));
    audit(&table);
}

/// A table with `n` entries, the first tenth of which are stale below the returned bound.
fn tenth(n: u64) -> (HashTable<Twin>, u64) {
    let mut table = fresh();
    for i in 0..n {
        table.put(table.hash(&i.to_le_bytes()), i).unwrap();
    }
    (table, n / 10)
}

/// Walks to the end in messages of `room` pages, and returns the number of messages and of dropped entries. Asserts that the count of
/// changed pages is true, and that a message stays within its room unless it only makes one change.
fn walk_in_messages(table: &mut HashTable<Twin>, bound: u64, room: u64) -> (u64, u64) {
    let (mut from, mut messages, mut dropped) = (Some(0), 0, 0);
    while let Some(mut at) = from {
        messages += 1;
        let _counting = Counting::begin();
        let (_, touched) = twin::touching(|| {
            loop {
                let slice = table.sweep(at, bound, bound, Meter::new(u64::MAX, room));
                dropped += slice.dropped;
                let is_full = slice.next == Some(at);
                from = slice.next;
                match from {
                    Some(next) if !is_full => at = next,
                    _ => break,
                }
            }
        });
        let (changed, written) = (changed_pages(), touched.dirtied.len() as u64);
        assert!(written == changed && changed <= room.max(15), "{written} written, {changed} counted, {room} allowed");
    }
    (messages, dropped)
}

#[test]
fn messages_of_a_sweep_stay_within_any_room_and_miss_nothing() {
    for room in [0, 1, 2, 3, 15, 16, 17, 100, 1_000, u64::MAX] {
        let (mut table, bound) = tenth(40_000);
        let buckets = table.stats().buckets;
        let (messages, dropped) = walk_in_messages(&mut table, bound, room);
        assert_eq!(dropped, bound, "a room of {room}");
        let pages = buckets / 8;
        let most = if room < 100 { buckets } else { pages.div_ceil(room - 20) + 1 };
        assert!((pages.div_ceil(room.max(2))..=most).contains(&messages), "{messages} messages for a room of {room}");
        audit(&table);
        // A table that becomes empty also undoes its splits.
        assert_eq!(walk_in_messages(&mut table, u64::MAX, room.max(40)).1, 40_000 - bound);
        assert_eq!(table.stats(), TableStats { entries: 0, overflow_buckets: 0, buckets: PAGE_BUCKETS });
        audit(&table);
    }
}

#[test]
fn chain_longer_than_the_room_is_swept_as_the_first_change_only() {
    let mut table = fresh();
    // Bucket 5 has hundreds of overflow buckets, and bucket 4 an entry.
    let hashes = (0..10_000u64).map(|i| i << 32 | 5);
    for hash in hashes {
        table.put(hash, 1).unwrap();
    }
    table.put(4, 1).unwrap();
    let overflow = table.stats().overflow_buckets;
    assert!(overflow > 100, "{overflow}");
    let counting = Counting::begin();
    let first = table.sweep(0, 2, 2, Meter::new(u64::MAX, 50));
    assert_eq!((first.next, first.dropped), (Some(5), 1), "the chain does not fit after a change");
    assert_eq!(
        table.sweep(5, 2, 2, Meter::new(u64::MAX, 50)),
        Slice { next: Some(5), read: first.read - 1, ..Slice::default() },
        "still not"
    );
    drop(counting);
    let _counting = Counting::begin();
    let slice = table.sweep(5, 2, 2, Meter::new(u64::MAX, 0));
    assert!(slice.dropped >= 28 * u64::from(overflow as u32), "{slice:?}");
    assert!(slice.read >= u64::from(overflow as u32), "{slice:?}");
    assert_eq!(table.stats().entries, 0);
    audit(&table);
}

proptest! {
    #![proptest_config(histories(64))]
    /// Entries are added, changed and removed during a walk, with long and short chains, while the table shrinks and grows, reopened in
    /// between. The bound rises during the walk. Entries that are not stale are kept, and at the end of the walk no entry is left that was
    /// stale when it began.
    #[test]
    fn a_walk_among_changes_agrees_with_a_map(
        narrow in any::<bool>(),
        steps in prop::collection::vec((0u8..9, any::<u64>()), 1..2000),
    ) {
        let mut table = fresh();
        let mut model: BTreeMap<u64, u64> = BTreeMap::new();
        let (mut clock, mut walk) = (0u64, None);
        // Enough entries for walks of several slices.
        for hash in (0..20_000 * u64::from(!narrow)).step_by(2) {
            clock += 1;
            table.put(hash, clock).unwrap();
            model.insert(hash, clock);
        }
        for (kind, random) in steps {
            let hash = if narrow { random % 97 * 128 } else { random % 20_000 };
            clock += 1;
            match kind {
                0..=4 => {
                    let counting = Counting::begin();
                    let (put, touched) = twin::touching(|| table.put(hash, clock).unwrap());
                    prop_assert_eq!(touched.dirtied.len() as u64, changed_pages());
                    drop(counting);
                    prop_assert_eq!(put, model.insert(hash, clock));
                }
                5 => {
                    let counting = Counting::begin();
                    let (_, touched) = twin::touching(|| table.change(hash, |_| Change::Out));
                    prop_assert_eq!(touched.dirtied.len() as u64, changed_pages());
                    drop(counting);
                    model.remove(&hash);
                }
                6 => {
                    let (from, first) = walk.unwrap_or((0, clock.saturating_sub(random % 400)));
                    let bound = (first + random % 16).min(clock);
                    let room = [0, 1, random % 64, u64::MAX][(random / 64 % 4) as usize];
                    let counting = Counting::begin();
                    let (slice, touched) = twin::touching(|| table.sweep(from, bound, first, Meter::new(u64::MAX, room)));
                    prop_assert_eq!(touched.dirtied.len() as u64, changed_pages());
                    drop(counting);
                    // The table may drop a stale entry at any time, but no other entry.
                    let (mut dropped, mut late) = (0, 0);
                    model.retain(|&hash, &mut value| {
                        let keeps = value >= bound || table.get(hash).is_some();
                        dropped += u64::from(!keeps);
                        late += u64::from(!keeps && value >= first);
                        keeps
                    });
                    prop_assert_eq!((slice.dropped, slice.late), (dropped, late));
                    walk = slice.next.map(|next| (next, first));
                    if walk.is_none() {
                        prop_assert!(model.values().all(|&value| value >= first), "a stale entry was missed");
                    }
                }
                7 if random % 16 == 0 => {
                    for hash in (0..3_000).map(|near| if narrow { near % 97 * 128 } else { hash + near }) {
                        clock += 1;
                        prop_assert_eq!(table.put(hash, clock).unwrap(), model.insert(hash, clock));
                    }
                }
                _ if random % 8 == 0 => {
                    audit(&table);
                    table = reopen(table);
                }
                _ => {}
            }
        }
        audit(&table);
        prop_assert_eq!(table.stats().entries, model.len() as u64);
        for (&hash, &value) in &model {
            prop_assert_eq!(table.get(hash), Some(value));
        }
    }
}
