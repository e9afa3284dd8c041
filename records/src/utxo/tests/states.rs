//! Table of state transitions (UTXO State Lifecycle), each row and each forbidden transition, as `docs/design/records.md` has it.

use crate::testing::*;
use ic_coppice_interface::*;
use serde_bytes::ByteBuf;

/// States of a record, or of its only output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    CreatedLocked,
    UnlockedUnmined,
    Mined,
    Spent,
    Frozen,
    FrozenSpent,
    Conflicting,
    Scheduled,
    ScheduledFrozen,
}

use State::*;

const ALL: [State; 9] =
    [CreatedLocked, UnlockedUnmined, Mined, Spent, Frozen, FrozenSpent, Conflicting, Scheduled, ScheduledFrozen];

/// Operations on the record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Move {
    Unlock,
    Lock,
    SetMined,
    UnsetMined,
    Spend,
    SpendByAnother,
    Unspend,
    UnspendByAnother,
    Freeze,
    Unfreeze,
    Reassign,
    SetConflicting,
    Win,
    Create,
}

use Move::*;

struct Subject {
    w: World,
    tx: Tx,
    child: Tx,
    rival: Tx,
}

/// Returns a record in a state, reached by the specified triggers; the child spends its only output.
fn subject(state: State) -> Subject {
    let mut w = World::new();
    let tx = Tx::orphan(1, 1);
    let child = Tx::of(2, &[(tx.txid, 0)], 1);
    let rival = Tx::of(3, &[(tx.txid, 0)], 1);
    w.create(&UtxoCreate { locked: None, ..raw(&tx) }).unwrap();
    let mut subject = Subject { w, tx, child, rival };
    let moves: &[Move] = match state {
        CreatedLocked => &[],
        UnlockedUnmined => &[Unlock],
        Mined => &[SetMined],
        Spent => &[Unlock, Spend],
        Frozen => &[SetMined, Freeze],
        FrozenSpent => &[Unlock, Spend, Freeze],
        Conflicting => &[SetConflicting],
        Scheduled => &[SetMined, Spend],
        ScheduledFrozen => &[SetMined, Spend, Freeze],
    };
    for step in moves {
        subject.make(*step).unwrap_or_else(|error| panic!("{state:?}: {step:?}: {error:?}"));
    }
    subject
}

impl Subject {
    fn make(&mut self, step: Move) -> Result<(), UtxoRefusal> {
        let Self { w, tx, child, rival } = self;
        match step {
            Unlock => w.set_locked(tx, false),
            Lock => w.set_locked(tx, true),
            SetMined => drop(w.set_mined(tx, block(1, 990), true, false)),
            UnsetMined => drop(w.set_mined(tx, block(1, 990), false, true)),
            Spend => drop(w.spend_one(tx, 0, child)?),
            SpendByAnother => drop(w.spend_one(tx, 0, rival)?),
            Unspend => drop(w.unspend(tx, 0, child, 0)?),
            UnspendByAnother => drop(w.unspend(tx, 0, rival, 0)?),
            Freeze => drop(w.freeze(tx, Some(0), true)?),
            Unfreeze => drop(w.freeze(tx, Some(0), false)?),
            Reassign => drop(w.reassign(tx, 0, [7; 32])?),
            SetConflicting => drop(w.set_conflicting(tx)),
            Win => drop(w.process(&[tx]).map_err(|error| error.error)?),
            Create => drop(w.create(&raw(tx))?),
        }
        Ok(())
    }

