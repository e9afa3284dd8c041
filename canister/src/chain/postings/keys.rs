//! Secondary keys: which transactions have one, newest first.
//!
//! **Constraint.** A key may be in every block that is kept, and a block may have 100,000 of them. Entering one, pruning one
//! and rolling one back must each cost a constant, and touch few pages.
//!
//! **Design.** A *posting* is one occurrence of a key. The table has one entry for each different hash, its newest posting;
//! from there each names the one before it. These links lie in the log behind the block's index segment, so they come
//! and go with the block and no reader of segments sees them.
//!
//! ```text
//! table     hash of a key ──▶ newest posting
//! log       … body ‖ receipts ‖ index ‖ links │ body ‖ …
//! link      12 bytes for each key, in the segment's order: posting before it u64, u64::MAX for none ‖
//!           where its entry starts in the index segment u32
//! posting   (block − base) << 24 | number of the key in its block's segment
//! ```
//! Within a block postings follow each other by transaction. Pruning takes nothing out: a posting or a link to a pruned block is
//! the end of a list, and a sweep drops the table's entry later (`sweep.rs`). A rollback takes the newest block: the table then
//! names what the block's first posting of that hash had before it.
//!
//! Keys are not stored again: a list is of a hash, and a reader compares the key in the segment.

use super::links::{LINK, NONE, split_link};
use crate::chain::records::BlockMeta;
use crate::chain::store::ChainStore;
use crate::storage::blob::BlobStore;
use crate::storage::memory::GrowError;
use crate::storage::table::Change;
use coppice_interface::segments::{Index, Key};
use std::ops::Range;

/// A slice of a block's keys that are in the table, and what was there before.
#[derive(Debug, Default)]
pub(in crate::chain) struct EnteredKeys {
    /// In which order they were entered; and the hash of each, and the posting that the table's entry had.
    order: Vec<u32>,
    hashes: Vec<u64>,
    before: Vec<Option<u64>>,
    /// Their links as they lie in the log: the first key, and the bytes of it and of those that follow.
    pub links: Vec<(u32, Vec<u8>)>,
}

impl EnteredKeys {
    /// The postings that were replaced, of kept blocks and of pruned ones.
    pub fn replaced(&self) -> impl Iterator<Item = u64> {
        self.before.iter().flatten().copied()
    }
}

/// In which order the keys of a block are entered: a transaction comes behind all before it.
fn order_of(keys: &[Key]) -> Vec<u32> {
    let mut order: Vec<u32> = (0..keys.len() as u32).collect();
    // Nearly always it is that of the segment.
    if !keys.is_sorted_by_key(|key| key.transaction) {
        order.sort_by_key(|&key| keys[key as usize].transaction);
    }
    order
}

impl ChainStore {
    /// The hash under which a key's postings are kept.
    #[inline]
    pub(in crate::chain) fn key_hash(&self, key: &[u8]) -> u64 {
        let hash = self.keys.hash(key);
        #[cfg(test)]
        let hash = if self.few_hashes { hash & 3 } else { hash };
        hash
    }

    /// Makes the postings of some keys of a block the newest of their hashes, or none of them. Those before them, in their order, are
    /// there already.
    ///
    /// # Errors
    /// [`GrowError`], and nothing has changed.
    pub(in crate::chain) fn insert_keys(
        &mut self,
        number: u64,
        index: &Index,
        those: Range<u32>,
    ) -> Result<EnteredKeys, GrowError> {
        if those.is_empty() {
            return Ok(EnteredKeys::default());
        }
        let keys: Vec<Key> = index.each_key().collect();
        let mut order = order_of(&keys);
        order.truncate(those.end as usize);
        order.drain(..those.start as usize);
        let hashes: Vec<u64> = order.iter().map(|&key| self.key_hash(keys[key as usize].bytes)).collect();
        let mut entered = EnteredKeys { before: Vec::with_capacity(order.len()), order, hashes, links: Vec::new() };
        let first = self.index_value(number, 0);
        for (&key, &hash) in entered.order.iter().zip(&entered.hashes) {
            match self.keys.put(hash, first | u64::from(key)) {
                Ok(there) => entered.before.push(there),
                Err(error) => {
                    self.take_back_keys(&entered);
                    return Err(error);
                }
            }
        }
        entered.links = self.links_of(number, &keys, &entered);
        Ok(entered)
    }

