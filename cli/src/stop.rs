//! What ends a command that runs for ever: Ctrl-C, SIGTERM.

use crate::terminal::{Level, stderr};
use anyhow::{Context, Result};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// The note on the first signal.
const ENDING: &str = "ending; once more ends at once";

/// Poll interval of waiters.
const LOOK: Duration = Duration::from_millis(100);

/// Runs `work` until it finishes, or `gives_up` returns true: then `None`.
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

/// Exit code: it was ended by a signal, and has nothing to say.
pub const INTERRUPTED: u8 = 130;

/// Says that the run is to end, and wakes it where it waits.
#[derive(Clone, Default)]
pub struct Stop(Arc<(Mutex<Option<Instant>>, Condvar)>);

impl Stop {
    /// One that Ctrl-C and SIGTERM set, which is then noted on stderr. The second of them ends the process at once, which loses nothing
    /// either.
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
            set.set();
            stderr().note(Level::Info, "ending", ENDING);
        })?;
        Ok(stop)
    }

    /// Ends the run after its current step.
    pub fn set(&self) {
        self.set_since(Instant::now());
    }

    /// Ends it as one that is to end since a moment.
    pub fn set_since(&self, at: Instant) {
        self.0.0.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(at);
        self.0.1.notify_all();
    }

    /// Whether it is to end.
    pub fn is_set(&self) -> bool {
        self.set_at().is_some()
    }

    /// Since when it is to end.
    pub fn set_at(&self) -> Option<Instant> {
        *self.0.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits so long, or until it is to end.
    pub fn wait(&self, time: Duration) {
        let guard = self.0.0.lock().unwrap_or_else(PoisonError::into_inner);
        drop(self.0.1.wait_timeout_while(guard, time, |set| set.is_none()));
    }
}

/// Has Ctrl-C and SIGTERM end the process with [`INTERRUPTED`], also where whoever started it ignores them, as a shell does for what runs in
/// the background.
///
/// # Errors
/// When signals cannot be listened to.
pub fn exit_on_signals() -> Result<()> {
    at_each_signal(|| std::process::exit(INTERRUPTED.into()))
}

/// Does something at each Ctrl-C and SIGTERM, on a thread of its own; they are listened to when this returns.
fn at_each_signal(mut does: impl FnMut() + Send + 'static) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
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
    fn a_stop_wakes_who_waits() {
        let stop = Stop::default();
        let other = stop.clone();
        let started = Instant::now();
        let waiting = std::thread::spawn(move || other.wait(Duration::from_secs(60)));
        stop.set();
        waiting.join().unwrap();
        assert!(stop.is_set() && started.elapsed() < Duration::from_secs(30));
        let first = stop.set_at();
        stop.set();
        assert_eq!(stop.set_at(), first, "it was to end since the first time");
    }

    #[test]
    fn who_gives_up_waits_no_more() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        assert_eq!(runtime.block_on(unless(|| true, std::future::ready(7))), Some(7));
        assert_eq!(runtime.block_on(unless(|| true, std::future::pending::<u8>())), None);
    }
}
