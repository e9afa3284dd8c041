//! View of the canister, and its comparison with the model.

use super::Outcome;
use super::memory::Fillers;
use candid::utils::ArgumentEncoder;
use candid::{CandidType, decode_one, encode_args};
use coppice_model::ensure;
use coppice_model::records::{Family, Record, Records, Txid};
use coppice_tests::coppice::{Coppice, Who};
use ic_coppice_interface::*;
use serde::de::DeserializeOwned;
use serde_bytes::ByteBuf;
use std::any::Any;
use std::collections::{BTreeMap, BTreeSet};

/// Everything that is seen of the canister at one moment.
pub struct View {
    pub records: BTreeMap<Txid, UtxoRecord>,
    pub status: UtxoPrunerStatus,
    /// Waiting and running jobs, then ended ones, the last first.
    pub jobs: Vec<UtxoPruneJob>,
    /// Waiting rows of the deletion queue, by number.
    pub pending: BTreeMap<u64, BlobDeletion>,
    /// Rows that were given up.
    pub dead: BTreeMap<u64, BlobDeletion>,
    pub storage: UtxoStorage,
}

/// The last replies and their decoded values: decoding is the most expensive step, and few replies change at a time.
pub struct Replies<'a> {
    coppice: &'a Coppice,
    known: &'a mut Known,
}

/// By method and argument.
pub type Known = BTreeMap<(&'static str, Vec<u8>), (Vec<u8>, Box<dyn Any>)>;

impl<'a> Replies<'a> {
    pub fn new(coppice: &'a Coppice, known: &'a mut Known) -> Self {
        Self { coppice, known }
    }

    fn ask<R: DeserializeOwned + CandidType + Clone + 'static>(
        &mut self,
        method: &'static str,
        args: impl ArgumentEncoder,
    ) -> Outcome<R> {
        self.ask_with(method, encode_args(args).expect("it encodes"))
    }

    fn ask_with<R: DeserializeOwned + CandidType + Clone + 'static>(
        &mut self,
        method: &'static str,
        arg: Vec<u8>,
    ) -> Outcome<R> {
        let reply = self.coppice.ic.query(self.coppice.id, Who::Anonymous.principal(), method, arg.clone());
        let reply = reply.map_err(|reject| format!("{method}: {reject:?}"))?;
        if let Some((before, decoded)) = self.known.get(&(method, arg.clone()))
            && *before == reply
        {
            return Ok(decoded.downcast_ref::<R>().expect("of the same type").clone());
        }
        let decoded: R = decode_one(&reply).map_err(|error| format!("{method}: {error}"))?;
        self.known.insert((method, arg), (reply, Box::new(decoded.clone())));
        Ok(decoded)
    }

    /// Queries everything.
    pub fn look(mut self, family: &Family) -> Outcome<View> {
        let mut records = BTreeMap::new();
        for one in &family.all {
            match self.ask_with::<Result<UtxoRecord, UtxoError>>("utxo_get", one.get.clone())? {
                Ok(record) => drop(records.insert(one.tx.txid, record)),
                Err(UtxoError::TxNotFound) => {}
                Err(error) => return Err(format!("utxo_get {}: {error:?}", family.name(&one.tx.txid))),
            }
        }
        let pending: Vec<BlobDeletion> =
            self.ask("get_pending_blob_deletions", (u32::MAX, 0u32, None::<Vec<BlobSelector>>))?;
        ensure!(pending.is_sorted_by_key(|row| row.delete_at_height), "blobs are not by height: {pending:?}");
        Ok(View {
            records,
            status: self.ask("utxo_get_pruner_status", ())?,
            jobs: self.jobs()?,
            pending: pending.into_iter().map(|row| (row.id, row)).collect(),
            dead: self.dead()?,
            storage: self.ask::<StorageStatus>("get_storage_status", ())?.utxo.ok_or("the canister keeps records")?,
        })
    }

    /// All jobs, from small pages.
    fn jobs(&mut self) -> Outcome<Vec<UtxoPruneJob>> {
        let (mut jobs, mut cursor) = (Vec::new(), None::<u64>);
        loop {
            let page: UtxoPruneJobPage = self.ask("utxo_list_prune_jobs", (cursor, 10u32))?;
            ensure!(page.jobs.len() <= 10, "a page of {} jobs", page.jobs.len());
            jobs.extend(page.jobs);
            cursor = page.cursor;
            if cursor.is_none() {
                return Ok(jobs);
            }
        }
    }

    fn dead(&mut self) -> Outcome<BTreeMap<u64, BlobDeletion>> {
        let (mut rows, mut cursor) = (BTreeMap::new(), None::<u64>);
        loop {
            let state = Some(BlobDeletionState::Dead);
            let arg = ListBlobDeletions { cursor, limit: 2, state, ..ListBlobDeletions::default() };
            let page: BlobDeletionList = self.ask("list_blob_deletions", (arg,))?;
            ensure!(page.rows.len() <= 2, "a page of {} rows", page.rows.len());
            rows.extend(page.rows.into_iter().map(|listed| (listed.row.id, listed.row)));
            cursor = page.cursor;
            if cursor.is_none() {
                return Ok(rows);
            }
        }
    }
}

