//! Times of the daemon: when its timers fire, when its duties are due, and what was logged about them.
//!
//! Times are nanoseconds since the Unix epoch. The clock and the platform's timers are not persisted: an upgrade loses both.

use super::State;
use crate::platform::cycles;
use crate::platform::timers::Timer;
use ic_coppice_interface::SAFETY_SECS;
use ic_coppice_storage::NS;

/// Seconds that a timer may wait in the queue of a busy subnet.
pub const QUEUE_SECS: u64 = 10;
/// Seconds after which the calls of timers that fired together are done.
const ROUNDS_SECS: u64 = 2;
/// Timers whose work reads the balance.
const FIRING: [Timer; 2] = [Timer::Work, Timer::Safety];

/// Times of the daemon, and what was logged about them.
#[derive(Debug, Default)]
pub struct Clock {
    /// When the one-shot fires; `None` if it is not armed.
    pub fires_at: Option<u64>,
    /// When the safety timer fires next, or somewhat later; 0 before it is started, `u64::MAX` while it is cancelled.
    pub safety_at: u64,
    /// Seconds between two firings of the safety timer.
    pub safety_secs: u64,
    /// When work on blocks is due: begun work, pruning, sweeps. Stays in the past until a firing has ended.
    pub blocks_at: Option<u64>,
    /// When the daemon last worked on blocks.
    pub blocks_worked_at: u64,
    /// How many watermarks the chain had reached after the last message of a producer.
    pub marks_reached: u8,
    /// Seconds between two parts of a job of the record pruner; `None` if there is no job to work on.
    pub job_secs: Option<u64>,
    /// When memory was to grow that a part of a job needs; `None` if none is needed.
    pub growth_at: Option<u64>,
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
    /// Returns the clock of a state whose timers are not started yet.
    pub fn stopped() -> Self {
        Self { safety_secs: SAFETY_SECS, ..Self::default() }
    }

    /// Latest time of the safety timer's next firing. A firing that is already due waits for its message or has trapped, so the one after
    /// it counts.
    pub fn next_safety(&self, now: u64) -> u64 {
        if self.safety_at > now { self.safety_at } else { now + self.safety_secs * NS }
    }
}

impl State {
    /// Makes work on blocks due at `at`, or earlier if it is due earlier; `u64::MAX` changes nothing. While only the safety timer runs, its
    /// next firing is the earliest time.
    pub fn blocks_by(&mut self, now: u64, at: u64) {
        let first = if cycles::pause().is_some() { self.clock.next_safety(now) } else { now };
        let at = at.max(first);
        if at < u64::MAX && self.clock.blocks_at.is_none_or(|due| at < due) {
            self.clock.blocks_at = Some(at);
        }
    }

    /// Returns when a timer is due, or `None` if the timer does not run.
    fn timer_due(&self, timer: Timer) -> Option<u64> {
        match timer {
            Timer::Work => self.clock.fires_at,
            Timer::Safety => Some(self.clock.safety_at).filter(|&at| at > 0),
            Timer::Key => None,
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

    /// Returns the due time of an overdue timer, if any.
    pub fn overdue(&self, now: u64) -> Option<u64> {
        let slack_secs = |timer| if timer == Timer::Work { self.overdue_secs() } else { self.clock.safety_secs };
        let is_overdue = |timer: Timer, due: u64| now.saturating_sub(due) > slack_secs(timer) * NS;
        FIRING.into_iter().find_map(|timer| self.timer_due(timer).filter(|&due| is_overdue(timer, due)))
    }

    /// Seconds after which a one-shot that has not fired counts as lost.
    fn overdue_secs(&self) -> u64 {
        QUEUE_SECS + self.pruner.interval_secs()
    }

    /// Returns when the one-shot fires. A due one-shot may wait in the queue of a busy subnet, and must not be deferred. An overdue one-shot
    /// may have trapped and counts as not armed, so that a new one is armed in addition.
    pub fn one_shot_at(&self, now: u64) -> Option<u64> {
        let overdue = self.overdue_secs();
        self.clock.fires_at.filter(|&armed| now <= armed.saturating_add(overdue * NS))
    }
}
