//! `coppice blob-worker`: deletes what the canister's deletion queue hands out, from S3 or a file system.
//!
//! ```text
//!  canister ── lease ──▶ run ── rows ──▶ work ──▶ store ──▶ S3, a directory      requests side by side, each shorter than the lease
//!      ▲                  │               │         ├ layout: a blob's path
//!      └── what is gone ──┴── outcome ────┘         └ marker: whose blobs these are
//! ```
//! As many processes as one likes work on one queue, as rows that one has leased are with it alone. `docs/blob-deletion.md` says how many,
//! what they cost and what to alert on.

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
pub mod work;

pub use contents::NAME as MARKER;
pub use figures::Figures;

use crate::exit::{Exit, NOT_ALL};
use crate::report::count;
use anyhow::Result;
use serde::Serialize;
use work::Worker;

/// What `init` did.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Marked {
    /// Stores that have got a marker, or a new one.
    pub marked: Vec<String>,
    /// Stores that had it.
    pub had: Vec<String>,
}

/// Marks the stores of a worker as its canister's. Answers which it has marked.
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

/// Whether a run that was to end by itself has done all that it found.
///
/// # Errors
/// [`Exit`] with [`NOT_ALL`].
pub fn all_done(figures: &Figures) -> Result<()> {
    if figures.undone == 0 {
        return Ok(());
    }
    Err(Exit::error(NOT_ALL, format!("blobs of which it is not known that they are gone: {}", count(figures.undone))))
}

#[cfg(test)]
mod tests;
