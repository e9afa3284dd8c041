//! Signals that end a long-running command: Ctrl-C and SIGTERM.

use crate::terminal::{Level, stderr};
use anyhow::{Context, Result};
use std::sync::mpsc::channel;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tokio::runtime::{Builder, Runtime};

/// The note on the first signal.
const ENDING: &str = "ending after the current step; a second signal ends at once";

/// The time after a signal in which an indexer ends, whatever does not answer: a call of the canister or of the database, the last
/// acknowledgement, and the end of the connection share it.
pub const DEADLINE: Duration = Duration::from_secs(8);

/// The time in which the note on the first signal is written.
const NOTED: Duration = Duration::from_millis(500);

/// Poll interval of waiters.
const LOOK: Duration = Duration::from_millis(100);

/// Runs `work` until it finishes, or returns `None` once `gives_up` returns true.
pub async fn unless<T>(gives_up: impl Fn() -> bool, work: impl Future<Output = T>) -> Option<T> {
    let mut work = std::pin::pin!(work);
    loop {
        match tokio::time::timeout(LOOK, &mut work).await {
            Ok(done) => return Some(done),
            Err(_) if gives_up() => return None,
            Err(_) => {}
        }
    }
}

/// Waits for work of this thread. Dropped, it waits for nothing that a given-up call has left to another thread, such as the look-up of a
/// host's name.
pub struct Waiter(Option<Runtime>);

impl Waiter {
    /// Builds a waiter.
    ///
    /// # Errors
    /// When the system refuses.
    pub fn new() -> std::io::Result<Self> {
        Ok(Self(Some(Builder::new_current_thread().enable_all().build()?)))
    }

    /// Runs `work` as [`unless`] does.
    pub fn unless<T>(&self, gives_up: impl Fn() -> bool, work: impl Future<Output = T>) -> Option<T> {
        self.0.as_ref()?.block_on(unless(gives_up, work))
    }
}

impl Drop for Waiter {
    fn drop(&mut self) {
        if let Some(runtime) = self.0.take() {
            runtime.shutdown_background();
        }
    }
}

/// Exit code for an end by a signal, without an error message.
pub const INTERRUPTED: u8 = 130;

/// A flag that ends a run, and wakes the run if it waits.
#[derive(Clone, Default)]
pub struct Stop(Arc<(Mutex<Option<Instant>>, Condvar)>);

impl Stop {
    /// Returns a flag that Ctrl-C and SIGTERM set, with a note on stderr. The second signal ends the process at once, which is also safe.
    ///
    /// # Errors
    /// When signals cannot be listened to.
    pub fn on_signals() -> Result<Self> {
        let stop = Self::default();
        let set = stop.clone();
        let mut is_first = true;
        at_each_signal(move || {
            if !std::mem::take(&mut is_first) {
                std::process::exit(INTERRUPTED.into());
            }
            // The note comes before the end of the run, unless stderr does not take it. The flag is locked meanwhile, so that a reader of
            // the note knows that the run begins no further step.
            let mut at = set.lock();
            let (written, is_written) = channel();
            std::thread::spawn(move || {
                stderr().note(Level::Info, "ending", ENDING);
                written.send(())
            });
            let _ = is_written.recv_timeout(NOTED);
            at.get_or_insert_with(Instant::now);
            set.0.1.notify_all();
        })?;
        Ok(stop)
    }

    /// Ends the process with an exit code if the run has not ended this long after the flag was set. Another run repeats all that this run has not
    /// reported by then.
    ///
    /// # Errors
    /// When the thread cannot be started.
    pub fn exit_after(&self, time: Duration, code: u8) -> Result<()> {
        let stop = self.clone();
        let end = move || {
            drop(stop.0.1.wait_while(stop.lock(), |set| set.is_none()));
            std::thread::sleep(time);
            stderr().note(
                Level::Warn,
                "ended",
                "ended before everything could be reported: leases end at their expiry",
            );
            std::process::exit(code.into());
        };
        std::thread::Builder::new()
            .name("end".into())
            .spawn(end)
            .context("cannot start the thread that ends the command")?;
        Ok(())
    }

