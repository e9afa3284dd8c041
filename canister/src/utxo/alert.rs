//! What the alert system does: freezing, unfreezing, and giving a frozen output to a new owner.

use super::entry::{Entry, FROZEN, REASSIGNED, SPENT, UTXO};
use super::extras::{Extras, Reassigned};
use super::record::{ENTRY, Head, at, page_at, page_slot};
use super::spend::EntryAddress;
use super::{Call, Found, UtxoStore, bad, hash_of};
use crate::storage::slots::SlotId;
use coppice_interface::{FreezeTarget, Reassign, Spender, UtxoHash, UtxoRefusal};

/// Entries that are read at a time.
const STEP: u32 = 1_000;

impl UtxoStore {
    /// Looks at outputs from `first` on, `count` of them at most, in order, with their places.
    pub(super) fn entries(
        &self,
        master: SlotId,
        head: &Head,
        (first, count): (u32, u32),
        mut each: impl FnMut(u32, EntryAddress, Entry),
    ) {
        let end = first.saturating_add(count).min(head.outputs);
        let mut vout = first;
        let mut bytes = Vec::new();
        while vout < end {
            let page = vout / head.batch;
            let Some(address) = self.entry_address(master, head, vout) else { return };
            let step = STEP.min(end - vout).min((page + 1) * head.batch - vout);
            bytes.clear();
            self.slots.read_onto(&mut bytes, address.slot, address.at, (ENTRY * step) as usize);
            for (entry, i) in bytes.as_chunks::<{ ENTRY as usize }>().0.iter().zip(0..) {
                each(vout + i, EntryAddress { at: address.at + ENTRY * i, ..address }, Entry::decode(entry));
            }
            vout += step;
        }
    }

    /// Changes how many UTXOs of a page are frozen, and with it how many pages have frozen ones.
    fn count_frozen(&mut self, address: EntryAddress, change: i32) {
        if address.page == 0 {
            let frozen = self.slots.read_u32(address.slot, at::FROZEN).wrapping_add_signed(change);
            self.slots.write_u32(address.slot, at::FROZEN, frozen);
            return;
        }
        let before = self.slots.read_u32(address.slot, page_at::FROZEN);
        let after = before.wrapping_add_signed(change);
        self.slots.write_u32(address.slot, page_at::FROZEN, after);
        let pages = i32::from(after > 0) - i32::from(before > 0);
        if pages != 0 {
            let frozen = self.slots.read_u32(address.master, at::FROZEN_EXTRA).wrapping_add_signed(pages);
            self.slots.write_u32(address.master, at::FROZEN_EXTRA, frozen);
        }
    }

    /// Freezes an output or all of a transaction's, or unfreezes them, and answers how many that were.
    ///
    /// # Errors
    /// [`UtxoRefusal`], and nothing has changed.
    pub fn set_frozen(&mut self, target: &FreezeTarget, frozen: bool, call: &Call) -> Result<u32, UtxoRefusal> {
        call.check()?;
        let found = self.find(&hash_of("txid", &target.txid)?)?;
        let mut addresses = Vec::new();
        let mut utxos = 0;
        match target.vout {
            Some(vout) => {
                let (address, entry) = self.utxo(&found, vout)?;
                if let Some(hash) = &target.utxo_hash
                    && hash_of("utxo_hash", hash)? != entry.hash
                {
                    return Err(UtxoRefusal::UtxoHashMismatch { stored: UtxoHash::from(entry.hash) });
                }
                utxos = 1;
                if entry.is(FROZEN) != frozen {
                    addresses.push((address, entry.state));
                }
            }
            None if target.utxo_hash.is_some() => {
                return Err(bad("utxo_hash", "it is given without the output that has it"));
            }
            None => self.entries(found.slot, &found.head, (0, u32::MAX), |_, address, entry| {
                utxos += u32::from(entry.is(UTXO));
                if entry.is(UTXO) && entry.is(FROZEN) != frozen {
                    addresses.push((address, entry.state));
                }
            }),
        }
        if utxos == 0 {
            return Err(UtxoRefusal::UtxoNotFound);
        }
        if addresses.is_empty() {
            return Err(if frozen { UtxoRefusal::AlreadyFrozen } else { UtxoRefusal::UtxoNotFrozen });
        }
        self.changing(|store| {
            for &(address, state) in &addresses {
                store.set_state(address, state ^ FROZEN);
                store.count_frozen(address, if frozen { 1 } else { -1 });
            }
            store.evaluate(found.slot, call)?;
            Ok(addresses.len() as u32)
        })
    }

    /// Gives a frozen, unspent output to a new owner, and answers the height from which on it is spendable.
    ///
    /// # Errors
    /// [`UtxoRefusal`], and nothing has changed.
    pub fn reassign(&mut self, item: &Reassign, call: &Call) -> Result<u32, UtxoRefusal> {
        call.check()?;
        let txid = hash_of("txid", &item.outpoint.txid)?;
        let old = hash_of("utxo_hash", &item.utxo_hash)?;
        let new = hash_of("new_utxo_hash", &item.new_utxo_hash)?;
        let vout = item.outpoint.vout;
        let found = self.find(&txid)?;
        let (address, entry) = self.utxo(&found, vout)?;
        if entry.hash != old {
            return Err(UtxoRefusal::UtxoHashMismatch { stored: UtxoHash::from(entry.hash) });
        }
        if !entry.is(FROZEN) {
            return Err(UtxoRefusal::UtxoNotFrozen);
        }
        if entry.is(SPENT) {
            let (txid, vin) = entry.spender;
            return Err(UtxoRefusal::Spent { by: Spender { txid: txid.into(), vin } });
        }
        let Found { slot, mut head, .. } = found;
        let spendable_at = call.height.saturating_add(call.settings.reassign_spendable_after);
        let mut extras = Extras::load(&self.slots, &head)?;
        extras.spendable_in.insert(vout, spendable_at);
        extras.reassignments.push(Reassigned {
            vout,
            old: item.utxo_hash.clone().into(),
            new: item.new_utxo_hash.clone().into(),
            height: call.height,
        });
        self.atomically(|store| {
            extras.save(&mut store.slots, slot, &mut head)?;
            store.slots.write(address.slot, address.at, &new);
            store.set_state(address, (entry.state & !FROZEN) | REASSIGNED);
            store.count_frozen(address, -1);
            store.evaluate(slot, call)
        })?;
        Ok(spendable_at)
    }
}

/// The slots of a record's pages, of outputs and of inputs.
pub(super) fn pages<'a>(store: &'a UtxoStore, slot: SlotId, head: &'a Head) -> impl Iterator<Item = SlotId> + 'a {
    (1..=head.extra_pages + head.input_pages()).map(move |page| page_slot(&store.slots, slot, head, page))
}
