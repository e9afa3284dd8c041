//! Creation of records, from transactions in all forms, and the uploads of large transactions: `Draft` (the form, parsed) → `insert`
//! (checks, and the transaction's bytes) → `put` (slots, table, indexes).

use super::ahead::Ahead;
use super::call::{Answer, Call, hash_of, if_found};
use super::draft::{Body, Draft, Terms, check_mined, utxos_among};
use super::footprint::{self, wanted};
use super::limits::{OPERATION, at_most, look_up, meter};
use super::parse::Parsed;
use super::record::extras::Extras;
use super::record::{
    ENTRY, EXTRA, EntryAddress, HEAD, HEAD_BLOCKS, Hash, Head, INPUTS_OF_PAGE, LATE, Order, SPENDER_DELETED, STATE,
    UTXO, flag, location, parents,
};
use super::spend::Spends;
use super::store::{Found, MOST_ENTRIES, UtxoStore};
use candid::Principal;
use ic_coppice_interface::{
    BeginTransaction, BlockRef, NoMemory, TransactionSource, TransactionUploadError, UploadProgress, UtxoCreate,
    UtxoCreated, UtxoRefusal, UtxoSettings,
};
use ic_coppice_storage::blob::BlobStore;
use ic_coppice_storage::slots::{MAX_LEN, SlotId};
use ic_coppice_storage::table::same_key;
use ic_coppice_storage::{Ic, Platform as _};

/// The bytes of an unspent output after its hash.
const UNSPENT: [u8; (ENTRY - STATE) as usize] = {
    let mut bytes = [0; (ENTRY - STATE) as usize];
    bytes[0] = UTXO as u8;
    bytes
};
/// Maximum parents of a replayed transaction that a message looks up, because each parent has separate pages, in the table and as a record,
/// and the platform lets a message read 524,288 pages.
const MOST_PARENTS: u32 = 150_000;

fn entries_onto(outputs: &[Option<Hash>], out: &mut Vec<u8>) {
    out.reserve(outputs.len() * ENTRY as usize);
    for output in outputs {
        // Copies of more than 64 bytes take 100 instructions more.
        let (hash, rest) = output.as_ref().map_or((&[0; 32], &[0; UNSPENT.len()]), |hash| (hash, &UNSPENT));
        out.extend_from_slice(hash);
        out.extend_from_slice(rest);
    }
}

fn inputs_onto(inputs: &[(Hash, u32)], out: &mut Vec<u8>) {
    for (txid, vout) in inputs {
        out.extend_from_slice(txid);
        out.extend_from_slice(&vout.to_le_bytes());
    }
}

/// A record to write, besides its head.
struct NewRecord<'a> {
    parsed: &'a Parsed,
    /// The last bytes: the transaction, or its location.
    tail: &'a [u8],
    blocks: &'a [BlockRef],
    /// The record's key among unmined records, if the record is not mined.
    unmined: Option<u32>,
    /// Planned spends of the outputs of its inputs; none for a double spend.
    spends: Option<&'a Spends>,
}

impl UtxoStore {
    /// Creates the record of an item, whose transaction is parsed together with those of the batch.
    ///
    /// # Errors
    /// [`UtxoRefusal`], and nothing has changed.
    pub fn create(
        &mut self,
        blobs: &mut BlobStore,
        item: &UtxoCreate,
        batch: &mut Ahead,
        call: &Call,
    ) -> Answer<UtxoCreated> {
        call.check()?;
        let arena = self.slots.arena().clone();
        arena.creating(|| {
            let draft = match &item.source {
                TransactionSource::Raw(raw) => {
                    Draft { parsed: batch.parse(raw)?, size: raw.len() as u64, body: Body::Whole(raw) }
                }
                TransactionSource::Uploaded(txid) => {
                    let named = hash_of("txid", txid)?;
                    // Checked before the upload, because the upload no longer exists if the same call succeeded and its reply was lost.
                    self.check_absent(&named)?;
                    let (raw, parts) = self.uploads.complete(blobs, &named, Ic::caller())?;
                    Draft::uploaded(&named, raw, parts)?
                }
                TransactionSource::Outputs(partial) => {
                    let height = item.mined.as_ref().and_then(|mined| mined.blocks.first()).map(|block| block.height);
                    Draft::outputs_only(partial, height.unwrap_or(call.height), call)?
                }
                TransactionSource::External(external) => Draft::external(external)?,
                // The caller reads the transaction from the block.
                TransactionSource::Kept(_) => return Err(UtxoRefusal::NotKept),
            };
            self.create_from(blobs, draft, &item.into(), call)
        })
    }

