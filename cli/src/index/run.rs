//! Drives an engine: again and again, waiting where there is nothing to do, until it is to end.

use super::engine::Engine;
use super::progress::Progress;
use super::steps::{Checkpoint, Event};
use crate::client::{Reach, may_pass};
use crate::stop::Stop;
use crate::terminal::say;
use anyhow::{Result, bail};
use backon::{BackoffBuilder, ExponentialBackoff, ExponentialBuilder};
use std::time::Duration;

/// Attempts in vain, one after the other, after which a run that is to end at the head gives up.
const PATIENCE: u32 = 20;
/// Of those, how many pass without a word where the canister only seems to be late.
const SPEAK: u32 = 3;
/// The first wait; each is twice as long as the one before.
const FIRST_WAIT: Duration = Duration::from_millis(250);

/// When a run ends, beside an error.
#[derive(Clone, Debug)]
pub struct Until {
    /// At the head.
    pub caught_up: bool,
    /// The longest wait.
    pub max_wait: Duration,
}

fn waits(max_wait: Duration) -> ExponentialBackoff {
    let first = FIRST_WAIT.min(max_wait);
    ExponentialBuilder::default().with_min_delay(first).with_max_delay(max_wait).without_max_times().build()
}

/// Does something, and again where the canister cannot be reached, until it is to end.
///
/// # Errors
/// The work's own; when it is to end before the canister could be reached.
pub fn retried<R>(max_wait: Duration, stop: &Stop, mut work: impl FnMut() -> Result<R>) -> Result<R> {
    let mut delays = waits(max_wait);
    loop {
        match work() {
            Err(error) if may_pass(&error) && !stop.is_set() => {
                let delay = delays.next().unwrap_or(max_wait);
                say!("{error:#}; trying again in {:.1} s", delay.as_secs_f64());
                stop.wait(delay);
            }
            result => return result,
        }
    }
}

/// Runs an engine until it is to end. Where the canister cannot be reached, it is tried again.
///
/// # Errors
/// As [`Engine::step`], but for what may be over when it is tried again.
pub fn run<T: Reach, C: Checkpoint>(engine: &mut Engine<'_, T, C>, until: &Until, stop: &Stop) -> Result<()> {
    let progress = Progress::new();
    let mut delays = waits(until.max_wait);
    let (mut said, mut in_vain) = (None, 0);
    while !stop.is_set() {
        let event = engine.step();
        in_vain = match &event {
            Ok(Event::Behind(_)) => in_vain + 1,
            Err(error) if may_pass(error) => in_vain + 1,
            _ => 0,
        };
        let enough = until.caught_up && in_vain > PATIENCE;
        match event {
            Ok(Event::CaughtUp) if until.caught_up => return Ok(()),
            Ok(Event::CaughtUp) => stop.wait(delays.next().unwrap_or(until.max_wait)),
            // What the canister answered is not yet progress: at the head it answers too.
            Ok(Event::Went) => {}
            Ok(Event::Stored) => delays = waits(until.max_wait),
            Ok(Event::Behind(note)) if enough => bail!(note),
            Ok(Event::Behind(note)) => {
                // A replica that is a block late is nothing to speak of.
                if in_vain == SPEAK && said.as_ref() != Some(&note) {
                    progress.say(&format!("note: {note}"));
                    said = Some(note);
                }
                stop.wait(delays.next().unwrap_or(until.max_wait));
            }
            Ok(Event::Note(note)) => {
                progress.say(&format!("note: {note}"));
                delays = waits(until.max_wait);
            }
            Err(error) if may_pass(&error) && !enough => {
                let delay = delays.next().unwrap_or(until.max_wait);
                progress.say(&format!("{error:#}; trying again in {:.1} s", delay.as_secs_f64()));
                stop.wait(delay);
            }
            Err(error) => return Err(error),
        }
        progress.show(&engine.figures());
    }
    engine.acknowledge_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_double_up_to_the_longest() {
        let all: Vec<u128> = waits(Duration::from_secs(2)).take(6).map(|wait| wait.as_millis()).collect();
        assert_eq!(all, [250, 500, 1_000, 2_000, 2_000, 2_000]);
        assert_eq!(waits(Duration::from_millis(100)).next(), Some(Duration::from_millis(100)));
    }

    #[test]
    fn what_cannot_be_reached_is_tried_again_and_nothing_else() {
        let (mut tries, stop) = (0, Stop::default());
        let wait = Duration::from_millis(1);
        let mut work = |error: fn() -> anyhow::Error| {
            tries = 0;
            retried(wait, &stop, || {
                tries += 1;
                if tries < 3 { Err(error()) } else { Ok(tries) }
            })
        };
        assert_eq!(work(|| crate::client::lost("no")).unwrap(), 3);
        assert_eq!(work(|| anyhow::anyhow!("no")).unwrap_err().to_string(), "no");
        stop.set();
        assert!(retried(wait, &stop, || -> Result<()> { Err(crate::client::lost("no")) }).is_err());
    }
}
