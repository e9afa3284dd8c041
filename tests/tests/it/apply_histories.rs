//! Random histories of applying against a model that knows blocks and their transactions only: appends, two feeders, late and reordered
//! calls, stops and new beginnings, rollbacks over many messages, resets, upgrades, double spends that win although a parent has no record,
//! and, without copies, transactions that leave their block and return.

use crate::apply_bytes::bytes_of;
use crate::utxo::get;
use coppice_tests::blocks::hash;
use coppice_tests::client::Answered;
use coppice_tests::coppice::{Coppice, Who};
use coppice_tests::transactions::{self, Tx};
use ic_coppice_interface::*;
use std::collections::BTreeSet;

const HEIGHT: u32 = 500;

struct Random(u64);

impl Random {
    fn below(&mut self, most: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((self.0 >> 33) % most.max(1) as u64) as usize
    }
}

/// A block that was appended.
#[derive(Clone)]
struct Block {
    number: u64,
    /// Counts all blocks; also the block's id.
    serial: u64,
    txs: Vec<usize>,
    applied: bool,
}

impl Block {
    fn argument(&self) -> UtxoApplyBlock {
        UtxoApplyBlock {
            number: self.number,
            hash: hash(self.number ^ self.serial << 40).into(),
            height: HEIGHT + self.number as u32,
            block_id: self.serial as u32,
            missing_parents: Some(MissingParents::Skip),
            skip: None,
            skip_rest: false,
        }
    }
}

/// The expected properties of a record.
#[derive(Default)]
struct Known {
    /// It was applied once.
    exists: bool,
    /// Its blocks of chains that were reset.
    kept: BTreeSet<u32>,
    /// The transaction whose output it spends.
    parent: Option<usize>,
    is_coinbase: bool,
}

struct World {
    coppice: Coppice,
    random: Random,
    txs: Vec<(Tx, Known)>,
    /// Outputs that nothing spends.
    free: Vec<(usize, u32)>,
    chain: Vec<Block>,
    /// Blocks that left the chain.
    old: Vec<Block>,
    next: Option<u64>,
    serial: u64,
    /// Number of the first block.
    first: u64,
    /// Transactions that hold an output which a later transaction of a block spends, and that one.
    losers: Vec<(Tx, usize)>,
}

impl World {
    fn new(seed: u64) -> Self {
        let coppice = Coppice::new();
        coppice.grant(Who::Rival, Role::UtxoFeeder);
        coppice.set_policy(PrunePolicyArg { max_ops_per_tick: Some(1), ..PrunePolicyArg::default() }).unwrap();
        coppice.hold_timers();
        let utxo = UtxoSettingsChange {
            copy_applied_transactions: Some(seed.is_multiple_of(2)),
            ..UtxoSettingsChange::default()
        };
        coppice.operator().set_config(&ConfigChange { utxo: Some(utxo), ..ConfigChange::default() }).answer().unwrap();
        let random = Random(seed);
        let (txs, free, chain, old, losers) = Default::default();
        Self { coppice, random, txs, free, chain, old, next: None, serial: 0, first: 1, losers }
    }

    fn in_chain(&self, tx: usize) -> bool {
        self.chain.iter().any(|block| block.txs.contains(&tx))
    }

    fn push(&mut self, tx: Tx, known: Known) -> usize {
        if !known.is_coinbase {
            (0..tx.outputs.len() as u32).for_each(|vout| self.free.push((self.txs.len(), vout)));
        }
        self.txs.push((tx, known));
        self.txs.len() - 1
    }

