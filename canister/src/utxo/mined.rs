//! Blocks that have a transaction, and whether its outputs can be spent.

use super::extras::Extras;
use super::order::Order;
use super::record::{HEAD_BLOCKS, Head, at, encode_block, flag};
use super::{Call, Found, UtxoStore, check_height, hash_of, not_zero};
use crate::api::{BlockRef, MinedTransaction, UtxoError, UtxoSetMined};
use crate::slots::SlotId;

impl UtxoStore {
    /// The blocks that have a record's transaction.
    pub(super) fn blocks(&self, head: &Head) -> Result<Vec<BlockRef>, UtxoError> {
        let mut blocks = head.head_blocks[..head.blocks.min(HEAD_BLOCKS) as usize].to_vec();
        if head.blocks > HEAD_BLOCKS {
            blocks.extend(Extras::load(&self.slots, head)?.blocks);
        }
        Ok(blocks)
    }

    /// Writes them. Where there are more than the head has room for, now or before, this may fail in its middle.
    fn set_blocks(&mut self, slot: SlotId, head: &mut Head, blocks: &[BlockRef]) -> Result<(), UtxoError> {
        let rest = blocks.get(HEAD_BLOCKS as usize..).unwrap_or_default();
        if head.blocks > HEAD_BLOCKS || !rest.is_empty() {
            let mut extras = Extras::load(&self.slots, head)?;
            extras.blocks = rest.to_vec();
            extras.save(&mut self.slots, slot, head)?;
        }
        head.blocks = blocks.len() as u32;
        let mut bytes = head.blocks.to_le_bytes().to_vec();
        for block in blocks.iter().take(HEAD_BLOCKS as usize) {
            bytes.extend(encode_block(*block));
        }
        self.slots.write(slot, at::BLOCKS, &bytes);
        Ok(())
    }

    /// Gives a transaction a block, or takes it, and answers the ids of those that it has then.
    ///
    /// # Errors
    /// [`UtxoError`], and nothing has changed.
    pub fn set_mined(
        &mut self,
        block: &UtxoSetMined,
        item: &MinedTransaction,
        call: &Call,
    ) -> Result<Vec<u32>, UtxoError> {
        call.check()?;
        check_height(block.block_height)?;
        let Found { slot, mut head, .. } = self.find(&hash_of("txid", &item.txid)?)?;
        let head_blocks = head.blocks;
        let mut blocks = self.blocks(&head)?;
        let there = blocks.iter().position(|known| known.block_id == block.block_id);
        match there {
            None if !block.unset => {
                blocks.push(BlockRef { block_id: block.block_id, height: block.block_height, subtree: item.subtree });
            }
            Some(at) if block.unset => drop(blocks.remove(at)),
            _ => {}
        }
        let unmined = head.links[Order::UnminedSince as usize];
        let since = (unmined.next != 0).then_some(unmined.key);
        let since = if blocks.is_empty() || (block.unset && !block.on_longest_chain) {
            since.or(Some(call.height))
        } else if block.on_longest_chain {
            None
        } else {
            since
        };
        let mut change = |store: &mut Self| {
            if blocks.len() as u32 != head.blocks {
                store.set_blocks(slot, &mut head, &blocks)?;
            }
            if since.is_some() && unmined.next == 0 {
                let entering = [(Order::UnminedSince, call.height), (Order::CreatedAt, head.created_secs())];
                store.root.reserve(&store.slots, &entering, &[])?;
            }
            store.set_unmined(slot, &head, since);
            if head.is(flag::LOCKED) {
                store.set_flags(slot, head.flags & !flag::LOCKED);
            }
            store.evaluate(slot, call)
        };
        let in_head = blocks.len() as u32 <= HEAD_BLOCKS && head_blocks <= HEAD_BLOCKS;
        if in_head && self.has_room(3) {
            change(self)?;
        } else {
            self.atomically(change)?;
        }
        Ok(blocks.iter().map(|block| block.block_id).collect())
    }

    /// Locks a transaction's outputs, or unlocks them.
    ///
    /// # Errors
    /// [`UtxoError`], and nothing has changed.
    pub fn set_locked(&mut self, txid: &[u8], locked: bool, call: &Call) -> Result<(), UtxoError> {
        call.check()?;
        let Found { slot, head, .. } = self.find(&hash_of("txid", txid)?)?;
        self.changing(|store| {
            store.lock(slot, &head, locked);
            store.evaluate(slot, call)
        })
    }

    pub(super) fn lock(&mut self, slot: SlotId, head: &Head, locked: bool) {
        let flags = if locked { head.flags | flag::LOCKED } else { head.flags & !flag::LOCKED };
        if flags != head.flags {
            self.set_flags(slot, flags);
        }
    }

    /// Keeps a transaction from being deleted until a height, and says whether it has a record.
    ///
    /// # Errors
    /// [`UtxoError`], and nothing has changed.
    pub fn preserve(&mut self, txid: &[u8], until: u32) -> Result<bool, UtxoError> {
        not_zero(until)?;
        self.preserve_parent(txid, until)
    }

    /// The same, to a height that may be above all that blocks have.
    pub(super) fn preserve_parent(&mut self, txid: &[u8], until: u32) -> Result<bool, UtxoError> {
        let Found { slot, head, .. } = match self.find(&hash_of("txid", txid)?) {
            Ok(found) => found,
            Err(UtxoError::TxNotFound) => return Ok(false),
            Err(error) => return Err(error),
        };
        self.root.reserve(&self.slots, &[(Order::PreserveUntil, until)], &[])?;
        let [delete_at, _, preserved, _] = head.links;
        self.root.set(&mut self.slots, Order::DeleteAt, slot, delete_at, None);
        self.root.set(&mut self.slots, Order::PreserveUntil, slot, preserved, Some(until));
        Ok(true)
    }
}
