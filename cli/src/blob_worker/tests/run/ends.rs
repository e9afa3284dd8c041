//! A worker that is to end.

use super::super::super::times::PARTING;
use super::*;

#[test]
fn a_worker_that_is_to_end_says_what_it_did_and_gives_the_rest_back() {
    let world = World { chunk: 1, ..World::new(50) };
    let stop = Stop::default();
    let set = stop.clone();
    world.moody.when_asked(8, move |_| set.set());
    let (ended, figures) = world.run_until(options(), &stop);
    ended.unwrap();
    assert_eq!((figures.deleted, figures.left), (8, 42), "what is under way is finished");
    assert_eq!((world.rows(), world.blobs(), world.queue.live()), (42, 42, 0));
}

#[test]
fn a_worker_that_cannot_say_what_it_did_before_it_ends_says_so() {
    let world = World { chunk: 1, patience: IMPATIENT, ..World::new(4) };
    let (stop, queue) = (Stop::default(), world.queue.clone());
    let set = stop.clone();
    world.moody.when_asked(1, move |_| {
        queue.state().unreachable = u32::MAX;
        set.set();
    });
    let (ended, _) = world.run_until(options(), &stop);
    assert_eq!((code(ended), world.rows()), (UNTOLD, 4), "they are tried again");
}

#[test]
fn the_time_to_say_what_was_done_begins_when_it_is_to_end() {
    let world = World { patience: IMPATIENT, ..World::new(10) };
    let (stop, queue) = (Stop::default(), world.queue.clone());
    world.moody.when_asked(1, move |_| queue.state().unreachable = u32::MAX);
    let (ended, figures) = thread::scope(|scope| {
        let running = scope.spawn(|| world.run_until(options(), &stop));
        let unreachable = || world.queue.state().unreachable;
        // It has tried for longer than it would then: it waits for 2 ms at least between two calls.
        wait_for(|| (1..u32::MAX - 50).contains(&unreachable()));
        // That it is to end is news for an hour, so it has all of the time, however long this takes.
        stop.set_since(Instant::now() + Duration::from_secs(3_600));
        let then = unreachable();
        wait_for(|| unreachable() < then - 2);
        world.queue.state().unreachable = 0;
        running.join().unwrap()
    });
    ended.unwrap();
    assert_eq!((figures.deleted, world.rows(), world.queue.live()), (10, 0, 0));
    // And there is an attempt, however long what was under way took; more than one, as an answer may be lost.
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
fn a_lease_whose_answer_is_lost_is_given_back_by_one_that_is_to_end() {
    let world = World::new(5);
    let stop = Stop::default();
    let set = stop.clone();
    world.queue.state().drops_answers = true;
    world.queue.at_acquire(move |_| set.set());
    let (ended, figures) = world.run_until(options(), &stop);
    ended.unwrap();
    assert_eq!((figures.leases, figures.left, world.queue.live(), world.blobs()), (1, 5, 0, 5));
    // Where the canister does not answer any more, it says that there may be one.
    let world = World { patience: IMPATIENT, ..World::new(5) };
    let stop = Stop::default();
    let set = stop.clone();
    world.queue.state().drops_answers = true;
    world.queue.at_acquire(move |state| {
        state.unreachable = u32::MAX;
        set.set();
    });
    let (ended, _) = world.run_until(options(), &stop);
    assert_eq!((code(ended), world.queue.live()), (UNTOLD, 1));
}

#[test]
fn a_worker_that_is_to_end_ends_though_a_call_is_not_answered() {
    // What it looks at is of no use to it then, so it does not look again.
    let world = World::new(5);
    world.queue.state().hangs = u32::MAX;
    let asked = || world.queue.state().hangs < u32::MAX;
    world.run_while(options(), asked).0.unwrap();
    assert_eq!(world.queue.state().hangs, u32::MAX - 1);
    // A lease may have been given, and what was deleted must be told: it tries both for a while.
    let world = World { patience: IMPATIENT, ..World::new(5) };
    let stop = Stop::default();
    let set = stop.clone();
    world.queue.state().acquire_hangs = true;
    world.queue.at_acquire(move |_| set.set());
    assert_eq!(code(world.run_until(options(), &stop).0), UNTOLD);
    let world = World { patience: IMPATIENT, ..World::new(5) };
    let (stop, queue) = (Stop::default(), world.queue.clone());
    let set = stop.clone();
    world.moody.when_asked(1, move |_| {
        queue.state().hangs = u32::MAX;
        set.set();
    });
    let (ended, _) = world.run_until(options(), &stop);
    assert_eq!((code(ended), world.rows()), (UNTOLD, 5));
    // One that is not to end has the answer to the next call.
    let world = World { patience: IMPATIENT, ..World::new(5) };
    world.queue.state().hangs = 2;
    let (ended, figures) = world.run(until_empty());
    ended.unwrap();
    assert_eq!((figures.deleted, figures.retries), (5, 2));
}
