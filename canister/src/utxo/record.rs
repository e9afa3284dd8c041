//! A record as it lies in its slot.
//!
//! ```text
//! master:  ┌─ head, 200 ─┬─ entries: n × 72 ─┬─ inputs: m × 36 ─┬─ directory: p × u32 ─┬─ transaction ─┐
//! page:    ┌─ head,  24 ─┬─ entries: n × 72 ─┐
//! input page (of more than 50,000 inputs, none of which then lies in the master): ┌─ inputs: m × 36 ─┐
//!
//! head of a master
//!   0 kind u8 1      1 version u8 1     2 flags u16          4 outputs of a page u32     8 txid 32
//!  40 outputs u32   44 UTXOs of all pages u32               48 extra pages u32          52 of them all spent u32
//!  56 UTXOs u32     60 spent u32       64 frozen u32        68 extra pages with frozen outputs u32
//!  72 spending height u32              76 slot of the extras u32                        80 created at u64
//!  88 fee u64       96 size u64       104 version u32      108 lock time u32           112 inputs u32
//! 116 bytes of the transaction u32    120 blocks u32       124 two of them: 2 × (id, height, subtree) u32
//! 148 links: 4 × (key, previous, next) u32                 196 note u32: see `POSTPONED`
//!
//! head of a page: 0 kind u8 2  1 version u8 1  4 number u32  8 UTXOs u32  12 spent u32  16 frozen u32  20 master u32
//! entry:          0 hash 32  32 state u32  36 spending data: txid 32 ‖ vin u32
//! input:          0 txid 32  32 vout u32
//! ```
//! The transaction is its bytes, or where they lie: see `place`.

use super::order::{LATE, Order};
use crate::storage::slots::ring::Link;
use crate::storage::slots::{SlotId, Slots};
use coppice_interface::BlockRef;

/// A 32-byte hash in internal order.
pub type Hash = [u8; 32];

/// Bytes of a master's head.
pub const HEAD: u32 = 200;
/// Bytes of a page's head.
pub const PAGE_HEAD: u32 = 24;
/// Bytes of an entry.
pub const ENTRY: u32 = 72;
/// Bytes of an input.
pub const INPUT: u32 = 36;
/// Inputs that the master has room for; more lie on pages of their own.
pub const INLINE_INPUTS: u32 = 50_000;
/// Inputs of such a page.
pub const INPUTS_OF_PAGE: u32 = 50_000;
/// Blocks that the head has room for.
pub const HEAD_BLOCKS: u32 = 2;

/// What a master's slot begins with.
pub const MASTER: [u8; 2] = [1, 1];
/// What a page's slot begins with.
pub const EXTRA: [u8; 2] = [2, 1];

/// Flags of a record.
pub mod flag {
    /// It is a coinbase.
    pub const COINBASE: u16 = 1;
    /// Its outputs cannot be spent yet.
    pub const LOCKED: u16 = 2;
    /// It is a double spend.
    pub const CONFLICTING: u16 = 4;
    /// Its bytes lie in the BlobStore or outside.
    pub const EXTERNAL: u16 = 8;
    /// Its bytes lie outside.
    pub const OUTSIDE: u16 = 16;
    /// Its bytes are of its outputs only.
    pub const PARTIAL: u16 = 32;
    /// Its bytes say what its inputs spend.
    pub const EXTENDED: u16 = 64;
    /// Its fee is known.
    pub const FEE: u16 = 128;
    /// It is going.
    pub const DELETING: u16 = 256;
    /// The pruner looks at it again under its key in the index of those to delete, and its height is in the note. Without: the
    /// note is the number of the run that it is to be left alone by, as it became due in its middle.
    pub const POSTPONED: u16 = 512;
    /// Its spenders are being looked up, and none of its outputs has changed hands since that began.
    pub const CHECKED: u16 = 1_024;
}

