//! Double spends that spend from a transaction: their ids, in pages of fixed entries.
//!
//! ```text
//! extras of the parent ─▶ newest page ─▶ older ─▶ … ─▶ oldest
//! page: 0 older page u32   4 ids on it u32   8 ids on it and on all older ones u32   12 zero u32   16 ids: n × 32
//! ```
//! **Constraint.** A transaction may have thousands of double spends, and each of these thousands of parents: entering one reads
//! none of the others, and leaving reads pages and writes two of them.
//!
//! **Design.** Only the newest page is not full. A new id goes behind its last one; the last one takes the place of an id that leaves.
//! Pages begin small and double, so that the one double spend that most have takes 128 bytes.

use super::record::{Hash, Head};
use super::{Found, UtxoStore, extras};
use crate::slots::SlotId;
use coppice_interface::{Txid, UtxoRefusal};

/// Bytes of a page's head.
const PAGE: u32 = 16;
/// Bytes of an id.
const ID: u32 = 32;
/// Ids of the first page.
const FIRST: u32 = 3;
/// Ids of the largest page, which nearly has 4 KiB.
const LARGEST: u32 = 127;
/// The last ids that a record shows.
const SHOWN: u32 = 10_000;

/// The head of a page.
struct Page {
    older: SlotId,
    count: u32,
    total: u32,
}

impl UtxoStore {
    fn child_page(&self, slot: SlotId) -> Result<Page, UtxoRefusal> {
        let corrupt = || UtxoRefusal::Corrupt { why: format!("slot {slot} is no page of double spends") };
        if !self.slots.holds(slot, u64::from(PAGE)) {
            return Err(corrupt());
        }
        let [older, count, total] = [0, 4, 8].map(|at| self.slots.read_u32(slot, at));
        if count == 0 || count > self.room(slot) || total < count || (older == 0) != (total == count) {
            return Err(corrupt());
        }
        Ok(Page { older, count, total })
    }

    /// Ids for which a page has room.
    fn room(&self, slot: SlotId) -> u32 {
        (self.slots.capacity(slot) - PAGE) / ID
    }

    /// Pages from the newest on, until so many ids are on them.
    fn child_pages(&self, head: &Head, most: u32) -> Result<Vec<(SlotId, Page)>, UtxoRefusal> {
        let (mut pages, mut ids) = (Vec::new(), 0);
        let mut next = extras::children(&self.slots, head);
        while next != 0 && ids < most {
            let page = self.child_page(next)?;
            let older = page.older;
            // Each is followed by what is left, so a circle ends.
            if pages.last().is_some_and(|(_, newer): &(_, Page)| newer.total - newer.count != page.total) {
                return Err(UtxoRefusal::Corrupt {
                    why: format!("slot {next} has other double spends than it should"),
                });
            }
            ids += page.count;
            pages.push((next, page));
            next = older;
        }
        Ok(pages)
    }

    /// The last double spends that spend from a transaction, in order.
    pub(super) fn children(&self, head: &Head) -> Result<Vec<Txid>, UtxoRefusal> {
        let mut bytes = Vec::new();
        for (slot, page) in self.child_pages(head, SHOWN)?.iter().rev() {
            self.slots.read_onto(&mut bytes, *slot, PAGE, (ID * page.count) as usize);
        }
        let ids = bytes.as_chunks::<{ ID as usize }>().0;
        Ok(ids[ids.len().saturating_sub(SHOWN as usize)..].iter().map(Txid::from).collect())
    }

