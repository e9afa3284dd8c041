//! The head of a master record.

use super::layout::{ENTRY, HEAD, HEAD_BLOCKS, Hash, INLINE_INPUTS, INPUT, INPUTS_OF_PAGE, LATE, MASTER, Order, flag};
use ic_coppice_interface::{BlockRef, UtxoSettings};
use ic_coppice_storage::slots::SlotId;
use ic_coppice_storage::slots::rings::Link;

/// The head of a master record; `layout` describes its fields.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Head {
    pub flags: u16,
    pub batch: u32,
    pub txid: Hash,
    pub outputs: u32,
    pub total_utxos: u32,
    pub extra_pages: u32,
    pub spent_extra: u32,
    pub utxos: u32,
    pub spent: u32,
    pub frozen: u32,
    pub frozen_extra: u32,
    pub spending_height: u32,
    pub extras: SlotId,
    pub created_at_ns: u64,
    pub fee: u64,
    pub size: u64,
    pub version: u32,
    pub lock_time: u32,
    pub inputs: u32,
    pub transaction_len: u32,
    pub blocks: u32,
    pub head_blocks: [BlockRef; HEAD_BLOCKS as usize],
    pub links: [Link; 4],
    pub note: u32,
}

/// The part of a head on which its place among the due records depends.
#[derive(Clone, Copy, Debug)]
pub struct Due {
    /// The link in [`Order::DeleteAt`].
    pub link: Link,
    pub flags: u16,
    pub note: u32,
}

impl Head {
    /// Returns `None` if the bytes are not the head of a master that this code wrote.
    #[inline]
    pub fn decode(b: &[u8; HEAD as usize]) -> Option<Self> {
        if b[..2] != MASTER {
            return None;
        }
        let word = |at: usize| u32::from_le_bytes([b[at], b[at + 1], b[at + 2], b[at + 3]]);
        let long = |at: usize| u64::from(word(at)) | u64::from(word(at + 4)) << 32;
        let block = |at: usize| BlockRef { block_id: word(at), height: word(at + 4), subtree: word(at + 8) };
        let link = |at: usize| Link { key: word(at), previous: word(at + 4), next: word(at + 8) };
        let head = Self {
            flags: u16::from_le_bytes([b[2], b[3]]),
            batch: word(4),
            txid: *b[8..].first_chunk()?,
            outputs: word(40),
            total_utxos: word(44),
            extra_pages: word(48),
            spent_extra: word(52),
            utxos: word(56),
            spent: word(60),
            frozen: word(64),
            frozen_extra: word(68),
            spending_height: word(72),
            extras: word(76),
            created_at_ns: long(80),
            fee: long(88),
            size: long(96),
            version: word(104),
            lock_time: word(108),
            inputs: word(112),
            transaction_len: word(116),
            blocks: word(120),
            head_blocks: [block(124), block(136)],
            links: [link(148), link(160), link(172), link(184)],
            note: word(196),
        };
        (head.batch > 0).then_some(head)
    }

    /// Returns the head's bytes, as words. An array takes fewer instructions than a vector, whose every append compares lengths; copies of at
    /// most 64 bytes become stores.
    pub fn encode(&self) -> [[u8; 4]; HEAD as usize / 4] {
        let mut words = [[0; 4]; HEAD as usize / 4];
        let ([kind, layout], [flags, more_flags]) = (MASTER, self.flags.to_le_bytes());
        words[..2].copy_from_slice(&[[kind, layout, flags, more_flags], self.batch.to_le_bytes()]);
        words[2..10].copy_from_slice(self.txid.as_chunks().0);
        let pages = [self.outputs, self.total_utxos, self.extra_pages, self.spent_extra];
        let own = [self.utxos, self.spent, self.frozen, self.frozen_extra, self.spending_height, self.extras];
        words[10..14].copy_from_slice(&pages.map(u32::to_le_bytes));
        words[14..20].copy_from_slice(&own.map(u32::to_le_bytes));
        let longs = [self.created_at_ns, self.fee, self.size].map(u64::to_le_bytes);
        words[20..26].copy_from_slice(longs.as_flattened().as_chunks().0);
        let of_transaction = [self.version, self.lock_time, self.inputs, self.transaction_len, self.blocks];
        words[26..31].copy_from_slice(&of_transaction.map(u32::to_le_bytes));
        words[31..37].copy_from_slice(self.head_blocks.map(encode_block).as_flattened());
        words[37..49].copy_from_slice(self.links.map(Link::encode).as_flattened());
        words[49] = self.note.to_le_bytes();
        words
    }

