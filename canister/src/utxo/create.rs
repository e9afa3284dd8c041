//! Creating records.

use super::draft::{Body, Draft, check_mined, utxos_among};
use super::entry::SPENDER_DELETED;
use super::extras::Extras;
use super::order::Order;
use super::parse::Parsed;
use super::record::{ENTRY, EXTRA, HEAD_BLOCKS, Hash, Head, INPUT, INPUTS_OF_PAGE, PAGE_HEAD, flag, parents};
use super::{Call, Found, UtxoStore, entry, footprint, place};
use crate::storage::blob::{BlobPtr, BlobStore};
use crate::storage::memory::records;
use crate::storage::slots::{MAX_LEN, SlotId};
use crate::storage::table::same_key;
use coppice_interface::{MinedIn, UtxoCreate, UtxoCreated, UtxoRefusal};

/// Bytes of a transaction that are not copied, but written by themselves.
const LONG_TAIL: usize = 4_096;
/// Parents of a replayed transaction that a message looks up: each lies on pages of its own, in the table and as a record, and the
/// platform lets a message read 524,288 pages.
const MOST_LOOKUPS: u32 = 150_000;

/// The bytes of a page: its head is all zeros but for the kind and its own numbers.
fn page_bytes(number: u32, master: SlotId, outputs: &[Option<Hash>], out: &mut Vec<u8>) {
    let utxos = utxos_among(outputs);
    out.clear();
    out.extend(EXTRA);
    out.extend([0; 2]);
    [number, utxos, 0, 0, master].iter().for_each(|word| out.extend(word.to_le_bytes()));
    entries_onto(outputs, out);
}

/// The slots of a record, as pairs of bytes and count.
fn wanted(head: &Head) -> Vec<(u32, u32)> {
    let mut wanted = vec![(head.len(), 1)];
    if head.extra_pages > 0 {
        let last = head.outputs - head.batch * head.extra_pages;
        wanted.push((PAGE_HEAD + ENTRY * head.batch, head.extra_pages - 1));
        wanted.push((PAGE_HEAD + ENTRY * last, 1));
    }
    if head.input_pages() > 0 {
        wanted.push((INPUT * INPUTS_OF_PAGE, head.input_pages()));
    }
    if head.blocks > HEAD_BLOCKS {
        wanted.push((64 * (1 + head.blocks - HEAD_BLOCKS), 1));
    }
    wanted
}

fn entries_onto(outputs: &[Option<Hash>], out: &mut Vec<u8>) {
    let start = out.len();
    out.resize(start + outputs.len() * ENTRY as usize, 0);
    let entries = out[start..].as_chunks_mut::<{ ENTRY as usize }>().0;
    for (entry, output) in entries.iter_mut().zip(outputs) {
        if let Some(hash) = output {
            entry[..32].copy_from_slice(hash);
            entry[entry::STATE as usize] = entry::UTXO as u8;
        }
    }
}

fn inputs_onto(inputs: &[(Hash, u32)], out: &mut Vec<u8>) {
    for (txid, vout) in inputs {
        out.extend_from_slice(txid);
        out.extend_from_slice(&vout.to_le_bytes());
    }
}

impl UtxoStore {
    /// Makes a record.
    ///
    /// # Errors
    /// [`UtxoRefusal`], and nothing has changed.
    pub fn create(
        &mut self,
        blobs: &mut BlobStore,
        item: &UtxoCreate,
        call: &Call,
    ) -> Result<UtxoCreated, UtxoRefusal> {
        call.check()?;
        records::creating(|| {
            let draft = Draft::new(self, blobs, item, call)?;
            self.insert(blobs, draft, item, call)
        })
    }

