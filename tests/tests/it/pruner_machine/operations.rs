//! Operations on records: on the canister, and on the model, which predicts the answers.

use super::Outcome;
use super::jobs::Cause;
use super::machine::Machine;
use super::memory::is_refused;
use super::steps::{Kind, Pick, Step};
use coppice_model::ensure;
use coppice_model::records::{Output, Record, Resolved, Txid};
use coppice_tests::blocks::id;
use coppice_tests::coppice::Who;
use ic_coppice_interface::*;
use std::fmt::Debug;

type Done<T> = Batch<Result<T, UtxoError>>;

/// The id of a block at a height; two branches have two ids.
pub fn block_id(height: u32, branch: u32) -> u32 {
    height.wrapping_mul(2) + branch
}

/// The only answer of a batch of one.
fn only<T: Debug>(mut batch: Batch<T>) -> Outcome<T> {
    ensure!(batch.results.len() == 1 && batch.remaining == 0, "the answer to one item is {batch:?}");
    Ok(batch.results.remove(0))
}

impl Machine {
    /// Picks one of the transactions for which the step may succeed, or of all if there are none.
    pub fn pick(&self, Pick(number): Pick, qualifies: impl Fn(&Txid) -> bool) -> Txid {
        let all: Vec<Txid> = self.family.all.iter().map(|one| one.tx.txid).collect();
        let good: Vec<Txid> = all.iter().copied().filter(|txid| qualifies(txid)).collect();
        let among = if good.is_empty() { &all } else { &good };
        among[usize::from(number) % among.len()]
    }

    pub fn is(&self, txid: &Txid, qualifies: impl Fn(&Record) -> bool) -> bool {
        self.records.0.get(txid).is_some_and(qualifies)
    }

