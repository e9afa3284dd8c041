//! Postings of secondary keys: the transactions that have a key, newest first.
//!
//! **Constraint.** A key may be in every kept block, and a block may have 100,000 keys. Entering, pruning and rolling back a key
//! must each have a constant cost, and touch few pages.
//!
//! **Design.** A *posting* is one occurrence of a key. The table has one entry for each different hash: its newest posting.
//! Each posting has a link to the one before it. The links lie in the log after the block's index segment, so they are added and
//! freed with the block, and readers of segments do not see them.
//!
//! ```text
//! table     hash of a key ──▶ newest posting
//! log       … body ‖ receipts ‖ index ‖ links │ body ‖ …
//! link      12 bytes for each key, in the segment's order: posting before it u64, u64::MAX for none ‖
//!           where its entry starts in the index segment u32
//! posting   block, counted as `ChainState::counted` does, << 24 | number of the key in its block's segment
//! ```
//! Within a block, postings are linked in the order of transactions. Pruning removes no posting: a list ends at the first posting or
//! link to a pruned block, and a sweep drops the table's entry later (`sweep.rs`). A rollback removes the newest block: the table's
//! entry then gets the posting that came before the block's first posting of that hash.
//!
//! Keys are not stored a second time: a list belongs to a hash, and a reader compares the key in the segment.

use super::Indexed;
use super::links::{LINK, NONE, split_link, without};
use crate::store::ChainStore;
use ic_coppice_interface::segments::Key;
use ic_coppice_storage::table::Change;
use ic_coppice_storage::{GrowError, Meter};
use std::ops::Range;

/// A slice of a block's keys that is in the table, and what it replaced.
#[derive(Debug, Default)]
pub(crate) struct EnteredKeys {
    /// The keys' numbers in the order in which they were entered; for each its hash, and the posting that the table's entry had.
    order: Vec<u32>,
    hashes: Vec<u64>,
    before: Vec<Option<u64>>,
    /// The new links in the log's format: the first key's number, and the bytes of its link and of the following ones.
    pub links: Vec<(u32, Vec<u8>)>,
}

impl EnteredKeys {
    /// Number of keys.
    pub fn count(&self) -> u32 {
        self.hashes.len() as u32
    }

    /// The replaced postings, of kept and of pruned blocks.
    pub fn replaced(&self) -> impl Iterator<Item = u64> {
        self.before.iter().flatten().copied()
    }
}

/// The order in which a block's keys are entered: by transaction.
fn order_of(keys: &[Key]) -> Vec<u32> {
    let mut order: Vec<u32> = (0..keys.len() as u32).collect();
    // Nearly always the segment's order is already by transaction.
    if !keys.is_sorted_by_key(|key| key.transaction) {
        order.sort_by_key(|&key| keys[key as usize].transaction);
    }
    order
}

impl ChainStore {
    /// The hash under which the table has a key's newest posting.
    #[inline]
    pub(crate) fn key_hash(&self, key: &[u8]) -> u64 {
        self.keys.hash(key)
    }

    /// Makes the postings of the block's keys, from the `from`-th one in the order of entering, the newest ones, as far as the meter has
    /// room, or none of them on an error. All earlier keys of the block are there already.
    ///
    /// # Errors
    /// [`GrowError`]; nothing has changed.
    pub(crate) fn insert_keys(&mut self, of: &Indexed, from: u32, meter: &mut Meter) -> Result<EnteredKeys, GrowError> {
        let &Indexed { meta, index, .. } = of;
        if from == index.keys() {
            return Ok(EnteredKeys::default());
        }
        let keys: Vec<Key> = index.each_key().collect();
        let mut order = order_of(&keys);
        order.drain(..from as usize);
        let (hashes, before) = (Vec::with_capacity(order.len()), Vec::with_capacity(order.len()));
        let mut entered = EnteredKeys { order, hashes, before, links: Vec::new() };
        let first = self.index_value(meta.number, 0);
        for at in 0..entered.order.len() {
            if !meter.has_room() {
                break;
            }
            let key = entered.order[at];
            let hash = self.key_hash(keys[key as usize].bytes);
            let there = self.keys.put(hash, first | u64::from(key)).inspect_err(|_| self.revert_keys(&entered))?;
            entered.hashes.push(hash);
            entered.before.push(there);
        }
        entered.order.truncate(entered.hashes.len());
        entered.links = self.links_of(meta.number, &keys, &entered);
        Ok(entered)
    }

    /// The links of entered keys, in runs of keys with consecutive numbers.
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
            // A posting that outlived a damaged block may name this block, although this block did not enter it.
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

    /// Restores the table to its state before these keys were entered.
    pub(crate) fn revert_keys(&mut self, entered: &EnteredKeys) {
        for (&hash, &before) in entered.hashes.iter().zip(&entered.before).rev() {
            self.keys.change(hash, |_| before.map_or(Change::Out, Change::To));
        }
    }

    /// Takes the block's last keys out of the table, in reverse order, as far as the meter has room. For each hash the posting before becomes
    /// the newest again, if that posting's block is kept. Returns the number, in the order of entering, of the first key that was taken out.
    ///
    /// # Errors
    /// A sentence: the links cannot be read. Nothing has changed.
    pub(crate) fn remove_keys(&mut self, of: &Indexed, slice: Range<u32>, meter: &mut Meter) -> Result<u32, String> {
        let &Indexed { blobs, meta, index } = of;
        let range = meta.payload_end()..meta.id_links_start();
        let links = self.log.read(blobs, range).map_err(|error| format!("the links of its keys: {error}"))?;
        let links = links.as_chunks::<LINK>().0;
        let keys: Vec<Key> = index.each_key().collect();
        let order = order_of(&keys);
        for at in slice.clone().rev() {
            if !meter.has_room() {
                return Ok(at + 1);
            }
            let key = order[at as usize];
            let posting = self.index_value(meta.number, key);
            let (previous, _) = split_link(&links[key as usize]);
            // The heir is the posting that becomes the newest. Within the block a list leads to earlier transactions, whose keys may have
            // higher numbers.
            let is_heir = |&heir: &u64| heir != posting && heir >> 24 <= posting >> 24 && self.is_above_bound(heir);
            let heir = Some(previous).filter(is_heir);
            self.keys.change(self.key_hash(keys[key as usize].bytes), without(posting, heir));
        }
        Ok(slice.start)
    }
}
