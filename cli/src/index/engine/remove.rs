//! Removal of rows after a reorg, a reset, or the restoration of a canister.
//!
//! The database may hold the only copy of a block, because the canister prunes. So rows are removed only if they are proved not to be in the
//! chain, and go to `orphaned`. If the canister was restored from a snapshot, they stay there for good.

use super::{Engine, Task};
use crate::client::CanisterClient;
use crate::index::change::Keep;
use crate::index::steps::{Checkpoint, Event, Step};
use anyhow::{Error, Result, anyhow, ensure};

impl<T: CanisterClient, C: Checkpoint> Engine<'_, T, C> {
    /// Removes the blocks above the newest common one, or all blocks. The newest certificate then decides again.
    pub(super) fn roll_back(&mut self, common: Option<u64>) -> Result<Event> {
        self.checkpoint.reached(Step::Write)?;
        let restored = self.trust.restored;
        let keep = if restored { Keep::All } else { Keep::Newest(self.options.keep_orphaned) };
        if let Some(proof) = self.trust.prove() {
            self.store.note_proof(proof);
        }
        let checkpoint = &mut self.checkpoint;
        let removed = self.store.change(|change| {
            let removed = change.remove_above(common, keep)?;
            checkpoint.reached(Step::Written)?;
            Ok(removed)
        })?;
        self.at = self.store.load()?;
        self.acks.forget();
        self.trust.restored = false;
        self.task = Task::Certify;
        self.figures.removed_blocks += removed;
        self.figures.reorgs += u64::from(!restored);
        self.checkpoint.reached(Step::Committed)?;
        Ok(Event::Note(match common {
            Some(common) if restored => format!(
                "the canister was restored from a snapshot: {removed} blocks above block {common} moved to the table orphaned, where they \
                 stay"
            ),
            Some(common) => format!("the chain was reorganised above block {common}: {removed} blocks are removed"),
            None => format!("the chain was reset: {removed} blocks of the old chain are removed"),
        }))
    }

    /// Follows a reset of the canister's chain: the stored blocks are of the old chain, and may exist nowhere else.
    pub(super) fn reset(&mut self) -> Result<Event> {
        ensure!(
            self.options.accept_reset,
            "the canister's chain was reset, and this database holds the old chain. --accept-reset removes all of its blocks and \
             starts with the new chain; keep a copy of the database first, or use another database. Nothing was changed"
        );
        self.roll_back(None)
    }

    /// Notes that the canister was restored.
    ///
    /// # Errors
    /// When the options do not allow that.
    pub(super) fn ensure_may_restore(&mut self, why: &str) -> Result<()> {
        ensure!(
            self.options.accept_restore,
            "{why}: the canister was restored from a snapshot or installed anew, or this database holds another chain. Nothing was changed. \
             If the canister was restored, use --accept-restore: blocks that the canister lacks move to the table orphaned, where they stay, \
             and the copy continues after the newest common block"
        );
        self.trust.restored = true;
        Ok(())
    }

    /// The error if the canister keeps no block of this database.
    pub(super) fn nothing_in_common(&self, why: &str) -> Error {
        anyhow!(
            "{why}, and no block that it keeps is in this database. Either the database holds another chain, or the canister was \
             installed anew, or it has pruned the newest common block. Start with another database (--database). Nothing was changed"
        )
    }
}
