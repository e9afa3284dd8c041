//! Blobs and stores that fail or refuse, and what that costs the others.

use super::*;

#[test]
fn of_a_chunk_that_failed_nothing_is_said_and_all_of_it_is_tried_again() {
    let world = World::new(50);
    world.mood(Mood::Fails(1));
    let (ended, figures) = world.run(once());
    ended.unwrap();
    assert!(figures.deleted < 50 && figures.left >= CHUNK as u64 && figures.failed == 0, "{figures:?}");
    assert_eq!((figures.deleted + figures.left, world.queue.live()), (50, 0));
    assert_eq!(all_done(&figures).map_err(|error| Exit::code_of(&error)), Err(NOT_ALL));
    // What the store did and then did not say is done again, and was not there.
    world.mood(Mood::Lies);
    let (ended, lied) = world.run(once());
    ended.unwrap();
    assert_eq!(lied.deleted, 0);
    world.mood(Mood::Fails(7));
    let (ended, figures) = world.run(until_empty());
    ended.unwrap();
    assert_eq!((world.rows(), world.blobs(), world.failures()), (0, 0, 0), "{figures:?}");
    assert!(world.queue.state().dead.is_empty());
}

#[test]
fn a_blob_that_is_refused_while_others_go_fails_and_alone_it_waits() {
    let world = World::new(50);
    *world.moody.stubborn.lock().unwrap() = Some(path(13));
    let (ended, figures) = world.run(once());
    ended.unwrap();
    assert_eq!((figures.deleted, figures.failed, figures.left, figures.dead), (49, 1, 0, 0));
    // Nothing else goes: it may be the store's doing.
    let (ended, figures) = world.run(until_empty());
    ended.unwrap();
    assert_eq!((figures.failed, figures.left, figures.undone, world.failures()), (0, 1, 1, 1), "{figures:?}");
    assert_eq!(code(all_done(&figures)), NOT_ALL);
    // A worker that goes on waits for longer each time, and counts it when others go again.
    let (ended, _) = world.run_while(options(), || world.queue.state().acquired >= 6);
    ended.unwrap();
    assert_eq!((world.failures(), world.rows()), (1, 1));
    {
        let mut state = world.queue.state();
        (51..=52).for_each(|id| drop(state.rows.insert(id, (row(id), 0))));
    }
    let worker = world.worker();
    (51..=52).for_each(|id| drop(worker.wait_for(world.moody.inner.put(&path(id), "blob".into())).unwrap()));
    world.run(once()).0.unwrap();
    assert_eq!((world.failures(), world.rows()), (2, 1));
}

#[test]
fn a_blob_alone_is_named_when_the_worker_ends() {
    let world = World::new(1);
    *world.moody.stubborn.lock().unwrap() = Some(path(1));
    let (log, written) = Log::every(Duration::from_secs(60), crate::terminal::LogFormat::Text);
    let stop = Stop::default();
    let run = Run::new(&world.client, world.worker(), until_empty(), &stop, &log);
    run.run().unwrap();
    assert_eq!(code(all_done(&run.figures())), NOT_ALL);
    let lines = written.lines();
    assert!(lines.iter().any(|line| line.contains("row 1, 0000000000000001") && line.contains("Locked")), "{lines:?}");
}

#[test]
fn a_store_that_is_away_for_long_costs_no_blob_a_try_and_then_all_go() {
    for chunk in [1, CHUNK] {
        let world = World { chunk, parallel: 1, ..World::new(120) };
        world.mood(Mood::Fails(40));
        let (ended, figures) = world.run(until_empty());
        ended.unwrap();
        assert_eq!((world.rows(), world.blobs(), figures.failed, figures.undone), (0, 0, 0, 0), "{figures:?}");
    }
}

#[test]
fn a_store_that_is_read_only_costs_no_blob_a_try() {
    for chunk in [1, CHUNK] {
        let world = World { chunk, ..World::new(30) };
        world.mood(Mood::ReadOnly);
        let (ended, _) = world.run_while(options(), || world.queue.state().acquired >= 5);
        ended.unwrap();
        assert_eq!((world.failures(), world.rows(), world.blobs()), (0, 30, 30));
        let (ended, figures) = world.run(until_empty());
        ended.unwrap();
        assert_eq!((figures.undone, code(all_done(&figures))), (30, NOT_ALL), "it is not waited for");
        world.mood(Mood::Willing);
        let (ended, figures) = world.run(until_empty());
        ended.unwrap();
        assert_eq!((figures.deleted, figures.failed, world.blobs()), (30, 0, 0));
    }
}

#[test]
fn a_refusal_counts_only_where_the_marker_is_right_after_it() {
    let world = World { chunk: 1, parallel: 1, ..World::new(5) };
    *world.moody.denied.lock().unwrap() = Some(path(3));
    // The marker cannot be read just then, and can be later.
    world.moody.when_asked(3, |moody| moody.unreadable.store(1, Ordering::Relaxed));
    let (ended, figures) = world.run(once());
    ended.unwrap();
    assert_eq!((figures.deleted, figures.failed, world.failures()), (2, 0, 0), "{figures:?}");
    let (ended, figures) = world.run(once());
    ended.unwrap();
    assert_eq!((figures.deleted, figures.failed, world.failures()), (2, 1, 1), "{figures:?}");
}

#[test]
fn one_blob_that_is_denied_is_given_up_as_others_go() {
    for chunk in [1, CHUNK] {
        let world = World { chunk, ..World::new(30) };
        *world.moody.denied.lock().unwrap() = Some(path(1));
        let (ended, figures) = world.run(Options { batch: 5, ..until_empty() });
        ended.unwrap();
        assert_eq!((world.queue.state().dead.clone(), world.blobs()), (vec![1], 1));
        assert_eq!((figures.deleted, figures.failed), (29, 3), "{figures:?}");
    }
}

/// S3 names keys with codes that say nothing of them, also where it deletes another one.
#[test]
fn a_store_that_is_busy_or_turns_the_worker_away_key_by_key_costs_no_blob_a_try() {
    let world = World { chunk: 1_000, ..World::new(21) };
    let busy = ["ServiceUnavailable", "RequestTimeout", "OperationAborted", "ExpiredToken"];
    *world.moody.codes.lock().unwrap() = (1..=20).map(path).zip(busy.into_iter().cycle()).collect();
    let (ended, figures) =
        world.run_while(Options { max_retries: 1, ..options() }, || world.queue.state().acquired >= 6);
    ended.unwrap();
    assert_eq!((figures.deleted, figures.failed, figures.dead), (1, 0, 0), "{figures:?}");
    assert_eq!((world.rows(), world.failures(), world.blobs()), (20, 0, 20));
    world.moody.codes.lock().unwrap().clear();
    let (ended, figures) = world.run(until_empty());
    ended.unwrap();
    assert_eq!((figures.deleted, world.rows(), world.blobs()), (20, 0, 0));
}

#[test]
fn a_key_that_can_have_no_blob_fails_though_no_other_blob_goes() {
    let world = World::new(2);
    *world.moody.codes.lock().unwrap() = [(path(1), "KeyTooLongError"), (path(2), "ServiceUnavailable")].into();
    let (ended, figures) = world.run(Options { max_retries: 1, ..once() });
    ended.unwrap();
    assert_eq!((figures.failed, figures.dead, figures.left), (1, 1, 1), "{figures:?}");
    assert_eq!(world.queue.state().dead, [1]);
}
