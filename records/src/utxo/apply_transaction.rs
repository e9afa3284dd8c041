//! Application of a block's transaction, whole or not at all: its record is created or set mined, and the outputs of its inputs are spent.
//!
//! A transaction whose spends do not fit a message is applied in parts: its inputs are checked ([`UtxoStore::check_inputs`]), its record is
//! created without spends, and the spends follow ([`UtxoStore::spend_inputs`]).

use super::call::{Answer, Call, if_found};
use super::draft::{Body, Draft, Terms};
use super::mined::MinedChange;
use super::parse::{Parsed, is_transaction};
use super::record::{EntryAddress, Hash, Head, REASSIGNED, SPENDER_DELETED, flag, location};
use super::scan::LOOKUP_PAGES;
use super::spend::{Planned, Spends, Strictness};
use super::store::{BytesOf, Found, UtxoStore};
use ic_coppice_interface::{
    BlockRef, MinedIn, MissingParents, NoMemory, TransactionPlace, UtxoApplied, UtxoApplyReason, UtxoCreateError,
    UtxoRefusal, UtxoSpendError,
};
use ic_coppice_storage::Meter;
use ic_coppice_storage::blob::BlobStore;
use ic_coppice_storage::slots::SlotId;
use ic_coppice_storage::table::same_key;

/// Pages that a parent takes to read: its place in the table, its head, and an output on a page of its own with the directory.
const PARENT_READ: u64 = LOOKUP_PAGES + 2;

/// The block whose transactions are applied.
pub struct BlockTerms<'a> {
    /// The block's height, the time and the settings.
    pub call: Call<'a>,
    /// The block, as a new record keeps it.
    pub mined: MinedIn,
    /// The block was not applied before: a transaction without a record gets one, and takes over outputs that are marked with its own id as
    /// spent by a deleted transaction.
    pub is_new: bool,
}

impl<'a> BlockTerms<'a> {
    /// Returns a block of the longest chain, which may have been applied before.
    pub fn new(call: Call<'a>, block_id: u32) -> Self {
        let block = BlockRef { block_id, height: call.height, subtree: 0 };
        Self { call, mined: MinedIn { blocks: vec![block], on_longest_chain: true }, is_new: false }
    }

    fn terms(&self) -> Terms<'_> {
        Terms { mined: Some(&self.mined), ..Terms::default() }
    }

    fn block(&self) -> BlockRef {
        self.mined.blocks[0]
    }

    fn change(&self, unset: bool, clears: u16) -> MinedChange {
        // A record that another block has stays on or off the longest chain.
        MinedChange { block: self.block(), on_longest_chain: !unset, unset, clears }
    }
}

/// The reason why a transaction was not applied. Nothing has changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NotApplied {
    /// Memory was refused.
    Memory(NoMemory),
    /// Looking up the parents takes more instructions than the message has: the inputs must be checked and spent in parts.
    Parts,
    /// The input, if the reason is about one, and the reason.
    Stopped(Option<Input>, UtxoApplyReason),
}

/// An input of the transaction that is applied, and the output that it spends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Input {
    /// Number of the input in the transaction.
    pub vin: u32,
    /// The parent's id and the number of the output.
    pub outpoint: (Hash, u32),
}

impl NotApplied {
    /// Returns the refusal of a record.
    pub fn record(refusal: UtxoRefusal) -> Self {
        match refusal {
            UtxoRefusal::NoMemory(why) => Self::Memory(why),
            UtxoRefusal::Conflicting => Self::Stopped(None, UtxoApplyReason::Conflicting),
            refusal => Self::Stopped(None, UtxoApplyReason::Create(UtxoCreateError::from(refusal))),
        }
    }

    fn input(input: Input, refusal: UtxoRefusal) -> Self {
        match refusal {
            UtxoRefusal::NoMemory(why) => Self::Memory(why),
            refusal => Self::Stopped(Some(input), UtxoApplyReason::Spend(UtxoSpendError::from(refusal))),
        }
    }
}

