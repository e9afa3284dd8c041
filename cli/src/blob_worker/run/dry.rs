//! What would be deleted.

use super::{Run, waits};
use crate::blob_worker::store::{Store, Target};
use crate::blob_worker::times::REQUEST;
use crate::client::Reach;
use crate::stop::unless;
use anyhow::Result;
use serde::Serialize;
use std::time::Instant;

/// Says what would be deleted: of each row where its blob is, and whether it is there; nothing where it is to end before it knows. A store
/// that does not answer is asked again.
///
/// # Errors
/// As [`Run::run`].
pub fn dry_run<T: Reach + Sync>(run: &Run<'_, T>) -> Result<Option<(u32, Vec<Found>)>> {
    while {
        run.look_at_all()?;
        run.next_hold().is_some()
    } {
        run.calls.stop.wait(run.next_hold().unwrap_or_default());
        if run.calls.stop.is_set() {
            return Ok(None);
        }
        run.release();
    }
    let selectors = run.unheld();
    let seen = run.calls.look(run.options.safety_window, &selectors, run.options.batch)?;
    let Some(seen) = seen else { return Ok(None) };
    let mut found = Vec::new();
    for row in seen.due {
        let stores = &run.worker.stores;
        let (place, there) = match stores.find(&row) {
            Err(why) => (format!("{why:?}"), None),
            Ok((store, target)) => {
                let store = &stores.all()[store];
                let path = target.paths.last().map(ToString::to_string).unwrap_or_default();
                let Some(there) = is_there(run, store, &target) else { return Ok(None) };
                (format!("{}://{}/{path}", store.url.scheme(), store.url.host_str().unwrap_or_default()), Some(there))
            }
        };
        found.push(Found { id: row.id, height: row.delete_at_height, place, there });
    }
    Ok((!run.calls.stop.is_set()).then_some((seen.height.unwrap_or_default(), found)))
}

/// Whether a store has a blob; nothing where the worker is to end.
fn is_there<T: Reach + Sync>(run: &Run<'_, T>, store: &Store, target: &Target) -> Option<bool> {
    let most = REQUEST.of(run.options.lease);
    let mut delays = waits(run.options.max_wait);
    while !run.calls.stop.is_set() {
        let began = Instant::now();
        let gives_up = || run.calls.stop.is_set() || began.elapsed() >= most;
        let why = match run.worker.wait_for(unless(gives_up, store.has(target))) {
            Some(Ok(there)) => return Some(there),
            Some(Err(error)) => format!("{error:#}"),
            None => format!("{}: it does not answer within {:.1} s", store.url, most.as_secs_f64()),
        };
        if !run.calls.stop.is_set() {
            run.calls.again("looking at the stores", &why, &mut delays);
        }
    }
    None
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
