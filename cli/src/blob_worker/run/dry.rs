//! What would be deleted.

use super::Run;
use crate::blob_worker::queue::Queue;
use anyhow::Result;
use serde::Serialize;

/// Says what would be deleted: of each row where its blob is, and whether it is there; nothing where it is to end before it knows.
///
/// # Errors
/// As [`Run::run`]; when a store does not answer.
pub fn dry_run<Q: Queue>(run: &Run<'_, Q>) -> Result<Option<(u32, Vec<Found>)>> {
    let Some((heights, _)) = run.call("looking at the queue", |queue| queue.look())? else { return Ok(None) };
    let height = heights.due(run.options.safety_window);
    let rows = run.call("looking at the queue", |queue| queue.pending(height, run.options.batch))?;
    let Some(rows) = rows else { return Ok(None) };
    if !run.await_markers()? {
        return Ok(None);
    }
    let found = rows
        .into_iter()
        .filter(|row| run.options.store_types.is_empty() || run.options.store_types.contains(&row.store));
    let found = found.take_while(|_| !run.stop.is_set()).map(|row| {
        let stores = run.worker.stores();
        let (place, there) = match stores.find(&row) {
            Err(why) => (format!("{why:?}"), None),
            Ok((store, target)) => {
                let store = &stores.all()[store];
                let path = target.paths.last().map(ToString::to_string).unwrap_or_default();
                (format!("{}/{path}", store.url.origin_and_root()), Some(run.worker.wait_for(store.has(&target))?))
            }
        };
        Ok(Found { id: row.id, height: row.height, place, there })
    });
    let found = found.collect::<Result<_>>()?;
    Ok((!run.stop.is_set()).then_some((height, found)))
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

/// A store's address without what paths in it begin with.
trait Root {
    fn origin_and_root(&self) -> String;
}

impl Root for url::Url {
    fn origin_and_root(&self) -> String {
        match self.scheme() {
            "s3" => format!("s3://{}", self.host_str().unwrap_or_default()),
            _ => self.as_str().trim_end_matches('/').to_string(),
        }
    }
}
