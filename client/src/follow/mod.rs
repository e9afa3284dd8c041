//! Copies the caller's chain to the canister, through back-pressure, lost answers and reorgs.

mod chain;
mod common;
mod error;
#[cfg(test)]
mod tests;

pub use chain::{Chain, Pause};
pub use error::FollowError;

use crate::{Client, Error, Retry, Room, Transport, Unsent};
use ic_coppice_interface::{AppendBlock, BlockId, ReadError};
use std::ops::RangeInclusive;
use std::time::Duration;

/// The longest time for which blocks of a message are read from the chain before they are sent.
#[cfg(not(target_family = "wasm"))]
const READING: Duration = Duration::from_secs(1);

/// Result of [`Client::follow`]: the changes of this call.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Followed {
    /// Blocks that the canister accepted, including blocks that it already had when an answer was lost.
    pub appended: u64,
    /// Blocks that were rolled back. Blocks that the canister's own timer rolled back are not counted.
    pub rolled_back: u64,
}

/// The head as the last answer has it.
enum Head {
    /// The head must be read.
    Unknown,
    /// The canister has no block.
    Empty,
    Is(BlockId),
}

/// Result of one step.
enum Step {
    Progress,
    /// The canister has every block of the chain.
    End,
}

impl<T: Transport> Client<T> {
    /// Appends the blocks of the caller's chain after the canister's head until the canister has all of them. For producers.
    ///
    /// - An empty canister begins with the chain's first block.
    /// - Blocks go together in one message as far as it has [`Room`]; the call reads them for at most a second and waits for no new block.
    /// - If the canister refuses a block until something is pruned, or an answer is lost, the call waits by [`Chain::wait`] and repeats.
    /// - On a reorg, the call finds the newest common block, rolls back to it, and appends the chain's own blocks. The canister takes applied
    ///   blocks back from the UTXO records. A producer may roll back `max_rollback_blocks`.
    /// - If the canister's head is above the chain's last block and the two have that block in common, the call changes nothing.
    ///
    /// The call keeps nothing between attempts but the head: after an error, a restart or an upgrade, call it again. The head and the headers
    /// for a rollback are read from the whole subnet, because one replica that lies could otherwise cause a rollback. Let one caller at a
    /// time follow: two callers with different chains roll back each other's blocks.
    ///
    /// # Errors
    /// [`FollowError`] of the first attempt that no wait helps, or after which `wait` returns false.
    pub async fn follow<C: Chain + ?Sized>(&self, chain: &C) -> Result<Followed, FollowError> {
        let (mut done, mut head) = (Followed::default(), Head::Unknown);
        let (mut failures, mut read_again) = (0u32, false);
        loop {
            let before = done.appended;
            let error = match self.step(chain, &mut head, &mut done).await {
                Ok(Step::End) => return Ok(done),
                Ok(Step::Progress) => {
                    (failures, read_again) = (0, false);
                    continue;
                }
                Err(error) => error,
            };
            if done.appended > before {
                (failures, read_again) = (0, false);
            }
            head = Head::Unknown;
            match error.retry() {
                Retry::Never => return Err(error),
                // Another caller moved the head. Reading the head once more resolves it, without a wait.
                Retry::Reorg if !read_again => {
                    read_again = true;
                    continue;
                }
                _ => {}
            }
            let after = Duration::from_secs(1 << failures.min(6)).min(Pause::MOST);
            failures = failures.saturating_add(1);
            if !chain.wait(&Pause { error: &error, after, failures }).await {
                return Err(error);
            }
        }
    }

    /// Appends the next blocks, or resolves a reorg.
    async fn step<C: Chain + ?Sized>(
        &self,
        chain: &C,
        head: &mut Head,
        done: &mut Followed,
    ) -> Result<Step, FollowError> {
        let range = chain.range().await.map_err(FollowError::Chain)?;
        let Some((first, last)) = range.filter(|range| !range.is_empty()).map(RangeInclusive::into_inner) else {
            return Ok(Step::End);
        };
        let was_read = matches!(head, Head::Unknown);
        if was_read {
            *head = match self.replicated().get_head().await {
                Ok(header) => Head::Is(BlockId { number: header.number, hash: header.hash }),
                Err(Error::Refused(ReadError::NotFound)) => Head::Empty,
                Err(error) => return Err(FollowError::Read(error)),
            };
        }
        let next = match &*head {
            Head::Is(head) => head.number.saturating_add(1),
            _ => first,
        };
        let block = if (first..=last).contains(&next) {
            Some(common::block(chain, next).await?.ok_or(FollowError::Missing { number: next })?)
        } else {
            None
        };
        match (&*head, block) {
            (Head::Is(head), Some(block)) if head.hash != block.parent_hash => {}
            (_, Some(block)) => {
                let blocks = with_successors(chain, block, last).await;
                let sent = self.send_blocks(&blocks).await;
                let end = sent.as_ref().map_or_else(|unsent| unsent.number, |_| next + blocks.len() as u64);
                done.appended += end - next;
                sent.map_err(|Unsent { number, error }| FollowError::Append { number, error })?;
                let newest = blocks.into_iter().next_back();
                *head =
                    newest.map_or(Head::Unknown, |AppendBlock { number, hash, .. }| Head::Is(BlockId { number, hash }));
                return Ok(Step::Progress);
            }
            (Head::Is(head), None)
                if common::hash(chain, first, head.number, last).await?.as_ref() == Some(&head.hash) =>
            {
                return Ok(Step::End);
            }
            // The range of the chain is empty.
            (Head::Empty | Head::Unknown, None) => return Ok(Step::End),
            (Head::Is(_), None) => {}
        }
        let Head::Is(old) = std::mem::replace(head, Head::Unknown) else { return Ok(Step::End) };
        if !was_read {
            // The chain changed since the last block. The canister's head may have changed, too.
            return Ok(Step::Progress);
        }
        let Some(common) = self.common_block(chain, first, last, old.number).await? else {
            return Err(FollowError::NoCommonBlock { head: old.number, first, last });
        };
        if common.number == old.number {
            return Err(FollowError::Missing { number: next });
        }
        if common.number == last {
            return Ok(Step::End);
        }
        let to = common.number;
        let rollback = self.roll_back_to(to).await.map_err(|error| FollowError::Rollback { to, error })?;
        done.rolled_back = done.rolled_back.saturating_add(rollback.removed);
        *head = Head::Is(common);
        Ok(Step::Progress)
    }
}

/// Returns a block with the blocks after it that go into the same message. A block that cannot be read ends the list; the next step reads it
/// again.
async fn with_successors<C: Chain + ?Sized>(chain: &C, block: AppendBlock, last: u64) -> Vec<AppendBlock> {
    #[cfg(not(target_family = "wasm"))]
    let began = std::time::Instant::now();
    let mut room = Room::default();
    let mut goes_on = room.takes(&block) && block.number < last;
    let mut blocks = vec![block];
    while goes_on && let Some(parent) = blocks.last() {
        let number = parent.number + 1;
        match common::block(chain, number).await {
            Ok(Some(next)) if next.parent_hash == parent.hash && room.takes(&next) => blocks.push(next),
            _ => break,
        }
        goes_on = number < last;
        // A canister has no clock that moves within a message, and its chain is in its own memory.
        #[cfg(not(target_family = "wasm"))]
        {
            goes_on &= began.elapsed() < READING;
        }
    }
    blocks
}