    /// Makes a record of what is known of its transaction.
    ///
    /// # Errors
    /// As [`create`](Self::create).
    pub fn insert(
        &mut self,
        blobs: &mut BlobStore,
        draft: Draft,
        item: &UtxoCreate,
        call: &Call,
    ) -> Result<UtxoCreated, UtxoRefusal> {
        let parsed = &draft.parsed;
        if parsed.outputs.is_empty() {
            return Err(UtxoRefusal::NoOutputs);
        }
        let parsed_here = !matches!(draft.body, Body::Outside(_));
        if call.settings.require_extended && parsed_here && !parsed.extended && !parsed.inputs.is_empty() {
            return Err(UtxoRefusal::NotExtended { input: 0 });
        }
        if let Some(mined) = &item.mined {
            check_mined(mined, call)?;
        }
        self.check_absent(&parsed.txid)?;
        self.check_replay(parsed, item)?;

        let mut head = draft.head(item, call);
        if !footprint::is_small(&draft) {
            let heap = self.check_footprint(&draft, &head, item, &wanted(&head))?;
            self.changed.heap = self.changed.heap.max(heap);
        }
        let stored = draft.store(blobs, &mut head, call)?;
        // The pages of its bytes, one of the blobs' table and one of what is free.
        let written = |part: &BlobPtr| u64::from(part.len).div_ceil(4_096) + 2;
        self.changed.blobs += stored.blobs.iter().map(written).sum::<u64>();
        let made = if item.conflicting {
            self.atomically(|store| {
                store.enter_with_parents(&parsed.txid, &parsed.inputs)?;
                store.put(parsed, &stored.tail, &mut head, item.mined.as_ref(), call)
            })
        } else {
            self.put(parsed, &stored.tail, &mut head, item.mined.as_ref(), call)
        };
        if let Err(error) = made {
            place::release(blobs, &stored.blobs);
            return Err(error);
        }
        if let Body::Uploaded(_, parts) = &draft.body {
            self.uploads.close(blobs, parts, head.is(flag::EXTERNAL));
        }
        Ok(UtxoCreated {
            txid: head.txid.into(),
            utxos: head.total_utxos,
            extra_pages: head.extra_pages,
            external: head.is(flag::EXTERNAL),
        })
    }

    /// Whether a transaction has no record.
    ///
    /// # Errors
    /// `TxExists`, `BeingDeleted`, `Corrupt`.
    pub fn check_absent(&self, txid: &Hash) -> Result<(), UtxoRefusal> {
        match self.find_any(txid) {
            Err(UtxoRefusal::TxNotFound) => Ok(()),
            Err(error) => Err(error),
            Ok(found) if found.head.is(flag::DELETING) => Err(UtxoRefusal::BeingDeleted),
            Ok(_) => Err(UtxoRefusal::TxExists),
        }
    }

    /// Refuses a record for a transaction whose blocks all lie at or below the pruned height, if an earlier record of it may have been
    /// pruned: outputs that were spent could be spent again. Above the pruned height nothing is looked up.
    ///
    /// # Errors
    /// `Pruned`, `TooMuchWork`, `Corrupt`.
    fn check_replay(&self, parsed: &Parsed, item: &UtxoCreate) -> Result<(), UtxoRefusal> {
        let blocks = item.mined.as_ref().map_or(&[][..], |mined| &mined.blocks);
        if blocks.is_empty() || blocks.iter().any(|block| block.height > self.root.pruned) {
            return Ok(());
        }
        let (mut has_parent, mut last, mut lookups): (_, Option<(&Hash, Option<Found>)>, _) = (false, None, 0);
        for ((parent, vout), vin) in parsed.inputs.iter().zip(0..) {
            if last.as_ref().is_none_or(|(known, _)| !same_key(known, parent)) {
                lookups += 1;
                if lookups > MOST_LOOKUPS {
                    return Err(UtxoRefusal::TooMuchWork);
                }
                let found = match self.find_any(parent) {
                    Ok(found) => Some(found),
                    Err(UtxoRefusal::TxNotFound) => None,
                    Err(error) => return Err(error),
                };
                last = Some((parent, found));
            }
            let Some((_, Some(found))) = &last else { continue };
            has_parent |= !found.head.is(flag::DELETING);
            let entry = self.entry_address(found.slot, &found.head, *vout).map(|address| self.entry(address));
            if entry.is_some_and(|entry| entry.is(SPENDER_DELETED) && entry.held_by(&parsed.txid, vin)) {
                return Err(UtxoRefusal::Pruned);
            }
        }
        if has_parent || item.is_new { Ok(()) } else { Err(UtxoRefusal::Pruned) }
    }

