//! Blocks that have a transaction, whether these are on the longest chain (`unmined_since`), and locks.

use super::call::{Answer, Call, check_height, hash_of};
use super::record::extras::Extras;
use super::record::{HEAD_BLOCKS, Head, LATE, Order, at, encode_block, flag};
use super::spend::Spends;
use super::store::{BytesOf, Found, UtxoStore};
use ic_coppice_interface::{BlockRef, MinedTransaction, UtxoRefusal, UtxoSetMinedBatch};
use ic_coppice_storage::blob::BlobStore;
use ic_coppice_storage::slots::SlotId;

/// A block to add to records, or to remove from them.
#[derive(Clone, Copy, Debug)]
pub(super) struct MinedChange {
    pub block: BlockRef,
    /// The longest chain has the block or, after its removal, the remaining blocks.
    pub on_longest_chain: bool,
    /// True to remove the block.
    pub unset: bool,
    /// Flags that the record loses.
    pub clears: u16,
}

impl UtxoStore {
    /// Returns the blocks that have a record's transaction.
    pub(super) fn blocks(&self, head: &Head) -> Answer<Vec<BlockRef>> {
        let mut blocks = head.head_blocks[..head.blocks.min(HEAD_BLOCKS) as usize].to_vec();
        if head.blocks > HEAD_BLOCKS {
            blocks.extend(Extras::load(&self.slots, head)?.blocks);
        }
        Ok(blocks)
    }

    /// Returns the height of the highest block, or 0 if there is no block.
    ///
    /// # Errors
    /// `Corrupt`, only if the record has more blocks than its head has room for.
    #[inline]
    pub(super) fn highest_block(&self, head: &Head) -> Answer<u32> {
        head.highest_of_few().map_or_else(|| self.highest_of_many(head), Ok)
    }

    #[cold]
    pub(super) fn highest_of_many(&self, head: &Head) -> Answer<u32> {
        Ok(self.blocks(head)?.iter().map(|block| block.height).max().unwrap_or(0))
    }

    /// Writes a record's blocks. The operation may fail in its middle if there are more blocks than the head has room for, now or before.
    fn set_blocks(&mut self, slot: SlotId, head: &mut Head, blocks: &[BlockRef]) -> Answer<()> {
        let rest = blocks.get(HEAD_BLOCKS as usize..).unwrap_or_default();
        if head.blocks > HEAD_BLOCKS || !rest.is_empty() {
            let mut extras = Extras::load(&self.slots, head)?;
            extras.blocks = rest.to_vec();
            extras.save(&mut self.slots, slot, head)?;
        }
        head.blocks = blocks.len() as u32;
        self.slots.write_u32(slot, at::BLOCKS, head.blocks);
        for (block, number) in blocks.iter().zip(0..HEAD_BLOCKS) {
            self.slots.write(slot, at::BLOCKS + 4 + 12 * number, encode_block(*block).as_flattened());
        }
        Ok(())
    }

    /// Returns the block with an id if a record has it.
    pub(super) fn block_of(&self, head: &Head, block_id: u32) -> Answer<Option<BlockRef>> {
        Ok(self.blocks(head)?.into_iter().find(|known| known.block_id == block_id))
    }

    /// Adds a block to a transaction, or removes the block with its id, and returns the ids of the transaction's blocks. A transaction that
    /// loses a block keeps its bytes.
    ///
    /// # Errors
    /// [`UtxoRefusal`], and nothing has changed: `OtherBlock` if the added block's id has another height or subtree.
    pub fn set_mined(
        &mut self,
        block: &UtxoSetMinedBatch,
        item: &MinedTransaction,
        call: &Call,
        (blobs, bytes_of): (&mut BlobStore, impl BytesOf),
    ) -> Answer<Vec<u32>> {
        call.check()?;
        check_height(block.block_height, call.most)?;
        let mut found = self.find(&hash_of("txid", &item.txid)?)?;
        let UtxoSetMinedBatch { block_id, block_height: height, on_longest_chain, unset, .. } = *block;
        let block = BlockRef { block_id, height, subtree: item.subtree };
        match self.block_of(&found.head, block_id)? {
            Some(_) if unset => self.keep_bytes(blobs, &mut found, bytes_of, call)?,
            Some(known) if known != block => return Err(UtxoRefusal::OtherBlock { block: known }),
            _ => {}
        }
        let change = MinedChange { block, on_longest_chain, unset, clears: flag::LOCKED };
        let blocks = self.mine(found, &change, None, call)?.0;
        Ok(blocks.iter().map(|block| block.block_id).collect())
    }

