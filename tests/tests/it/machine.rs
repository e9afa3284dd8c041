//! State machine test of the chain: random histories of everything that changes it, against a plain model. The canister prunes exactly the
//! blocks that the model prunes, and a registered exporter has pulled every block before it is pruned.

use coppice_ic::Backend;
use coppice_model::chain::{Made, Model, Upload, Whereabouts};
use coppice_tests::blocks::{block, block_id, id, upload, with_keys};
use coppice_tests::client::Answered;
use coppice_tests::coppice::{Coppice, LOG_CLASS, Who};
use coppice_tests::reader::{Pulled, Reader};
use ic_coppice_interface::*;
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::atomic::{AtomicU32, Ordering};

const CLASS: u64 = LOG_CLASS as u64;
const EXPORTERS: [Who; 2] = [Who::Exporter, Who::Archive];
const EXPIRY: u64 = 120;
/// Histories that are done, for the progress output.
static DONE: AtomicU32 = AtomicU32::new(0);

#[derive(Clone, Debug)]
enum Step {
    Append { body: usize, transactions: u8, repeated: u8, keys: Keys, age: u64 },
    Upload { body: usize, keys: Keys, then: Then },
    Finish(Then),
    Pull { who: Who, pages: u8, max_bytes: u64 },
    Ack(Who),
    Prune(u64),
    Policy { blocks: u64, days: u64, blobs: u64, floor: u64, ops: u64 },
    Enable(bool),
    Register(Who),
    Remove(Who),
    Require(bool),
    Rollback(u64),
    Time(u64),
    Upgrade,
}

/// Secondary keys of a block: a transaction, and the number of a key.
type Keys = Vec<(u8, u8)>;
/// The number of keys; each key has as many bytes as its number.
const KEYS: u8 = 5;
/// The number of ids that repeat.
const IDS: u64 = 4;

#[derive(Clone, Copy, Debug, PartialEq)]
enum Then {
    Commit,
    Abort,
    Leave,
}

fn step() -> impl Strategy<Value = Step> {
    let body = || prop_oneof![3 => 0usize..2_000, 3 => 20_000usize..150_000];
    let who = || prop::sample::select(&EXPORTERS[..]);
    let then = || prop_oneof![3 => Just(Then::Commit), 1 => Just(Then::Abort), 1 => Just(Then::Leave)];
    let keys = || prop::collection::vec((0u8..8, 0..KEYS), 0..6);
    let time = prop::sample::select(&[60u64, 600, 4_000, 86_400, 5 * 86_400][..]);
    let few = |most: u64| prop_oneof![Just(0u64), 1..most];
    prop_oneof![
        20 => (body(), 0u8..8, any::<u8>(), keys(), prop_oneof![Just(0u64), 0u64..900_000])
            .prop_map(|(body, transactions, repeated, keys, age)| Step::Append { body, transactions, repeated, keys, age }),
        3 => (body(), keys(), then()).prop_map(|(body, keys, then)| Step::Upload { body, keys, then }),
        2 => then().prop_map(Step::Finish),
        8 => (who(), 1u8..6, prop_oneof![Just(0u64), 1_000u64..200_000])
            .prop_map(|(who, pages, max_bytes)| Step::Pull { who, pages, max_bytes }),
        5 => who().prop_map(Step::Ack),
        3 => (1u64..60).prop_map(Step::Prune),
        3 => (few(12), few(9), prop_oneof![Just(0u64), 12u64..40], few(9), prop_oneof![1u64..12, Just(10_000)])
            .prop_map(|(blocks, days, blobs, floor, ops)| Step::Policy { blocks, days, blobs, floor, ops }),
        1 => any::<bool>().prop_map(Step::Enable),
        2 => who().prop_map(Step::Register),
        1 => who().prop_map(Step::Remove),
        1 => any::<bool>().prop_map(Step::Require),
        2 => (0u64..5).prop_map(Step::Rollback),
        10 => time.prop_map(Step::Time),
        1 => Just(Step::Upgrade),
    ]
}

