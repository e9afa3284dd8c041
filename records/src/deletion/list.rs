//! Queries: lists, counts and status of the queue; and [`Merge`], which gives the rows of several treaps in one order, also to `acquire`.

use super::answer::limit;
use super::header::{Counter, METRICS};
use super::lease::Stage;
use super::row::{Name, Row, at};
use super::{DeletionQueue, Store};
use candid::Principal;
use ic_coppice_interface::{
    BlobDeletion, BlobDeletionList, BlobDeletionState, BlobDeletionStatus, BlobLeaseStatus, BlobSelector,
    ListBlobDeletions, ListedBlobDeletion, Metric, StoreDeletions, StoreType,
};
use ic_coppice_storage::NS;
use ic_coppice_storage::slots::treap::Key;
use ic_coppice_storage::slots::{SlotId, buckets, radix};
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::collections::binary_heap::PeekMut;

/// Maximum rows that a list examines.
const MAX_LOOKED_AT: usize = 10_000;
/// Maximum nodes of a treap that one lookup reads: enough to skip some hundred rows that cannot be decoded.
const MAX_NODES: usize = 256;

/// Merge of the rows of several treaps in the order of their keys; waiting rows by height, then number. A returned row may be removed from
/// its treap.
pub struct Merge(BinaryHeap<Reverse<(Key, SlotId)>>);

impl Merge {
    /// Merges the rows of the treaps with these roots, from the key `from` on.
    pub fn new(store: &Store, roots: impl IntoIterator<Item = SlotId>, from: Key) -> Self {
        let treap = store.treap();
        let heads = roots.into_iter().filter(|root| *root != 0);
        let heads = heads.filter_map(|root| treap.from(&store.slots, root, from));
        Self(heads.map(|slot| Reverse((treap.key(&store.slots, slot), slot))).collect())
    }

    /// Returns the key of the next row if its order is at most `most`.
    pub fn peek(&self, most: u64) -> Option<Key> {
        self.0.peek().map(|Reverse((key, _))| *key).filter(|key| key.0 <= most)
    }

    /// Returns the next row if its order is at most `most`.
    pub fn next(&mut self, store: &Store, most: u64) -> Option<SlotId> {
        let mut head = self.0.peek_mut().filter(|head| head.0.0.0 <= most)?;
        let treap = store.treap();
        let slot = head.0.1;
        match treap.next(&store.slots, slot) {
            Some(next) => *head = Reverse((treap.key(&store.slots, next), next)),
            None => drop(PeekMut::pop(head)),
        }
        Some(slot)
    }
}

impl DeletionQueue {
    /// Returns the number of rows that wait, are leased or back off.
    pub fn pending_count(&self) -> u64 {
        use BlobDeletionState::{BackingOff, Leased, Waiting};
        self.store.as_ref().map_or(0, |store| [Waiting, Leased, BackingOff].map(|at| store.root.count(at)).iter().sum())
    }

    /// Returns a short description of a blob's row for the audit log.
    pub fn describe(&self, name: &Name) -> String {
        let store = self.store.as_ref().filter(|_| name.check().is_ok());
        let row = store.and_then(|store| store.find_name(name, store.hash(name)));
        row.map_or("none".into(), |row| {
            let reported = if row.reported { ", reported deleted" } else { "" };
            format!("row {} from height {}, {:?}{reported}", row.id, row.height, row.state)
        })
    }

    /// Returns the number of dead-letter rows.
    pub fn dead_count(&self) -> u64 {
        self.store.as_ref().map_or(0, |store| store.root.count(BlobDeletionState::Dead))
    }

    /// Returns the waiting rows that may be deleted at a height, by height, then number; at most `rows`, where 0 means a hundred. Selectors
    /// narrow them.
    pub fn pending(&self, height: u32, rows: u32, selectors: Option<&[BlobSelector]>) -> Vec<BlobDeletion> {
        let Some(store) = &self.store else { return Vec::new() };
        let mut merge = Merge::new(store, store.waiting(&[], selectors), (0, 0));
        let slots = std::iter::from_fn(|| merge.next(store, u64::from(height))).take(limit(rows));
        let mut shown = Vec::with_capacity(limit(rows).min(self.pending_count() as usize));
        shown.extend(slots.filter_map(|slot| Row::read(&store.slots, slot)?.shown(&store.slots)));
        shown
    }

