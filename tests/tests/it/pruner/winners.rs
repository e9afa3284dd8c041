//! Double spends that should win over pruned transactions.

use super::world::*;
use crate::utxo::{all_ok, create};
use coppice_tests::client::Answered;
use coppice_tests::transactions::Tx;
use ic_coppice_interface::*;

fn wins(world: &World, height: u32, winner: &Tx) -> Result<ConflictResolution, ConflictError> {
    let arg = UtxoProcessConflicting { height, winners: vec![winner.id()] };
    world.coppice.producer().utxo_process_conflicting(&arg).answer()
}

#[test]
fn a_winner_does_not_take_an_output_whose_spender_was_mined_and_pruned() {
    let world = World::new();
    let parent = Tx::orphan(1, 2);
    world.create(10, &[&parent]);
    world.mine(10, &[&parent]);
    let spender = Tx::of(2, &[(parent.txid, 0)], 1);
    world.spend(10, &spender, &[&parent]);
    world.make_spent(10, std::slice::from_ref(&spender));
    world.prune(20);
    assert_eq!(which([&parent, &spender].map(|tx| world.record(tx))), [true, false]);
    let winner = Tx::of(3, &[(parent.txid, 1), (parent.txid, 0)], 1);
    all_ok(create(&world.coppice, 21, vec![UtxoCreate { conflicting: true, ..winner.record() }]));
    let before = (world.record(&parent), world.record(&winner));
    let by = Spender { txid: spender.id(), vin: 0 };
    let error = UtxoError::NotSpendable(Box::new(UtxoSpendError::Spent { by }));
    let refused = wins(&world, 21, &winner);
    assert_eq!(refused, Err(ConflictError { txid: parent.id(), error }));
    assert_eq!((world.record(&parent), world.record(&winner)), before, "nothing has changed");
}

#[test]
fn a_winner_takes_an_output_whose_spender_has_no_record_and_was_not_pruned() {
    let world = World::new();
    let parent = Tx::orphan(1, 1);
    world.create(10, &[&parent]);
    world.spend_by_stranger(10, &parent, 0..1);
    let winner = Tx::of(3, &[(parent.txid, 0)], 1);
    all_ok(create(&world.coppice, 11, vec![UtxoCreate { conflicting: true, ..winner.record() }]));
    let resolved = wins(&world, 11, &winner).unwrap();
    assert_eq!((resolved.losers.len(), resolved.unspent.len(), resolved.spent), (0, 1, 1));
}

#[test]
fn winning_frees_outputs_held_by_an_already_marked_double_spend() {
    let world = World::new();
    let parent = Tx::orphan(1, 1);
    world.create(10, &[&parent]);
    let loser = Tx::of(2, &[(parent.txid, 0)], 1);
    world.create(10, &[&loser]);
    world.spend(10, &loser, &[&parent]);
    let marked = Tx::of(3, &[(loser.txid, 0)], 1);
    world.create(10, &[&marked]);
    world.spend(10, &marked, &[&loser]);
    let call = UtxoSetConflictingBatch { height: 11, txids: vec![marked.id()] };
    world.coppice.producer().utxo_set_conflicting(&call).answer();
    assert!(world.record(&marked).unwrap().conflicting);
    let winner = Tx::of(4, &[(parent.txid, 0)], 1);
    all_ok(create(&world.coppice, 11, vec![UtxoCreate { conflicting: true, ..winner.record() }]));
    let resolved = wins(&world, 11, &winner).unwrap();
    assert_eq!((resolved.losers, resolved.spent, resolved.has_more), (vec![loser.id()], 1, false));
    let given_back: Vec<Outpoint> = resolved.unspent.into_iter().map(|unspent| unspent.outpoint).collect();
    assert_eq!(given_back, [loser.outpoint(0), parent.outpoint(0)]);
}
