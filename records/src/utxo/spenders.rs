//! Checks of a record's spenders for the defensive check of phase 2 (`pruning/delete.rs`): a record whose spender is not stable is
//! kept. A spender is *stable* if it is mined, and its highest block is at least the retention below the run's height.

use super::call::{Answer, if_found};
use super::limits::{STEP, meter};
use super::record::{Entry, Hash, SPENDER_DELETED, SPENT, entries, flag};
use super::scan::{Candidate, LOOKUP_PAGES};
use super::store::UtxoStore;
use ic_coppice_storage::table::same_key;

/// The reason that a spender is not stable (`pruner-service.md` 2.5).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unstable {
    /// The spender is in no block of the longest chain.
    Unmined,
    /// The spender's block is too recent, until this height.
    Recent(u32),
    /// The spender has no record, and the output does not say that the spender was deleted.
    Absent,
}

impl UtxoStore {
    /// Returns the number of reverted spends and mined flags; a check of spenders is invalid after a revert.
    pub fn reverts(&self) -> u64 {
        self.root.reverts
    }

    /// Begins a check of a record's spenders that takes several messages.
    pub fn begin_check(&mut self, of: &Candidate) {
        self.set_flags(of.slot, of.head.flags | flag::CHECKED);
    }

    /// Returns the reason that a spender of a range of outputs, the first and their number, is not stable, if one is not, and the next output:
    /// an earlier one than that after the range if finding the spenders takes too many instructions.
    ///
    /// # Errors
    /// `Corrupt`.
    pub fn unstable_child(
        &mut self,
        of: &Candidate,
        outputs: (u32, u32),
        current: u32,
        retention: u32,
    ) -> Answer<(Option<Unstable>, u32)> {
        let mut result = Ok(None);
        let (mut next, mut meter) = (None, meter(STEP));
        let mut last: Option<Hash> = None;
        let mut read = 0;
        entries(&self.slots, of.slot, &of.head, outputs, |vout, _, entry| {
            let known = last.is_some_and(|last| same_key(&last, &entry.spender.0));
            if next.is_none() && matches!(result, Ok(None)) && entry.is(SPENT) && !entry.is(SPENDER_DELETED) && !known {
                if !meter.has_time() {
                    next = Some(vout);
                    return;
                }
                last = Some(entry.spender.0);
                read += LOOKUP_PAGES;
                result = self.unstable(&entry, current, retention);
            }
        })?;
        self.used.read += read;
        let (first, count) = outputs;
        Ok((result?, next.unwrap_or(first.saturating_add(count)).min(of.head.outputs)))
    }

    fn unstable(&self, entry: &Entry, current: u32, retention: u32) -> Answer<Option<Unstable>> {
        let Some(found) = if_found(self.find_any(&entry.spender.0))? else { return Ok(Some(Unstable::Absent)) };
        let head = &found.head;
        if !head.mined() {
            return Ok(Some(Unstable::Unmined));
        }
        let stable_at = self.highest_block(head)?.saturating_add(retention);
        Ok((current < stable_at).then_some(Unstable::Recent(stable_at)))
    }
}
