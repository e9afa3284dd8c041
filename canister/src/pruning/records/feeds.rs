//! Notifications of both heights: the bucket of each, and odd heights among them (`docs/design.md` 7).

use super::bucket::{Bucket, Empty, Limits};
use coppice_interface::{MAX_HEIGHT, UtxoPrunerError};
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
pub(super) struct Feed {
    pub bucket: Bucket,
    /// The last notification that was far below the highest one, and its moment in Unix nanoseconds.
    pub low: Option<(u32, u64)>,
    /// The last height that was refused as too high, and its moment in Unix nanoseconds.
    pub refused: Option<(u32, u64)>,
}

/// The notifications of both heights. Each has a bucket of its own, because a block that is persisted was notified
/// before.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Feeds {
    pub current: Feed,
    pub persisted: Feed,
}

impl Feed {
    /// Takes note of a height that is far below the highest one.
    pub fn note(&mut self, height: u32, highest: u32, now: u64) {
        if height.saturating_add(FAR) < highest {
            self.low = Some((height, now));
        }
    }

    /// Takes what a height is above the highest one out of the bucket. The first height may be any.
    pub fn raise(&mut self, limits: Limits, (highest, height): (u32, u32), now: u64) -> Result<(), UtxoPrunerError> {
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
    pub fn low(&self, highest: u32, now: u64) -> Option<u32> {
        let (height, at) = self.low?;
        let is_far = height.saturating_add(FAR) < highest;
        (is_far && now.saturating_sub(at) < SHOWN_NS).then_some(height)
    }

    /// A height that was refused of late, and that no other has reached since.
    pub fn refused(&self, highest: u32, now: u64) -> Option<u32> {
        let (height, at) = self.refused?;
        (height > highest && now.saturating_sub(at) < SHOWN_NS).then_some(height)
    }
}

impl Feeds {
    /// Takes what a notification raises out of the buckets.
    ///
    /// # Errors
    /// `HeightJump`.
    pub fn raise(
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
