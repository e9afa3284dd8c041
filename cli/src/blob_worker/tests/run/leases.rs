//! Leases that are extended, or not, or are over.

use super::*;

#[test]
fn a_lease_is_extended_as_soon_as_half_of_it_is_over_and_not_before() {
    // Of the lease half is over a little later. The first request is answered when the lease is extended, or the store gives up waiting.
    let world = World { chunk: 2, parallel: 1, ..World::new(20) };
    world.hold_until(|queue| queue.extended == 1);
    let (ended, figures) = world.work(LEASE / 2 - Duration::from_millis(200));
    ended.unwrap();
    // Then it is as good as new.
    assert_eq!((figures.deleted, figures.left, figures.late, figures.extended), (20, 0, 0, 1), "{figures:?}");
    assert_eq!(world.queue.state().secs, [LEASE.as_secs()].into());
    let world = World { chunk: 2, parallel: 1, ..World::new(20) };
    let (ended, figures) = world.work(LEASE / 3);
    ended.unwrap();
    assert_eq!((figures.deleted, figures.extended), (20, 0));
}

#[test]
fn an_extension_that_is_not_answered_is_asked_for_again_in_time() {
    // The first call is given up, and there is another while the first request is under way.
    let world = World { chunk: 2, parallel: 1, patience: IMPATIENT, ..World::new(30) };
    world.hold_until(|queue| queue.extended == 1);
    let (ended, figures) = world.work_when(LEASE * 6 / 10, |queue| queue.hangs = 1);
    ended.unwrap();
    assert_eq!((figures.deleted, figures.left, figures.extended), (30, 0, 1), "{figures:?}");
    assert_eq!(world.queue.state().hangs, 0);
    // The less is left, the sooner it is given up.
    let world = World { patience: Duration::from_secs(6), ..World::new(30) };
    let began = Instant::now();
    let (ended, figures) = world.work_when(LEASE - Duration::from_secs(1), |queue| queue.hangs = 1);
    ended.unwrap();
    assert_eq!((figures.deleted + figures.left, world.queue.live()), (30, 0));
    assert_eq!(world.queue.state().hangs, 0);
    assert!(began.elapsed() < LEASE / 4, "not for the longest time that there is");
}

#[test]
fn no_request_begins_behind_the_end_of_a_lease() {
    let world = World { chunk: 2, parallel: 1, ..World::new(20) };
    let term = Arc::new(Term::new(LEASE, Moment::now()));
    let end = term.clone();
    // Of the lease less is left than a request needs, which is a quarter.
    world.moody.when_asked(5, move |_| end.extended(Moment::ago(LEASE * 3 / 4 + Duration::from_secs(1))));
    let rows: Vec<Row> = (1..=20).map(row).collect();
    let outcome = world.worker().delete(&rows, &[None], &term, &Stop::default(), || {});
    let (mut gone, left) = (outcome.ids(Fate::is_gone), outcome.ids(|fate| matches!(fate, Fate::Left(_))));
    gone.sort_unstable();
    assert_eq!((gone, left.len()), ((1..=6).collect(), 14), "what is under way is finished");
    assert_eq!((world.moody.asked.lock().unwrap().len(), world.blobs()), (6, 14));
    assert!(outcome.error(0).unwrap().contains("the lease ends"), "{outcome:?}");
}

#[test]
fn behind_a_lease_that_is_over_before_its_time_nothing_begins_and_others_do_it_again() {
    // The queue does not answer at first, so it cannot be extended.
    let world = World { chunk: 2, parallel: 1, ..World::new(20) };
    let queue = world.queue.clone();
    world.moody.when_asked(1, move |_| {
        queue.expire();
        queue.state().unreachable = 0;
    });
    // Asked again, the worker has understood the first answer.
    world.hold_until(|queue| queue.extended >= 2);
    let (ended, figures) = world.work_when(LEASE * 6 / 10, |queue| queue.unreachable = u32::MAX);
    ended.unwrap();
    assert_eq!((figures.deleted, figures.late, figures.extended), (0, 2, 0), "{figures:?}");
    assert_eq!((world.moody.asked.lock().unwrap().len(), world.rows(), world.blobs()), (2, 20, 18));
    *world.moody.held_until.lock().unwrap() = None;
    let (ended, _) = world.run(until_empty());
    ended.unwrap();
    assert_eq!((world.rows(), world.blobs(), world.failures()), (0, 0, 0));
    assert_eq!(world.queue.state().secs, [LEASE.as_secs()].into());
}