    /// Writes the record, its pages, and enters it everywhere. Nothing has changed where it fails, but within
    /// [`atomically`](Self::atomically).
    fn put(
        &mut self,
        parsed: &Parsed,
        tail: &[u8],
        head: &mut Head,
        mined: Option<&MinedIn>,
        call: &Call,
    ) -> Result<(), UtxoRefusal> {
        let Parsed { outputs, inputs, .. } = parsed;
        let batch = head.batch as usize;
        if head.len() > MAX_LEN {
            return Err(UtxoRefusal::TooLarge { what: "bytes of a record".into(), limit: u64::from(MAX_LEN) });
        }
        let blocks = mined.map_or(&[][..], |mined| &mined.blocks);
        let extras =
            Extras { blocks: blocks.iter().skip(HEAD_BLOCKS as usize).copied().collect(), ..Extras::default() };
        let mut entering = Vec::with_capacity(3);
        if !mined.is_some_and(|mined| mined.on_longest_chain) {
            let key = self.root.unmined_key(call.height);
            entering.extend([(Order::UnminedSince, key), (Order::CreatedAt, head.created_secs())]);
        }
        // What has something to spend is not done yet.
        let evaluated = head.is(flag::CONFLICTING) || head.total_utxos == 0;
        if evaluated {
            let highest = blocks.iter().map(|block| block.height).max();
            entering.push((Order::DeleteAt, call.due(highest.unwrap_or(0))));
        }
        let wanted = wanted(head);
        self.root.reserve(&self.slots, &entering, &wanted)?;

        self.changed.table += 3;
        let slot = self.slots.allocate(head.len())?;
        if let Err(error) = self.table.insert(self.table.hash(&head.txid), u64::from(slot)) {
            self.slots.free(slot);
            return Err(error.into());
        }
        let mut record = Vec::with_capacity(head.transaction_at() as usize + tail.len().min(LONG_TAIL));
        head.encode_onto(&mut record);
        entries_onto(&outputs[..head.own_outputs() as usize], &mut record);
        if head.input_pages() == 0 {
            inputs_onto(inputs, &mut record);
        }
        let mut page = Vec::new();
        for (number, outputs) in (1..).zip(outputs.chunks(batch).skip(1)) {
            page_bytes(number, slot, outputs, &mut page);
            record.extend(self.put_page(&page).to_le_bytes());
        }
        if head.input_pages() > 0 {
            for inputs in inputs.chunks(INPUTS_OF_PAGE as usize) {
                page.clear();
                inputs_onto(inputs, &mut page);
                record.extend(self.put_page(&page).to_le_bytes());
            }
        }
        if tail.len() < LONG_TAIL {
            record.extend_from_slice(tail);
            self.slots.write(slot, 0, &record);
        } else {
            self.slots.write(slot, 0, &record);
            self.slots.write(slot, head.transaction_at(), tail);
        }

        extras.save(&mut self.slots, slot, head).unwrap_or_else(|error| {
            crate::platform::trap(&format!("the record's blocks: memory was not reserved: {error:?}"))
        });
        self.root.records += 1;
        self.root.pages += u64::from(head.extra_pages);
        self.root.save_counts(&mut self.slots);
        if !mined.is_some_and(|mined| mined.on_longest_chain) {
            self.set_unmined(slot, head, Some(call.height));
        }
        if evaluated {
            self.evaluate(slot, call)?;
        }
        Ok(())
    }

    fn put_page(&mut self, bytes: &[u8]) -> SlotId {
        let slot = self.slots.allocate(bytes.len() as u32).unwrap_or_else(|error| {
            crate::platform::trap(&format!("a page of the record: memory was not reserved: {error:?}"))
        });
        self.slots.write(slot, 0, bytes);
        slot
    }

    /// Takes a record among the unmined ones, or from them. Memory is reserved.
    pub(super) fn set_unmined(&mut self, slot: SlotId, head: &Head, since: Option<u32>) {
        let [_, unmined, _, created] = head.links;
        if since != head.unmined_since() {
            let key = since.map(|since| self.root.unmined_key(since));
            self.root.set(&mut self.slots, Order::UnminedSince, slot, unmined, key);
        }
        self.root.set(&mut self.slots, Order::CreatedAt, slot, created, since.map(|_| head.created_secs()));
    }

    /// Enters a double spend with each of its parents that has a record. This may fail in its middle.
    pub(super) fn enter_with_parents(&mut self, txid: &Hash, inputs: &[(Hash, u32)]) -> Result<(), UtxoRefusal> {
        parents(inputs).into_iter().try_for_each(|parent| self.add_child(&parent, txid))
    }

    /// Takes what is no double spend any more, or no more at all, from the lists of its parents.
    pub(super) fn leave_parents(&mut self, txid: &Hash, inputs: &[(Hash, u32)]) -> Result<(), UtxoRefusal> {
        parents(inputs).into_iter().try_for_each(|parent| self.remove_child(&parent, txid))
    }
}
