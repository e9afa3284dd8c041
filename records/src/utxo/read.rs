//! Queries of UTXO records.

use super::call::{Answer, check_height, hash_of, if_found};
use super::encoding;
use super::limits::{QUERY, at_most, look_up, meter};
use super::parse::is_transaction;
use super::record::extras::{Extras, Reassigned};
use super::record::location::{self, file_type};
use super::record::{
    EntryAddress, FROZEN, Hash, INPUT, Order, REASSIGNED, SPENDER_DELETED, SPENT, entries, extra_page, flag, inputs,
};
use super::store::{BytesOf, Found, UtxoStore};
use ic_coppice_interface::methods::MAX_REPLY;
use ic_coppice_interface::*;
use ic_coppice_storage::NS;
use ic_coppice_storage::blob::BlobStore;
use ic_coppice_storage::slots::SlotId;
use serde_bytes::ByteBuf;
use std::collections::BinaryHeap;

/// Maximum entries of one reply.
const MAX_ENTRIES: u32 = 5_000;
/// Maximum pages whose counters come with a record.
const MAX_PAGES: u32 = 1_000;
/// Maximum bytes of inpoints that come with a record.
const MAX_INPOINTS: usize = 256 << 10;
/// Maximum outputs that one call asks for.
const MAX_OUTPOINTS: usize = 5_000;
/// Maximum transactions of one page of unmined transactions.
const MAX_UNMINED: u32 = 2_000;

impl UtxoStore {
    /// Returns a record, with the entries of some of its outputs.
    ///
    /// # Errors
    /// `TxNotFound`, `BadArgument`, `Corrupt`.
    pub fn get(&self, arg: &UtxoGet) -> Answer<UtxoRecord> {
        let Found { slot, head, .. } = self.find_any(&hash_of("txid", &arg.txid)?)?;
        let extras = Extras::load(&self.slots, &head)?;
        let blocks = self.blocks(&head)?;
        let mut utxos = Vec::new();
        let mut deleted_children: Vec<Txid> = Vec::new();
        let mut known = std::collections::BTreeSet::new();
        entries(&self.slots, slot, &head, (arg.first, arg.limit.min(MAX_ENTRIES)), |_, _, entry| {
            utxos.push(entry.shown());
            if entry.is(SPENDER_DELETED) && known.insert(entry.spender.0) {
                deleted_children.push(entry.spender.0.into());
            }
        })?;
        let inpoints_fit = (head.inputs * INPUT) as usize <= 2 * MAX_INPOINTS;
        let inpoints = if inpoints_fit { Some(encoding::inpoints(&inputs(&self.slots, slot, &head)?)) } else { None };
        let reassignment = |Reassigned { vout, old, new, height }| Reassignment {
            offset: vout,
            utxo_hash: old.into_vec().into(),
            new_utxo_hash: new.into_vec().into(),
            block_height: height,
        };
        let first_page = arg.extra_pages_cursor.unwrap_or(1).max(1);
        let last_page = first_page.saturating_add(MAX_PAGES - 1);
        Ok(UtxoRecord {
            txid: arg.txid.clone(),
            utxos,
            first: arg.first,
            total_outputs: head.outputs,
            total_utxos: head.total_utxos,
            utxo_batch_size: head.batch,
            record_utxos: head.utxos,
            spent_utxos: head.spent,
            total_extra_recs: head.extra_pages,
            spent_extra_recs: head.spent_extra,
            extra_pages: (first_page..=head.extra_pages.min(last_page))
                .map(|page| Ok(extra_page(&self.slots, slot, &head, page)?.1))
                .collect::<Answer<_>>()?,
            extra_pages_cursor: Some(last_page.saturating_add(1)).filter(|page| *page <= head.extra_pages),
            spendable_in: extras.spendable_in.into_iter().map(|(vout, height)| SpendableIn { vout, height }).collect(),
            frozen: head.any_frozen(),
            locked: head.is(flag::LOCKED),
            conflicting: head.is(flag::CONFLICTING),
            conflicting_children: self.children(&head)?,
            unmined_since: head.unmined_since(),
            created_at_ns: head.created_at_ns,
            preserve_until: head.key(Order::PreserveUntil),
            postponed_until: head.key(Order::DeleteAt).filter(|_| head.is(flag::POSTPONED)),
            delete_at_height: head.delete_at(),
            spending_height: Some(head.spending_height).filter(|height| *height > 0),
            blocks,
            transaction: location::of(&self.slots, slot, &head)?,
            reassignments: extras.reassignments.into_iter().map(reassignment).collect(),
            deleted_children,
            fee: head.is(flag::FEE).then_some(head.fee),
            size_in_bytes: head.size,
            inputs: head.inputs,
            inpoints: inpoints.filter(|bytes| bytes.len() <= MAX_INPOINTS).map(ByteBuf::from),
            is_coinbase: head.is(flag::COINBASE),
            version: head.version,
            lock_time: head.lock_time,
            extended: head.is(flag::EXTENDED),
            being_deleted: head.is(flag::DELETING),
        })
    }

