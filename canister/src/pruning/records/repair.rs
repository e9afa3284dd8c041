//! An operator's way back from wrong notifications: heights are set, and jobs cancelled.

use super::UtxoPruner;
use super::heights::is_height;
use crate::platform;
use crate::pruning::records::settings::Settings as _;
use coppice_interface::{
    MAX_HEIGHT, UtxoHeightsSet, UtxoJobEnd, UtxoJobState, UtxoJobTrigger, UtxoPruneJob, UtxoPrunerError,
    UtxoSetHeights, UtxoSettings,
};

fn invalid(field: &str, why: &str) -> UtxoPrunerError {
    UtxoPrunerError::Invalid { field: field.into(), why: why.into() }
}

/// # Errors
/// `ZeroHeight`, `BadHeight`, `Invalid`.
fn check(heights: &UtxoSetHeights) -> Result<(), UtxoPrunerError> {
    let UtxoSetHeights { current, persisted, processed } = *heights;
    if current > MAX_HEIGHT || processed > MAX_HEIGHT {
        return Err(UtxoPrunerError::BadHeight { most: MAX_HEIGHT });
    }
    persisted.map_or(Ok(()), is_height)?;
    if persisted.is_some_and(|persisted| persisted > current) {
        return Err(invalid("persisted", "it is above the current height"));
    }
    if processed > current {
        let why = "it is above the current height: nothing would be pruned until the chain is there";
        return Err(invalid("processed", why));
    }
    Ok(())
}

impl UtxoPruner {
    /// Sets the heights, whatever was notified. The run that is under way is dropped, and what waits or runs cancelled: all of
    /// it went by other heights. What is due now waits for the next tick.
    ///
    /// # Errors
    /// `ZeroHeight`, `BadHeight`, `Invalid`, and nothing has changed.
    pub fn set_heights(
        &mut self,
        heights: &UtxoSetHeights,
        utxo: &UtxoSettings,
    ) -> Result<UtxoHeightsSet, UtxoPrunerError> {
        check(heights)?;
        self.end_run();
        for job in [self.stored.running.take(), self.stored.pending.take()].into_iter().flatten() {
            self.end(job, UtxoJobState::Cancelled, Some(UtxoJobEnd::HeightsSet));
        }
        self.stored.current = heights.current;
        self.stored.persisted = heights.persisted.unwrap_or(0);
        self.stored.processed = heights.processed;
        self.stored.feeds.set(platform::time_ns());
        self.stored.look_again = true;
        let safe_height = self.safe_height(utxo, heights.current);
        let due = (safe_height > heights.processed).then(|| self.make_pending(safe_height, UtxoJobTrigger::Due));
        self.save();
        let unmined_cutoff_height = self.stored.settings.unmined_cutoff(utxo, heights.current);
        Ok(UtxoHeightsSet { heights: *heights, safe_height, unmined_cutoff_height, due })
    }

    /// Ends a job that waits or runs. Its height is neither processed nor pending; what of a record was begun is finished by
    /// the next run.
    ///
    /// # Errors
    /// `NotOpen`, and nothing has changed.
    pub fn cancel(&mut self, id: u64) -> Result<UtxoPruneJob, UtxoPrunerError> {
        let is = |job: &mut UtxoPruneJob| job.id == id;
        let running = self.stored.running.take_if(is);
        let job = running.or_else(|| self.stored.pending.take_if(is)).ok_or(UtxoPrunerError::NotOpen)?;
        // Where nothing runs any more, a run is that of this job, or was left to it.
        if self.stored.running.is_none() {
            self.end_run();
        }
        let job = self.end(job, UtxoJobState::Cancelled, Some(UtxoJobEnd::Cancelled));
        self.save();
        Ok(job)
    }
}
