//! Ring of ended jobs in stable memory: ending a job costs the same however many there are. Each job is CBOR in a cell of its own.

use crate::places::JOB_LEN;
use ic_coppice_interface::{UtxoPruneJob, UtxoPruneJobPage};
use ic_coppice_storage::cell::Cell;
use ic_coppice_storage::header::Header;
use ic_coppice_storage::log;
use ic_coppice_storage::ring::Ring;
use serde::{Deserialize, Serialize};

const HEADER: Header = Header { name: "job", magic: *b"CPJB", version: 1 };
/// Maximum jobs in one page.
const MAX_PAGE: u32 = 500;
/// Jobs in one page if the caller gives no limit.
const DEFAULT_PAGE: u32 = 100;

/// Persisted position of the ring.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ended {
    /// Number of jobs that ever ended.
    count: u64,
    /// Number of the oldest kept job.
    oldest: u64,
}

fn slot_of(ring: &Ring, which: u64) -> Cell {
    Cell { at: ring.slot(which), capacity: JOB_LEN, header: HEADER }
}

impl Ended {
    /// Adds a job; forgets the oldest jobs above `most`. Returns its number.
    pub fn push(&mut self, ring: &Ring, job: &UtxoPruneJob, most: u32) -> u64 {
        let which = self.count;
        ring.make_room(which);
        if let Err(why) = slot_of(ring, which).save(ring.space(), job) {
            log::error(&format!("job {}: {why}", job.id));
        }
        self.count += 1;
        self.trim(most);
        which
    }

    /// Forgets the oldest jobs above `most`.
    pub fn trim(&mut self, most: u32) {
        self.oldest = self.oldest.max(self.count.saturating_sub(u64::from(most)));
    }

    /// Returns the jobs that ended before job number `before`, newest first.
    fn backwards(self, ring: &Ring, before: u64) -> impl Iterator<Item = (u64, UtxoPruneJob)> {
        let kept = self.oldest.max(ring.kept(self.count).start)..before.min(self.count);
        kept.rev().filter_map(move |which| Some((which, slot_of(ring, which).load(ring.space()).ok()??)))
    }

    /// Returns the job of a number if it is kept.
    pub fn get(self, ring: &Ring, which: u64) -> Option<UtxoPruneJob> {
        self.backwards(ring, which + 1).next().filter(|(found, _)| *found == which).map(|(_, job)| job)
    }

    /// Returns a job by id if it is among the last ten that ended.
    pub fn find(self, ring: &Ring, id: u64) -> Option<UtxoPruneJob> {
        self.backwards(ring, u64::MAX).take(10).map(|(_, job)| job).find(|job| job.id == id)
    }

    /// Returns the job that ended last.
    pub fn last(self, ring: &Ring) -> Option<UtxoPruneJob> {
        self.backwards(ring, u64::MAX).next().map(|(_, job)| job)
    }

    /// Returns a page of jobs, newest first. The page starts with all of `jobs`, whatever the limit.
    pub fn page(self, ring: &Ring, mut jobs: Vec<UtxoPruneJob>, cursor: Option<u64>, limit: u32) -> UtxoPruneJobPage {
        let limit = if limit == 0 { DEFAULT_PAGE } else { limit.min(MAX_PAGE) } as usize;
        let mut ended = self.backwards(ring, cursor.unwrap_or(u64::MAX)).peekable();
        jobs.extend(ended.by_ref().take(limit.saturating_sub(jobs.len())).map(|(_, job)| job));
        UtxoPruneJobPage { jobs, cursor: ended.peek().map(|(next, _)| next + 1) }
    }
}
