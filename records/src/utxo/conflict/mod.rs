//! Double spends: marking a double spend with all its descendants ([`UtxoStore::set_conflicting`]), and double spends that win (`winners`).
//!
//! **Constraint.** A double spend may have any number of descendants, and a message marks some thousand transactions.
//!
//! **Design.** A call does a slice, and returns whether there is more. First the double spend itself is marked, so that nothing more is
//! spent from it; then its descendants, leaves first, so that every other conflicting transaction has only conflicting descendants,
//! wherever the slices end. The next slice walks the rest again. The entry of an output has a bit for a spender that was marked, so
//! that a walk skips the spender without looking it up.
//!
//! ```text
//! slice 1: mark the root │ walk: leaves first ─▶ mark, until the slice is full │ slice 2: walk what is unmarked ─▶ mark …
//!              root ◀─ spends ─ a ◀─ spends ─ b        order of marking: root, b, a
//! ```

mod walk;
mod winners;

use super::call::{Answer, Call, hash_of, if_found};
use super::limits::{MOST_MARKED, PARENT};
use super::record::{Entry, EntryAddress, Hash, SPENDER_CONFLICTING, flag, inputs, parents};
use super::store::{Found, UtxoStore};
use ic_coppice_interface::{Conflict, Outpoint, Spender, Txid, Unspend, UtxoHash, UtxoRefusal};
use ic_coppice_storage::slots::SlotId;
use ic_coppice_storage::{Counting, Ic, MOST_PAGES, Platform as _};
use walk::Walk;

/// Instructions after which a slice of a call ends, and after which a step of any slice gives up, with nothing changed: a message has 40
/// billion. A step is one transaction with all its inputs.
const MOST_INSTRUCTIONS: u64 = 10_000_000_000;
const LAST_INSTRUCTIONS: u64 = 25_000_000_000;
/// Pages after which a slice ends: 47 MiB of the 75 above which the platform slows a canister down, because the journal lies on the heap.
const SLICE_PAGES: u64 = 12_000;
/// Pages that evaluating a record changes, estimated.
const EVALUATED: u64 = 6;
/// Bytes of the heap that an input takes while its transaction is marked or wins, and the output that the input holds.
const OF_INPUT: u64 = 120;
const OF_HOLD: u64 = 300;

/// An output that a transaction holds.
struct Hold {
    address: EntryAddress,
    entry: Entry,
    outpoint: (Hash, u32),
}

/// The limits of a slice, the records that it touched, and what its answer names.
struct Slice {
    deadline: u64,
    last: u64,
    /// Pages of the heap that the inputs of one transaction took, or of all winners: the most, because the next transaction reuses them.
    heap: u64,
    /// Records to evaluate when the slice ends.
    touched: Vec<SlotId>,
    /// Transactions that the slice has marked as double spends.
    marked: Vec<Txid>,
    /// Outputs that the slice reports, at most [`MOST_MARKED`].
    reported: Vec<Unspend>,
}

impl Slice {
    /// Returns the slice that begins now, and ends after `most` instructions.
    fn new(most: u64) -> Self {
        let now = Ic::instructions();
        let [deadline, last] = [most, LAST_INSTRUCTIONS].map(|most| now.saturating_add(most));
        Self { deadline, last, heap: 0, touched: Vec::new(), marked: Vec::new(), reported: Vec::new() }
    }

    /// Counts inputs that are read, and the outputs that they hold.
    fn reads(&mut self, inputs: usize, holds: usize) {
        self.heap = self.heap.max((OF_INPUT * inputs as u64 + OF_HOLD * holds as u64) / 4_096);
    }

    /// Returns an error if the step has used too many instructions or changed too many pages; nothing has changed then.
    fn check(&self, store: &UtxoStore) -> Answer<()> {
        let pages = store.pages_changed() + store.slots.journal_pages() + self.heap;
        if pages <= MOST_PAGES && Ic::instructions() <= self.last { Ok(()) } else { Err(UtxoRefusal::TooMuchWork) }
    }

    /// Returns whether the slice must end before the next transaction, which lies in `slot`.
    fn is_full(&self, store: &UtxoStore, slot: SlotId) -> bool {
        let pages = store.pages_changed() + EVALUATED * self.touched.len() as u64;
        let head = store.head(slot);
        let next = if head.is(flag::CONFLICTING) { 0 } else { PARENT * u64::from(head.inputs) };
        let named = self.marked.len().max(self.reported.len());
        let full = named >= MOST_MARKED || pages >= SLICE_PAGES || Ic::instructions() > self.deadline;
        full || pages + next > MOST_PAGES
    }

