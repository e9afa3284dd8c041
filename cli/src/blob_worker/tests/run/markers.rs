//! Stores whose marker is wrong, vanishes, or cannot be read.

use super::*;
use ic_coppice_interface::StoreType;

#[test]
fn wrong_store_is_refused_before_a_lease() {
    let world = World::new(5);
    let store: Arc<dyn ObjectStore> = world.moody.clone();
    let other = Worker::new(Stores::of(vec![("tx/tx", store, CHUNK)]), Principal::anonymous(), 1).unwrap();
    let (stop, log) = (Stop::default(), Log::silent());
    let run = Run::new(&world.client, other, until_empty(), &stop, &log);
    assert_eq!(code(run.run()), WRONG_STORE, "the marker of another canister");
    let worker = world.worker();
    worker.wait_for(world.moody.inner.delete(&Path::from(NAME))).unwrap();
    assert_eq!(code(world.run(until_empty()).0), WRONG_STORE, "no marker");
    assert_eq!((world.queue.state().acquired, world.blobs()), (0, 5));
}

#[test]
fn invalid_marker_is_read_again_until_it_is_valid() {
    let world = World::new(5);
    let worker = world.worker();
    let marker = worker.wait_for(async { world.moody.inner.get(&Path::from(NAME)).await?.bytes().await }).unwrap();
    for bytes in [&b""[..], b"<html>busy</html>", &marker[..marker.len() / 2]] {
        worker.wait_for(world.moody.inner.put(&Path::from(NAME), bytes.to_vec().into())).unwrap();
        assert!(mark(&worker).is_err(), "init does not overwrite an invalid marker");
        let (ended, figures) = world.run_while(until_empty(), || world.moody.reads() > 5);
        ended.unwrap();
        assert_eq!((figures.leases, world.rows(), world.blobs()), (0, 5, 5), "{figures:?}");
        world.moody.forget_reads();
    }
    worker.wait_for(world.moody.inner.put(&Path::from(NAME), marker.into())).unwrap();
    world.run(until_empty()).0.unwrap();
    assert_eq!((world.rows(), world.blobs()), (0, 0));
}

#[test]
fn wrong_store_is_found_before_anything_is_due() {
    let world = World::new(0);
    world.worker().wait_for(world.moody.inner.delete(&Path::from(NAME))).unwrap();
    assert_eq!(code(world.run(options()).0), WRONG_STORE);
}

#[test]
fn marker_that_vanishes_during_deletion_discards_the_outcome() {
    let world = World::new(5);
    world.mood(Mood::Vanishes);
    let (ended, figures) = world.run(until_empty());
    assert_eq!(Exit::code_of(&ended.unwrap_err()), WRONG_STORE);
    assert_eq!((figures.deleted, figures.left, world.rows(), world.queue.live()), (0, 5, 5, 0));
}

#[test]
fn markers_are_read_again_after_a_slow_call() {
    let world = World::new(5);
    // More than a sixteenth of the lease.
    let options = Options { lease: Duration::from_secs(4), ..until_empty() };
    world.queue.state().slow = Duration::from_millis(260);
    let moody = world.moody.clone();
    // The look during the acquire has ended by then.
    world.queue.at_acquire(move |_| {
        thread::sleep(Duration::from_millis(300));
        moody.loses_marker();
    });
    let (ended, figures) = world.run(options);
    assert_eq!((code(ended), world.rows()), (WRONG_STORE, 5));
    assert_eq!((figures.leases, figures.left, world.blobs(), world.queue.live()), (1, 5, 5, 0));
    assert!(world.moody.asked.lock().unwrap().is_empty(), "nothing is deleted in a directory that is not mounted");
}

#[test]
fn store_without_a_readable_marker_does_not_affect_other_stores() {
    for vanishes in [true, false] {
        let rows = (1..=20).map(|id| Row { file_type: if id > 10 { "outputs" } else { "tx" }.into(), ..row(id) });
        let (queue, good, bad) = (Fake::new(rows), Arc::<Moody>::default(), Arc::<Moody>::default());
        let stores: Vec<(_, Arc<dyn ObjectStore>, _)> =
            vec![("tx/tx", good, CHUNK), ("tx/outputs", bad.clone(), CHUNK)];
        let worker = Worker::new(Stores::of(stores), canister(), 4).unwrap();
        mark(&worker).unwrap();
        bad.when_asked(1, move |bad| {
            if vanishes {
                bad.loses_marker();
            } else {
                bad.unreadable.store(u32::MAX, Ordering::Relaxed);
            }
        });
        let (stop, log) = (Stop::default(), Log::silent());
        let client = queue.client();
        let run = Run::new(&client, worker, once(), &stop, &log);
        assert_eq!(code(run.run()), if vanishes { WRONG_STORE } else { 0 });
        let figures = run.figures();
        assert_eq!((figures.deleted, figures.left, figures.undone), (10, 10, 10), "{vanishes}: {figures:?}");
        let state = queue.state();
        assert!(state.rows.len() == 10 && state.rows.values().all(|(row, _)| row.file_type == "outputs"));
    }
}

