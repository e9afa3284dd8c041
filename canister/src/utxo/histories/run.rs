//! A history as it happens: on the model, and on what is compared with it.

use super::steps::{Creation, Move, Step, Which, Wrong};
use super::transactions::{self, Transaction};
use super::{Answer, Op, Store, plain};
use crate::utxo::model::{Call, Hash, Hold, Model, Output};
use coppice_interface::*;
use proptest::prelude::*;
use proptest::test_runner::TestCaseError;
use serde_bytes::ByteBuf;
use std::collections::BTreeMap;
use std::fmt::Debug;

/// How often what was seen.
pub type Seen = BTreeMap<String, u64>;

type Outcome<T = ()> = Result<T, TestCaseError>;

/// A history that is under way.
pub struct Run<'a, S> {
    pub model: Model,
    pub store: S,
    pub transactions: Vec<Transaction>,
    pub settings: UtxoSettings,
    pub height: u32,
    /// The largest height that calls may name.
    pub most: u32,
    pub now_ns: u64,
    pub done: Vec<(Op, u32)>,
    /// Everything is compared behind every step; else counted.
    pub compared: bool,
    pub seen: &'a mut Seen,
}

fn same<T: Debug + PartialEq>(what: &dyn Debug, store: T, model: T) -> Outcome {
    prop_assert_eq!(store, model, "(store, model) of {:?}", what);
    Ok(())
}

fn short(bytes: &mut Vec<u8>) {
    bytes.pop();
}

fn other(bytes: &mut [u8]) {
    if let Some(last) = bytes.last_mut() {
        *last ^= 0x80;
    }
}

fn spoil_txid(wrong: Option<Wrong>, txid: &mut Txid) {
    match wrong {
        Some(Wrong::ShortTxid) => short(txid),
        Some(Wrong::Txid) => other(txid),
        _ => {}
    }
}

fn spoil(wrong: Option<Wrong>, outpoint: &mut Outpoint, hash: &mut UtxoHash) {
    spoil_txid(wrong, &mut outpoint.txid);
    match wrong {
        Some(Wrong::ShortHash) => short(hash),
        Some(Wrong::Hash) => other(hash),
        Some(Wrong::Vout) => outpoint.vout += 20,
        _ => {}
    }
}

/// Blocks of two branches: 2 and 3 are of one height, 4 and 5, and so on.
fn block(number: u8) -> BlockRef {
    BlockRef { block_id: number.into(), height: 1 + u32::from(number) / 2, subtree: u32::from(number) % 3 }
}

/// Of those that qualify, the one that is meant; of all, where none does.
fn choose<T: Copy>(which: Which, all: &[T], qualifies: impl Fn(T) -> bool) -> T {
    let good: Vec<T> = all.iter().copied().filter(|&one| !which.any && qualifies(one)).collect();
    let among = if good.is_empty() { all } else { &good };
    among[usize::from(which.number) % among.len()]
}