struct Machine {
    coppice: Coppice,
    model: Model,
    /// The blocks that each exporter pulled, and the number of blocks pruned before it was registered.
    readers: BTreeMap<Who, (Reader, usize)>,
}

impl Machine {
    fn new(first: u64) -> Self {
        Self {
            coppice: Coppice::new(),
            model: Model::new(first, LOG_CLASS, Who::Producer.principal(), EXPIRY),
            readers: BTreeMap::new(),
        }
    }

    fn now(&self) -> u64 {
        self.coppice.ic.now() / 1_000_000_000
    }

    /// Makes the next block. Transactions whose bit is set in `repeated` have one of the repeating ids, the others a new id.
    fn next(&mut self, body: usize, (transactions, repeated): (u8, u8), keys: &Keys, age: u64) -> Made {
        let (number, serial) = (self.model.next(), self.model.made + 1);
        let of = |i: u64| if repeated & 1 << i != 0 { i * serial % IDS } else { serial << 8 | i };
        let ids: Vec<_> = (0..u64::from(transactions)).map(|i| id(of(i))).collect();
        let keys: Vec<(u32, Vec<u8>)> = keys
            .iter()
            .filter(|_| transactions > 0)
            .map(|&(transaction, of)| (u32::from(transaction % transactions), vec![of; usize::from(of)]))
            .collect();
        let keys: Vec<(u32, &[u8])> = keys.iter().map(|(transaction, key)| (*transaction, key.as_slice())).collect();
        let timestamp_secs = self.now() - age;
        self.model.make(AppendBlock { timestamp_secs, ..with_keys(block(number, &ids, body), &keys) })
    }

    /// Returns whether an append, or the beginning of an upload, was refused, and checks the refusal against the model.
    fn is_refused<T: Debug>(&self, answer: &Result<T, AppendError>) -> bool {
        let expected = self.model.refuses_append(self.now());
        match (answer.as_ref().err(), &expected) {
            // The expiry time depends on the server's clock.
            (Some(AppendError::UploadOpen(UploadOpen { .. })), Some(AppendError::UploadOpen(UploadOpen { .. }))) => {}
            (error, expected) => assert_eq!(error, expected.as_ref()),
        }
        expected.is_some()
    }

    fn begin(&mut self, body: usize, keys: &Keys) {
        let new = self.next(body, (2, 2), keys, 0);
        let (begin, chunks) = upload(&new.block, 50_000);
        if self.is_refused(&self.coppice.producer().begin_block(&begin).answer()) {
            return;
        }
        for (chunk, bytes) in (0..).zip(chunks) {
            self.coppice.put(begin.number, chunk, bytes).unwrap();
        }
        self.model.upload = Some(Upload::new(new, 50_000, self.now()));
    }

    fn finish(&mut self, then: Then) {
        let Some(Upload { made, .. }) = self.model.upload.clone() else { return };
        match then {
            Then::Leave => {}
            Then::Abort => {
                let aborted: Result<bool, UploadError> =
                    self.coppice.producer().abort_block(made.block.number).answer();
                assert_eq!(aborted, Ok(true));
                self.model.upload = None;
            }
            Then::Commit => {
                let committed: Result<Commit, UploadError> =
                    self.coppice.producer().commit_block(&block_id(&made.block)).answer();
                match self.model.exhausted(self.now()) {
                    Some(held_by) => {
                        let refused = AppendError::CapacityExhausted { held_by };
                        assert_eq!(committed, Err(UploadError::Append(refused)));
                    }
                    None => {
                        assert_eq!(committed, Ok(Commit::Done));
                        self.model.upload = None;
                        self.model.append(made, self.now());
                    }
                }
            }
        }
    }

