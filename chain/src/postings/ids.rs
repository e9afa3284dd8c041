//! Postings of transaction ids: the blocks that have an id, newest first.
//!
//! **Constraint.** An id may occur in every kept block, and thousands of times in one block. Entering, looking up, pruning and
//! rolling back one occurrence must each have a constant cost. Nearly all ids occur once, and must need no link.
//!
//! **Design.** A *posting* is one occurrence of an id. The table has one entry for each different hash: its newest posting. A
//! posting has a *link* to the one before it only if it replaced a posting of a kept block. Links lie in the log after those of
//! the block's keys, so they are added and freed with the block; the block's header has their count.
//!
//! ```text
//! table     hash of an id ──▶ newest posting
//! log       … body ‖ receipts ‖ index ‖ links of keys ‖ links of ids │ body ‖ …
//! link      12 bytes, by rising position: position u32 ‖ posting before it u64
//! posting   block, counted as `ChainState::counted` does, << 24 | position in its block
//! ```
//! If an id occurs several times in a block, only the last occurrence counts; it has the link that the first one would have.
//! A link that a later slice of the block has taken over stays in the log, with `u64::MAX` (no posting) as its target.
//! Different ids with one hash share a list, and a reader compares the ids. Pruning removes no posting: a list ends at the first
//! posting below the bound, and a sweep drops the entry later (`postings/sweep.rs`). A rollback puts the link's posting back into the
//! entry.

use super::Indexed;
use super::links::{LINK, NONE, links_len, without};
use crate::header::BlockMeta;
use crate::store::ChainStore;
use ic_coppice_interface::segments::ID;
use ic_coppice_storage::blob::BlobStore;
use ic_coppice_storage::table::{Change, HashTable};
use ic_coppice_storage::{GrowError, Meter};
use std::ops::Range;

/// Reasons why a slice was not entered. Nothing has changed.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum EnterError {
    Grow(GrowError),
    /// The links of earlier slices cannot be read.
    Unreadable(String),
}

/// A slice of a block's ids that is in the table, and what it replaced.
#[derive(Debug, Default)]
pub(crate) struct EnteredIds {
    /// Position of the first id.
    from: u32,
    hashes: Vec<u64>,
    /// By rising position: the posting that the table's entry had.
    replaced: Vec<(u32, u64)>,
    /// The new links of the block.
    pub links: Vec<(u32, u64)>,
    /// Links of earlier slices that a later occurrence has taken over, as indices among the block's links; their target becomes `NONE`.
    pub taken_over: Vec<u32>,
}

impl EnteredIds {
    /// The links in the log's format.
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(self.links.len() * LINK);
        for &(position, posting) in &self.links {
            bytes.extend(position.to_le_bytes());
            bytes.extend(posting.to_le_bytes());
        }
        bytes
    }

    /// The replaced postings, of kept and of pruned blocks.
    pub fn replaced(&self) -> impl Iterator<Item = u64> {
        self.replaced.iter().map(|&(_, posting)| posting)
    }

    /// Number of ids.
    pub fn count(&self) -> u64 {
        self.hashes.len() as u64
    }

    /// Position after the last id.
    pub fn end(&self) -> u32 {
        self.from + self.hashes.len() as u32
    }

    /// Restores the table.
    pub fn revert(&self, table: &mut HashTable) {
        let mut replaced = self.replaced.iter().rev().peekable();
        for (position, &hash) in (self.from..self.end()).zip(&self.hashes).rev() {
            let before = replaced.next_if(|&&(at, _)| at == position).map(|&(_, posting)| posting);
            table.change(hash, |_| before.map_or(Change::Out, Change::To));
        }
    }
}

fn split_link(link: &[u8; LINK]) -> (u32, u64) {
    let [a, b, c, d, posting @ ..] = *link;
    (u32::from_le_bytes([a, b, c, d]), u64::from_le_bytes(posting))
}

impl ChainStore {
    /// The hash under which the table has an id's newest posting.
    #[inline]
    pub(crate) fn id_hash(&self, id: &[u8; ID]) -> u64 {
        self.index.hash(id)
    }

    /// Makes the postings of the block's ids from number `from` on the newest ones, as far as the meter has room, or none of them on an
    /// error. All earlier ids of the block are there already, with `meta.id_links` links.
    ///
    /// # Errors
    /// [`EnterError`]; nothing has changed.
    pub(crate) fn insert_ids(&mut self, of: &Indexed, from: u32, meter: &mut Meter) -> Result<EnteredIds, EnterError> {
        let &Indexed { meta, index, .. } = of;
        let mut entered = EnteredIds { from, ..EnteredIds::default() };
        entered.hashes.reserve((index.transactions() - from) as usize);
        let first = self.index_value(meta.number, 0);
        for (position, id) in (from..).zip(index.ids().skip(from as usize)) {
            if !meter.has_room() {
                break;
            }
            let hash = self.id_hash(id);
            let entering = self.index.put(hash, first | u64::from(position)).map_err(EnterError::Grow);
            let linked = entering.and_then(|before| {
                entered.hashes.push(hash);
                let Some(before) = before else { return Ok(()) };
                entered.replaced.push((position, before));
                self.link(of, &mut entered, (position, before)).map_err(EnterError::Unreadable)
            });
            if let Err(error) = linked {
                entered.revert(&mut self.index);
                return Err(error);
            }
        }
        entered.links.retain(|&(_, posting)| posting != NONE);
        Ok(entered)
    }

