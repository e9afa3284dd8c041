//! Tests of a table against models, and of its memory.

mod audit;
mod memory;
mod sweep;

use super::*;
use crate::arena::GRANULE;
use crate::testing;
use crate::twin::Twin;
use audit::audit;
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};

const OWNER: Owner = testing::UPLOAD;

fn open() -> HashTable<Twin> {
    HashTable::open(testing::space(testing::INDEX), testing::arena(), OWNER, HashKey::of([1; 16])).unwrap()
}

/// Opens the table again, as an upgrade does.
fn reopen(table: HashTable<Twin>) -> HashTable<Twin> {
    drop(table);
    testing::forget();
    open()
}

fn fresh() -> HashTable<Twin> {
    testing::fresh();
    open()
}

fn values(table: &HashTable<Twin>, hash: u64) -> BTreeSet<u64> {
    let mut values = BTreeSet::new();
    let end: Option<()> = table.find(hash, |value| {
        assert!(values.insert(value), "{value} twice");
        None
    });
    assert_eq!(end, None);
    values
}

#[test]
fn hundred_thousand_entries_are_found_and_removed() {
    let mut table = fresh();
    let n = 100_000u64;
    let hash = |table: &HashTable<Twin>, i: u64| table.hash(&i.to_le_bytes());
    for i in 0..n {
        table.insert(hash(&table, i), i).unwrap();
    }
    let stats = table.stats();
    assert_eq!(stats.entries, n);
    assert!(stats.overflow_buckets * 5 < stats.buckets, "{stats:?}");
    for i in 0..n {
        assert_eq!(values(&table, hash(&table, i)), BTreeSet::from([i]));
    }
    assert_eq!(values(&table, hash(&table, n)), BTreeSet::new());
    for i in 0..n {
        assert!(table.remove(hash(&table, i), i));
        assert!(!table.remove(hash(&table, i), i));
    }
    assert_eq!(table.stats(), TableStats { entries: 0, overflow_buckets: 0, buckets: PAGE_BUCKETS });
    audit(&table);
}

#[test]
fn moving_window_of_entries_does_not_grow_memory() {
    let mut table = fresh();
    let hash = |table: &HashTable<Twin>, i: u64| table.hash(&i.to_le_bytes());
    let (window, mut pages) = (20_000u64, 0);
    for i in 0..10 * window {
        table.insert(hash(&table, i), i).unwrap();
        if i >= window {
            assert!(table.remove(hash(&table, i - window), i - window));
        }
        if i == 5 * window {
            pages = table.pool.arena.kept_bytes(OWNER) / GRANULE;
        }
    }
    audit(&table);
    // Overflow needs a page more or less.
    let now = table.pool.arena.kept_bytes(OWNER) / GRANULE;
    assert!(now <= pages + 1, "{now} pages after {pages}");
}

#[test]
fn refused_growth_leaves_the_table_as_it_was() {
    let mut table = fresh();
    testing::arena().growth().set_max_pages(testing::arena().billed_pages());
    let mut inserted = 0u64;
    // With a single hash splits do not help, and every entry needs overflow.
    while table.insert(7, inserted).is_ok() {
        inserted += 1;
    }
    assert!(inserted > 10_000, "a mebibyte holds more than {inserted}");
    assert_eq!(table.stats().entries, inserted);
    assert_eq!(values(&table, 7).len() as u64, inserted);
    testing::arena().growth().set_max_pages(u64::MAX);
    table.insert(7, inserted).unwrap();
    assert!(table.remove(7, 0));
}

#[test]
fn keys_that_share_a_bucket_under_another_key_are_spread() {
    let (mut table, other) = (fresh(), HashKey::default());
    other.set([0; 16]);
    let chosen = (0u64..).map(u64::to_le_bytes).filter(|key| other.hash(key).is_multiple_of(1_024)).take(20_000);
    for (key, value) in chosen.zip(0..) {
        table.insert(table.hash(&key), value).unwrap();
    }
    let stats = table.stats();
    assert!(stats.buckets > 1_000 && stats.overflow_buckets * 5 < stats.buckets, "{stats:?}");
}

