//! Notified heights: how far a feeder may raise them, and whether it notifies far below them (`docs/design.md` 7).

use super::UtxoPruner;
use super::bucket::{Bucket, Empty, Limits};
use super::trigger::is_height;
use crate::health::{Finding, finding};
use crate::runtime;
use crate::utxo_pruner::settings::Settings as _;
use coppice_interface::{MAX_HEIGHT, ProblemCode, UtxoPrunerError, UtxoSettings};
use serde::{Deserialize, Serialize};

/// Blocks by which a notified height may be below the highest one before it without `health` saying so: no reorg is as deep.
const FAR: u32 = 100;
/// Nanoseconds for which such a notification is shown: twelve blocks of ten minutes.
const SHOWN_NS: u64 = 2 * 3_600 * 1_000_000_000;

/// The height that is notified.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotifiedHeight {
    /// The chain's (`notify_block`).
    Current,
    /// The persister's (`notify_block_persisted`).
    Persisted,
}

/// The notifications of one height.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
struct Feed {
    bucket: Bucket,
    /// The last notification that was far below the highest one, and its moment in Unix nanoseconds.
    low: Option<(u32, u64)>,
    /// The last height that was refused as too high, and its moment in Unix nanoseconds.
    refused: Option<(u32, u64)>,
}

/// The notifications of both heights. Each has a bucket of its own, because a block that is persisted was notified
/// before.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Feeds {
    current: Feed,
    persisted: Feed,
}

impl Feed {
    /// Takes what a height is above the highest one out of the bucket. The first height may be any.
    fn raise(&mut self, limits: Limits, (highest, height): (u32, u32), now: u64) -> Result<(), UtxoPrunerError> {
        if highest == 0 || height <= highest {
            return Ok(());
        }
        let refused = |Empty { left, enough_at }| UtxoPrunerError::HeightJump {
            highest,
            most: highest.saturating_add(left).min(MAX_HEIGHT),
            accepted_at: enough_at,
        };
        self.bucket.draw(limits, height - highest, now).map_err(refused)
    }

    /// A height that is far below the highest one, and was notified of late.
    fn low(&self, highest: u32, now: u64) -> Option<u32> {
        let (height, at) = self.low?;
        let is_far = height.saturating_add(FAR) < highest;
        (is_far && now.saturating_sub(at) < SHOWN_NS).then_some(height)
    }

    /// A height that was refused of late, and that no other has reached since.
    fn refused(&self, highest: u32, now: u64) -> Option<u32> {
        let (height, at) = self.refused?;
        (height > highest && now.saturating_sub(at) < SHOWN_NS).then_some(height)
    }
}

impl Feeds {
    /// Takes what a notification raises out of the buckets.
    ///
    /// # Errors
    /// `HeightJump`.
    fn raise(
        &mut self,
        limits: Limits,
        (height, which): (u32, NotifiedHeight),
        (current, persisted): (u32, u32),
        now: u64,
    ) -> Result<(), UtxoPrunerError> {
        if which == NotifiedHeight::Persisted {
            self.persisted.raise(limits, (persisted, height), now)?;
        }
        self.current.raise(limits, (current, height), now)
    }

    /// Changes the limits of both buckets.
    pub fn change(&mut self, limits: (Limits, Limits), now: u64) {
        [&mut self.current, &mut self.persisted].into_iter().for_each(|feed| feed.bucket.change(limits, now));
    }

    /// An operator has set the heights: feeders may raise them as at first.
    pub fn set(&mut self, now: u64) {
        for feed in [&mut self.current, &mut self.persisted] {
            feed.bucket.fill(now);
            (feed.low, feed.refused) = (None, None);
        }
    }
}

impl UtxoPruner {
    /// Checks that a feeder may notify a height, where the chain's head is `head`.
    ///
    /// # Errors
    /// `ZeroHeight`, `BadHeight`, `HeightJump`.
    pub fn check_feeder(&self, height: u32, which: NotifiedHeight, head: Option<u64>) -> Result<(), UtxoPrunerError> {
        is_height(height)?;
        let settings = &self.stored.settings;
        if settings.heights_are_block_numbers {
            let most = head.map_or(0, |head| head.saturating_add(settings.max_height_jump.into()));
            if u64::from(height) > most {
                return Err(UtxoPrunerError::BadHeight { most: most as u32 });
            }
        }
        let highest = (self.stored.current, self.stored.persisted);
        let mut feeds = self.stored.feeds;
        feeds.raise(settings.limits(), (height, which), highest, runtime::time_ns())
    }

