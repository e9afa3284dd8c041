//! Audit of a table's memory: chains, overflow pages and the arena agree.

use super::super::pool::{PAGE_BUCKETS, PageRef, page_of};
use super::{HashTable, OWNER};
use crate::arena::GRANULE;
use crate::twin::Twin;
use std::collections::{BTreeMap, BTreeSet};

/// Checks the lines of all overflow pages, the list of pages with room, and the bytes that the owner keeps.
pub fn audit(table: &HashTable<Twin>) {
    let pool = &table.pool;
    let (mut used, mut entries) = (BTreeMap::<PageRef, BTreeSet<u32>>::new(), 0);
    for bucket in 0..pool.header.buckets {
        let head = pool.head(pool.primary(bucket));
        (entries, _) = (entries + head.count() as u64, assert!(pool.owns(pool.primary(bucket))));
        let mut at = head.next();
        while at != 0 {
            assert!(used.entry(page_of(at)).or_default().insert(at % PAGE_BUCKETS as u32), "in two chains");
            let head = pool.head(at);
            assert!(head.count() > 0, "an empty overflow bucket");
            (entries, at) = (entries + head.count() as u64, head.next());
        }
    }
    assert_eq!(pool.header.entries, entries);
    assert_eq!(used.values().map(BTreeSet::len).sum::<usize>(), pool.header.overflow_used as usize);
    let pages = pool.header.buckets.div_ceil(PAGE_BUCKETS) + used.len() as u64;
    assert_eq!(pool.arena.kept_bytes(OWNER), pages * GRANULE);

    let (mut room, mut before, mut page) = (BTreeSet::new(), 0, pool.header.room);
    while page != 0 {
        let line = pool.line(page).expect("an overflow page");
        assert_eq!(line.previous, before);
        room.insert(page);
        (before, page) = (page, line.next);
    }
    for (&page, used) in &used {
        let line = pool.line(page).expect("an overflow page");
        assert_eq!(usize::from(line.used), used.len());
        assert_eq!(room.remove(&page), used.len() < PAGE_BUCKETS as usize, "in the list only with room");
        let (mut freed, mut count) = (u32::from(line.freed), 0);
        while freed != 0 {
            assert!(freed <= u32::from(line.fresh) && !used.contains(&(freed - 1)), "free and used");
            (freed, count) = (pool.head(page * PAGE_BUCKETS as u32 + freed - 1).next(), count + 1);
        }
        assert_eq!(count, line.fresh - line.used);
    }
    assert!(room.is_empty(), "no other page is in the list");
}