/// Inputs of one transaction, from a number on.
#[derive(Clone, Copy)]
pub struct Inputs<'a> {
    /// The transaction's id.
    pub txid: &'a Hash,
    /// The number of the first input.
    pub first: u32,
    /// The outpoints that the inputs spend.
    pub outpoints: &'a [(Hash, u32)],
}

/// Planned spends of inputs.
struct Plan {
    spends: Spends,
    /// Inputs that were checked.
    inputs: u32,
    /// Checked inputs whose parents have no record.
    passed: u32,
}

impl UtxoStore {
    /// Applies a transaction, counts it in `applied`, and returns whether its record may have been pruned: then none was created, and nothing
    /// was spent. `is_later` returns whether a transaction comes later in the block. Without `spends` the inputs are left to
    /// [`spend_inputs`](Self::spend_inputs). All parents must be found before the instruction counter reaches `end`.
    ///
    /// # Errors
    /// [`NotApplied`], and nothing has changed.
    pub fn apply(
        &mut self,
        blobs: &mut BlobStore,
        draft: Draft,
        block: &BlockTerms,
        is_later: &dyn Fn(&BlobStore, &Hash) -> bool,
        (spends, end): (bool, u64),
        applied: &mut UtxoApplied,
    ) -> Result<bool, NotApplied> {
        let txid = draft.parsed.txid;
        self.used.read += LOOKUP_PAGES;
        let found = if_found(self.find_any(&txid)).map_err(NotApplied::record)?;
        // A coinbase is a double spend only as long as no block has it.
        let returns = draft.parsed.coinbase && found.as_ref().is_some_and(|found| is_lone_coinbase(&found.head));
        let clears = if returns { flag::LOCKED | flag::CONFLICTING } else { flag::LOCKED };
        let terms = block.terms();
        let missing = if let Some(found) = &found {
            self.check_found(found, clears, block).map_err(NotApplied::record)?
        } else {
            if !block.is_new && block.call.height <= self.root.pruned {
                self.used.read += PARENT_READ * draft.parsed.inputs.len() as u64;
            }
            self.check_draft(&draft, &terms, &block.call).map_err(NotApplied::record)?;
            if self.is_pruned(&draft.parsed, block)? {
                applied.pruned += 1;
                return Ok(true);
            }
            block.call.missing
        };
        let outpoints = if spends { draft.parsed.inputs.as_slice() } else { &[] };
        let inputs = Inputs { txid: &txid, first: 0, outpoints };
        let is_later = |parent: &Hash| is_later(blobs, parent);
        let Plan { spends, inputs, passed } = self.plan_inputs(inputs, block, missing, (&is_later, end))?;
        if (inputs as usize) < outpoints.len() {
            return Err(NotApplied::Parts);
        }
        if let Some(found) = found {
            let (slot, change) = (found.slot, block.change(false, clears));
            let (_, spent) = self.mine(found, &change, Some(&spends), &block.call).map_err(NotApplied::record)?;
            self.name_block(slot, &draft.body);
            applied.existed += 1;
            applied.spent += spent;
        } else {
            let arena = self.slots.arena().clone();
            let made = arena.creating(|| self.insert(blobs, draft, &terms, Some(&spends), &block.call));
            made.map_err(NotApplied::record)?;
            applied.created += 1;
            applied.spent += spends.new_spends();
        }
        applied.missing_parents += passed;
        Ok(false)
    }

    /// Lets a record that names its bytes in a block name them in the newest block, which outlasts the others.
    fn name_block(&mut self, slot: SlotId, body: &Body) {
        let head = self.head(slot);
        if let Body::Kept { raw, number, offset } = *body
            && raw.len() as u64 == head.size
            && matches!(location::of(&self.slots, slot, &head), Ok(TransactionPlace::Block { .. }))
        {
            self.slots.write(slot, head.transaction_at(), &location::encode_block(number, offset, head.size));
        }
    }

