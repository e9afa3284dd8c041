//! Block in transit: entered into the indexes, or taken out of them, over several messages.
//!
//! **Constraint.** A block has up to 100,000 references. In a large index each lies on a page of its own. Entering all of them, or
//! taking them out, would change 500 MiB in one message, and the platform allows a fraction of that. References that share a bucket of
//! the index take millions of instructions each, because each search walks the bucket's chain.
//!
//! **Design.** A message enters, or takes out, a *slice*: as many references as a [`Meter`] of instructions and pages has room for. At most
//! one block, the one after the head, is partly in the indexes: the block *in transit*. The number of the block in transit is `next` (for a
//! first block, its own number), so readers do not see the block. A reader that finds a posting of the block follows the posting's link to
//! older ones, so the block hides nothing.
//!
//! ```text
//! in    header, links of the slice, its postings │ … │ the last slice, next rises
//! out   next and acknowledgements fall, rollback counted │ its last postings … its first │ header and log are freed
//! ```
//! Ids are entered first, by position, then keys, by transaction. References are taken out in the opposite order, and each restores the
//! posting that it has replaced. Commits (`upload/commit.rs`) enter slices; rollbacks and aborts take them out (`rollback.rs`). The
//! persisted progress is [`Transit`](super::state::Transit).

use super::postings::ids::EnteredIds;
use super::postings::keys::EnteredKeys;
use super::postings::sweep::IndexTable;
use super::store::ChainStore;
use ic_coppice_storage::{Counting, Meter};

/// Instructions after which a message enters or takes out no other reference. An append that enters only a part of its block takes that part
/// out again, which takes no more than entering it did.
pub(super) const INSTRUCTIONS: u64 = 1_000_000_000;
/// References whose pages are not counted: each changes some three pages, and counting them would make a small append several per cent
/// more expensive.
const FEW: u64 = 1_000;
/// Pages of 4 KiB in both tables after which a message enters or takes out no other reference. One reference changes at most 3,600 pages more,
/// if a bucket of 100,000 entries is split.
pub(super) const PAGES: u64 = 13_000;

/// Index entries of a block's slice, and what they replaced.
pub(super) struct Entered {
    pub ids: EnteredIds,
    pub keys: EnteredKeys,
}

impl Entered {
    /// References that were entered.
    pub fn references(&self) -> u64 {
        self.ids.count() + u64::from(self.keys.count())
    }
}

impl ChainStore {
    /// Runs a part of a message that enters at most `references` references, or takes them out, with its meter, which ends when the
    /// instruction counter reaches `end`. Pages are not counted for few references, nor for small tables, because a message may change all
    /// their pages.
    pub(super) fn metered<T>(&mut self, references: u64, end: u64, run: impl FnOnce(&mut Self, &mut Meter) -> T) -> T {
        let mut meter = Meter::new(end, PAGES);
        #[cfg(any(test, feature = "testing"))]
        {
            meter = meter.of_steps(self.small_slices.unwrap_or(u64::MAX));
        }
        let _counting = self.counting(references);
        run(self, &mut meter)
    }

    /// Counts changed pages, if the message may enter or take out so many references that their pages matter.
    pub(super) fn counting(&self, references: u64) -> Option<Counting> {
        let counts = references > FEW && self.index.pages() + self.keys.pages() > PAGES;
        counts.then(Counting::begin)
    }

    /// Restores both tables to their state before a slice was entered.
    pub(super) fn revert_entered(&mut self, entered: &Entered) {
        self.revert_keys(&entered.keys);
        entered.ids.revert(&mut self.index);
    }

    /// Reduces the sweeps' debt by the stale postings that an entered block has replaced.
    pub(super) fn settle_replaced(&mut self, entered: &Entered) {
        entered.ids.replaced().for_each(|posting| self.settle(IndexTable::Ids, posting));
        entered.keys.replaced().for_each(|posting| self.settle(IndexTable::Keys, posting));
    }
}