/// Where the fields of a master's head lie that are written alone.
pub mod at {
    pub const FLAGS: u32 = 2;
    pub const TXID: u32 = 8;
    pub const OUTPUTS: u32 = 40;
    pub const EXTRA_PAGES: u32 = 48;
    pub const SPENT_EXTRA: u32 = 52;
    pub const SPENT: u32 = 60;
    pub const FROZEN: u32 = 64;
    pub const FROZEN_EXTRA: u32 = 68;
    pub const EXTRAS: u32 = 76;
    /// And behind it the bytes of the transaction.
    pub const INPUTS: u32 = 112;
    pub const BLOCKS: u32 = 120;
    pub const LINKS: u32 = 148;
    pub const NOTE: u32 = 196;
}

/// Where the fields of a page's head lie that are written alone.
pub mod page_at {
    pub const UTXOS: u32 = 8;
    pub const SPENT: u32 = 12;
    pub const FROZEN: u32 = 16;
    pub const MASTER: u32 = 20;
}

/// The head of a master record.
#[derive(Clone, Debug, PartialEq, Eq)]
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
    pub created_at: u64,
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

impl Head {
    /// `None` where the bytes are not those of a master that this code wrote.
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
            created_at: long(80),
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

    /// Appends the head's bytes.
    pub fn encode_onto(&self, out: &mut Vec<u8>) {
        let start = out.len();
        out.extend(MASTER);
        out.extend(self.flags.to_le_bytes());
        out.extend(self.batch.to_le_bytes());
        out.extend(self.txid);
        for word in [self.outputs, self.total_utxos, self.extra_pages, self.spent_extra] {
            out.extend(word.to_le_bytes());
        }
        for word in [self.utxos, self.spent, self.frozen, self.frozen_extra, self.spending_height, self.extras] {
            out.extend(word.to_le_bytes());
        }
        for long in [self.created_at, self.fee, self.size] {
            out.extend(long.to_le_bytes());
        }
        for word in [self.version, self.lock_time, self.inputs, self.transaction_len, self.blocks] {
            out.extend(word.to_le_bytes());
        }
        for block in self.head_blocks {
            out.extend(encode_block(block));
        }
        for link in self.links {
            out.extend(link.encode());
        }
        out.extend(self.note.to_le_bytes());
        debug_assert_eq!(out.len() - start, HEAD as usize);
    }

    /// Pages of 4 KiB on which its outputs lie, at most.
    pub fn pages(&self) -> u64 {
        u64::from(ENTRY) * u64::from(self.outputs) / 4_096 + 2 * (1 + u64::from(self.extra_pages))
    }

    /// Whether a flag is set.
    #[inline]
    pub fn is(&self, flag: u16) -> bool {
        self.flags & flag != 0
    }

    /// Outputs whose entries lie in the master.
    #[inline]
    pub fn own_outputs(&self) -> u32 {
        self.outputs.min(self.batch)
    }

    /// Where the inputs begin.
    #[inline]
    pub fn inputs_at(&self) -> u32 {
        HEAD + ENTRY * self.own_outputs()
    }

    /// Where the page directory begins.
    #[inline]
    pub fn directory_at(&self) -> u32 {
        let inline = if self.inputs > INLINE_INPUTS { 0 } else { self.inputs };
        self.inputs_at() + INPUT * inline
    }

    /// Pages of inputs; the directory names them behind the pages of outputs.
    #[inline]
    pub fn input_pages(&self) -> u32 {
        if self.inputs > INLINE_INPUTS { self.inputs.div_ceil(INPUTS_OF_PAGE) } else { 0 }
    }

    /// Where the transaction begins.
    #[inline]
    pub fn transaction_at(&self) -> u32 {
        self.directory_at() + 4 * (self.extra_pages + self.input_pages())
    }

    /// Bytes of the whole record.
    pub fn len(&self) -> u32 {
        self.transaction_at() + self.transaction_len
    }

    /// The same, whatever the fields say.
    pub fn bytes(&self) -> u64 {
        let inputs = if self.inputs > INLINE_INPUTS { 0 } else { u64::from(self.inputs) };
        let pages = u64::from(self.extra_pages) + u64::from(self.input_pages());
        let fixed = u64::from(HEAD) + u64::from(ENTRY) * u64::from(self.own_outputs());
        fixed + u64::from(INPUT) * inputs + 4 * pages + u64::from(self.transaction_len)
    }

    /// The key under which it lies in the index by `created_at`: Unix seconds.
    #[inline]
    pub fn created_secs(&self) -> u32 {
        (self.created_at / 1_000_000_000) as u32
    }

