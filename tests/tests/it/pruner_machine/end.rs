//! The end of a history: the assembly runs, the worker deletes all blobs, and ticks run until there is nothing left to do. Then every due
//! record is deleted, except those that defensive mode keeps; and deleted transactions cannot spend again.

use super::Outcome;
use super::jobs::Cause;
use super::machine::Machine;
use super::steps::Pick;
use coppice_model::ensure;
use coppice_model::records::{Setting, Spent, Txid};
use coppice_tests::coppice::blob_bytes;
use ic_coppice_interface::*;
use std::collections::BTreeMap;

/// The most ticks that a run takes with one operation in each.
const TICKS: u32 = 800;

impl Machine {
    pub fn end(&mut self, finale: u8) -> Outcome {
        self.note("the end".into());
        self.tip += u32::from(finale);
        self.set(Setting::Enabled(true))?;
        self.set(Setting::NoDeletion(false))?;
        self.set(Setting::Low(false))?;
        self.memory(false)?;
        if self.family.has_large() {
            self.set(Setting::DefensiveBatch(10_000))?;
        }
        self.assembly(true)?;
        if self.heights.current > self.tip + 1_000 {
            self.set_right(self.heights.persisted, self.processed)?;
        }
        let mut height = self.tip.max(self.heights.current);
        loop {
            let there = |machine: &Self| -> Vec<(Txid, bool)> {
                machine.records.0.iter().map(|(txid, record)| (*txid, record.deleting)).collect()
            };
            let before = there(self);
            height += 1;
            self.blobs_are_deleted()?;
            self.runs_to(height)?;
            if there(self) == before && !self.waits_without_cause() {
                break;
            }
        }
        self.check_due_records_deleted()?;
        self.check_deleted_cannot_spend()?;
        self.upgrade()
    }

    /// Returns whether a record still waits for its next check although no spender keeps it any more.
    fn waits_without_cause(&self) -> bool {
        let (current, safe) =
            (self.heights.current, self.settings.safe_height(self.heights.current, self.heights.persisted));
        let due = self.records.due(safe);
        let waits = |txid: &&Txid| self.kept_until.get(*txid).is_some_and(|kept| self.waits(kept, safe.min(current)).1);
        let retention = self.settings.utxo.block_height_retention;
        let stable = |txid: &&Txid| {
            self.records
                .spenders(&self.records.0[*txid], current, retention)
                .iter()
                .all(|spent| *spent == Spent::Stably)
        };
        due.iter().filter(waits).any(|txid| stable(&txid))
    }

    fn blobs_are_deleted(&mut self) -> Outcome {
        let view = |machine: &Self| machine.view.as_ref().map(|view| (view.pending.clone(), view.dead.len()));
        while view(self).is_some_and(|(_, dead)| dead > 0) {
            self.retry(Pick(0))?;
        }
        let (pending, _) = view(self).expect("the history has begun");
        if pending.is_empty() { Ok(()) } else { self.complete(pending.into_keys().collect(), Vec::new(), 1) }
    }

    /// Triggers a run to this height, which is above all earlier ones, and ticks until no job waits or runs.
    fn runs_to(&mut self, height: u32) -> Outcome {
        if self.heights.persisted > 0 {
            self.persisted(height)?
        } else {
            self.block(height, true)?
        }
        let open = |status: &UtxoPrunerStatus| status.pending.is_some() || status.running.is_some();
        for _ in 0..TICKS {
            if !open(&self.view.as_ref().expect("the history has begun").status) {
                ensure!(self.processed == height, "{} is processed, and not {height}", self.processed);
                return Ok(());
            }
            self.tick()?;
            // Another notification wakes a timer that has trapped.
            if self.has_trapped && self.heights.persisted > 0 {
                self.persisted(height)?;
            } else if self.has_trapped {
                self.block(height, true)?;
            }
        }
        let status = &self.view.as_ref().expect("the history has begun").status;
        Err(format!("no end to the run to {height}: {:?}, {:?}", status.pending, status.running))
    }

    /// Checks that every due record is deleted, except those with an unstable spender.
    fn check_due_records_deleted(&mut self) -> Outcome {
        let (current, persisted) = (self.heights.current, self.heights.persisted);
        let retention = self.settings.utxo.block_height_retention;
        for txid in self.records.due(self.settings.safe_height(current, persisted)) {
            let record = &self.records.0[&txid];
            let spenders = self.records.spenders(record, current, retention);
            let unstable = spenders.iter().any(|spent| *spent != Spent::Stably);
            let kept = self.settings.pruner.utxo_defensive_enabled && unstable;
            ensure!(kept, "at the end {} is left: {record:?}", self.family.name(&txid));
            self.seen("at the end defensive mode keeps a record");
        }
        let going = self.records.0.values().any(|record| record.deleting);
        ensure!(!going, "at the end a record waits for its blob");
        // The BlobStore contains the data of records, and nothing else.
        let view = self.view.as_ref().expect("the history has begun");
        let bytes = |record: &UtxoRecord| match &record.transaction {
            TransactionPlace::Blobs { parts, .. } => parts.iter().map(|part| u64::from(part.class)).sum(),
            _ => 0,
        };
        let kept: u64 = view.records.values().map(bytes).sum();
        let storage = self.coppice.storage();
        let used = (blob_bytes(&storage), storage.quarantined_bytes);
        ensure!(used == (kept, 0), "{used:?} bytes are used and quarantined, and records have {kept}");
        Ok(())
    }

    /// Checks that remaining parents name their deleted spenders, and that those cannot spend again.
    fn check_deleted_cannot_spend(&mut self) -> Outcome {
        let mut again: BTreeMap<Txid, Vec<Spend>> = BTreeMap::new();
        for (parent, record) in &self.records.0 {
            let deleted = record.outputs.iter().zip(0u32..).filter_map(|(output, vout)| {
                let hold = output.as_ref()?.hold.as_ref()?;
                (hold.deleted && self.deleted.contains(&hold.by)).then_some((vout, hold))
            });
            let one = self.family.get(parent).expect("it belongs to the family");
            for (vout, hold) in deleted {
                let shown = &self.view.as_ref().expect("the history has begun").records[parent].deleted_children;
                let names = shown.iter().any(|child| child[..] == hold.by[..]);
                ensure!(names, "{} does not name its deleted child", self.family.name(parent));
                again.entry(hold.by).or_default().push(one.spend(vout, hold.vin));
            }
        }
        for (by, spends) in again {
            let before = self.records.clone();
            self.spends(by, spends, self.tip)?;
            ensure!(self.records == before, "{} spent again", self.family.name(&by));
            self.seen("a deleted transaction does not spend again");
        }
        self.look(Cause::Nothing)
    }
}
