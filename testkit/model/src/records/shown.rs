//! A record in the form of the interface.

use super::{Output, Record, Txid};
use ic_coppice_interface::*;
use serde_bytes::ByteBuf;

impl Record {
    /// Returns a record as `utxo_get` shows it.
    pub fn shown(&self, txid: &Txid) -> UtxoRecord {
        let entry = |output: &Output| {
            let mut bytes = output.hash.to_vec();
            match &output.hold {
                _ if output.frozen => bytes.extend([0xFF; 36]),
                Some(hold) => bytes.extend([&hold.by[..], &hold.vin.to_le_bytes()].concat()),
                None => {}
            }
            ByteBuf::from(bytes)
        };
        let page = |outputs: &[Option<Output>]| {
            let spent = outputs.iter().flatten().filter(|output| output.hold.is_some());
            UtxoPage { record_utxos: outputs.iter().flatten().count() as u32, spent_utxos: spent.count() as u32 }
        };
        let pages: Vec<UtxoPage> = self.outputs.chunks(self.batch as usize).map(page).collect();
        let spent = pages[1..].iter().filter(|page| page.record_utxos == page.spent_utxos).count();
        let deleted = self.holds().filter(|hold| hold.deleted).map(|hold| ic_coppice_interface::Txid::from(hold.by));
        UtxoRecord {
            txid: (*txid).into(),
            utxos: self.outputs.iter().map(|output| output.as_ref().map(entry)).collect(),
            first: 0,
            total_outputs: self.outputs.len() as u32,
            total_utxos: self.utxos().count() as u32,
            utxo_batch_size: self.batch,
            record_utxos: pages[0].record_utxos,
            spent_utxos: pages[0].spent_utxos,
            total_extra_recs: pages.len() as u32 - 1,
            spent_extra_recs: spent as u32,
            extra_pages: pages[1..].to_vec(),
            extra_pages_cursor: None,
            spendable_in: Vec::new(),
            frozen: self.utxos().any(|output| output.frozen),
            locked: self.locked,
            conflicting: self.conflicting,
            conflicting_children: self.conflicting_children.iter().map(Into::into).collect(),
            unmined_since: self.unmined_since,
            created_at_ns: 0,
            preserve_until: self.preserve_until,
            postponed_until: None,
            delete_at_height: self.delete_at_height,
            spending_height: None,
            blocks: self.blocks.clone(),
            transaction: self.blob.clone().map_or(TransactionPlace::Record, TransactionPlace::External),
            reassignments: Vec::new(),
            deleted_children: deleted.collect(),
            fee: None,
            size_in_bytes: 0,
            inputs: self.inputs.len() as u32,
            inpoints: None,
            is_coinbase: false,
            version: 1,
            lock_time: 0,
            extended: false,
            being_deleted: self.deleting,
        }
    }
}