    /// Returns a part of a transaction's bytes, or of its TxInpoints.
    ///
    /// # Errors
    /// `TxNotFound`, `BadArgument`, `External`, `NotKept`, `Corrupt`.
    pub fn transaction(&self, blobs: &BlobStore, arg: &UtxoGetPart, bytes_of: impl BytesOf) -> Answer<TransactionPart> {
        let Found { slot, head, .. } = self.find_any(&hash_of("txid", &arg.txid)?)?;
        if arg.part == UtxoPart::Inpoints {
            let bytes = encoding::inpoints(&inputs(&self.slots, slot, &head)?);
            let offset = arg.offset.min(bytes.len() as u64) as usize;
            let len = arg.length.min((bytes.len() - offset) as u64).min(MAX_REPLY) as usize;
            let (part, total) = (ByteBuf::from(&bytes[offset..offset + len]), bytes.len() as u64);
            return Ok(TransactionPart { bytes: part, total, file_type: file_type(&head) });
        }
        let place = location::of(&self.slots, slot, &head)?;
        let total = match &place {
            TransactionPlace::External(store) => return Err(UtxoRefusal::External(store.clone())),
            TransactionPlace::Record if !head.is(flag::KEPT) => u64::from(head.transaction_len),
            TransactionPlace::Record | TransactionPlace::Block { .. } => head.size,
            TransactionPlace::Blobs { parts, .. } => parts.iter().map(|part| u64::from(part.len)).sum(),
        };
        let offset = arg.offset.min(total);
        let len = arg.length.min(total - offset).min(MAX_REPLY);
        let bytes = match &place {
            TransactionPlace::Blobs { parts, .. } => location::read(blobs, parts.iter().map(Into::into), offset, len)?,
            TransactionPlace::Block { number, offset: at } => {
                // Another block may have the number since.
                let whole = bytes_of(blobs, *number, (*at, head.size)).filter(|raw| is_transaction(raw, &head.txid));
                whole.ok_or(UtxoRefusal::NotKept)?[offset as usize..(offset + len) as usize].to_vec()
            }
            _ => {
                let mut bytes = Vec::new();
                let own = location::own_slot(&self.slots, slot, &head);
                let (slot, at) = own.map_or((slot, head.transaction_at()), |own| (own, 0));
                self.slots.read_onto(&mut bytes, slot, at + offset as u32, len as usize);
                bytes
            }
        };
        Ok(TransactionPart { bytes: ByteBuf::from(bytes), total, file_type: file_type(&head) })
    }

    /// Returns for each output whether it could be spent at the height `at`, which may be at most `most`.
    ///
    /// # Errors
    /// `BadHeight`, `TooLarge`, `BadArgument`, `TooMuchWork`, `Corrupt`. A missing output is not an error.
    pub fn spend_states(&self, outpoints: &[Outpoint], at: u32, most: u32) -> Answer<Vec<UtxoSpendState>> {
        check_height(at, most)?;
        at_most("outpoints", outpoints.len() as u64, MAX_OUTPOINTS as u64)?;
        let (mut last, mut meter): (Option<(Hash, Option<Found>)>, _) = (None, meter(QUERY));
        let state = |outpoint: &Outpoint| {
            let txid = hash_of("txid", &outpoint.txid)?;
            if last.as_ref().is_none_or(|(known, _)| *known != txid) {
                look_up(&mut meter)?;
                last = Some((txid, if_found(self.find(&txid))?));
            }
            let found = last.as_ref().and_then(|(_, found)| found.as_ref());
            self.spend_state(found, outpoint.vout, at)
        };
        outpoints.iter().map(state).collect()
    }

