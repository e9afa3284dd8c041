//! Ticks of the UTXO pruner with the largest settings, over scattered records.

use super::batches::{create, scattered, spend, wide, wide_record};
use super::*;
use crate::pruner::world::{RETENTION, TICK as SECS, World, last_of};
use coppice_tests::transactions::Tx;
use ic_coppice_interface::*;

fn world() -> (World, Arc<Host>) {
    let (coppice, host) = tomorrow();
    let world = World::on(coppice);
    world.set(UtxoPrunerSettingsChange {
        max_instructions_per_tick: Some(TICK),
        utxo_chunk_size: Some(100_000),
        utxo_chunk_group_limit: Some(10_000),
        utxo_defensive_batch_read_size: Some(100_000),
        ..UtxoPrunerSettingsChange::default()
    });
    (world, host)
}

/// A record each of whose outputs is spent by another transaction.
#[test]
fn looking_up_scattered_spenders_stays_small() {
    const OUTPUTS: u32 = 20_000;
    let (world, host) = world();
    world.set(UtxoPrunerSettingsChange { utxo_defensive_enabled: Some(true), ..Default::default() });
    let parent = Tx::orphan(1 << 40, OUTPUTS);
    world.create(10, &[&parent]);
    world.mine(10, &[&parent]);
    let spenders: Vec<Tx> = scattered(&(0..u64::from(OUTPUTS)).map(wide).collect::<Vec<_>>());
    let mut by_id = spenders.clone();
    by_id.sort_by_key(|tx| tx.txid);
    create(&world.coppice, &by_id.iter().map(|tx| wide_record(tx, Some(10))).collect::<Vec<_>>());
    let of = |(vout, tx): (u32, &Tx)| TransactionSpends { spender: tx.id(), spends: vec![parent.spend(vout, 0)] };
    spend(&world.coppice, &(0..).zip(&spenders).map(of).collect::<Vec<_>>());
    host.take_executions();
    let job = world.prune(10 + RETENTION);
    assert_eq!((job.counts.records_deleted, world.count(&[parent])), (1, 0));
    let (instructions, dirtied) = most(&host, "looking up");
    // Scaled to 100,000, the most spenders that are looked up at a time; each of them may lie in its own page of the table.
    let each = instructions / u64::from(OUTPUTS) + StablePagePrices::TOMORROW.first_access;
    assert!(each * 100_000 <= TICK, "{each} for each spender");
    assert!(dirtied <= DIRTIED, "{dirtied}");
}

/// Records that are deleted and whose parents are scattered; as many that are old and unmined; and one with very many parents.
#[test]
fn ticks_over_scattered_parents_stay_small() {
    const EACH: usize = 6_000;
    let (world, host) = world();
    let parents: Vec<Tx> = scattered(&(0..3 * EACH as u64).map(wide).collect::<Vec<_>>());
    create(&world.coppice, &parents.iter().map(|tx| wide_record(tx, Some(10))).collect::<Vec<_>>());
    let (of_done, rest) = parents.split_at(EACH);
    let (of_old, of_large) = rest.split_at(EACH);
    let done: Vec<Tx> = of_done.iter().map(|parent| last_of(parent, 0)).collect();
    let old: Vec<Tx> = of_old.iter().map(|parent| last_of(parent, 0)).collect();
    let inputs: Vec<([u8; 32], u32)> = of_large.iter().map(|parent| (parent.txid, 0)).collect();
    let large = Tx::new(&inputs, &[(0, vec![0x6A])]);
    create(&world.coppice, &done.iter().chain(&old).chain([&large]).map(Tx::record).collect::<Vec<_>>());
    let of = |(child, parent): (&Tx, &Tx)| TransactionSpends { spender: child.id(), spends: vec![parent.spend(0, 0)] };
    let mut spends: Vec<TransactionSpends> = done.iter().zip(of_done).chain(old.iter().zip(of_old)).map(of).collect();
    let of_one = (0..).zip(of_large).map(|(vin, parent)| parent.spend(0, vin)).collect();
    spends.push(TransactionSpends { spender: large.id(), spends: of_one });
    spend(&world.coppice, &spends);
    for txs in done.iter().chain([&large]).collect::<Vec<_>>().chunks(EACH) {
        world.mine(10, txs);
    }
    host.take_executions();
    let job = World::scheduled(world.persisted(10 + RETENTION));
    let mut most_ticks = 0;
    while world.status().last_job.is_none_or(|last| last.id != job.id) {
        let before = world.status().totals;
        world.coppice.pass(SECS);
        assert_ne!(world.status().totals, before, "no progress");
        most_ticks += 1;
        assert!(most_ticks < 50);
    }
    let job = world.last();
    let counts = &job.counts;
    assert_eq!((counts.records_deleted, counts.parents_updated), (1 + EACH as u64, 2 * EACH as u64), "{job:?}");
    assert_eq!((counts.old_unmined, counts.parents_preserved), (EACH as u64, EACH as u64));
    let (instructions, dirtied) = most(&host, &format!("{most_ticks} ticks"));
    assert!(instructions <= TICK && dirtied <= DIRTIED, "{instructions}, {dirtied}");
}

/// A step becomes a separate work item when nothing else fits: a thousand scattered parents.
#[test]
fn a_step_of_many_scattered_parents_stays_within_the_pruners_estimate() {
    const PARENTS: u64 = 5_000;
    let (world, host) = world();
    let parents: Vec<Tx> = scattered(&(0..PARENTS).map(wide).collect::<Vec<_>>());
    create(&world.coppice, &parents.iter().map(|tx| wide_record(tx, Some(10))).collect::<Vec<_>>());
    let inputs: Vec<([u8; 32], u32)> = parents.iter().map(|parent| (parent.txid, 0)).collect();
    let large = Tx::new(&inputs, &[(0, vec![0x6A])]);
    create(&world.coppice, &[large.record()]);
    let spends = (0..).zip(&parents).map(|(vin, parent)| parent.spend(0, vin)).collect();
    spend(&world.coppice, &[TransactionSpends { spender: large.id(), spends }]);
    world.mine(10, &[&large]);
    world.set(UtxoPrunerSettingsChange { max_instructions_per_tick: Some(1), ..Default::default() });
    host.take_executions();
    let job = world.prune(10 + RETENTION);
    assert_eq!((job.counts.records_deleted, job.counts.parents_updated), (1, PARENTS));
    let (instructions, dirtied) = most(&host, "a step");
    // Each parent may also lie in its own page of the table.
    let table = 1_000 * StablePagePrices::TOMORROW.first_access;
    assert!(instructions + table <= 25_000 * 1_001 + 60_000, "{instructions}");
    assert!(dirtied <= DIRTIED, "{dirtied}");
}
