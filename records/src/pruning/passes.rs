//! Choice of the unmined records that phase 1 examines in a run. Examining all of them in each run would repeat work, because a parent
//! stays preserved for a while.
//!
//! ```text
//! run          full pass at height h │ other passes                                 │ full pass at h + min(preservation / 8, retention)
//! examines     all unmined           │ those between the last cutoff and this one   │ all unmined
//! ```
//! Each run examines all late records (`utxo/order.rs`) first. A full pass examines young records, too: of a young record only those parents
//! are preserved that are due before the record is old.
//!
//! **Correctness.** Let a run be about to delete a parent that is due at `k`, and let a live unmined child be unmined since `s`.
//!
//! - *The child is old* (`s` is below the cutoff). A parent is preserved until `parent_preservation_blocks` after the pass that preserved it,
//!   and the next full pass comes at most an eighth of that later. Records that have become old since lie between the two cutoffs. Records
//!   that were created below the first cutoff are late. A parent that had no record, or was not preserved, when its child was examined,
//!   enters the index of records to delete at least `block_height_retention` blocks after the height of the call that makes it eligible. A
//!   full pass comes before that height. If the call reports an old height, or a setting has changed, a full pass precedes the next deletion.
//! - *The child is young*, so `k` is at most `s` + `unmined_tx_retention`. If the parent was due when the child was created, the child is
//!   late. If the parent became due after that, the last full pass either followed and preserved the parent, or precedes the parent's entry
//!   into the index of records to delete, and then this run begins with a full pass. A child that becomes unmined again is late.

use super::UtxoPruner;
use super::place::{FullPass, Heights, PassTerms, Run};
use super::settings::unmined_retention;
use crate::external::Records;
use crate::utxo::{Cursor, RunWindow, UtxoStore};
use ic_coppice_interface::UtxoPrunerPhase;

impl UtxoPruner {
    /// Returns whether the last full pass no longer covers a run at these heights, on these terms.
    fn full_pass_is_due(&self, heights: &Heights, new: &PassTerms, utxo: &UtxoStore) -> bool {
        let Some(FullPass { height, terms }) = self.stored.full_pass else { return true };
        let most = (terms.promise / 8).min(terms.retention);
        let passed = heights.current.checked_sub(height);
        terms != *new || passed.is_none_or(|blocks| blocks >= most) || utxo.became_due(heights.safe)
    }

    /// Begins a run. Its phase 1 examines unmined records of all heights in a full pass, and otherwise those from the last cutoff on.
    pub(super) fn begin_run(&mut self, records: &mut Records, heights: Heights, now_ns: u64) -> Run {
        let Records { utxo, settings, .. } = records;
        let terms = PassTerms {
            promise: self.stored.settings.parent_preservation_blocks,
            unmined_retention: unmined_retention(&self.stored.settings, settings),
            retention: settings.block_height_retention,
        };
        let full = self.full_pass_is_due(&heights, &terms, utxo);
        if full {
            // A pass that is interrupted does not count.
            self.stored.full_pass = None;
            utxo.forget_due();
        }
        self.stored.runs = self.stored.runs.checked_add(1).unwrap_or(1);
        let Heights { safe: bound, cutoff, .. } = heights;
        utxo.set_window(RunWindow { run: self.stored.runs, bound, cutoff, retention: terms.unmined_retention });
        let from = if full { 0 } else { self.stored.cutoff };
        Run {
            heights,
            phase: UtxoPrunerPhase::PreserveParents,
            number: self.stored.runs,
            full: full.then_some(terms),
            again: self.stored.look_again,
            cursor: Cursor { key: from, ..Cursor::default() },
            phase_since: now_ns,
            ..Run::default()
        }
    }

    /// Records the end of a run's phase 1, once.
    pub(super) fn note_pass(&mut self, run: &mut Run) {
        if run.phase == UtxoPrunerPhase::PreserveParents || std::mem::replace(&mut run.noted, true) {
            return;
        }
        self.stored.cutoff = run.heights.cutoff;
        if let Some(terms) = run.full {
            self.stored.full_pass = Some(FullPass { height: run.heights.current, terms });
        }
    }
}