    /// An operation with the height at which its caller believes the chain to be.
    pub fn operation(&mut self, step: &Step, height: u32) -> Outcome {
        match *step {
            Step::Accept(pick, kind) => {
                // Parents are made first: otherwise there would be little to spend.
                let there = |txid: &Txid| self.records.0.contains_key(txid);
                let ready = |(parent, _): &(Txid, u32)| self.family.get(parent).is_none() || there(parent);
                let inputs = |txid: &Txid| self.family.get(txid).is_some_and(|one| one.tx.inputs.iter().all(ready));
                let txid = self.pick(pick, |txid| !there(txid) && inputs(txid));
                self.create(txid, kind, height)?;
                self.spend(txid, u8::MAX, height)
            }
            Step::Create(pick, kind) => {
                let txid = self.pick(pick, |txid| !self.records.0.contains_key(txid));
                self.create(txid, kind, height)
            }
            Step::Spend(pick, mask) => {
                let txid = self.pick(pick, |txid| self.family.get(txid).is_some_and(|one| !one.tx.inputs.is_empty()));
                self.spend(txid, mask, height)
            }
            Step::Sweep(pick, by) => {
                let txid = self.pick(pick, |txid| self.is(txid, |record| record.sweepable()));
                self.sweep(txid, pick, by, height)
            }
            Step::Retire(pick, by) => self.retire(pick, by, height),
            Step::Unspend(pick) => self.unspend(pick, height),
            Step::Mine { back, mask, unset, longest } => {
                let block_height = self.tip - u32::from(back);
                let block = block_id(block_height, 0);
                let has = |record: &Record| record.blocks.iter().any(|other| other.block_id == block);
                let all = self.family.all.iter().zip(0u32..).filter(|(_, number)| mask >> (number % 16) & 1 == 1);
                let all = all.map(|(one, _)| one.tx.txid).filter(|txid| self.is(txid, |record| has(record) == unset));
                let all: Vec<Txid> = all.collect();
                self.mine(&all, (block, block_height), unset, longest, height)
            }
            Step::OnLongestChain(pick, is) => {
                let txid = self.pick(pick, |txid| self.is(txid, |record| record.unmined_since.is_some() == is));
                let set = UtxoSetOnLongestChainBatch { height, txids: vec![txid.into()], on_longest_chain: is };
                let answer = only(self.call(Who::Producer, "utxo_set_on_longest_chain", (set,))?)?;
                let expected = self.records.set_on_longest_chain(&txid, is, self.at(height));
                let what = format!("at {height}: {} on the longest chain: {is}", self.family.name(&txid));
                self.agree(what, &[txid], answer, expected)
            }
            Step::Lock(pick, locked) => {
                let txid = self.pick(pick, |txid| self.is(txid, |record| record.locked != locked));
                let set = UtxoSetLockedBatch { height, locked, txids: vec![txid.into()] };
                let answer = only(self.call(Who::Producer, "utxo_set_locked", (set,))?)?;
                let expected = self.records.set_locked(&txid, locked, self.at(height));
                self.agree(format!("at {height}: lock {} {locked}", self.family.name(&txid)), &[txid], answer, expected)
            }
            Step::Freeze(pick, vout) => self.freeze(pick, vout, true, height),
            Step::Thaw(pick, vout) => self.freeze(pick, vout, false, height),
            Step::Preserve(pick, above) => {
                let above = self.tip.saturating_add_signed(above.into());
                let until = if height > self.tip || height == 0 { height } else { above };
                let txid = self.pick(pick, |txid| self.is(txid, |record| record.delete_at_height.is_some()));
                let preserve = UtxoPreserveBatch { until_height: until, txids: vec![txid.into()] };
                let answer: Result<bool, UtxoError> = only(self.call(Who::Producer, "utxo_preserve", (preserve,))?)?;
                let expected = self.records.preserve_at(&txid, until);
                if expected == Ok(true) {
                    self.note_new(txid);
                }
                self.agree(format!("preserve {} until {until}", self.family.name(&txid)), &[txid], answer, expected)
            }
            // The model does not cover conflicts that take several messages.
            Step::Conflict(_) | Step::Win(_) if self.family.has_large() => Ok(()),
            Step::Conflict(pick) => {
                let txid = self.pick(pick, |txid| self.is(txid, |record| !record.conflicting));
                let set = UtxoSetConflictingBatch { height, txids: vec![txid.into()] };
                let answer: Result<Conflict, UtxoError> =
                    only(self.call(Who::Producer, "utxo_set_conflicting", (set,))?)?;
                let answer = answer.map(|conflict| conflict.marked);
                let marked = self.records.set_conflicting(&txid, self.at(height));
                let touched: Vec<Txid> = self.records.0.keys().copied().collect();
                let expected =
                    marked.map(|marked| marked.into_iter().map(ic_coppice_interface::Txid::from).collect::<Vec<_>>());
                let what = format!("at {height}: {} is a double spend", self.family.name(&txid));
                self.agree(what, &touched, answer, expected)
            }
            Step::Win(pick) => self.win(pick, height),
            Step::Unsettle(pick) => self.unsettle(pick),
            ref other => Err(format!("{other:?} is not an operation")),
        }
    }

    /// Checks that the canister's answer is the model's, and that everything else is, too.
    fn agree<T: Debug + PartialEq>(&mut self, what: String, touched: &[Txid], answer: T, expected: T) -> Outcome {
        if let Some(before) = self.before_call.take().filter(|_| answer != expected && is_refused(&answer)) {
            self.records = before;
            self.seen("an operation was refused for want of memory");
            self.note(format!("{what}: {answer:?}"));
            return self.look(Cause::Nothing);
        }
        ensure!(answer == expected, "{what}: the answer is {answer:?}, expected {expected:?}");
        self.note(format!("{what}: {expected:?}"));
        touched.iter().for_each(|txid| self.touch(*txid));
        self.look(Cause::Nothing)
    }