    fn pull(&mut self, who: Who, max_bytes: u64) {
        let Some((reader, _)) = self.readers.get_mut(&who) else { return };
        let in_both = |block: &&AppendBlock| {
            let kept = self.model.get(block.number).map(|kept| &kept.block);
            kept.is_some_and(|kept| kept.hash == block.hash)
        };
        let common = reader.blocks.values().rev().find(in_both).map(|block| block.number);
        if let Pulled::Reorged { common_ancestor } = reader.pull(&self.coppice, max_bytes) {
            // Hashes differ between forks, so the newest common block is known.
            assert_eq!(common_ancestor, common.unwrap_or(common_ancestor), "the newest block of both chains");
        }
    }

    fn acknowledge(&mut self, who: Who) {
        let Some(newest) = self.readers.get(&who).and_then(|(reader, _)| reader.newest()) else { return };
        let (number, hash) = (newest.number, newest.hash.clone());
        let answer = self.coppice.ack(who, number, &hash);
        let expected = self.model.ack(&who.name(), number, &hash);
        let expected = expected.unwrap_or_else(|| panic!("a reader that is not an exporter: {answer:?}"));
        assert_eq!(answer, expected);
        if let Ok(bound) = answer {
            self.model.bounds.insert(who.name(), bound);
            if self.model.exhausted(self.now()) == Some(HeldBy::PruneLag) {
                // While appends are refused, the acknowledgement triggers a tick at once.
                self.settle(60);
            }
        }
    }

    fn policy(&mut self, (blocks, days, blobs): (u64, u64, u64), floor: u64, ops: u64) {
        let arg = PrunePolicyArg {
            min_kept_blocks: Some(floor),
            max_ops_per_tick: Some(ops),
            pause_after_secs: Some(ops % 3),
            retain_blocks: Some(blocks),
            retain_days: Some(days),
            target_bytes: Some(blobs * CLASS),
            headroom_ratio_bps: Some(5_000),
            ..PrunePolicyArg::default()
        };
        let policy = self.coppice.set_policy(arg).unwrap();
        self.model.set_policy(policy);
    }

    fn remove(&mut self, who: Who) {
        let drop_guard = self.model.made.is_multiple_of(2);
        let answer = self.coppice.remove_exporter(who, drop_guard);
        let expected = match self.model.bounds.contains_key(&who.name()) {
            false => Err(ExporterError::Unknown),
            true if self.model.bounds.len() == 1 && !drop_guard => Err(ExporterError::LastExporter),
            true => Ok(()),
        };
        assert_eq!(answer, expected);
        if answer.is_ok() {
            self.exported_before_pruned(who);
            self.model.bounds.remove(&who.name());
            self.readers.remove(&who);
        }
    }

    fn roll_back(&mut self, depth: u64) {
        let Some(head) = self.model.head() else { return };
        let number = head.saturating_sub(depth);
        let answer: Result<Rollback, RollbackError> = self.coppice.producer().rollback_to(number, None).answer();
        if let Some(expected) = self.model.refuses_rollback(number) {
            let both_open =
                matches!(answer, Err(RollbackError::UploadOpen(UploadOpen { .. }))) && self.model.upload.is_some();
            assert!(both_open || answer == Err(expected), "{answer:?}");
        } else {
            // As many messages as the budget requires.
            let (mut answer, mut calls) = (answer.unwrap(), 0);
            while answer.has_more {
                calls += 1;
                assert!(calls < 100 && answer.head >= number, "the smallest budget makes progress");
                answer = self.coppice.producer().rollback_to(number, None).answer().unwrap();
            }
            assert_eq!(answer.head, number);
            self.model.roll_back(number);
            if calls > 0 {
                // Ticks were armed to continue the rollback, and then prune the due blocks.
                self.settle(60);
            }
        }
    }

    /// Returns whether the chain is above high water, and the daemon prunes.
    fn is_above_high_water(&self) -> bool {
        let policy = self.model.policy.as_ref().filter(|policy| policy.pruning_enabled && policy.target_bytes > 0);
        policy.is_some_and(|policy| {
            let high = policy.target_bytes * u64::from(20_000 - policy.headroom_ratio_bps) / 20_000;
            self.model.capacity_bytes() > high
        })
    }