    /// Creates a record of a draft.
    ///
    /// # Errors
    /// As [`create`](Self::create).
    pub fn create_from(
        &mut self,
        blobs: &mut BlobStore,
        draft: Draft,
        terms: &Terms,
        call: &Call,
    ) -> Answer<UtxoCreated> {
        self.check_draft(&draft, terms, call)?;
        self.check_replay(&draft.parsed, terms)?;
        self.insert(blobs, draft, terms, None, call)
    }

    /// Opens an upload. Repeating the call changes nothing.
    ///
    /// # Errors
    /// [`TransactionUploadError`], and nothing has changed: `TxExists` if the transaction has a record.
    pub fn begin_upload(
        &mut self,
        blobs: &mut BlobStore,
        arg: &BeginTransaction,
        settings: &UtxoSettings,
        by: Principal,
        now: u64,
    ) -> Result<UploadProgress, TransactionUploadError> {
        self.check_ready().map_err(UtxoRefusal::from)?;
        self.check_absent(&hash_of("txid", &arg.txid)?)?;
        self.uploads.begin(blobs, arg, settings, by, now)
    }

    /// Checks that a draft can become a record, except that an earlier record may have been pruned.
    ///
    /// # Errors
    /// `NoOutputs`, `NotExtended`, `BadArgument`, `BadHeight`, `TxExists`, `BeingDeleted`, `Corrupt`.
    pub(super) fn check_draft(&self, draft: &Draft, terms: &Terms, call: &Call) -> Answer<()> {
        let parsed = &draft.parsed;
        if parsed.outputs.is_empty() {
            return Err(UtxoRefusal::NoOutputs);
        }
        let parsed_here = !matches!(draft.body, Body::External(_));
        if call.settings.require_extended && parsed_here && !parsed.extended && !parsed.inputs.is_empty() {
            return Err(UtxoRefusal::NotExtended { input: 0 });
        }
        terms.mined.map_or(Ok(()), |mined| check_mined(mined, call))?;
        self.check_absent(&parsed.txid)
    }

    /// Creates a record of a checked draft, and spends the outputs of its inputs if they are planned: both or neither.
    ///
    /// # Errors
    /// `TooLarge`, `ExternalFull`, `OutOfSpace`, `LowCycles`; nothing has changed.
    pub(super) fn insert(
        &mut self,
        blobs: &mut BlobStore,
        draft: Draft,
        terms: &Terms,
        spends: Option<&Spends>,
        call: &Call,
    ) -> Answer<UtxoCreated> {
        let parsed = &draft.parsed;
        let mut head = draft.head(terms, call);
        if !footprint::is_small(&draft) {
            let heap = footprint::check(&self.slots, &draft, &head, terms.conflicting)?;
            self.used.heap = self.used.heap.max(heap);
        }
        let (tail, new_blobs) = draft.store(blobs, &mut head, call)?;
        let is_mined = terms.mined.is_some_and(|mined| mined.on_longest_chain);
        let unmined = (!is_mined).then(|| self.unmined_key(parsed, terms, call));
        let spends = spends.filter(|_| !terms.conflicting);
        let new = NewRecord { parsed, tail: &tail, blocks: terms.blocks(), unmined, spends };
        let made = if terms.conflicting {
            self.atomically(|store| {
                let mut meter = meter(OPERATION);
                parents(&parsed.inputs).iter().try_for_each(|parent| {
                    look_up(&mut meter)?;
                    store.add_child(parent, &parsed.txid)
                })?;
                store.put(&new, &mut head, call)
            })
        } else {
            self.put(&new, &mut head, call)
        };
        if let Err(error) = made {
            location::free_parts(blobs, &new_blobs);
            return Err(error);
        }
        if let Body::Uploaded(_, parts) = &draft.body {
            self.uploads.close(blobs, parts, head.is(flag::NOT_INLINE));
        }
        Ok(UtxoCreated {
            txid: head.txid.into(),
            utxos: head.total_utxos,
            extra_pages: head.extra_pages,
            external: head.is(flag::NOT_INLINE),
        })
    }

