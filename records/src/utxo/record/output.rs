//! Entry of an output: its hash, state and spender; the entry's address; counters of the page that holds the entry.

use super::head::Head;
use super::inputs::page_slot;
use super::layout::{ENTRY, EXTRA, HEAD, Hash, PAGE_HEAD, at, page_at};
use crate::utxo::call::{Answer, if_found};
use ic_coppice_interface::{Spender, UtxoHash, UtxoPage, UtxoRefusal};
use ic_coppice_storage::bytes::{array_at, u32_at};
use ic_coppice_storage::slots::{SlotId, Slots};
use ic_coppice_storage::table::same_key;
use serde_bytes::ByteBuf;

/// Bytes from an entry's start to its state.
pub const STATE: u32 = 32;

/// State: the output is a UTXO.
pub const UTXO: u32 = 1;
/// State: the output is spent.
pub const SPENT: u32 = 2;
/// State: the output is frozen, spent or not.
pub const FROZEN: u32 = 4;
/// State: the spender was deleted since.
pub const SPENDER_DELETED: u32 = 8;
/// State: the output was reassigned; the extras have the height from which on the output is spendable.
pub const REASSIGNED: u32 = 16;
/// State: the spender was marked as a double spend.
pub const SPENDER_CONFLICTING: u32 = 32;

/// Bytes of spending data.
const SPENDING: usize = 36;
/// Entries that are read at a time.
const STEP: u32 = 1_000;

/// The entry of an output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    pub hash: Hash,
    pub state: u32,
    /// The spender's id and the number of its input; meaningless while the output is not spent.
    pub spender: (Hash, u32),
}

impl Entry {
    #[inline]
    pub fn decode(b: &[u8; ENTRY as usize]) -> Self {
        Self { hash: array_at(b, 0), state: u32_at(b, 32), spender: (array_at(b, 36), u32_at(b, 68)) }
    }

    /// Returns whether all bits of `bits` are set.
    #[inline]
    pub fn is(&self, bits: u32) -> bool {
        self.state & bits == bits
    }

    /// Returns whether the input `vin` of `spender` spends the output.
    #[inline]
    pub fn held_by(&self, spender: &Hash, vin: u32) -> bool {
        self.is(SPENT) && self.spender.1 == vin && same_key(&self.spender.0, spender)
    }

    /// Checks the output's hash.
    ///
    /// # Errors
    /// `UtxoHashMismatch`.
    #[inline(always)]
    pub fn check_hash(&self, hash: &Hash) -> Answer<()> {
        if same_key(&self.hash, hash) {
            return Ok(());
        }
        Err(UtxoRefusal::UtxoHashMismatch { stored: UtxoHash::from(self.hash) })
    }

    /// Returns the spender of a spent output.
    pub fn spent_by(&self) -> Option<Spender> {
        let (txid, vin) = self.spender;
        self.is(SPENT).then(|| Spender { txid: txid.into(), vin })
    }

    /// Returns the entry in the form of the document: 32 bytes unspent, 68 spent or frozen, `None` for an output that is not a UTXO.
    pub fn shown(&self) -> Option<ByteBuf> {
        if !self.is(UTXO) {
            return None;
        }
        let mut bytes = self.hash.to_vec();
        if self.is(FROZEN) {
            bytes.extend([0xFF; SPENDING]);
        } else if self.is(SPENT) {
            bytes.extend(self.spender.0);
            bytes.extend(self.spender.1.to_le_bytes());
        }
        Some(ByteBuf::from(bytes))
    }
}

/// The place of an output's entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct EntryAddress {
    pub master: SlotId,
    /// The number of the page; 0: the master.
    pub page: u32,
    /// The page's slot.
    pub slot: SlotId,
    /// Bytes from the slot's start.
    pub at: u32,
}

/// Returns the offset of an entry in its slot. Nothing overflows, because a slot has at most 4 MiB.
#[inline]
fn entry_at(head: u32, number: u32) -> u32 {
    head.wrapping_add(ENTRY.wrapping_mul(number))
}

/// Returns the slot of an extra page, and its numbers of UTXOs.
///
/// # Errors
/// `Corrupt` if the directory names no such page of this record.
#[inline(never)]
pub fn extra_page(slots: &Slots, master: SlotId, head: &Head, page: u32) -> Answer<(SlotId, UtxoPage)> {
    let slot = page_slot(slots, master, head, page);
    if slots.contains(slot) {
        let b: [u8; PAGE_HEAD as usize] = slots.read(slot, 0);
        let word = |at: u32| u32_at(&b, at as usize);
        if b[..2] == EXTRA && (word(page_at::NUMBER), word(page_at::MASTER)) == (page, master) {
            return Ok((slot, UtxoPage { record_utxos: word(page_at::UTXOS), spent_utxos: word(page_at::SPENT) }));
        }
    }
    Err(UtxoRefusal::Corrupt { why: format!("slot {slot} is not page {page} of the record in slot {master}") })
}