    /// Returns whether a transaction without a record of a block that may have been applied before may have been pruned.
    fn is_pruned(&self, parsed: &Parsed, block: &BlockTerms) -> Result<bool, NotApplied> {
        if block.is_new {
            return Ok(false);
        }
        match self.check_replay(parsed, &block.terms()) {
            Ok(()) => Ok(false),
            Err(UtxoRefusal::Pruned) => Ok(true),
            Err(refusal) => Err(NotApplied::record(refusal)),
        }
    }

    /// Returns whether a transaction, before its inputs are checked in parts, has no record because it may have been pruned.
    pub fn may_be_pruned(&self, parsed: &Parsed, block: &BlockTerms) -> Result<bool, NotApplied> {
        let found = if_found(self.find_any(&parsed.txid)).map_err(NotApplied::record)?;
        if found.is_some() { Ok(false) } else { self.is_pruned(parsed, block) }
    }

    /// Checks a record to which a block is added, and which loses some flags thereby.
    fn check_existing(&self, head: &Head, clears: u16) -> Answer<()> {
        if head.is(flag::DELETING) {
            return Err(UtxoRefusal::BeingDeleted);
        }
        if head.is(flag::CONFLICTING & !clears) { Err(UtxoRefusal::Conflicting) } else { Ok(()) }
    }

    /// Checks a record to which a block is added, and which loses some flags thereby, and returns the treatment of the record's missing
    /// parents. A record that has the block already was applied before, and its parents may have been pruned since.
    fn check_found(&self, found: &Found, clears: u16, block: &BlockTerms) -> Answer<MissingParents> {
        self.check_existing(&found.head, clears)?;
        let is_applied = self.block_of(&found.head, block.block().block_id)?.is_some();
        Ok(if is_applied { MissingParents::Skip } else { block.call.missing })
    }

    /// Checks inputs, and changes nothing, until the instruction counter reaches `end`. Returns the number of inputs that were checked, and
    /// how many of them have a parent without a record.
    pub fn check_inputs(
        &mut self,
        inputs: Inputs,
        block: &BlockTerms,
        (is_later, end): (&dyn Fn(&Hash) -> bool, u64),
    ) -> Result<(u32, u32), NotApplied> {
        let missing = match if_found(self.find_any(inputs.txid)).map_err(NotApplied::record)? {
            Some(found) => self.check_found(&found, 0, block).map_err(NotApplied::record)?,
            None => block.call.missing,
        };
        let planned = self.plan_inputs(inputs, block, missing, (is_later, end))?;
        Ok((planned.inputs, planned.passed))
    }

    /// Spends the outputs of inputs that were checked, for a transaction whose record has the block, until the instruction counter reaches
    /// `end`. Returns the number of inputs that are done, and the number of outputs that were not spent before.
    ///
    /// # Errors
    /// [`NotApplied`], and nothing has changed.
    pub fn spend_inputs(&mut self, inputs: Inputs, block: &BlockTerms, end: u64) -> Result<(u32, u32), NotApplied> {
        if let Some(found) = if_found(self.find_any(inputs.txid)).map_err(NotApplied::record)? {
            self.check_existing(&found.head, 0).map_err(NotApplied::record)?;
        }
        let Plan { spends, inputs, .. } =
            self.plan_inputs(inputs, block, MissingParents::Skip, (&|_: &Hash| false, end))?;
        let spent = self.changing(spends.entries(), |store| store.make(&spends, &block.call));
        Ok((inputs, spent.map_err(NotApplied::record)?))
    }

