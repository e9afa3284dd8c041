//! Repair after wrong notifications: an operator sets heights and cancels jobs.

use super::heights::is_height;
use super::settings::unmined_cutoff;
use super::{Answer, UtxoPruner};
use ic_coppice_interface::{
    BadArgument, BadHeight, MAX_HEIGHT, UtxoHeightsSet, UtxoJobEnd, UtxoJobState, UtxoJobTrigger, UtxoPruneJob,
    UtxoPrunerError, UtxoSetHeights, UtxoSettings,
};
use ic_coppice_storage::{Ic, Platform as _};

/// Checks the heights that an operator sets.
///
/// # Errors
/// `BadHeight`, `BadArgument`.
fn check(heights: &UtxoSetHeights) -> Answer<()> {
    let UtxoSetHeights { current, persisted, processed } = *heights;
    if current > MAX_HEIGHT || processed > MAX_HEIGHT {
        return Err(UtxoPrunerError::BadHeight(BadHeight::TooHigh { most: MAX_HEIGHT }));
    }
    persisted.map_or(Ok(()), is_height)?;
    if persisted.is_some_and(|persisted| persisted > current) {
        return Err(BadArgument::new("persisted", "it is above the current height").into());
    }
    if processed > current {
        let why = "it is above the current height: nothing would be pruned until the chain is there";
        return Err(BadArgument::new("processed", why).into());
    }
    Ok(())
}

impl UtxoPruner {
    /// Sets the heights, whatever was notified. Drops the run and cancels the running and the pending job, because they used other heights.
    /// A job for the records that are now due waits for the next tick.
    ///
    /// # Errors
    /// `BadHeight`, `BadArgument`; nothing has changed.
    pub fn set_heights(&mut self, heights: &UtxoSetHeights, utxo: &UtxoSettings) -> Answer<UtxoHeightsSet> {
        check(heights)?;
        let UtxoSetHeights { current, persisted, processed } = *heights;
        self.begin_anew(UtxoJobEnd::HeightsSet, (current, persisted.unwrap_or(0), processed));
        let safe_height = self.safe_height(utxo, current);
        let due = (safe_height > processed).then(|| self.make_pending(safe_height, UtxoJobTrigger::Due));
        self.save();
        let unmined_cutoff_height = unmined_cutoff(&self.stored.settings, utxo, current);
        Ok(UtxoHeightsSet { heights: *heights, safe_height, unmined_cutoff_height, due })
    }

    /// Forgets the heights and cancels the jobs, because the chain begins anew at any height. Records stay.
    pub fn reset(&mut self) {
        self.begin_anew(UtxoJobEnd::ChainReset, (0, 0, 0));
        (self.stored.full_pass, self.stored.cutoff) = (None, 0);
        self.save();
    }

    /// Drops the run, cancels the running and the pending job, and sets the current, the persisted and the processed height.
    fn begin_anew(&mut self, end: UtxoJobEnd, heights: (u32, u32, u32)) {
        self.end_run();
        for job in [self.stored.running.take(), self.stored.pending.take()].into_iter().flatten() {
            self.end(job, UtxoJobState::Cancelled, Some(end.clone()));
        }
        (self.stored.current, self.stored.persisted, self.stored.processed) = heights;
        self.stored.feeds.set(Ic::now_ns());
        self.stored.look_again = true;
    }

    /// Cancels a pending or running job. Its height is neither processed nor pending; the next run finishes a record whose deletion has
    /// begun.
    ///
    /// # Errors
    /// `NotOpen`; nothing has changed.
    pub fn cancel(&mut self, id: u64) -> Answer<UtxoPruneJob> {
        let is = |job: &mut UtxoPruneJob| job.id == id;
        let running = self.stored.running.take_if(is);
        let job = running.or_else(|| self.stored.pending.take_if(is)).ok_or(UtxoPrunerError::NotOpen)?;
        // If no job runs now, a remaining run belongs to the cancelled job.
        if self.stored.running.is_none() {
            self.end_run();
        }
        let job = self.end(job, UtxoJobState::Cancelled, Some(UtxoJobEnd::Cancelled));
        self.save();
        Ok(job)
    }
}
