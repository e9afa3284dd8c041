//! Remaining time of a lease, by a clock that keeps running while the machine sleeps; and whether the canister has lately said that the
//! lease is live.
//!
//! A request to a store begins only on a *fresh answer*: the canister granted or extended the lease when it was asked at most
//! [`FRESH`] ago. An operator who stops deletions, or ends the lease, thereby stops all further requests.
//!
//! The canister's clock decides when a lease ends, and the machine's clock may be an hour off. So the worker counts the lease's length from
//! the moment of its first request: the canister cannot have started the lease earlier.

use super::times::{FRESH, REQUEST};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// A moment, as time since the machine was started.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Moment(Duration);

impl Moment {
    /// Now, by `CLOCK_BOOTTIME`: this clock cannot be set, and includes the time that the machine slept.
    #[cfg(target_os = "linux")]
    pub fn now() -> Self {
        let time = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
        Self(Duration::new(time.tv_sec.unsigned_abs(), time.tv_nsec as u32))
    }

    /// Now, by the wall clock, on systems without a better clock.
    #[cfg(not(target_os = "linux"))]
    pub fn now() -> Self {
        Self(std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default())
    }

    /// Returns the moment this much later.
    pub fn after(self, time: Duration) -> Self {
        Self(self.0.saturating_add(time))
    }

    /// Returns the time since this moment.
    pub fn elapsed(self) -> Duration {
        Self::now().0.saturating_sub(self.0)
    }

    /// Returns the time until this moment.
    pub fn left(self) -> Duration {
        self.0.saturating_sub(Self::now().0)
    }

    /// Returns the moment this long ago.
    #[cfg(test)]
    pub fn ago(time: Duration) -> Self {
        Self(Self::now().0 - time)
    }
}

/// The term of a lease, as far as its holder can be sure of it.
#[derive(Debug)]
pub struct Term {
    length: Duration,
    known: Mutex<Known>,
}

/// The holder's knowledge of its lease.
#[derive(Clone, Copy, Debug)]
struct Known {
    /// The end of the lease, or `None` after it was ended.
    ends: Option<Moment>,
    /// The moment of the last question whose answer may be used, or `None` if the answer was used up.
    asked: Option<Moment>,
    /// A request waits for a fresh answer.
    is_wanted: bool,
}

impl Term {
    /// The term of a lease of this length that was requested at `asked`.
    pub fn new(length: Duration, asked: Moment) -> Self {
        Self {
            length,
            known: Mutex::new(Known { ends: Some(asked.after(length)), asked: Some(asked), is_wanted: false }),
        }
    }

    /// Returns the time that surely remains.
    pub fn left(&self) -> Duration {
        self.known().ends.map_or(Duration::ZERO, Moment::left)
    }

    /// Returns the longest that one request to a store may take.
    pub fn most(&self) -> Duration {
        REQUEST.of(self.length)
    }

    /// Returns whether at least half of the lease has passed.
    pub fn is_half_over(&self) -> bool {
        self.left() < self.length / 2
    }

    /// Extends the lease by its whole length, counted from the request at `asked`.
    pub fn extended(&self, asked: Moment) {
        let mut known = self.known();
        known.ends = known.ends.map(|_| asked.after(self.length));
        known.asked = Some(asked);
    }

    pub fn end(&self) {
        self.known().ends = None;
    }

    /// Returns whether a request may begin: the canister's answer is fresh. Otherwise the request wants another answer.
    pub fn may_begin(&self) -> bool {
        let mut known = self.known();
        let is_fresh = known.asked.is_some_and(|asked| asked.elapsed() <= FRESH.of(self.length));
        known.is_wanted = !is_fresh;
        is_fresh
    }

    /// Returns whether a request waits for a fresh answer.
    pub fn is_wanted(&self) -> bool {
        self.known().is_wanted
    }

    /// Uses the last answer up: the next request needs another one.
    pub fn use_up(&self) {
        self.known().asked = None;
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ended_term_is_not_extended() {
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
        assert_eq!(term.left(), Duration::ZERO, "an ended lease stays ended");
    }

    #[test]
    fn answer_is_fresh_for_five_seconds_or_until_it_is_used_up() {
        let ago = |secs| Moment::ago(Duration::from_secs(secs));
        let term = Term::new(Duration::from_secs(1_000), ago(4));
        assert!(term.may_begin() && !term.is_wanted());
        term.extended(ago(6));
        assert!(!term.may_begin() && term.is_wanted());
        term.extended(Moment::now());
        assert!(term.may_begin() && !term.is_wanted());
        term.use_up();
        assert!(!term.may_begin() && term.is_wanted());
        let short = Term::new(Duration::from_secs(32), ago(3));
        assert!(!short.may_begin(), "a sixteenth of the lease");
    }

    /// `CLOCK_MONOTONIC` stops while the machine sleeps, so it is never ahead of the boot clock.
    #[cfg(target_os = "linux")]
    #[test]
    fn clock_includes_time_asleep() {
        let read = |path: &str| std::fs::read_to_string(path).unwrap();
        let uptime = read("/proc/uptime");
        let uptime: f64 = uptime.split(' ').next().unwrap().parse().unwrap();
        let Moment(now) = Moment::now();
        let monotonic = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
        assert!((now.as_secs_f64() - uptime).abs() < 2.0 && now.as_secs() as i64 >= monotonic.tv_sec);
    }
}