    fn append(&mut self) {
        self.serial += 1;
        let salt = self.serial * 1_000;
        let mut txs = vec![self.push(Tx::coinbase(salt, 1), Known { is_coinbase: true, ..Known::default() })];
        for nth in 1..=1 + self.random.below(4) as u64 {
            // A transaction of an abandoned block comes again, or a new one.
            let again = self.random.below(self.txs.len());
            let Known { is_coinbase, parent, .. } = self.txs[again].1;
            let has_parent = parent.is_none_or(|parent| self.in_chain(parent) || txs.contains(&parent));
            if !is_coinbase && has_parent && !self.in_chain(again) && !txs.contains(&again) {
                txs.push(again);
                continue;
            }
            let which = self.random.below(self.free.len());
            let of = self.free.get(which).copied().filter(|(tx, _)| self.in_chain(*tx) || txs.contains(tx));
            let tx = match of {
                Some((parent, vout)) => {
                    self.free.swap_remove(which);
                    let spent = (self.txs[parent].0.txid, vout);
                    let tx = Tx::of(salt + nth, &[spent, ([salt as u8; 32], nth as u32)], 2);
                    let tx = self.push(tx, Known { parent: Some(parent), ..Known::default() });
                    if self.txs[parent].1.exists && self.random.below(3) == 0 {
                        self.hold(spent, parent, tx);
                    }
                    tx
                }
                None => self.push(Tx::orphan(salt + nth, 3), Known::default()),
            };
            txs.push(tx);
        }
        let number = self.chain.last().map_or(self.first, |head| head.number + 1);
        let block = Block { number, serial: self.serial, txs, applied: false };
        let parent_hash = self.chain.last().map_or_else(BlockHash::default, |head| head.argument().hash);
        let txs: Vec<Tx> = block.txs.iter().map(|tx| self.txs[*tx].0.clone()).collect();
        let sent = AppendBlock { hash: block.argument().hash, parent_hash, ..transactions::block(number, &txs) };
        self.coppice.append(&sent).unwrap();
        self.chain.push(block);
    }

    /// Lets another transaction spend the output that a transaction of a block is about to spend.
    fn hold(&mut self, (parent, vout): ([u8; 32], u32), of: usize, winner: usize) {
        let rival = Tx::of(self.serial * 1_000 + 500 + winner as u64, &[(parent, vout)], 1);
        let spends = vec![self.txs[of].0.spend(vout, 0)];
        let batch = UtxoSpendBatch { height: HEIGHT, items: vec![TransactionSpends { spender: rival.id(), spends }] };
        assert_eq!(self.coppice.producer().utxo_spend(&batch).answer().results, [Ok(1)]);
        let batch = UtxoCreateBatch { height: HEIGHT, items: vec![rival.record()] };
        assert!(self.coppice.producer().utxo_create(&batch).answer().results[0].is_ok());
        self.losers.push((rival, winner));
    }

    /// Lets the transaction win at which a block stops.
    fn resolve(&self, stop: &UtxoApplyStop) {
        assert!(self.losers.iter().any(|(_, winner)| self.txs[*winner].0.id() == stop.txid), "{stop}");
        let source = TransactionSource::Kept(KeptTransaction { number: stop.number, position: stop.transaction });
        let item = UtxoCreate { source, mined: None, locked: Some(false), conflicting: true, fee: None, is_new: false };
        let batch = UtxoCreateBatch { height: HEIGHT, items: vec![item] };
        assert!(self.coppice.producer().utxo_create(&batch).answer().results[0].is_ok());
        let height = HEIGHT + stop.number as u32;
        let process = UtxoProcessConflicting { height, winners: vec![stop.txid.clone()] };
        assert!(!self.coppice.producer().utxo_process_conflicting(&process).answer().unwrap().has_more);
    }

    /// Applies a block, with all double spends that it needs to win. Returns the sum of the answers.
    fn apply(&self, arg: &UtxoApplyBlock, who: Who) -> Result<UtxoApplied, UtxoApplyError> {
        let mut sum = UtxoApplied::default();
        loop {
            let done = match self.coppice.by(who).utxo_apply_block(arg).answer() {
                Err(UtxoApplyError::Stopped(stop)) => {
                    self.resolve(&stop);
                    continue;
                }
                answer => answer?,
            };
            let (created, existed, pruned) =
                (sum.created + done.created, sum.existed + done.existed, sum.pruned + done.pruned);
            sum = UtxoApplied { created, existed, pruned, ..done };
            if !done.has_more {
                return Ok(sum);
            }
        }
    }

