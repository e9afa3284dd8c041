//! Hashes of a canister's blocks, proved from the subnet's certificate of the head downwards.
//!
//! ```text
//! certificate ──▶ seal of the head = SHA-256(seal before ‖ leaf of the header) ──▶ seal before = … ──▶ the oldest block that was asked for
//! ```
//! A header that hashes to a proved seal is proved, and so is the seal before it, from any sender.

use alloy_primitives::B256;
use anyhow::{Context as _, Result, ensure};
use ic_coppice_cli::index::header::Header;
use ic_coppice_client::certificate::Kept;
use ic_coppice_interface::BlockHeader;
use ic_coppice_interface::seals::{Seal, seal};
use std::collections::VecDeque;
use std::ops::RangeInclusive;

/// Headers of the first page: most heads are a few blocks above the last one.
const FEW: u64 = 16;
/// Headers of the following pages: less than a page of the canister, so that the header before fits, too.
const MANY: u64 = 999;

/// Reads the headers of a range, oldest first; fewer than asked for is an error.
pub type Pages<'a> = &'a mut dyn FnMut(RangeInclusive<u64>) -> Result<Vec<BlockHeader>>;

/// Consecutive blocks up to the head.
#[derive(Clone, Debug, Default)]
pub struct Proved {
    /// The number of the first block.
    lowest: u64,
    /// The seal before the first block.
    before: Seal,
    blocks: VecDeque<(B256, Seal)>,
}

impl Proved {
    /// The number of the first proved block, and of the head; `None` before the first certificate.
    pub fn range(&self) -> Option<RangeInclusive<u64>> {
        let last = (self.blocks.len() as u64).checked_sub(1)?;
        Some(self.lowest..=self.lowest + last)
    }

    /// Returns the proved hash of a block.
    pub fn hash(&self, number: u64) -> Option<B256> {
        self.at(number).map(|(hash, _)| hash)
    }

    fn at(&self, number: u64) -> Option<(B256, Seal)> {
        self.blocks.get(usize::try_from(number.checked_sub(self.lowest)?).ok()?).copied()
    }

    /// Moves to another head, which the subnet has certified. Blocks of another branch are forgotten.
    ///
    /// # Errors
    /// When the headers of the pages do not lead to the head's seal; nothing has changed then.
    pub fn advance(&mut self, head: (u64, Seal), kept: Kept, pages: Pages<'_>) -> Result<()> {
        let (number, certified) = head;
        let mut above = VecDeque::new();
        let (mut next, mut expected, mut page) = (number, certified, FEW);
        loop {
            if self.at(next).is_some_and(|(_, seal)| seal == expected) {
                // The branches join here.
                self.blocks.truncate((next - self.lowest) as usize + 1);
                self.blocks.extend(above);
                return Ok(());
            }
            let reached = self.lowest;
            let has_none_in_common = self.blocks.is_empty() || next <= reached;
            if has_none_in_common && !above.is_empty() || next < kept.first {
                let first = number + 1 - above.len() as u64;
                *self = Self { lowest: first, before: expected, blocks: above };
                return Ok(());
            }
            let low = next.saturating_sub(page - 1).max(kept.first);
            walk(low..=next, &mut expected, kept, pages, |block| above.push_front(block))?;
            let Some(below) = low.checked_sub(1) else {
                *self = Self { lowest: low, before: expected, blocks: above };
                return Ok(());
            };
            (next, page) = (below, MANY);
        }
    }

    /// Proves the blocks down to a kept one.
    ///
    /// # Errors
    /// As [`advance`](Self::advance).
    pub fn reach(&mut self, number: u64, kept: Kept, pages: Pages<'_>) -> Result<()> {
        ensure!(number >= kept.first, "block {number} was pruned");
        while !self.blocks.is_empty() && number < self.lowest {
            let high = self.lowest - 1;
            let low = high.saturating_sub(MANY - 1).max(number).max(kept.first);
            let (mut expected, mut below) = (self.before, Vec::new());
            walk(low..=high, &mut expected, kept, pages, |block| below.push(block))?;
            below.into_iter().for_each(|block| self.blocks.push_front(block));
            (self.lowest, self.before) = (low, expected);
        }
        Ok(())
    }
}

/// Proves a range of headers by the seal of the last one, newest first, and leaves the seal before the first one.
fn walk(
    range: RangeInclusive<u64>,
    expected: &mut Seal,
    kept: Kept,
    pages: Pages<'_>,
    mut each: impl FnMut((B256, Seal)),
) -> Result<()> {
    let (low, high) = range.into_inner();
    // The header before the range carries the seal before it.
    let from = low.saturating_sub(1).max(kept.first);
    let headers = pages(from..=high)?;
    let is_whole = headers.len() as u64 == high - from + 1;
    ensure!(
        is_whole && headers.iter().zip(from..).all(|(header, number)| header.number == number),
        "the replica does not send the headers of blocks {from} to {high}"
    );
    for at in (0..headers.len()).rev() {
        let header = &headers[at];
        if header.number < low {
            break;
        }
        let before = match at.checked_sub(1) {
            Some(before) => headers[before].seal.as_slice().try_into().context("a seal has another length")?,
            None => kept.before,
        };
        let leaf = Header::of(header, None)?.leaf()?;
        ensure!(
            seal(&before, &leaf) == *expected,
            "the replica's header of block {} is not the one that the subnet has certified, or a reorg replaced it meanwhile",
            header.number
        );
        let hash = B256::try_from(header.hash.as_ref()).ok();
        let hash =
            hash.with_context(|| format!("block {} has a hash of {} bytes", header.number, header.hash.len()))?;
        each((hash, *expected));
        *expected = before;
    }
    Ok(())
}
