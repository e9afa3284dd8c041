//! Dry run of a worker: lists the blobs that would be deleted.

use super::Run;
use crate::blob_worker::store::Fate;
use crate::blob_worker::times::REQUEST;
use crate::client::CanisterClient;
use crate::stop::unless;
use anyhow::{Context as _, Result};
use serde::Serialize;
use std::time::Instant;

/// The result of a dry run.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Looked {
    /// The height up to which rows are due.
    pub height: u32,
    pub would_delete: usize,
    /// Part of `would_delete`: blobs that are absent.
    pub absent: usize,
    /// Rows whose blob can have no path.
    pub nowhere: usize,
    /// The due rows.
    pub rows: Vec<Found>,
}

/// A row that would be deleted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Found {
    /// The row's number.
    pub id: u64,
    pub height: u32,
    /// The blob's path, or the reason why it has none.
    pub place: String,
    /// True if the blob exists; `None` if it has no path.
    pub there: Option<bool>,
}

/// Lists the due rows: for each the blob's path, and whether the blob exists. Returns `None` if the worker is stopped first. Retries a
/// store whose marker cannot be read.
///
/// # Errors
/// As [`Run::run`]; when a store does not answer whether it has a blob.
pub fn dry_run<T: CanisterClient>(run: &Run<'_, T>) -> Result<Option<Looked>> {
    run.look_at_all()?;
    let Some(selectors) = run.free()? else { return Ok(None) };
    let seen = run.calls.look(run.options.safety_window, &selectors, run.options.batch)?;
    let Some(seen) = seen else { return Ok(None) };
    let (most, stores) = (REQUEST.of(run.options.lease), &run.worker.stores);
    let mut looked = Looked { height: seen.height.unwrap_or_default(), ..Looked::default() };
    for row in seen.due {
        let (place, there) = match stores.find(&row) {
            Err(Fate::Failed(why)) => (why, None),
            Err(_) => ("no --store has blobs of this type".into(), None),
            Ok((store, target)) => {
                let (store, began) = (&stores.0[store], Instant::now());
                let gives_up = || run.calls.stop.is_set() || began.elapsed() >= most;
                let there = run.worker.wait_for(unless(gives_up, store.has(&target)));
                if run.calls.stop.is_set() {
                    return Ok(None);
                }
                let there = there.with_context(|| format!("{}: the store does not answer", store.url))??;
                let (scheme, host) = (store.url.scheme(), store.url.host_str().unwrap_or_default());
                (format!("{scheme}://{host}/{}", target.path), Some(there))
            }
        };
        looked.would_delete += usize::from(there.is_some());
        looked.absent += usize::from(there == Some(false));
        looked.nowhere += usize::from(there.is_none());
        looked.rows.push(Found { id: row.id, height: row.delete_at_height, place, there });
    }
    Ok(Some(looked))
}