    /// Takes note of a feeder's height that was refused, for `health`.
    pub fn note_refused(&mut self, height: u32, which: NotifiedHeight, why: &UtxoPrunerError) {
        if let UtxoPrunerError::HeightJump { .. } = why {
            let feeds = &mut self.stored.feeds;
            let feed = match which {
                NotifiedHeight::Current => &mut feeds.current,
                NotifiedHeight::Persisted => &mut feeds.persisted,
            };
            feed.refused = Some((height, runtime::time_ns()));
            self.save();
        }
    }

    /// The highest height of the chain that a feeder may notify, and that a call on records, or a block that it names, may have.
    pub fn most_height(&self) -> u32 {
        let (highest, limits) = (self.stored.current, self.stored.settings.limits());
        if highest == 0 || limits.per_day == 0 {
            return MAX_HEIGHT;
        }
        let left = self.stored.feeds.current.bucket.left(limits, runtime::time_ns());
        highest.saturating_add(left).min(MAX_HEIGHT)
    }

    /// Takes note of a height. One wrong height would have everything below it pruned: only an operator raises them as it likes.
    ///
    /// # Errors
    /// `ZeroHeight`, `BadHeight`, `HeightJump`, and nothing has changed.
    pub(super) fn note(
        &mut self,
        height: u32,
        which: NotifiedHeight,
        by_operator: bool,
    ) -> Result<(), UtxoPrunerError> {
        is_height(height)?;
        let (now, limits) = (runtime::time_ns(), self.stored.settings.limits());
        let highest = (self.stored.current, self.stored.persisted);
        let mut feeds = self.stored.feeds;
        if !by_operator {
            feeds.raise(limits, (height, which), highest, now)?;
        }
        let (feed, highest) = match which {
            NotifiedHeight::Current => (&mut feeds.current, highest.0),
            NotifiedHeight::Persisted => (&mut feeds.persisted, highest.1),
        };
        if height.saturating_add(FAR) < highest {
            feed.low = Some((height, now));
        }
        self.stored.feeds = feeds;
        self.stored.current = self.stored.current.max(height);
        if which == NotifiedHeight::Persisted {
            self.stored.persisted = self.stored.persisted.max(height);
        }
        Ok(())
    }

    /// Problems of heights and of their bounds.
    pub(super) fn problems_of_heights(&self, utxo: &UtxoSettings) -> Vec<Finding> {
        let (stored, mut found) = (&self.stored, Vec::new());
        let now = runtime::time_ns();
        let lows = (stored.feeds.current.low(stored.current, now), stored.feeds.persisted.low(stored.persisted, now));
        let low = lows.0.map(|height| (height, stored.current));
        if let Some((height, highest)) = low.or(lows.1.map(|height| (height, stored.persisted))) {
            // A thief may have notified either: the height to set is a node's.
            let message = format!(
                "height {height} is notified, and {highest} was before: no UTXO record is pruned until the chain is there"
            );
            found.push(finding(ProblemCode::HeightsAhead, message));
        }
        let refused = stored.feeds.persisted.refused(stored.persisted, now);
        if let Some(height) = refused.or_else(|| stored.feeds.current.refused(stored.current, now)) {
            let Limits { size, per_day } = stored.settings.limits();
            let message = format!(
                "a feeder's height {height} was refused, because max_height_jump = {size} and heights_per_day = {per_day} do not let it raise \
                 heights so far: records stay for as long as it waits"
            );
            found.push(finding(ProblemCode::HeightsRefused, message));
        }
        let (limits, retention) = (stored.settings.limits(), utxo.block_height_retention);
        if limits.per_day == 0 {
            let message = "heights_per_day is 0: a producer may raise heights as it likes, and have all records deleted that are done with";
            found.push(finding(ProblemCode::HeightsUnlimited, message));
        } else if stored.current > 0 && retention > 0 && limits.size > retention {
            let message = format!(
                "max_height_jump = {} is above block_height_retention = {retention}: a producer may have deleted at once what retention would keep",
                limits.size
            );
            found.push(finding(ProblemCode::HeightJumpWide, message));
        }
        found
    }
}