    /// A record was made, or its preservation was set: phase 1 need not examine it at once.
    fn note_new(&mut self, txid: Txid) {
        self.new_since.insert(txid, self.heights.current);
        if let Some(run) = &mut self.run {
            run.set_by_operation.insert(txid);
        }
    }

    /// A double spend replaces the transactions that it conflicts with.
    fn win(&mut self, pick: Pick, height: u32) -> Outcome {
        let there = |(parent, _): &(Txid, u32)| self.is(parent, |record| !record.deleting);
        let can = |record: &Record| record.conflicting && !record.deleting && record.inputs.iter().all(there);
        let mut txid = self.pick(pick, |txid| self.is(txid, can));
        if !self.is(&txid, can) {
            // Makes the double spend first, if everything that it spends exists.
            let inputs = |txid: &Txid| self.family.get(txid).is_some_and(|one| one.tx.inputs.iter().all(there));
            txid = self.pick(pick, |txid| !self.records.0.contains_key(txid) && inputs(txid));
            if !self.records.0.contains_key(&txid) && inputs(&txid) {
                self.create(txid, Kind::Conflicting, self.tip)?;
            }
        }
        let set = UtxoProcessConflicting { height, winners: vec![txid.into()] };
        let answer: Result<ConflictResolution, ConflictError> =
            self.call(Who::Producer, "utxo_process_conflicting", (set,))?;
        let resolved = self.records.process_conflicting(&txid, self.at(height));
        if let Ok(resolved) = &resolved {
            self.seen(if resolved.losers.is_empty() { "a double spend is not marked" } else { "a double spend won" });
        }
        let outpoint = |of: &Unspend| {
            let txid: Txid = of.outpoint.txid[..].try_into().expect("a txid");
            (txid, of.outpoint.vout)
        };
        let bytes = |txid: &ic_coppice_interface::Txid| -> Txid { txid[..].try_into().expect("a txid") };
        let answer = answer.map(|done| Resolved {
            losers: done.losers.iter().map(bytes).collect(),
            freed: done.unspent.iter().map(outpoint).collect(),
            spent: done.spent,
        });
        let answer = answer.map_err(|ConflictError { txid, error }| match error {
            UtxoError::BadArgument(BadArgument { field, .. }) => {
                ConflictError { txid, error: UtxoError::BadArgument(BadArgument { field, why: String::new() }) }
            }
            error => ConflictError { txid, error },
        });
        let touched: Vec<Txid> = self.records.0.keys().copied().collect();
        self.agree(format!("at {height}: {} wins", self.family.name(&txid)), &touched, answer, resolved)
    }

    pub fn create(&mut self, txid: Txid, kind: Kind, height: u32) -> Outcome {
        let one = self.family.get(&txid).expect("it belongs to the family").clone();
        let kind = if kind == Kind::Conflicting && self.family.has_large() { Kind::Unmined } else { kind };
        let block = BlockRef { block_id: block_id(height, 0), height, subtree: 1 };
        let other = BlockRef { block_id: block_id(height, 1), height, subtree: 1 };
        let mined = |block: BlockRef, on_longest_chain| Some(MinedIn { blocks: vec![block], on_longest_chain });
        let item = UtxoCreate {
            source: one.source(),
            mined: match kind {
                Kind::Mined => mined(block, true),
                Kind::MinedElsewhere => mined(other, false),
                _ => None,
            },
            locked: if kind == Kind::Locked { None } else { Some(false) },
            conflicting: kind == Kind::Conflicting,
            fee: None,
            is_new: false,
        };
        let batch = UtxoCreateBatch { height, items: vec![item.clone()] };
        let answer: Result<UtxoCreated, UtxoCreateError> = only(self.call(Who::Producer, "utxo_create", (batch,))?)?;
        let answer = answer.map(|_| ());
        let view = self.view.as_ref().expect("the history has begun");
        let named = |row: &BlobDeletion| one.blob.as_ref().is_some_and(|blob| row.blob_key == blob.blob_key);
        let is_queued = view.pending.values().chain(view.dead.values()).any(named);
        let expected = self.records.create(&one, &item, self.settings.utxo.utxo_batch_size, self.at(height), is_queued);
        if expected == Err(UtxoCreateError::BlobTaken) {
            self.seen("a second record of a blob was refused");
        }
        if expected == Err(UtxoCreateError::Pruned) {
            self.seen("a replay of a pruned transaction is refused");
        }
        if expected == Err(UtxoCreateError::BeingDeleted) {
            self.seen("a record in deletion cannot be made again");
        }
        if expected.is_ok() && self.deleted.contains(&txid) {
            self.seen("a deleted transaction was made again");
        }
        if expected.is_ok() {
            self.note_new(txid);
        }
        self.agree(format!("at {height}: create {} {kind:?}", self.family.name(&txid)), &[txid], answer, expected)
    }