    /// Returns the maximum number of 4 KiB pages that hold the outputs.
    pub fn pages(&self) -> u64 {
        u64::from(ENTRY) * u64::from(self.outputs) / 4_096 + 2 * (1 + u64::from(self.extra_pages))
    }

    /// Returns whether a flag is set.
    #[inline]
    pub fn is(&self, flag: u16) -> bool {
        self.flags & flag != 0
    }

    /// Returns the outputs whose entries lie in the master.
    #[inline]
    pub fn own_outputs(&self) -> u32 {
        self.outputs.min(self.batch)
    }

    /// Returns the offset of the inputs.
    #[inline]
    pub fn inputs_at(&self) -> u32 {
        HEAD + ENTRY * self.own_outputs()
    }

    /// Returns the offset of the page directory.
    #[inline]
    pub fn directory_at(&self) -> u32 {
        let inline = if self.inputs > INLINE_INPUTS { 0 } else { self.inputs };
        self.inputs_at() + INPUT * inline
    }

    /// Returns the pages of inputs; the directory lists them after the pages of outputs.
    #[inline]
    pub fn input_pages(&self) -> u32 {
        if self.inputs > INLINE_INPUTS { self.inputs.div_ceil(INPUTS_OF_PAGE) } else { 0 }
    }

    /// Returns the offset of the transaction.
    #[inline]
    pub fn transaction_at(&self) -> u32 {
        self.directory_at() + 4 * (self.extra_pages + self.input_pages())
    }

    /// Returns the bytes of the whole record, without overflow for fields that are damaged.
    pub fn bytes(&self) -> u64 {
        let inputs = if self.inputs > INLINE_INPUTS { 0 } else { u64::from(self.inputs) };
        let pages = u64::from(self.extra_pages) + u64::from(self.input_pages());
        let fixed = u64::from(HEAD) + u64::from(ENTRY) * u64::from(self.own_outputs());
        fixed + u64::from(INPUT) * inputs + 4 * pages + u64::from(self.transaction_len)
    }

    /// Returns whether the transaction's bytes are kept apart from the record.
    pub fn is_apart(&self, settings: &UtxoSettings) -> bool {
        let has_pages = self.extra_pages > 0 || self.input_pages() > 0;
        settings.externalize_all || has_pages || self.size > u64::from(settings.max_tx_size_in_store)
    }

    /// Returns the record's link in an index.
    #[inline]
    pub fn link(&self, order: Order) -> Link {
        self.links[order as usize]
    }

    /// Returns the key of an index, or `None` if the record is not in the index.
    #[inline]
    pub fn key(&self, order: Order) -> Option<u32> {
        self.link(order).key()
    }

    /// Returns the key of the index by `created_at_ns`: Unix seconds.
    #[inline]
    pub fn created_secs(&self) -> u32 {
        (self.created_at_ns / 1_000_000_000) as u32
    }

    /// Returns the height at which the record may be deleted, whatever the height of its next examination.
    #[inline]
    pub fn delete_at(&self) -> Option<u32> {
        let key = self.key(Order::DeleteAt)?;
        Some(if self.is(flag::POSTPONED) { self.note } else { key })
    }

    /// Returns the height since which the longest chain has not had the transaction.
    #[inline]
    pub fn unmined_since(&self) -> Option<u32> {
        self.key(Order::UnminedSince).map(|key| key & !LATE)
    }

