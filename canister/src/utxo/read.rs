//! Looking at records.

use super::encoding;
use super::entry::{FROZEN, REASSIGNED, SPENDER_DELETED, SPENT, UTXO};
use super::extras::Extras;
use super::order::Order;
use super::place::{self, file_type};
use super::record::{Hash, Head, INPUT, flag, inputs, page_at, page_slot};
use super::{Found, UtxoStore, check_height, hash_of};
use crate::api::*;
use crate::blob::BlobStore;
use crate::chain::MAX_REPLY;
use crate::slots::SlotId;
use crate::slots::ring::Link;
use serde_bytes::ByteBuf;

/// Entries of one answer.
const MAX_ENTRIES: u32 = 5_000;
/// Pages whose counters come with a record.
const MAX_PAGES: usize = 1_000;
/// Bytes of inpoints that come with a record.
const MAX_INPOINTS: usize = 256 << 10;
/// Outputs that one call asks for.
const MAX_OUTPOINTS: usize = 5_000;
/// Transactions of one page of unmined ones.
const MAX_UNMINED: u32 = 2_000;

impl UtxoStore {
    /// A record, with the entries of some of its outputs.
    ///
    /// # Errors
    /// `TxNotFound`, `BadArgument`, `Corrupt`.
    pub fn get(&self, arg: &UtxoGet) -> Result<UtxoRecord, UtxoError> {
        let Found { slot, head, .. } = self.find_any(&hash_of("txid", &arg.txid)?)?;
        let extras = Extras::load(&self.slots, &head)?;
        let blocks = self.blocks(&head)?;
        let mut utxos = Vec::new();
        let mut deleted_children: Vec<ByteBuf> = Vec::new();
        let mut known = std::collections::HashSet::new();
        self.entries(slot, &head, (arg.first, arg.limit.min(MAX_ENTRIES)), |_, _, entry| {
            utxos.push(entry.shown());
            if entry.is(SPENDER_DELETED) && known.insert(entry.spender.0) {
                deleted_children.push(ByteBuf::from(entry.spender.0));
            }
        });
        let inpoints_fit = (head.inputs * INPUT) as usize <= 2 * MAX_INPOINTS;
        let inpoints = inpoints_fit.then(|| encoding::inpoints(&inputs(&self.slots, slot, &head)));
        let [delete_at, unmined, preserve, _] = head.links.map(Link::key);
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
            extra_pages: (arg.first / head.batch..=head.extra_pages)
                .filter(|page| *page > 0)
                .take(MAX_PAGES)
                .map(|page| self.page(slot, &head, page))
                .collect(),
            spendable_in: extras.spendable_in.into_iter().collect(),
            frozen: head.any_frozen(),
            locked: head.is(flag::LOCKED),
            conflicting: head.is(flag::CONFLICTING),
            conflicting_children: extras.conflicting_children,
            unmined_since: unmined,
            created_at: head.created_at,
            preserve_until: preserve,
            delete_at_height: delete_at,
            spending_height: head.spending_height,
            block_ids: blocks.iter().map(|block| block.block_id).collect(),
            block_heights: blocks.iter().map(|block| block.height).collect(),
            subtree_idxs: blocks.iter().map(|block| block.subtree).collect(),
            transaction: self.place(slot, &head)?,
            reassignments: extras
                .reassignments
                .into_iter()
                .map(|r| Reassignment {
                    offset: r.vout,
                    utxo_hash: r.old,
                    new_utxo_hash: r.new,
                    block_height: r.height,
                })
                .collect(),
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

    fn page(&self, slot: SlotId, head: &Head, page: u32) -> UtxoPage {
        let page = page_slot(&self.slots, slot, head, page);
        UtxoPage {
            record_utxos: self.slots.read_u32(page, page_at::UTXOS),
            spent_utxos: self.slots.read_u32(page, page_at::SPENT),
        }
    }

    /// A part of a transaction's bytes.
    ///
    /// # Errors
    /// `TxNotFound`, `BadArgument`, `Outside`, `Corrupt`.
    pub fn transaction(&self, blobs: &BlobStore, arg: &UtxoGetPart) -> Result<TransactionPart, UtxoError> {
        let Found { slot, head, .. } = self.find_any(&hash_of("txid", &arg.txid)?)?;
        let place = self.place(slot, &head)?;
        let total = match &place {
            TransactionPlace::Outside(store) => return Err(UtxoError::Outside(store.clone())),
            TransactionPlace::Record => u64::from(head.transaction_len),
            TransactionPlace::Blobs { parts, .. } => parts.iter().map(|part| u64::from(part.len)).sum(),
        };
        let offset = arg.offset.min(total);
        let len = arg.length.min(total - offset).min(MAX_REPLY);
        let bytes = match &place {
            TransactionPlace::Blobs { parts, .. } => place::read(blobs, parts, offset, len)?,
            _ => {
                let mut bytes = Vec::new();
                self.slots.read_onto(&mut bytes, slot, head.transaction_at() + offset as u32, len as usize);
                bytes
            }
        };
        Ok(TransactionPart { bytes: ByteBuf::from(bytes), total, file_type: file_type(&head) })
    }

    /// A part of a transaction's TxInpoints.
    ///
    /// # Errors
    /// `TxNotFound`, `BadArgument`.
    pub fn inpoints(&self, arg: &UtxoGetPart) -> Result<InpointsPart, UtxoError> {
        let Found { slot, head, .. } = self.find_any(&hash_of("txid", &arg.txid)?)?;
        let bytes = encoding::inpoints(&inputs(&self.slots, slot, &head));
        let offset = arg.offset.min(bytes.len() as u64) as usize;
        let len = arg.length.min((bytes.len() - offset) as u64).min(MAX_REPLY) as usize;
        Ok(InpointsPart { bytes: ByteBuf::from(&bytes[offset..offset + len]), total: bytes.len() as u64 })
    }

    /// Whether outputs could be spent at a height.
    ///
    /// # Errors
    /// `BadHeight`, `TooLarge`, `BadArgument`, `Corrupt`. What is not there is no error.
    pub fn spend_states(&self, outpoints: &[Outpoint], at: u32) -> Result<Vec<UtxoSpendState>, UtxoError> {
        check_height(at)?;
        if outpoints.len() > MAX_OUTPOINTS {
            return Err(UtxoError::TooLarge { what: "outpoints".into(), limit: MAX_OUTPOINTS as u64 });
        }
        let mut last: Option<(Hash, Option<Found>)> = None;
        let state = |outpoint: &Outpoint| {
            let txid = hash_of("txid", &outpoint.txid)?;
            if last.as_ref().is_none_or(|(known, _)| *known != txid) {
                last = Some((
                    txid,
                    match self.find(&txid) {
                        Ok(found) => Some(found),
                        Err(UtxoError::TxNotFound) => None,
                        Err(error) => return Err(error),
                    },
                ));
            }
            match &last {
                Some((_, Some(found))) => self.spend_state(found, outpoint.vout, at),
                _ => Ok(UtxoSpendState { status: SpendStatus::NotFound, utxo_hash: None, spender: None }),
            }
        };
        outpoints.iter().map(state).collect()
    }

    fn spend_state(&self, found: &Found, vout: u32, at: u32) -> Result<UtxoSpendState, UtxoError> {
        let absent = UtxoSpendState { status: SpendStatus::NotFound, utxo_hash: None, spender: None };
        let head = &found.head;
        let entry = self.entry_place(found.slot, head, vout).map(|place| self.entry(place));
        let entry = entry.filter(|entry| entry.is(UTXO));
        let immature = |height: u32| (at < height).then_some(SpendStatus::Immature { spendable_at: height });
        let status = if head.is(flag::CONFLICTING) {
            SpendStatus::Conflicting
        } else if head.is(flag::LOCKED) {
            SpendStatus::Locked
        } else if let Some(immature) = immature(head.spending_height) {
            immature
        } else {
            let Some(entry) = entry else { return Ok(absent) };
            let reassigned = match entry.is(REASSIGNED) {
                true => immature(self.spendable_in(found, vout)?),
                false => None,
            };
            match reassigned {
                _ if entry.is(FROZEN) => SpendStatus::Frozen,
                Some(immature) => immature,
                None if entry.is(SPENT) => SpendStatus::Spent,
                None => SpendStatus::Ok,
            }
        };
        Ok(UtxoSpendState {
            status,
            utxo_hash: entry.map(|entry| ByteBuf::from(entry.hash)),
            spender: entry.and_then(|entry| entry.spent_by()),
        })
    }

    /// Unmined transactions, by `created_at` and then by id.
    pub fn unmined(&self, cursor: Option<&UnminedCursor>, limit: u32) -> UnminedPage {
        let limit = if limit == 0 { MAX_UNMINED } else { limit.min(MAX_UNMINED) } as usize;
        let mut transactions: Vec<UnminedTransaction> = Vec::new();
        let mut from = cursor.map_or(0, |cursor| (cursor.created_at / 1_000_000_000) as u32);
        // One more than wanted tells whether there are more.
        while transactions.len() <= limit
            && let Some(second) = self.root.next_key(&self.slots, Order::CreatedAt, from)
        {
            let mut of_second: Vec<UnminedTransaction> = self
                .root
                .under(&self.slots, Order::CreatedAt, second)
                .filter_map(|slot| self.read_head(slot))
                .map(|head| unmined_transaction(&head))
                .filter(|tx| cursor.is_none_or(|cursor| place_of(tx) > (cursor.created_at, &cursor.txid)))
                .collect();
            of_second.sort_unstable_by(|a, b| place_of(a).cmp(&place_of(b)));
            transactions.append(&mut of_second);
            let Some(next) = second.checked_add(1) else { break };
            from = next;
        }
        let more = transactions.len() > limit;
        transactions.truncate(limit);
        let last = transactions.last().filter(|_| more);
        let cursor = last.map(|last| UnminedCursor { created_at: last.created_at, txid: last.txid.clone() });
        UnminedPage { transactions, cursor }
    }

    /// The records of an ordered index, by rising height: each height with its transactions.
    pub fn index(&self, order: Order) -> Vec<(u32, Vec<Hash>)> {
        let mut all = Vec::new();
        let mut from = Some(0);
        while let Some(key) = from.and_then(|from| self.root.next_key(&self.slots, order, from)) {
            let records = self.root.under(&self.slots, order, key);
            all.push((key, records.filter_map(|slot| self.read_head(slot)).map(|head| head.txid).collect()));
            from = key.checked_add(1);
        }
        all
    }
}

fn place_of(tx: &UnminedTransaction) -> (u64, &ByteBuf) {
    (tx.created_at, &tx.txid)
}

fn unmined_transaction(head: &Head) -> UnminedTransaction {
    UnminedTransaction {
        txid: ByteBuf::from(head.txid),
        created_at: head.created_at,
        unmined_since: head.links[Order::UnminedSince as usize].key,
        fee: head.is(flag::FEE).then_some(head.fee),
        size_in_bytes: head.size,
        locked: head.is(flag::LOCKED),
        conflicting: head.is(flag::CONFLICTING),
    }
}
