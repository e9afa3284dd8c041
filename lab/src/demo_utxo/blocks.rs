//! Deterministic generator of realistic blocks: a coinbase and up to some tens of transactions each, of one to three inputs and one to four
//! outputs, and occasionally one with hundreds of outputs.

use super::coins::{Coins, Taken};
use bitcoin::absolute::LockTime;
use bitcoin::transaction::Version;
use bitcoin::{Amount, OutPoint, ScriptBuf, Sequence, Transaction, TxIn, TxOut, Txid, Witness};
use coppice_testkit::random::Random;

/// Transactions of a block besides the coinbase.
const DECK: [u64; 15] = [3, 4, 5, 6, 7, 8, 9, 10, 12, 14, 17, 20, 24, 30, 40];
/// Due outputs up to which transactions are ordinary.
const CROWD: u64 = 100;
/// From this height on, every so many blocks one transaction has hundreds of outputs.
const FAN_OUT: (u32, u32) = (101, 40);
/// Range of outputs of such a transaction.
const WIDE: (u64, u64) = (100, 600);
/// Percentage of transactions with a data output, which is not a UTXO.
const WITH_DATA: u64 = 5;
/// Satoshis of a coinbase.
const SUBSIDY: u64 = 5_000_000_000;
/// Least satoshis of an output, unless fewer are left.
const LEAST: u64 = 1_000;
/// Bytes of a signature and a public key.
const UNLOCKING: usize = 107;
/// Parents of the transaction that stays unmined.
const PARENTS: usize = 3;

/// A transaction, and the outputs that its inputs spend, in order; none for a coinbase.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Made {
    pub transaction: Transaction,
    /// The outputs that it spends.
    pub spent: Vec<TxOut>,
}

/// Generates the blocks one after the other.
pub struct Generator {
    seed: u64,
    random: Random,
    deck: Vec<u64>,
    coins: Coins,
}

impl Generator {
    pub fn new(seed: u64) -> Self {
        Self { seed, random: Random::new(seed), deck: Vec::new(), coins: Coins::default() }
    }

    /// Returns the coinbase of a block; `branch` distinguishes two blocks of the same height.
    pub fn coinbase(&mut self, height: u32, branch: u8) -> Made {
        let script = [&[4][..], &height.to_le_bytes(), &[9, branch], &self.seed.to_le_bytes()].concat();
        let output = vec![TxOut { value: Amount::from_sat(SUBSIDY), script_pubkey: self.locking() }];
        let made = Made { transaction: transaction(vec![input(OutPoint::null(), script)], output), spent: Vec::new() };
        self.coins.add(&mut self.random, &made.transaction, height);
        made
    }

    /// Returns a block's transactions after the coinbase. They spend outputs of earlier blocks, or of earlier transactions of this block.
    pub fn block(&mut self, height: u32) -> Vec<Made> {
        let ready = self.coins.come_due(height) as u64;
        let transactions = self.random.draw(&DECK, &mut self.deck);
        // If more outputs are due than blocks can spend, transactions consolidate them.
        let crowded = ready > CROWD;
        let mut fan_out = height >= FAN_OUT.0 && (height - FAN_OUT.0).is_multiple_of(FAN_OUT.1);
        let mut made = Vec::new();
        for _ in 0..transactions {
            let inputs = match (crowded, self.random.below(100)) {
                _ if fan_out => 1,
                (true, _) => 3,
                (false, 0..60) => 1,
                (false, 60..88) => 2,
                (false, _) => 3,
            };
            let taken: Vec<Taken> = std::iter::from_fn(|| self.coins.take()).take(inputs).collect();
            if taken.is_empty() {
                break;
            }
            let outputs = match (crowded, self.random.below(100)) {
                _ if fan_out => WIDE.0 + self.random.below(WIDE.1 - WIDE.0),
                (true, 0..60) => 1,
                (false, 0..30) => 1,
                (_, 0..80) => 2,
                (_, 80..95) => 3,
                _ => 4,
            };
            fan_out = false;
            let spending = self.spending(taken, outputs);
            self.coins.add(&mut self.random, &spending.transaction, height);
            made.push(spending);
        }
        made
    }

