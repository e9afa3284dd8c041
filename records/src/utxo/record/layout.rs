//! Layout of a record in its slots: offsets, sizes, flags, and the ordered indexes that link records.
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
//! 148 links in the ordered indexes: 4 × (key, previous, next) u32; next is 0 if the record is not in the index
//! 196 note u32: see `POSTPONED`
//!
//! head of a page: 0 kind u8 2  1 version u8 1  4 number u32  8 UTXOs u32  12 spent u32  16 frozen u32  20 master u32
//! entry:          0 hash 32  32 state u32: bits of `output`  36 spending data: txid 32 ‖ vin u32
//! input:          0 txid 32  32 vout u32
//! ```
//! An *extra page* is a page of outputs. UTXOs, spent and frozen without "of all" or "extra" count the outputs in the master. The
//! transaction is its bytes, or their location: see `location`.

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
/// Maximum inputs in the master; more are on separate pages.
pub const INLINE_INPUTS: u32 = 50_000;
/// Inputs of a page of inputs.
pub const INPUTS_OF_PAGE: u32 = 50_000;
/// Blocks that the head has room for.
pub const HEAD_BLOCKS: u32 = 2;

/// First bytes of a master's slot.
pub const MASTER: [u8; 2] = [1, 1];
/// First bytes of a page's slot.
pub const EXTRA: [u8; 2] = [2, 1];

/// Flags of a record.
pub mod flag {
    /// The transaction is a coinbase.
    pub const COINBASE: u16 = 1;
    /// The outputs cannot be spent yet.
    pub const LOCKED: u16 = 2;
    /// The transaction is a double spend.
    pub const CONFLICTING: u16 = 4;
    /// The transaction's bytes are in the BlobStore or in an external blob.
    pub const NOT_INLINE: u16 = 8;
    /// The transaction's bytes are in an external blob.
    pub const EXTERNAL: u16 = 16;
    /// The bytes are a UTXOWrapper: outputs only.
    pub const PARTIAL: u16 = 32;
    /// The transaction is in the extended form, which holds the outputs that its inputs spend.
    pub const EXTENDED: u16 = 64;
    /// The fee is known.
    pub const FEE: u16 = 128;
    /// The record is being deleted.
    pub const DELETING: u16 = 256;
    /// The key in [`DeleteAt`](super::Order::DeleteAt) is the height at which the record is examined next, and the note is the record's
    /// `delete_at_height`. Without this flag the note is the number of the run that skips the record because it became due during that run;
    /// 0 if none.
    pub const POSTPONED: u16 = 512;
    /// A check of the record's spenders has begun, and no output has changed hands since.
    pub const CHECKED: u16 = 1_024;
    /// The transaction's bytes are in a kept block, or in a slot of their own since that block was taken back.
    pub const KEPT: u16 = 2_048;
}

/// Offsets of the fields of a master's head that are written separately.
pub mod at {
    pub const FLAGS: u32 = 2;
    pub const TXID: u32 = 8;
    pub const OUTPUTS: u32 = 40;
    pub const EXTRA_PAGES: u32 = 48;
    pub const SPENT_EXTRA: u32 = 52;
    pub const SPENT: u32 = 60;
    pub const FROZEN: u32 = 64;
    pub const FROZEN_EXTRA: u32 = 68;
    pub const SPENDING_HEIGHT: u32 = 72;
    pub const EXTRAS: u32 = 76;
    /// The length of the transaction follows.
    pub const INPUTS: u32 = 112;
    pub const BLOCKS: u32 = 120;
    pub const LINKS: u32 = 148;
    pub const NOTE: u32 = 196;
}

/// Offsets of the fields of a page's head that are written separately.
pub mod page_at {
    pub const NUMBER: u32 = 4;
    pub const UTXOS: u32 = 8;
    pub const SPENT: u32 = 12;
    pub const FROZEN: u32 = 16;
    pub const MASTER: u32 = 20;
}

/// One of the ordered indexes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// By `delete_at_height`.
    DeleteAt,
    /// By `unmined_since`.
    UnminedSince,
    /// By `preserve_until`.
    PreserveUntil,
    /// Unmined records by `created_at_ns`, in seconds.
    CreatedAt,
}

impl Order {
    /// All ordered indexes, in the order of the links in a head.
    pub const ALL: [Self; 4] = [Self::DeleteAt, Self::UnminedSince, Self::PreserveUntil, Self::CreatedAt];

    /// Returns the offset of a record's link in this index.
    pub const fn link_at(self) -> u32 {
        at::LINKS + 12 * self as u32
    }
}

/// Highest bit of a key of [`Order::UnminedSince`], which no height has: the record is late (`utxo/order.rs`), and no run has examined it.
/// The rest of the key is the height.
pub const LATE: u32 = 1 << 31;
