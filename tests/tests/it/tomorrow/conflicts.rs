//! A double spend with 100,000 descendants: marked, and beaten, in interrupted slices.

use super::batches::{create, spend};
use super::{DIRTIED, most, tomorrow};
use crate::utxo::get;
use coppice_tests::client::Answered;
use coppice_tests::coppice::Coppice;
use coppice_tests::transactions::Tx;
use ic_coppice_host::Host;
use ic_coppice_interface::*;
use std::collections::BTreeSet;
use std::sync::Arc;

/// Transactions that spend from the root and have no spenders.
const LEAVES: u32 = 40_000;
/// A chain of transactions, each of which spends from the previous one, the first from the root.
const CHAIN: u64 = 60_000;

/// A root that spends from a grandparent, with its descendants, and a rival that spends the same output.
struct Family {
    coppice: Coppice,
    host: Arc<Host>,
    grandparent: Tx,
    root: Tx,
    leaves: Vec<Tx>,
    chain: Vec<Tx>,
    rival: Tx,
}

fn family() -> Family {
    let (coppice, host) = tomorrow();
    let grandparent = Tx::orphan(1 << 40, 1);
    let root = Tx::of(1 << 41, &[(grandparent.txid, 0)], LEAVES + 1);
    let rival = Tx::of(1 << 42, &[(grandparent.txid, 0)], 1);
    let leaves: Vec<Tx> = (0..LEAVES).map(|vout| Tx::of(u64::from(vout), &[(root.txid, vout)], 1)).collect();
    let mut chain: Vec<Tx> = Vec::new();
    for salt in 0..CHAIN {
        let parent = chain.last().map_or((root.txid, LEAVES), |last| (last.txid, 0));
        chain.push(Tx::of(1 << 20 | salt, &[parent], 1));
    }
    create(&coppice, &[grandparent.record(), root.record()]);
    create(&coppice, &leaves.iter().chain(&chain).map(Tx::record).collect::<Vec<_>>());
    let spends =
        |spender: &Tx, of: &Tx, vout| TransactionSpends { spender: spender.id(), spends: vec![of.spend(vout, 0)] };
    let mut items = vec![spends(&root, &grandparent, 0)];
    items.extend((0..).zip(&leaves).map(|(vout, leaf)| spends(leaf, &root, vout)));
    items.push(spends(&chain[0], &root, LEAVES));
    items.extend(chain.windows(2).map(|pair| spends(&pair[1], &pair[0], 0)));
    spend(&coppice, &items);
    create(&coppice, &[UtxoCreate { conflicting: true, ..rival.record() }]);
    host.take_executions();
    Family { coppice, host, grandparent, root, leaves, chain, rival }
}

impl Family {
    /// Asserts that the root's outputs cannot be spent any more, and that descendants of marked transactions are marked.
    fn check_marks(&self, marked: &BTreeSet<[u8; 32]>) {
        let thief = TransactionSpends { spender: [9; 32].into(), spends: vec![self.root.spend(0, 0)] };
        let refused = self.coppice.producer().utxo_spend(&UtxoSpendBatch { height: 12, items: vec![thief] }).answer();
        let error = &refused.results[0].as_ref().unwrap_err()[0].error;
        assert_eq!(*error, UtxoSpendError::Conflicting);
        let first = self.chain.iter().position(|tx| marked.contains(&tx.txid)).unwrap_or(self.chain.len());
        assert!(self.chain[first..].iter().all(|tx| marked.contains(&tx.txid)), "marked from {first} on, with gaps");
        let at = |number: usize| get(&self.coppice, &self.chain[number]).unwrap().conflicting;
        assert!(first == 0 || !at(first - 1), "{first}");
        assert!(first == self.chain.len() || at(first));
    }

    fn assert_within(&self, what: &str) {
        let (instructions, dirtied) = most(&self.host, what);
        assert!(instructions < 20_000_000_000 && dirtied <= DIRTIED, "{what}: {instructions}, {dirtied}");
    }

    fn all(&self) -> usize {
        1 + self.leaves.len() + self.chain.len()
    }
}

fn bytes(txids: &[Txid]) -> impl Iterator<Item = [u8; 32]> {
    txids.iter().map(|txid| txid[..].try_into().unwrap())
}

#[test]
fn a_double_spend_with_100_000_descendants_is_marked_in_slices() {
    let family = family();
    let mut marked = BTreeSet::new();
    let arg = UtxoSetConflictingBatch { height: 12, txids: vec![family.root.id()] };
    let mark = || family.coppice.producer().utxo_set_conflicting(&arg).answer().results.remove(0).unwrap();
    for slice in 0.. {
        let done: Conflict = mark();
        assert_eq!(slice == 0, done.marked.first() == Some(&family.root.id()));
        for txid in bytes(&done.marked) {
            assert!(marked.insert(txid), "marked twice");
        }
        assert!(!done.marked.is_empty(), "a slice without progress");
        family.assert_within("a slice");
        family.coppice.upgrade();
        family.check_marks(&marked);
        family.host.take_executions();
        if !done.has_more {
            assert!(slice > 5, "{slice}");
            break;
        }
    }
    assert_eq!(marked.len(), family.all());
    let again = mark();
    assert_eq!((again.marked.len(), again.parent_spends.len(), again.has_more), (0, 1, false));
    let record = get(&family.coppice, &family.root).unwrap();
    assert_eq!(record.conflicting_children.len(), 10_000, "the last of them");
}

#[test]
fn a_double_spend_with_100_000_descendants_is_beaten_in_slices() {
    let family = family();
    let (mut marked, mut released) = (BTreeSet::new(), 0);
    let arg = UtxoProcessConflicting { height: 12, winners: vec![family.rival.id()] };
    loop {
        let done: ConflictResolution = family.coppice.producer().utxo_process_conflicting(&arg).answer().unwrap();
        for txid in bytes(&done.losers) {
            assert!(marked.insert(txid), "marked twice");
        }
        released += done.unspent.len();
        family.assert_within("a slice");
        family.coppice.upgrade();
        let holder = get(&family.coppice, &family.grandparent).unwrap().utxos[0].clone().unwrap();
        let rival = get(&family.coppice, &family.rival).unwrap();
        if !done.has_more {
            assert_eq!((done.spent, &holder[32..64], rival.conflicting), (1, &family.rival.txid[..], false));
            break;
        }
        // The rival takes no output before the last slice.
        assert_eq!((done.spent, &holder[32..64], rival.conflicting), (0, &family.root.txid[..], true));
        family.check_marks(&marked);
        family.host.take_executions();
    }
    assert_eq!((marked.len(), released), (family.all(), family.all()), "each is marked, and has released its outputs");
    for tx in [&family.leaves[0], &family.chain[0], family.chain.last().unwrap(), &family.root] {
        assert!(get(&family.coppice, tx).unwrap().conflicting);
    }
    assert_eq!(get(&family.coppice, &family.chain[0]).unwrap().spent_utxos, 0);
    let refused = family.coppice.producer().utxo_process_conflicting(&arg).answer().unwrap_err();
    assert_eq!(refused.error, UtxoError::NotConflicting);
}
