//! Ids of a block, sorted, because a transaction may come later in its block than one that spends from it.

use super::window::{BodyError, Source, Window};
use crate::utxo::Hash;
use ic_coppice_storage::bytes::u64_at;
use std::cell::OnceCell;

/// The ids of the block, once they are needed; `None` inside if they cannot be read.
pub type Cached = OnceCell<Option<BlockIds>>;

/// Reads the ids of the block of a window.
///
/// # Errors
/// `Corrupt`.
pub fn read(window: &Window, source: Source) -> Result<BlockIds, BodyError> {
    window.ids(source, 0..window.block.transactions).map(BlockIds::new)
}

/// Returns the position of a transaction in the block of a window.
pub fn position(cached: &Cached, window: &Window, source: Source, txid: &Hash) -> Option<u32> {
    cached.get_or_init(|| read(window, source).ok()).as_ref()?.position(txid)
}

/// The ids of a block's index segment.
pub struct BlockIds {
    ids: Vec<Hash>,
    /// The first bytes of each id, which nearly always differ, and its position.
    sorted: Vec<(u64, u32)>,
}

impl BlockIds {
    /// Sorts ids.
    pub fn new(ids: Vec<Hash>) -> Self {
        let mut sorted: Vec<(u64, u32)> = ids.iter().zip(0..).map(|(id, nth)| (u64_at(id, 0), nth)).collect();
        sorted.sort_unstable_by(|a, b| a.0.cmp(&b.0).then_with(|| ids[a.1 as usize].cmp(&ids[b.1 as usize])));
        Self { ids, sorted }
    }

    /// Returns the positions of two transactions that have the same id, the earlier one first.
    pub fn twice(&self) -> Option<(u32, u32)> {
        let same = |[a, b]: &&[(u64, u32); 2]| a.0 == b.0 && self.ids[a.1 as usize] == self.ids[b.1 as usize];
        let [(_, a), (_, b)] = *self.sorted.array_windows().find(same)?;
        Some((a.min(b), a.max(b)))
    }

    /// Returns the position of a transaction.
    pub fn position(&self, txid: &Hash) -> Option<u32> {
        let first = u64_at(txid, 0);
        let order = |(of, nth): &(u64, u32)| of.cmp(&first).then_with(|| self.ids[*nth as usize].cmp(txid));
        self.sorted.binary_search_by(order).ok().map(|at| self.sorted[at].1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_found_and_two_equal_ones_are_named() {
        let id = |first: u8, last: u8| std::array::from_fn(|at| if at == 31 { last } else { first });
        let ids = BlockIds::new(vec![id(9, 0), id(5, 2), id(5, 1), id(1, 7)]);
        assert_eq!([id(9, 0), id(5, 2), id(5, 1), id(1, 7)].map(|id| ids.position(&id)), [0, 1, 2, 3].map(Some));
        assert_eq!([id(5, 3), id(0, 0), [255; 32]].map(|id| ids.position(&id)), [None; 3]);
        assert_eq!(ids.twice(), None);
        assert_eq!(BlockIds::new(vec![id(5, 1), id(5, 2), id(4, 4), id(5, 1)]).twice(), Some((0, 3)));
        let none = BlockIds::new(vec![]);
        assert_eq!((none.position(&id(1, 1)), none.twice()), (None, None));
    }
}