    /// Returns the record's indicators, as the specification calls them.
    fn indicators(&self) -> Indicators {
        let record = self.w.get(&self.tx);
        let entry = record.utxos[0].as_ref().unwrap();
        Indicators {
            locked: record.locked,
            unmined: record.unmined_since.is_some(),
            blocks: record.blocks.len(),
            entry: match entry.len() {
                32 => "unspent",
                _ if entry[32..] == [0xFF; 36] => "frozen",
                _ => "spent",
            },
            conflicting: record.conflicting,
            scheduled: record.delete_at_height.is_some(),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Indicators {
    locked: bool,
    unmined: bool,
    blocks: usize,
    entry: &'static str,
    conflicting: bool,
    scheduled: bool,
}

fn of(
    locked: bool,
    unmined: bool,
    blocks: usize,
    entry: &'static str,
    conflicting: bool,
    scheduled: bool,
) -> Indicators {
    Indicators { locked, unmined, blocks, entry, conflicting, scheduled }
}

#[test]
fn each_state_has_its_indicators() {
    for (state, expected) in [
        (CreatedLocked, of(true, true, 0, "unspent", false, false)),
        (UnlockedUnmined, of(false, true, 0, "unspent", false, false)),
        (Mined, of(false, false, 1, "unspent", false, false)),
        (Spent, of(false, true, 0, "spent", false, false)),
        (Frozen, of(false, false, 1, "frozen", false, false)),
        (FrozenSpent, of(false, true, 0, "frozen", false, false)),
        (Conflicting, of(true, true, 0, "unspent", true, true)),
        (Scheduled, of(false, false, 1, "spent", false, true)),
        (ScheduledFrozen, of(false, false, 1, "frozen", false, false)),
    ] {
        assert_eq!(subject(state).indicators(), expected, "{state:?}");
    }
}

#[test]
fn every_specified_transition_is_made() {
    for (from, step, expected) in [
        (CreatedLocked, Unlock, of(false, true, 0, "unspent", false, false)),
        (CreatedLocked, SetMined, of(false, false, 1, "unspent", false, false)),
        (UnlockedUnmined, SetMined, of(false, false, 1, "unspent", false, false)),
        (UnlockedUnmined, Lock, of(true, true, 0, "unspent", false, false)),
        (Mined, UnsetMined, of(false, true, 0, "unspent", false, false)),
        (UnlockedUnmined, Spend, of(false, true, 0, "spent", false, false)),
        (Mined, Spend, of(false, false, 1, "spent", false, true)),
        (Spent, SetMined, of(false, false, 1, "spent", false, true)),
        (Spent, Unspend, of(false, true, 0, "unspent", false, false)),
        (Scheduled, Unspend, of(false, false, 1, "unspent", false, false)),
        (Scheduled, UnsetMined, of(false, true, 0, "spent", false, false)),
        (Scheduled, Lock, of(true, false, 1, "spent", false, false)),
        (Scheduled, Freeze, of(false, false, 1, "frozen", false, false)),
        (ScheduledFrozen, Unfreeze, of(false, false, 1, "spent", false, true)),
        (Mined, Freeze, of(false, false, 1, "frozen", false, false)),
        (CreatedLocked, Freeze, of(true, true, 0, "frozen", false, false)),
        (Conflicting, Freeze, of(true, true, 0, "frozen", true, true)),
        (Spent, Freeze, of(false, true, 0, "frozen", false, false)),
        (Frozen, Unfreeze, of(false, false, 1, "unspent", false, false)),
        (FrozenSpent, Unfreeze, of(false, true, 0, "spent", false, false)),
        (FrozenSpent, Unspend, of(false, true, 0, "frozen", false, false)),
        (Frozen, Reassign, of(false, false, 1, "unspent", false, false)),
        (CreatedLocked, SetConflicting, of(true, true, 0, "unspent", true, true)),
        (UnlockedUnmined, SetConflicting, of(false, true, 0, "unspent", true, true)),
        (Mined, SetConflicting, of(false, false, 1, "unspent", true, true)),
        (Spent, SetConflicting, of(false, true, 0, "spent", true, true)),
        (Scheduled, SetConflicting, of(false, false, 1, "spent", true, true)),
        (Frozen, SetConflicting, of(false, false, 1, "frozen", true, true)),
        // Overridden: a winner is no longer conflicting.
    ] {
        let mut subject = subject(from);
        subject.make(step).unwrap_or_else(|error| panic!("{from:?}: {step:?}: {error:?}"));
        assert_eq!(subject.indicators(), expected, "{from:?} {step:?}");
    }
}

#[test]
fn winning_double_spend_is_no_longer_conflicting() {
    let mut w = World::new();
    let parent = Tx::orphan(1, 1);
    let [loser, winner] = [2, 3].map(|salt| Tx::of(salt, &[(parent.txid, 0)], 1));
    let grandchild = Tx::of(4, &[(loser.txid, 0)], 1);
    w.make(&parent);
    for tx in [&loser, &grandchild] {
        w.make(tx);
    }
    w.spend_one(&parent, 0, &loser).unwrap();
    w.spend_one(&loser, 0, &grandchild).unwrap();
    w.create(&UtxoCreate { conflicting: true, ..raw(&winner) }).unwrap();
    assert_eq!(w.get(&parent).conflicting_children, [winner.id()]);
    assert_eq!(w.get(&winner).delete_at_height, Some(1_288));

    let resolution = w.process(&[&winner]).unwrap();
    assert_eq!(resolution.losers, [loser.id(), grandchild.id()]);
    assert_eq!((resolution.spent, resolution.unspent.len()), (1, 2));
    let (parent, loser, winner) = (w.get(&parent), w.get(&loser), w.get(&winner));
    assert_eq!(parent.utxos[0].as_ref().unwrap()[32..64], winner.txid[..]);
    assert_eq!(parent.conflicting_children, std::slice::from_ref(&loser.txid));
    assert_eq!((winner.conflicting, winner.delete_at_height), (false, None));
    assert_eq!((loser.conflicting, loser.delete_at_height, loser.spent_utxos), (true, Some(1_288), 0));
}

#[test]
fn forbidden_transitions_are_refused_and_change_nothing() {
    let tx = subject(Mined).tx;
    let by = |vin: &Tx| UtxoRefusal::Spent { by: Spender { txid: vin.id(), vin: 0 } };
    let child = subject(Mined).child;
    let forbidden = |state: State, step: Move| -> Option<UtxoRefusal> {
        Some(match (state, step) {
            (_, Create) => UtxoRefusal::TxExists,
            (Conflicting, Spend | SpendByAnother) => UtxoRefusal::Conflicting,
            (CreatedLocked, Spend | SpendByAnother) => UtxoRefusal::Locked,
            (Frozen | FrozenSpent | ScheduledFrozen, Spend | SpendByAnother) => UtxoRefusal::Frozen,
            (Spent | Scheduled, SpendByAnother) => by(&child),
            (Frozen | FrozenSpent | ScheduledFrozen, Freeze) => UtxoRefusal::AlreadyFrozen,
            (FrozenSpent | ScheduledFrozen, Reassign) => by(&child),
            (Frozen | FrozenSpent | ScheduledFrozen, Unfreeze) => return None,
            (_, Unfreeze) => UtxoRefusal::UtxoNotFrozen,
            (Frozen, Reassign) => return None,
            (_, Reassign) => UtxoRefusal::UtxoNotFrozen,
            (Conflicting, Win) => return None,
            (_, Win) => UtxoRefusal::NotConflicting,
            _ => return None,
        })
    };
    let mut tried = 0;
    for state in ALL {
        for step in [Spend, SpendByAnother, Freeze, Unfreeze, Reassign, Win, Create] {
            let Some(error) = forbidden(state, step) else { continue };
            let mut subject = subject(state);
            let before = subject.w.get(&tx);
            assert_eq!(subject.make(step), Err(error), "{state:?} {step:?}");
            assert_eq!(subject.w.get(&tx), before, "{state:?} {step:?}");
            tried += 1;
        }
        // Operations that succeed without effect.
        for step in [UnspendByAnother, Unspend] {
            let mut subject = subject(state);
            let held = matches!(state, Spent | Scheduled | FrozenSpent | ScheduledFrozen) && step == Unspend;
            let before = subject.w.get(&tx);
            subject.make(step).unwrap();
            assert_eq!(subject.w.get(&tx) == before, !held, "{state:?} {step:?}");
        }
    }
    assert_eq!(tried, 46);
}

#[test]
fn a_reassigned_output_is_live_and_waits_for_its_height() {
    let Subject { mut w, tx, child, .. } = subject(Frozen);
    assert_eq!(w.reassign(&tx, 0, [7; 32]), Ok(2_000));
    let record = w.get(&tx);
    assert_eq!(record.spendable_in, [SpendableIn { vout: 0, height: 2_000 }]);
    assert_eq!(record.delete_at_height, None, "it is not spent");
    assert_eq!(record.reassignments.len(), 1);
    assert_eq!(record.reassignments[0].block_height, 1_000);
    let mut spend = tx.spend(0, 0);
    spend.utxo_hash = UtxoHash::from([7; 32]);
    w.height = 1_999;
    let refused = w.spend(&child, std::slice::from_ref(&spend));
    assert_eq!(refused, Err(vec![RefusedSpend { spend: 0, error: UtxoSpendError::FrozenUntil { height: 2_000 } }]));
    w.height = 2_000;
    assert_eq!(w.spend(&child, &[tx.spend(0, 0)]).map_err(|e| UtxoRefusal::from(e[0].error.clone())), {
        Err(UtxoRefusal::UtxoHashMismatch { stored: UtxoHash::from([7; 32]) })
    });
    assert_eq!(w.spend(&child, &[spend]), Ok(1));
    assert_eq!(w.get(&tx).delete_at_height, Some(2_288));
}

/// Returns the ids of a page from a cursor on, and the next cursor.
fn listed(w: &World, cursor: Option<&UnminedCursor>, limit: u32) -> (Vec<Txid>, Option<UnminedCursor>) {
    let page = w.store.unmined(cursor, limit).unwrap();
    (page.transactions.into_iter().map(|tx| tx.txid).collect(), page.cursor)
}

#[test]
fn list_of_unmined_transactions_resumes_at_its_cursor_despite_changes() {
    let mut w = World::new();
    // Calls of one time: the list has the order of creation.
    let txs: Vec<Tx> = (0..7).map(|i| Tx::orphan(10 + i, 1)).collect();
    txs.iter().for_each(|tx| w.make(tx));
    let ids = |of: &[usize]| of.iter().map(|i| txs[*i].id()).collect::<Vec<_>>();
    let (first, cursor) = listed(&w, None, 2);
    assert_eq!(first, ids(&[0, 1]));
    let cursor = cursor.unwrap();
    assert_eq!(listed(&w, Some(&cursor), 9), (ids(&[2, 3, 4, 5, 6]), None));
    assert_eq!(listed(&w, Some(&cursor), 5), (ids(&[2, 3, 4, 5, 6]), None), "a page that is just full");
    // A transaction that leaves the list and returns, even the last listed one, does not restart the list.
    for (of, expected) in [(3, [2, 4, 5]), (1, [2, 4, 5]), (2, [4, 5, 6])] {
        w.set_mined(&txs[of], block(1, 900), true, false);
        assert_eq!(listed(&w, Some(&cursor), 3).0, ids(&expected), "{of} left");
    }
    for (of, expected) in [(1, [4, 5, 6].as_slice()), (3, &[3, 4, 5]), (2, &[2, 3, 4])] {
        w.set_mined(&txs[of], block(1, 900), true, true);
        assert_eq!(listed(&w, Some(&cursor), 3).0, ids(expected), "{of} came back");
    }
    assert_eq!(listed(&w, None, 0).0.len(), 7);
    // One transaction per page; before each page the last listed transaction leaves and another one returns.
    let (mut all, mut after) = (Vec::new(), None);
    for step in 0..7 {
        let (page, next) = listed(&w, after.as_ref(), 1);
        all.extend(page);
        assert_eq!(next.is_none(), step == 6);
        after = next;
        w.set_mined(&txs[step], block(1, 900), true, false);
        w.set_mined(&txs[step / 2], block(1, 900), true, step % 2 == 0);
    }
    assert_eq!(all, ids(&[0, 1, 2, 3, 4, 5, 6]));
    // A cursor that names no transaction is refused.
    for length in [0, 31, 33] {
        let cursor = UnminedCursor { txid: vec![9; length].into(), ..cursor.clone() };
        let refused = w.store.unmined(Some(&cursor), 0);
        assert!(
            matches!(&refused, Err(UtxoRefusal::BadArgument(BadArgument { field, .. })) if field == "cursor.txid"),
            "{refused:?}"
        );
    }
}

#[test]
fn winner_with_unknown_inputs_is_refused() {
    for file_type in [FileType::Outputs, FileType::Tx] {
        let mut w = World::new();
        let txid = Txid::from([9; 32]);
        let store = ExternalStore { blob_key: ByteBuf::from([1]), file_type, store_type: StoreType::Tx };
        let source = TransactionSource::External(ExternalTransaction {
            txid: txid.clone(),
            store,
            coinbase: false,
            version: 1,
            lock_time: 0,
            size: 9,
            inputs: vec![],
            utxo_hashes: vec![Some(UtxoHash::from([3; 32]))],
        });
        let item = UtxoCreate { source, mined: None, locked: Some(false), conflicting: true, fee: None, is_new: false };
        w.create(&item).unwrap();
        let call = w.call();
        let arg = UtxoProcessConflicting { height: w.height, winners: vec![txid.clone()] };
        let refused = w.store.process_conflicting(&arg, &call).unwrap_err();
        assert_eq!(refused.txid, txid);
        assert!(
            matches!(refused.error, UtxoError::BadArgument(BadArgument { field, .. }) if field == "winners"),
            "{file_type:?}"
        );
        let get = UtxoGet { txid, first: 0, limit: 1, extra_pages_cursor: None };
        assert!(w.store.get(&get).unwrap().conflicting, "nothing has changed");
    }
}
