//! Blobs and stores that fail or refuse, and the effect on other blobs.

use super::*;

#[test]
fn failed_request_reports_no_blob_and_is_retried() {
    let world = World::new(50);
    world.mood(Mood::Fails(1));
    let (ended, figures) = world.run(once());
    ended.unwrap();
    assert!(figures.deleted < 50 && figures.left >= CHUNK as u64 && figures.failed == 0, "{figures:?}");
    assert_eq!((figures.deleted + figures.left, world.queue.live()), (50, 0));
    assert_eq!(all_done(&figures).map_err(|error| Exit::code_of(&error)), Err(NOT_ALL));
    // The store deleted blobs and reported a failure; the retry finds them absent.
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
fn refused_blob_fails_beside_deleted_blobs_and_waits_alone() {
    let world = World::new(50);
    *world.moody.stubborn.lock().unwrap() = Some(path(13));
    let (ended, figures) = world.run(once());
    ended.unwrap();
    assert_eq!((figures.deleted, figures.failed, figures.left, figures.dead), (49, 1, 0, 0));
    // No other blob is deleted, so the store may be the cause.
    let (ended, figures) = world.run(until_empty());
    ended.unwrap();
    assert_eq!((figures.failed, figures.left, figures.undone, world.failures()), (0, 1, 1, 1), "{figures:?}");
    assert_eq!(code(all_done(&figures)), NOT_ALL);
    // A continuing worker waits longer each time, and counts the failure once other blobs are deleted again.
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
fn refused_single_blob_is_named_in_the_log() {
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
fn store_outage_counts_against_no_blob() {
    for chunk in [1, CHUNK] {
        let world = World { chunk, parallel: 1, ..World::new(120) };
        world.mood(Mood::Fails(40));
        let (ended, figures) = world.run(until_empty());
        ended.unwrap();
        assert_eq!((world.rows(), world.blobs(), figures.failed, figures.undone), (0, 0, 0, 0), "{figures:?}");
    }
}

#[test]
fn read_only_store_counts_against_no_blob() {
    for chunk in [1, CHUNK] {
        let world = World { chunk, ..World::new(30) };
        world.mood(Mood::ReadOnly);
        let (ended, _) = world.run_while(options(), || world.queue.state().acquired >= 5);
        ended.unwrap();
        assert_eq!((world.failures(), world.rows(), world.blobs()), (0, 30, 30));
        let (ended, figures) = world.run(until_empty());
        ended.unwrap();
        assert_eq!((figures.undone, code(all_done(&figures))), (30, NOT_ALL), "the worker does not wait for the store");
        world.mood(Mood::Willing);
        let (ended, figures) = world.run(until_empty());
        ended.unwrap();
        assert_eq!((figures.deleted, figures.failed, world.blobs()), (30, 0, 0));
    }
}

#[test]
fn refusal_counts_only_if_the_marker_is_read_after_it() {
    let world = World { chunk: 1, parallel: 1, ..World::new(5) };
    *world.moody.denied.lock().unwrap() = Some(path(3));
    // The marker cannot be read at first, but can be later.
    world.moody.when_asked(3, |moody| moody.unreadable.store(1, Ordering::Relaxed));
    let (ended, figures) = world.run(once());
    ended.unwrap();
    assert_eq!((figures.deleted, figures.failed, world.failures()), (2, 0, 0), "{figures:?}");
    let (ended, figures) = world.run(once());
    ended.unwrap();
    assert_eq!((figures.deleted, figures.failed, world.failures()), (2, 1, 1), "{figures:?}");
}

#[test]
fn denied_blob_is_given_up_when_others_are_deleted() {
    for chunk in [1, CHUNK] {
        let world = World { chunk, ..World::new(30) };
        *world.moody.denied.lock().unwrap() = Some(path(1));
        let (ended, figures) = world.run(Options { batch: 5, ..until_empty() });
        ended.unwrap();
        assert_eq!((world.queue.state().dead.clone(), world.blobs()), (vec![1], 1));
        assert_eq!((figures.deleted, figures.failed), (29, 3), "{figures:?}");
    }
}

/// S3 refuses keys with codes that say nothing about the keys, even in a request that deletes another key.
#[test]
fn store_level_codes_for_single_keys_count_against_no_blob() {
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
fn impossible_key_fails_even_if_no_blob_is_deleted() {
    let world = World::new(2);
    *world.moody.codes.lock().unwrap() = [(path(1), "KeyTooLongError"), (path(2), "ServiceUnavailable")].into();
    let (ended, figures) = world.run(Options { max_retries: 1, ..once() });
    ended.unwrap();
    assert_eq!((figures.failed, figures.dead, figures.left), (1, 1, 1), "{figures:?}");
    assert_eq!(world.queue.state().dead, [1]);
}