    /// Adds a block to a record, or removes it, and makes the planned spends: both or neither. Returns the record's blocks, and the number of
    /// outputs that were not spent before.
    ///
    /// # Errors
    /// [`UtxoRefusal`], and nothing has changed.
    pub(super) fn mine(
        &mut self,
        Found { slot, mut head, .. }: Found,
        of: &MinedChange,
        spends: Option<&Spends>,
        call: &Call,
    ) -> Answer<(Vec<BlockRef>, u32)> {
        self.check_links(slot, &head, [Order::UnminedSince, Order::CreatedAt])?;
        let head_blocks = head.blocks;
        // A coinbase that another block repeats (BIP 30) is spendable once the higher block is mature.
        let mature = of.block.height.saturating_add(call.settings.coinbase_maturity);
        let ripens = !of.unset && head.is(flag::COINBASE) && mature > head.spending_height;
        let mut blocks = self.blocks(&head)?;
        let there = blocks.iter().position(|known| known.block_id == of.block.block_id);
        match there {
            None if !of.unset => blocks.push(of.block),
            Some(at) if of.unset => drop(blocks.remove(at)),
            _ => {}
        }
        let since = match head.unmined_since() {
            since if of.unset && there.is_none() => since,
            since if blocks.is_empty() => since.or(Some(call.height)),
            _ if of.on_longest_chain => None,
            since => since,
        };
        let mut change = |store: &mut Self| {
            if blocks.len() as u32 != head.blocks {
                store.set_blocks(slot, &mut head, &blocks)?;
            }
            store.change_unmined(slot, &head, since)?;
            if ripens && there.is_none() {
                store.slots.write_u32(slot, at::SPENDING_HEIGHT, mature);
            }
            if head.is(of.clears) {
                store.set_flags(slot, head.flags & !of.clears);
            }
            store.evaluate(slot, call)?;
            spends.map_or(Ok(0), |spends| store.make(spends, call))
        };
        let in_head = blocks.len() as u32 <= HEAD_BLOCKS && head_blocks <= HEAD_BLOCKS;
        let entries = 3 + spends.map_or(0, Spends::entries);
        let spent = if in_head && self.reserve_entries(entries) { change(self)? } else { self.atomically(change)? };
        Ok((blocks, spent))
    }

    /// Enters a record in the indexes of unmined records as late, or removes it; a record that is there stays. Memory for two entries is
    /// reserved, or a journal has begun.
    ///
    /// # Errors
    /// `OutOfSpace`, `LowCycles`, only in a journal, and nothing has changed.
    fn change_unmined(&mut self, slot: SlotId, head: &Head, since: Option<u32>) -> Answer<()> {
        if since.is_some() && head.unmined_since().is_some() {
            return Ok(());
        }
        // Its parents may be due already, because the transaction was mined when they were spent.
        let key = since.map(|height| height | LATE);
        if let Some(key) = key {
            self.reserve_more(&[(Order::UnminedSince, key), (Order::CreatedAt, head.created_secs())])?;
            self.root.count_revert(&mut self.slots);
        }
        self.set_unmined(slot, head, key);
        Ok(())
    }

    /// Marks a record as late if it is unmined, because it spends from now on. The operation keeps a journal.
    ///
    /// # Errors
    /// `OutOfSpace`, `LowCycles`.
    pub(super) fn mark_late(&mut self, slot: SlotId, head: &Head) -> Answer<()> {
        let Some(height) = head.unmined_since() else { return Ok(()) };
        let key = height | LATE;
        self.reserve_more(&[(Order::UnminedSince, key)])?;
        self.root.set(&mut self.slots, Order::UnminedSince, slot, head.link(Order::UnminedSince), Some(key));
        Ok(())
    }

    /// Sets whether the longest chain has a transaction; the transaction's blocks stay. A transaction that leaves the chain keeps its bytes.
    ///
    /// # Errors
    /// [`UtxoRefusal`], and nothing has changed: `NotMined` if no block has the transaction.
    pub fn set_on_longest_chain(
        &mut self,
        txid: &[u8],
        on_longest_chain: bool,
        call: &Call,
        (blobs, bytes_of): (&mut BlobStore, impl BytesOf),
    ) -> Answer<()> {
        call.check()?;
        let mut found = self.find(&hash_of("txid", txid)?)?;
        if on_longest_chain && found.head.blocks == 0 {
            return Err(UtxoRefusal::NotMined);
        }
        if !on_longest_chain {
            self.keep_bytes(blobs, &mut found, bytes_of, call)?;
        }
        let Found { slot, head, .. } = found;
        self.check_links(slot, &head, [Order::UnminedSince, Order::CreatedAt])?;
        let since = if on_longest_chain { None } else { head.unmined_since().or(Some(call.height)) };
        self.changing(3, |store| {
            store.change_unmined(slot, &head, since)?;
            store.evaluate(slot, call)
        })
    }

    /// Locks or unlocks a transaction's outputs.
    ///
    /// # Errors
    /// [`UtxoRefusal`], and nothing has changed.
    pub fn set_locked(&mut self, txid: &[u8], locked: bool, call: &Call) -> Answer<()> {
        call.check()?;
        let Found { slot, head, .. } = self.find(&hash_of("txid", txid)?)?;
        self.changing(1, |store| {
            store.lock(slot, &head, locked);
            if locked {
                // A double spend leaves the index, too, until something else evaluates it.
                store.set_delete_at(slot, store.head(slot).due(), None);
                return Ok(());
            }
            store.evaluate(slot, call)
        })
    }

    pub(super) fn lock(&mut self, slot: SlotId, head: &Head, locked: bool) {
        let flags = if locked { head.flags | flag::LOCKED } else { head.flags & !flag::LOCKED };
        if flags != head.flags {
            self.set_flags(slot, flags);
        }
    }
}