#[test]
fn store_without_its_marker_reports_no_failure() {
    let world = World::new(5);
    *world.moody.stubborn.lock().unwrap() = Some(path(2));
    world.mood(Mood::Vanishes);
    let (ended, figures) = world.run(until_empty());
    assert_eq!((code(ended), figures.failed, figures.left, world.failures()), (WRONG_STORE, 0, 5, 0));
}

#[test]
fn unavailable_store_delays_only_its_own_blobs() {
    let rows = (1..=120).map(|id| Row { file_type: if id <= 60 { "outputs" } else { "tx" }.into(), ..row(id) });
    let (queue, good, away) = (Fake::new(rows), Arc::<Moody>::default(), Arc::<Moody>::default());
    let stores: Vec<(_, Arc<dyn ObjectStore>, _)> =
        vec![("tx/tx", good.clone(), CHUNK), ("tx/outputs", away.clone(), CHUNK)];
    let worker = Worker::new(Stores::of(stores), canister(), 4).unwrap();
    mark(&worker).unwrap();
    away.unreadable.store(u32::MAX, Ordering::Relaxed);
    let (stop, log) = (Stop::default(), Log::silent());
    let (ended, figures) = thread::scope(|scope| {
        scope.spawn(|| {
            // The rows of the unavailable store come first in the queue, and are not leased.
            wait_for(|| queue.state().rows.len() <= 60);
            assert_eq!((good.asked.lock().unwrap().len(), away.asked.lock().unwrap().len()), (60, 0));
            away.unreadable.store(0, Ordering::Relaxed);
        });
        let client = queue.client();
        let run = Run::new(&client, worker, until_empty(), &stop, &log);
        (run.run(), run.figures())
    });
    ended.unwrap();
    assert_eq!((figures.deleted, figures.failed, figures.undone, queue.live()), (120, 0, 0, 0), "{figures:?}");
    assert!(queue.state().rows.is_empty() && figures.left == 0, "{figures:?}");
}

#[test]
fn nested_folders_of_two_canisters_are_refused() {
    use crate::blob_worker::layout::Layout;
    let moody = Arc::<Moody>::default();
    let worker = |canister, folder: &str, layout| {
        let store: Arc<dyn ObjectStore> = moody.clone();
        let stores = Stores::of(vec![("tx/tx", store, CHUNK)]).below(folder, &layout);
        Worker::new(stores, canister, 1).unwrap()
    };
    let (ours, theirs) = (canister(), Principal::anonymous());
    let refused = |worker: &Worker| Exit::code_of(&mark(worker).unwrap_err());
    mark(&worker(theirs, "nest/ab/tx", Layout::Hex)).unwrap();
    // A folder of the other canister, and folders below it at any depth.
    assert_eq!(refused(&worker(ours, "nest/ab/tx", Layout::Hex)), WRONG_STORE);
    assert_eq!(refused(&worker(ours, "nest/ab/tx/a/b", Layout::Hex)), WRONG_STORE);
    mark(&worker(ours, "nest/ab/tx2", Layout::Hex)).unwrap();
    // A folder below, if the layout writes into it; other folders below are allowed.
    mark(&worker(theirs, "nest/cd", Layout::Hex)).unwrap();
    assert_eq!(refused(&worker(ours, "nest", Layout::Folders(2))), WRONG_STORE);
    mark(&worker(ours, "nest", Layout::Folders(1))).unwrap();
    // A marker above a right one that was written later ends the worker at its start.
    let (stop, log, queue) = (Stop::default(), Log::silent(), Fake::new([row(1)]));
    let run = |worker| Run::new(&queue.client(), worker, until_empty(), &stop, &log).run();
    assert_eq!(code(run(worker(theirs, "nest/cd", Layout::Hex))), WRONG_STORE);
    assert_eq!(queue.state().acquired, 0);
    run(worker(ours, "nest/ab/tx2", Layout::Hex)).unwrap();
    assert_eq!(queue.state().rows.len(), 0, "the other marker above it is of the same canister");
}

