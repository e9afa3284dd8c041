//! Benchmark of record pruning: the cost of a record with two outputs and two parents that survive and are updated, and the cost of a run
//! that finds nothing new.

use super::transaction::Transaction;
use super::{HEIGHT, PREPARED, Prepared, RETENTION, SPENDER, UtxoBenchArg, insert, insert_external};
use crate::api::access;
use crate::bench::{key, said};
use crate::platform::instructions;
use crate::state::records::settings_of;
use crate::state::{State, mutate};
use ic_cdk::update;
use ic_coppice_interface::*;
use ic_coppice_records::utxo::Call;

/// Blocks for which all unmined records of the bench stay young.
const YOUNG: u32 = 1_000_000;
/// The budget of `prune_tick`.
const TICK: u64 = 1_000_000_000;

/// Returns parents and as many children. Each parent has an output that stays unspent, and two that two children spend.
fn family(prepared: &mut Prepared, count: u64) -> (Vec<Transaction>, Vec<Transaction>) {
    let parents: Vec<Transaction> = (0..count).map(|i| Transaction::new(prepared.serial + i, 3)).collect();
    let parent = |i: u64| parents[(i % count) as usize].parsed.txid;
    let child = |i: u64| Transaction::of(prepared.serial + count + i, 2, [(parent(i), 1), (parent(i + 1), 2)]);
    let children = (0..count).map(child).collect();
    prepared.serial += 2 * count;
    (parents, children)
}

/// Returns children, and their parents: two existing records for each child, far from each other.
fn scattered(prepared: &mut Prepared, count: u64) -> (Vec<Transaction>, Vec<Transaction>) {
    let parents: Vec<Transaction> = (0..2 * count).map(|i| Transaction::new(i * 7_919 % prepared.filled, 2)).collect();
    let parent = |i: u64| parents[i as usize].parsed.txid;
    let child = |i: u64| Transaction::of(prepared.serial + i, 2, [(parent(2 * i), 1), (parent(2 * i + 1), 1)]);
    let children = (0..count).map(child).collect();
    prepared.serial += count;
    (parents, children)
}

/// Settings with which a tick does everything that is due.
fn set_up(state: &mut State, old_from: u32, instructions: u64) -> Result<(), String> {
    state.records.pruner.set_assembly(UtxoBlockAssemblyState::Running, None, settings_of(&state.config));
    let change = UtxoPrunerSettingsChange {
        unmined_tx_retention: Some(UtxoUnminedRetention::Blocks(old_from)),
        utxo_chunk_group_limit: Some(10_000),
        max_instructions_per_tick: Some(instructions),
        ..UtxoPrunerSettingsChange::default()
    };
    // An unmined record may stay young for longer than its parents are kept.
    let exempt = UtxoSettings { block_height_retention: 0, ..UtxoSettings::default() };
    said(state.records.pruner.set_settings(&change, &exempt)).map(drop)
}

fn tick(state: &mut State) -> UtxoPruneCounts {
    let (pruner, mut records) = state.utxo_pruner();
    pruner.tick(&mut records, false, false);
    state.records.pruner.status(settings_of(&state.config), &state.records.deletions).totals
}

/// Runs a job to its end: all unmined records are examined once.
fn full_pass(state: &mut State, old_from: u32, height: u32) -> Result<(), String> {
    set_up(state, old_from, 2 * TICK)?;
    said(state.records.pruner.notify_block(height, true, false))?;
    while state.records.pruner.interval_secs().is_some() {
        tick(state);
    }
    Ok(())
}

/// Examines all unmined records, and notifies the next block.
fn nothing_new(state: &mut State) -> Result<(), String> {
    full_pass(state, 1, HEIGHT + RETENTION)?;
    said(state.records.pruner.notify_block(HEIGHT + RETENTION + 1, true, false)).map(drop)
}