    /// Returns a transaction whose outputs stay unspent until they are released, or `None` if there is nothing to spend.
    pub fn aside(&mut self, height: u32) -> Option<Made> {
        let taken: Vec<Taken> = (0..2).filter_map(|_| self.coins.take_ahead(height)).collect();
        (!taken.is_empty()).then(|| self.spending(taken, 2))
    }

    /// Returns a transaction that spends the last outputs of several transactions.
    pub fn of_last_outputs(&mut self, height: u32) -> Option<Made> {
        let taken = self.coins.take_last_ones(height, PARENTS);
        (!taken.is_empty()).then(|| self.spending(taken, 2))
    }

    /// Returns another transaction that spends the same outputs.
    pub fn rival(&mut self, made: &Made) -> Made {
        let outpoints = made.transaction.input.iter().map(|input| input.previous_output);
        let taken = outpoints.zip(made.spent.iter().cloned()).collect();
        self.spending(taken, 3)
    }

    /// Releases the outputs of a transaction that was set aside, once a block contains it.
    pub fn release(&mut self, made: &Made, height: u32) {
        self.coins.add(&mut self.random, &made.transaction, height);
    }

    /// Forgets a coinbase that the chain has lost.
    pub fn forget(&mut self, coinbase: Txid) {
        self.coins.forget(coinbase);
    }

    fn spending(&mut self, taken: Vec<Taken>, outputs: u64) -> Made {
        let inputs = taken.iter().map(|(outpoint, _)| input(*outpoint, self.random.bytes(UNLOCKING))).collect();
        let spent: Vec<TxOut> = taken.into_iter().map(|(_, output)| output).collect();
        let sum: u64 = spent.iter().map(|output| output.value.to_sat()).sum();
        let mut left = sum - (sum / 100).min(250 * spent.len() as u64);
        let count = outputs.min(left / LEAST).max(1);
        let mut outputs = Vec::with_capacity(count as usize + 1);
        for remaining in (0..count).rev() {
            let share = left / (remaining + 1);
            let value = if remaining == 0 { left } else { share / 2 + self.random.below(share) };
            left -= value;
            outputs.push(TxOut { value: Amount::from_sat(value), script_pubkey: self.locking() });
        }
        if self.random.below(100) < WITH_DATA {
            let script = [&[0x6A, 20][..], &self.random.bytes(20)].concat();
            outputs.push(TxOut { value: Amount::ZERO, script_pubkey: ScriptBuf::from(script) });
        }
        Made { transaction: transaction(inputs, outputs), spent }
    }

    /// Returns a script that pays to a hash.
    fn locking(&mut self) -> ScriptBuf {
        ScriptBuf::from([&[0x76, 0xA9, 20][..], &self.random.bytes(20), &[0x88, 0xAC]].concat())
    }
}

fn input(previous_output: OutPoint, script: Vec<u8>) -> TxIn {
    TxIn { previous_output, script_sig: ScriptBuf::from(script), sequence: Sequence::MAX, witness: Witness::new() }
}

fn transaction(input: Vec<TxIn>, output: Vec<TxOut>) -> Transaction {
    Transaction { version: Version::ONE, lock_time: LockTime::ZERO, input, output }
}

#[cfg(test)]
mod tests {
    use super::super::plan::MATURITY;
    use super::*;
    use ic_coppice_cli::utxo::set::is_utxo;
    use std::collections::{HashMap, HashSet};

    fn chain(seed: u64, blocks: u32) -> Vec<Vec<Made>> {
        let mut generator = Generator::new(seed);
        let mut block = |height| {
            let coinbase = generator.coinbase(height, 0);
            [vec![coinbase], generator.block(height)].concat()
        };
        (1..=blocks).map(&mut block).collect()
    }

