//! Rounds of a worker: due rows are deleted in spite of passing errors.

use super::*;

#[test]
fn due_rows_are_deleted_and_rows_within_the_window_are_not() {
    let world = World::new(120);
    world.queue.state().heights = Heights { current: 130, persisted: 0 };
    let (ended, figures) = world.run(until_empty());
    ended.unwrap();
    assert_eq!((figures.leases, figures.deleted, figures.height), (3, 120, 120));
    let world = World::new(120);
    // The persister lags: rows up to its height less ten are due.
    world.queue.state().heights = Heights { current: 130, persisted: 95 };
    let (ended, figures) = world.run(until_empty());
    ended.unwrap();
    assert_eq!((figures.deleted, world.rows(), world.blobs()), (85, 35, 35));
    all_done(&figures).unwrap();
    // Without rows the worker ends at once, without a lease.
    let (ended, figures) = World::new(0).run(until_empty());
    ended.unwrap();
    assert_eq!((figures.leases, figures.height), (0, 999_990));
}

#[test]
fn once_takes_one_lease() {
    let world = World::new(120);
    let (ended, figures) = world.run(once());
    ended.unwrap();
    assert_eq!((figures.leases, figures.deleted, world.rows()), (1, 50, 70));
}

#[test]
fn absent_blob_counts_as_deleted() {
    let world = World { chunk: 1, ..World::new(3) };
    let worker = world.worker();
    worker.wait_for(world.moody.inner.delete(&path(2))).unwrap();
    let (ended, figures) = world.run(until_empty());
    ended.unwrap();
    assert_eq!((figures.deleted, world.rows()), (3, 0));
}

#[test]
fn two_workers_of_one_identity_delete_each_blob_once() {
    let world = World::new(200);
    world.queue.state().drops_answers = true;
    let figures: Vec<Figures> = thread::scope(|scope| {
        let workers: Vec<_> = (0..2).map(|_| scope.spawn(|| world.run(until_empty()))).collect();
        workers
            .into_iter()
            .map(|worker| worker.join().unwrap())
            .map(|(ended, figures)| ended.map(|()| figures).unwrap())
            .collect()
    });
    assert_eq!(figures.iter().map(|figures| figures.deleted).sum::<u64>(), 200);
    assert_eq!((world.rows(), world.blobs(), world.queue.live()), (0, 0, 0), "no lease is left over");
    assert!(world.queue.state().leased.values().all(|leases| *leases == 1));
    assert_eq!(world.moody.asked.lock().unwrap().len(), 200);
    assert!(figures.iter().map(|figures| figures.retries).sum::<u64>() >= 8, "{figures:?}");
}

#[test]
fn rows_without_a_store_are_not_leased_and_an_impossible_name_fails() {
    let world = World::new(30);
    {
        let mut state = world.queue.state();
        (1..=25).for_each(|id| state.rows.get_mut(&id).unwrap().0.file_type = "outputs".into());
        state.rows.get_mut(&27).unwrap().0.blob_key = Vec::new().into();
    }
    let (ended, figures) = world.run(Options { batch: 10, ..until_empty() });
    ended.unwrap();
    assert_eq!((figures.deleted, figures.failed, figures.dead, figures.left), (4, 3, 1, 0), "{figures:?}");
    let dead = world.queue.state().dead.clone();
    assert_eq!((dead, world.rows()), (vec![27], 25));
    assert!((1..=25).all(|id| !world.queue.state().leased.contains_key(&id)));
    let asked = world.queue.state().asks[0].clone();
    let selector = BlobSelector { store_type: ic_coppice_interface::StoreType::Tx, file_type: Some("tx".into()) };
    assert_eq!((asked.selectors, asked.safety_window), (Some(vec![selector]), Some(10)));
}

#[test]
fn blob_that_failed_and_was_deleted_later_is_not_undone() {
    let world = World::new(30);
    *world.moody.stubborn.lock().unwrap() = Some(path(13));
    let moody = world.moody.clone();
    world.queue.at_acquire(|_| {});
    world.queue.at_acquire(move |_| *moody.stubborn.lock().unwrap() = None);
    let (ended, figures) = world.run(until_empty());
    ended.unwrap();
    assert!(figures.failed > 0 && figures.deleted == 30 && figures.undone == 0, "{figures:?}");
    all_done(&figures).unwrap();
}

#[test]
fn passing_errors_are_retried_and_a_refusal_ends_the_worker() {
    let world = World::new(30);
    {
        let mut state = world.queue.state();
        (state.unreachable, state.later) = (5, 2);
    }
    let (ended, figures) = world.run(until_empty());
    ended.unwrap();
    assert_eq!((figures.deleted, figures.failed, world.rows(), world.blobs()), (30, 0, 0, 0));
    assert!(figures.retries >= 7, "{figures:?}");
    world.queue.state().refuses = true;
    let error = world.run(options()).0.unwrap_err();
    assert_eq!(Exit::code_of(&error), REFUSED);
    assert!(error.to_string().contains("BlobWorker"), "{error}");
}

#[test]
fn refusal_by_a_gateway_is_retried() {
    let world = World::new(5);
    world.queue.state().turned_away = 4;
    let (ended, figures) = world.run(until_empty());
    ended.unwrap();
    assert_eq!((figures.deleted, world.rows()), (5, 0));
}

