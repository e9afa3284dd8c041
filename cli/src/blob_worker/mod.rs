//! `coppice blob-worker`: deletes the blobs that the canister's deletion queue hands out, from S3 or a file system.
//!
//! ```text
//!  canister ── lease ──▶ run ── rows ──▶ work ──▶ store ──▶ S3, a directory      parallel requests, each shorter than the lease
//!      ▲                  │               │         ├ layout: a blob's path
//!      └── completed ─────┴── outcome ────┘         └ marker: which canister owns the blobs
//! ```
//! Any number of worker processes can share one queue, because a leased row is handed to one worker only. `docs/operations/blobs.md` describes
//! how many to run, their cost and their alerts.

mod contents;
mod figures;
pub mod layout;
pub mod lease;
pub mod log;
pub mod marker;
pub mod options;
pub mod place;
pub mod run;
#[cfg(feature = "network")]
pub(crate) mod s3;
pub mod store;
pub mod stores;
pub mod times;
pub mod watch;
pub mod work;

pub use contents::NAME as MARKER;
pub use figures::Figures;

use crate::exit::{Exit, NOT_ALL};
use crate::report::count;
use anyhow::Result;
use serde::Serialize;
use work::Worker;

/// Report of `init`.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Marked {
    /// Stores whose marker was written or extended.
    pub marked: Vec<String>,
    /// Stores that already had the marker.
    pub had: Vec<String>,
}

/// Marks the stores of a worker as its canister's, and returns which markers were written.
///
/// # Errors
/// As [`marker::mark`].
pub fn mark(worker: &Worker) -> Result<Marked> {
    let mut report = Marked::default();
    for store in &worker.stores.0 {
        let is_new = worker.wait_for(marker::mark(store, worker.canister))?;
        if is_new { &mut report.marked } else { &mut report.had }.push(store.url.to_string());
    }
    Ok(report)
}

/// Checks that a run that ends by itself has done everything that it found.
///
/// # Errors
/// [`Exit`] with [`NOT_ALL`] if it has not.
pub fn all_done(figures: &Figures) -> Result<()> {
    if figures.undone == 0 {
        return Ok(());
    }
    Err(Exit::error(NOT_ALL, format!("blobs not known to be deleted: {}; run the worker again", count(figures.undone))))
}

#[cfg(test)]
mod tests;
