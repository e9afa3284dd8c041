//! Notified heights: a bucket that limits their rise, and the anomalies of each, such as heights far below the highest one
//! (`docs/design/record-pruning.md`). `heights.rs` then decides on a job.

use super::bucket::{Bucket, Empty, Limits};
use super::heights::is_height;
use super::settings::limits;
use super::{Answer, Stored, UtxoPruner};
use ic_coppice_interface::{BadHeight, MAX_HEIGHT, UtxoPrunerError};
use ic_coppice_storage::{Ic, NS, Platform as _};
use serde::{Deserialize, Serialize};

/// Blocks by which a notified height may be below the highest one before `health` reports it: no reorg is as deep.
const FAR: u32 = 100;
/// Nanoseconds for which `health` reports such a notification: twelve blocks of ten minutes.
const SHOWN_NS: u64 = 2 * 3_600 * NS;

/// Kind of a notified height.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotifiedHeight {
    /// Height of the chain (`utxo_notify_block`).
    Current,
    /// Height of the persister (`utxo_notify_block_persisted`).
    Persisted,
}

/// Notifications of one kind of height.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Feed {
    pub bucket: Bucket,
    /// The last notification far below the highest one, and its time in Unix nanoseconds.
    pub low: Option<(u32, u64)>,
    /// The last height that was refused as too high, and its time in Unix nanoseconds.
    pub refused: Option<(u32, u64)>,
}

/// Notifications of both heights. Each has its own bucket, because a persisted block was notified before.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Feeds {
    pub current: Feed,
    pub persisted: Feed,
}

impl Feed {
    /// Records a height that is far below the highest one.
    pub fn note(&mut self, height: u32, highest: u32, now: u64) {
        if height.saturating_add(FAR) < highest {
            self.low = Some((height, now));
        }
    }

    /// Draws the difference to the highest height from the bucket. The first height is unbounded.
    pub fn raise(&mut self, limits: Limits, (highest, height): (u32, u32), now: u64) -> Answer<()> {
        if highest == 0 || height <= highest {
            return Ok(());
        }
        let refused = |Empty { left, enough_at }| UtxoPrunerError::HeightJump {
            highest,
            most: highest.saturating_add(left).min(MAX_HEIGHT),
            accepted_at_ns: enough_at,
        };
        self.bucket.draw(limits, height - highest, now).map_err(refused)
    }

    /// Returns a recently notified height that is far below the highest one.
    pub fn low(&self, highest: u32, now: u64) -> Option<u32> {
        let (height, at) = self.low?;
        let is_far = height.saturating_add(FAR) < highest;
        (is_far && now.saturating_sub(at) < SHOWN_NS).then_some(height)
    }

    /// Returns a recently refused height that no accepted one has reached since.
    pub fn refused(&self, highest: u32, now: u64) -> Option<u32> {
        let (height, at) = self.refused?;
        (height > highest && now.saturating_sub(at) < SHOWN_NS).then_some(height)
    }
}

impl Feeds {
    /// Changes the limits of both buckets.
    pub fn change(&mut self, limits: (Limits, Limits), now: u64) {
        [&mut self.current, &mut self.persisted].into_iter().for_each(|feed| feed.bucket.change(limits, now));
    }

    /// Resets both feeds after an operator has set the heights: fills the buckets and forgets the anomalies.
    pub fn set(&mut self, now: u64) {
        for feed in [&mut self.current, &mut self.persisted] {
            feed.bucket.fill(now);
            (feed.low, feed.refused) = (None, None);
        }
    }
}

impl UtxoPruner {
    /// Checks that a feeder may notify a height; `head` is the chain's head.
    ///
    /// # Errors
    /// `BadHeight`, `HeightJump`.
    pub fn check_feeder(&self, height: u32, which: NotifiedHeight, head: Option<u64>) -> Answer<()> {
        is_height(height)?;
        let settings = &self.stored.settings;
        if settings.heights_are_block_numbers {
            let most = head.map_or(0, |head| head.saturating_add(settings.max_height_jump.into()));
            if u64::from(height) > most {
                return Err(UtxoPrunerError::BadHeight(BadHeight::TooHigh { most: most as u32 }));
            }
        }
        self.raised(height, which).map(drop)
    }

    /// Returns the feeds after a feeder has notified a height: the rise is drawn from the buckets.
    ///
    /// # Errors
    /// `HeightJump`.
    fn raised(&self, height: u32, which: NotifiedHeight) -> Answer<Feeds> {
        let Stored { mut feeds, current, persisted, .. } = self.stored;
        let (limits, now) = (limits(&self.stored.settings), Ic::now_ns());
        if which == NotifiedHeight::Persisted {
            feeds.persisted.raise(limits, (persisted, height), now)?;
        }
        feeds.current.raise(limits, (current, height), now)?;
        Ok(feeds)
    }

    /// Records a refused height of a feeder for `health`.
    pub fn note_refused(&mut self, height: u32, which: NotifiedHeight, why: &UtxoPrunerError) {
        if let UtxoPrunerError::HeightJump { .. } = why {
            let feeds = &mut self.stored.feeds;
            let feed = if which == NotifiedHeight::Persisted { &mut feeds.persisted } else { &mut feeds.current };
            feed.refused = Some((height, Ic::now_ns()));
            self.save();
        }
    }

    /// Returns the highest height that feeders may notify for the chain, and that calls on records, or blocks named in them, may have.
    pub fn most_height(&self) -> u32 {
        let (highest, limits) = (self.stored.current, limits(&self.stored.settings));
        if highest == 0 || limits.per_day == 0 {
            return MAX_HEIGHT;
        }
        let left = self.stored.feeds.current.bucket.left(limits, Ic::now_ns());
        highest.saturating_add(left).min(MAX_HEIGHT)
    }

    /// Records a notified height. A feeder's height is bounded, because one wrong height would prune everything below it; an operator's is
    /// not.
    ///
    /// # Errors
    /// `BadHeight`, `HeightJump`; nothing has changed.
    pub(super) fn note(&mut self, height: u32, which: NotifiedHeight, by_operator: bool) -> Answer<()> {
        is_height(height)?;
        if !by_operator {
            self.stored.feeds = self.raised(height, which)?;
        }
        let Stored { feeds, current, persisted, .. } = &mut self.stored;
        if which == NotifiedHeight::Persisted {
            feeds.persisted.note(height, *persisted, Ic::now_ns());
            *persisted = height.max(*persisted);
        } else {
            feeds.current.note(height, *current, Ic::now_ns());
        }
        *current = height.max(*current);
        Ok(())
    }

    /// Returns a height that was notified far below the highest one, and the highest one.
    pub fn low_height(&self) -> Option<(u32, u32)> {
        let Stored { current, persisted, feeds, .. } = &self.stored;
        let low = |feed: &Feed, highest: u32| Some((feed.low(highest, Ic::now_ns())?, highest));
        low(&feeds.current, *current).or_else(|| low(&feeds.persisted, *persisted))
    }

    /// Returns a height of a feeder that was refused.
    pub fn refused_height(&self) -> Option<u32> {
        let (Stored { current, persisted, feeds, .. }, now) = (&self.stored, Ic::now_ns());
        feeds.persisted.refused(*persisted, now).or_else(|| feeds.current.refused(*current, now))
    }
}
