//! Looking at records.

use super::source::inpoints;
use super::{Hash, Hold, Indexes, Model, Output, Record, buf, hash_argument};
use coppice_interface::*;
use serde_bytes::ByteBuf;
use std::collections::{BTreeMap, BTreeSet};

impl Model {
    /// The record, with at most `limit` entries from output `first` on.
    pub fn record(&self, txid: &[u8], first: u32, limit: u32) -> Result<UtxoRecord, UtxoRefusal> {
        let record = self.get(txid)?;
        let window: Vec<_> = record.outputs.iter().skip(first as usize).take(limit as usize).collect();
        let mut deleted_children: Vec<Txid> = Vec::new();
        for hold in window.iter().copied().flatten().filter_map(|output| output.hold.as_ref()) {
            if hold.deleted && !deleted_children.contains(&buf(&hold.by)) {
                deleted_children.push(buf(&hold.by));
            }
        }
        let pages = record.counters();
        let (master, extra) = pages.split_first().expect("there are outputs");
        Ok(UtxoRecord {
            txid: buf(&record.given.txid),
            utxos: window.iter().map(|output| output.as_ref().map(Output::encoded)).collect(),
            first,
            total_outputs: record.outputs.len() as u32,
            total_utxos: record.utxos().count() as u32,
            utxo_batch_size: record.batch,
            record_utxos: master.record_utxos,
            spent_utxos: master.spent_utxos,
            total_extra_recs: extra.len() as u32,
            spent_extra_recs: extra.iter().filter(|page| page.spent_utxos == page.record_utxos).count() as u32,
            extra_pages: extra.iter().take(1_000).copied().collect(),
            extra_pages_cursor: (extra.len() > 1_000).then_some(1_001),
            spendable_in: record.spendable_in.iter().map(|(&vout, &height)| SpendableIn { vout, height }).collect(),
            frozen: record.utxos().any(|output| output.frozen),
            locked: record.locked,
            conflicting: record.conflicting,
            conflicting_children: record.conflicting_children.iter().map(buf).collect(),
            unmined_since: record.unmined_since,
            created_at: record.created_at,
            preserve_until: record.preserve_until,
            // The model knows no pruner.
            postponed_until: None,
            delete_at_height: record.delete_at_height,
            spending_height: Some(record.spending_height).filter(|height| *height > 0),
            blocks: record.blocks.clone(),
            transaction: record.given.place.clone(),
            reassignments: record.reassignments.clone(),
            deleted_children,
            fee: record.fee,
            size_in_bytes: record.given.size,
            inputs: record.given.inputs.len() as u32,
            inpoints: Some(ByteBuf::from(inpoints(&record.given.inputs))).filter(|bytes| bytes.len() <= 256 << 10),
            is_coinbase: record.given.coinbase,
            version: record.given.version,
            lock_time: record.given.lock_time,
            extended: record.given.extended,
            being_deleted: false,
        })
    }

    /// The transaction's bytes.
    pub fn transaction(&self, part: &UtxoGetPart) -> Result<TransactionPart, UtxoRefusal> {
        let given = &self.get(&part.txid)?.given;
        match &given.place {
            TransactionPlace::Outside(store) => Err(UtxoRefusal::Outside(store.clone())),
            _ => {
                let bytes = given.bytes.iter().skip(part.offset as usize).take(part.length as usize).copied();
                let (bytes, total) = (bytes.collect(), given.bytes.len() as u64);
                Ok(TransactionPart {
                    bytes: ByteBuf::from(Vec::from_iter::<Vec<u8>>(bytes)),
                    total,
                    file_type: given.file_type,
                })
            }
        }
    }

    /// The transaction's TxInpoints.
    pub fn inpoints(&self, part: &UtxoGetPart) -> Result<InpointsPart, UtxoRefusal> {
        let all = inpoints(&self.get(&part.txid)?.given.inputs);
        let bytes = all.iter().skip(part.offset as usize).take(part.length as usize).copied();
        Ok(InpointsPart { bytes: ByteBuf::from(bytes.collect::<Vec<_>>()), total: all.len() as u64 })
    }

