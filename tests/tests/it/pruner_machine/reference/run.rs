//! The reference's runs.

use super::{Fault, Run, State};
use coppice_model::records::{At, Record, Spent, Txid};
use ic_coppice_interface::*;

type Count = fn(&mut UtxoPruneCounts) -> &mut u64;

impl State {
    fn add(&mut self, counts: &mut UtxoPruneCounts, count: Count, more: u64) {
        *count(counts) += more;
        *count(&mut self.totals) += more;
    }

    /// Continues a run within a tick's budget. Returns whether it is done.
    pub fn work(&mut self, run: &mut Run, counts: &mut UtxoPruneCounts) -> bool {
        let settings = self.settings.clone();
        let held_back = settings.safe_height(run.heights.0, self.heights.persisted);
        if !self.has(Fault::IgnoresPersisted) && !self.has(Fault::KeepsItsHeight) {
            run.heights.1 = run.heights.1.min(held_back);
        }
        let mut ops = if settings.pruner.max_instructions_per_tick == 1 { 1 } else { 200_000 };
        let mut chunk = u64::from(settings.pruner.utxo_chunk_size) * u64::from(settings.pruner.utxo_chunk_group_limit);
        while ops > 0 && chunk > 0 {
            match run.phase {
                UtxoPrunerPhase::PreserveParents => match self.next_old(run) {
                    Some(old) => ops -= self.preserve_parents(&old, run, counts),
                    None => run.phase = UtxoPrunerPhase::ExpirePreservations,
                },
                UtxoPrunerPhase::ExpirePreservations => match self.next_expired(run) {
                    Some(txid) => {
                        let retention = settings.utxo.block_height_retention;
                        let record = self.records.0.get_mut(&txid).expect("it is there");
                        record.preserve_until = None;
                        record.evaluate(At { height: run.heights.0, retention, most: run.heights.0 });
                        self.add(counts, |counts| &mut counts.preservations_expired, 1);
                        ops -= 1;
                    }
                    None => run.phase = UtxoPrunerPhase::DeleteAtHeight,
                },
                UtxoPrunerPhase::DeleteAtHeight => {
                    if self.next_old(run).is_some() && !self.has(Fault::ExaminesOnce) {
                        run.walked.clear();
                        run.phase = UtxoPrunerPhase::PreserveParents;
                        continue;
                    }
                    if settings.pruner.disable_dah_cleaner {
                        return true;
                    }
                    if let Some(txid) = self.finishing.pop_first() {
                        let pages = self.records.0[&txid].pages();
                        let updated = self.take(&txid, run.heights.0);
                        self.add(counts, |counts| &mut counts.records_deleted, 1);
                        self.add(counts, |counts| &mut counts.pages_deleted, pages);
                        self.add(counts, |counts| &mut counts.parents_updated, updated);
                        ops -= 1;
                        continue;
                    }
                    let Some(txid) = self.next_due(run) else { return true };
                    // The record may have been made after its children were examined.
                    let cutoff = settings.cutoff(run.heights.0);
                    let fault = [Fault::ExaminesOnce, Fault::SkipsPhaseOne, Fault::ForgetsReverted];
                    let fault = fault.into_iter().any(|fault| self.has(fault));
                    if !fault && self.records.parents_of_old(cutoff, |_, record| !record.deleting).contains(&txid) {
                        run.walked.clear();
                        run.phase = UtxoPrunerPhase::PreserveParents;
                        continue;
                    }
                    run.passed.insert(txid);
                    ops -= self.delete(&txid, run.heights, counts);
                    chunk -= 1;
                }
            }
        }
        false
    }

    fn next_old(&self, run: &Run) -> Option<Txid> {
        let cutoff = self.settings.cutoff(run.heights.0);
        let skipped = self.has(Fault::SkipsPhaseOne);
        let is_late = |record: &Record| record.late && !self.has(Fault::ForgetsReverted);
        let old = |(txid, record): &(&Txid, &Record)| {
            is_late(record) || record.unmined_since.is_some_and(|since| since < cutoff) && !run.walked.contains(*txid)
        };
        let mut all = self.records.0.iter().filter(|(_, record)| !skipped && !record.deleting);
        all.find(old).map(|(txid, _)| *txid)
    }

    fn preserve_parents(&mut self, old: &Txid, run: &mut Run, counts: &mut UtxoPruneCounts) -> i64 {
        run.walked.insert(*old);
        self.records.0.get_mut(old).expect("it is there").late = false;
        let parents = self.records.0[old].parents();
        let ops = 1 + parents.len() as i64;
        for parent in parents {
            if self.records.promise(&parent, run.heights.0 + self.settings.pruner.parent_preservation_blocks) {
                self.add(counts, |counts| &mut counts.parents_preserved, 1);
            }
        }
        ops
    }

