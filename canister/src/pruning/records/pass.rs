//! Of which old unmined records phase 1 preserves the parents in a run. All of them in each would cost the same whether anything
//! is new or not; what was promised before holds for a while.
//!
//! **Why that is enough.** A promise ends `parent_preservation_blocks` behind the pass that gave it, and the next full pass is at
//! most an eighth of that behind it. What has become old since lies between the two cutoffs. What entered below the first one is
//! marked by the store, and looked at first. A parent that had no record, or was not preserved, when its child was looked at, enters
//! the index of those to delete later: no sooner than `block_height_retention` blocks behind the height of who makes it so. That is a
//! full pass later, unless he is late, or a setting has changed: then there is one before anything goes.

use super::UtxoPruner;
use super::place::{Heights, PassTerms, Run};
use crate::pruning::records::settings::Settings as _;
use crate::utxo::{UtxoStore, Watch};
use coppice_interface::{UtxoPrunerPhase, UtxoSettings};
use serde::{Deserialize, Serialize};

/// A pass over all old unmined records.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FullPass {
    /// Where the chain was.
    height: u32,
    terms: PassTerms,
}

impl UtxoPruner {
    fn pass_terms(&self, utxo: &UtxoSettings) -> PassTerms {
        let settings = &self.stored.settings;
        PassTerms {
            promise: settings.parent_preservation_blocks,
            unmined_retention: settings.unmined_retention(utxo),
            retention: utxo.block_height_retention,
        }
    }

    /// Whether what was promised before does not do.
    fn full_pass_is_due(&self, heights: &Heights, utxo: &UtxoStore, settings: &UtxoSettings) -> bool {
        let Some(FullPass { height, terms }) = self.stored.full_pass else { return true };
        let most = (terms.promise / 8).min(terms.retention);
        let passed = heights.current.checked_sub(height);
        terms != self.pass_terms(settings)
            || passed.is_none_or(|blocks| blocks >= most)
            || utxo.became_due(heights.safe)
    }

    /// Begins a run.
    pub(super) fn begin_run(
        &mut self,
        utxo: &mut UtxoStore,
        settings: &UtxoSettings,
        heights: Heights,
        now_ns: u64,
    ) -> Run {
        let full = self.full_pass_is_due(&heights, utxo, settings);
        if full {
            // Until it is done there was none.
            self.stored.full_pass = None;
            utxo.forget_due();
        }
        self.stored.runs = self.stored.runs.checked_add(1).unwrap_or(1);
        utxo.set_watch(Watch { run: self.stored.runs, bound: heights.safe, cutoff: heights.cutoff });
        let from = if full { 0 } else { self.stored.cutoff };
        let full = full.then(|| self.pass_terms(settings));
        let mut run = Run::begin(self.stored.runs, heights, (from, full), now_ns);
        run.again = self.stored.look_again;
        run
    }

    /// Takes note of a run whose phase 1 is done.
    pub(super) fn note_pass(&mut self, run: &mut Run) {
        if run.phase == UtxoPrunerPhase::PreserveParents || std::mem::replace(&mut run.noted, true) {
            return;
        }
        self.stored.cutoff = run.cutoff;
        if let Some(terms) = run.full {
            self.stored.full_pass = Some(FullPass { height: run.current, terms });
        }
    }
}
