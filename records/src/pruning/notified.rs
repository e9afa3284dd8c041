//! Notified heights: limits of their rise, and records of heights far below the highest one (`docs/design/record-pruning.md`). `heights.rs`
//! then decides on a job.

use super::feeds::{Feed, NotifiedHeight};
use super::heights::is_height;
use super::settings::limits;
use super::{Stored, UtxoPruner};
use ic_coppice_interface::{BadHeight, MAX_HEIGHT, UtxoPrunerError};
use ic_coppice_storage::{Ic, Platform as _};

impl UtxoPruner {
    /// Checks that a feeder may notify a height; `head` is the chain's head.
    ///
    /// # Errors
    /// `BadHeight`, `HeightJump`.
    pub fn check_feeder(&self, height: u32, which: NotifiedHeight, head: Option<u64>) -> Result<(), UtxoPrunerError> {
        is_height(height)?;
        let settings = &self.stored.settings;
        if settings.heights_are_block_numbers {
            let most = head.map_or(0, |head| head.saturating_add(settings.max_height_jump.into()));
            if u64::from(height) > most {
                return Err(UtxoPrunerError::BadHeight(BadHeight::TooHigh { most: most as u32 }));
            }
        }
        let highest = (self.stored.current, self.stored.persisted);
        let mut feeds = self.stored.feeds;
        feeds.raise(limits(settings), (height, which), highest, Ic::now_ns())
    }

    /// Records a refused height of a feeder for `health`.
    pub fn note_refused(&mut self, height: u32, which: NotifiedHeight, why: &UtxoPrunerError) {
        if let UtxoPrunerError::HeightJump { .. } = why {
            let feeds = &mut self.stored.feeds;
            let feed = match which {
                NotifiedHeight::Current => &mut feeds.current,
                NotifiedHeight::Persisted => &mut feeds.persisted,
            };
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
    pub(super) fn note(
        &mut self,
        height: u32,
        which: NotifiedHeight,
        by_operator: bool,
    ) -> Result<(), UtxoPrunerError> {
        is_height(height)?;
        let (now, limits) = (Ic::now_ns(), limits(&self.stored.settings));
        let highest = (self.stored.current, self.stored.persisted);
        let mut feeds = self.stored.feeds;
        if !by_operator {
            feeds.raise(limits, (height, which), highest, now)?;
        }
        let (feed, highest) = match which {
            NotifiedHeight::Current => (&mut feeds.current, highest.0),
            NotifiedHeight::Persisted => (&mut feeds.persisted, highest.1),
        };
        feed.note(height, highest, now);
        self.stored.feeds = feeds;
        self.stored.current = self.stored.current.max(height);
        if which == NotifiedHeight::Persisted {
            self.stored.persisted = self.stored.persisted.max(height);
        }
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