#[test]
fn places_of_two_store_types_are_refused_whatever_the_order_of_their_inits() {
    use crate::blob_worker::layout::Layout;
    let row_of = |id: u64, store: &str| {
        let store_type = if store == "tx" { StoreType::Tx } else { StoreType::Temp };
        Row { store_type, ..row(id) }
    };
    for (first, second, layout) in [
        ("nest", "nest", Layout::Hex),
        ("nest", "nest/below", Layout::Hex),
        ("nest/below", "nest", Layout::Hex),
        ("nest/ab", "nest", Layout::Folders(2)),
        ("nest/ab/far/below", "nest", Layout::Teranode),
        ("below", "", Layout::Hex),
    ] {
        let moody = Arc::<Moody>::default();
        let worker = |of: &str, folder: &str| {
            let store: Arc<dyn ObjectStore> = moody.clone();
            let mut stores = Stores::of(vec![(of, store, CHUNK)]).below(folder, &layout);
            stores.0[0].url = format!("s3://bucket/{folder}").parse().unwrap();
            Worker::new(stores, canister(), 1).unwrap()
        };
        let shown = format!("{first} {second}");
        mark(&worker("tx/tx", first)).unwrap();
        let refused = mark(&worker("temp/tx", second)).unwrap_err();
        assert_eq!(Exit::code_of(&refused), WRONG_STORE, "{shown}: {refused}");
        assert!(refused.to_string().contains("tx/tx") && refused.to_string().contains("temp/tx"), "{shown}: {refused}");
        mark(&worker("tx/outputs", second)).unwrap();
        // Both marked by commands that did not compare them: no worker starts.
        let path = Path::from(format!("{second}/{NAME}"));
        let runtime = worker("tx/tx", first);
        let marker = runtime.wait_for(async { moody.inner.get(&path).await?.bytes().await }).unwrap();
        let marker = String::from_utf8(marker.to_vec()).unwrap().replace("tx/outputs", "temp/tx");
        runtime.wait_for(moody.inner.put(&path, marker.into())).unwrap();
        for (of, folder) in [("tx/tx", first), ("temp/tx", second)] {
            let (stop, log, queue) = (Stop::default(), Log::silent(), Fake::new([row_of(1, &of[..2])]));
            let client = queue.client();
            let run = Run::new(&client, worker(of, folder), until_empty(), &stop, &log);
            assert_eq!(code(run.run()), WRONG_STORE, "{shown}: {of}");
            assert_eq!((queue.state().acquired, moody.asked.lock().unwrap().len()), (0, 0));
        }
    }
}

#[test]
fn store_that_begins_to_keep_versions_ends_the_worker_unless_it_may() {
    let world = World::new(5);
    world.moody.versioned.store(true, Ordering::Relaxed);
    assert_eq!(code(world.run(until_empty()).0), WRONG_STORE);
    assert_eq!((world.queue.state().acquired, world.blobs()), (0, 5));
    assert_eq!(Exit::code_of(&mark(&world.worker()).unwrap_err()), WRONG_STORE);
    // While it works: nothing of the store is reported.
    world.moody.versioned.store(false, Ordering::Relaxed);
    world.moody.when_asked(1, |moody| moody.versioned.store(true, Ordering::Relaxed));
    let (ended, figures) = world.run(until_empty());
    assert_eq!((code(ended), figures.deleted, figures.left, world.rows()), (WRONG_STORE, 0, 5, 5), "{figures:?}");
    let store: Arc<dyn ObjectStore> = world.moody.clone();
    let mut stores = Stores::of(vec![("tx/tx", store, CHUNK)]);
    stores.0[0].may_keep_versions = true;
    let worker = Worker::new(stores, canister(), 1).unwrap();
    mark(&worker).unwrap();
    let (stop, log) = (Stop::default(), Log::silent());
    Run::new(&world.client, worker, until_empty(), &stop, &log).run().unwrap();
    assert_eq!((world.rows(), world.blobs()), (0, 0));
}

#[test]
fn look_below_a_store_ends_after_some_thousand_files() {
    let moody = Arc::<Moody>::default();
    let (store, later): (Arc<dyn ObjectStore>, Arc<dyn ObjectStore>) = (moody.clone(), moody.clone());
    let worker = |of, store, folder| {
        Worker::new(Stores::of(vec![(of, store, CHUNK)]).below(folder, &Default::default()), canister(), 1)
    };
    let below = worker("temp/tx", later, "nest/z").unwrap();
    mark(&below).unwrap();
    let above = worker("tx/tx", store, "nest").unwrap();
    above.wait_for(async {
        for id in 0..9_999 {
            moody.inner.put(&Path::from(format!("nest/{id:08}.tx")), "blob".into()).await.unwrap();
        }
    });
    assert_eq!(Exit::code_of(&mark(&above).unwrap_err()), WRONG_STORE);
    above.wait_for(moody.inner.put(&Path::from("nest/one-more.tx"), "blob".into())).unwrap();
    mark(&above).unwrap();
}

/// The reads wait for the acquire, and the acquire waits for the reads.
#[test]
fn markers_are_read_during_the_acquire_and_before_deletion() {
    let world = World::new(5);
    world.moody.forget_reads();
    let queue = world.queue.clone();
    *world.moody.reads_held_until.lock().unwrap() = Some(Arc::new(move || queue.state().acquired > 0));
    let (moody, looked) = (world.moody.clone(), Arc::new(AtomicU64::new(0)));
    let seen = looked.clone();
    world.queue.at_acquire(move |_| {
        wait_for(|| moody.reads() >= 2);
        seen.store(moody.reads().into(), Ordering::Relaxed);
        assert!(moody.asked.lock().unwrap().is_empty(), "no blob is deleted before the markers are read");
    });
    let began = Instant::now();
    let (ended, figures) = world.run(once());
    ended.unwrap();
    assert_eq!((figures.deleted, looked.load(Ordering::Relaxed)), (5, 2));
    assert!(began.elapsed() < Duration::from_secs(20), "{:?}", began.elapsed());
}
