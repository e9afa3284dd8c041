//! Times of the timers: when each fires, which one is overdue, and what was logged about overdue timers.
//!
//! Times are nanoseconds since the Unix epoch. The clock and the platform's timers are not persisted: an upgrade loses both.

use super::State;
use crate::platform::timers::Timer;
use coppice_interface::SAFETY_SECS;
use coppice_storage::NS;

/// Seconds that a timer may wait in the queue of a busy subnet.
pub const QUEUE_SECS: u64 = 10;
/// Seconds after which the calls of timers that fired together are done.
const ROUNDS_SECS: u64 = 2;
/// Timers whose work reads the balance, in the order in which `health` reports an overdue one.
const FIRING: [Timer; 4] = [Timer::Blocks, Timer::Safety, Timer::Records, Timer::Deletions];

/// Times of the timers, and what was logged about them.
#[derive(Debug, Default)]
pub struct Clock {
    /// When the one-shot for blocks fires; `None` if it is not armed.
    pub blocks_at: Option<u64>,
    /// When the safety timer (every ten minutes) fires next, or somewhat later; 0 before it is armed, `u64::MAX` while it is cancelled.
    pub safety_at: u64,
    /// Seconds between two firings of the timer for records; `None` if it does not run.
    pub records_every: Option<u64>,
    /// When the one-shot for the deletion queue fires; `None` if it is not armed.
    pub deletions_at: Option<u64>,
    /// When the last one-shot was to fire that grows memory for a tick; `None` if memory has grown since.
    pub growth_at: Option<u64>,
    /// Due time of the oldest tick for blocks that has not finished.
    pub due: Option<u64>,
    /// Unix seconds of the last sample; 0 before the first one.
    pub sampled_secs: u64,
    /// Due time of the timer that was last logged as overdue.
    pub logged_overdue: u64,
    /// True if a draw of the hash key without a reply was logged.
    pub logged_draw: bool,
    /// True if refused memory growth was logged.
    pub logged_refused: bool,
    /// Time of each timer's last firing.
    fired_at: [u64; Timer::KINDS],
}

impl Clock {
    /// Records that a tick for blocks is due at `at`.
    pub fn note_due(&mut self, at: u64) {
        self.due = Some(self.due.map_or(at, |due| due.min(at)));
    }

    /// Latest time of the safety timer's next firing. A firing that is already due waits for its message or has trapped, so the one after
    /// it counts.
    pub fn next_safety(&self, now: u64) -> u64 {
        if self.safety_at > now { self.safety_at } else { now + SAFETY_SECS * NS }
    }
}

impl State {
    /// Returns when a timer is due, or `None` if the timer does not run.
    fn timer_due(&self, timer: Timer) -> Option<u64> {
        match timer {
            Timer::Blocks => self.clock.blocks_at,
            Timer::Safety => Some(self.clock.safety_at).filter(|&at| at > 0),
            Timer::Records => self.clock.records_every.map(|_| self.records_tick_ns()),
            Timer::Deletions => self.clock.deletions_at,
            Timer::Growth | Timer::Key => None,
        }
    }

    /// Records the firing of a timer, and returns how many other timers have calls under way: those that are due, or fired a moment ago.
    pub fn note_fired(&mut self, timer: Timer, now: u64) -> u32 {
        self.clock.fired_at[timer as usize] = now;
        let is_under_way = |other: Timer| {
            self.clock.fired_at[other as usize].saturating_add(ROUNDS_SECS * NS) >= now
                || self.timer_due(other).is_some_and(|due| due <= now)
        };
        FIRING.into_iter().filter(|&other| other != timer && is_under_way(other)).count() as u32
    }

    /// Returns the overdue timer and its due time, if any.
    pub fn overdue(&self, now: u64) -> Option<(Timer, u64)> {
        let slack_secs = |timer| match timer {
            Timer::Blocks => self.overdue_secs(),
            Timer::Safety => SAFETY_SECS,
            Timer::Records => self.clock.records_every.unwrap_or_default(),
            Timer::Deletions | Timer::Growth | Timer::Key => QUEUE_SECS,
        };
        let is_overdue = |timer, due| now.saturating_sub(due) > slack_secs(timer) * NS;
        FIRING
            .into_iter()
            .find_map(|timer| self.timer_due(timer).filter(|&due| is_overdue(timer, due)).map(|due| (timer, due)))
    }

    /// Seconds after which a timer for blocks that has not fired counts as lost.
    fn overdue_secs(&self) -> u64 {
        QUEUE_SECS + self.pruner.interval_secs()
    }

    /// Returns when the one-shot for blocks fires. A due one-shot may wait in the queue of a busy subnet, and must not be deferred.
    /// An overdue one-shot may have trapped and counts as not armed, so that a new one is armed in addition.
    pub fn blocks_armed(&self, now: u64) -> Option<u64> {
        let overdue = self.overdue_secs();
        self.clock.blocks_at.filter(|&armed| now <= armed.saturating_add(overdue * NS))
    }

    /// Returns whether a tick for blocks that was to fire at `at` is so late that the previous ticks must have trapped. The first tick is
    /// never late in this sense, because no earlier tick can have trapped: then the subnet or its clock stood still.
    pub fn is_tick_late(&self, at: u64, now: u64) -> bool {
        let secs = (2 * self.pruner.interval_secs()).max(2 * QUEUE_SECS);
        self.clock.due.is_some_and(|due| now >= due.saturating_add(secs * NS) && at > due)
    }
}
