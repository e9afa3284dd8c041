//! Jobs of the pruner: waits for them, and enters ended jobs into the ledger.

use super::story::Story;
use anyhow::{Result, bail, ensure};
use ic_coppice_cli::client::{CanisterClient, Wait};
use ic_coppice_interface::*;
use std::time::Duration;

/// Jobs of a page.
const JOBS_OF_A_PAGE: u32 = 40;

impl<C: CanisterClient> Story<'_, C> {
    /// Notes a block that was applied, of which the canister is thereby notified.
    pub fn note_applied(&mut self, height: u32) {
        self.current = self.current.max(height);
        // Once the persister runs, its blocks make jobs due.
        self.jobs.due |= self.persister.persisted() == 0;
    }

    /// Notifies the canister of persisted blocks, one after the other.
    pub fn notify_persisted(&mut self, heights: std::ops::Range<u32>) -> Result<()> {
        for height in heights {
            let trigger = self.client.utxo_notify_block_persisted(height).done()?;
            self.persisted = self.persisted.max(height);
            match trigger {
                UtxoNotifyOutcome::Scheduled(_) | UtxoNotifyOutcome::Underway(_) => self.jobs.due = true,
                // Block notifications had advanced the pruner further before the persister started.
                UtxoNotifyOutcome::Processed(_) => {}
                other => bail!("utxo_notify_block_persisted({height}): {other:?}"),
            }
        }
        Ok(())
    }

    /// Returns the height up to which records may be deleted: the block persister's, if it runs.
    pub fn safe_height(&self) -> u32 {
        if self.persisted == 0 { self.current } else { self.current.min(self.persisted) }
    }

    /// Waits for the pruner's timer.
    pub fn await_tick(&self) -> Result<()> {
        self.client.transport().await_timer(Duration::from_secs(self.settings.tick_interval_secs))
    }

    /// Waits until the pruner's status is as expected.
    pub fn await_status(&self, what: &str, ready: impl Fn(&UtxoPrunerStatus) -> bool) -> Result<UtxoPrunerStatus> {
        let progress = |status: &UtxoPrunerStatus| {
            let ticks = |job: &Option<UtxoPruneJob>| job.as_ref().map(|job| (job.id, job.ticks));
            (ticks(&status.running), ticks(&status.last_job))
        };
        let mut status = self.client.utxo_get_pruner_status().wait()?;
        let mut waits = 0;
        while !ready(&status) {
            ensure!(
                waits < self.client.transport().patience(),
                "{what}, yet the timer does nothing: pending {:?}, running {:?}, blocked by {:?}",
                status.pending,
                status.running,
                status.blocked_by
            );
            let before = progress(&status);
            self.await_tick()?;
            status = self.client.utxo_get_pruner_status().wait()?;
            waits = if progress(&status) == before { waits + 1 } else { 0 };
        }
        Ok(status)
    }

    /// Lets the timer fire until no job waits or runs, and compares the results with the ledger.
    pub fn settle(&mut self, height: u32) -> Result<()> {
        if !self.jobs.due {
            return Ok(());
        }
        let mut status =
            self.await_status("a job is due", |status| status.pending.is_none() && status.running.is_none())?;
        if let Some(external) = &mut self.external {
            external.work()?;
            status = self.client.utxo_get_pruner_status().wait()?;
        }
        self.jobs.due = false;
        self.note_jobs()?;
        let (totals, done) = (status.totals, self.ledger.done());
        let found = (totals.records_deleted, totals.preservations_expired);
        if found != (done.deleted, done.expired) {
            self.name_the_difference(height)?;
            bail!("records deleted and preservations expired should be {done:?}, but are {found:?}");
        }
        let heights = (status.current_height, status.last_persisted_height.unwrap_or(0), status.safe_height);
        let expected = (self.current, self.persisted, self.safe_height());
        ensure!(heights == expected, "current, persisted and safe height should be {expected:?}, but are {heights:?}");
        Ok(())
    }

    /// Enters newly ended jobs into the ledger, in the order in which they ended.
    pub fn note_jobs(&mut self) -> Result<()> {
        let mut ended: Vec<UtxoPruneJob> = Vec::new();
        let mut cursor = None;
        loop {
            let page = self.client.utxo_list_prune_jobs(cursor, JOBS_OF_A_PAGE).wait()?;
            let known = page.jobs.iter().any(|job| self.jobs.seen.contains(&job.id));
            let new = |job: &UtxoPruneJob| job.ended_at_ns.is_some() && !self.jobs.seen.contains(&job.id);
            ended.extend(page.jobs.into_iter().filter(new));
            cursor = page.cursor;
            if known || cursor.is_none() {
                break;
            }
        }
        ended.sort_by_key(|job| (job.ended_at_ns, job.id));
        ended.iter().try_for_each(|job| self.note(job))
    }

    fn note(&mut self, job: &UtxoPruneJob) -> Result<()> {
        self.jobs.seen.insert(job.id);
        let figures = &mut self.jobs.figures;
        figures.ticks += job.ticks;
        figures.most_ticks = figures.most_ticks.max(job.ticks);
        figures.instructions += job.instructions;
        match (job.state, &job.end) {
            (UtxoJobState::Completed, None) => figures.completed += 1,
            (UtxoJobState::Cancelled, Some(UtxoJobEnd::Superseded)) => figures.superseded += 1,
            (UtxoJobState::Cancelled, Some(UtxoJobEnd::BlockAssemblyNotRunning)) => figures.stopped += 1,
            _ => bail!("a job ended unexpectedly: {job:?}"),
        }
        if job.started_at_ns.is_none() {
            return Ok(());
        }
        // No height is notified while a job runs.
        let (heights, expected) =
            ((job.current_height, job.safe_height), (Some(self.current), Some(self.safe_height())));
        ensure!(
            heights == expected,
            "job {}: its current and safe height should be {expected:?}, but are {heights:?}",
            job.id
        );
        self.ledger.run(self.current, self.safe_height(), job.phase, job.state == UtxoJobState::Completed);
        Ok(())
    }
}
