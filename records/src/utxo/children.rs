//! List of the double spends that spend from a transaction (`conflicting_children`): ids, in pages of fixed entries. Other spenders are
//! not listed; the entries of the outputs name them.
//!
//! ```text
//! extras of the parent ─▶ newest page ⇄ older ⇄ … ⇄ oldest, which the newest page names too
//! page: 0 older page u32  4 ids on it u32  8 of the newest: ids on all u32  12 newer page u32; of the newest: the oldest   16 ids: n × 32
//! ```
//! **Constraint.** A transaction may have thousands of double spends, and each of these thousands of parents. So entering an id must not
//! read other ids, and the cost of removing an id must not grow with the ids that came later.
//!
//! **Design.** A new id is appended to the newest page. Ids nearly always leave in the order of their entry, so the search for an id to
//! remove begins at the oldest page, and the last id of the oldest page takes its place. So all pages except the newest and the oldest are
//! full. Pages begin small and double in size, so that a list of one id, the usual case, takes 128 bytes.

use super::call::{Answer, if_found};
use super::record::{Hash, Head, extras};
use super::store::{Found, UtxoStore};
use ic_coppice_interface::{NoMemory, Txid, UtxoRefusal};
use ic_coppice_storage::slots::SlotId;

/// Bytes of a page's head.
const PAGE: u32 = 16;
/// Offsets of the fields in a page's head.
mod at {
    pub const OLDER: u32 = 0;
    pub const COUNT: u32 = 4;
    pub const TOTAL: u32 = 8;
    pub const NEWER: u32 = 12;
}
/// Bytes of an id.
const ID: u32 = 32;
/// Ids of the first page.
const FIRST: u32 = 3;
/// Ids of the largest page, of nearly 4 KiB.
const LARGEST: u32 = 127;
/// The last ids that a record shows.
const SHOWN: u32 = 10_000;

/// The head of a page.
struct Page {
    older: SlotId,
    count: u32,
    /// Number of ids on all pages; only the newest page has it.
    total: u32,
    /// The next newer page; in the newest page, the oldest page.
    newer: SlotId,
}

/// A walk over the pages, from the oldest on.
struct Walk {
    newest: SlotId,
    /// The next page; 0 if there is none.
    next: SlotId,
    /// The page before the next page.
    older: SlotId,
    /// Number of ids not yet read; at first, of all.
    left: u32,
}

impl UtxoStore {
    fn child_page(&self, slot: SlotId) -> Answer<Page> {
        if self.slots.holds(slot, u64::from(PAGE)) {
            let [older, count, total, newer] =
                [at::OLDER, at::COUNT, at::TOTAL, at::NEWER].map(|at| self.slots.read_u32(slot, at));
            if count > 0 && count <= self.room(slot) && newer != 0 {
                return Ok(Page { older, count, total, newer });
            }
        }
        Err(UtxoRefusal::Corrupt { why: format!("slot {slot} is not a page of double spends") })
    }

    /// Returns the number of ids for which a page has room.
    fn room(&self, slot: SlotId) -> u32 {
        (self.slots.capacity(slot) - PAGE) / ID
    }

    /// Returns a walk over all pages.
    fn child_pages(&self, head: &Head) -> Answer<Option<Walk>> {
        let newest = extras::children(&self.slots, head);
        if newest == 0 {
            return Ok(None);
        }
        let Page { total, newer, .. } = self.child_page(newest)?;
        Ok(Some(Walk { newest, next: newer, older: 0, left: total }))
    }

    /// Returns the next page of a walk. Each page has at least one id, so that a circle ends.
    fn next_page(&self, walk: &mut Walk) -> Answer<Option<(SlotId, Page)>> {
        if walk.next == 0 {
            return Ok(None);
        }
        let (slot, is_last) = (walk.next, walk.next == walk.newest);
        let page = self.child_page(slot)?;
        let left = walk.left.checked_sub(page.count).filter(|left| page.older == walk.older && (*left == 0) == is_last);
        walk.left = left.ok_or_else(|| UtxoRefusal::Corrupt {
            why: format!("slot {slot} has other double spends than it should"),
        })?;
        (walk.older, walk.next) = (slot, if is_last { 0 } else { page.newer });
        Ok(Some((slot, page)))
    }

    /// Returns the number of pages of a record's list, or a few more.
    #[inline]
    pub(super) fn pages_of_children(&self, head: &Head) -> u64 {
        if head.extras == 0 { 0 } else { self.pages_of_list(head) }
    }

    fn pages_of_list(&self, head: &Head) -> u64 {
        let ids = self.child_pages(head).ok().flatten().map_or(0, |walk| walk.left);
        if ids == 0 { 0 } else { 8 + u64::from(ids / LARGEST) }
    }

