//! Blobs and stores that fail or refuse, and what that costs the others.

use super::*;

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
            let times = |id| asked.iter().filter(|asked| **asked == path(id)).count();
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
fn a_store_that_is_read_only_costs_no_blob_a_try_and_is_waited_for() {
    for chunk in [1, CHUNK] {
        let world = World { chunk, ..World::new(30) };
        world.mood(Mood::ReadOnly);
        let (ended, figures) = thread::scope(|scope| {
            let running = scope.spawn(|| world.run(options(Until::Empty)));
            wait_for(|| world.queue.state().acquired >= 5);
            assert_eq!((world.failures(), world.rows(), world.blobs()), (0, 30, 30));
            world.mood(Mood::Willing);
            running.join().unwrap()
        });
        ended.unwrap();
        assert_eq!((figures.deleted, figures.failed, world.blobs()), (30, 0, 0));
    }
}

#[test]
fn a_store_that_becomes_read_only_while_it_works_costs_no_blob_a_try_however_few_are_left() {
    for (blobs, goes, leases) in [(12_u32, 8, 8), (50, 10, 6)] {
        let world = World { chunk: 1, parallel: 1, ..World::new(blobs.into()) };
        world.mood(Mood::ReadOnlyAfter(goes));
        let (ended, figures) = thread::scope(|scope| {
            let running = scope.spawn(|| world.run(options(Until::Empty)));
            wait_for(|| world.queue.state().acquired >= leases);
            assert_eq!((world.rows(), world.failures()), ((blobs - goes) as usize, 0));
            world.mood(Mood::Willing);
            running.join().unwrap()
        });
        ended.unwrap();
        let found = (figures.deleted, figures.failed, figures.dead, figures.undone, world.blobs());
        assert_eq!(found, (blobs.into(), 0, 0, 0, 0), "{figures:?}");
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