    /// Lets ticks of the daemon run for `secs` seconds, and until they have nothing left to do.
    fn settle(&mut self, secs: u64) {
        self.coppice.settle(secs);
        let now = self.now();
        self.model.settle(now);
    }

    fn step(&mut self, step: Step) {
        match step {
            Step::Append { body, transactions, repeated, keys, age } => {
                let new = self.next(body, (transactions, repeated), &keys, age);
                if !self.is_refused(&self.coppice.append(&new.block)) {
                    self.model.append(new, self.now());
                }
            }
            Step::Upload { body, keys, then } => {
                self.begin(body, &keys);
                self.finish(then);
            }
            Step::Finish(then) => self.finish(then),
            Step::Pull { who, pages, max_bytes } => (0..pages).for_each(|_| self.pull(who, max_bytes)),
            Step::Ack(who) => self.acknowledge(who),
            Step::Prune(max_ops) => {
                let run: Result<PruneRun, PruneError> = self.coppice.operator().prune_now(max_ops).answer();
                assert_eq!(run.is_ok(), self.model.policy.is_some());
                self.model.run(self.now(), max_ops);
            }
            Step::Policy { blocks, days, blobs, floor, ops } => self.policy((blocks, days, blobs), floor, ops),
            Step::Enable(enabled) => {
                let arg = PrunePolicyArg { pruning_enabled: Some(enabled), ..PrunePolicyArg::default() };
                let change = self.coppice.operator().set_prune_policy(&arg).answer().unwrap();
                self.model.set_policy(change.new);
            }
            Step::Register(who) => {
                self.coppice.register(who);
                self.model.register(who.name());
                self.readers.entry(who).or_insert_with(|| (Reader::default(), self.model.pruned.len()));
            }
            Step::Remove(who) => self.remove(who),
            Step::Require(require) => {
                let change = ConfigChange { require_export: Some(require), ..ConfigChange::default() };
                self.coppice.operator().set_config(&change).answer().unwrap();
                self.model.require_export = require;
            }
            Step::Rollback(depth) => self.roll_back(depth),
            Step::Time(secs) => self.settle(secs.max(60)),
            Step::Upgrade => self.coppice.upgrade(),
        }
        if self.is_above_high_water() {
            // The append that reached it was followed by a tick at once.
            self.settle(60);
        }
        self.check();
    }

    /// Compares everything visible through the interface with the model.
    fn check(&self) {
        let (status, model, now) = (self.coppice.prune_status(), &self.model, self.now());
        assert_eq!((status.head, status.pruned_before_block), (model.head(), model.oldest()));
        assert_eq!(status.estimated_kept_bytes, model.kept_bytes());
        assert_eq!(status.capacity_bytes, model.capacity_bytes());
        assert_eq!(status.enabled, model.is_enabled());
        let due = model.due(now);
        assert_eq!(status.need_prune, due.is_some(), "{status:?}");
        if let Some(due) = due {
            assert_eq!((status.reason, status.target), (Some(due.reason), due.target));
            assert_eq!(status.prune_cursor.is_some(), due.before > model.oldest());
        }
        assert_eq!((status.held_by.clone(), status.floor_block), (model.held_by(now), model.floor_block(now)));
        let plan = self.coppice.plan();
        assert_eq!(plan.is_ok(), model.policy.is_some());
        if let Ok(plan) = plan {
            let mut after = model.clone();
            after.run(now, model.policy.as_ref().map_or(0, |policy| policy.max_ops_per_tick));
            let blocks = (after.pruned.len() - model.pruned.len()) as u64;
            assert_eq!((plan.blocks, plan.held_by), (blocks, status.held_by), "the plan matches the run");
        }
        for of in 0..KEYS {
            let key = vec![of; usize::from(of)];
            assert_eq!(Some(self.coppice.find_all(&key, 7)), model.find(&key), "key {of}");
        }
        for of in 0..IDS {
            let found = match self.coppice.location(id(of)) {
                Err(ReadError::NotFound) => None,
                found => Some(found.unwrap()),
            };
            assert_eq!(Whereabouts::At(found), model.locate(&id(of)), "id {of}");
        }
        let (certified, seals) = (self.coppice.certified(), model.seals());
        let (before, kept) = seals.split_first().expect("a seal before the first block");
        assert_eq!(certified.head, model.head().zip(kept.last().copied()));
        let beginning = certified.beginning.map(|own| (own.first, own.before, own.resets));
        assert_eq!(beginning, Some((model.oldest(), *before, 0)));
        if let Some(head) = model.head() {
            let page = self.coppice.anyone().get_block_headers(model.oldest(), head).answer().unwrap();
            let sealed: Vec<_> = page.headers.iter().map(|header| header.seal.as_slice()).collect();
            assert_eq!(sealed, kept);
        }
        let guard = model.guard().map(|(bound, _)| bound.max(model.oldest()));
        assert_eq!(status.exported_before_block, guard);
        for exporter in self.coppice.export_status().exporters {
            assert_eq!(exporter.exported_before_block, model.bounds[&exporter.name].max(model.oldest()));
        }
    }