/// The compared part of a record.
#[derive(Debug, PartialEq)]
struct Shown {
    being_deleted: bool,
    delete_at_height: Option<u32>,
    preserve_until: Option<u32>,
    unmined_since: Option<u32>,
    /// The ids and heights of its blocks.
    blocks: Vec<(u32, u32)>,
    outputs: Vec<String>,
    deleted_children: BTreeSet<String>,
    conflicting_children: BTreeSet<String>,
    /// The number of UTXOs and of spent ones in the master record and in each page, and the number of pages that are all spent.
    counters: (Vec<(u32, u32)>, u32),
    locked: bool,
    conflicting: bool,
    frozen: bool,
}

impl View {
    /// Reports a difference between the view and the model.
    pub fn differs(&self, records: &Records, family: &Family) -> Outcome {
        for one in &family.all {
            let (txid, name) = (&one.tx.txid, family.name(&one.tx.txid));
            match (self.records.get(txid), records.0.get(txid)) {
                (None, None) => {}
                (Some(_), None) => return Err(format!("{name} is there again, or still")),
                (None, Some(_)) => return Err(format!("{name} is lost")),
                // Nothing else is promised for a record that is being deleted.
                (Some(seen), Some(record)) if record.deleting => {
                    ensure!(seen.being_deleted, "{name} is in deletion, and is not shown so: {seen:?}");
                }
                (Some(seen), Some(record)) => {
                    let [seen, expected] = [seen, &record.shown(txid)].map(|one| shown(one, records, family));
                    ensure!(seen == expected, "{name}\nis       {seen:?}\nexpected {expected:?}");
                }
            }
        }
        Ok(())
    }
}

impl View {
    /// Compares the counters with the model, unless a record is being deleted.
    pub fn counts(&self, records: &Records, fillers: Fillers) -> Outcome {
        let all = || records.0.values();
        if all().any(|record| record.deleting) {
            return Ok(());
        }
        let UtxoStorage { records: there, extra_pages, deletable, unmined, preserved, pruned_height, .. } =
            self.storage;
        let shown = (there, extra_pages, deletable, unmined, preserved, pruned_height);
        let expected = (
            all().count() as u64 + fillers.records,
            all().map(Record::pages).sum::<u64>() + fillers.pages,
            all().filter(|record| record.delete_at_height.is_some()).count() as u64,
            all().filter(|record| record.unmined_since.is_some()).count() as u64,
            all().filter(|record| record.preserve_until.is_some()).count() as u64,
            Some(records.1).filter(|height| *height > 0),
        );
        let what = "(records, pages, deletable, unmined, preserved, pruned height)";
        ensure!(shown == expected, "{what} are {shown:?}, expected {expected:?}");
        Ok(())
    }
}

/// The children, except those that are being deleted, because it is unknown when their parents are updated.
fn children<'a>(of: impl Iterator<Item = &'a [u8]>, records: &Records, family: &Family) -> BTreeSet<String> {
    let going = |txid: &&[u8]| {
        let txid: Txid = (*txid).try_into().expect("a txid");
        records.0.get(&txid).is_some_and(|record| record.deleting)
    };
    of.filter(|txid| !going(txid)).map(|txid| family.name(txid)).collect()
}

fn shown(seen: &UtxoRecord, records: &Records, family: &Family) -> Shown {
    let one = family.get(&seen.txid);
    let hash = |vout: usize| one.map(|one| one.hashes[vout]);
    let output = |(vout, entry): (usize, &Option<ByteBuf>)| match entry {
        None => "none".to_string(),
        Some(entry) if entry.len() < 32 || Some(&entry[..32]) != hash(vout).as_ref().map(|hash| &hash[..]) => {
            "of another hash".into()
        }
        Some(entry) if entry.len() == 32 => "unspent".into(),
        Some(entry) if entry[32..] == [0xFF; 36] => "frozen".into(),
        Some(entry) if entry.len() == 68 => {
            format!("{} {}", family.name(&entry[32..64]), u32::from_le_bytes(entry[64..].try_into().expect("4 bytes")))
        }
        Some(entry) => format!("{} bytes", entry.len()),
    };
    let master = (seen.record_utxos, seen.spent_utxos);
    let pages = seen.extra_pages.iter().map(|page| (page.record_utxos, page.spent_utxos));
    Shown {
        being_deleted: seen.being_deleted,
        delete_at_height: seen.delete_at_height,
        preserve_until: seen.preserve_until,
        unmined_since: seen.unmined_since,
        blocks: seen.blocks.iter().map(|block| (block.block_id, block.height)).collect(),
        outputs: seen.utxos.iter().enumerate().map(output).collect(),
        deleted_children: children(seen.deleted_children.iter().map(|child| &child[..]), records, family),
        conflicting_children: children(seen.conflicting_children.iter().map(|child| &child[..]), records, family),
        counters: ([master].into_iter().chain(pages).collect(), seen.spent_extra_recs),
        locked: seen.locked,
        conflicting: seen.conflicting,
        frozen: seen.frozen,
    }
}