    fn next_expired(&self, run: &Run) -> Option<Txid> {
        let early = u32::from(self.has(Fault::ExpiresEarly));
        let never = self.has(Fault::NeverExpires) || self.settings.utxo.block_height_retention == 0;
        let expired = |until: u32| !never && until <= run.heights.0 + early;
        let mut all = self.records.0.iter().filter(|(_, record)| !record.deleting);
        all.find(|(_, record)| record.preserve_until.is_some_and(expired)).map(|(txid, _)| *txid)
    }

    fn next_due(&self, run: &Run) -> Option<Txid> {
        let mut due: Vec<Txid> = self.records.due(run.heights.1).into_iter().collect();
        if self.has(Fault::IgnoresFreezing) {
            let frozen = self.records.0.iter().filter(|(_, record)| record.utxos().any(|output| output.frozen));
            due.extend(frozen.map(|(txid, _)| *txid));
        }
        let at = run.heights.1.min(run.heights.0);
        let longest = at + self.settings.utxo.block_height_retention.max(1);
        let again = self.recheck_kept && !self.has(Fault::NeverRechecksKept);
        due.retain(|txid| {
            let kept = self.kept.get(txid).filter(|(_, due)| *due == self.records.0[txid].delete_at_height);
            kept.is_none_or(|(key, _)| *key <= at || again && *key > longest)
        });
        due.sort_by_key(|txid| self.records.0[txid].delete_at_height);
        if self.has(Fault::LeavesOneRecord) {
            due.pop();
        }
        due.into_iter().find(|txid| !run.passed.contains(txid))
    }

    /// Deletes a record, if nothing keeps it.
    fn delete(&mut self, txid: &Txid, (current, safe): (u32, u32), counts: &mut UtxoPruneCounts) -> i64 {
        let record = self.records.0[txid].clone();
        let mut ops = 1;
        if self.settings.pruner.utxo_defensive_enabled && !self.has(Fault::IsNotDefensive) {
            ops += record.holds().count() as i64;
            let retention = self.settings.utxo.block_height_retention;
            let trusted = if self.has(Fault::TrustsAbsentSpenders) { Spent::ByNone } else { Spent::Stably };
            let spenders = record.holds().map(|hold| self.records.spender(hold, current, retention));
            let mut unstable = spenders.filter(|(spent, _)| *spent != Spent::Stably && *spent != trusted);
            if let Some((spent, lacks)) = unstable.next() {
                let (skipped, blocks): (Count, u32) = match spent {
                    Spent::Unmined => (|counts| &mut counts.skipped_child_unmined, retention.max(1)),
                    Spent::Recently => (|counts| &mut counts.skipped_child_recent, lacks),
                    _ => (|counts| &mut counts.skipped_child_absent, retention.max(1)),
                };
                self.add(counts, skipped, 1);
                self.kept.insert(*txid, (safe.min(current) + blocks, record.delete_at_height));
                return ops;
            }
        }
        let going = self.rows.values().filter_map(|(row, _)| Some((&row.blob_key, row.txid.as_ref()?)));
        let named: Vec<_> = going.map(|(key, _)| key.clone()).collect();
        if let Some(blob) = record.blob.as_ref().filter(|blob| !named.contains(&blob.blob_key))
            && !self.has(Fault::DeletesBeforeTheBlob)
        {
            let row = BlobDeletion {
                id: self.next_row,
                blob_key: blob.blob_key.clone(),
                file_type: if blob.file_type == FileType::Tx { "tx" } else { "outputs" }.into(),
                store_type: blob.store_type,
                delete_at_height: record.delete_at_height.unwrap_or(1),
                retry_count: 0,
                last_retry_at_ns: None,
                txid: Some(txid.into()),
            };
            self.rows.insert(self.next_row, (row, false));
            self.next_row += 1;
            self.records.0.get_mut(txid).expect("it is there").deleting = true;
            self.add(counts, |counts| &mut counts.records_deleting, 1);
            return ops;
        }
        let updated = self.take(txid, current);
        self.add(counts, |counts| &mut counts.records_deleted, 1);
        self.add(counts, |counts| &mut counts.pages_deleted, record.pages());
        self.add(counts, |counts| &mut counts.parents_updated, updated);
        ops + record.pages() as i64 + record.inputs.len() as i64
    }

    /// Removes a record.
    pub fn take(&mut self, txid: &Txid, height: u32) -> u64 {
        let at = At { height, retention: self.settings.utxo.block_height_retention, most: height };
        let many = self.has(Fault::UpdatesAThousandParents) && self.records.0[txid].is_large();
        if !self.has(Fault::UpdatesNoParents) && !many {
            return self.records.remove(txid, at);
        }
        let before = self.records.clone();
        let updated = self.records.remove(txid, at);
        let from = if many { 1_000 } else { 0 };
        for (txid, record) in &mut self.records.0 {
            let outputs = record.outputs.iter_mut().zip(&before.0[txid].outputs);
            outputs.skip(from).for_each(|(output, before)| output.clone_from(before));
        }
        updated
    }
}
