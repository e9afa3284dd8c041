//! How long a lease surely lasts, by a clock that keeps running while the machine sleeps.
//!
//! The canister's clock says when a lease ends, and the machine's may be an hour off. So a lease is taken to last so long from the moment
//! at which it was asked for first, because the canister began it later, if at all.

use super::times::REQUEST;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// A moment, since the machine was started.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Moment(Duration);

impl Moment {
    /// Now, by `CLOCK_BOOTTIME`: nobody sets it, and a machine that slept is that much later.
    #[cfg(target_os = "linux")]
    pub fn now() -> Self {
        let time = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
        Self(Duration::new(time.tv_sec.unsigned_abs(), time.tv_nsec as u32))
    }

    /// Now, by the wall's clock, where there is no better one.
    #[cfg(not(target_os = "linux"))]
    pub fn now() -> Self {
        Self(std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default())
    }

    /// So much later.
    pub fn after(self, time: Duration) -> Self {
        Self(self.0.saturating_add(time))
    }

    /// How long ago it was.
    pub fn elapsed(self) -> Duration {
        Self::now().0.saturating_sub(self.0)
    }

    /// How long it is until then.
    pub fn left(self) -> Duration {
        self.0.saturating_sub(Self::now().0)
    }

    /// So long ago.
    #[cfg(test)]
    pub fn ago(time: Duration) -> Self {
        Self(Self::now().0 - time)
    }
}

/// A lease, as long as its holder knows it to last.
#[derive(Debug)]
pub struct Term {
    length: Duration,
    /// When it ends; none: it is over.
    ends: Mutex<Option<Moment>>,
}

impl Term {
    /// A lease of a length that was asked for at a moment.
    pub fn new(length: Duration, asked: Moment) -> Self {
        Self { length, ends: Mutex::new(Some(asked.after(length))) }
    }

    /// What is surely left of it.
    pub fn left(&self) -> Duration {
        self.ends().map_or(Duration::ZERO, Moment::left)
    }

    /// The longest that one request to a store may take.
    pub fn most(&self) -> Duration {
        REQUEST.of(self.length)
    }

    /// Half of it is over.
    pub fn is_half_over(&self) -> bool {
        self.left() < self.length / 2
    }

    /// It was extended by its whole length, which was asked for at this moment.
    pub fn extended(&self, asked: Moment) {
        let mut ends = self.ends();
        *ends = ends.map(|_| asked.after(self.length));
    }

    /// It is over.
    pub fn end(&self) {
        *self.ends() = None;
    }

    fn ends(&self) -> MutexGuard<'_, Option<Moment>> {
        self.ends.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_term_ends_is_extended_and_stays_over() {
        let term = Term::new(Duration::from_secs(1_000), Moment::now());
        assert!(term.left() > Duration::from_secs(900) && !term.is_half_over());
        assert_eq!(term.most(), Duration::from_secs(250));
        let ago = |secs| Moment::ago(Duration::from_secs(secs));
        term.extended(ago(600));
        assert!(term.is_half_over() && term.left() > Duration::from_secs(300));
        term.extended(ago(1_001));
        assert_eq!(term.left(), Duration::ZERO);
        term.extended(Moment::now());
        assert!(term.left() > Duration::from_secs(900));
        term.end();
        term.extended(Moment::now());
        assert_eq!(term.left(), Duration::ZERO, "what is over stays so");
    }

    /// The one that stands still while the machine sleeps is never ahead of it.
    #[cfg(target_os = "linux")]
    #[test]
    fn the_clock_is_the_one_that_runs_while_the_machine_sleeps() {
        let read = |path: &str| std::fs::read_to_string(path).unwrap();
        let uptime = read("/proc/uptime");
        let uptime: f64 = uptime.split(' ').next().unwrap().parse().unwrap();
        let Moment(now) = Moment::now();
        let monotonic = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
        assert!((now.as_secs_f64() - uptime).abs() < 2.0 && now.as_secs() as i64 >= monotonic.tv_sec);
    }
}
