//! Workers that are stopped.

use super::super::super::times::PARTING;
use super::*;

#[test]
fn stopped_worker_reports_its_deletions_and_gives_the_rest_back() {
    let world = World { chunk: 1, ..World::new(50) };
    let stop = Stop::default();
    let set = stop.clone();
    world.moody.when_asked(8, move |_| set.set());
    let (ended, figures) = world.run_until(options(), &stop);
    ended.unwrap();
    assert_eq!((figures.deleted, figures.left), (8, 42), "requests under way are finished");
    assert_eq!((world.rows(), world.blobs(), world.queue.live()), (42, 42, 0));
}

#[test]
fn stopped_worker_that_cannot_report_exits_with_code_6() {
    let world = World { chunk: 1, patience: IMPATIENT, ..World::new(4) };
    let (stop, queue) = (Stop::default(), world.queue.clone());
    let set = stop.clone();
    world.moody.when_asked(1, move |_| {
        queue.state().unreachable = u32::MAX;
        set.set();
    });
    let (ended, _) = world.run_until(options(), &stop);
    assert_eq!((code(ended), world.rows()), (UNREPORTED, 4), "the rows are retried");
}

#[test]
fn time_to_report_starts_at_the_stop() {
    let world = World { patience: IMPATIENT, ..World::new(10) };
    let (stop, queue) = (Stop::default(), world.queue.clone());
    world.moody.when_asked(1, move |_| queue.state().unreachable = u32::MAX);
    let (ended, figures) = thread::scope(|scope| {
        let running = scope.spawn(|| world.run_until(options(), &stop));
        let unreachable = || world.queue.state().unreachable;
        // The worker has retried for longer than the parting time: it waits at least 2 ms between two calls.
        wait_for(|| (1..u32::MAX - 50).contains(&unreachable()));
        // The stop is dated an hour ahead, so the whole parting time remains, however long the test takes.
        stop.set_since(Instant::now() + Duration::from_secs(3_600));
        let then = unreachable();
        wait_for(|| unreachable() < then - 2);
        world.queue.state().unreachable = 0;
        running.join().unwrap()
    });
    ended.unwrap();
    assert_eq!((figures.deleted, world.rows(), world.queue.live()), (10, 0, 0));
    // The worker retries at least once even if the running request outlasted the parting time, because an answer may be lost.
    let world = World::new(10);
    let stop = Stop::default();
    let set = stop.clone();
    world.moody.when_asked(1, move |_| set.set_since(Instant::now().checked_sub(PARTING.of(CALL) * 2).unwrap()));
    world.queue.state().drops_answers = true;
    let (ended, figures) = world.run_until(options(), &stop);
    ended.unwrap();
    assert_eq!((figures.deleted, world.rows(), world.queue.live()), (10, 0, 0));
}

#[test]
fn lease_with_a_lost_answer_is_given_back_by_a_stopped_worker() {
    let world = World::new(5);
    let stop = Stop::default();
    let set = stop.clone();
    world.queue.state().drops_answers = true;
    world.queue.at_acquire(move |_| set.set());
    let (ended, figures) = world.run_until(options(), &stop);
    ended.unwrap();
    assert_eq!((figures.leases, figures.left, world.queue.live(), world.blobs()), (1, 5, 0, 5));
    // If the canister no longer answers, the exit code reports that there may be a lease.
    let world = World { patience: IMPATIENT, ..World::new(5) };
    let stop = Stop::default();
    let set = stop.clone();
    world.queue.state().drops_answers = true;
    world.queue.at_acquire(move |state| {
        state.unreachable = u32::MAX;
        set.set();
    });
    let (ended, _) = world.run_until(options(), &stop);
    assert_eq!((code(ended), world.queue.live()), (UNREPORTED, 1));
}

#[test]
fn stopped_worker_ends_although_a_call_hangs() {
    // A stopped worker does not repeat its look at the queue, because it has no use for the answer.
    let world = World::new(5);
    world.queue.state().hangs = u32::MAX;
    let asked = || world.queue.state().hangs < u32::MAX;
    world.run_while(options(), asked).0.unwrap();
    assert_eq!(world.queue.state().hangs, u32::MAX - 1);
    // A lease may have been granted, and deletions must be reported: the worker retries both for a while.
    let world = World { patience: IMPATIENT, ..World::new(5) };
    let stop = Stop::default();
    let set = stop.clone();
    world.queue.state().acquire_hangs = true;
    world.queue.at_acquire(move |_| set.set());
    assert_eq!(code(world.run_until(options(), &stop).0), UNREPORTED);
    let world = World { patience: IMPATIENT, ..World::new(5) };
    let (stop, queue) = (Stop::default(), world.queue.clone());
    let set = stop.clone();
    world.moody.when_asked(1, move |_| {
        queue.state().hangs = u32::MAX;
        set.set();
    });
    let (ended, _) = world.run_until(options(), &stop);
    assert_eq!((code(ended), world.rows()), (UNREPORTED, 5));
    // A worker that is not stopped gets the answer to the next call.
    let world = World { patience: IMPATIENT, ..World::new(5) };
    world.queue.state().hangs = 2;
    let (ended, figures) = world.run(until_empty());
    ended.unwrap();
    assert_eq!((figures.deleted, figures.retries), (5, 2));
}