    /// Checks and plans the spends of inputs until the instruction counter reaches `end`, but at least of the first input.
    fn plan_inputs(
        &mut self,
        inputs: Inputs,
        block: &BlockTerms,
        missing: MissingParents,
        (is_later, end): (&dyn Fn(&Hash) -> bool, u64),
    ) -> Result<Plan, NotApplied> {
        let Inputs { txid, first, outpoints } = inputs;
        let (mut meter, mut count) = (<Meter>::new(end, u64::MAX), outpoints.len() as u32);
        let mut planned = Vec::with_capacity(outpoints.len());
        let (mut above, mut passed) = (0, 0);
        // Inputs often spend several outputs of one transaction.
        let mut last: Option<(&Hash, Answer<Found>)> = None;
        for ((parent, vout), vin) in outpoints.iter().zip(first..) {
            let input = Input { vin, outpoint: (*parent, *vout) };
            let refused = |error| NotApplied::input(input, error);
            if last.as_ref().is_none_or(|(known, _)| !same_key(known, parent)) {
                if !meter.has_time() {
                    count = vin - first;
                    break;
                }
                self.used.read += PARENT_READ;
                let found = self.find_any(parent);
                if let Err(error) = &found
                    && *error != UtxoRefusal::TxNotFound
                {
                    return Err(refused(error.clone()));
                }
                let is_mined = found.as_ref().is_ok_and(|found| found.head.mined());
                if !is_mined && is_later(parent) {
                    return Err(NotApplied::Stopped(Some(input), UtxoApplyReason::BadOrder));
                }
                above += u32::from(found.as_ref().is_ok_and(|found| found.head.may_be_above(block.call.height)));
                last = Some((parent, found));
            }
            let found = last.as_ref().and_then(|(_, found)| found.as_ref().ok());
            let Some(there) = found.filter(|found| !found.head.is(flag::DELETING)) else {
                // All outputs of a record that is being deleted are spent.
                let entry = found.map(|found| EntryAddress::entry(&self.slots, found.slot, &found.head, *vout));
                let entry = entry.transpose().map_err(refused)?.flatten();
                if !entry.is_some_and(|entry| entry.held_by(txid, vin)) {
                    if missing == MissingParents::Refuse {
                        return Err(NotApplied::Stopped(Some(input), UtxoApplyReason::MissingParent));
                    }
                    passed += 1;
                }
                continue;
            };
            let strictness = if block.is_new { Strictness::New } else { Strictness::All };
            let checked = self.check_spend(there, *vout, None, (txid, vin), &block.call, strictness);
            let (address, entry, new) = checked.map_err(refused)?;
            if new && entry.is(REASSIGNED) {
                return Err(NotApplied::Stopped(Some(input), UtxoApplyReason::NeedsHash));
            }
            planned.push(Planned { address, state: entry.state, vin, index: vin, new });
        }
        let mut twice = Vec::new();
        let spends = Spends::new(*txid, planned, above, &mut twice);
        if let Some(refused) = twice.into_iter().min_by_key(|refused| refused.spend) {
            let vin = refused.spend;
            let input = Input { vin, outpoint: outpoints[(vin - first) as usize] };
            return Err(NotApplied::Stopped(Some(input), UtxoApplyReason::Spend(refused.error)));
        }
        Ok(Plan { spends, inputs: count, passed })
    }

    /// Returns the highest block of any record that was deleted as spent since the last reset; 0: none.
    pub fn pruned_height(&self) -> u32 {
        self.root.pruned
    }

    /// Forgets the pruned height, because the chain begins anew.
    pub fn forget_pruned(&mut self) {
        self.root.pruned = 0;
        self.root.save_window(&mut self.slots);
    }

    /// Returns whether a transaction has no record, or one that is being deleted.
    pub fn is_gone(&self, txid: &Hash) -> bool {
        matches!(self.find(txid), Err(UtxoRefusal::TxNotFound))
    }

    /// Frees the outputs that a deleted transaction holds: those of inputs from a number on.
    ///
    /// # Errors
    /// [`UtxoRefusal`]; the outputs of earlier inputs are freed.
    pub fn free_outputs(&mut self, txid: &Hash, (first, inputs): (u32, &[(Hash, u32)]), call: &Call) -> Answer<()> {
        for ((parent, vout), vin) in inputs.iter().zip(first..) {
            self.used.read += PARENT_READ;
            let Some(Found { slot, head, .. }) = if_found(self.find(parent))? else { continue };
            let utxo = if_found(EntryAddress::utxo(&self.slots, slot, &head, *vout))?;
            if let Some((address, entry)) = utxo
                && entry.is(SPENDER_DELETED)
                && entry.held_by(txid, vin)
            {
                self.changing(1, |store| {
                    address.forget_spender(&mut store.slots, &entry);
                    address.count_spent(&mut store.slots, -1);
                    store.root.count_revert(&mut store.slots);
                    store.evaluate(slot, call)
                })?;
            }
        }
        Ok(())
    }