    /// Returns the last double spends that spend from a transaction, in order.
    pub(super) fn children(&self, head: &Head) -> Answer<Vec<Txid>> {
        let mut pages = Vec::new();
        let Some(walk) = self.child_pages(head)? else { return Ok(Vec::new()) };
        let (mut next, mut ids) = (walk.newest, 0);
        while next != 0 && ids < walk.left.min(SHOWN) {
            let page = self.child_page(next)?;
            ids += page.count;
            pages.push((next, page.count));
            next = page.older;
        }
        let mut bytes = Vec::new();
        for (slot, count) in pages.iter().rev() {
            self.slots.read_onto(&mut bytes, *slot, PAGE, (ID * count) as usize);
        }
        let ids = bytes.as_chunks::<{ ID as usize }>().0;
        Ok(ids[ids.len().saturating_sub(SHOWN as usize)..].iter().map(Txid::from).collect())
    }

    /// Enters a new double spend in the list of a parent that has a record. The operation may fail in its middle.
    pub(super) fn add_child(&mut self, parent: &Hash, child: &Hash) -> Answer<()> {
        let Some(Found { slot, mut head, .. }) = if_found(self.find(parent))? else { return Ok(()) };
        let newest = extras::children(&self.slots, &head);
        let page = if newest == 0 { None } else { Some(self.child_page(newest)?) };
        if let Some(Page { count, total, .. }) = page
            && count < self.room(newest)
        {
            self.slots.write(newest, PAGE + ID * count, child);
            let total = total.checked_add(1).ok_or(UtxoRefusal::TooMuchWork)?;
            self.slots.write(newest, at::COUNT, [count + 1, total].map(u32::to_le_bytes).as_flattened());
            return Ok(());
        }
        let ids = if newest == 0 { FIRST } else { (2 * self.room(newest) + 1).min(LARGEST) };
        let new = self.slots.allocate(PAGE + ID * ids).map_err(NoMemory::from)?;
        let (total, oldest) = page.map_or((0, new), |page| (page.total, page.newer));
        let total = total.checked_add(1).ok_or(UtxoRefusal::TooMuchWork)?;
        let mut bytes = [newest, 1, total, oldest].map(u32::to_le_bytes).as_flattened().to_vec();
        bytes.extend(child);
        self.slots.write(new, 0, &bytes);
        if newest != 0 {
            self.slots.write_u32(newest, at::NEWER, new);
        }
        extras::set_children(&mut self.slots, slot, &mut head, new)
    }

    /// Removes a double spend from the list of a parent. The operation may fail in its middle.
    pub(super) fn remove_child(&mut self, parent: &Hash, child: &Hash) -> Answer<()> {
        let Some(Found { slot, mut head, .. }) = if_found(self.find(parent))? else { return Ok(()) };
        let Some(mut walk) = self.child_pages(&head)? else { return Ok(()) };
        let (newest_at, oldest_at, total) = (walk.newest, walk.next, walk.left);
        let mut bytes = Vec::new();
        while let Some((at, page)) = self.next_page(&mut walk)? {
            self.used.read += 1;
            bytes.clear();
            self.slots.read_onto(&mut bytes, at, PAGE, (ID * page.count) as usize);
            let ids = bytes.as_chunks::<{ ID as usize }>().0;
            let Some(number) = ids.iter().position(|id| id == child) else { continue };
            let oldest = self.child_page(oldest_at)?;
            let last: Hash = self.slots.read(oldest_at, PAGE + ID * (oldest.count - 1));
            self.slots.write(at, PAGE + ID * number as u32, &last);
            // The newest page has at least one id, so the total is not 0.
            self.slots.write_u32(newest_at, at::TOTAL, total.saturating_sub(1));
            if oldest.count > 1 {
                self.slots.write_u32(oldest_at, at::COUNT, oldest.count - 1);
            } else if self.free_oldest(newest_at, oldest_at, &oldest)? == 0 {
                extras::set_children(&mut self.slots, slot, &mut head, 0)?;
            }
            break;
        }
        Ok(())
    }

    /// Frees the oldest page, and returns the slot of the next oldest page, or 0 if no page is left.
    ///
    /// # Errors
    /// `Corrupt` if the next page cannot be read, and nothing has changed.
    fn free_oldest(&mut self, newest_at: SlotId, oldest_at: SlotId, oldest: &Page) -> Answer<SlotId> {
        if newest_at == oldest_at {
            self.slots.free(oldest_at);
            return Ok(0);
        }
        self.child_page(oldest.newer)?;
        self.slots.free(oldest_at);
        self.slots.write_u32(oldest.newer, at::OLDER, 0);
        self.slots.write_u32(newest_at, at::NEWER, oldest.newer);
        Ok(oldest.newer)
    }

