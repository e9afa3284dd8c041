//! Double spends with very many parents, each of which lies on its own pages.

use super::batches::{create, spend};
use super::{DIRTIED, most, tomorrow};
use crate::utxo::get;
use coppice_tests::blocks::id;
use coppice_tests::client::Answered;
use coppice_tests::coppice::Coppice;
use coppice_tests::transactions::Tx;
use ic_coppice_host::Host;
use ic_coppice_interface::*;
use std::sync::Arc;

/// A transaction that holds an output of each of its many parents, and a double spend of the first of these outputs.
struct Family {
    coppice: Coppice,
    host: Arc<Host>,
    parents: Vec<Tx>,
    holder: Tx,
    rival: Tx,
}

fn family(parents: u64) -> Family {
    let (coppice, host) = tomorrow();
    let script = |salt: u64| [&[0x51][..], &salt.to_le_bytes(), &[0; 4_000]].concat();
    let parents: Vec<Tx> =
        (0..parents).map(|salt| Tx::new(&[(id(salt ^ 0xF00D), 0)], &[(1_000, script(salt))])).collect();
    for some in parents.chunks(400) {
        create(&coppice, &some.iter().map(Tx::record).collect::<Vec<_>>());
    }
    let holder = Tx::of(1 << 40, &parents.iter().map(|parent| (parent.txid, 0)).collect::<Vec<_>>(), 1);
    let rival = Tx::of(1 << 41, &[(parents[0].txid, 0)], 1);
    create(&coppice, &[holder.record(), UtxoCreate { conflicting: true, ..rival.record() }]);
    for (first, some) in (0..).step_by(2_000).zip(parents.chunks(2_000)) {
        let spends = (first..).zip(some).map(|(vin, parent)| parent.spend(0, vin)).collect();
        spend(&coppice, &[TransactionSpends { spender: holder.id(), spends }]);
    }
    host.take_executions();
    Family { coppice, host, parents, holder, rival }
}

impl Family {
    fn mark(&self) -> Result<Conflict, UtxoError> {
        let arg = UtxoSetConflictingBatch { height: 12, txids: vec![self.holder.id()] };
        let marked = self.coppice.producer().utxo_set_conflicting(&arg).answer().results.remove(0);
        self.assert_within("marking");
        marked
    }

    fn win(&self) -> Result<ConflictResolution, ConflictError> {
        let arg = UtxoProcessConflicting { height: 12, winners: vec![self.rival.id()] };
        let won = self.coppice.producer().utxo_process_conflicting(&arg).answer();
        self.assert_within("winning");
        won
    }

    fn assert_within(&self, what: &str) {
        let (instructions, dirtied) = most(&self.host, &format!("{what}, {} parents", self.parents.len()));
        assert!(instructions < 20_000_000_000 && dirtied <= DIRTIED, "{what}: {instructions}, {dirtied}");
    }

    /// Returns whether the holder is marked as a double spend, and how many of the first and last parents list it.
    fn is_marked(&self) -> (bool, usize) {
        let ends = [&self.parents[0], &self.parents[self.parents.len() - 1]];
        let lists = |parent: &Tx| get(&self.coppice, parent).unwrap().conflicting_children.contains(&self.holder.id());
        (get(&self.coppice, &self.holder).unwrap().conflicting, ends.into_iter().filter(|parent| lists(parent)).count())
    }
}

#[test]
fn a_double_spend_of_thousands_of_parents_is_marked_and_beaten_within_messages() {
    let family = family(4_000);
    let (mut losers, mut unspent) = (0, 0);
    for slice in 0.. {
        let won = family.win().unwrap();
        (losers, unspent) = (losers + won.losers.len(), unspent + won.unspent.len());
        assert_eq!(family.is_marked(), (true, 2));
        if !won.has_more {
            break;
        }
        assert!(slice < 3, "{slice}");
    }
    assert_eq!((losers, unspent), (1, 4_000));
    let again = family.mark().unwrap();
    assert_eq!((again.marked.len(), again.parent_spends.len(), again.has_more), (0, 0, false));
}

#[test]
fn a_double_spend_of_more_parents_than_a_message_changes_is_refused_and_its_outputs_can_be_unspent() {
    let family = family(20_000);
    assert_eq!(family.mark(), Err(UtxoError::TooMuchWork));
    assert_eq!(family.win().unwrap_err().error, UtxoError::TooMuchWork);
    assert_eq!(family.is_marked(), (false, 0));
    let held = |(vin, parent): (u32, &Tx)| Unspend {
        outpoint: parent.outpoint(0),
        utxo_hash: UtxoHash::from(parent.hash(0)),
        spender: Spender { txid: family.holder.id(), vin },
    };
    let items: Vec<Unspend> = (0..).zip(&family.parents).map(held).take(1).collect();
    let freed = family.coppice.producer().utxo_unspend(&UtxoUnspendBatch { height: 12, items }).answer();
    assert_eq!(freed.results, [Ok(true)]);
    let won = family.win().unwrap();
    assert_eq!((won.losers.len(), won.spent, won.has_more), (0, 1, false));
}
