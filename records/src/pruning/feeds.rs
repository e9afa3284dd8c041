//! Persisted data about the notifications of the two heights: a bucket and the anomalies of each (`docs/design/record-pruning.md`). `notified.rs` has
//! the pruner's methods that use them.

use super::bucket::{Bucket, Empty, Limits};
use ic_coppice_interface::{MAX_HEIGHT, UtxoPrunerError};
use serde::{Deserialize, Serialize};

/// Blocks by which a notified height may be below the highest one before `health` reports it: no reorg is as deep.
const FAR: u32 = 100;
/// Nanoseconds for which `health` reports such a notification: twelve blocks of ten minutes.
const SHOWN_NS: u64 = 2 * 3_600 * 1_000_000_000;

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
    pub fn raise(&mut self, limits: Limits, (highest, height): (u32, u32), now: u64) -> Result<(), UtxoPrunerError> {
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
    /// Draws the rise of a notification from the buckets.
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

    /// Resets both feeds after an operator has set the heights: fills the buckets and forgets the anomalies.
    pub fn set(&mut self, now: u64) {
        for feed in [&mut self.current, &mut self.persisted] {
            feed.bucket.fill(now);
            (feed.low, feed.refused) = (None, None);
        }
    }
}
