//! Stores whose marker is wrong, goes, or cannot be read.

use super::*;

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
fn a_wrong_store_is_known_before_anything_is_due() {
    let world = World::new(0);
    world.worker().wait_for(world.moody.inner.delete(&Path::from(NAME))).unwrap();
    assert_eq!(code(world.run(options(Until::Stopped)).0), WRONG_STORE);
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
fn the_markers_are_looked_at_again_where_the_canister_took_long_to_answer() {
    let world = World::new(5);
    // More than a sixteenth of the lease.
    let options = Options { lease: Duration::from_secs(4), ..options(Until::Empty) };
    world.queue.state().slow = Duration::from_millis(260);
    // A store that cannot be asked gets nothing to do: all goes back, and is leased again.
    let moody = world.moody.clone();
    world.queue.at_acquire(move |_| moody.unreadable.store(1, Ordering::Relaxed));
    let moody = world.moody.clone();
    world.queue.at_acquire(move |_| moody.loses_marker());
    let (ended, figures) = world.run(options);
    assert_eq!((code(ended), world.rows()), (WRONG_STORE, 5));
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
        bad.when_asked(1, move |bad| {
            if vanishes {
                bad.loses_marker();
            } else {
                bad.unreadable.store(u32::MAX, Ordering::Relaxed);
            }
        });
        let (stop, log) = (Stop::default(), Log::silent());
        let mut run = Run::new(&queue, canister(), worker, options(Until::Once), &stop, &log).unwrap();
        assert_eq!(code(run.run()), if vanishes { WRONG_STORE } else { 0 });
        let figures = run.figures();
        assert_eq!((figures.deleted, figures.left, figures.undone), (10, 10, 10), "{vanishes}: {figures:?}");
        let state = queue.state();
        assert!(state.rows.len() == 10 && state.rows.values().all(|(row, _)| row.file_type == "outputs"));
    }
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
fn a_store_that_is_away_keeps_its_own_blobs_waiting_alone() {
    let rows = (1..=120).map(|id| Row { file_type: if id <= 60 { "outputs" } else { "tx" }.into(), ..row(id) });
    let (queue, good, away) = (Fake::new(rows), Arc::<Moody>::default(), Arc::<Moody>::default());
    let stores: Vec<(_, Arc<dyn ObjectStore>, _)> = vec![("tx", good.clone(), CHUNK), ("outputs", away.clone(), CHUNK)];
    let worker = Worker::new(Stores::of(stores), 4).unwrap();
    mark(&worker, canister()).unwrap();
    away.unreadable.store(u32::MAX, Ordering::Relaxed);
    let (stop, log) = (Stop::default(), Log::silent());
    let (ended, figures) = thread::scope(|scope| {
        scope.spawn(|| {
            // Leases of 50 have the blobs of the one that is away first, and are larger for them.
            wait_for(|| queue.state().rows.len() <= 60);
            assert_eq!((good.asked.lock().unwrap().len(), away.asked.lock().unwrap().len()), (60, 0));
            away.unreadable.store(0, Ordering::Relaxed);
        });
        let mut run = Run::new(&queue, canister(), worker, options(Until::Empty), &stop, &log).unwrap();
        (run.run(), run.figures())
    });
    ended.unwrap();
    assert_eq!((figures.deleted, figures.failed, figures.undone, queue.live()), (120, 0, 0, 0), "{figures:?}");
    assert!(queue.state().rows.is_empty() && figures.left >= 110, "{figures:?}");
}