/// Makes transactions that are due, and parents of theirs that are not.
#[update(guard = "access::bench")]
fn bench_prepare_prune(arg: UtxoBenchArg) -> Result<(), String> {
    PREPARED.with_borrow_mut(|prepared| {
        if arg.op == "nothing_new" {
            return mutate(nothing_new);
        }
        let far = arg.op == "prune_scattered";
        let (parents, children) = if far { scattered(prepared, arg.rounds) } else { family(prepared, arg.rounds) };
        if let Some(peer) = prepared.peer(arg.side) {
            for (i, parent) in parents.iter().enumerate() {
                peer.create(parent)?;
                let first = &children[(i + parents.len() - 1) % parents.len()].parsed.txid;
                peer.spend(parent, &parent.spends.spends[1..2], &children[i].parsed.txid)?;
                peer.spend(parent, &parent.spends.spends[2..], first)?;
            }
            return children.iter().try_for_each(|child| {
                peer.create(child)?;
                peer.set_mined(child)?;
                peer.spend(child, &child.spends.spends, &key(SPENDER))
            });
        }
        mutate(|state| {
            let settings = UtxoSettings::default();
            let call = Call {
                height: HEIGHT,
                now_ns: 0,
                settings: &settings,
                most: MAX_HEIGHT,
                missing: MissingParents::Refuse,
            };
            if !far {
                parents.iter().try_for_each(|parent| insert(state, parent, &parent.item(), &call))?;
            }
            for (i, child) in children.iter().enumerate() {
                let spent = |at: usize, vout: usize| (&parents[at % parents.len()], vout);
                let spent = if far { [spent(2 * i, 1), spent(2 * i + 1, 1)] } else { [spent(i, 1), spent(i + 1, 2)] };
                make_due(state, child, spent, arg.op == "external", &call)?;
            }
            // A job that is not done with its first tick.
            let job = arg.op == "job";
            let instructions = match arg.op.as_str() {
                "job" => 1,
                "prune_tick" => TICK,
                _ => 2 * TICK,
            };
            // One block before the records are due, so that the measured run examines no unmined record.
            full_pass(state, YOUNG, HEIGHT + RETENTION - 1)?;
            set_up(state, YOUNG, instructions)?;
            said(state.records.pruner.notify_block(HEIGHT + RETENTION, true, false))?;
            if job {
                tick(state);
            }
            // Their blobs wait to be deleted.
            while arg.op == "external" && tick(state).records_deleting < arg.rounds {}
            Ok(())
        })
    })
}

/// A mined record whose outputs are spent, and which spends from its parents.
fn make_due(
    state: &mut State,
    child: &Transaction,
    parents: [(&Transaction, usize); 2],
    is_external: bool,
    call: &Call,
) -> Result<(), String> {
    let mined = MinedIn { blocks: vec![BlockRef { block_id: 1, height: HEIGHT, subtree: 0 }], on_longest_chain: true };
    let item = UtxoCreate { mined: Some(mined), ..child.item() };
    if is_external {
        insert_external(state, child, &item, call)?
    } else {
        insert(state, child, &item, call)?
    }
    let spend = |vin: u32| {
        let (parent, vout) = parents[vin as usize];
        Spend { vin, ..parent.spends.spends[vout].clone() }
    };
    let spends = vec![spend(0), spend(1)];
    let spends = TransactionSpends { spender: child.parsed.txid.into(), spends };
    said(state.records.utxo.spend(&spends, call))?;
    said(state.records.utxo.spend(&child.spends, call)).map(drop)
}

/// Prunes, and returns the average instructions of a record; of `prune_tick`, its share of a tick of a billion.
#[update(guard = "access::bench")]
fn bench_run_prune(arg: UtxoBenchArg) -> Result<u64, String> {
    PREPARED.with_borrow_mut(|prepared| {
        let start = instructions();
        if let Some(peer) = prepared.peer(arg.side) {
            let deleted = peer.prune(HEIGHT + RETENTION)?;
            if deleted != arg.rounds {
                return Err(format!("{deleted} were deleted"));
            }
            return Ok((instructions() - start) / deleted);
        }
        let before =
            mutate(|state| state.records.pruner.status(settings_of(&state.config), &state.records.deletions).totals);
        let start = instructions().max(start);
        let counts = mutate(tick);
        let took = instructions() - start;
        if arg.op == "nothing_new" {
            let new = counts.old_unmined - before.old_unmined;
            return if new == 0 && before.old_unmined > 0 { Ok(took) } else { Err(format!("{new} are new")) };
        }
        if counts.parents_updated != 2 * counts.records_deleted || counts.records_deleted == 0 {
            return Err(format!("{counts:?}"));
        }
        match arg.op.as_str() {
            "prune_tick" => Ok(TICK / counts.records_deleted),
            _ if counts.records_deleted != arg.rounds => Err(format!("{counts:?}")),
            _ => Ok((instructions() - start) / counts.records_deleted),
        }
    })
}