impl<S: Store> Run<'_, S> {
    fn transaction(&self, which: Which, qualifies: impl Fn(&Transaction) -> bool) -> Transaction {
        choose(which, &self.transactions.iter().collect::<Vec<_>>(), qualifies).clone()
    }

    /// One that has a record and qualifies.
    fn recorded(&self, which: Which, qualifies: impl Fn(&Transaction) -> bool) -> Transaction {
        let good = |one: &Transaction| self.is_there(one) && qualifies(one);
        let some = self.transactions.iter().any(good);
        self.transaction(which, |one| good(one) || !some && self.is_there(one))
    }

    fn txid(&self, which: Which, wrong: Option<Wrong>) -> Txid {
        let mut txid = Txid::from(self.recorded(which, |_| true).txid);
        spoil_txid(wrong, &mut txid);
        txid
    }

    /// An output that qualifies, and its hash.
    fn output(&self, which: Which, qualifies: impl Fn((Hash, u32), &Output) -> bool) -> (Outpoint, UtxoHash) {
        let outputs = |one: &Transaction| (0..one.outputs.max(1)).map(|vout| (one.txid, vout)).collect::<Vec<_>>();
        let all: Vec<(Hash, u32)> = self.transactions.iter().flat_map(outputs).collect();
        let (txid, vout) = choose(which, &all, |at| self.entry(at).is_some_and(|entry| qualifies(at, entry)));
        (Outpoint { txid: txid.into(), vout }, self.hash_of((txid, vout)))
    }

    fn is_there(&self, one: &Transaction) -> bool {
        self.model.records.contains_key(&one.txid)
    }

    /// It is not there, and what it spends from is.
    fn is_next(&self, one: &Transaction) -> bool {
        one.outputs > 0 && !self.is_there(one) && one.inputs.iter().all(|&input| self.entry(input).is_some())
    }

    fn is_conflicting(&self, one: &Transaction) -> bool {
        self.model.records.get(&one.txid).is_some_and(|record| record.conflicting)
    }

    /// A double spend spends it, if it wins.
    fn is_wanted(&self, outpoint: (Hash, u32)) -> bool {
        self.transactions.iter().any(|one| self.is_conflicting(one) && one.inputs.contains(&outpoint))
    }

    fn entry(&self, (txid, vout): (Hash, u32)) -> Option<&Output> {
        self.model.records.get(&txid)?.outputs.get(vout as usize)?.as_ref()
    }

    fn hold(&self, outpoint: (Hash, u32)) -> Option<&Hold> {
        self.entry(outpoint)?.hold.as_ref()
    }

    fn hash_of(&self, outpoint: (Hash, u32)) -> UtxoHash {
        UtxoHash::from(self.entry(outpoint).map_or([0x11; 32], |output| output.hash))
    }

    /// Does it on both sides, and compares.
    fn apply(&mut self, op: Op, height: u32) -> Outcome<Answer> {
        let call = Call { height, now_ns: self.now_ns, settings: self.settings.clone(), most: self.most };
        self.done.push((op.clone(), height));
        let answer = self.store.apply(&op, &call).plain();
        if answer.error() == Some(UtxoRefusal::OutOfSpace) {
            *self.seen.entry(format!("{} OutOfSpace", op.name())).or_default() += 1;
            self.check()?;
            return Ok(answer);
        }
        let expected = self.model.apply(&op, &call).plain();
        same(&op, answer, expected.clone())?;
        for kind in expected.kinds() {
            *self.seen.entry(format!("{} {kind}", op.name())).or_default() += 1;
        }
        if self.compared {
            self.check()?;
        } else {
            self.observe();
        }
        Ok(expected)
    }

    pub fn step(&mut self, one: Move) -> Outcome {
        self.height = self.height.saturating_add_signed(one.blocks.into()).max(1);
        self.now_ns += one.nanos;
        let wrong = one.wrong;
        self.most = if wrong == Some(Wrong::Far) { 2 } else { MAX_HEIGHT };
        let height = if wrong == Some(Wrong::Height) { 0 } else { self.height };
        let op = match one.step {
            Step::Accept(which, unlock) => return self.accept(which, unlock, height),
            Step::Create(which, creation) => Op::Create(self.creation(which, creation)),
            Step::Spend(which, mask, again) => Op::Spend(self.spend(which, mask, again, wrong)),
            Step::Sweep(which, by) => Op::Spend(self.sweep(which, by)),
            Step::Unspend(which) => Op::Unspend(self.unspend(which, wrong)),
            Step::SetMined { block: number, mask, on_longest_chain, unset } => {
                let BlockRef { block_id, height: block_height, subtree } = block(number);
                for (one, number) in self.transactions.clone().iter().zip(0..16) {
                    if mask >> number & 1 == 0 || !self.is_there(one) && mask >> 12 > 0 {
                        continue;
                    }
                    let mut txid = Txid::from(one.txid);
                    spoil_txid(wrong, &mut txid);
                    let items = vec![MinedTransaction { txid, subtree }];
                    let op = UtxoSetMinedBatch { height, block_id, block_height, on_longest_chain, unset, items };
                    self.apply(Op::SetMined(op), height)?;
                }
                return Ok(());
            }
            Step::OnLongestChain(which, is) => Op::OnLongestChain(self.txid(which, wrong), is),
            Step::SetLocked(which, locked) => Op::SetLocked(self.txid(which, wrong), locked),
            Step::Freeze(which, all, hash) => Op::Freeze(self.target(which, all, hash, false, wrong)),
            Step::Unfreeze(which, all, hash) => Op::Unfreeze(self.target(which, all, hash, true, wrong)),
            Step::Reassign(which) => Op::Reassign(self.reassign(which, wrong)?),
            Step::SetConflicting(which) => Op::SetConflicting(self.txid(which, wrong)),
            Step::ProcessConflicting(winners) => match self.winners(&winners, wrong)? {
                Some(winners) => Op::ProcessConflicting(winners),
                None => return Ok(()),
            },
            Step::Preserve(which, until) => Op::Preserve(self.txid(which, wrong), until),
            Step::Delete(which) => {
                let due = |one: &Transaction| self.model.records[&one.txid].delete_at_height.is_some();
                Op::Delete(self.recorded(which, due).txid)
            }
            Step::Upload(which, how) => return self.upload(which, how, height, wrong),
            Step::Again => match self.done.last().cloned() {
                Some((op, height)) => return self.apply(op, height).map(drop),
                None => return Ok(()),
            },
            Step::Settings(settings) => {
                self.settings = settings;
                return Ok(());
            }
            Step::Reopen => {
                self.store.reopen();
                return self.check();
            }
        };
        self.apply(op, height).map(drop)
    }

    fn accept(&mut self, which: Which, unlock: bool, height: u32) -> Outcome {
        if !which.number.is_multiple_of(4) && !self.transactions.iter().any(|one| self.is_next(one)) {
            return Ok(());
        }
        let double = which.number.is_multiple_of(2)
            && self.transactions.iter().any(|one| self.is_next(one) && self.is_late(one));
        let one = self.transaction(which, |one| self.is_next(one) && (!double || self.is_late(one)));
        let item = self.spends(&one, 0xff);
        let mut conflicting = false;
        if !item.spends.is_empty()
            && let Answer::Spent(Err(errors)) = self.apply(Op::Spend(item), height)?
        {
            let first = |error: &UtxoSpendError| {
                matches!(
                    error,
                    UtxoSpendError::Spent { .. } | UtxoSpendError::Conflicting | UtxoSpendError::InvalidSpend
                )
            };
            conflicting = errors.iter().any(|refused| first(&refused.error));
        }
        let (source, txid) = (one.source, Txid::from(one.txid));
        self.apply(
            Op::Create(UtxoCreate { source, mined: None, locked: None, conflicting, fee: None, is_new: false }),
            height,
        )?;
        if unlock {
            self.apply(Op::SetLocked(txid, false), height)?;
        }
        Ok(())
    }

    fn upload(&mut self, which: Which, how: u8, height: u32, wrong: Option<Wrong>) -> Outcome {
        let raw = |one: &Transaction| matches!(one.source, TransactionSource::Raw(_));
        let one = self.transaction(which, |one| raw(one) && self.is_next(one));
        let bytes = match one.source {
            TransactionSource::Raw(bytes) => bytes.into_vec(),
            // What is no transaction, or another's.
            _ => self
                .transactions
                .iter()
                .find_map(|one| match &one.source {
                    TransactionSource::Raw(bytes) if how.is_multiple_of(2) => Some(bytes.to_vec()),
                    _ => None,
                })
                .unwrap_or(vec![1; 100_000]),
        };
        let mut txid = Txid::from(one.txid);
        spoil_txid(wrong, &mut txid);
        let (length, chunk_size) = (bytes.len() as u64, 64 << 10);
        self.apply(Op::Begin(BeginTransaction { txid: txid.clone(), length, chunk_size }), height)?;
        for (chunk, number) in bytes.chunks(chunk_size as usize).zip(0..) {
            let put = PutTransactionChunk { txid: txid.clone(), chunk: number, bytes: ByteBuf::from(chunk) };
            match how / 2 % 16 {
                0 => continue,
                1 => {
                    let longer = ByteBuf::from([chunk, &[0]].concat());
                    self.apply(Op::Put(PutTransactionChunk { bytes: longer, ..put.clone() }), height)?;
                    self.apply(Op::Put(PutTransactionChunk { chunk: number + 9, ..put.clone() }), height)?;
                }
                2 => {
                    let mut changed = put.clone();
                    other(&mut changed.bytes);
                    self.apply(Op::Put(changed), height)?;
                }
                3 => drop(self.apply(Op::Abort(txid.clone()), height)?),
                _ => {}
            }
            self.apply(Op::Put(put), height)?;
        }
        if how.is_multiple_of(3) {
            self.store.reopen();
        }
        let source = TransactionSource::Uploaded(txid.clone());
        let item =
            UtxoCreate { source, mined: None, locked: Some(false), conflicting: false, fee: None, is_new: false };
        self.apply(Op::Create(item), height)?;
        if !how.is_multiple_of(4) {
            self.apply(Op::Abort(txid), height)?;
        }
        Ok(())
    }

    /// Another holds what it spends.
    fn is_late(&self, one: &Transaction) -> bool {
        one.inputs.iter().any(|&input| self.hold(input).is_some_and(|hold| hold.by != one.txid))
    }

    fn creation(&self, which: Which, creation: Creation) -> UtxoCreate {
        let mut source = self.transaction(which, |one| self.is_next(one)).source;
        if let Some(how) = creation.bad {
            transactions::spoil(&mut source, how);
        }
        let mined = creation.mined.map(|(ids, on_longest_chain)| {
            let blocks = ids.into_iter().map(block).collect();
            MinedIn { blocks, on_longest_chain }
        });
        let Creation { locked, conflicting, fee, is_new, .. } = creation;
        UtxoCreate { source, mined, locked, conflicting, fee, is_new }
    }

    /// What the transaction's inputs name, as it would spend it.
    fn spends(&self, one: &Transaction, mask: u8) -> TransactionSpends {
        let inputs = one.inputs.iter().zip(0..).filter(|(_, vin)| mask >> (vin % 8) & 1 == 1);
        let spend = |(&(txid, vout), vin): (&(Hash, u32), u32)| {
            let utxo_hash = self.hash_of((txid, vout));
            Spend { txid: txid.into(), vout, utxo_hash, vin }
        };
        TransactionSpends { spender: one.txid.into(), spends: inputs.map(spend).collect() }
    }

    fn spend(&self, which: Which, mask: u8, again: bool, wrong: Option<Wrong>) -> TransactionSpends {
        let free = |&input: &(Hash, u32)| self.entry(input).is_some_and(|entry| entry.hold.is_none());
        let mut item = self.spends(&self.transaction(which, |one| one.inputs.iter().any(free)), mask);
        if again {
            item.spends.extend(item.spends.clone());
        }
        let count = item.spends.len();
        let Some(spend) = item.spends.get_mut(usize::from(which.number) % count.max(1)) else { return item };
        match wrong {
            Some(Wrong::ShortTxid) if which.number.is_multiple_of(2) => short(&mut item.spender),
            Some(Wrong::ShortTxid) => short(&mut spend.txid),
            Some(Wrong::Txid) => other(&mut spend.txid),
            Some(Wrong::ShortHash) => short(&mut spend.utxo_hash),
            Some(Wrong::Hash) => other(&mut spend.utxo_hash),
            Some(Wrong::Vout) => spend.vout += 20,
            Some(Wrong::Spender) => other(&mut item.spender),
            Some(Wrong::Vin) => spend.vin += 1,
            _ => {}
        }
        item
    }

    fn sweep(&self, which: Which, by: Which) -> TransactionSpends {
        let one = self.recorded(which, |one| {
            let record = &self.model.records[&one.txid];
            !record.locked && !record.conflicting
        });
        let by = self.transaction(by, |by| by.inputs.iter().any(|input| input.0 == one.txid));
        let free = |&vout: &u32| {
            let entry = self.entry((one.txid, vout));
            entry.is_some_and(|entry| entry.hold.is_none() && !entry.frozen)
        };
        let spend = |(vout, count): (u32, u32)| {
            // By the input that names the output, if one does.
            let vin = by.inputs.iter().position(|input| *input == (one.txid, vout));
            let vin = vin.map_or(100 + count, |vin| vin as u32);
            Spend { txid: one.txid.into(), vout, utxo_hash: self.hash_of((one.txid, vout)), vin }
        };
        let spends = (0..one.outputs).filter(free).zip(0..).map(spend).collect();
        TransactionSpends { spender: by.txid.into(), spends }
    }

    fn unspend(&self, which: Which, wrong: Option<Wrong>) -> Unspend {
        let (outpoint, utxo_hash) = self.output(which, |_, entry| entry.hold.is_some());
        let txid: Hash = outpoint.txid[..].try_into().expect("it is a txid");
        let (by, vin) = self.hold((txid, outpoint.vout)).map_or(([9; 32], 0), |hold| (hold.by, hold.vin));
        let mut item = Unspend { outpoint, utxo_hash, spender: Spender { txid: by.into(), vin } };
        match wrong {
            Some(Wrong::ShortTxid) if which.number.is_multiple_of(2) => short(&mut item.spender.txid),
            Some(Wrong::Spender) => other(&mut item.spender.txid),
            Some(Wrong::Vin) => item.spender.vin += 1,
            wrong => spoil(wrong, &mut item.outpoint, &mut item.utxo_hash),
        }
        item
    }

    fn target(&self, which: Which, all: bool, hash: bool, frozen: bool, wrong: Option<Wrong>) -> FreezeTarget {
        let (mut outpoint, mut utxo_hash) = self.output(which, |_, entry| entry.frozen == frozen);
        spoil(wrong, &mut outpoint, &mut utxo_hash);
        FreezeTarget {
            txid: outpoint.txid,
            vout: (!all).then_some(outpoint.vout),
            utxo_hash: (hash && !all || wrong == Some(Wrong::Vin)).then_some(utxo_hash),
        }
    }

    fn reassign(&mut self, which: Which, wrong: Option<Wrong>) -> Outcome<Reassign> {
        let (mut outpoint, mut utxo_hash) = self.output(which, |outpoint, entry| match which.number % 8 {
            0 => true,
            // What a double spend wants.
            1 | 2 => entry.hold.is_none() && self.is_wanted(outpoint),
            _ => entry.hold.is_none(),
        });
        if !which.any {
            let (txid, vout) = (outpoint.txid.clone(), Some(outpoint.vout));
            self.apply(Op::Freeze(FreezeTarget { txid, vout, utxo_hash: None }), self.height)?;
        }
        let new: Vec<u8> = utxo_hash.iter().map(|byte| byte.wrapping_add(1)).collect();
        let mut new_utxo_hash = UtxoHash::from(new);
        if wrong == Some(Wrong::Spender) {
            short(&mut new_utxo_hash);
        }
        spoil(wrong, &mut outpoint, &mut utxo_hash);
        Ok(Reassign { outpoint, utxo_hash, new_utxo_hash })
    }

    /// Conflicting transactions, the first of which wants what another holds; none where there are none, as a rule.
    fn winners(&mut self, meant: &[Which], wrong: Option<Wrong>) -> Outcome<Option<Vec<Txid>>> {
        let can = |run: &Self, one: &Transaction| {
            let there = |&input: &(Hash, u32)| run.entry(input).is_some();
            run.is_conflicting(one) && one.inputs.iter().all(there) && run.is_late(one)
        };
        let some = self.transactions.iter().any(|one| can(self, one));
        if !some && meant.iter().any(|which| !which.any && !which.number.is_multiple_of(4)) {
            return Ok(None);
        }
        if meant.first().is_some_and(|which| which.number % 4 == 2) {
            self.settle(&can)?;
        }
        let mut winners: Vec<Txid> = Vec::new();
        for &which in meant {
            if winners.len() == 1 && which.number % 4 == 1 {
                // Another double spend that has what the first one wants.
                let first = self.transactions.iter().find(|one| one.txid[..] == winners[0][..]);
                let inputs = first.map_or(Vec::new(), |first| first.inputs.clone());
                let rival = inputs.iter().find_map(|&input| self.hold(input));
                if let Some(rival) = rival.map(|hold| Txid::from(hold.by)) {
                    self.apply(Op::SetConflicting(rival.clone()), self.height)?;
                    winners.push(rival);
                    continue;
                }
            }
            let first = winners.is_empty() && some && which.number % 8 < 6;
            let spends = |one: &Transaction| self.is_conflicting(one) && !one.inputs.is_empty();
            let good = |one: &Transaction| if first { can(self, one) } else { spends(one) };
            let mut winner = Txid::from(self.recorded(which, good).txid);
            spoil_txid(wrong, &mut winner);
            winners.push(winner);
        }
        Ok(Some(winners))
    }

    /// Has what a loser spends from mined and spent, so that it could be deleted if the loser did not lose.
    fn settle(&mut self, can: &impl Fn(&Self, &Transaction) -> bool) -> Outcome {
        let Some(winner) = self.transactions.iter().find(|one| can(self, one)) else { return Ok(()) };
        let Some(loser) = winner.inputs.iter().find_map(|&input| self.hold(input)).map(|hold| hold.by) else {
            return Ok(());
        };
        let loser = self.transactions.iter().find(|one| one.txid == loser);
        for (parent, _) in loser.map_or(Vec::new(), |loser| loser.inputs.clone()) {
            let Some(one) = self.transactions.iter().find(|one| one.txid == parent && self.is_there(one)) else {
                continue;
            };
            let free = |vout: &u32| self.entry((parent, *vout)).is_some_and(|entry| entry.hold.is_none());
            let txid = Txid::from(parent);
            let spend = |(vout, vin): (u32, u32)| Spend {
                txid: txid.clone(),
                vout,
                utxo_hash: self.hash_of((parent, vout)),
                vin,
            };
            let spends = (0..one.outputs).filter(free).zip(0..).map(spend).collect();
            let spends = TransactionSpends { spender: [3; 32].into(), spends };
            let BlockRef { block_id, height: block_height, subtree } = block(7);
            let items = vec![MinedTransaction { txid: txid.clone(), subtree }];
            let (height, on_longest_chain) = (self.height, true);
            let mined = UtxoSetMinedBatch { height, block_id, block_height, on_longest_chain, unset: false, items };
            self.apply(Op::SetMined(mined), height)?;
            self.apply(Op::Spend(spends), height)?;
        }
        Ok(())
    }

    /// Counts what is rare in a record.
    fn observe(&mut self) {
        for txid in self.model.records.keys() {
            let record = Store::record(&self.model, txid, 0, 10_000).expect("it is there");
            let (paged, mined) = (record.total_extra_recs > 0, !record.blocks.is_empty());
            let done = record.delete_at_height.is_some() && !record.conflicting;
            let facts = [
                ("paged", paged),
                ("empty_page", record.extra_pages.iter().any(|page| page.record_utxos == 0)),
                ("spent_page", record.extra_pages.iter().any(|page| page.spent_utxos > 0)),
                ("deletable", done && record.spent_utxos > 0),
                ("deletable_pages", done && record.extra_pages.iter().any(|page| page.spent_utxos > 0)),
                ("frozen_spent", record.frozen && record.spent_utxos > 0),
                ("two_children", record.conflicting_children.len() > 1),
                ("three_blocks", record.blocks.len() > 2),
                ("unmined_with_blocks", mined && record.unmined_since.is_some()),
                ("two_reassignments", record.reassignments.len() > 1),
                ("deleted_child", !record.deleted_children.is_empty()),
                ("preserved", record.preserve_until.is_some()),
                ("in_blobs", matches!(record.transaction, TransactionPlace::Blobs { .. })),
            ];
            for (fact, _) in facts.iter().filter(|(_, is)| *is) {
                *self.seen.entry(format!("Record {fact}")).or_default() += 1;
            }
        }
    }

    /// Deletes everything: then nothing is left of it.
    pub fn empty(mut self, used_bytes: u64) -> Outcome {
        if let Some(open) = self.model.upload.clone() {
            self.apply(Op::Abort(open.begun.txid), self.height)?;
        }
        for txid in self.model.records.keys().copied().collect::<Vec<_>>() {
            self.apply(Op::Delete(txid), self.height)?;
        }
        same(&"used bytes", self.store.storage().used_bytes, used_bytes)?;
        same(&"blobs", self.store.blob_bytes(), (0, 0))
    }

    /// Everything is as the model says.
    pub fn check(&self) -> Outcome {
        let (store, model) = (&self.store, &self.model);
        same(&"indexes", store.indexes(), model.indexes())?;
        same(&"blobs", store.blob_bytes(), model.blob_bytes())?;
        let counters =
            UtxoStorage { used_bytes: 0, reusable_bytes: 0, billed_bytes: 0, max_bytes: 0, ..store.storage() };
        same(&"counters", counters, model.storage())?;
        let mut names: Vec<Txid> = self.transactions.iter().map(|one| Txid::from(one.txid)).collect();
        names.push(Txid::from([0x55; 32]));
        names.push(Txid::from([0x55; 31]));
        for txid in &names {
            for (first, limit) in [(0, 10_000), (1, 3)] {
                let record = store.record(txid, first, limit).map_err(plain::<UtxoRefusal>);
                same(&(first, limit), record, Store::record(model, txid, first, limit).map_err(plain::<UtxoRefusal>))?;
            }
            for (offset, length) in [(0, 1 << 20), (10, 30)] {
                let part = UtxoGetPart { txid: txid.clone(), offset, length };
                let bytes = store.transaction(&part).map_err(plain::<UtxoRefusal>);
                same(&part, bytes, Store::transaction(model, &part).map_err(plain::<UtxoRefusal>))?;
                let bytes = store.inpoints(&part).map_err(plain::<UtxoRefusal>);
                same(&part, bytes, Store::inpoints(model, &part).map_err(plain::<UtxoRefusal>))?;
            }
        }
        for one in &self.transactions {
            for vout in 0..=one.outputs {
                let outpoint = Outpoint { txid: one.txid.into(), vout };
                for height in [self.height, self.height + 3, 1_000_000] {
                    let state = store.spend_state(&outpoint, height).map_err(plain::<UtxoRefusal>);
                    same(
                        &(&outpoint, height),
                        state,
                        Store::spend_state(model, &outpoint, height).map_err(plain::<UtxoRefusal>),
                    )?;
                }
            }
        }
        self.check_unmined()
    }

    fn check_unmined(&self) -> Outcome {
        let all = self.model.list_unmined(None, usize::MAX).transactions;
        for limit in [1, 3, 1000] {
            let (mut listed, mut after) = (Vec::new(), None);
            loop {
                let page = self.store.list_unmined(after.as_ref(), limit);
                prop_assert!(page.transactions.len() <= limit as usize, "{} for {limit}", page.transactions.len());
                prop_assert!(!page.transactions.is_empty() || page.cursor.is_none(), "an empty page that goes on");
                listed.extend(page.transactions);
                prop_assert!(listed.len() <= all.len(), "{} of {}", listed.len(), all.len());
                after = page.cursor;
                if after.is_none() {
                    break;
                }
            }
            same(&("unmined", limit), listed, all.clone())?;
        }
        // From anywhere: what was listed last may be mined since.
        for one in &self.transactions {
            let created_at = self.now_ns / 2;
            let after = UnminedCursor { created_at, txid: one.txid.into() };
            same(
                &("unmined", &after),
                self.store.list_unmined(Some(&after), 2),
                self.model.list_unmined(Some(&after), 2),
            )?;
        }
        Ok(())
    }
}