    /// The record of a parent, if it has one.
    fn parent(&self, parent: &Hash) -> Result<Option<Found>, UtxoRefusal> {
        match self.find(parent) {
            Ok(found) => Ok(Some(found)),
            Err(UtxoRefusal::TxNotFound) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Enters a double spend that is new with a parent, where that has a record. This may fail in its middle.
    pub(super) fn add_child(&mut self, parent: &Hash, child: &Hash) -> Result<(), UtxoRefusal> {
        let Some(Found { slot, mut head, .. }) = self.parent(parent)? else { return Ok(()) };
        let newest = extras::children(&self.slots, &head);
        let page = if newest == 0 { None } else { Some(self.child_page(newest)?) };
        if let Some(Page { count, total, .. }) = page
            && count < self.room(newest)
        {
            self.slots.write(newest, PAGE + ID * count, child);
            self.slots.write(newest, 4, [count + 1, total + 1].map(u32::to_le_bytes).as_flattened());
            return Ok(());
        }
        let (ids, total) = page.map_or((FIRST, 0), |page| ((2 * page.count + 1).min(LARGEST), page.total));
        let new = self.slots.allocate(PAGE + ID * ids)?;
        let mut bytes = [newest, 1, total + 1, 0].map(u32::to_le_bytes).as_flattened().to_vec();
        bytes.extend(child);
        self.slots.write(new, 0, &bytes);
        extras::set_children(&mut self.slots, slot, &mut head, new)
    }

    /// Takes a double spend from a parent's, where it is among them.
    ///
    /// # Errors
    /// `Corrupt`, and nothing has changed.
    pub(super) fn remove_child(&mut self, parent: &Hash, child: &Hash) -> Result<(), UtxoRefusal> {
        let Some(Found { slot, mut head, .. }) = self.parent(parent)? else { return Ok(()) };
        let mut bytes = Vec::new();
        let pages = self.child_pages(&head, u32::MAX)?;
        self.changed.read += pages.len() as u64;
        for (page, Page { count, .. }) in &pages {
            bytes.clear();
            self.slots.read_onto(&mut bytes, *page, PAGE, (ID * count) as usize);
            let ids = bytes.as_chunks::<{ ID as usize }>().0;
            let Some(at) = ids.iter().position(|id| id == child) else { continue };
            let (newest, Page { older, count, total }) = &pages[0];
            let last: Hash = self.slots.read(*newest, PAGE + ID * (count - 1));
            self.slots.write(*page, PAGE + ID * at as u32, &last);
            if *count > 1 {
                self.slots.write(*newest, 4, [count - 1, total - 1].map(u32::to_le_bytes).as_flattened());
                return Ok(());
            }
            self.slots.free(*newest);
            return extras::set_children(&mut self.slots, slot, &mut head, *older);
        }
        Ok(())
    }

    /// Frees the pages of a record that goes; what cannot be read stays where it is.
    pub(super) fn free_children(&mut self, head: &Head) {
        for (page, _) in self.child_pages(head, u32::MAX).unwrap_or_default() {
            self.slots.free(page);
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::testing::id;
    use crate::utxo::tests::world::{Tx, World};

    /// Enters and leaves in many orders: what is listed is what a vector has that fills a hole with its last.
    #[test]
    fn ids_are_listed_as_a_vector_has_them_at_any_length() {
        let mut w = World::new();
        let parent = Tx::orphan(1, 1);
        w.make(&parent);
        let before = w.store.slots.stats().used_bytes;
        let mut expected = Vec::new();
        let check = |w: &World, expected: &[[u8; 32]]| {
            let shown: Vec<_> = w.get(&parent).conflicting_children.iter().map(|id| id.to_vec()).collect();
            assert!(shown.iter().eq(expected.iter()), "{} and not {}", shown.len(), expected.len());
        };
        for number in 0..600 {
            w.store.add_child(&parent.txid, &id(number)).unwrap();
            expected.push(id(number));
            if number < 20 || number % 50 == 0 {
                check(&w, &expected);
            }
        }
        w.reopen();
        w.store.remove_child(&parent.txid, &id(9_999)).unwrap();
        check(&w, &expected);
        for step in 0..600_usize {
            let at = step * 7_919 % expected.len();
            let gone = expected.swap_remove(at);
            w.store.remove_child(&parent.txid, &gone).unwrap();
            if step % 50 == 0 || step > 580 {
                check(&w, &expected);
            }
        }
        assert_eq!(w.store.slots.stats().used_bytes, before, "nothing is left of the pages");
        w.store.remove_child(&parent.txid, &id(1)).unwrap();
        w.store.add_child(&id(5), &id(1)).unwrap();
        w.store.remove_child(&id(5), &id(1)).unwrap();
    }

    #[test]
    fn the_last_ten_thousand_are_shown_and_all_pages_go_with_the_record() {
        let mut w = World::new();
        let parent = Tx::orphan(1, 1);
        let before = w.store.slots.stats().used_bytes;
        w.make(&parent);
        w.store.slots.count_pages(true);
        for number in 0..12_000 {
            w.store.add_child(&parent.txid, &id(number)).unwrap();
        }
        let shown = w.get(&parent).conflicting_children;
        assert_eq!((shown.len(), &shown[0][..], &shown[9_999][..]), (10_000, &id(2_000)[..], &id(11_999)[..]));
        let call = w.call();
        w.store.delete_by_id(&mut w.blobs, &parent.txid, &call).unwrap();
        assert_eq!(w.store.slots.stats().used_bytes, before);
    }
}