    /// A transaction spends the outputs of its inputs that are available.
    fn spend(&mut self, txid: Txid, mask: u8, height: u32) -> Outcome {
        let one = self.family.get(&txid).expect("it belongs to the family").tx.clone();
        let inputs = one.inputs.iter().zip(0u32..).filter(|(_, vin)| mask >> (vin % 8) & 1 == 1);
        let spends = inputs.filter_map(|((parent, vout), vin)| {
            let there = self.records.0.contains_key(parent);
            self.family.get(parent).filter(|_| there).map(|parent| parent.spend(*vout, vin))
        });
        let spends: Vec<Spend> = spends.collect();
        self.spends(txid, spends, height)
    }

    /// A spender that is being deleted is skipped, because it is unknown whether its parents are updated already.
    pub fn spends(&mut self, by: Txid, spends: Vec<Spend>, height: u32) -> Outcome {
        if spends.is_empty() || self.is(&by, |record| record.deleting) {
            return Ok(());
        }
        let item = TransactionSpends { spender: by.into(), spends };
        let batch = UtxoSpendBatch { height, items: vec![item.clone()] };
        let answer: Result<u32, Vec<RefusedSpend>> = only(self.call(Who::Producer, "utxo_spend", (batch,))?)?;
        let expected = self.records.spend(&item, self.at(height));
        let invalid = |error: &RefusedSpend| error.error == UtxoSpendError::InvalidSpend;
        if expected.as_ref().is_err_and(|errors| errors.iter().any(invalid)) {
            self.seen("a deleted spender was refused");
        }
        let of = |spend: &Spend| format!("{}:{}", self.family.name(&spend.txid), spend.vout);
        let mut outputs: Vec<String> = item.spends.iter().take(8).map(of).collect();
        if item.spends.len() > 8 {
            outputs.push(format!("and {} more", item.spends.len() - 8));
            self.seen("thousands of outputs are spent");
        }
        let touched: Vec<Txid> = item.spends.iter().map(|spend| spend.txid[..].try_into().expect("a txid")).collect();
        let what = format!("at {height}: {} spends {}", self.family.name(&by), outputs.join(" "));
        self.agree(what, &touched, answer, expected)
    }

    /// Spends all unspent outputs of a record: by a transaction without a record, or by another transaction, whose inputs do not name them.
    pub fn sweep(&mut self, txid: Txid, pick: Pick, by: Option<Pick>, height: u32) -> Outcome {
        let by = match by {
            Some(by) => self.pick(by, |other| *other != txid && self.is(other, |record| !record.deleting)),
            None => id(0xFACE + u64::from(pick.0)),
        };
        let Some(record) = self.records.0.get(&txid) else { return Ok(()) };
        let outputs = record.outputs.iter().zip(0u32..);
        let outputs = outputs.filter(|(output, _)| output.as_ref().is_some_and(Output::free));
        let one = self.family.get(&txid).expect("it belongs to the family");
        let spends: Vec<Spend> = outputs.map(|(_, vout)| one.spend(vout, 100 + vout)).collect();
        self.spends(by, spends, height)
    }

