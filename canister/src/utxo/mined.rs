//! Blocks that have a transaction, and whether its outputs can be spent.

use super::extras::Extras;
use super::order::Order;
use super::record::{HEAD_BLOCKS, Hash, Head, at, encode_block, flag};
use super::{Call, Found, UtxoStore, check_height, hash_of};
use crate::storage::slots::SlotId;
use coppice_interface::{BlockRef, MAX_HEIGHT, MinedTransaction, UtxoRefusal, UtxoSetMinedBatch};

impl UtxoStore {
    /// The blocks that have a record's transaction.
    pub(super) fn blocks(&self, head: &Head) -> Result<Vec<BlockRef>, UtxoRefusal> {
        let mut blocks = head.head_blocks[..head.blocks.min(HEAD_BLOCKS) as usize].to_vec();
        if head.blocks > HEAD_BLOCKS {
            blocks.extend(Extras::load(&self.slots, head)?.blocks);
        }
        Ok(blocks)
    }

    /// The highest of them; 0: there are none.
    ///
    /// # Errors
    /// `Corrupt`, where there are more than the head has room for.
    #[inline]
    pub(super) fn highest_block(&self, head: &Head) -> Result<u32, UtxoRefusal> {
        let [first, second] = head.head_blocks.map(|block| block.height);
        match head.blocks {
            0 => Ok(0),
            1 => Ok(first),
            HEAD_BLOCKS => Ok(first.max(second)),
            _ => self.highest_of_many(head),
        }
    }

    #[cold]
    fn highest_of_many(&self, head: &Head) -> Result<u32, UtxoRefusal> {
        Ok(self.blocks(head)?.iter().map(|block| block.height).max().unwrap_or(0))
    }

    /// Writes them. Where there are more than the head has room for, now or before, this may fail in its middle.
    fn set_blocks(&mut self, slot: SlotId, head: &mut Head, blocks: &[BlockRef]) -> Result<(), UtxoRefusal> {
        let rest = blocks.get(HEAD_BLOCKS as usize..).unwrap_or_default();
        if head.blocks > HEAD_BLOCKS || !rest.is_empty() {
            let mut extras = Extras::load(&self.slots, head)?;
            extras.blocks = rest.to_vec();
            extras.save(&mut self.slots, slot, head)?;
        }
        head.blocks = blocks.len() as u32;
        self.slots.write_u32(slot, at::BLOCKS, head.blocks);
        for (block, number) in blocks.iter().zip(0..HEAD_BLOCKS) {
            let bytes = encode_block(*block);
            self.slots.write(slot, at::BLOCKS + 4 + number * bytes.len() as u32, &bytes);
        }
        Ok(())
    }

    /// Gives a transaction a block, or takes it, and answers the ids of those that it has then.
    ///
    /// # Errors
    /// [`UtxoRefusal`], and nothing has changed.
    pub fn set_mined(
        &mut self,
        block: &UtxoSetMinedBatch,
        item: &MinedTransaction,
        call: &Call,
    ) -> Result<Vec<u32>, UtxoRefusal> {
        call.check()?;
        call.check_block(block.block_height)?;
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
        let since = if block.unset && there.is_none() {
            head.unmined_since()
        } else if blocks.is_empty() {
            Some(call.height)
        } else if block.on_longest_chain {
            None
        } else {
            head.unmined_since()
        };
        let mut change = |store: &mut Self| {
            if blocks.len() as u32 != head.blocks {
                store.set_blocks(slot, &mut head, &blocks)?;
            }
            store.change_unmined(slot, &head, since)?;
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

    /// Takes a record among the unmined ones, or from them.
    ///
    /// # Errors
    /// `OutOfSpace`, `LowCycles`, and nothing has changed.
    fn change_unmined(&mut self, slot: SlotId, head: &Head, since: Option<u32>) -> Result<(), UtxoRefusal> {
        let before = head.unmined_since();
        if let Some(height) = since
            && before != since
        {
            let key = self.root.unmined_key(height);
            let entering = [(Order::UnminedSince, key), (Order::CreatedAt, head.created_secs())];
            self.root.reserve(&self.slots, &entering, &[])?;
            if before.is_none() {
                self.root.take_back(&mut self.slots);
            }
        }
        self.set_unmined(slot, head, since);
        Ok(())
    }

    /// Says whether the longest chain has a transaction that is in a block; its blocks stay.
    ///
    /// # Errors
    /// [`UtxoRefusal`], and nothing has changed: `NotMined` where no block has it.
    pub fn set_on_longest_chain(
        &mut self,
        txid: &[u8],
        on_longest_chain: bool,
        call: &Call,
    ) -> Result<(), UtxoRefusal> {
        call.check()?;
        let Found { slot, head, .. } = self.find(&hash_of("txid", txid)?)?;
        if on_longest_chain && head.blocks == 0 {
            return Err(UtxoRefusal::NotMined);
        }
        let since = if on_longest_chain { None } else { head.unmined_since().or(Some(call.height)) };
        let change = |store: &mut Self| {
            store.change_unmined(slot, &head, since)?;
            store.evaluate(slot, call)
        };
        if self.has_room(3) { change(self) } else { self.atomically(change) }
    }

    /// Locks a transaction's outputs, or unlocks them.
    ///
    /// # Errors
    /// [`UtxoRefusal`], and nothing has changed.
    pub fn set_locked(&mut self, txid: &[u8], locked: bool, call: &Call) -> Result<(), UtxoRefusal> {
        call.check()?;
        let Found { slot, head, .. } = self.find(&hash_of("txid", txid)?)?;
        self.changing(|store| {
            store.lock(slot, &head, locked);
            if locked {
                // Of a double spend, too, until something else evaluates it.
                store.set_delete_at(slot, &store.head(slot), None);
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

    /// Keeps a transaction from being deleted until a height, and says whether it has a record.
    ///
    /// # Errors
    /// [`UtxoRefusal`], and nothing has changed.
    pub fn preserve(&mut self, txid: &[u8], until: u32) -> Result<bool, UtxoRefusal> {
        if until == 0 {
            return Err(UtxoRefusal::ZeroHeight);
        }
        check_height(until, MAX_HEIGHT)?;
        self.preserve_found(&hash_of("txid", txid)?, |_| Some(until))
    }

    /// Phase 1's: until a height, which may be above all that blocks have, or later. What is preserved for longer stays so.
    pub(super) fn preserve_parent(&mut self, txid: &Hash, until: u32) -> Result<bool, UtxoRefusal> {
        self.preserve_found(txid, |before| (before < Some(until)).then_some(until))
    }

    fn preserve_found(&mut self, txid: &Hash, to: impl Fn(Option<u32>) -> Option<u32>) -> Result<bool, UtxoRefusal> {
        let Found { slot, head, .. } = match self.find(txid) {
            Ok(found) => found,
            Err(UtxoRefusal::TxNotFound) => return Ok(false),
            Err(error) => return Err(error),
        };
        let Some(until) = to(head.links[Order::PreserveUntil as usize].key()) else { return Ok(true) };
        self.root.reserve(&self.slots, &[(Order::PreserveUntil, until)], &[])?;
        let preserved = head.links[Order::PreserveUntil as usize];
        if head.delete_at().is_some() {
            self.set_delete_at(slot, &head, None);
        }
        self.root.set(&mut self.slots, Order::PreserveUntil, slot, preserved, Some(until));
        Ok(true)
    }
}