    /// Checks that a transaction has no record.
    ///
    /// # Errors
    /// `TxExists`, `BeingDeleted`, `Corrupt`.
    pub fn check_absent(&self, txid: &Hash) -> Answer<()> {
        match self.find_any(txid) {
            Err(UtxoRefusal::TxNotFound) => Ok(()),
            Err(error) => Err(error),
            Ok(found) if found.head.is(flag::DELETING) => Err(UtxoRefusal::BeingDeleted),
            Ok(_) => Err(UtxoRefusal::TxExists),
        }
    }

    /// Refuses a record for a transaction whose blocks all lie at or below the pruned height, if an earlier record of the transaction may
    /// have been pruned, because outputs that were spent could be spent again. Above the pruned height nothing is looked up.
    ///
    /// # Errors
    /// `Pruned`, `TooMuchWork`, `Corrupt`.
    pub(super) fn check_replay(&self, parsed: &Parsed, terms: &Terms) -> Answer<()> {
        let blocks = terms.blocks();
        if blocks.is_empty() || blocks.iter().any(|block| block.height > self.root.pruned) {
            return Ok(());
        }
        let (mut has_parent, mut last, mut known): (_, Option<(&Hash, Option<Found>)>, _) = (false, None, 0);
        let mut meter = meter(OPERATION);
        for ((parent, vout), vin) in parsed.inputs.iter().zip(0..) {
            if last.as_ref().is_none_or(|(last, _)| !same_key(last, parent)) {
                known += 1;
                if known > MOST_PARENTS {
                    return Err(UtxoRefusal::TooMuchWork);
                }
                look_up(&mut meter)?;
                last = Some((parent, if_found(self.find_any(parent))?));
            }
            let Some((_, Some(found))) = &last else { continue };
            has_parent |= !found.head.is(flag::DELETING);
            let entry = EntryAddress::entry(&self.slots, found.slot, &found.head, *vout)?;
            if entry.is_some_and(|entry| entry.is(SPENDER_DELETED) && entry.held_by(&parsed.txid, vin)) {
                return Err(UtxoRefusal::Pruned);
            }
        }
        if has_parent || terms.is_new { Ok(()) } else { Err(UtxoRefusal::Pruned) }
    }

    /// Returns the key of a new unmined record. The record is late if it is old at once, or if one of its parents is due before it is old: its
    /// outputs were spent long before the record was created. A double spend that wins is late then.
    fn unmined_key(&self, parsed: &Parsed, terms: &Terms, call: &Call) -> u32 {
        let (since, young) = (call.height, self.root.window.retention);
        let due_first = || !terms.conflicting && self.has_parent_due_by(&parsed.inputs, since.saturating_add(young));
        if since < self.root.window.cutoff || due_first() { since | LATE } else { since }
    }

    /// Reserves memory, writes the record and its pages, enters the record in the table and the indexes, and makes the planned spends. If it
    /// fails, nothing has changed, or [`atomically`](Self::atomically) undoes the change.
    fn put(&mut self, new: &NewRecord, head: &mut Head, call: &Call) -> Answer<()> {
        at_most("bytes of a record", head.bytes(), u64::from(MAX_LEN))?;
        // Records of one message differ.
        head.created_at_ns = head.created_at_ns.max(self.root.created.saturating_add(1));
        // A record with an unspent output is not due yet.
        let evaluated = head.is(flag::CONFLICTING) || head.total_utxos == 0;
        let highest = new.blocks.iter().map(|block| block.height).max();
        let keys = [
            (Order::UnminedSince, new.unmined.unwrap_or(0)),
            (Order::CreatedAt, head.created_secs()),
            (Order::DeleteAt, call.due(highest.unwrap_or(0))),
        ];
        let entering = &keys[if new.unmined.is_none() { 2 } else { 0 }..if evaluated { 3 } else { 2 }];
        let wanted = wanted(head);
        let Some(spends) = new.spends.filter(|spends| !spends.is_empty()) else {
            self.root.reserve(&self.slots, entering, 0, &wanted).map_err(NoMemory::from)?;
            return self.place(new, head, evaluated, call);
        };
        // More entries would reserve too much memory.
        let few = spends.entries() <= MOST_ENTRIES;
        if few && self.root.reserve(&self.slots, entering, spends.entries(), &wanted).is_ok() {
            self.place(new, head, evaluated, call)?;
            return self.make(spends, call).map(drop);
        }
        // The record comes last, because its entry in the table is not undone.
        self.atomically(|store| {
            store.make(spends, call)?;
            store.root.reserve(&store.slots, entering, 0, &wanted).map_err(NoMemory::from)?;
            store.place(new, head, evaluated, call)
        })
    }