    /// Asserts that the exporter has every block that was pruned while it was registered.
    fn exported_before_pruned(&self, who: Who) {
        let (reader, since) = &self.readers[&who];
        for block in &self.model.pruned[*since..] {
            assert_eq!(reader.blocks.get(&block.number), Some(block), "pruned, and {who:?} does not have it");
        }
    }

    fn end(mut self) {
        self.readers.keys().for_each(|&who| self.exported_before_pruned(who));
        let mut reader = Reader::default();
        while reader.pull(&self.coppice, 0) == Pulled::Some {}
        let kept: Vec<_> = self.model.kept.iter().map(|kept| &kept.block).collect();
        assert_eq!(reader.blocks.values().collect::<Vec<_>>(), kept, "the kept blocks are whole");
        let (entries, table) = (self.model.distinct_ids().len() as u64, self.coppice.prune_status().transaction_index);
        assert!((entries..=entries + table.debt).contains(&table.entries), "{entries} are live of {table:?}");
        // `prune_now` sweeps the indexes whatever their debt, within the budget.
        if self.model.policy.is_some() {
            while self.coppice.prune_now(15_000).dropped > 0 {}
            let now = self.now();
            while self.model.due(now).is_some_and(|due| due.before > self.model.oldest()) {
                self.model.run(now, 15_000);
            }
        }
        let (model, storage) = (&self.model, self.coppice.storage());
        assert_eq!((storage.quarantined_bytes, storage.index_entries), (0, model.distinct_ids().len() as u64));
        assert_eq!(storage.key_entries, model.distinct_keys().len() as u64);
        assert_eq!(storage.payload_bytes, model.kept.iter().map(Made::payload).sum::<u64>());
    }
}

/// The number of histories: `PROPTEST_CASES`, or a number that takes seconds; a server takes longer for each call.
fn cases() -> u32 {
    let few = if coppice_ic::chosen() == Backend::Host { 30 } else { 12 };
    std::env::var("PROPTEST_CASES").ok().and_then(|cases| cases.parse().ok()).unwrap_or(few)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: cases(), max_shrink_iters: 400, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_history_matches_the_model(first in prop_oneof![Just(0u64), Just(700_000)], steps in prop::collection::vec(step(), 1..120)) {
        let mut machine = Machine::new(first);
        steps.into_iter().for_each(|step| machine.step(step));
        machine.end();
        if std::env::var_os("COPPICE_PROGRESS").is_some() {
            let done = DONE.fetch_add(1, Ordering::Relaxed) + 1;
            if done.is_multiple_of(100) {
                eprintln!("{done} of {} histories", cases());
            }
        }
    }
}
