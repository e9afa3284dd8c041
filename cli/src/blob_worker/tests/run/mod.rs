//! A worker against a queue in memory and a store with injected faults.

mod ends;
mod failures;
mod leases;
mod markers;
mod progress;
mod rounds;
mod stopped;

use super::super::contents::NAME;
use super::super::stores::Stores;
use super::super::tests::{Fake, Heights, Mood, Moody, Row, State, path, row};
use super::super::{all_done, mark};
use super::*;
use crate::exit::{Exit, NOT_ALL, REFUSED, UNREPORTED, WRONG_STORE};
use candid::Principal;
use object_store::path::Path;
use object_store::{ObjectStore, ObjectStoreExt as _};
use serde_bytes::ByteBuf;
use std::sync::atomic::AtomicU64;
use std::time::Instant;

/// Blobs per request in these tests.
const CHUNK: usize = 10;
/// A lease that outlasts every test.
const LEASE: Duration = Duration::from_secs(1_000);

fn canister() -> Principal {
    Principal::management_canister()
}

/// Options of a worker that does not end by itself.
fn options() -> Options {
    Options {
        safety_window: 10,
        batch: 50,
        lease: LEASE,
        max_retries: 3,
        once: false,
        until_empty: false,
        poll: Duration::from_millis(2),
        ask: Duration::from_secs(600),
        max_wait: Duration::from_millis(2),
    }
}

fn once() -> Options {
    Options { once: true, ..options() }
}

fn until_empty() -> Options {
    Options { until_empty: true, ..options() }
}

/// Longest call of a worker that gives up soon.
const IMPATIENT: Duration = Duration::from_millis(120);

struct World {
    queue: Fake,
    client: Client<Fake>,
    moody: Arc<Moody>,
    chunk: usize,
    /// Parallel requests.
    parallel: usize,
    patience: Duration,
}

impl World {
    /// Creates blobs, and a due row for each.
    fn new(blobs: u64) -> Self {
        let queue = Fake::new((1..=blobs).map(row));
        let (client, moody, patience) = (queue.client(), Arc::default(), CALL);
        let world = Self { queue, client, moody, chunk: CHUNK, parallel: 4, patience };
        let worker = world.worker();
        for id in 1..=blobs {
            worker.wait_for(world.moody.inner.put(&path(id), "blob".into())).unwrap();
        }
        mark(&worker).unwrap();
        world
    }

    fn worker(&self) -> Worker {
        let store: Arc<dyn ObjectStore> = self.moody.clone();
        Worker::new(Stores::of(vec![("tx/tx", store, self.chunk)]), canister(), self.parallel).unwrap()
    }

    fn mood(&self, mood: Mood) {
        *self.moody.mood.lock().unwrap() = mood;
    }

    /// Makes requests wait until the queue has a property.
    fn hold_until(&self, is_so: impl Fn(&State) -> bool + Send + Sync + 'static) {
        let queue = self.queue.clone();
        *self.moody.held_until.lock().unwrap() = Some(Arc::new(move || is_so(&queue.state())));
    }

    /// Runs a worker until it ends by itself.
    fn run(&self, options: Options) -> (Result<()>, Figures) {
        self.run_until(options, &Stop::default())
    }

    /// Runs a worker and stops it when a condition holds.
    fn run_while(&self, options: Options, is_so: impl Fn() -> bool) -> (Result<()>, Figures) {
        let stop = Stop::default();
        thread::scope(|scope| {
            let running = scope.spawn(|| self.run_until(options, &stop));
            wait_for(|| is_so() || running.is_finished());
            stop.set();
            running.join().unwrap()
        })
    }

    /// Runs a worker until it ends by itself or is stopped.
    fn run_until(&self, options: Options, stop: &Stop) -> (Result<()>, Figures) {
        self.within_a_minute(options, stop, |run| run.run())
    }

    /// Runs a worker with a lease of all blobs that it requested `ago` before.
    fn work(&self, ago: Duration) -> (Result<()>, Figures) {
        self.work_when(ago, |_| {})
    }

    /// Does the same after a change of the queue.
    fn work_when(&self, ago: Duration, happens: impl FnOnce(&mut State) + Send) -> (Result<()>, Figures) {
        let ask = AcquireBlobDeletions {
            limit: 1_000,
            lock_timeout_secs: LEASE.as_secs(),
            request: Some(ByteBuf::from([1])),
            selectors: Some(vec![BlobSelector { store_type: ic_coppice_interface::StoreType::Tx, file_type: None }]),
            safety_window: Some(0),
            ..Default::default()
        };
        let lease = self.queue.acquire(&ask).unwrap().unwrap().unwrap();
        happens(&mut self.queue.state());
        let work = |run: &mut Run<'_, Fake>| {
            run.look_at_all()?;
            run.work(&lease, Moment::ago(ago))
        };
        self.within_a_minute(once(), &Stop::default(), work)
    }

    /// Runs a worker, and stops it after a minute; then the test fails.
    fn within_a_minute(
        &self,
        options: Options,
        stop: &Stop,
        does: impl FnOnce(&mut Run<'_, Fake>) -> Result<()> + Send,
    ) -> (Result<()>, Figures) {
        let ended = Stop::default();
        thread::scope(|scope| {
            let late = scope.spawn(|| {
                ended.wait(Duration::from_secs(60));
                let late = !ended.is_set();
                if late {
                    stop.set();
                }
                late
            });
            let running = scope.spawn(|| {
                let (worker, log) = (self.worker(), Log::silent());
                let mut run = Run::new(&self.client, worker, options, stop, &log);
                run.calls.patience = self.patience;
                (does(&mut run), run.figures())
            });
            let done = running.join();
            ended.set();
            assert!(!late.join().unwrap(), "the worker does not end: {done:?}");
            done.unwrap()
        })
    }

    fn blobs(&self) -> usize {
        let all = self.worker().wait_for(self.moody.inner.list_with_delimiter(None)).unwrap().objects;
        all.iter().filter(|object| object.location != Path::from(NAME)).count()
    }

    fn rows(&self) -> usize {
        self.queue.state().rows.len()
    }

    fn failures(&self) -> u32 {
        self.queue.state().rows.values().map(|(_, failures)| failures).sum()
    }
}

/// Waits until a condition holds, at most half a minute.
fn wait_for(is_so: impl Fn() -> bool) {
    let began = Instant::now();
    while !is_so() && began.elapsed() < Duration::from_secs(30) {
        thread::sleep(Duration::from_millis(1));
    }
}

fn code(result: Result<()>) -> u8 {
    result.map_or_else(|error| Exit::code_of(&error), |()| 0)
}