    /// Frees at most `most` pages of a record that is being deleted. Pages that cannot be read stay.
    pub(super) fn free_children(&mut self, slot: SlotId, head: &mut Head, most: u64) {
        let Ok(Some(mut walk)) = self.child_pages(head) else { return };
        for _ in 0..most {
            let page = self.next_page(&mut walk).ok().flatten();
            let next = page.and_then(|(at, page)| self.free_oldest(walk.newest, at, &page).ok());
            if next.is_none_or(|next| next == 0) {
                // The end of the list, or an unreadable page.
                let _ = extras::set_children(&mut self.slots, slot, head, 0);
                return;
            }
            // The next page is the oldest now.
            self.slots.write_u32(walk.newest, at::TOTAL, walk.left);
            walk.older = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::testing::{Tx, World, id};
    use std::collections::BTreeSet;

    fn shown(w: &World, parent: &Tx) -> Vec<[u8; 32]> {
        w.get(parent).conflicting_children.iter().map(|id| id[..].try_into().unwrap()).collect()
    }

    fn used(w: &World) -> u64 {
        w.store.slots.stats().used_bytes
    }

    /// Creates a parent with `count` double spends.
    fn family(count: u64) -> (World, Tx, u64) {
        let mut w = World::new();
        let parent = Tx::orphan(1, 1);
        w.make(&parent);
        let before = used(&w);
        for number in 0..count {
            w.store.add_child(&parent.txid, &id(number)).unwrap();
            if number < 20 || (number < 1_000 && number % 50 == 0) {
                assert!(shown(&w, &parent).into_iter().eq((0..=number).map(id)), "in order, {number}");
            }
        }
        w.reopen();
        (w, parent, before)
    }

    #[test]
    fn ids_removed_in_any_order_leave_all_others_listed_once() {
        // In the order of entry, in reverse order, and shuffled.
        for order in 0..3 {
            let (mut w, parent, before) = family(600);
            w.store.remove_child(&parent.txid, &id(9_999)).unwrap();
            let mut expected: BTreeSet<[u8; 32]> = (0..600).map(id).collect();
            for step in 0..600_u64 {
                let gone = id([step, 599 - step, step * 7_919 % 600][order]);
                w.store.remove_child(&parent.txid, &gone).unwrap();
                assert!(expected.remove(&gone));
                if step % 50 == 0 || step > 580 {
                    let shown = shown(&w, &parent);
                    assert_eq!((shown.len(), shown.into_iter().collect()), (expected.len(), expected.clone()));
                }
                if step == 300 {
                    (1_000..1_200).for_each(|new| w.store.add_child(&parent.txid, &id(new)).unwrap());
                    (1_000..1_200).for_each(|new| w.store.remove_child(&parent.txid, &id(new)).unwrap());
                }
            }
            assert_eq!(used(&w), before, "nothing is left of the pages");
            w.store.remove_child(&parent.txid, &id(1)).unwrap();
        }
        let (mut w, _, _) = family(0);
        w.store.add_child(&id(5), &id(1)).unwrap();
        w.store.remove_child(&id(5), &id(1)).unwrap();
    }

    #[test]
    fn those_that_leave_as_they_came_read_a_page_each() {
        let (mut w, parent, _) = family(12_000);
        let mut leave = |number| {
            w.store.used.read = 0;
            w.store.remove_child(&parent.txid, &id(number)).unwrap();
            w.store.used.read
        };
        assert!((0..6_000).all(|number| leave(number) == 1));
        assert!(leave(11_999) > 40, "the last one is found at the end");
        let read: u64 = (6_000..11_999).map(leave).sum();
        assert!(read < 2 * 6_000, "{read}: few lie where they did not come");
        assert!(shown(&w, &parent).is_empty());
    }

    #[test]
    fn the_last_ten_thousand_are_shown_and_deletion_frees_all_pages() {
        for removed in [0, 500] {
            let mut w = World::new();
            let parent = Tx::orphan(1, 1);
            let before = used(&w);
            w.make(&parent);
            (0..12_000).for_each(|number| w.store.add_child(&parent.txid, &id(number)).unwrap());
            (0..removed).for_each(|number| w.store.remove_child(&parent.txid, &id(number)).unwrap());
            let shown = shown(&w, &parent);
            assert_eq!((shown.len(), shown[0], shown[9_999]), (10_000, id(2_000), id(11_999)));
            let call = w.call();
            w.store.delete_by_id(&mut w.blobs, &parent.txid, &call).unwrap();
            assert_eq!(used(&w), before);
        }
    }

    #[test]
    fn pages_are_freed_in_slices_and_the_rest_stays_consistent() {
        let (mut w, parent, before) = family(1_000);
        let slot = w.store.slot_of(&parent.txid);
        let mut left = 1_000;
        loop {
            let mut head = w.store.head(slot);
            w.store.free_children(slot, &mut head, 2);
            w.reopen();
            let shown = shown(&w, &parent);
            if shown.is_empty() {
                break;
            }
            assert!(shown.len() < left, "{} of {left}", shown.len());
            assert!(shown.iter().copied().eq((1_000 - shown.len() as u64..1_000).map(id)), "the last ones");
            left = shown.len();
        }
        assert!(left < 300);
        assert_eq!(used(&w), before);
    }
}