    /// Takes a transaction of an applied block from the block or from the longest chain, and puts it back.
    fn leave_and_return(&mut self) {
        let applied: Vec<Block> = self.chain.iter().filter(|block| block.applied).cloned().collect();
        let Some(block) = applied.get(self.random.below(applied.len())) else { return };
        let (tx, Known { kept, .. }) = &self.txs[block.txs[self.random.below(block.txs.len())]];
        // The bytes of a transaction of a chain that was reset may have gone with it.
        let (tx, is_new) = (tx.clone(), kept.is_empty());
        let UtxoApplyBlock { height, block_id, .. } = block.argument();
        let unsets = self.random.below(2) == 0;
        for leaves in [true, false] {
            if unsets {
                let items = vec![MinedTransaction { txid: tx.id(), subtree: 0 }];
                let set = UtxoSetMinedBatch {
                    height,
                    block_id,
                    block_height: height,
                    on_longest_chain: true,
                    unset: leaves,
                    items,
                };
                assert!(self.coppice.producer().utxo_set_mined(&set).answer().results[0].is_ok());
            } else {
                let set = UtxoSetOnLongestChainBatch { height, on_longest_chain: !leaves, txids: vec![tx.id()] };
                assert_eq!(self.coppice.producer().utxo_set_on_longest_chain(&set).answer().results, [Ok(())]);
            }
        }
        let record = get(&self.coppice, &tx).unwrap();
        assert!(!is_new || !matches!(record.transaction, TransactionPlace::Block { .. }), "{record:?}");
    }

    /// Returns a block of the chain, or one that has left it.
    fn some_block(&mut self) -> Option<Block> {
        let all: Vec<&Block> = self.chain.iter().chain(&self.old).collect();
        let which = self.random.below(all.len());
        all.get(which).map(|block| (*block).clone())
    }

    /// Calls with a block's argument, and checks the answer.
    fn call(&mut self, block: &Block, who: Who) {
        let arg = block.argument();
        let answer = self.apply(&arg, who);
        let at = self.chain.iter().position(|kept| kept.number == block.number);
        let Some(at) = at else {
            return assert_eq!(answer, Err(UtxoApplyError::NotFound));
        };
        let kept = &mut self.chain[at];
        if kept.serial != block.serial {
            return assert_eq!(answer, Err(UtxoApplyError::WrongHash { expected: kept.argument().hash }));
        }
        if kept.applied {
            let transactions = kept.txs.len() as u32;
            if self.next == Some(block.number) {
                self.next = Some(block.number + 1);
            }
            return assert_eq!(answer, Ok(UtxoApplied { known: true, transactions, ..UtxoApplied::default() }));
        }
        match self.next {
            Some(next) if next != block.number => assert_eq!(answer, Err(UtxoApplyError::NotNext { next })),
            None if who == Who::Rival => assert_eq!(answer, Err(UtxoApplyError::OperatorOnly)),
            _ => {
                let done = answer.unwrap();
                assert_eq!((done.has_more, done.known, done.pruned), (false, false, 0));
                assert_eq!(done.created + done.existed, kept.txs.len() as u32);
                kept.applied = true;
                self.next = Some(block.number + 1);
                kept.txs.iter().for_each(|tx| self.txs[*tx].1.exists = true);
            }
        }
    }

    fn roll_back(&mut self) {
        let head = self.chain.len() - 1;
        let keep = head - self.random.below(head.min(12) + 1);
        let to = self.chain[keep].number;
        let gone = self.chain.split_off(keep + 1);
        loop {
            let done = self.coppice.producer().rollback_to(to, None).answer().unwrap();
            if !done.has_more {
                break;
            }
            if self.random.below(3) == 0 {
                let block = gone[self.random.below(gone.len())].clone();
                let answer = self.coppice.by(Who::Rival).utxo_apply_block(&block.argument()).answer();
                assert_eq!(answer, Err(UtxoApplyError::RollbackUnderway { to }));
            }
            if self.random.below(8) == 0 {
                self.coppice.upgrade();
            }
            if self.random.below(20) == 0 {
                self.coppice.operator().utxo_stop_applying().answer();
                self.next = None;
            }
        }
        self.next = self.next.map(|next| next.min(to + 1));
        self.old.extend(gone);
    }

