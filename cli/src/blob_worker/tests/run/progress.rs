//! Progress lines of a worker.

use super::*;
use crate::terminal::LogFormat;

#[test]
fn progress_is_reported_while_a_call_hangs_and_while_nothing_is_due() {
    let world = World::new(5);
    let (log, written) = Log::every(Duration::from_millis(5), LogFormat::Text);
    let stop = Stop::default();
    let done = || written.lines().iter().filter(|line| line.starts_with("5 blobs deleted")).count();
    let options = |poll| Options { poll, ..options() };
    thread::scope(|scope| {
        let run = |options| {
            let run = Run::new(&world.client, world.worker(), options, &stop, &log);
            run.run().unwrap();
        };
        let running = scope.spawn(move || run(options(Duration::from_millis(10))));
        wait_for(|| done() > 0);
        // From here on each call of the worker hangs.
        world.queue.state().hangs = u32::MAX;
        wait_for(|| world.queue.state().hangs < u32::MAX);
        let before = done();
        wait_for(|| done() >= before + 3);
        assert!(done() >= before + 3 && !running.is_finished());
        stop.set();
    });
    // Nothing is due for an hour.
    let world = World::new(5);
    let (log, written) = Log::every(Duration::from_millis(5), LogFormat::Text);
    let stop = Stop::default();
    let done = || written.lines().iter().filter(|line| line.starts_with("5 blobs deleted")).count();
    thread::scope(|scope| {
        let run = Run::new(&world.client, world.worker(), options(Duration::from_secs(3_600)), &stop, &log);
        scope.spawn(move || run.run().unwrap());
        wait_for(|| done() >= 3);
        assert!(done() >= 3);
        stop.set();
    });
}