    /// Returns whether the transaction is part of the longest chain.
    #[inline]
    pub fn mined(&self) -> bool {
        self.blocks > 0 && self.link(Order::UnminedSince).next == 0
    }

    /// Returns whether a block of the record may lie above a height.
    #[inline]
    pub fn may_be_above(&self, height: u32) -> bool {
        self.blocks > HEAD_BLOCKS || self.head_blocks.iter().any(|block| block.height > height)
    }

    /// Returns the height of the highest block, or 0 if there is none; `None` if there are more blocks than the head has room for.
    #[inline]
    pub fn highest_of_few(&self) -> Option<u32> {
        let [first, second] = self.head_blocks.map(|block| block.height);
        match self.blocks {
            0 => Some(0),
            1 => Some(first),
            HEAD_BLOCKS => Some(first.max(second)),
            _ => None,
        }
    }

    /// Returns the part on which the record's place among the due records depends.
    #[inline]
    pub fn due(&self) -> Due {
        Due { link: self.link(Order::DeleteAt), flags: self.flags, note: self.note }
    }

    /// Returns whether the record may be deleted once no height preserves it.
    #[inline]
    pub fn eligible(&self) -> bool {
        // Every UTXO on every page.
        let all_spent = || self.spent == self.utxos && self.spent_extra == self.extra_pages;
        let done = !self.is(flag::LOCKED) && self.mined() && all_spent() && !self.any_frozen();
        self.is(flag::CONFLICTING) || done
    }

    /// Returns whether the record may be deleted, or is being deleted.
    pub fn deletable(&self) -> bool {
        self.is(flag::DELETING) || (self.eligible() && self.key(Order::PreserveUntil).is_none())
    }

    /// Returns whether the record became due in the middle of a run, which leaves the record to the next run.
    pub fn is_left_by(&self, run: u32) -> bool {
        !self.is(flag::POSTPONED | flag::DELETING) && self.note == run
    }

    /// Returns whether an output on any page is frozen.
    #[inline]
    pub fn any_frozen(&self) -> bool {
        self.frozen > 0 || self.frozen_extra > 0
    }
}

/// Returns the bytes of a block, as words.
pub fn encode_block(block: BlockRef) -> [[u8; 4]; 3] {
    [block.block_id, block.height, block.subtree].map(u32::to_le_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_layout_is_part_of_the_format() {
        let block = |i: u32| BlockRef { block_id: i, height: i + 1, subtree: i + 2 };
        let link = |i: u32| Link { key: i, previous: i + 1, next: i + 2 };
        let head = Head {
            flags: 0x0102,
            batch: 3,
            txid: [9; 32],
            outputs: 40,
            total_utxos: 44,
            extra_pages: 48,
            spent_extra: 52,
            utxos: 56,
            spent: 60,
            frozen: 64,
            frozen_extra: 68,
            spending_height: 72,
            extras: 76,
            created_at_ns: 80 << 32,
            fee: 88 << 32,
            size: 96 << 32,
            version: 104,
            lock_time: 108,
            inputs: 112,
            transaction_len: 116,
            blocks: 120,
            head_blocks: [block(124), block(136)],
            links: [link(148), link(160), link(172), link(184)],
            note: 196,
        };
        let bytes: [u8; HEAD as usize] = head.encode().as_flattened().try_into().unwrap();
        assert_eq!(Head::decode(&bytes), Some(head));
        for at in (40..80).step_by(4).chain((104..124).step_by(4)).chain((124..196).step_by(12)) {
            assert_eq!(bytes[at], at as u8, "each field lies where the module says");
        }
        assert_eq!((bytes[84], bytes[92], bytes[100], bytes[196..].to_vec()), (80, 88, 96, vec![196, 0, 0, 0]));
        for at in 0..2 {
            let mut broken = bytes;
            broken[at] += 1;
            assert_eq!(Head::decode(&broken), None);
        }
    }
}
