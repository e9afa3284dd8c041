//! The newest block that the caller's chain and the canister have in common.

use super::{Chain, FollowError};
use crate::{Client, Error, Transport};
use ic_coppice_interface::{AppendBlock, BlockHash, BlockHeader, BlockId, ReadError};

/// Headers in the first search below the head. Most reorgs are less deep.
const FEW: u64 = 16;
/// Most headers in a search: one page of the canister.
const MANY: u64 = 1_000;

/// Returns a block of the chain, or `None` if the chain does not have it or returns another one.
pub(super) async fn block<C: Chain + ?Sized>(chain: &C, number: u64) -> Result<Option<AppendBlock>, FollowError> {
    let block = chain.block(number).await.map_err(FollowError::Chain)?;
    Ok(block.filter(|block| block.number == number))
}

/// Returns the hash of a block of the chain, or of the first block's parent; `None` outside these.
pub(super) async fn hash<C: Chain + ?Sized>(
    chain: &C,
    first: u64,
    number: u64,
    last: u64,
) -> Result<Option<BlockHash>, FollowError> {
    if (first..=last).contains(&number) {
        return chain.hash(number).await.map_err(FollowError::Chain);
    }
    if number.checked_add(1) == Some(first) {
        return Ok(block(chain, first).await?.map(|block| block.parent_hash));
    }
    Ok(None)
}

impl<T: Transport> Client<T> {
    /// Returns the newest block, at or below the head, that the canister keeps and the chain has, if any.
    pub(super) async fn common_block<C: Chain + ?Sized>(
        &self,
        chain: &C,
        first: u64,
        last: u64,
        head: u64,
    ) -> Result<Option<BlockId>, FollowError> {
        // The canister answers `NotFound` below its first block, as above its head.
        let status = self.replicated().get_prune_status().await.map_err(|error| FollowError::Read(error.into()))?;
        let oldest = status.oldest_kept_block.unwrap_or(0);
        let (mut lowest, mut high, mut count) = (first.saturating_sub(1).max(oldest), head.min(last), FEW);
        while lowest <= high {
            let low = high.saturating_sub(count - 1).max(lowest);
            let headers = match self.headers(low, high).await {
                Ok(headers) => headers,
                // Blocks were pruned meanwhile.
                Err(Error::Refused(ReadError::Pruned { first_available })) if first_available > low => {
                    lowest = first_available;
                    continue;
                }
                Err(error) => return Err(FollowError::Read(error)),
            };
            for BlockHeader { number, hash: kept, .. } in headers.into_iter().rev() {
                if hash(chain, first, number, last).await?.as_ref() == Some(&kept) {
                    return Ok(Some(BlockId { number, hash: kept }));
                }
            }
            let Some(below) = low.checked_sub(1) else { break };
            (high, count) = (below, (count * 4).min(MANY));
        }
        Ok(None)
    }

    /// Returns headers from the whole subnet.
    async fn headers(&self, from: u64, to: u64) -> Result<Vec<BlockHeader>, Error<ReadError>> {
        let (client, mut next, mut headers) = (self.replicated(), Some(from), Vec::new());
        while let Some(from) = next {
            let page = client.get_block_headers(from, to).await?;
            headers.extend(page.headers);
            next = page.next.filter(|next| from < *next && *next <= to);
        }
        Ok(headers)
    }
}
