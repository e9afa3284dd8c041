//! Freezing and unfreezing outputs, and giving a frozen output to a new owner.

use super::call::{Answer, Call, bad, hash_of};
use super::record::extras::{Extras, Reassigned};
use super::record::{Entry, EntryAddress, FROZEN, REASSIGNED, UTXO, entries};
use super::store::{Found, UtxoStore};
use ic_coppice_interface::{FreezeTarget, Reassign, UtxoRefusal};

impl UtxoStore {
    /// Freezes or unfreezes one output of a transaction, or all, and returns their number.
    ///
    /// # Errors
    /// [`UtxoRefusal`], and nothing has changed.
    pub fn set_frozen(&mut self, target: &FreezeTarget, frozen: bool, call: &Call) -> Answer<u32> {
        call.check()?;
        let found = self.find(&hash_of("txid", &target.txid)?)?;
        let (mut utxos, mut addresses) = (0, Vec::new());
        let mut note = |_: u32, address: EntryAddress, entry: Entry| {
            utxos += u32::from(entry.is(UTXO));
            if entry.is(UTXO) && entry.is(FROZEN) != frozen {
                addresses.push((address, entry.state));
            }
        };
        match target.vout {
            Some(vout) => {
                let (address, entry) = EntryAddress::utxo(&self.slots, found.slot, &found.head, vout)?;
                if let Some(hash) = &target.utxo_hash {
                    entry.check_hash(&hash_of("utxo_hash", hash)?)?;
                }
                note(vout, address, entry);
            }
            None if target.utxo_hash.is_some() => {
                return Err(bad("utxo_hash", "it is given without the output that has it"));
            }
            None => entries(&self.slots, found.slot, &found.head, (0, u32::MAX), note)?,
        }
        if utxos == 0 {
            return Err(UtxoRefusal::UtxoNotFound);
        }
        if addresses.is_empty() {
            return Err(if frozen { UtxoRefusal::AlreadyFrozen } else { UtxoRefusal::UtxoNotFrozen });
        }
        self.changing(1, |store| {
            for &(address, state) in &addresses {
                address.set_state(&mut store.slots, state ^ FROZEN);
                address.count_frozen(&mut store.slots, if frozen { 1 } else { -1 });
            }
            store.evaluate(found.slot, call)?;
            Ok(addresses.len() as u32)
        })
    }

    /// Gives a frozen, unspent output to a new owner, and returns the height from which on the output is spendable.
    ///
    /// # Errors
    /// [`UtxoRefusal`], and nothing has changed.
    pub fn reassign(&mut self, item: &Reassign, call: &Call) -> Answer<u32> {
        call.check()?;
        let txid = hash_of("txid", &item.outpoint.txid)?;
        let old = hash_of("utxo_hash", &item.utxo_hash)?;
        let new = hash_of("new_utxo_hash", &item.new_utxo_hash)?;
        let vout = item.outpoint.vout;
        let Found { slot, mut head, .. } = self.find(&txid)?;
        let (address, entry) = EntryAddress::utxo(&self.slots, slot, &head, vout)?;
        entry.check_hash(&old)?;
        if !entry.is(FROZEN) {
            return Err(UtxoRefusal::UtxoNotFrozen);
        }
        if let Some(by) = entry.spent_by() {
            return Err(UtxoRefusal::Spent { by });
        }
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
            address.set_state(&mut store.slots, (entry.state & !FROZEN) | REASSIGNED);
            address.count_frozen(&mut store.slots, -1);
            store.evaluate(slot, call)
        })?;
        Ok(spendable_at)
    }
}