    /// Ends the run after its current step.
    pub fn set(&self) {
        self.set_since(Instant::now());
    }

    /// Ends the run, with the stop dated `at`.
    pub fn set_since(&self, at: Instant) {
        self.lock().get_or_insert(at);
        self.0.1.notify_all();
    }

    /// Returns whether the run is to end.
    pub fn is_set(&self) -> bool {
        self.set_at().is_some()
    }

    /// Returns the moment since which the run is to end.
    pub fn set_at(&self) -> Option<Instant> {
        *self.lock()
    }

    fn lock(&self) -> MutexGuard<'_, Option<Instant>> {
        self.0.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns whether at most this much of the [`DEADLINE`] is left.
    pub fn is_late(&self, left: Duration) -> bool {
        self.set_at().is_some_and(|at| at.elapsed() + left >= DEADLINE)
    }

    /// Waits this long, or until the run is to end.
    pub fn wait(&self, time: Duration) {
        drop(self.0.1.wait_timeout_while(self.lock(), time, |set| set.is_none()));
    }
}

/// Ends the process with [`INTERRUPTED`] on Ctrl-C and SIGTERM, even if the parent process ignores these signals, as a shell does for
/// background jobs.
///
/// # Errors
/// When signals cannot be listened to.
pub fn exit_on_signals() -> Result<()> {
    at_each_signal(|| std::process::exit(INTERRUPTED.into()))
}

/// Runs `does` at each Ctrl-C and SIGTERM, on its own thread. The handlers are installed when this returns.
fn at_each_signal(mut does: impl FnMut() + Send + 'static) -> Result<()> {
    let runtime = Builder::new_current_thread().enable_all().build()?;
    let mut signals = {
        let _inside = runtime.enter();
        Signals::new().context("cannot listen to signals")?
    };
    let listen = move || {
        loop {
            runtime.block_on(signals.next());
            does();
        }
    };
    std::thread::Builder::new().name("signals".into()).spawn(listen).context("cannot listen to signals")?;
    Ok(())
}

/// SIGINT and SIGTERM.
#[cfg(unix)]
struct Signals([tokio::signal::unix::Signal; 2]);

#[cfg(unix)]
impl Signals {
    fn new() -> std::io::Result<Self> {
        use tokio::signal::unix::{SignalKind, signal};
        Ok(Self([signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?]))
    }

    async fn next(&mut self) {
        let [interrupt, terminate] = &mut self.0;
        futures_util::future::select(Box::pin(interrupt.recv()), Box::pin(terminate.recv())).await;
    }
}

/// Ctrl-C.
#[cfg(not(unix))]
struct Signals;

#[cfg(not(unix))]
impl Signals {
    fn new() -> std::io::Result<Self> {
        Ok(Self)
    }

    async fn next(&mut self) {
        if tokio::signal::ctrl_c().await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stop_wakes_a_waiting_thread() {
        let stop = Stop::default();
        let other = stop.clone();
        let started = Instant::now();
        let waiting = std::thread::spawn(move || other.wait(Duration::from_secs(60)));
        stop.set();
        waiting.join().unwrap();
        assert!(stop.is_set() && started.elapsed() < Duration::from_secs(30));
        let first = stop.set_at();
        stop.set();
        assert_eq!(stop.set_at(), first, "the first moment counts");
    }

    #[test]
    fn stop_is_late_when_no_more_than_the_given_time_is_left() {
        let stop = Stop::default();
        assert!(!stop.is_late(DEADLINE));
        stop.set_since(Instant::now() - DEADLINE / 2);
        assert!(stop.is_late(DEADLINE / 2) && !stop.is_late(DEADLINE / 4));
    }

    #[test]
    fn given_up_work_returns_none() {
        let waiter = Waiter::new().unwrap();
        assert_eq!(waiter.unless(|| true, std::future::ready(7)), Some(7));
        assert_eq!(waiter.unless(|| true, std::future::pending::<u8>()), None);
    }
}