    #[test]
    fn same_seed_gives_the_same_chain_without_repeated_ids() {
        let chains = [chain(7, 300), chain(8, 300)];
        assert!(chains[0] == chain(7, 300));
        let ids: Vec<Txid> = chains.iter().flatten().flatten().map(|made| made.transaction.compute_txid()).collect();
        assert_eq!(ids.iter().collect::<HashSet<_>>().len(), ids.len());
    }

    /// Outputs are spent at most once, and never before they exist or are mature; no transaction creates value.
    #[test]
    fn generated_spends_are_valid() {
        let chain = chain(1, 1_000);
        let mut unspent: HashMap<OutPoint, (TxOut, u32)> = HashMap::new();
        let (mut ages, mut widest, mut spends) = ([0u64; 3], 0, 0);
        for (height, block) in (1u32..).zip(&chain) {
            assert!(block[0].transaction.is_coinbase());
            for made in block {
                let Made { transaction, spent } = made;
                let txid = transaction.compute_txid();
                assert_eq!(transaction.is_coinbase(), spent.is_empty());
                for (input, output) in transaction.input.iter().zip(spent) {
                    let (there, from) = unspent.remove(&input.previous_output).unwrap();
                    assert_eq!(there, *output);
                    assert!(from <= height);
                    let age = height - from;
                    ages[if age < 10 { 0 } else { 1 + usize::from(age >= 100) }] += 1;
                    spends += 1;
                }
                let [taken, paid] = [spent, &transaction.output]
                    .map(|outputs| outputs.iter().map(|output| output.value.to_sat()).sum::<u64>());
                assert!(transaction.is_coinbase() || paid <= taken && paid > 0);
                widest = widest.max(transaction.output.len());
                let from = if transaction.is_coinbase() { height + MATURITY } else { height };
                for (vout, output) in (0..).zip(&transaction.output).filter(|(_, output)| is_utxo(output)) {
                    unspent.insert(OutPoint { txid, vout }, (output.clone(), from));
                }
            }
        }
        let transactions: usize = chain.iter().map(Vec::len).sum();
        assert!((8_000..20_000).contains(&transactions), "{transactions}");
        assert!(widest > 100 && ages[0] > spends / 3 && ages[1] > spends / 10 && ages[2] > spends / 50, "{ages:?}");
        // Some outputs are never spent.
        assert!(unspent.len() as u64 > spends / 20 && (unspent.len() as u64) < spends, "{} of {spends}", unspent.len());
    }

    #[test]
    fn transaction_set_aside_has_inputs_and_outputs_of_its_own() {
        let mut generator = Generator::new(3);
        let mut spent: HashSet<OutPoint> = HashSet::new();
        let mut note = |made: &Made| {
            made.transaction.input.iter().all(|input| made.spent.is_empty() || spent.insert(input.previous_output))
        };
        let mut last: Option<Made> = None;
        for height in 1..=400 {
            let coinbase = generator.coinbase(height, 0);
            let block = generator.block(height);
            assert!(note(&coinbase) && block.iter().all(&mut note));
            if let Some(last) = &last {
                let id = last.transaction.compute_txid();
                assert!(block.iter().flat_map(|made| &made.transaction.input).all(|i| i.previous_output.txid != id));
            }
            if height == 250 {
                let [first, second] = [generator.aside(height).unwrap(), generator.of_last_outputs(height).unwrap()];
                assert!(note(&first) && note(&second) && second.spent.len() == PARENTS);
                let rival = generator.rival(&first);
                assert!(rival.spent == first.spent && rival.transaction != first.transaction);
                last = Some(first);
            }
        }
        let last = last.unwrap();
        generator.release(&last, 400);
        let id = last.transaction.compute_txid();
        let spends = |generator: &mut Generator, height| {
            let block = generator.block(height);
            block.iter().any(|made| made.transaction.input.iter().any(|input| input.previous_output.txid == id))
        };
        assert!((401..2_000).any(|height| spends(&mut generator, height)));
    }
}