    /// The links of keys that were entered, in runs of keys that follow each other in the segment.
    fn links_of(&self, number: u64, keys: &[Key], entered: &EnteredKeys) -> Vec<(u32, Vec<u8>)> {
        let mut by_key: Vec<u32> = (0..entered.order.len() as u32).collect();
        if !entered.order.is_sorted() {
            by_key.sort_unstable_by_key(|&at| entered.order[at as usize]);
        }
        let mut runs: Vec<(u32, Vec<u8>)> = Vec::new();
        let mut expected = None;
        for at in by_key {
            let (i, hash) = (entered.order[at as usize], entered.hashes[at as usize]);
            let key = &keys[i as usize];
            // What outlived a damaged block may name this one, and was not put there now.
            let mine = |earlier: u32| {
                keys.get(earlier as usize).is_some_and(|there| {
                    (there.transaction, earlier) < (key.transaction, i) && self.key_hash(there.bytes) == hash
                })
            };
            let previous = entered.before[at as usize].filter(|&posting| match self.index_position(posting) {
                Some((block, earlier)) if block == number => mine(earlier),
                Some((block, _)) => self.state.started && block >= self.state.oldest && block < number,
                None => false,
            });
            if expected != Some(i) {
                runs.push((i, Vec::with_capacity(if runs.is_empty() { entered.order.len() * LINK } else { LINK })));
            }
            let (_, links) = runs.last_mut().expect("a run was begun");
            links.extend(previous.unwrap_or(NONE).to_le_bytes());
            links.extend(key.at.to_le_bytes());
            expected = Some(i + 1);
        }
        runs
    }

    /// Puts the table back to what it was before these keys were entered.
    pub(in crate::chain) fn take_back_keys(&mut self, entered: &EnteredKeys) {
        for (&hash, &before) in entered.hashes.iter().zip(&entered.before).rev() {
            self.keys.change(hash, |_| before.map_or(Change::Out, Change::To));
        }
    }

    /// Takes some keys of the block that goes out, which are the last that are there, in their order: of each hash the posting before
    /// is the newest again, if its block is kept. Answers how many entries went.
    ///
    /// # Errors
    /// A sentence where the links cannot be read; nothing has changed.
    pub(in crate::chain) fn remove_keys(
        &mut self,
        blobs: &BlobStore,
        meta: &BlockMeta,
        index: &Index,
        those: Range<u32>,
    ) -> Result<u64, String> {
        let mut links = Vec::new();
        let range = meta.payload_end()..meta.id_links_start();
        self.log.read_onto(blobs, &mut links, range).map_err(|error| format!("the links of its keys: {error:?}"))?;
        let links = links.as_chunks::<LINK>().0;
        let keys: Vec<Key> = index.each_key().collect();
        let mut removed = 0;
        for &key in order_of(&keys)[those.start as usize..those.end as usize].iter().rev() {
            let posting = self.index_value(meta.number, key);
            let (previous, _) = split_link(&links[key as usize]);
            // Within the block a list leads to smaller transactions, whose keys may have greater numbers.
            let is_heir = |&heir: &u64| heir != posting && heir >> 24 <= posting >> 24 && self.is_behind_bound(heir);
            let heir = Some(previous).filter(is_heir);
            let changed = self.keys.change(self.key_hash(keys[key as usize].bytes), |newest| match heir {
                _ if newest != posting => Change::Keep,
                Some(heir) => Change::To(heir),
                None => Change::Out,
            });
            removed += u64::from(changed.is_some() && heir.is_none());
        }
        Ok(removed)
    }
}
