//! Unspent outputs, with the time at which each will be spent, by the age distribution of a realistic chain.

use super::plan::MATURITY;
use bitcoin::{OutPoint, Transaction, TxOut, Txid};
use coppice_testkit::random::Random;
use ic_coppice_cli::utxo::set::is_utxo;
use std::collections::{BTreeMap, HashMap, VecDeque};

/// An output, with its value and script.
pub type Taken = (OutPoint, TxOut);

/// The time at which an output is spent.
enum Fate {
    Never,
    /// In the block that contains it.
    AtOnce,
    At(u32),
}

/// An output that will be spent.
struct Coin {
    output: TxOut,
    /// The first height at which it can be spent.
    from: u32,
}

/// Number of UTXOs of a transaction, originally and left.
#[derive(Clone, Copy)]
struct Left {
    of: u32,
    left: u32,
}

/// The outputs of a chain.
#[derive(Default)]
pub struct Coins {
    coins: HashMap<OutPoint, Coin>,
    /// By the height at which they will be spent; some entries are stale.
    due: BTreeMap<u32, Vec<OutPoint>>,
    /// To be spent now, in this order.
    ready: VecDeque<OutPoint>,
    left: HashMap<Txid, Left>,
}

/// Chooses the time: most outputs are spent young, a few never.
fn fate(random: &mut Random, height: u32, coinbase: bool, wide: bool) -> Fate {
    let roll = random.below(100);
    let mut within = |from: u32, to: u32| Fate::At(height + from + random.below(u64::from(to - from + 1)) as u32);
    match roll {
        // All outputs are spent soon, so that the record and its pages can be deleted.
        _ if wide => within(1, 200),
        0..6 => Fate::Never,
        _ if coinbase => within(MATURITY, MATURITY + 60),
        6..16 => Fate::AtOnce,
        16..61 => within(1, 6),
        61..86 => within(7, 72),
        _ => within(73, 1_000),
    }
}

impl Coins {
    /// Adds the outputs of a transaction in a block.
    pub fn add(&mut self, random: &mut Random, transaction: &Transaction, height: u32) {
        let (txid, coinbase) = (transaction.compute_txid(), transaction.is_coinbase());
        let wide = transaction.output.len() > 10;
        let mut of = 0;
        for (output, vout) in transaction.output.iter().zip(0..).filter(|(output, _)| is_utxo(output)) {
            of += 1;
            let outpoint = OutPoint { txid, vout };
            match fate(random, height, coinbase, wide) {
                Fate::Never => continue,
                Fate::AtOnce => self.ready.push_front(outpoint),
                Fate::At(due) => self.due.entry(due).or_default().push(outpoint),
            }
            let from = if coinbase { height + MATURITY } else { height };
            self.coins.insert(outpoint, Coin { output: output.clone(), from });
        }
        self.left.insert(txid, Left { of, left: of });
    }

    /// Makes outputs ready that are due at this height. Returns how many are ready.
    pub fn come_due(&mut self, height: u32) -> usize {
        while let Some(entry) = self.due.first_entry().filter(|entry| *entry.key() <= height) {
            self.ready.extend(entry.remove());
        }
        self.ready.len()
    }

    /// Takes the next ready output.
    pub fn take(&mut self) -> Option<Taken> {
        while let Some(outpoint) = self.ready.pop_front() {
            if let Some(taken) = self.remove(outpoint) {
                return Some(taken);
            }
        }
        None
    }

    /// Takes the next output that is due above a height, although it can be spent now.
    pub fn take_ahead(&mut self, height: u32) -> Option<Taken> {
        let ahead = self.due.range(height + 1..).flat_map(|(_, outpoints)| outpoints);
        let can = |outpoint: &&OutPoint| self.coins.get(outpoint).is_some_and(|coin| coin.from <= height);
        let found = ahead.copied().find(|outpoint| can(&outpoint))?;
        self.remove(found)
    }

    /// Takes the last unspent outputs of at most `most` transactions.
    pub fn take_last_ones(&mut self, height: u32, most: usize) -> Vec<Taken> {
        let ahead = self.due.range(height + 1..).flat_map(|(_, outpoints)| outpoints);
        let last = |outpoint: &&OutPoint| {
            self.coins.get(outpoint).is_some_and(|coin| coin.from <= height)
                && self.left.get(&outpoint.txid).is_some_and(|left| left.of > 1 && left.left == 1)
        };
        let found: Vec<OutPoint> = ahead.filter(last).copied().take(most).collect();
        found.into_iter().filter_map(|outpoint| self.remove(outpoint)).collect()
    }

    /// Forgets a transaction of one output that the chain has lost.
    pub fn forget(&mut self, txid: Txid) {
        self.coins.remove(&OutPoint { txid, vout: 0 });
        self.left.remove(&txid);
    }

    fn remove(&mut self, outpoint: OutPoint) -> Option<Taken> {
        let coin = self.coins.remove(&outpoint)?;
        if let Some(left) = self.left.get_mut(&outpoint.txid) {
            left.left -= 1;
            if left.left == 0 {
                self.left.remove(&outpoint.txid);
            }
        }
        Some((outpoint, coin.output))
    }
}