#[test]
fn table_with_entries_is_not_opened_without_its_key() {
    let unkeyed = || HashTable::open(testing::space(testing::INDEX), testing::arena(), OWNER, HashKey::default());
    drop(fresh());
    let key = HashKey::default();
    let mut table = HashTable::open(testing::space(testing::INDEX), testing::arena(), OWNER, key.clone()).unwrap();
    assert!(key.set([1; 16]), "set after the table is opened");
    table.insert(table.hash(b"key"), 5).unwrap();
    assert!(matches!(unkeyed().err(), Some(OpenError::Corrupt { .. })));
    let mut table = reopen(table);
    assert_eq!(table.get(table.hash(b"key")), Some(5));
    assert!(table.remove(table.hash(b"key"), 5));
    assert!(unkeyed().is_ok());
}

proptest! {
    /// With one value per hash, compared with a map.
    #[test]
    fn one_value_a_hash_agrees_with_a_map(
        narrow in any::<bool>(),
        steps in prop::collection::vec((0u8..6, any::<u64>(), 1u64..40), 1..2000),
    ) {
        let mut table = fresh();
        let mut model: BTreeMap<u64, u64> = BTreeMap::new();
        for (kind, hash, value) in steps {
            let hash = if narrow { hash % 60 * 128 } else { hash % 3000 };
            let there = model.get(&hash).copied();
            prop_assert_eq!(table.get(hash), there);
            match kind {
                0..=2 => prop_assert_eq!(table.put(hash, value).unwrap(), model.insert(hash, value)),
                3 => {
                    table.fail_after(0);
                    let put = table.put(hash, value);
                    table.hooks.failing_in = None;
                    prop_assert_eq!(put, there.map(Some).ok_or(GrowError::OutOfSpace), "only adding is refused");
                    model.entry(hash).and_modify(|there| *there = value);
                }
                4 => {
                    prop_assert_eq!(table.change(hash, |_| Change::Out), there);
                    model.remove(&hash);
                }
                _ => {
                    prop_assert_eq!(table.change(hash, |_| Change::Keep), None);
                    prop_assert_eq!(table.change(hash, |there| Change::To(there + value)), there);
                    model.entry(hash).and_modify(|there| *there += value);
                }
            }
            prop_assert_eq!(table.get(hash), model.get(&hash).copied());
        }
        prop_assert_eq!(table.stats().entries, model.len() as u64);
        for (&hash, &value) in &model {
            prop_assert_eq!(values(&table, hash), BTreeSet::from([value]));
        }
    }

    /// Compared with a set, with few hashes (long chains) and many, reopened in between.
    #[test]
    fn agrees_with_a_model(
        narrow in any::<bool>(),
        steps in prop::collection::vec((0u8..10, any::<u64>(), 0u64..40), 1..4000),
    ) {
        let mut table = fresh();
        let mut model: BTreeSet<(u64, u64)> = BTreeSet::new();
        for (kind, hash, value) in steps {
            let hash = if narrow { hash % 5 * 128 } else { hash % 30_000 };
            match kind {
                0..=4 => {
                    if model.insert((hash, value)) {
                        table.insert(hash, value).unwrap();
                    }
                }
                5 | 6 => {
                    // Mostly an existing entry.
                    let (hash, value) = model.range((hash, value)..).next().copied().unwrap_or((hash, value));
                    prop_assert_eq!(table.remove(hash, value), model.remove(&(hash, value)));
                }
                7 if value == 0 => table = reopen(table),
                // Rarely, so many at once that splits follow, or are undone.
                8 if value == 0 => {
                    for near in hash..hash + if narrow { 100 } else { 6_000 } {
                        if model.insert((near, value)) {
                            table.insert(near, value).unwrap();
                        }
                    }
                }
                9 if value == 0 => {
                    let most = model.len() / 8 * 7;
                    for _ in 0..most {
                        let (hash, value) = model.pop_first().unwrap();
                        prop_assert!(table.remove(hash, value));
                    }
                    audit(&table);
                }
                _ => {
                    let expected: BTreeSet<u64> = model.range((hash, 0)..=(hash, u64::MAX)).map(|e| e.1).collect();
                    prop_assert_eq!(values(&table, hash), expected);
                }
            }
        }
        prop_assert_eq!(table.stats().entries, model.len() as u64);
        audit(&table);
        for &(hash, value) in &model {
            prop_assert!(table.remove(hash, value));
        }
        prop_assert_eq!(table.stats(), TableStats { entries: 0, overflow_buckets: 0, buckets: PAGE_BUCKETS });
        audit(&table);
    }
}