    fn reset(&mut self) {
        let Some(head) = self.chain.last() else { return };
        let reset = ResetChain { head_hash: head.argument().hash, drop_unexported: true };
        self.coppice.operator().reset_chain(&reset).answer().unwrap();
        self.coppice.release_timers();
        (0..5).for_each(|_| self.coppice.pass(10));
        self.coppice.hold_timers();
        for block in self.chain.drain(..) {
            if block.applied {
                block.txs.iter().for_each(|tx| _ = self.txs[*tx].1.kept.insert(block.serial as u32));
            }
            self.old.push(block);
        }
        self.next = None;
        self.first = 1 + self.random.below(50) as u64;
    }

    fn check(&self) {
        let next = self.coppice.storage().utxo.unwrap().applying.map(|at| (at.next, at.height));
        assert_eq!(next, self.next.map(|next| (next, HEIGHT + next as u32)));
        for (nth, (tx, known)) in self.txs.iter().enumerate() {
            let record = get(&self.coppice, tx);
            assert_eq!(record.is_ok(), known.exists, "{nth}");
            let Ok(record) = record else { continue };
            let mut expected = known.kept.clone();
            let blocks = self.chain.iter().filter(|block| block.applied && block.txs.contains(&nth));
            expected.extend(blocks.map(|block| block.serial as u32));
            let found: BTreeSet<u32> = record.blocks.iter().map(|block| block.block_id).collect();
            assert_eq!(found, expected, "{nth}");
            let is_lone = expected.is_empty();
            assert_eq!(record.unmined_since.is_some(), is_lone, "{nth}");
            assert_eq!(record.conflicting, is_lone && known.is_coinbase, "{nth}");
            if is_lone {
                assert_eq!(bytes_of(&self.coppice, tx).as_ref(), Ok(&tx.raw), "{nth}");
            }
        }
        for (loser, winner) in &self.losers {
            let record = get(&self.coppice, loser).unwrap();
            assert_eq!((record.conflicting, record.blocks.len()), (self.txs[*winner].1.exists, 0));
        }
    }

    fn step(&mut self) {
        match self.random.below(40) {
            0..12 => self.append(),
            12..26 => {
                let next = self.next.and_then(|next| self.chain.iter().find(|block| block.number == next)).cloned();
                match next {
                    Some(block) => self.call(&block, Who::Rival),
                    None => self.append(),
                }
            }
            26..33 => {
                let who = if self.random.below(2) == 0 { Who::Rival } else { Who::Controller };
                if let Some(block) = self.some_block() {
                    self.call(&block, who);
                }
            }
            33..36 if !self.chain.is_empty() => self.roll_back(),
            36 => {
                self.coppice.operator().utxo_stop_applying().answer();
                self.next = None;
            }
            37 if self.random.below(2) == 0 => self.coppice.upgrade(),
            37 => self.leave_and_return(),
            38 if self.random.below(4) == 0 => self.reset(),
            _ => {
                // An operator begins anew, or goes on, anywhere.
                if let Some(block) = self.some_block() {
                    self.call(&block, Who::Controller);
                }
            }
        }
    }
}

/// The number of histories: `PROPTEST_CASES`, or a few that take seconds.
fn cases() -> u64 {
    std::env::var("PROPTEST_CASES").ok().and_then(|cases| cases.parse().ok()).unwrap_or(10)
}

#[test]
fn random_histories_leave_the_records_of_the_model() {
    let (mut rollbacks, mut losers) = (0, 0);
    for seed in 0..cases() {
        let mut world = World::new(seed);
        for step in 0..120 {
            world.step();
            if step % 10 == 9 {
                world.check();
            }
        }
        rollbacks += world.old.len();
        losers += world.losers.iter().filter(|(_, winner)| world.txs[*winner].1.exists).count();
    }
    assert!(cases() < 10 || rollbacks > 100 && losers > 10, "{rollbacks}, {losers}");
}