    /// Returns a page of rows by number.
    pub fn list(&self, arg: &ListBlobDeletions) -> BlobDeletionList {
        let mut page = BlobDeletionList { rows: Vec::new(), cursor: None };
        let Some(store) = &self.store else { return page };
        let is_meant = |row: &Row| {
            arg.min_height.is_none_or(|min| row.height >= min)
                && arg.max_height.is_none_or(|max| row.height <= max)
                && arg.store_type.is_none_or(|store| row.store_type == store)
                && arg.state.is_none_or(|state| row.state == state)
        };
        let mut looked_at = 0;
        if arg.state == Some(BlobDeletionState::Dead) {
            // Dead-letter rows have an order of their own, so that they are found among a million others.
            let mut merge = Merge::new(store, store.root.dead.into_iter().flatten(), (0, arg.cursor.unwrap_or(0)));
            while let Some((_, id)) = merge.peek(u64::MAX) {
                if page.rows.len() >= limit(arg.limit) || looked_at >= MAX_LOOKED_AT {
                    page.cursor = Some(id);
                    break;
                }
                looked_at += 1;
                let row = merge.next(store, u64::MAX).and_then(|slot| Row::read(&store.slots, slot)).filter(is_meant);
                page.rows.extend(row.and_then(|row| store.listed(&row)));
            }
            return page;
        }
        // Chains are keyed by the lower half of a number.
        let mut from = u32::try_from(arg.cursor.unwrap_or(0)).ok();
        while let Some((key, _)) = from.and_then(|from| radix::next(&store.slots, store.root.by_id, from)) {
            if page.rows.len() >= limit(arg.limit) || looked_at >= MAX_LOOKED_AT {
                page.cursor = Some(u64::from(key));
                break;
            }
            for slot in buckets::under(&store.slots, store.root.by_id, at::BY_ID, key) {
                looked_at += 1;
                let row = Row::read(&store.slots, slot).filter(is_meant);
                page.rows.extend(row.and_then(|row| store.listed(&row)));
            }
            from = key.checked_add(1);
        }
        page
    }

    /// Returns a holder that has its maximum number of leases and has completed none since the returned time, in Unix nanoseconds, while
    /// rows wait.
    pub fn idle_holder(&self) -> Option<(Principal, u64)> {
        let store = self.store.as_ref().filter(|store| store.root.count(BlobDeletionState::Waiting) > 0)?;
        store.leases.idle_holder(self.limits.leases)
    }

    /// Returns the full status for operators.
    pub fn status(&self) -> BlobDeletionStatus {
        let store = self.store.as_ref();
        let of = |store_type: StoreType| {
            let count = |state| store.map_or(0, |store| store.root.counts[state as usize][store_type as usize]);
            let [held, waiting, leased, backing_off, dead] = BlobDeletionState::ALL.map(count);
            let oldest_due = store.and_then(|store| store.first_waiting(store_type, |_| true));
            let due_since_ns = self.due_since(store_type).map(|secs| secs * NS);
            StoreDeletions { store_type, held, waiting, leased, backing_off, dead, oldest_due, due_since_ns }
        };
        let stores: Vec<_> = StoreType::ALL.map(of).into();
        let leases = store.into_iter().flat_map(|store| &store.leases.open).map(|lease| BlobLeaseStatus {
            number: lease.token.number,
            holder: lease.holder,
            acquired_at_ns: lease.acquired_at_ns,
            expires_at_ns: lease.expires_at_ns,
            height: lease.height,
            rows: lease.rows,
            over: lease.stage == Stage::Over,
            ended: matches!(lease.stage, Stage::Completed | Stage::Ended),
        });
        let (rows, max_rows) = self.rows();
        BlobDeletionStatus {
            // The endpoint fills this in, because the switch is the whole canister's.
            deletions_stopped_since_ns: None,
            rows,
            max_rows,
            oldest_due: stores.iter().filter_map(|store| store.oldest_due).min(),
            leases: leases.collect(),
            metrics: self.metrics(),
            stores,
        }
    }

    fn metrics(&self) -> Vec<Metric> {
        let counters = self.store.as_ref().map_or([0; METRICS.len()], |store| store.root.counters);
        let more = [
            ("pruner_blob_deletion_duration_seconds_count", counters[Counter::Completed as usize]),
            ("pruner_blob_deletion_pending", self.pending_count()),
            ("coppice_pruner_blob_deletion_dead", self.dead_count()),
        ];
        let metric = |(name, value): (&str, u64)| Metric { name: name.into(), labels: vec![], value: value as f64 };
        METRICS.into_iter().zip(counters).chain(more).map(metric).collect()
    }
}

impl Store {
    /// Returns the treaps of the waiting rows of these stores and selectors.
    pub fn waiting(&self, stores: &[StoreType], selectors: Option<&[BlobSelector]>) -> impl Iterator<Item = SlotId> {
        let lanes = self.lanes.all().filter(|lane| lane.waiting != 0);
        lanes.filter(move |lane| lane.is_meant(stores, selectors)).map(|lane| lane.waiting)
    }

    /// Returns the lowest height of a waiting row of this store type that `is_meant` accepts, among the first rows of each lane. Skips rows
    /// that cannot be decoded, and returns `None` if the nodes of treaps that it reads have no other row.
    pub fn first_waiting(&self, store_type: StoreType, is_meant: impl Fn(&Row) -> bool) -> Option<u32> {
        let first = |root| {
            let mut by_height = self.treap().walk(&self.slots, root, MAX_NODES);
            by_height.find_map(|slot| Row::read(&self.slots, slot).filter(&is_meant)).map(|row| row.height)
        };
        self.waiting(&[store_type], None).filter_map(first).min()
    }

    fn listed(&self, row: &Row) -> Option<ListedBlobDeletion> {
        let until = match row.state {
            BlobDeletionState::Leased => self.leases.get(row.lease).map(|lease| lease.expires_at_ns),
            BlobDeletionState::BackingOff => Some(row.order),
            _ => None,
        };
        let reported_deleted = row.reported;
        Some(ListedBlobDeletion { row: row.shown(&self.slots)?, state: row.state, until_ns: until, reported_deleted })
    }
}