    /// Reports an output that a transaction holds.
    fn report(&mut self, hold: &Hold) {
        if self.reported.len() < MOST_MARKED {
            let ((txid, vout), (spender, vin)) = (hold.outpoint, hold.entry.spender);
            self.reported.push(Unspend {
                outpoint: Outpoint { txid: txid.into(), vout },
                utxo_hash: UtxoHash::from(hold.entry.hash),
                spender: Spender { txid: spender.into(), vin },
            });
        }
    }
}

impl UtxoStore {
    /// Returns the outputs that a transaction holds.
    fn holds(&self, txid: &Hash, inputs: &[(Hash, u32)], slice: &Slice) -> Answer<Vec<Hold>> {
        let mut holds = Vec::new();
        for (&outpoint, vin) in inputs.iter().zip(0..) {
            slice.check(self)?;
            let Some(Found { slot, head, .. }) = if_found(self.find(&outpoint.0))? else { continue };
            let utxo = if_found(EntryAddress::utxo(&self.slots, slot, &head, outpoint.1))?;
            let held = utxo.filter(|(_, entry)| entry.held_by(txid, vin));
            holds.extend(held.map(|(address, entry)| Hold { address, entry, outpoint }));
        }
        Ok(holds)
    }

    /// Marks a transaction as a double spend, and enters a new double spend in its parents' lists. Returns the outputs that the transaction
    /// holds. The operation may fail in its middle.
    fn mark(&mut self, txid: &Hash, slot: SlotId, slice: &mut Slice) -> Answer<Vec<Hold>> {
        let head = self.head(slot);
        let inputs = inputs(&self.slots, slot, &head)?;
        let holds = self.holds(txid, &inputs, slice)?;
        slice.reads(inputs.len(), holds.len());
        if !head.is(flag::CONFLICTING) {
            slice.marked.push(txid.into());
            self.set_flags(slot, head.flags | flag::CONFLICTING);
            for parent in parents(&inputs) {
                slice.check(self)?;
                self.add_child(&parent, txid)?;
            }
        }
        for hold in holds.iter().filter(|hold| !hold.entry.is(SPENDER_CONFLICTING)) {
            slice.check(self)?;
            hold.address.set_state(&mut self.slots, hold.entry.state | SPENDER_CONFLICTING);
        }
        slice.touched.push(slot);
        Ok(holds)
    }

    /// Evaluates the records that a slice has touched, each once.
    fn evaluate_touched(&mut self, slice: &mut Slice, call: &Call) -> Answer<()> {
        slice.touched.sort_unstable();
        slice.touched.dedup();
        slice.touched.iter().try_for_each(|slot| {
            slice.check(self)?;
            self.evaluate(*slot, call)
        })
    }

    /// Marks a transaction and all its descendants as double spends, within a slice.
    ///
    /// # Errors
    /// [`UtxoRefusal`], and nothing has changed.
    pub fn set_conflicting(&mut self, txid: &[u8], call: &Call) -> Answer<Conflict> {
        self.mark_family(txid, call, MOST_INSTRUCTIONS)
    }

    /// Marks as [`set_conflicting`](Self::set_conflicting) does, within a slice that ends after `most` instructions.
    ///
    /// # Errors
    /// [`UtxoRefusal`], and nothing has changed.
    pub fn mark_family(&mut self, txid: &[u8], call: &Call, most: u64) -> Answer<Conflict> {
        call.check()?;
        let _counting = Counting::begin();
        let txid = hash_of("txid", txid)?;
        let Found { slot, head, .. } = self.find(&txid)?;
        let mut slice = Slice::new(most);
        let mut walk = Walk::new(None, slice.deadline);
        self.walk(&mut walk, (txid, slot))?;
        if head.is(flag::CONFLICTING) && !walk.complete && walk.done.is_empty() {
            // There is a path to a leaf that no message walks.
            return Err(UtxoRefusal::TooMuchWork);
        }
        self.atomically(|store| {
            let mut has_more = !walk.complete;
            let of_root = std::iter::once((txid, slot));
            for (txid, of) in of_root.chain(walk.done.iter().copied().filter(|(_, of)| *of != slot)) {
                if !slice.marked.is_empty() && slice.is_full(store, of) {
                    has_more = true;
                    break;
                }
                let holds = store.mark(&txid, of, &mut slice)?;
                holds.iter().for_each(|hold| slice.report(hold));
            }
            store.evaluate_touched(&mut slice, call)?;
            Ok(Conflict { marked: slice.marked, parent_spends: slice.reported, has_more })
        })
    }
}
