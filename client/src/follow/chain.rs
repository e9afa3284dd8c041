//! The caller's chain, which the canister follows.

use super::FollowError;
use crate::Cause;
use ic_coppice_interface::{AppendBlock, BlockHash};
use std::ops::RangeInclusive;
use std::time::Duration;

/// The caller's chain: blocks with consecutive numbers, each the parent of the next one. The chain may change between two calls.
///
/// A slice and a vector of blocks are chains that do not wait.
pub trait Chain {
    /// Returns the numbers of the first and the last block, or `None` without blocks. A chain needs only the blocks since the
    /// canister's head, and as many below as a reorg may replace.
    ///
    /// # Errors
    /// When the chain cannot be read; [`follow`](crate::Client::follow) ends.
    fn range(&self) -> impl Future<Output = Result<Option<RangeInclusive<u64>>, Cause>>;

    /// Returns the block with a number of the range.
    ///
    /// # Errors
    /// As [`range`](Self::range).
    fn block(&self, number: u64) -> impl Future<Output = Result<Option<AppendBlock>, Cause>>;

    /// Returns the hash of the block with a number of the range. Override it if a block is large or slow to read.
    ///
    /// # Errors
    /// As [`range`](Self::range).
    fn hash(&self, number: u64) -> impl Future<Output = Result<Option<BlockHash>, Cause>> {
        async move { Ok(self.block(number).await?.map(|block| block.hash)) }
    }

    /// Waits before the next attempt, and returns true, or returns false: `follow` then ends with the pause's error. A program on a network
    /// sleeps in its runtime, and a test on the embedded host moves the clock. A canister cannot sleep: it returns false and calls `follow`
    /// again from a timer. Without an implementation, returns false.
    fn wait(&self, _pause: &Pause<'_>) -> impl Future<Output = bool> {
        async { false }
    }
}

/// A wait of [`follow`](crate::Client::follow) before the next attempt.
#[derive(Clone, Copy, Debug)]
pub struct Pause<'a> {
    /// The reason for the wait. [`FollowError::held_by`] names what holds pruning back.
    pub error: &'a FollowError,
    /// Duration of the wait: 1 second after the first failure, twice as long after each further one, at most [`MOST`](Self::MOST).
    pub after: Duration,
    /// Number of failed attempts since the last progress, from 1.
    pub failures: u32,
}

impl Pause<'_> {
    /// The longest wait.
    pub const MOST: Duration = Duration::from_secs(60);
}

impl Chain for [AppendBlock] {
    async fn range(&self) -> Result<Option<RangeInclusive<u64>>, Cause> {
        Ok(self.first().zip(self.last()).map(|(first, last)| first.number..=last.number))
    }

    async fn block(&self, number: u64) -> Result<Option<AppendBlock>, Cause> {
        let at = self.first().and_then(|first| usize::try_from(number.checked_sub(first.number)?).ok());
        Ok(at.and_then(|at| self.get(at)).cloned())
    }
}

impl Chain for Vec<AppendBlock> {
    async fn range(&self) -> Result<Option<RangeInclusive<u64>>, Cause> {
        self.as_slice().range().await
    }

    async fn block(&self, number: u64) -> Result<Option<AppendBlock>, Cause> {
        self.as_slice().block(number).await
    }
}