    fn spend_state(&self, found: Option<&Found>, vout: u32, at: u32) -> Answer<UtxoSpendState> {
        let absent = UtxoSpendState { status: SpendStatus::NotFound, utxo_hash: None, spender: None };
        let Some(found) = found else { return Ok(absent) };
        let head = &found.head;
        let entry = if_found(EntryAddress::utxo(&self.slots, found.slot, head, vout))?.map(|(_, entry)| entry);
        let immature = |height: u32| (at < height).then_some(SpendStatus::Immature { spendable_at: height });
        let status = if head.is(flag::CONFLICTING) {
            SpendStatus::Conflicting
        } else if head.is(flag::LOCKED) {
            SpendStatus::Locked
        } else if let Some(immature) = immature(head.spending_height) {
            immature
        } else {
            let Some(entry) = entry else { return Ok(absent) };
            let reassigned = if entry.is(REASSIGNED) { immature(self.spendable_in(found, vout)?) } else { None };
            match reassigned {
                _ if entry.is(FROZEN) => SpendStatus::Frozen,
                Some(immature) => immature,
                None if entry.is(SPENT) => SpendStatus::Spent,
                None => SpendStatus::Ok,
            }
        };
        Ok(UtxoSpendState {
            status,
            utxo_hash: entry.map(|entry| UtxoHash::from(entry.hash)),
            spender: entry.and_then(|entry| entry.spent_by()),
        })
    }

    /// Returns unmined transactions by `created_at_ns`. Reads all transactions of each second that a page touches, so that a cursor stays
    /// valid when its transaction is deleted.
    ///
    /// # Errors
    /// `BadArgument` if the cursor's txid does not have 32 bytes.
    pub fn unmined(&self, cursor: Option<&UnminedCursor>, limit: u32) -> Answer<UnminedPage> {
        let limit = if limit == 0 { MAX_UNMINED } else { limit.min(MAX_UNMINED) } as usize;
        let txid = cursor.map(|cursor| hash_of("cursor.txid", &cursor.txid)).transpose()?;
        let after = cursor.map(|cursor| cursor.created_at_ns).zip(txid);
        let mut transactions: Vec<UnminedTransaction> = Vec::new();
        let mut more = false;
        for second in self.root.keys(&self.slots, Order::CreatedAt, after.map_or(0, |(at, _)| (at / NS) as u32)) {
            let room = limit - transactions.len();
            let first = self.first_unmined(second, after, room + 1);
            more = first.len() > room;
            let heads = first.into_iter().take(room).filter_map(|(_, _, slot)| self.read_head(slot));
            transactions.extend(heads.map(|head| UnminedTransaction {
                txid: head.txid.into(),
                created_at_ns: head.created_at_ns,
                unmined_since: head.unmined_since().unwrap_or(0),
                fee: head.is(flag::FEE).then_some(head.fee),
                size_in_bytes: head.size,
                locked: head.is(flag::LOCKED),
                conflicting: head.is(flag::CONFLICTING),
            }));
            if more {
                break;
            }
        }
        let last = transactions.last().filter(|_| more);
        let cursor = last.map(|last| UnminedCursor { created_at_ns: last.created_at_ns, txid: last.txid.clone() });
        Ok(UnminedPage { transactions, cursor })
    }

    /// Returns the first unmined transactions of a second after a place. Skips records that cannot be decoded.
    fn first_unmined(&self, second: u32, after: Option<(u64, Hash)>, most: usize) -> Vec<(u64, Hash, SlotId)> {
        let mut first = BinaryHeap::with_capacity(most + 1);
        // A damaged ring may lead in a circle.
        let steps = self.root.count(Order::CreatedAt) as usize;
        for slot in self.root.under(&self.slots, Order::CreatedAt, second).take(steps) {
            let Some(head) = self.read_head(slot) else { continue };
            let place = (head.created_at_ns, head.txid);
            if after.is_none_or(|after| place > after) {
                first.push((place.0, place.1, slot));
                if first.len() > most {
                    first.pop();
                }
            }
        }
        first.into_sorted_vec()
    }
}
