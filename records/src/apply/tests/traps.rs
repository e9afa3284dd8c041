//! Interruptions: a trap at any access to memory, refused memory, and an upgrade between two messages.

use super::world::*;
use crate::apply::TakenBack;
use coppice_model::transactions::Tx;
use ic_coppice_interface::*;
use ic_coppice_storage::testing::{self, audit};
use ic_coppice_storage::twin;

fn world() -> (World, Vec<Tx>) {
    let parent = Tx::coinbase(0, 3);
    let waiting = Tx::of(1, &[(parent.txid, 0)], 2);
    let child = Tx::of(2, &[(waiting.txid, 0), (parent.txid, 1)], 2);
    let txs = vec![Tx::coinbase(9, 1), waiting.clone(), child];
    let mut w = World::new();
    w.settings.coinbase_maturity = 1;
    w.append(0, std::slice::from_ref(&parent));
    w.append(1, &txs);
    w.apply(&argument(0)).unwrap();
    w.create(&UtxoCreate { locked: None, ..waiting.record() }, 1_000).unwrap();
    (w, [vec![parent], txs].concat())
}

/// Runs messages, each with traps at every third access, and compares what they leave with an uninterrupted run.
fn interrupted(mut w: World, all: &[Tx], message: impl Fn(&mut World) -> bool) -> World {
    let mut traps = 0;
    let mut has_more = true;
    while has_more {
        let before = (w.seen(all), w.applier.position().copied());
        for at in (0..).step_by(3) {
            twin::with(|world| world.trap_after = Some(at));
            let ended = twin::message(|| message(&mut w));
            if twin::with(|world| world.trap_after.take()).is_some() {
                has_more = ended.unwrap();
                break;
            }
            traps += 1;
            w.reopen();
            assert!((w.seen(all), w.applier.position().copied()) == before, "trap at {at}");
            audit();
        }
    }
    assert!(traps > 20, "{traps}");
    w
}

#[test]
fn interrupted_messages_change_nothing() {
    let (mut w, all) = world();
    w.apply(&argument(1)).unwrap();
    let applied = w.seen(&all);
    w.take_back(1);
    let back = w.seen(&all);

    let (w, all) = world();
    let w = interrupted(w, &all, |w| w.step(&argument(1)).unwrap().has_more);
    assert_eq!(w.seen(&all), applied);
    let w = interrupted(w, &all, |w| w.take_back_step(1).0 == TakenBack::Part);
    assert_eq!(w.seen(&all), back);
    let w = interrupted(w, &all, |w| w.step(&argument(1)).unwrap().has_more);
    assert_eq!(w.seen(&all), applied);
    audit();
}

#[test]
fn refused_memory_changes_nothing_and_a_repeated_call_goes_on() {
    let (mut w, all) = world();
    w.apply(&argument(1)).unwrap();
    let applied = w.seen(&all);
    let mut refusals = 0;
    for granules in 0..12 {
        let (mut w, all) = world();
        w.utxo.fill(granules, 4, false);
        let before = w.seen(&all);
        loop {
            match w.step(&argument(1)) {
                Ok(done) if !done.has_more => break,
                Ok(_) => {}
                Err(UtxoApplyError::NoMemory(why)) => {
                    assert_eq!(why, NoMemory::OutOfSpace);
                    if w.applier.status().is_some_and(|status| status.transactions == 0) {
                        assert_eq!(w.seen(&all), before);
                    }
                    refusals += 1;
                    testing::set_max_pages(testing::billed_pages() + 2_048);
                }
                Err(error) => panic!("{error}"),
            }
        }
        assert_eq!(w.seen(&all), applied, "{granules} granules");
        audit();
    }
    assert!(refusals > 0);
}

#[test]
fn message_that_is_full_goes_on_in_the_next_one() {
    let mut txs = vec![Tx::coinbase(0, 1)];
    txs.extend((1..200).map(|salt| Tx::orphan(salt, 2)));
    let mut whole = World::new();
    whole.append(0, &txs);
    whole.apply(&argument(0)).unwrap();
    let expected = whole.seen(&txs);
    let mut w = World::new();
    w.append(0, &txs);
    // Each look at the instructions takes a seventh of a message.
    twin::with(|world| world.instructions_per_reading = 300_000_000);
    let (mut messages, mut has_more) = (0, true);
    while has_more {
        twin::with(|world| world.instructions = 0);
        let done = w.step(&argument(0)).unwrap();
        assert!(done.created > 0 && done.created < 10, "{done:?}");
        (messages, has_more) = (messages + 1, done.has_more);
        w.reopen();
    }
    assert!(messages > 20, "{messages}");
    assert_eq!(w.seen(&txs), expected);
    twin::with(|world| world.instructions = 0);
    let (mut messages, mut has_more) = (0, true);
    while has_more {
        twin::with(|world| world.instructions = 0);
        has_more = w.take_back_step(0).0 == TakenBack::Part;
        messages += 1;
        w.reopen();
    }
    assert!(messages > 20, "{messages}");
    assert_eq!(w.utxo.storage().unmined, 200);
}
