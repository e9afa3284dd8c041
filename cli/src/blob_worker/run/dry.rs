//! What would be deleted.

use super::Run;
use crate::blob_worker::times::REQUEST;
use crate::client::Reach;
use crate::stop::unless;
use anyhow::{Context as _, Result};
use serde::Serialize;
use std::time::Instant;

/// What a dry run found.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Looked {
    /// Up to which height.
    pub height: u32,
    /// Blobs that would be deleted.
    pub would_delete: usize,
    /// Of them, those that are not there.
    pub absent: usize,
    /// Rows that can have no name.
    pub nowhere: usize,
    /// The rows.
    pub rows: Vec<Found>,
}

/// A row that would be deleted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Found {
    /// Its number.
    pub id: u64,
    /// Its height.
    pub height: u32,
    /// Where its blob is, or why it is nowhere.
    pub place: String,
    /// Whether it is there; none where it is nowhere.
    pub there: Option<bool>,
}

/// Says what would be deleted: of each row where its blob is, and whether it is there; nothing where it is to end before it knows. A store
/// whose marker does not come is asked again.
///
/// # Errors
/// As [`Run::run`]; when a store does not say whether it has a blob.
pub fn dry_run<T: Reach + Sync>(run: &Run<'_, T>) -> Result<Option<Looked>> {
    run.look_at_all()?;
    let Some(selectors) = run.free()? else { return Ok(None) };
    let seen = run.calls.look(run.options.safety_window, &selectors, run.options.batch)?;
    let Some(seen) = seen else { return Ok(None) };
    let (most, stores) = (REQUEST.of(run.options.lease), &run.worker.stores);
    let mut looked = Looked { height: seen.height.unwrap_or_default(), ..Looked::default() };
    for row in seen.due {
        let (place, there) = match stores.find(&row) {
            Err(fate) => (format!("{fate:?}"), None),
            Ok((store, target)) => {
                let (store, began) = (&stores.0[store], Instant::now());
                let gives_up = || run.calls.stop.is_set() || began.elapsed() >= most;
                let there = run.worker.wait_for(unless(gives_up, store.has(&target)));
                if run.calls.stop.is_set() {
                    return Ok(None);
                }
                let there = there.with_context(|| format!("{}: it does not answer", store.url))??;
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