impl EntryAddress {
    /// Returns the address of output `vout`.
    ///
    /// # Errors
    /// `UtxoNotFound` after the last output; `Corrupt` if the output's page is not there.
    #[inline(always)]
    pub fn of(slots: &Slots, master: SlotId, head: &Head, vout: u32) -> Answer<Self> {
        if vout >= head.outputs {
            return Err(UtxoRefusal::UtxoNotFound);
        }
        if vout < head.batch {
            return Ok(Self { master, page: 0, slot: master, at: entry_at(HEAD, vout) });
        }
        let page = vout / head.batch;
        let (slot, _) = extra_page(slots, master, head, page)?;
        Ok(Self { master, page, slot, at: entry_at(PAGE_HEAD, vout % head.batch) })
    }

    /// Returns the entry of output `vout`, or `None` after the last output.
    ///
    /// # Errors
    /// `Corrupt`.
    pub fn entry(slots: &Slots, master: SlotId, head: &Head, vout: u32) -> Answer<Option<Entry>> {
        Ok(if_found(Self::of(slots, master, head, vout))?.map(|address| address.read(slots)))
    }

    /// Returns the address and the entry of an output that is a UTXO.
    ///
    /// # Errors
    /// `UtxoNotFound`, `Corrupt`.
    // A call would return the entry through memory.
    #[inline(always)]
    pub fn utxo(slots: &Slots, master: SlotId, head: &Head, vout: u32) -> Answer<(Self, Entry)> {
        let address = Self::of(slots, master, head, vout)?;
        let entry = address.read(slots);
        if entry.is(UTXO) { Ok((address, entry)) } else { Err(UtxoRefusal::UtxoNotFound) }
    }

    /// Reads the entry.
    #[inline]
    pub fn read(self, slots: &Slots) -> Entry {
        slots.read_with(self.slot, self.at, Entry::decode)
    }

    /// Writes the entry's state and spending data, which follow the hash.
    #[inline]
    pub fn write(self, slots: &mut Slots, state: u32, (txid, vin): (&Hash, u32)) {
        let mut bytes = [0; ENTRY as usize - STATE as usize];
        bytes[..4].copy_from_slice(&state.to_le_bytes());
        bytes[4..36].copy_from_slice(txid);
        bytes[36..].copy_from_slice(&vin.to_le_bytes());
        slots.write(self.slot, self.at + STATE, &bytes);
    }

    /// Writes the entry's state alone.
    pub fn set_state(self, slots: &mut Slots, state: u32) {
        slots.write_u32(self.slot, self.at + STATE, state);
    }

    /// Makes the entry unspent. A frozen output stays frozen. The caller [counts](Self::count_spent) the page.
    pub fn forget_spender(self, slots: &mut Slots, entry: &Entry) {
        self.write(slots, entry.state & !(SPENT | SPENDER_DELETED | SPENDER_CONFLICTING), (&[0; 32], 0));
    }

    /// Changes the number of spent UTXOs of the page, and the master's number of pages that are all spent.
    pub fn count_spent(self, slots: &mut Slots, change: i32) {
        let utxos = if self.page == 0 { 0 } else { slots.read_u32(self.slot, page_at::UTXOS) };
        self.count(slots, [at::SPENT, page_at::SPENT, at::SPENT_EXTRA], change, |spent| spent == utxos);
    }

    /// Changes the number of frozen UTXOs of the page, and the master's number of pages with frozen UTXOs.
    pub fn count_frozen(self, slots: &mut Slots, change: i32) {
        self.count(slots, [at::FROZEN, page_at::FROZEN, at::FROZEN_EXTRA], change, |frozen| frozen > 0);
    }

    /// Changes a counter, which lies in the master or in the page, and the master's number of pages whose counter `counts`.
    #[inline]
    fn count(self, slots: &mut Slots, [own, of_page, pages]: [u32; 3], change: i32, counts: impl Fn(u32) -> bool) {
        if self.page == 0 {
            add(slots, self.slot, own, change);
            return;
        }
        let (before, after) = add(slots, self.slot, of_page, change);
        let change = i32::from(counts(after)) - i32::from(counts(before));
        if change != 0 {
            add(slots, self.master, pages, change);
        }
    }
}

/// Adds to a counter, and returns the counter before and after.
#[inline]
fn add(slots: &mut Slots, slot: SlotId, at: u32, change: i32) -> (u32, u32) {
    let before = slots.read_u32(slot, at);
    let after = before.wrapping_add_signed(change);
    slots.write_u32(slot, at, after);
    (before, after)
}

/// Passes at most `count` entries, from output `first` on, to `each`: the number of the output, the entry's address, the entry.
///
/// # Errors
/// `Corrupt` if a page is not there.
pub fn entries(
    slots: &Slots,
    master: SlotId,
    head: &Head,
    (first, count): (u32, u32),
    mut each: impl FnMut(u32, EntryAddress, Entry),
) -> Answer<()> {
    let end = first.saturating_add(count).min(head.outputs);
    let mut vout = first;
    let mut bytes = Vec::new();
    while vout < end {
        let page = vout / head.batch;
        let address = EntryAddress::of(slots, master, head, vout)?;
        let step = STEP.min(end - vout).min((page + 1) * head.batch - vout);
        bytes.clear();
        slots.read_onto(&mut bytes, address.slot, address.at, (ENTRY * step) as usize);
        for (entry, i) in bytes.as_chunks::<{ ENTRY as usize }>().0.iter().zip(0..) {
            each(vout + i, EntryAddress { at: address.at + ENTRY * i, ..address }, Entry::decode(entry));
        }
        vout += step;
    }
    Ok(())
}
