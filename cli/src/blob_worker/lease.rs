//! How long a lease surely lasts, by clocks that may be wrong.
//!
//! The canister's clock says when a lease ends, and the worker's may be an hour off. So a lease is taken to last so long from the moment
//! at which it was asked for first: the canister began it later, if at all. Time passes by the clock that counts, or by the wall's where
//! that has come further, as the one that counts may stand still while the machine sleeps.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime};

/// A moment, by both clocks.
#[derive(Clone, Copy, Debug)]
pub struct Moment {
    counted: Instant,
    wall: SystemTime,
}

impl Moment {
    /// Now.
    pub fn now() -> Self {
        Self { counted: Instant::now(), wall: SystemTime::now() }
    }

    /// So long ago.
    #[cfg(test)]
    pub fn ago(time: Duration) -> Self {
        let now = Self::now();
        Self { counted: now.counted.checked_sub(time).unwrap_or(now.counted), wall: now.wall - time }
    }

    /// How long ago it was at the most.
    pub fn elapsed(&self) -> Duration {
        self.until(&Self::now())
    }

    fn until(&self, now: &Self) -> Duration {
        let counted = now.counted.saturating_duration_since(self.counted);
        counted.max(now.wall.duration_since(self.wall).unwrap_or_default())
    }
}

/// A lease, as long as its holder knows it to last.
#[derive(Debug)]
pub struct Term {
    length: Duration,
    /// From when on; none: it is over.
    from: Mutex<Option<Moment>>,
}

impl Term {
    /// A lease of a length that was asked for at a moment.
    pub fn new(length: Duration, asked: Moment) -> Self {
        Self { length, from: Mutex::new(Some(asked)) }
    }

    /// What is surely left of it.
    pub fn left(&self) -> Duration {
        let from = *self.from.lock().unwrap_or_else(PoisonError::into_inner);
        from.map_or(Duration::ZERO, |from| self.length.saturating_sub(from.elapsed()))
    }

    /// The longest that one request to a store may take: a quarter of the lease.
    pub fn most(&self) -> Duration {
        most(self.length)
    }

    /// Half of it is over.
    pub fn is_half_over(&self) -> bool {
        self.left() < self.length / 2
    }

    /// It was extended by its whole length, which was asked for at this moment.
    pub fn extended(&self, asked: Moment) {
        let mut from = self.from.lock().unwrap_or_else(PoisonError::into_inner);
        if from.is_some() {
            *from = Some(asked);
        }
    }

    /// It is over.
    pub fn end(&self) {
        *self.from.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }
}

/// The longest that one request to a store may take while a lease of this length is held.
pub fn most(length: Duration) -> Duration {
    length / 4
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_that_is_set_back_does_not_make_a_lease_longer_nor_one_that_is_set_forward_lose_one_twice() {
        let hour = Duration::from_secs(3_600);
        let start = Moment::now();
        let second = Duration::from_secs(1);
        let later = |wall: SystemTime| Moment { counted: start.counted + second, wall };
        assert_eq!(start.until(&later(start.wall + second)), second);
        assert_eq!(start.until(&later(start.wall - hour)), second, "set back by an hour");
        assert_eq!(start.until(&later(start.wall + hour)), hour, "set forward, or the machine slept");
        // What is begun then counts from then.
        let next = later(start.wall + hour);
        let after = Moment { counted: next.counted + second, wall: next.wall + second };
        assert_eq!(next.until(&after), second);
        assert_eq!(start.until(&Moment { counted: start.counted, wall: start.wall }), Duration::ZERO);
    }

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
}
