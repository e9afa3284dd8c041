//! What pruning a record costs: two outputs, two parents that survive and are told.

use super::baseline::Baseline;
use super::transaction::Transaction;
use super::{HEIGHT, PREPARED, Prepared, RETENTION, UtxoBenchArg, insert};
use crate::access;
use crate::api::*;
use crate::bench::said;
use crate::runtime::instructions;
use crate::state::{State, mutate};
use crate::utxo::Call;
use ic_cdk::update;
use serde_bytes::ByteBuf;

/// The budget of `prune_tick`.
const TICK: u64 = 1_000_000_000;

/// Of each child, and as many parents: each of these has an output that stays, and two that two children spend.
fn family(prepared: &mut Prepared, count: u64) -> (Vec<Transaction>, Vec<Transaction>) {
    let parents: Vec<Transaction> = (0..count).map(|i| Transaction::new(prepared.serial + i, 3)).collect();
    let parent = |i: u64| parents[(i % count) as usize].parsed.txid;
    let child = |i: u64| Transaction::of(prepared.serial + count + i, 2, [(parent(i), 1), (parent(i + 1), 2)]);
    let children = (0..count).map(child).collect();
    prepared.serial += 2 * count;
    (parents, children)
}

/// Makes transactions that are due, and parents of theirs that are not.
#[update(guard = "access::operator")]
fn bench_prepare_prune(arg: UtxoBenchArg) -> Result<(), String> {
    PREPARED.with_borrow_mut(|prepared| {
        let (parents, children) = family(prepared, arg.rounds);
        if arg.baseline {
            let maps = prepared.baseline.get_or_insert_with(Baseline::open);
            for (i, parent) in parents.iter().enumerate() {
                maps.create(parent)?;
                let first = &children[(i + parents.len() - 1) % parents.len()].parsed.txid;
                maps.spend(parent, &parent.spends.spends[1..2], &children[i].parsed.txid)?;
                maps.spend(parent, &parent.spends.spends[2..], first)?;
            }
            return children.iter().try_for_each(|child| {
                maps.create(child)?;
                maps.change(&child.parsed.txid, |record| {
                    record.blocks.push((1, HEIGHT, 0));
                    record.unmined_since = None;
                })?;
                maps.spend(child, &child.spends.spends, &child.spends.spender)
            });
        }
        mutate(|state| {
            let settings = UtxoSettings::default();
            let call = Call { height: HEIGHT, now_ns: 0, settings: &settings };
            parents.iter().try_for_each(|parent| insert(state, parent, &parent.item(), &call))?;
            for (i, child) in children.iter().enumerate() {
                let parent = [&parents[i], &parents[(i + 1) % parents.len()]];
                make_due(state, child, parent, &call)?;
            }
            state.utxo_pruner.set_assembly(BlockAssemblyState::Running);
            let change = PrunerSettingsChange {
                unmined_tx_retention: Some(UnminedRetention::Blocks(1_000_000)),
                utxo_chunk_group_limit: Some(10_000),
                max_ops_per_tick: Some(10_000_000),
                max_instructions_per_tick: Some(if arg.op == "prune_tick" { TICK } else { 2 * TICK }),
                ..PrunerSettingsChange::default()
            };
            said(state.utxo_pruner.set_settings(&change))?;
            said(state.utxo_pruner.notify_block(HEIGHT + RETENTION, true, false)).map(drop)
        })
    })
}

/// A mined record whose outputs are spent, and which spends from its parents.
fn make_due(state: &mut State, child: &Transaction, parents: [&Transaction; 2], call: &Call) -> Result<(), String> {
    let mined = MinedIn { blocks: vec![BlockRef { block_id: 1, height: HEIGHT, subtree: 0 }], on_longest_chain: true };
    insert(state, child, &UtxoCreate { mined: Some(mined), ..child.item() }, call)?;
    let spend = |vin: u32| Spend { vin, ..parents[vin as usize].spends.spends[1 + vin as usize].clone() };
    let spends = vec![spend(0), spend(1)];
    let spends = TransactionSpends { spender: ByteBuf::from(child.parsed.txid), spends };
    said(state.utxo.spend(&spends, call))?;
    said(state.utxo.spend(&child.spends, call)).map(drop)
}

/// Prunes, and answers the average instructions of a record; of `prune_tick`, its share of a tick of a billion.
#[update(guard = "access::operator")]
fn bench_run_prune(arg: UtxoBenchArg) -> Result<u64, String> {
    PREPARED.with_borrow_mut(|prepared| {
        let start = instructions();
        if arg.baseline {
            let maps = prepared.baseline.get_or_insert_with(Baseline::open);
            let deleted = maps.prune(HEIGHT + RETENTION)?;
            if deleted != arg.rounds {
                return Err(format!("{deleted} were deleted"));
            }
            return Ok((instructions() - start) / deleted);
        }
        let counts = mutate(|state| {
            let (pruner, mut records) = state.utxo_pruner();
            pruner.tick(&mut records, false);
            state.utxo_pruner.status(&state.config.utxo, &state.deletions).totals
        });
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