    /// Takes a block from a transaction's record, and returns whether the record had it. Returns `None`, and changes nothing, if
    /// keeping its bytes changes more pages than `room`.
    ///
    /// # Errors
    /// [`UtxoRefusal`]; the record still has the block.
    pub fn take_back(
        &mut self,
        blobs: &mut BlobStore,
        txid: &Hash,
        block: &BlockTerms,
        bytes_of: impl BytesOf,
        room: u64,
    ) -> Answer<Option<bool>> {
        self.used.read += LOOKUP_PAGES;
        let Some(mut found) = if_found(self.find(txid))? else { return Ok(Some(false)) };
        if self.block_of(&found.head, block.block().block_id)?.is_none() {
            return Ok(Some(false));
        }
        if self.pages_to_keep(&found)? > room {
            return Ok(None);
        }
        self.keep_bytes(blobs, &mut found, bytes_of, &block.call)?;
        self.mine(found, &block.change(true, flag::LOCKED), None, &block.call)?;
        Ok(Some(true))
    }

    /// Returns whether a transaction is a coinbase that no block has.
    ///
    /// # Errors
    /// `Corrupt`.
    pub fn is_lone_coinbase(&self, txid: &Hash) -> Answer<bool> {
        Ok(if_found(self.find(txid))?.is_some_and(|found| is_lone_coinbase(&found.head)))
    }

    /// Returns the pages that keeping a record's bytes changes, on the heap and in the store.
    fn pages_to_keep(&self, found: &Found) -> Answer<u64> {
        let place = location::of(&self.slots, found.slot, &found.head)?;
        Ok(if matches!(place, TransactionPlace::Block { .. }) { 2 * found.head.size / 4_096 + 16 } else { 0 })
    }

    /// Returns the pages that keeping a transaction's bytes changes; 0 if it has no record.
    pub(super) fn pages_to_keep_of(&self, txid: &[u8]) -> u64 {
        let found = || self.find(txid.try_into().ok()?).ok();
        found().map_or(0, |found| self.pages_to_keep(&found).unwrap_or(0))
    }

    /// Copies a transaction's bytes into the store if the record names them in a block, because the block may go. The head that was found
    /// changes with the record. Bytes that the block does not have are lost already.
    ///
    /// # Errors
    /// `ExternalFull`, `OutOfSpace`, `LowCycles`, `Corrupt`; nothing has changed.
    pub(super) fn keep_bytes(
        &mut self,
        blobs: &mut BlobStore,
        Found { slot, head, .. }: &mut Found,
        bytes_of: impl BytesOf,
        call: &Call,
    ) -> Answer<()> {
        let TransactionPlace::Block { number, offset } = location::of(&self.slots, *slot, head)? else { return Ok(()) };
        self.used.heap = self.used.heap.max(head.size / 4_096);
        let bytes = bytes_of(blobs, number, (offset, head.size)).filter(|bytes| is_transaction(bytes, &head.txid));
        let Some(bytes) = bytes else { return Ok(()) };
        let settings = call.settings;
        let place = if head.is_apart(settings) {
            let parts = location::store(blobs, &bytes, settings.max_external_bytes)?;
            head.flags = (head.flags & !flag::KEPT) | flag::NOT_INLINE;
            self.set_flags(*slot, head.flags);
            location::encode_parts(&parts)
        } else {
            self.slots.reserve(&[(bytes.len() as u32, 1)]).map_err(NoMemory::from)?;
            let own = self.slots.allocate(bytes.len() as u32).map_err(NoMemory::from)?;
            self.slots.write(own, 0, &bytes);
            location::encode_slot(own)
        };
        self.slots.write(*slot, head.transaction_at(), &place);
        Ok(())
    }
}

fn is_lone_coinbase(head: &Head) -> bool {
    head.is(flag::COINBASE) && head.blocks == 0
}