    fn unspend(&mut self, pick: Pick, height: u32) -> Outcome {
        let txid = self.pick(pick, |txid| self.is(txid, |record| !record.deleting && record.holds().count() > 0));
        let Some(record) = self.records.0.get(&txid) else { return Ok(()) };
        let held = record.outputs.iter().zip(0u32..).filter_map(|(output, vout)| {
            let hold = output.as_ref()?.hold.clone()?;
            Some((vout, hold))
        });
        let held: Vec<_> = held.collect();
        let Some((vout, hold)) = held.get(usize::from(pick.0 / 16) % held.len().max(1)).cloned() else { return Ok(()) };
        let tx = self.family.get(&txid).expect("it belongs to the family").tx.clone();
        let item = Unspend {
            outpoint: tx.outpoint(vout),
            utxo_hash: UtxoHash::from(tx.hash(vout)),
            spender: Spender { txid: hold.by.into(), vin: hold.vin },
        };
        let batch = UtxoUnspendBatch { height, items: vec![item.clone()] };
        let answer: Result<bool, UtxoError> = only(self.call(Who::Producer, "utxo_unspend", (batch,))?)?;
        let expected = self.records.unspend(&item, self.at(height));
        self.agree(format!("at {height}: unspend {}:{vout}", self.family.name(&txid)), &[txid], answer, expected)
    }

    /// Mines transactions in a block, or removes them from it.
    pub fn mine(
        &mut self,
        txids: &[Txid],
        (block_id, block_height): (u32, u32),
        unset: bool,
        longest: bool,
        height: u32,
    ) -> Outcome {
        if txids.is_empty() {
            return Ok(());
        }
        let items = txids.iter().map(|txid| MinedTransaction { txid: (*txid).into(), subtree: 1 }).collect();
        let set = UtxoSetMinedBatch { height, block_id, block_height, on_longest_chain: longest, unset, items };
        let done: Done<Vec<u32>> = self.call(Who::Producer, "utxo_set_mined", (set.clone(),))?;
        let at = self.at(height);
        let expected = set.items.iter().zip(&done.results).map(|(item, answer)| {
            if self.full && is_refused(answer) { answer.clone() } else { self.records.set_mined(&set, item, at) }
        });
        let expected: Vec<_> = expected.collect();
        let how = if unset { "loses" } else { "has" };
        let chain = if longest { "" } else { ", not on the longest chain" };
        let what = format!("at {height}: block {block_height} ({block_id}) {how} {}{chain}", self.family.names(txids));
        self.agree(what, txids, done.results, expected)
    }

    fn freeze(&mut self, pick: Pick, vout: Option<u8>, frozen: bool, height: u32) -> Outcome {
        let some = |record: &Record| record.utxos().any(|output| output.frozen != frozen) && !record.deleting;
        let txid = self.pick(pick, |txid| self.is(txid, some));
        let outputs = self.family.get(&txid).expect("it belongs to the family").tx.outputs.len() as u32;
        let vout = vout.map(|vout| u32::from(vout) % outputs);
        self.set_frozen(txid, vout, frozen, height)
    }

    pub fn set_frozen(&mut self, txid: Txid, vout: Option<u32>, frozen: bool, height: u32) -> Outcome {
        let target = FreezeTarget { txid: txid.into(), vout, utxo_hash: None };
        let batch = UtxoFreezeBatch { height, items: vec![target.clone()] };
        let method = if frozen { "utxo_freeze" } else { "utxo_unfreeze" };
        let answer: Result<u32, UtxoError> = only(self.call(Who::Alert, method, (batch,))?)?;
        let expected = self.records.set_frozen(&target, frozen, self.at(height));
        self.agree(format!("at {height}: {method} {} {vout:?}", self.family.name(&txid)), &[txid], answer, expected)
    }
}
