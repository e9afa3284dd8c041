//! A worker against a queue in memory and a store that is in a mood.

use super::super::args::LogFormat;
use super::super::marker::NAME;
use super::super::queue::{Heights, Row};
use super::super::store::Stores;
use super::super::tests::{Fake, Mood, Moody, path, row, turned_away};
use super::super::{all_done, mark};
use super::*;
use object_store::path::Path;
use object_store::{ObjectStore, ObjectStoreExt as _};
use std::sync::atomic::Ordering;
use std::thread;
use std::time::Instant;

/// Blobs of a request in these tests.
const CHUNK: usize = 10;

fn canister() -> Principal {
    Principal::management_canister()
}

fn options(until: Until) -> Options {
    Options {
        safety_window: 10,
        batch: 50,
        lease: Duration::from_secs(8),
        max_retries: 3,
        store_types: Vec::new(),
        until,
        poll: Duration::from_millis(10),
        max_wait: Duration::from_millis(20),
    }
}

struct World {
    queue: Fake,
    moody: Arc<Moody>,
    chunk: usize,
    /// Requests at a time.
    parallel: usize,
}

impl World {
    /// So many blobs, all due, and a row for each.
    fn new(blobs: u64) -> Self {
        let world = Self { queue: Fake::new((1..=blobs).map(row)), moody: Arc::default(), chunk: CHUNK, parallel: 4 };
        let worker = world.worker();
        for id in 1..=blobs {
            worker.wait_for(world.moody.inner.put(&path(id), "blob".into())).unwrap();
        }
        mark(&worker, canister()).unwrap();
        world
    }

    fn worker(&self) -> Worker {
        let store: Arc<dyn ObjectStore> = self.moody.clone();
        Worker::new(Stores::of(vec![("tx", store, self.chunk)]), self.parallel).unwrap()
    }

    fn mood(&self, mood: Mood) {
        *self.moody.mood.lock().unwrap() = mood;
    }

    /// A worker that runs until it ends by itself, as it does in less than half a minute.
    fn run(&self, options: Options) -> (Result<()>, Figures) {
        let (stop, ended) = (Stop::default(), Stop::default());
        thread::scope(|scope| {
            scope.spawn(|| {
                ended.wait(Duration::from_secs(30));
                stop.set();
            });
            let result = self.run_until(options, &stop);
            assert!(!stop.is_set(), "it does not end: {:?}", result.1);
            ended.set();
            result
        })
    }

    /// A worker that is stopped when something is so.
    fn run_while(&self, options: Options, is_so: impl Fn() -> bool) -> (Result<()>, Figures) {
        let stop = Stop::default();
        thread::scope(|scope| {
            let running = scope.spawn(|| self.run_until(options, &stop));
            wait_for(|| is_so() || running.is_finished());
            stop.set();
            running.join().unwrap()
        })
    }