    /// Whether an output can be spent.
    pub fn spend_state(&self, outpoint: &Outpoint, height: u32) -> Result<UtxoSpendState, UtxoRefusal> {
        let missing = UtxoSpendState { status: SpendStatus::NotFound, utxo_hash: None, spender: None };
        let txid = hash_argument("txid", &outpoint.txid)?;
        let Some(record) = self.records.get(&txid) else { return Ok(missing) };
        let output = record.utxo(outpoint.vout).ok();
        let hold = output.and_then(|output| output.hold.as_ref());
        let reassigned = record.spendable_in.get(&outpoint.vout).filter(|&&from| height < from);
        let status = match output {
            _ if record.conflicting => SpendStatus::Conflicting,
            _ if record.locked => SpendStatus::Locked,
            _ if height < record.spending_height => SpendStatus::Immature { spendable_at: record.spending_height },
            None => SpendStatus::NotFound,
            Some(output) if output.frozen => SpendStatus::Frozen,
            Some(_) if reassigned.is_some() => SpendStatus::Immature { spendable_at: *reassigned.expect("it is some") },
            Some(_) if hold.is_some() => SpendStatus::Spent,
            Some(_) => SpendStatus::Ok,
        };
        let utxo_hash = output.map(|output| UtxoHash::from(output.hash));
        Ok(UtxoSpendState { status, utxo_hash, spender: hold.map(Hold::spender) })
    }

    /// Unmined transactions, by `created_at` and then by id; behind the cursor, or from its second on where it is no page's end.
    pub fn list_unmined(&self, after: Option<&UnminedCursor>, limit: usize) -> UnminedPage {
        let unmined = self.records.iter().filter_map(|(txid, record)| {
            Some(UnminedTransaction {
                txid: buf(txid),
                created_at: record.created_at,
                unmined_since: record.unmined_since?,
                fee: record.fee,
                size_in_bytes: record.given.size,
                locked: record.locked,
                conflicting: record.conflicting,
            })
        });
        let behind = |tx: &UnminedTransaction| {
            after.is_none_or(|after| (tx.created_at, &tx.txid) > (after.created_at, &after.txid))
        };
        let mut transactions: Vec<UnminedTransaction> = unmined.filter(behind).collect();
        transactions.sort_by(|a, b| (a.created_at, &a.txid).cmp(&(b.created_at, &b.txid)));
        let more = transactions.len() > limit;
        transactions.truncate(limit);
        let last = transactions.last().filter(|_| more);
        let cursor = last.map(|last| UnminedCursor { created_at: last.created_at, txid: last.txid.clone() });
        UnminedPage { transactions, cursor }
    }

    /// Class bytes that records keep in the BlobStore.
    pub fn external_bytes(&self) -> u64 {
        self.records.values().map(|record| record.given.class_bytes()).sum()
    }

    pub fn indexes(&self) -> Indexes {
        let mut indexes = Indexes::default();
        for (txid, record) in &self.records {
            let enter = |index: &mut BTreeMap<u32, BTreeSet<Hash>>, height: Option<u32>| {
                if let Some(height) = height {
                    index.entry(height).or_default().insert(*txid);
                }
            };
            enter(&mut indexes.deletable, record.delete_at_height);
            enter(&mut indexes.unmined, record.unmined_since);
            enter(&mut indexes.preserved, record.preserve_until);
        }
        indexes
    }

    /// The counters; bytes are not the model's.
    pub fn storage(&self) -> UtxoStorage {
        let count = |f: &dyn Fn(&Record) -> bool| self.records.values().filter(|record| f(record)).count() as u64;
        UtxoStorage {
            records: self.records.len() as u64,
            extra_pages: self.records.values().map(|record| record.counters().len() as u64 - 1).sum(),
            deletable: count(&|record| record.delete_at_height.is_some()),
            unmined: count(&|record| record.unmined_since.is_some()),
            preserved: count(&|record| record.preserve_until.is_some()),
            pruned_height: Some(self.pruned).filter(|height| *height > 0),
            used_bytes: 0,
            reusable_bytes: 0,
            billed_bytes: 0,
            max_bytes: 0,
        }
    }
}
