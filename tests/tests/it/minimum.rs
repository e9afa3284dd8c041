//! The minimum tests of `pruning-spec-v1.md` 9, under their names there. More tests of each point are in `prune`, `interruption`,
//! `long_run`, and next to the code.

use coppice_tests::blocks::{plain, plain_id};
use coppice_tests::client::Answered;
use coppice_tests::coppice::{Coppice, LOG_CLASS, blob_bytes, default_arg};
use ic_coppice_host::{Host, Kind, TrapPoint};
use ic_coppice_interface::*;

fn retain(blocks: u64) -> PrunePolicyArg {
    PrunePolicyArg { retain_blocks: Some(blocks), ..PrunePolicyArg::default() }
}

/// 同一 class の allocate/free を繰り返すと **ある時点から grow が発生しない**: if blobs of one class are allocated and freed repeatedly, memory stops growing
/// at some point.
#[test]
fn repeated_allocate_and_free_of_one_class_stops_growing() {
    let coppice = Coppice::new();
    coppice.set_policy(retain(3)).unwrap();
    let mut plateau = None;
    let mut grown = 0;
    for number in 0..600 {
        // Exactly one blob: body, receipts and index of one transaction.
        let extra = plain(number, 1, 0);
        let body = LOG_CLASS as usize - extra.receipts.len() - extra.index.len();
        coppice.append(&plain(number, 1, body)).unwrap();
        coppice.prune_now(1_000);
        let storage = coppice.storage();
        let now = (storage.arena_bytes, storage.billed_bytes);
        grown += u64::from(plateau != Some(now));
        plateau = Some(now);
    }
    assert!(plateau.unwrap().1 <= 8 << 20, "{plateau:?}");
    assert!(grown <= 3, "it grew {grown} times, and never since");
}

/// A chain just before a prune of several blocks, with a checkpoint of its state.
struct Pruned {
    coppice: Coppice,
    host: std::sync::Arc<Host>,
    before: ic_coppice_host::Checkpoint,
    /// System calls of the message that prunes.
    system_calls: u64,
}

type Seen = (Vec<Block>, PruneStatus, u64, u64, Vec<bool>);

/// The kept blocks, and the look-ups of removed ones.
fn seen(coppice: &Coppice) -> Seen {
    let (status, storage) = (coppice.prune_status(), coppice.storage());
    assert_eq!(storage.quarantined_bytes, 0);
    assert_eq!(blob_bytes(&storage), status.estimated_kept_bytes);
    let found = (0..10).map(|number| coppice.location(plain_id(number, 1)).is_ok()).collect();
    (coppice.chain(), status, blob_bytes(&storage), storage.index_entries, found)
}

fn prune(coppice: &Coppice) -> Result<Result<PruneRun, PruneError>, coppice_ic::Reject> {
    coppice.by(coppice_tests::coppice::Who::Controller).prune_now(1_000u64).try_answer()
}

fn prepared() -> Pruned {
    let (coppice, host) = Coppice::embedded(default_arg());
    coppice.append_plain(0..10, 50_000);
    coppice.set_policy(retain(4)).unwrap();
    coppice
        .operator()
        .set_prune_policy(&PrunePolicyArg { pruning_enabled: Some(false), ..PrunePolicyArg::default() })
        .answer()
        .unwrap();
    let before = host.checkpoint();
    host.take_executions();
    assert_eq!(prune(&coppice).unwrap().unwrap().blocks, 5);
    let message = host.take_executions().into_iter().find(|e| e.kind == Kind::Update).unwrap();
    Pruned { coppice, host, before, system_calls: message.system_calls }
}

/// prune の途中失敗 → 再実行で整合: a prune that fails in the middle is consistent when it is run again.
#[test]
fn a_prune_that_fails_in_the_middle_is_consistent_when_run_again() {
    let Pruned { coppice, host, before, system_calls } = prepared();
    let (chain, done, ..) = seen(&coppice);
    let mut failed = 0;
    for at in (1..=system_calls).step_by(5) {
        host.restore(&before);
        host.faults().clear();
        host.faults().trap_message(1, TrapPoint::SystemCall(at));
        assert!(prune(&coppice).is_err(), "system call {at}");
        failed += 1;
        let again = prune(&coppice).unwrap().unwrap();
        assert_eq!((again.blocks, again.progress), (5, PruneProgress::Finished));
        let (chain_again, status, ..) = seen(&coppice);
        assert_eq!(chain_again, chain);
        assert_eq!((status.pruned_bytes, status.faults), (done.pruned_bytes, 0));
    }
    assert!(failed > 20, "{system_calls} system calls");
}

/// 1ブロック原子の順序が守られる（参照だけ残らない）: one block is atomic, and no reference remains alone. Wherever the message ends, all of
/// it happened or nothing: a block that cannot be read has no entry in the index and no blob. (The order inside the message is
/// looked at where it can be seen: `removal_writes_in_the_specified_order`, in the chain's own tests.)
#[test]
fn the_order_of_one_block_is_atomic_and_no_reference_remains_alone() {
    let Pruned { coppice, host, before, system_calls } = prepared();
    host.restore(&before);
    let untouched = seen(&coppice);
    for at in 1..=system_calls {
        host.restore(&before);
        host.faults().clear();
        host.faults().trap_message(1, TrapPoint::SystemCall(at));
        assert!(prune(&coppice).is_err(), "system call {at}");
        assert_eq!(seen(&coppice), untouched, "system call {at} of {system_calls}");
    }
    // Block by block, each is removed together with all references to it.
    host.restore(&before);
    host.faults().clear();
    for oldest in 1..=5 {
        let run: Result<PruneRun, PruneError> = coppice.operator().prune_now(1u64).answer();
        assert_eq!(run.unwrap().blocks, 1);
        let (chain, _, _, entries, found) = seen(&coppice);
        assert_eq!((chain.len(), entries), (10 - oldest, 3 * (10 - oldest as u64)));
        assert_eq!(found, (0..10).map(|number| number >= oldest).collect::<Vec<_>>());
        assert_eq!(coppice.block(oldest as u64 - 1), Err(ReadError::Pruned { first_available: oldest as u64 }));
    }
}
