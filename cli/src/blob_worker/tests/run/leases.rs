//! Extension and end of leases.

use super::*;

#[test]
fn lease_is_extended_after_half_of_it_and_not_before() {
    // The store is away, so that no request asks.
    for (ago, extended) in [(LEASE * 6 / 10, 1), (LEASE / 3, 0)] {
        let world = World::new(10);
        world.moody.unreadable.store(1, Ordering::Relaxed);
        let (ended, figures) = world.work(ago);
        ended.unwrap();
        assert_eq!((figures.deleted, figures.left, figures.extended), (0, 10, extended), "{figures:?}");
        assert_eq!(world.queue.state().secs, [LEASE.as_secs()].into());
    }
}

#[test]
fn unanswered_extension_is_repeated_in_time() {
    // The first call is given up, and repeated before the first request to the store.
    let world = World { chunk: 2, parallel: 1, patience: IMPATIENT, ..World::new(30) };
    let (ended, figures) = world.work_when(LEASE * 6 / 10, |queue| queue.hangs = 1);
    ended.unwrap();
    assert_eq!((figures.deleted, figures.left, figures.extended), (30, 0, 15), "{figures:?}");
    assert_eq!(world.queue.state().hangs, 0);
    // The less time is left, the sooner the call is given up.
    let world = World { patience: Duration::from_secs(6), ..World::new(30) };
    let began = Instant::now();
    let (ended, figures) = world.work_when(LEASE - Duration::from_secs(1), |queue| queue.hangs = 1);
    ended.unwrap();
    assert_eq!((figures.deleted + figures.left, world.queue.live()), (30, 0));
    assert_eq!(world.queue.state().hangs, 0);
    assert!(began.elapsed() < LEASE / 4, "the call is given up early");
}

#[test]
fn no_request_starts_after_the_end_of_a_lease() {
    let world = World { chunk: 2, parallel: 1, ..World::new(20) };
    let term = Arc::new(Term::new(LEASE, Moment::now()));
    let end = term.clone();
    // Less of the lease is left than a request may take, which is a quarter.
    world.moody.when_asked(5, move |_| end.extended(Moment::ago(LEASE * 3 / 4 + Duration::from_secs(1))));
    let rows: Vec<Row> = (1..=20).map(row).collect();
    let answers = || {
        if term.is_wanted() {
            term.extended(Moment::now());
        }
    };
    let outcome = world.worker().delete(&rows, &[None], &term, &Stop::default(), answers);
    let (mut gone, left) = (outcome.ids(Fate::is_gone), outcome.ids(|fate| matches!(fate, Fate::Left(_))));
    gone.sort_unstable();
    assert_eq!((gone, left.len()), ((1..=6).collect(), 14), "requests under way are finished");
    assert_eq!((world.moody.asked.lock().unwrap().len(), world.blobs()), (6, 14));
    assert!(outcome.error(0).unwrap().contains("the lease ends"), "{outcome:?}");
}

#[test]
fn early_end_of_a_lease_stops_requests_and_rows_are_retried() {
    let world = World { chunk: 2, parallel: 1, ..World::new(20) };
    let queue = world.queue.clone();
    world.moody.when_asked(1, move |_| queue.expire());
    let (ended, figures) = world.work(Duration::ZERO);
    ended.unwrap();
    assert_eq!((figures.deleted, figures.late, figures.extended), (0, 2, 0), "{figures:?}");
    assert_eq!((world.moody.asked.lock().unwrap().len(), world.rows(), world.blobs()), (2, 20, 18));
    let (ended, _) = world.run(until_empty());
    ended.unwrap();
    assert_eq!((world.rows(), world.blobs(), world.failures()), (0, 0, 0));
    assert_eq!(world.queue.state().secs, [LEASE.as_secs()].into());
}

#[test]
fn hanging_store_keeps_its_rows_leased_and_gets_no_more_until_the_lease_ends() {
    let world = World::new(30);
    world.mood(Mood::Hangs);
    let length = Duration::from_secs(2);
    let began = Instant::now();
    let options = Options { lease: length, batch: 10, ..options() };
    let (ended, figures) = world.run_while(options, || {
        let state = world.queue.state();
        let many = state.completions.iter().filter(|done| done.unknown_ids.is_some()).count();
        assert!(
            many <= 1 + (began.elapsed().as_secs_f64() / length.as_secs_f64()) as usize,
            "at most one lease with unknown rows per term"
        );
        many >= 2
    });
    ended.unwrap();
    assert!(began.elapsed() >= length, "{:?}", began.elapsed());
    assert_eq!((figures.deleted, figures.failed, figures.late), (0, 0, 0));
    assert!(figures.unknown >= 20, "{figures:?}");
    assert_eq!((world.rows(), world.blobs(), world.queue.live(), world.failures()), (30, 30, 0, 0));
    let done = world.queue.state().completions[0].clone();
    assert_eq!((done.unknown_ids.unwrap().len(), done.completed_ids, done.rest), (10, vec![], None));
}

#[test]
fn unreadable_answer_leaves_its_blobs_leased() {
    let world = World::new(5);
    world.mood(Mood::Panics);
    let (ended, figures) = world.run(once());
    ended.unwrap();
    assert_eq!((figures.unknown, figures.left, figures.undone, world.failures()), (5, 0, 5, 0), "{figures:?}");
    assert!(world.queue.state().completions[0].unknown_ids.as_ref().is_some_and(|ids| ids.len() == 5));
}

#[test]
fn rescheduled_rows_count_as_late_and_others_do_not() {
    for poison in [None, Some(20)] {
        let world = World { chunk: 1, parallel: 1, ..World::new(10) };
        world.queue.state().drops_answers = true;
        // Another row goes back, so that each completed row is named.
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
fn deletions_of_an_expired_lease_count_as_undone() {
    let world = World::new(5);
    let queue = world.queue.clone();
    world.moody.when_asked(1, move |_| queue.expire());
    let (ended, figures) = world.run(once());
    ended.unwrap();
    assert_eq!((figures.deleted, figures.late, figures.undone, world.rows()), (0, 5, 5, 5));
    assert_eq!(code(all_done(&figures)), NOT_ALL);
}

#[test]
fn completion_with_a_lost_answer_counts_as_deleted() {
    let world = World::new(30);
    world.queue.state().drops_answers = true;
    let (ended, figures) = world.run(once());
    ended.unwrap();
    assert_eq!((figures.deleted, figures.late, figures.undone, world.rows()), (30, 0, 0, 0), "{figures:?}");
    all_done(&figures).unwrap();
    let done = world.queue.state().completions[0].clone();
    assert!(done.completed_ids.is_empty() && done.rest.is_some(), "if all rows are done, none is named: {done:?}");
}