    fn run_until(&self, options: Options, stop: &Stop) -> (Result<()>, Figures) {
        let (worker, log) = (self.worker(), Log::silent());
        let mut run = Run::new(&self.queue, canister(), worker, options, stop, &log).unwrap();
        let ended = run.run();
        let figures = run.figures();
        (ended, figures)
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

/// Waits until something is so, as it is in less than half a minute.
fn wait_for(is_so: impl Fn() -> bool) {
    let began = Instant::now();
    while !is_so() && began.elapsed() < Duration::from_secs(30) {
        thread::sleep(Duration::from_millis(1));
    }
}

fn code(result: Result<()>) -> u8 {
    result.map_or_else(|error| Exit::code_of(&error), |()| 0)
}

#[test]
fn what_is_due_goes_and_nothing_above_the_window() {
    let world = World::new(120);
    world.queue.state().heights = Heights { current: 130, persisted: 0 };
    let (ended, figures) = world.run(options(Until::Empty));
    ended.unwrap();
    assert_eq!((figures.leases, figures.deleted, figures.height), (3, 120, 120));
    let world = World::new(120);
    // The persister is behind the chain: up to its height, less ten.
    world.queue.state().heights = Heights { current: 130, persisted: 95 };
    let (ended, figures) = world.run(options(Until::Empty));
    ended.unwrap();
    assert_eq!((figures.deleted, world.rows(), world.blobs()), (85, 35, 35));
    all_done(Until::Empty, &figures).unwrap();
    // Nothing at all: it ends at once, and has leased nothing.
    let (ended, figures) = World::new(0).run(options(Until::Empty));
    ended.unwrap();
    assert_eq!(figures, Figures { height: 999_990, ..Figures::default() });
}

#[test]
fn once_is_one_lease() {
    let world = World::new(120);
    let (ended, figures) = world.run(options(Until::Once));
    ended.unwrap();
    assert_eq!((figures.leases, figures.deleted, world.rows()), (1, 50, 70));
}

#[test]
fn what_was_absent_counts_as_done() {
    let world = World { chunk: 1, ..World::new(3) };
    let worker = world.worker();
    worker.wait_for(world.moody.inner.delete(&path(2))).unwrap();
    let (ended, figures) = world.run(options(Until::Empty));
    ended.unwrap();
    assert_eq!((figures.deleted, world.rows()), (3, 0));
}

#[test]
fn of_a_chunk_that_failed_nothing_is_said_and_all_of_it_is_tried_again() {
    let world = World::new(50);
    world.mood(Mood::Fails(1));
    let (ended, figures) = world.run(options(Until::Once));
    ended.unwrap();
    assert!(figures.deleted < 50 && figures.left >= CHUNK as u64 && figures.failed == 0, "{figures:?}");
    assert_eq!((figures.deleted + figures.left, world.queue.live()), (50, 0));
    assert_eq!(all_done(Until::Once, &figures).map_err(|error| Exit::code_of(&error)), Err(NOT_ALL));
    // What the store did and then did not say is done again, and was not there.
    world.mood(Mood::Lies);
    let (ended, lied) = world.run(options(Until::Once));
    ended.unwrap();
    assert_eq!(lied.deleted, 0);
    world.mood(Mood::Fails(7));
    let (ended, figures) = world.run(options(Until::Empty));
    ended.unwrap();
    assert_eq!((world.rows(), world.blobs(), world.failures()), (0, 0, 0), "{figures:?}");
    assert!(world.queue.state().dead.is_empty());
}

#[test]
fn a_blob_that_cannot_be_deleted_is_named_alone_and_given_up_at_last() {
    let world = World::new(50);
    *world.moody.stubborn.lock().unwrap() = Some(path(13));
    let (ended, figures) = world.run(options(Until::Once));
    ended.unwrap();
    assert_eq!((figures.deleted, figures.failed, figures.left, figures.dead), (49, 1, 0, 0));
    let (ended, figures) = world.run(options(Until::Empty));
    ended.unwrap();
    assert_eq!((figures.failed, figures.dead), (2, 1), "alone in its request, it is the blob's failure as well");
    assert_eq!((world.queue.state().dead.clone(), world.blobs()), (vec![13], 1));
    assert_eq!(all_done(Until::Empty, &figures).map_err(|error| Exit::code_of(&error)), Err(NOT_ALL));
}

#[test]
fn a_name_that_no_file_has_and_a_type_without_a_store_stop_nobody() {
    let world = World::new(5);
    {
        let mut state = world.queue.state();
        state.rows.get_mut(&2).unwrap().0.file_type = "../tx".into();
        state.rows.get_mut(&3).unwrap().0.file_type = "outputs".into();
    }
    let (ended, figures) = world.run(options(Until::Once));
    ended.unwrap();
    assert_eq!((figures.deleted, figures.failed, figures.no_store, figures.dead), (3, 0, 2, 0));
    // A worker without a store for a blob does not kill it, however often it looks.
    let stop = Stop::default();
    thread::scope(|scope| {
        let running = scope.spawn(|| world.run_until(options(Until::Stopped), &stop));
        while world.failures() < 20 {
            thread::sleep(Duration::from_millis(5));
        }
        stop.set();
        running.join().unwrap().0.unwrap();
    });
    assert_eq!((world.rows(), world.blobs()), (2, 2));
}

#[test]
fn a_store_that_is_read_only_costs_no_blob_a_try_and_is_waited_for() {
    for chunk in [1, CHUNK] {
        let world = World { chunk, ..World::new(30) };
        world.mood(Mood::ReadOnly);
        let stop = Stop::default();
        let figures = thread::scope(|scope| {
            let running = scope.spawn(|| world.run_until(options(Until::Empty), &stop));
            while world.queue.state().acquired < 5 {
                thread::sleep(Duration::from_millis(5));
            }
            assert_eq!((world.failures(), world.rows(), world.blobs()), (0, 30, 30));
            world.mood(Mood::Willing);
            running.join().unwrap()
        });
        figures.0.unwrap();
        assert_eq!((figures.1.deleted, figures.1.failed, world.blobs()), (30, 0, 0));
    }
}

#[test]
fn a_store_that_hangs_holds_no_lease_for_longer_than_a_quarter_and_ends_when_asked() {
    let world = World::new(30);
    world.mood(Mood::Hangs);
    let stop = Stop::default();
    let options = Options { lease: Duration::from_secs(2), ..options(Until::Stopped) };
    thread::scope(|scope| {
        let running = scope.spawn(|| world.run_until(options, &stop));
        while world.queue.state().acquired < 3 {
            thread::sleep(Duration::from_millis(5));
        }
        stop.set();
        let (ended, figures) = running.join().unwrap();
        ended.unwrap();
        assert_eq!((figures.deleted, figures.failed, figures.late), (0, 0, 0));
    });
    assert_eq!((world.rows(), world.blobs(), world.queue.live(), world.failures()), (30, 30, 0, 0));
}

#[test]
fn a_lease_is_extended_in_time_and_no_request_begins_behind_its_end() {
    // Ten requests of 300 ms, one after the other, in a lease of two seconds.
    let world = World { chunk: 2, parallel: 1, ..World::new(20) };
    world.mood(Mood::Slow(Duration::from_millis(300)));
    let options = Options { lease: Duration::from_secs(2), ..options(Until::Once) };
    let (ended, figures) = world.run(options.clone());
    ended.unwrap();
    assert_eq!((figures.deleted, figures.late, figures.leases), (20, 0, 1));
    assert!(figures.extended > 0, "{figures:?}");

    // The queue does not answer meanwhile, so it cannot be extended: requests end before the lease, and the rest is tried again.
    let world = World { chunk: 2, parallel: 1, ..World::new(20) };
    world.mood(Mood::Slow(Duration::from_millis(300)));
    let ((ended, figures), began) = thread::scope(|scope| {
        let running = scope.spawn(|| world.run(options));
        while world.moody.asked.lock().unwrap().is_empty() {
            thread::sleep(Duration::from_millis(1));
        }
        let began = Instant::now();
        world.queue.state().unreachable = u32::MAX;
        while began.elapsed() < Duration::from_millis(2_500) {
            thread::sleep(Duration::from_millis(5));
        }
        world.queue.state().unreachable = 0;
        (running.join().unwrap(), began)
    });
    ended.unwrap();
    let last = world.moody.asked.lock().unwrap().iter().map(|(_, at)| *at).max().unwrap();
    assert!(
        last.saturating_duration_since(began) < Duration::from_millis(1_600),
        "a request needs a quarter of the lease"
    );
    assert_eq!(figures.deleted, 0);
    assert!(figures.late > 0 && figures.late < 20, "{figures:?}");
    assert_eq!(world.rows(), 20, "others do it again");
    world.mood(Mood::Willing);
    let (ended, _) = world.run(self::options(Until::Empty));
    ended.unwrap();
    assert_eq!((world.rows(), world.blobs(), world.failures()), (0, 0, 0));
}

#[test]
fn two_workers_of_one_identity_share_the_rows_and_nothing_is_deleted_twice() {
    let world = World::new(200);
    world.queue.state().drops_answers = true;
    let figures: Vec<Figures> = thread::scope(|scope| {
        let workers: Vec<_> = (0..2).map(|_| scope.spawn(|| world.run(options(Until::Empty)))).collect();
        workers
            .into_iter()
            .map(|worker| worker.join().unwrap())
            .map(|(ended, figures)| ended.map(|()| figures).unwrap())
            .collect()
    });
    assert_eq!(figures.iter().map(|figures| figures.deleted).sum::<u64>(), 200);
    assert_eq!((world.rows(), world.blobs(), world.queue.live()), (0, 0, 0), "no lease is left over");
    assert!(world.queue.state().leased.values().all(|leases| *leases == 1));
    assert_eq!(world.moody.asked.lock().unwrap().len(), 200);
    assert!(figures.iter().map(|figures| figures.retries).sum::<u64>() >= 8, "{figures:?}");
}

#[test]
fn a_wrong_store_is_refused_before_anything_is_leased() {
    let world = World::new(5);
    let other = Principal::anonymous();
    let (stop, log) = (Stop::default(), Log::silent());
    let mut run = Run::new(&world.queue, other, world.worker(), options(Until::Empty), &stop, &log).unwrap();
    assert_eq!(code(run.run()), WRONG_STORE, "another canister's");
    let worker = world.worker();
    worker.wait_for(world.moody.inner.delete(&Path::from(NAME))).unwrap();
    assert_eq!(code(world.run(options(Until::Empty)).0), WRONG_STORE, "none");
    worker.wait_for(world.moody.inner.put(&Path::from(NAME), "{}".into())).unwrap();
    assert_eq!(code(world.run(options(Until::Empty)).0), WRONG_STORE, "not a marker");
    assert_eq!((world.queue.state().acquired, world.blobs()), (0, 5));
    assert!(mark(&worker, canister()).is_err(), "and what is no marker is not written over");
}

#[test]
fn where_the_marker_goes_while_blobs_are_deleted_nothing_is_said_of_them() {
    let world = World::new(5);
    world.mood(Mood::Vanishes);
    let (ended, figures) = world.run(options(Until::Empty));
    assert_eq!(Exit::code_of(&ended.unwrap_err()), WRONG_STORE);
    assert_eq!((figures.deleted, figures.left, world.rows(), world.queue.live()), (0, 5, 5, 0));
}

#[test]
fn a_worker_that_is_to_end_says_what_it_did_and_gives_the_rest_back() {
    let world = World { chunk: 1, ..World::new(50) };
    world.mood(Mood::Slow(Duration::from_millis(30)));
    let stop = Stop::default();
    let (ended, figures) = thread::scope(|scope| {
        let running = scope.spawn(|| world.run_until(options(Until::Stopped), &stop));
        while world.moody.asked.lock().unwrap().len() < 8 {
            thread::sleep(Duration::from_millis(1));
        }
        stop.set();
        running.join().unwrap()
    });
    ended.unwrap();
    assert!(figures.deleted >= 8 && figures.left > 0, "{figures:?}");
    assert_eq!(figures.deleted + figures.left, 50);
    assert_eq!((world.rows() as u64, world.blobs() as u64, world.queue.live()), (figures.left, figures.left, 0));
}

#[test]
fn errors_that_pass_are_outlived_and_one_that_does_not_ends_the_worker() {
    let world = World::new(30);
    {
        let mut state = world.queue.state();
        (state.unreachable, state.later, state.room) = (5, 2, Some(7));
    }
    world.mood(Mood::Panics);
    let stop = Stop::default();
    let (ended, figures) = thread::scope(|scope| {
        let running = scope.spawn(|| world.run_until(options(Until::Empty), &stop));
        while world.queue.state().acquired < 2 {
            thread::sleep(Duration::from_millis(5));
        }
        world.mood(Mood::Willing);
        running.join().unwrap()
    });
    ended.unwrap();
    assert_eq!((figures.deleted, figures.failed, world.rows(), world.blobs()), (30, 0, 0, 0));
    assert!(figures.retries >= 7, "{figures:?}");
    world.queue.state().refuses = true;
    let error = world.run(options(Until::Stopped)).0.unwrap_err();
    assert_eq!(Exit::code_of(&error), REFUSED);
    assert!(error.to_string().contains("BlobWorker"), "{error}");
}

#[test]
fn a_worker_that_cannot_say_what_it_did_before_it_ends_says_so() {
    let world = World { chunk: 1, ..World::new(4) };
    world.mood(Mood::Slow(Duration::from_millis(100)));
    let stop = Stop::default();
    let options = Options { lease: Duration::from_secs(1), ..options(Until::Stopped) };
    let (ended, _) = thread::scope(|scope| {
        let running = scope.spawn(|| world.run_until(options, &stop));
        while world.moody.asked.lock().unwrap().is_empty() {
            thread::sleep(Duration::from_millis(1));
        }
        world.queue.state().unreachable = u32::MAX;
        stop.set();
        running.join().unwrap()
    });
    assert_eq!(Exit::code_of(&ended.unwrap_err()), UNTOLD);
    assert_eq!(world.rows(), 4, "they are tried again");
}

#[test]
fn a_dry_run_says_what_would_go_and_touches_nothing() {
    let world = World::new(6);
    world.queue.state().rows.get_mut(&3).unwrap().0.file_type = "outputs".into();
    world.worker().wait_for(world.moody.inner.delete(&path(2))).unwrap();
    let (stop, log) = (Stop::default(), Log::silent());
    let run = Run::new(
        &world.queue,
        canister(),
        world.worker(),
        Options { batch: 4, ..options(Until::Stopped) },
        &stop,
        &log,
    );
    let run = run.unwrap();
    let (height, found) = dry_run(&run).unwrap().unwrap();
    assert_eq!(height, 999_990);
    let there: Vec<_> = found.iter().map(|found| (found.id, found.there)).collect();
    assert_eq!(there, [(1, Some(true)), (2, Some(false)), (3, None), (4, Some(true))]);
    assert!(found[0].place.starts_with("s3://tx/") && found[0].place.ends_with("1.tx"), "{found:?}");
    let acquired = world.queue.state().acquired;
    assert_eq!((acquired, world.rows(), world.blobs()), (0, 6, 5));
    // Ended before it knows all, it says nothing.
    stop.set();
    assert!(dry_run(&run).unwrap().is_none());
}

#[test]
fn blobs_that_fail_every_request_that_has_one_hold_up_nobody_and_are_given_up() {
    for (chunk, parallel, batch) in [(CHUNK, 4, 25), (CHUNK, 1, 25), (1, 4, 25), (1, 1, 10), (1, 1, 1)] {
        let blobs = 20 * u64::from(batch).max(5);
        for poison in [&[1][..], &[1, 2, 3, 15]] {
            let world = World { chunk, parallel, ..World::new(blobs) };
            *world.moody.poison.lock().unwrap() = poison.iter().copied().map(path).collect();
            let (ended, figures) = world.run(Options { batch, ..options(Until::Empty) });
            ended.unwrap();
            let (what, many) = (format!("{batch} by {chunk}, {parallel} at a time: {figures:?}"), poison.len() as u64);
            let mut dead = world.queue.state().dead.clone();
            dead.sort_unstable();
            assert_eq!((dead, world.blobs()), (poison.to_vec(), poison.len()), "{what}");
            let found = (figures.deleted, figures.failed, figures.dead, figures.undone);
            assert_eq!(found, (blobs - many, 3 * many, many, many), "{what}");
            assert_eq!(code(all_done(Until::Empty, &figures)), NOT_ALL);
            // They are asked for last, and nothing waits for them more than a few times.
            let asked = world.moody.asked.lock().unwrap();
            let times = |id| asked.iter().filter(|(asked, _)| *asked == path(id)).count();
            assert!((1..=blobs).all(|id| poison.contains(&id) || times(id) <= 5), "{what}");
        }
    }
}

#[test]
fn a_store_that_is_away_for_long_costs_no_blob_a_try_and_then_all_go() {
    for chunk in [1, CHUNK] {
        let world = World { chunk, parallel: 1, ..World::new(120) };
        world.mood(Mood::Fails(40));
        let (ended, figures) = world.run(options(Until::Empty));
        ended.unwrap();
        assert_eq!((world.rows(), world.blobs(), figures.failed, figures.undone), (0, 0, 0, 0), "{figures:?}");
        // As much as a lease has goes behind it, whatever failed before.
        assert!(figures.leases <= 45, "{figures:?}");
    }
}

#[test]
fn one_blob_that_is_denied_is_given_up_though_it_comes_alone_at_last() {
    for chunk in [1, CHUNK] {
        let world = World { chunk, ..World::new(30) };
        *world.moody.denied.lock().unwrap() = Some(path(1));
        let (ended, figures) = world.run(options(Until::Empty));
        ended.unwrap();
        assert_eq!((world.queue.state().dead.clone(), world.blobs()), (vec![1], 1));
        assert_eq!((figures.deleted, figures.failed, figures.leases), (29, 3, 4), "{figures:?}");
    }
}

#[test]
fn one_blob_that_is_denied_is_no_store_that_is_read_only_as_soon_as_others_go() {
    let world = World { chunk: 1, ..World::new(3) };
    *world.moody.denied.lock().unwrap() = Some(path(1));
    world.queue.state().heights = Heights { current: 11, persisted: 0 };
    let (ended, _) = thread::scope(|scope| {
        let running = scope.spawn(|| world.run(options(Until::Empty)));
        wait_for(|| world.queue.state().acquired >= 5);
        assert_eq!(world.failures(), 0, "the store may be read-only");
        world.queue.state().heights = Heights { current: 100, persisted: 0 };
        running.join().unwrap()
    });
    ended.unwrap();
    assert_eq!((world.queue.state().dead.clone(), world.blobs()), (vec![1], 1));
}

#[test]
fn a_wrong_store_is_known_before_anything_is_due() {
    let world = World::new(0);
    world.worker().wait_for(world.moody.inner.delete(&Path::from(NAME))).unwrap();
    assert_eq!(code(world.run(options(Until::Stopped)).0), WRONG_STORE);
}

#[test]
fn the_markers_are_looked_at_again_where_the_canister_took_long_to_answer() {
    let world = World::new(5);
    world.queue.state().slow = Duration::from_millis(700);
    let ((ended, figures), unreadable) = thread::scope(|scope| {
        let running = scope.spawn(|| world.run(options(Until::Empty)));
        // A store that cannot be asked gets nothing to do: all goes back, and is leased again.
        wait_for(|| world.queue.state().acquired == 1);
        world.moody.unreadable.store(true, Ordering::Relaxed);
        wait_for(|| world.queue.live() == 0);
        let unreadable = (world.moody.asked.lock().unwrap().len(), world.rows());
        world.moody.unreadable.store(false, Ordering::Relaxed);
        wait_for(|| world.queue.state().acquired == 2);
        world.worker().wait_for(world.moody.inner.delete(&Path::from(NAME))).unwrap();
        (running.join().unwrap(), unreadable)
    });
    assert_eq!((code(ended), unreadable), (WRONG_STORE, (0, 5)));
    assert_eq!((figures.leases, figures.left, world.blobs(), world.queue.live()), (2, 10, 5, 0));
    assert!(world.moody.asked.lock().unwrap().is_empty(), "nothing is deleted in a directory that is not mounted");
}

#[test]
fn a_store_whose_marker_goes_or_cannot_be_read_casts_no_doubt_on_the_others() {
    for vanishes in [true, false] {
        let rows = (1..=20).map(|id| Row { file_type: if id > 10 { "outputs" } else { "tx" }.into(), ..row(id) });
        let (queue, good, bad) = (Fake::new(rows), Arc::<Moody>::default(), Arc::<Moody>::default());
        let stores: Vec<(_, Arc<dyn ObjectStore>, _)> = vec![("tx", good, CHUNK), ("outputs", bad.clone(), CHUNK)];
        let worker = Worker::new(Stores::of(stores), 4).unwrap();
        mark(&worker, canister()).unwrap();
        *bad.mood.lock().unwrap() = if vanishes { Mood::Vanishes } else { Mood::Slow(Duration::from_millis(200)) };
        let (stop, log) = (Stop::default(), Log::silent());
        let (ended, figures) = thread::scope(|scope| {
            scope.spawn(|| {
                wait_for(|| !bad.asked.lock().unwrap().is_empty());
                bad.unreadable.store(!vanishes, Ordering::Relaxed);
            });
            let mut run = Run::new(&queue, canister(), worker, options(Until::Once), &stop, &log).unwrap();
            (run.run(), run.figures())
        });
        assert_eq!(code(ended), if vanishes { WRONG_STORE } else { 0 });
        assert_eq!((figures.deleted, figures.left, figures.undone), (10, 10, 10), "{vanishes}: {figures:?}");
        let state = queue.state();
        assert!(state.rows.len() == 10 && state.rows.values().all(|(row, _)| row.file_type == "outputs"));
    }
}

#[test]
fn the_time_to_say_what_was_done_begins_when_it_is_to_end() {
    let world = World::new(10);
    world.mood(Mood::Slow(Duration::from_millis(50)));
    let stop = Stop::default();
    let (ended, figures) = thread::scope(|scope| {
        let running = scope.spawn(|| world.run_until(options(Until::Stopped), &stop));
        wait_for(|| !world.moody.asked.lock().unwrap().is_empty());
        // It has tried for longer than it would then.
        world.queue.state().unreachable = u32::MAX;
        thread::sleep(PARTING + Duration::from_millis(500));
        stop.set();
        thread::sleep(Duration::from_millis(200));
        world.queue.state().unreachable = 0;
        running.join().unwrap()
    });
    ended.unwrap();
    assert_eq!((figures.deleted, world.rows(), world.queue.live()), (10, 0, 0));
    // And there is an attempt, however long what was under way took; more than one, as an answer may be lost.
    let world = World::new(10);
    world.mood(Mood::Slow(PARTING + Duration::from_millis(300)));
    world.queue.state().drops_answers = true;
    let (ended, figures) = world.run_while(options(Until::Stopped), || !world.moody.asked.lock().unwrap().is_empty());
    ended.unwrap();
    assert_eq!((figures.deleted, world.rows(), world.queue.live()), (10, 0, 0));
}

#[test]
fn a_lease_whose_answer_is_lost_is_given_back_by_one_that_is_to_end() {
    let world = World::new(5);
    world.queue.state().drops_answers = true;
    let slowly = Options { max_wait: Duration::from_secs(10), ..options(Until::Stopped) };
    let (ended, figures) = world.run_while(slowly.clone(), || world.queue.state().acquired == 1);
    ended.unwrap();
    assert_eq!((figures.leases, figures.left, world.queue.live(), world.blobs()), (1, 5, 0, 5));
    // Where the canister does not answer any more, it says that there may be one.
    let world = World::new(5);
    world.queue.state().drops_answers = true;
    let stop = Stop::default();
    let (ended, _) = thread::scope(|scope| {
        let running = scope.spawn(|| world.run_until(slowly, &stop));
        wait_for(|| world.queue.state().acquired == 1);
        world.queue.state().unreachable = u32::MAX;
        stop.set();
        running.join().unwrap()
    });
    assert_eq!((code(ended), world.queue.live()), (UNTOLD, 1));
}

#[test]
fn what_was_deleted_in_a_lease_that_was_over_is_not_known_to_be_gone() {
    let world = World::new(5);
    world.mood(Mood::Slow(Duration::from_millis(300)));
    let (ended, figures) = thread::scope(|scope| {
        let running = scope.spawn(|| world.run(options(Until::Once)));
        wait_for(|| !world.moody.asked.lock().unwrap().is_empty());
        world.queue.expire();
        running.join().unwrap()
    });
    ended.unwrap();
    assert_eq!((figures.deleted, figures.late, figures.undone, world.rows()), (0, 5, 5, 5));
    assert_eq!(code(all_done(Until::Once, &figures)), NOT_ALL);
}

#[test]
fn what_failed_and_went_later_is_done() {
    let world = World::new(30);
    *world.moody.stubborn.lock().unwrap() = Some(path(13));
    let (ended, figures) = thread::scope(|scope| {
        let running = scope.spawn(|| world.run(Options { max_retries: u32::MAX, ..options(Until::Empty) }));
        wait_for(|| world.failures() > 0);
        *world.moody.stubborn.lock().unwrap() = None;
        running.join().unwrap()
    });
    ended.unwrap();
    assert!(figures.failed > 0 && figures.deleted == 30 && figures.undone == 0, "{figures:?}");
    all_done(Until::Empty, &figures).unwrap();
}

#[test]
fn what_stands_between_may_be_put_right_and_what_the_canister_says_is_final() {
    let world = World::new(5);
    world.queue.state().turned_away = 4;
    let (ended, figures) = world.run(options(Until::Empty));
    ended.unwrap();
    assert_eq!((figures.deleted, world.rows()), (5, 0));
    let said = |failure| -> anyhow::Error { CallError { method: "a method".into(), failure }.into() };
    let rejected = |code| said(Failure::Rejected(coppice_client::Reject::new(code, None, "no".into())));
    let garbled = || candid::Error::msg("no Candid");
    for passing in [turned_away(), crate::client::lost("502"), rejected(2), turned_away().context("leasing")] {
        assert!(passes(&passing), "{passing:#}");
    }
    for last in [rejected(3), rejected(4), said(Failure::Answer(garbled())), said(Failure::Argument(garbled()))] {
        assert!(!passes(&last), "{last:#}");
    }
    assert!(!passes(&anyhow::anyhow!("no")));
}

#[test]
fn an_extension_that_is_not_answered_is_asked_for_again_in_time() {
    let world = World { chunk: 2, parallel: 1, ..World::new(30) };
    world.mood(Mood::Slow(Duration::from_millis(300)));
    let options = Options { lease: Duration::from_secs(4), ..options(Until::Once) };
    let (ended, figures) = thread::scope(|scope| {
        let running = scope.spawn(|| world.run(options));
        wait_for(|| !world.moody.asked.lock().unwrap().is_empty());
        world.queue.state().hangs = 1;
        running.join().unwrap()
    });
    ended.unwrap();
    assert_eq!((figures.deleted, figures.left, figures.late, world.queue.state().hangs), (30, 0, 0, 0), "{figures:?}");
    assert!(figures.extended > 0);
}

#[test]
fn a_worker_that_is_to_end_ends_though_a_call_is_not_answered() {
    // What it looks at is of no use to it then.
    let world = World::new(5);
    world.queue.state().hangs = u32::MAX;
    let began = Instant::now();
    let asked = || world.queue.state().hangs < u32::MAX;
    world.run_while(options(Until::Stopped), asked).0.unwrap();
    assert!(began.elapsed() < PARTING, "at once");
    // A lease may have been given, and what was deleted must be told: it tries both for a while.
    let world = World::new(5);
    world.queue.state().acquire_hangs = true;
    let began = Instant::now();
    let (ended, _) = world.run_while(options(Until::Stopped), || began.elapsed() > Duration::from_millis(300));
    assert_eq!(code(ended), UNTOLD);
    assert!(began.elapsed() < PARTING * 4, "{:?}", began.elapsed());
    let world = World::new(5);
    world.mood(Mood::Slow(Duration::from_millis(100)));
    let (ended, _) = world.run_while(options(Until::Stopped), || {
        let asked = !world.moody.asked.lock().unwrap().is_empty();
        world.queue.state().hangs = if asked { u32::MAX } else { 0 };
        asked
    });
    assert_eq!((code(ended), world.rows()), (UNTOLD, 5));
    // One that is not to end has the answer to the next call.
    let world = World::new(5);
    world.queue.state().hangs = 2;
    let (ended, figures) = world.run(options(Until::Empty));
    ended.unwrap();
    assert_eq!((figures.deleted, figures.retries), (5, 2));
}

#[test]
fn a_store_that_is_away_keeps_its_own_blobs_waiting_alone() {
    let rows = (1..=120).map(|id| Row { file_type: if id <= 60 { "outputs" } else { "tx" }.into(), ..row(id) });
    let (queue, good, away) = (Fake::new(rows), Arc::<Moody>::default(), Arc::<Moody>::default());
    let stores: Vec<(_, Arc<dyn ObjectStore>, _)> = vec![("tx", good.clone(), CHUNK), ("outputs", away.clone(), CHUNK)];
    let worker = Worker::new(Stores::of(stores), 4).unwrap();
    mark(&worker, canister()).unwrap();
    away.unreadable.store(true, Ordering::Relaxed);
    let (stop, log) = (Stop::default(), Log::silent());
    let (ended, figures) = thread::scope(|scope| {
        scope.spawn(|| {
            // Leases of 50 have the blobs of the one that is away first, and are larger for them.
            wait_for(|| queue.state().rows.len() <= 60);
            assert_eq!((good.asked.lock().unwrap().len(), away.asked.lock().unwrap().len()), (60, 0));
            away.unreadable.store(false, Ordering::Relaxed);
        });
        let mut run = Run::new(&queue, canister(), worker, options(Until::Empty), &stop, &log).unwrap();
        (run.run(), run.figures())
    });
    ended.unwrap();
    assert_eq!((figures.deleted, figures.failed, figures.undone, queue.live()), (120, 0, 0, 0), "{figures:?}");
    assert!(queue.state().rows.is_empty() && figures.left >= 110, "{figures:?}");
}

#[test]
fn a_store_whose_marker_is_gone_names_no_failure() {
    let world = World::new(5);
    *world.moody.stubborn.lock().unwrap() = Some(path(2));
    world.mood(Mood::Vanishes);
    let (ended, figures) = world.run(options(Until::Empty));
    assert_eq!((code(ended), figures.failed, figures.left, world.failures()), (WRONG_STORE, 0, 5, 0));
}

#[test]
fn a_blob_without_a_store_lends_no_other_its_tries() {
    let world = World::new(5);
    world.queue.state().rows.get_mut(&3).unwrap().0.file_type = "outputs".into();
    *world.moody.stubborn.lock().unwrap() = Some(path(2));
    // As long as one that counts fails it waits; then it is put off, and never given up.
    let (ended, _) = world.run_while(options(Until::Stopped), || world.failures() > 10);
    ended.unwrap();
    let dead = world.queue.state().dead.clone();
    assert_eq!((dead, world.rows()), (vec![2], 1));
}

#[test]
fn what_was_noted_of_a_completion_whose_answer_was_lost_is_not_late() {
    let world = World::new(30);
    {
        let mut state = world.queue.state();
        (state.drops_answers, state.room) = (true, Some(7));
    }
    let (ended, figures) = world.run(options(Until::Once));
    ended.unwrap();
    assert_eq!((figures.deleted, figures.late, figures.undone, world.rows()), (30, 0, 0, 0), "{figures:?}");
    all_done(Until::Once, &figures).unwrap();
}

#[test]
fn a_dry_run_asks_a_store_again_and_ends_when_it_is_to() {
    let world = World::new(3);
    let (stop, log) = (Stop::default(), Log::silent());
    let run = Run::new(&world.queue, canister(), world.worker(), options(Until::Stopped), &stop, &log).unwrap();
    world.moody.unreadable.store(true, Ordering::Relaxed);
    thread::scope(|scope| {
        scope.spawn(|| {
            thread::sleep(Duration::from_millis(100));
            world.moody.unreadable.store(false, Ordering::Relaxed);
        });
        assert_eq!(dry_run(&run).unwrap().unwrap().1.len(), 3);
        assert!(run.figures().retries > 0);
        world.moody.unreadable.store(true, Ordering::Relaxed);
        scope.spawn(|| {
            thread::sleep(Duration::from_millis(100));
            stop.set();
        });
        assert!(dry_run(&run).unwrap().is_none());
    });
}

#[test]
fn a_store_that_becomes_read_only_behind_a_few_costs_none_a_try_however_few_are_left() {
    let world = World { chunk: 1, parallel: 1, ..World::new(12) };
    world.mood(Mood::Slow(Duration::from_millis(20)));
    let (ended, figures) = thread::scope(|scope| {
        let running = scope.spawn(|| world.run(options(Until::Empty)));
        wait_for(|| world.moody.asked.lock().unwrap().len() >= 8);
        world.mood(Mood::ReadOnly);
        wait_for(|| world.queue.state().acquired >= 8);
        assert!(world.rows() <= 5 && world.rows() > 0 && world.failures() == 0, "{}", world.failures());
        world.mood(Mood::Willing);
        running.join().unwrap()
    });
    ended.unwrap();
    assert_eq!((figures.deleted, figures.failed, world.blobs()), (12, 0, 0), "{figures:?}");
}

#[test]
fn waits_double_up_to_the_longest_and_differ() {
    let all: Vec<Duration> = waits(Duration::from_secs(2)).take(6).collect();
    for (wait, least) in all.iter().zip([250, 500, 1_000, 2_000, 2_000, 2_000]) {
        let least = Duration::from_millis(least);
        assert!(*wait >= least && *wait <= least * 2, "{all:?}");
    }
    let other: Vec<Duration> = waits(Duration::from_secs(2)).take(6).collect();
    assert_ne!(all, other, "workers that fail together do not come back together");
}

#[test]
fn a_store_that_becomes_read_only_while_it_works_costs_no_blob_a_try() {
    let world = World { chunk: 1, parallel: 1, ..World::new(50) };
    world.mood(Mood::Slow(Duration::from_millis(5)));
    let (ended, figures) = thread::scope(|scope| {
        let running = scope.spawn(|| world.run(options(Until::Empty)));
        wait_for(|| world.moody.asked.lock().unwrap().len() >= 10);
        world.mood(Mood::ReadOnly);
        wait_for(|| world.queue.state().acquired >= 6);
        assert!(world.rows() > 30 && world.failures() == 0, "{}, {}", world.rows(), world.failures());
        world.mood(Mood::Willing);
        running.join().unwrap()
    });
    ended.unwrap();
    assert_eq!((figures.deleted, figures.dead, figures.undone, world.blobs()), (50, 0, 0, 0), "{figures:?}");
}

#[test]
fn how_far_it_is_is_said_while_a_call_hangs_and_while_nothing_is_due() {
    let world = World::new(5);
    let (log, written) = Log::every(Duration::from_millis(5), LogFormat::Text);
    let stop = Stop::default();
    let done = || written.lines().iter().filter(|line| line.starts_with("5 blobs deleted")).count();
    let options = |poll| Options { poll, ..options(Until::Stopped) };
    thread::scope(|scope| {
        let run = |options| {
            let mut run = Run::new(&world.queue, canister(), world.worker(), options, &stop, &log).unwrap();
            run.run().unwrap();
        };
        let running = scope.spawn(move || run(options(Duration::from_millis(10))));
        wait_for(|| done() > 0);
        // From here on it says nothing by itself: each of its calls hangs.
        world.queue.state().hangs = u32::MAX;
        wait_for(|| world.queue.state().hangs < u32::MAX);
        let before = done();
        wait_for(|| done() >= before + 3);
        assert!(done() >= before + 3 && !running.is_finished());
        stop.set();
    });
    // Nothing is due for an hour.
    let world = World::new(5);
    let (log, written) = Log::every(Duration::from_millis(5), LogFormat::Text);
    let stop = Stop::default();
    let done = || written.lines().iter().filter(|line| line.starts_with("5 blobs deleted")).count();
    thread::scope(|scope| {
        let mut run =
            Run::new(&world.queue, canister(), world.worker(), options(Duration::from_secs(3_600)), &stop, &log)
                .unwrap();
        scope.spawn(move || run.run().unwrap());
        wait_for(|| done() >= 3);
        assert!(done() >= 3);
        stop.set();
    });
}
