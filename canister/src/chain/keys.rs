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

use super::records::BlockMeta;
use super::segments::{Index, Key};
use super::{ChainStore, place};
use crate::blob::BlobStore;
use crate::memory::GrowError;
use crate::table::Change;

/// Bytes of a link.
pub(super) const LINK: usize = 12;
/// No posting.
pub(super) const NONE: u64 = u64::MAX;

/// Bytes that the links of so many keys take in the log.
pub(super) fn links_len(keys: u32) -> u64 {
    u64::from(keys) * LINK as u64
}

/// The posting before a key's, and where the key's entry starts in the index segment.
pub(super) fn split_link(link: &[u8; LINK]) -> (u64, u32) {
    let [a, b, c, d, e, f, g, h, at @ ..] = *link;
    (u64::from_le_bytes([a, b, c, d, e, f, g, h]), u32::from_le_bytes(at))
}

/// The keys of a block that are in the table, and what was there before.
#[derive(Debug, Default)]
pub(super) struct EnteredKeys {
    hashes: Vec<u64>,
    /// In which order they were entered.
    order: Vec<u32>,
    /// By key: the posting that the table's entry had.
    before: Vec<Option<u64>>,
    /// The links of the block, as they lie in the log.
    pub links: Vec<u8>,
}

impl EnteredKeys {
    /// The postings that were replaced, of kept blocks and of pruned ones.
    pub fn replaced(&self) -> impl Iterator<Item = u64> {
        self.before.iter().flatten().copied()
    }
}

/// A key that goes with the head.
struct GoingKey {
    hash: u64,
    /// The posting that takes its place in the table.
    heir: Option<u64>,
}

impl ChainStore {
    /// The hash under which a key's postings are kept.
    #[inline]
    pub(super) fn key_hash(&self, key: &[u8]) -> u64 {
        let hash = self.keys.hash(key);
        #[cfg(test)]
        let hash = if self.few_hashes { hash & 3 } else { hash };
        hash
    }

    /// Makes the postings of block `number` the newest of their hashes, or none of them.
    ///
    /// # Errors
    /// [`GrowError`], and nothing has changed.
    pub(super) fn insert_keys(&mut self, number: u64, index: &Index) -> Result<EnteredKeys, GrowError> {
        let keys: Vec<Key> = index.each_key().collect();
        let hashes: Vec<u64> = keys.iter().map(|key| self.key_hash(key.bytes)).collect();
        // A transaction comes behind all before it; nearly always it does so in the segment too.
        let mut order: Vec<u32> = (0..keys.len() as u32).collect();
        order.sort_by_key(|&key| keys[key as usize].transaction);
        let mut before: Vec<Option<u64>> = vec![None; keys.len()];
        for (done, &key) in order.iter().enumerate() {
            match self.keys.put(hashes[key as usize], self.index_value(number, key)) {
                Ok(there) => before[key as usize] = there,
                Err(error) => {
                    order.truncate(done);
                    self.take_back_keys(&EnteredKeys { hashes, order, before, links: Vec::new() });
                    return Err(error);
                }
            }
        }
        let mut links = Vec::with_capacity(keys.len() * LINK);
        for (i, key) in keys.iter().enumerate() {
            // What outlived a damaged block may name this one, and was not put there now.
            let mine = |earlier: u32| {
                let earlier = earlier as usize;
                hashes.get(earlier) == Some(&hashes[i]) && (keys[earlier].transaction, earlier) < (key.transaction, i)
            };
            let previous = before[i].filter(|&posting| match self.index_place(posting) {
                (block, earlier) if block == number => mine(earlier),
                (block, _) => self.state.started && block >= self.state.oldest && block < number,
            });
            links.extend(previous.unwrap_or(NONE).to_le_bytes());
            links.extend(key.at.to_le_bytes());
        }
        Ok(EnteredKeys { hashes, order, before, links })
    }

    /// Puts the table back to what it was before a block's keys were entered.
    pub(super) fn take_back_keys(&mut self, entered: &EnteredKeys) {
        for &key in entered.order.iter().rev() {
            let (hash, before) = (entered.hashes[key as usize], entered.before[key as usize]);
            self.keys.change(hash, |_| before.map_or(Change::Out, Change::To));
        }
    }

    /// The keys of the head, one for each hash, each with the newest posting in a kept block before it.
    ///
    /// # Errors
    /// A sentence where the links cannot be read.
    fn keys_of_head(&self, blobs: &BlobStore, meta: &BlockMeta, index: &Index) -> Result<Vec<GoingKey>, String> {
        let mut links = Vec::new();
        let range = meta.payload_end()..meta.id_links_start();
        self.log.read_onto(blobs, &mut links, range).map_err(|error| format!("the links of its keys: {error:?}"))?;
        let going = index.each_key().zip(links.as_chunks().0).filter_map(|(key, link)| {
            let (previous, _) = split_link(link);
            let (block, _) = self.index_place(previous);
            // Only a hash's first posting in the block leads out of it.
            (previous == NONE || block != meta.number).then(|| {
                let kept = previous != NONE && block >= self.state.oldest && block < meta.number;
                GoingKey { hash: self.key_hash(key.bytes), heir: kept.then_some(previous) }
            })
        });
        Ok(going.collect())
    }

    /// Takes the keys of the head out, and says of how many the table has nothing any more.
    ///
    /// # Errors
    /// A sentence where the links cannot be read; nothing has changed.
    pub(super) fn remove_keys(&mut self, blobs: &BlobStore, meta: &BlockMeta, index: &Index) -> Result<u64, String> {
        let (base, mut removed) = (self.state.base, 0);
        for key in self.keys_of_head(blobs, meta, index)? {
            let changed = self.keys.change(key.hash, |newest| match key.heir {
                _ if place(base, newest).0 != meta.number => Change::Keep,
                Some(heir) => Change::To(heir),
                None => Change::Out,
            });
            removed += u64::from(changed.is_some() && key.heir.is_none());
        }
        Ok(removed)
    }
}
