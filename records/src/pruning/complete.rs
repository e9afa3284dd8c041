//! Completed rows of the deletion queue: removes their records (`external/complete.rs`) and counts these as deleted. Endpoints of workers
//! reach the queue through the pruner, because the pruner has the height and the counts.

use super::{Stored, UtxoPruner};
use crate::deletion::{DeletionQueue, MOST_INSTRUCTIONS, row_meter};
use crate::external::Records;
use crate::external::complete::Rows;
use crate::utxo::Call;
use ic_coppice_storage::{Counting, MOST_PAGES};

impl UtxoPruner {
    /// Runs an operation of the queue that also removes the records of deleted blobs, at the present time.
    pub fn with_records<T>(
        &mut self,
        records: &mut Records,
        run: impl FnOnce(&mut DeletionQueue, u64, &mut Rows) -> T,
    ) -> T {
        let Records { utxo, deletions, settings, .. } = records;
        let Stored { totals, current, .. } = &mut self.stored;
        let (before, call) = (*totals, Call::at((*current).max(1), settings));
        let counting = Counting::begin();
        let meter = row_meter(MOST_INSTRUCTIONS, MOST_PAGES);
        let done = run(deletions, call.now_ns, &mut Rows { utxo, call, totals, meter });
        drop(counting);
        if self.stored.totals != before {
            self.save();
        }
        done
    }
}