    /// The height at which it may be deleted, whenever the pruner looks at it next.
    #[inline]
    pub fn delete_at(&self) -> Option<u32> {
        let key = self.links[Order::DeleteAt as usize].key()?;
        Some(if self.is(flag::POSTPONED) { self.note } else { key })
    }

    /// The height since which the longest chain has not had it.
    #[inline]
    pub fn unmined_since(&self) -> Option<u32> {
        self.links[Order::UnminedSince as usize].key().map(|key| key & !LATE)
    }

    /// Whether it is part of the longest chain.
    #[inline]
    pub fn mined(&self) -> bool {
        self.blocks > 0 && self.links[Order::UnminedSince as usize].next == 0
    }

    /// Whether it may be among those to delete, as far as it is not preserved.
    #[inline]
    pub fn eligible(&self) -> bool {
        let done = !self.is(flag::LOCKED) && self.mined() && self.all_spent() && !self.any_frozen();
        self.is(flag::CONFLICTING) || done
    }

    /// Whether every UTXO on every page is spent.
    #[inline]
    pub fn all_spent(&self) -> bool {
        self.spent == self.utxos && self.spent_extra == self.extra_pages
    }

    /// Whether an output on any page is frozen.
    #[inline]
    pub fn any_frozen(&self) -> bool {
        self.frozen > 0 || self.frozen_extra > 0
    }
}

/// A block's bytes.
pub fn encode_block(block: BlockRef) -> [u8; 12] {
    three_words(block.block_id, block.height, block.subtree)
}

fn three_words(a: u32, b: u32, c: u32) -> [u8; 12] {
    let mut bytes = [0; 12];
    bytes[..4].copy_from_slice(&a.to_le_bytes());
    bytes[4..8].copy_from_slice(&b.to_le_bytes());
    bytes[8..].copy_from_slice(&c.to_le_bytes());
    bytes
}

/// The inputs of a record: what each spends.
pub fn inputs(slots: &Slots, slot: SlotId, head: &Head) -> Vec<(Hash, u32)> {
    inputs_from(slots, slot, head, (0, u32::MAX))
}

/// Inputs from `first` on, `most` of them at most.
pub fn inputs_from(slots: &Slots, slot: SlotId, head: &Head, (first, most): (u32, u32)) -> Vec<(Hash, u32)> {
    let end = first.saturating_add(most).min(head.inputs);
    let mut bytes = Vec::new();
    let mut next = first;
    while next < end {
        let (from, at, rest) = match head.input_pages() {
            0 => (slot, head.inputs_at() + INPUT * next, end - next),
            _ => {
                let (page, at) = (next / INPUTS_OF_PAGE, next % INPUTS_OF_PAGE);
                let page = page_slot(slots, slot, head, 1 + head.extra_pages + page);
                (page, INPUT * at, (end - next).min(INPUTS_OF_PAGE - at))
            }
        };
        slots.read_onto(&mut bytes, from, at, (INPUT * rest) as usize);
        next += rest;
    }
    let inputs = bytes.as_chunks::<{ INPUT as usize }>().0.iter();
    inputs
        .map(|input| {
            let vout = u32::from_le_bytes([input[32], input[33], input[34], input[35]]);
            (*input.first_chunk().expect("32 bytes"), vout)
        })
        .collect()
}

/// The transactions that inputs spend from, each once.
pub fn parents(inputs: &[(Hash, u32)]) -> Vec<Hash> {
    let mut parents: Vec<Hash> = inputs.iter().map(|(parent, _)| *parent).collect();
    parents.sort_unstable();
    parents.dedup();
    parents
}

/// The slot of page `page`; the master's own for 0.
#[inline]
pub fn page_slot(slots: &Slots, slot: SlotId, head: &Head, page: u32) -> SlotId {
    if page == 0 { slot } else { slots.read_u32(slot, head.directory_at() + 4 * (page - 1)) }
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
            created_at: 80 << 32,
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
        let mut bytes = vec![0; 2];
        head.encode_onto(&mut bytes);
        let bytes: [u8; HEAD as usize] = bytes[2..].try_into().unwrap();
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