#[test]
fn worker_that_waits_asks_by_update_call_although_queries_report_nothing_due() {
    let world = World::new(120);
    world.queue.state().hides = true;
    let waits = Options { ask: Duration::from_millis(300), ..options() };
    // Before that time it believes the queries.
    let (stop, began) = (Stop::default(), Instant::now());
    thread::scope(|scope| {
        let running = scope.spawn(|| world.run_until(waits.clone(), &stop));
        wait_for(|| world.queue.state().looks > 5);
        let (acquired, is_early) = (world.queue.state().acquired, began.elapsed() < Duration::from_millis(300));
        assert!(acquired == 0 || !is_early, "{acquired}");
        wait_for(|| world.rows() == 0);
        assert!(began.elapsed() >= Duration::from_millis(300));
        stop.set();
        let (ended, figures) = running.join().unwrap();
        ended.unwrap();
        assert_eq!((figures.deleted, figures.leases, world.blobs()), (120, 3, 0), "{figures:?}");
    });
    // A worker with nothing to do asks once in that time, and not at each look.
    let (world, began) = (World::new(0), Instant::now());
    let (ended, _) = world.run_while(waits, || world.queue.state().empty == 3);
    ended.unwrap();
    assert!(began.elapsed() >= Duration::from_millis(900) && world.queue.state().looks > 3, "{:?}", began.elapsed());
    // Ten minutes are the default.
    let world = World::new(5);
    world.queue.state().hides = true;
    world.run_while(options(), || world.queue.state().looks > 20).0.unwrap();
    let state = world.queue.state();
    assert_eq!((state.acquired, state.empty, state.rows.len()), (0, 0, 5));
}

#[test]
fn waits_double_up_to_the_longest_with_jitter() {
    let all: Vec<Duration> = waits(Duration::from_secs(2)).take(6).collect();
    for (wait, least) in all.iter().zip([250, 500, 1_000, 2_000, 2_000, 2_000]) {
        let least = Duration::from_millis(least);
        assert!(*wait >= least && *wait <= least * 2, "{all:?}");
    }
    let other: Vec<Duration> = waits(Duration::from_secs(2)).take(6).collect();
    assert_ne!(all, other, "two sequences of waits differ");
}

#[test]
fn dry_run_lists_due_blobs_and_changes_nothing() {
    let world = World::new(6);
    world.queue.state().rows.get_mut(&3).unwrap().0.file_type = "outputs".into();
    world.worker().wait_for(world.moody.inner.delete(&path(2))).unwrap();
    let (stop, log) = (Stop::default(), Log::silent());
    let run = Run::new(&world.client, world.worker(), Options { batch: 4, ..options() }, &stop, &log);
    let looked = dry_run(&run).unwrap().unwrap();
    let found = looked.rows;
    assert_eq!((looked.height, looked.would_delete, looked.absent, looked.nowhere), (999_990, 4, 1, 0));
    let there: Vec<_> = found.iter().map(|found| (found.id, found.there)).collect();
    assert_eq!(there, [(1, Some(true)), (2, Some(false)), (4, Some(true)), (5, Some(true))], "row 3 has no store");
    assert!(found[0].place.starts_with("s3://tx-tx/") && found[0].place.ends_with("1.tx"), "{found:?}");
    let acquired = world.queue.state().acquired;
    assert_eq!((acquired, world.rows(), world.blobs()), (0, 6, 5));
    // A dry run that is stopped first returns nothing.
    stop.set();
    assert!(dry_run(&run).unwrap().is_none());
}

#[test]
fn dry_run_retries_a_store_and_ends_when_stopped() {
    let world = World::new(3);
    let (stop, log) = (Stop::default(), Log::silent());
    let run = Run::new(&world.client, world.worker(), options(), &stop, &log);
    world.moody.unreadable.store(2, Ordering::Relaxed);
    assert_eq!(dry_run(&run).unwrap().unwrap().rows.len(), 3);
    assert_eq!(run.figures().retries, 2);
    world.moody.unreadable.store(u32::MAX, Ordering::Relaxed);
    thread::scope(|scope| {
        scope.spawn(|| {
            wait_for(|| world.moody.unreadable.load(Ordering::Relaxed) < u32::MAX);
            stop.set();
        });
        assert!(dry_run(&run).unwrap().is_none());
    });
}

#[test]
fn request_of_an_ended_lease_is_replaced_by_a_new_one() {
    let world = World::new(5);
    world.queue.state().drops_answers = true;
    // The answer is lost, and another call ends the lease.
    world.queue.at_acquire(|state| state.end_all());
    let (ended, figures) = world.run(until_empty());
    ended.unwrap();
    assert_eq!((figures.deleted, figures.late, world.rows(), world.queue.live()), (5, 0, 0, 0), "{figures:?}");
}

/// A call takes 100 ms, and ten requests together take 100 ms: in sequence a lease takes 300 ms, overlapped 200.
#[test]
fn next_lease_is_requested_during_deletion_and_completion() {
    let world = World { chunk: 10, parallel: 1, ..World::new(100) };
    world.queue.state().slow = Duration::from_millis(100);
    let began = Instant::now();
    let (ended, figures) = world.run(Options { batch: 10, ..until_empty() });
    ended.unwrap();
    let took = began.elapsed();
    assert_eq!((figures.deleted, figures.leases), (100, 10));
    // Ten completions, and two acquires that overlap with nothing; in sequence, 20 calls take two seconds.
    assert!(took < Duration::from_millis(1_700), "{took:?}");
}