#[test]
fn of_a_store_that_hangs_rows_stay_leased_and_no_more_are_taken_until_the_lease_ends() {
    let world = World::new(30);
    world.mood(Mood::Hangs);
    let length = Duration::from_secs(2);
    let began = Instant::now();
    let options = Options { lease: length, batch: 10, ..options() };
    let (ended, figures) = world.run_while(options, || {
        let state = world.queue.state();
        let many = state.said.iter().filter(|said| said.unknown_ids.is_some()).count();
        assert!(
            many <= 1 + (began.elapsed().as_secs_f64() / length.as_secs_f64()) as usize,
            "one such lease per store"
        );
        many >= 2
    });
    ended.unwrap();
    assert!(began.elapsed() >= length, "{:?}", began.elapsed());
    assert_eq!((figures.deleted, figures.failed, figures.late), (0, 0, 0));
    assert!(figures.unknown >= 20, "{figures:?}");
    assert_eq!((world.rows(), world.blobs(), world.queue.live(), world.failures()), (30, 30, 0, 0));
    let said = world.queue.state().said[0].clone();
    assert_eq!((said.unknown_ids.unwrap().len(), said.completed_ids, said.rest), (10, vec![], None));
}

#[test]
fn an_answer_that_cannot_be_read_says_nothing_of_its_blobs_which_stay_leased() {
    let world = World::new(5);
    world.mood(Mood::Panics);
    let (ended, figures) = world.run(once());
    ended.unwrap();
    assert_eq!((figures.unknown, figures.left, figures.undone, world.failures()), (5, 0, 5, 0), "{figures:?}");
    assert!(world.queue.state().said[0].unknown_ids.as_ref().is_some_and(|ids| ids.len() == 5));
}

#[test]
fn what_was_scheduled_anew_before_the_completion_is_late_and_the_rest_is_not() {
    for poison in [None, Some(20)] {
        let world = World { chunk: 1, parallel: 1, ..World::new(10) };
        world.queue.state().drops_answers = true;
        // Another one goes back, so that each row is named.
        if let Some(id) = poison {
            world.queue.state().rows.insert(id, (Row { file_type: "../tx".into(), ..row(id) }, 0));
        }
        let queue = world.queue.clone();
        world.moody.when_asked(10, move |_| queue.state().rescheduled = [2, 5, 9].into());
        let (ended, figures) = world.run(once());
        ended.unwrap();
        assert_eq!((figures.deleted, figures.late), (7, 3), "{figures:?}");
    }
}

#[test]
fn what_was_deleted_in_a_lease_that_was_over_is_not_known_to_be_gone() {
    let world = World::new(5);
    let queue = world.queue.clone();
    world.moody.when_asked(1, move |_| queue.expire());
    let (ended, figures) = world.run(once());
    ended.unwrap();
    assert_eq!((figures.deleted, figures.late, figures.undone, world.rows()), (0, 5, 5, 5));
    assert_eq!(code(all_done(&figures)), NOT_ALL);
}

#[test]
fn what_was_noted_of_a_completion_whose_answer_was_lost_is_not_late() {
    let world = World::new(30);
    world.queue.state().drops_answers = true;
    let (ended, figures) = world.run(once());
    ended.unwrap();
    assert_eq!((figures.deleted, figures.late, figures.undone, world.rows()), (30, 0, 0, 0), "{figures:?}");
    all_done(&figures).unwrap();
    let said = world.queue.state().said[0].clone();
    assert!(said.completed_ids.is_empty() && said.rest.is_some(), "where all went, no row is named: {said:?}");
}
