//! Tests of sweeps.

use super::super::pool::PAGE_BUCKETS;
use super::super::{Change, HashTable, Slice, TableStats};
use super::{audit, fresh, reopen};
use crate::fixture::histories;
use crate::twin::Twin;
use proptest::prelude::*;
use std::collections::BTreeMap;

/// Walks to the end, and returns the numbers of slices, of dropped and of late entries.
fn walk(table: &mut HashTable<Twin>, bound: u64, first_bound: u64) -> (u64, u64, u64) {
    let (mut from, mut slices, mut dropped, mut late) = (Some(0), 0, 0, 0);
    while let Some(at) = from {
        let slice = table.sweep(at, bound, first_bound);
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
    assert_eq!(table.sweep(buckets, u64::MAX, 0), Slice { next: None, dropped: 0, late: 0 });
    audit(&table);
    let (slices, dropped, _) = walk(&mut table, u64::MAX, 0);
    assert_eq!(dropped, n - n / 9);
    assert!(slices <= 2 * buckets.div_ceil(PAGE_BUCKETS), "{slices} slices");
    assert_eq!(table.stats(), TableStats { entries: 0, overflow_buckets: 0, buckets: PAGE_BUCKETS });
    assert_eq!(table.sweep(0, u64::MAX, 0), Slice { next: None, dropped: 0, late: 0 });
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
                0..=4 => prop_assert_eq!(table.put(hash, clock).unwrap(), model.insert(hash, clock)),
                5 => {
                    table.change(hash, |_| Change::Out);
                    model.remove(&hash);
                }
                6 => {
                    let (from, first) = walk.unwrap_or((0, clock.saturating_sub(random % 400)));
                    let bound = (first + random % 16).min(clock);
                    let slice = table.sweep(from, bound, first);
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
