//! Tests of a table's pages: layout, giving back, reservations and damage.

use super::super::pool::{LAYOUT, PAGE_BUCKETS, page_of};
use super::super::resize::Unsplit;
use super::*;
use crate::arena::GRANULE;
use crate::{Meter, twin};

const SEGMENT_SLOTS: u64 = PAGE_BUCKETS * SLOTS as u64;

fn kept(table: &HashTable<Twin>) -> u64 {
    table.pool.arena.kept_bytes(OWNER)
}

#[test]
fn the_layout_is_part_of_the_format() {
    let mut table = fresh();
    // The table's page is granule 3, its directory 4, and its overflow page 6.
    table.pool.arena.take_granules(testing::LOG, 1).unwrap();
    for value in 0..=SLOTS as u64 {
        table.insert(5, value).unwrap();
    }
    let space = testing::space(testing::INDEX);
    let header: [u8; 48] = space.read(0);
    assert_eq!(header[..8], *b"CPHT\x05\0\0\0");
    assert_eq!(header[8..24], [128, 0, 0, 0, 0, 0, 0, 0, 29, 0, 0, 0, 0, 0, 0, 0]);
    assert_eq!(header[24..48], [7, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    assert_eq!(space.read(64), [4, 0, 0, 128, 0, 0, 0, 0], "the directory");
    assert_eq!(table.pool.primary(5), 4 * 128 + 5);
    let primary: [u8; 16] = table.pool.arena.payload().read(3 * GRANULE + 5 * BUCKET);
    assert_eq!(primary[..8], [28, 0, 0, 0, 128, 3, 0, 128], "count, and the first overflow bucket: page 7, index 0");
    let overflow: [u8; 16] = table.pool.arena.payload().read(6 * GRANULE);
    assert_eq!(overflow[..8], [1, 0, 0, 0, 0, 0, 0, 0]);
    assert_eq!(table.pool.arena.line(6), [0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 1, 0, 0, 0, 0, 0]);
    audit(&table);
}

#[test]
fn another_version_and_an_impossible_size_are_not_opened() {
    drop(fresh());
    let space = testing::space(testing::INDEX);
    let open = || HashTable::open(testing::space(testing::INDEX), testing::arena(), OWNER, HashKey::of([1; 16])).err();
    assert_eq!(open(), None);
    space.write(8, &[127]);
    assert!(matches!(open(), Some(OpenError::Corrupt { .. })));
    space.write(4, &[1]);
    assert!(matches!(open(), Some(OpenError::Header { found: (_, 1), .. })));
    assert_eq!(LAYOUT.version, 5);
}

#[test]
fn a_million_entries_leave_one_page_after_sweeps() {
    let mut table = fresh();
    let fill = |table: &mut HashTable<Twin>, values: std::ops::Range<u64>| {
        for i in values {
            table.put(table.hash(&i.to_le_bytes()), i).unwrap();
        }
    };
    let million = 1_000_000;
    fill(&mut table, 0..million);
    let (full, end) = (kept(&table), table.pool.arena.end());
    assert!(full > 30 << 20 && full < 36 << 20, "{full} bytes");
    let mut from = Some(0);
    while let Some(at) = from {
        let before = table.stats();
        let (slice, touched) = twin::touching(|| table.sweep(at, million, 0, Meter::unlimited()));
        let undone = before.buckets - table.stats().buckets;
        assert!(undone <= PAGE_BUCKETS);
        // One segment is swept, two are joined, and there are the directory, the arena's own pages, and overflow buckets.
        let overflow = before.overflow_buckets - table.stats().overflow_buckets;
        let most = if undone == 0 { 28 + overflow } else { 3 * 16 + 12 + overflow } as usize;
        assert!(touched.accessed.len() <= most, "{} pages, {undone} undone, {overflow}", touched.accessed.len());
        from = slice.next;
    }
    assert_eq!(table.stats(), TableStats { entries: 0, buckets: PAGE_BUCKETS, overflow_buckets: 0 });
    assert_eq!(kept(&table), GRANULE);
    let arena = &table.pool.arena;
    assert_eq!(arena.reusable_bytes(), arena.bytes() - GRANULE - arena.kept_bytes(testing::SPACES));
    // Everything is used again, also by a table that was opened in between.
    let mut table = reopen(table);
    fill(&mut table, million..2 * million);
    assert!(kept(&table).abs_diff(full) <= 2 * GRANULE, "another number of overflow pages");
    assert_eq!(table.pool.arena.end(), end);
}

#[test]
fn a_table_that_is_not_swept_shrinks_with_its_entries() {
    let mut table = fresh();
    let n = 100_000u64;
    for i in 0..n {
        table.insert(table.hash(&i.to_le_bytes()), i).unwrap();
    }
    let full = kept(&table);
    for i in 0..n {
        assert!(table.remove(table.hash(&i.to_le_bytes()), i));
        let TableStats { entries, buckets, .. } = table.stats();
        assert!(
            buckets == PAGE_BUCKETS || entries * 100 >= (buckets - 2) * SLOTS as u64 * 25,
            "{entries} in {buckets}"
        );
        // An entry that is added and removed again changes no number of buckets.
        if i % 1_000 == 0 {
            table.insert(i, i).unwrap();
            assert_eq!(table.stats().buckets, buckets);
            assert!(table.remove(i, i));
        }
    }
    assert!(full > 40 * GRANULE);
    assert_eq!(kept(&table), GRANULE);
    audit(&table);
}

#[test]
fn reserved_insertions_are_not_refused() {
    for count in [1, 100, 3_000, 40_000] {
        let mut table = fresh();
        for i in 0..SEGMENT_SLOTS * 6 / 10 - 1 {
            table.insert(table.hash(&i.to_le_bytes()), i).unwrap();
        }
        table.reserve(count).unwrap();
        testing::arena().growth().set_max_pages(testing::arena().billed_pages());
        // Another owner takes all that is not reserved.
        while table.pool.arena.take_granules(testing::LOG, 1).is_ok() {}
        for i in 0..count {
            table.insert(table.hash(&(i + 1_000_000).to_le_bytes()), i).unwrap();
        }
        let TableStats { entries, buckets, .. } = table.stats();
        assert!(entries * 100 <= buckets * SLOTS as u64 * LOAD, "every split had its page");
        audit(&table);
    }
}

#[test]
fn splits_are_undone_without_memory() {
    let mut table = fresh();
    let hash = |table: &HashTable<Twin>, i: u64| table.hash(&i.to_le_bytes());
    for i in 0..20_000u64 {
        table.insert(hash(&table, i), i).unwrap();
    }
    testing::arena().growth().set_max_pages(testing::arena().billed_pages());
    while table.pool.arena.take_granules(testing::LOG, 1).is_ok() {}
    for i in 0..20_000u64 {
        assert!(table.remove(hash(&table, i), i));
    }
    assert_eq!(kept(&table), GRANULE);
}

#[test]
fn a_split_that_is_undone_may_need_an_overflow_page() {
    let mut table = fresh();
    for value in 0..SLOTS as u64 {
        table.insert(0, value).unwrap();
        table.insert(PAGE_BUCKETS, 100 + value).unwrap();
    }
    // The first split parts the two hashes.
    let mut other = (1..).filter(|hash| hash % PAGE_BUCKETS != 0);
    while table.stats().buckets == PAGE_BUCKETS {
        table.insert(other.next().unwrap(), 0).unwrap();
    }
    let before = table.stats();
    assert_eq!((before.buckets, before.overflow_buckets), (PAGE_BUCKETS + 1, 0));
    testing::arena().growth().set_max_pages(testing::arena().billed_pages());
    while table.pool.arena.take_granules(testing::LOG, 1).is_ok() {}
    assert_eq!(table.unsplit(0, &Meter::unlimited()), Unsplit::Refused);
    assert_eq!(table.stats(), before);
    audit(&table);
    testing::arena().growth().set_max_pages(u64::MAX);
    assert_eq!(table.unsplit(0, &Meter::unlimited()), Unsplit::Done { gone: vec![], overflows: 1 });
    assert_eq!((values(&table, 0).len(), values(&table, PAGE_BUCKETS).len()), (SLOTS, SLOTS));
    assert_eq!((table.stats().buckets, table.stats().overflow_buckets), (PAGE_BUCKETS, 1));
    audit(&table);
}

#[test]
fn a_damaged_page_is_not_written() {
    let mut table = fresh();
    for value in 0..3 * SLOTS as u64 {
        table.insert(5, value).unwrap();
    }
    let first = table.pool.head(table.pool.primary(5)).next();
    let page = u64::from(page_of(first)) - 1;
    let content = |table: &HashTable<Twin>| {
        let mut bytes = Vec::new();
        table.pool.arena.payload().read_onto(&mut bytes, page * GRANULE, GRANULE as usize);
        bytes
    };
    let before = content(&table);
    table.pool.arena.poison(page);
    table.insert(5, 1_000).unwrap();
    table.insert(6, 1).unwrap();
    assert!(table.remove(6, 1));
    assert_eq!(values(&table, 5).len(), 3 * SLOTS + 1, "a search goes on");
    assert_eq!(table.read_chain(table.pool.primary(5)).0.len(), SLOTS + 1, "the entries of the sound pages");
    table.sweep(0, u64::MAX, 0, Meter::unlimited());
    assert_eq!(values(&table, 5).len(), 0);
    assert!(content(&table) == before);
}

/// A flipped bit in the directory is mended, and one in a link ends its chain: nothing traps, and the table takes new entries.
#[test]
fn flipped_bits_of_directory_and_links_stop_nothing() {
    for bit in 0..32 {
        let mut table = fresh();
        for value in 0..10_000 {
            table.insert(table.hash(&u64::to_le_bytes(value)), value).unwrap();
        }
        let flip = |space: &Space<Twin>, at: u64| space.write_u32(at, space.read_u32(at) ^ 1 << bit);
        flip(&testing::space(testing::INDEX), 64 + 4 * 2);
        (0..10_000).for_each(|value| assert_eq!(table.get(table.hash(&u64::to_le_bytes(value))), Some(value)));
        audit(&table);
        // The link of a full bucket.
        for value in 0..3 * SLOTS as u64 {
            table.insert(5, value).unwrap();
        }
        let at = (u64::from(table.pool.primary(5)) - PAGE_BUCKETS) * BUCKET + 4;
        let payload = table.pool.arena.payload();
        payload.write(at, &(payload.read_u32(at) ^ 1 << bit).to_le_bytes());
        assert!(values(&table, 5).len() <= SLOTS, "bit {bit}");
        for value in 10_000..20_000 {
            table.insert(table.hash(&u64::to_le_bytes(value)), value).unwrap();
            table.insert(5, value).unwrap();
        }
        assert!(values(&table, 5).len() >= 10_000, "bit {bit}");
        table.sweep(0, 15_000, 0, Meter::unlimited());
        assert_eq!(table.get(table.hash(&u64::to_le_bytes(15_001))), Some(15_001));
    }
}

/// A count that a flipped bit has made 0, in the bucket from which holes are filled.
#[test]
fn removal_beside_an_empty_count_stops_nothing() {
    let mut table = fresh();
    for value in 0..=SLOTS as u64 {
        table.insert(5, value).unwrap();
    }
    let behind = table.pool.head(table.pool.primary(5)).next();
    assert_eq!(table.pool.head(behind).count(), 1);
    table.pool.arena.payload().write((u64::from(behind) - PAGE_BUCKETS) * BUCKET, &[0; 2]);
    for value in 0..SLOTS as u64 {
        assert!(table.remove(5, value), "{value}");
    }
    assert_eq!(values(&table, 5).len(), 0);
    table.insert(5, 7).unwrap();
    assert_eq!(table.get(5), Some(7));
}
