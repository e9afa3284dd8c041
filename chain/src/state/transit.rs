//! Block in transit: words of the chain's cell (`src/transit.rs`).

use ic_coppice_interface::segments::MAX_ENTRIES;
use std::ops::Range;

/// Direction of a block in transit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// The block's upload is being committed.
    Entering = 1,
    /// The block's upload was aborted, or has expired.
    Aborted = 2,
    /// The block was the head, and is being rolled back.
    RolledBack = 3,
}

/// A block that is partly in the indexes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transit {
    /// Direction of the block.
    pub way: Way,
    /// Block number.
    pub number: u64,
    /// Count of ids in the index, from the first on.
    pub ids: u32,
    /// Count of keys in the index, from the first on, ordered by transaction.
    pub keys: u32,
    /// One past the block's last blob of the log.
    pub log_end: u64,
}

impl Transit {
    /// Words of the chain's cell.
    pub(crate) const WORDS: usize = 5;

    pub(crate) fn from_words(word: impl Fn(usize) -> u64) -> Result<Option<Self>, String> {
        if word(0) == 0 {
            return Ok(None);
        }
        let way = [Way::Entering, Way::Aborted, Way::RolledBack].into_iter().find(|way| *way as u64 == word(0));
        let way = way.ok_or_else(|| format!("chain state: unknown direction {} of the block in transit", word(0)))?;
        let count = |i: usize| u32::try_from(word(i)).map_err(|_| format!("chain state: {} entries", word(i)));
        Ok(Some(Self { way, number: word(1), ids: count(2)?, keys: count(3)?, log_end: word(4) }))
    }

    pub(crate) fn words(transit: Option<&Self>) -> [u64; Self::WORDS] {
        transit.map_or([0; Self::WORDS], |transit| {
            [transit.way as u64, transit.number, u64::from(transit.ids), u64::from(transit.keys), transit.log_end]
        })
    }

    /// References that are in the indexes.
    pub fn references(&self) -> u64 {
        u64::from(self.ids) + u64::from(self.keys)
    }

    /// The ids and keys to take out next, at most `most`.
    pub(crate) fn last(&self, most: u64) -> (Range<u32>, Range<u32>) {
        let most = most.min(MAX_ENTRIES) as u32;
        let keys = self.keys.saturating_sub(most)..self.keys;
        let left = most - keys.len() as u32;
        (self.ids.saturating_sub(left)..self.ids, keys)
    }
}