    /// Writes a record for which memory is reserved; `evaluated`: it may be due.
    fn place(&mut self, new: &NewRecord, head: &mut Head, evaluated: bool, call: &Call) -> Answer<()> {
        let Parsed { outputs, inputs, .. } = new.parsed;
        let (tail, batch) = (new.tail, head.batch as usize);
        let rest = new.blocks.get(HEAD_BLOCKS as usize..).unwrap_or_default();
        let extras = Extras { blocks: rest.to_vec(), ..Extras::default() };
        let slot = self.slots.allocate(head.bytes() as u32).map_err(NoMemory::from)?;
        if let Err(error) = self.table.insert(self.table.hash(&head.txid), u64::from(slot)) {
            self.slots.free(slot);
            return Err(NoMemory::from(error).into());
        }
        // Three writes, because the platform prices a write at 20 instructions and a copy into one buffer at 100, besides one a byte.
        self.slots.write(slot, 0, head.encode().as_flattened());
        let mut record = Vec::with_capacity((head.transaction_at() - HEAD) as usize);
        entries_onto(&outputs[..head.own_outputs() as usize], &mut record);
        if head.input_pages() == 0 {
            inputs_onto(inputs, &mut record);
        }
        let mut page = Vec::new();
        for (number, outputs) in (1..).zip(outputs.chunks(batch).skip(1)) {
            page.clear();
            page.extend([EXTRA, [0; 2]].as_flattened());
            page.extend([number, utxos_among(outputs), 0, 0, slot].map(u32::to_le_bytes).as_flattened());
            entries_onto(outputs, &mut page);
            record.extend(self.put_page(&page).to_le_bytes());
        }
        if head.input_pages() > 0 {
            for inputs in inputs.chunks(INPUTS_OF_PAGE as usize) {
                page.clear();
                inputs_onto(inputs, &mut page);
                record.extend(self.put_page(&page).to_le_bytes());
            }
        }
        self.slots.write(slot, HEAD, &record);
        if !tail.is_empty() {
            self.slots.write(slot, head.transaction_at(), tail);
        }
        let saved = extras.save(&mut self.slots, slot, head);
        saved.unwrap_or_else(|error| Ic::trap(&format!("the record's blocks: memory was not reserved: {error}")));
        self.root.created = head.created_at_ns;
        self.root.records += 1;
        self.root.pages += u64::from(head.extra_pages);
        self.root.save_counts(&mut self.slots);
        if new.unmined.is_some() {
            self.set_unmined(slot, head, new.unmined);
        }
        if evaluated {
            self.evaluate(slot, call)?;
        }
        Ok(())
    }

    fn put_page(&mut self, bytes: &[u8]) -> SlotId {
        let slot = self.slots.allocate(bytes.len() as u32);
        let slot =
            slot.unwrap_or_else(|error| Ic::trap(&format!("a page of the record: memory was not reserved: {error}")));
        self.slots.write(slot, 0, bytes);
        slot
    }

    /// Enters a record in the indexes of unmined records, under a key of [`Order::UnminedSince`], or removes it. Memory is reserved.
    pub(super) fn set_unmined(&mut self, slot: SlotId, head: &Head, key: Option<u32>) {
        let [_, unmined, _, created] = head.links;
        self.root.set(&mut self.slots, Order::UnminedSince, slot, unmined, key);
        self.root.set(&mut self.slots, Order::CreatedAt, slot, created, key.map(|_| head.created_secs()));
    }
}
