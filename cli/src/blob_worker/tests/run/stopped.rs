//! Deletions that are stopped while a worker works.

use super::*;

/// Stops deletions with the request of this number, the first being 1.
fn stop_at(world: &World, request: usize) {
    let queue = world.queue.clone();
    world.moody.when_asked(request, move |_| queue.state().stopped = true);
}

#[test]
fn worker_begins_no_request_after_the_canister_answers_stopped() {
    let world = World { chunk: 2, parallel: 1, ..World::new(100) };
    stop_at(&world, 5);
    // The worker has its second lease before the first request is answered.
    world.hold_until(|queue| queue.acquired == 2);
    let (ended, figures) = world.run(until_empty());
    ended.unwrap();
    assert_eq!((world.blobs(), world.rows()), (94, 100), "the request under way is finished, and none follows");
    assert_eq!((figures.deleted, figures.late, figures.undone), (0, 6, 6), "{figures:?}");
    let state = world.queue.state();
    assert_eq!((state.acquired, state.reports.len(), state.completions.len()), (2, 1, 0));
    let mut named = state.reports[0].completed_ids.clone();
    named.sort_unstable();
    assert_eq!((named, state.reports[0].rest), (vec![1, 2, 3, 4, 5, 6], None));
}

#[test]
fn worker_goes_on_after_deletions_are_started_again() {
    let world = World { chunk: 2, parallel: 1, ..World::new(30) };
    stop_at(&world, 3);
    let (ended, figures) = world.run_while(options(), || {
        let mut state = world.queue.state();
        if state.stopped && !state.reports.is_empty() {
            // The stop has ended all leases.
            state.end_all();
            state.stopped = false;
        }
        state.rows.is_empty()
    });
    ended.unwrap();
    assert_eq!((world.rows(), world.blobs(), figures.late, figures.deleted), (0, 0, 4, 30), "{figures:?}");
}

#[test]
fn report_of_a_whole_lease_names_its_rows_once_deletions_are_stopped() {
    let world = World::new(10);
    stop_at(&world, 1);
    let (ended, _) = world.run(once());
    ended.unwrap();
    let reports = world.queue.state().reports.clone();
    let shown: Vec<_> = reports.iter().map(|done| (done.completed_ids.len(), done.rest.is_some())).collect();
    assert_eq!(shown, [(0, true), (10, false)]);
    assert_eq!(world.rows(), 10);
}

#[test]
fn each_bulk_request_is_preceded_by_a_question_of_its_own() {
    let world = World { chunk: 2, parallel: 1, ..World::new(20) };
    let (ended, figures) = world.work(Duration::ZERO);
    ended.unwrap();
    assert_eq!((figures.deleted, figures.extended), (20, 9), "granting the lease is the first answer: {figures:?}");
    // An old answer does not count.
    let world = World { chunk: 2, parallel: 1, ..World::new(20) };
    let (ended, figures) = world.work(Duration::from_secs(6));
    ended.unwrap();
    assert_eq!((figures.deleted, figures.extended), (20, 10), "{figures:?}");
    // Requests for single blobs share an answer for five seconds.
    let world = World { chunk: 1, parallel: 1, ..World::new(20) };
    let (ended, figures) = world.work(Duration::from_secs(6));
    ended.unwrap();
    assert_eq!((figures.deleted, figures.extended), (20, 1), "{figures:?}");
}

#[test]
fn no_request_begins_while_the_canister_does_not_answer() {
    let world = World { chunk: 2, parallel: 1, ..World::new(20) };
    let (stop, queue) = (Stop::default(), world.queue.clone());
    world.moody.when_asked(1, move |_| queue.state().unreachable = u32::MAX);
    let (ended, figures) = thread::scope(|scope| {
        let running = scope.spawn(|| world.run_until(options(), &stop));
        wait_for(|| (1..u32::MAX - 20).contains(&world.queue.state().unreachable));
        assert_eq!(world.blobs(), 18, "only the first request has begun");
        world.queue.state().unreachable = 0;
        wait_for(|| world.rows() == 0);
        stop.set();
        running.join().unwrap()
    });
    ended.unwrap();
    assert_eq!((figures.deleted, world.blobs()), (20, 0), "{figures:?}");
}