    /// Adds the link that a replaced posting requires. A posting of an earlier kept block gets a link; so does one of this block if its
    /// id is another one with the same hash. If it is the same id again, the later occurrence takes over the earlier one's link, which then
    /// leads to `NONE`.
    fn link(&self, of: &Indexed, entered: &mut EnteredIds, (position, before): (u32, u64)) -> Result<(), String> {
        let (&Indexed { blobs, meta, index }, from) = (of, entered.from);
        let Some((block, earlier)) = self.index_position(before) else { return Ok(()) };
        if block != meta.number {
            // A posting that outlived a damaged block may name a block that is not there yet.
            if self.state.started && block >= self.state.oldest && block < meta.number {
                entered.links.push((position, before));
            }
            return Ok(());
        }
        // A posting with another hash or a later position was not entered by this block either.
        let hash = entered.hashes[(position - from) as usize];
        let hash_there = match earlier.checked_sub(from) {
            Some(in_slice) => entered.hashes.get(in_slice as usize).copied(),
            None => index.id(earlier).map(|id| self.id_hash(id)),
        };
        if earlier >= position || hash_there != Some(hash) {
            return Ok(());
        }
        if index.id(earlier) != index.id(position) {
            entered.links.push((position, before));
        } else if earlier < from {
            if let Some((link, inherited)) = self.id_link(blobs, meta, earlier)? {
                entered.taken_over.push(link);
                entered.links.push((position, inherited));
            }
        } else if let Ok(at) = entered.links.binary_search_by_key(&earlier, |&(position, _)| position) {
            let inherited = std::mem::replace(&mut entered.links[at].1, NONE);
            entered.links.push((position, inherited));
        }
        Ok(())
    }

    /// Takes the block's last ids out of the table, as far as the meter has room. For each of them the posting before it becomes the newest
    /// again, if that posting's block is kept. Returns the first position that was taken out.
    ///
    /// # Errors
    /// A sentence: the links cannot be read. Nothing has changed.
    pub(crate) fn remove_ids(&mut self, of: &Indexed, ids: Range<u32>, meter: &mut Meter) -> Result<u32, String> {
        let &Indexed { blobs, meta, index } = of;
        let range = meta.id_links_start()..meta.log_end();
        let links = self.log.read(blobs, range).map_err(|error| format!("the links of its ids: {error}"))?;
        let mut links = links.as_chunks().0.iter().map(split_link).rev().peekable();
        // From the last to the first, because among postings of one hash each leads to the one before it.
        for position in ids.clone().rev() {
            if !meter.has_room() {
                return Ok(position + 1);
            }
            let Some(id) = index.id(position) else { continue };
            let posting = self.index_value(meta.number, position);
            while links.next_if(|&(at, _)| at > position).is_some() {}
            let before = links.next_if(|&(at, _)| at == position).map(|(_, before)| before);
            let before = before.filter(|&before| before < posting && self.is_above_bound(before));
            let hash = self.id_hash(id);
            self.index.change(hash, without(posting, before));
        }
        Ok(ids.start)
    }

    /// Returns whether a posting's block is not pruned.
    pub(crate) fn is_above_bound(&self, posting: u64) -> bool {
        self.index_position(posting).is_some_and(|(block, _)| block >= self.state.oldest)
    }

    /// The link of the id at position `id` of a kept block or of the block in transit: its index among the block's links, and the posting it
    /// leads to.
    ///
    /// # Errors
    /// A sentence: the links cannot be read.
    #[cold]
    pub(crate) fn id_link(&self, blobs: &BlobStore, meta: &BlockMeta, id: u32) -> Result<Option<(u32, u64)>, String> {
        let link = |at: u32| -> Result<(u32, u64), String> {
            let bytes = self.log.read_array(blobs, meta.id_links_start() + links_len(at));
            bytes.map(|bytes| split_link(&bytes)).map_err(|error| format!("the links of its ids: {error}"))
        };
        let (mut low, mut high) = (0, meta.id_links);
        while low < high {
            let middle = low + (high - low) / 2;
            match link(middle)? {
                (at, posting) if at == id => return Ok((posting != NONE).then_some((middle, posting))),
                (at, _) if at < id => low = middle + 1,
                _ => high = middle,
            }
        }
        Ok(None)
    }
}
