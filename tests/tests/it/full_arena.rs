//! A chain that cannot reach its target, because the cap on memory or other data leave it less: appends name what holds pruning back,
//! and nothing due waits after it. Blobs of the log have their default size.

use crate::pruner::world::World;
use crate::utxo::create;
use coppice_tests::blocks::{hash, id, plain, upload};
use coppice_tests::client::Answered;
use coppice_tests::coppice::{Coppice, LOG_CLASS, Who, default_arg};
use ic_coppice_interface::*;
use serde_bytes::ByteBuf;

const MIB: u64 = 1 << 20;

fn with_cap(max_stable_pages: u64) -> Coppice {
    let coppice = Coppice::with(InitArg { log_class: None, max_stable_pages: Some(max_stable_pages), ..default_arg() });
    coppice.configure(ConfigChange { verify_segments: Some(false), ..ConfigChange::default() });
    coppice
}

fn target(bytes: u64) -> PrunePolicyArg {
    PrunePolicyArg { target_bytes: Some(bytes), min_kept_blocks: Some(1), ..PrunePolicyArg::default() }
}

/// Appends blocks of 1.9 MB until one is refused. Returns its number and the refusal.
fn fill(coppice: &Coppice, first: u64) -> (u64, AppendError) {
    for number in first.. {
        if let Err(refused) = coppice.append(&plain(number, 3, 1_900_000)) {
            return (number, refused);
        }
    }
    unreachable!("numbers do not end")
}

fn held_by_exporter() -> AppendError {
    AppendError::CapacityExhausted { held_by: HeldBy::Exporter(Who::Exporter.name()) }
}

/// Acknowledges all blocks below `next`, and appends `blocks` more, with a tick after each refusal.
fn acknowledge_and_go_on(coppice: &Coppice, next: u64, blocks: u64) {
    coppice.ack(Who::Exporter, next - 1, &hash(next - 1)).unwrap();
    coppice.remove_exporter(Who::Exporter, true).unwrap();
    coppice.settle(60);
    let status = coppice.prune_status();
    assert!(!status.need_prune && status.capacity_bytes <= status.water_marks.unwrap().low, "{status:?}");
    for number in next..next + blocks {
        let block = plain(number, 3, 1_900_000);
        if let Err(refused) = coppice.append(&block) {
            assert_eq!(refused, AppendError::CapacityExhausted { held_by: HeldBy::PruneLag }, "block {number}");
            coppice.settle(60);
            coppice.append(&block).unwrap();
        }
    }
    coppice.settle(60);
}

/// An exporter lags, and the operator makes room by a higher target than memory has. The call is refused with the target that fits, and with
/// that one the chain ends where the exporter is named, and goes on after it.
#[test]
fn target_that_memory_cannot_hold_is_refused_and_the_one_named_works() {
    let coppice = with_cap(4_000);
    coppice.set_policy(target(40 * MIB)).unwrap();
    coppice.register(Who::Exporter);
    let (number, refused) = fill(&coppice, 0);
    assert_eq!(refused, held_by_exporter());
    let change = target(400_000_000);
    let Err(PruneError::BadArgument(BadArgument { field, why })) =
        coppice.operator().set_prune_policy(&change).answer()
    else {
        // An accepted target must not end in a chain that is full for ever.
        let (next, refused) = fill(&coppice, number);
        assert_eq!(refused, held_by_exporter());
        return acknowledge_and_go_on(&coppice, next, 60);
    };
    assert_eq!(field, "target_bytes");
    assert_eq!(coppice.plan_with(Some(change)), Err(PruneError::BadArgument(BadArgument { field, why: why.clone() })));
    let numbers = || why.split(|digit: char| !digit.is_ascii_digit()).filter_map(|digits| digits.parse::<u64>().ok());
    let (fits, pages) = (numbers().nth(2).unwrap(), numbers().nth(3).unwrap());
    assert_eq!(fits, greatest_target(4_000, 1 << 20, 0), "{why}");
    coppice.set_policy(target(fits)).unwrap();
    assert_eq!(coppice.prune_status().water_marks.unwrap().target, fits);
    let (next, refused) = fill(&coppice, number);
    assert_eq!(refused, held_by_exporter());
    // The other value that the sentence names.
    coppice.configure(ConfigChange { max_stable_pages: Some(pages), ..ConfigChange::default() });
    coppice.set_policy(target(400_000_000)).unwrap();
    coppice.append(&plain(next, 3, 1_900_000)).unwrap();
    let lower = ConfigChange { max_stable_pages: Some(pages - 1), ..ConfigChange::default() };
    let refused = coppice.operator().set_config(&lower).answer().unwrap_err().to_string();
    assert!(refused.starts_with("max_stable_pages: ") && refused.contains(&format!("at least {pages}")), "{refused}");
    acknowledge_and_go_on(&coppice, next + 1, 60);
}

/// 32 MiB: the chain has its target, is pruned by capacity, and bills no more than its cap.
#[test]
fn smallest_canister_reaches_the_greatest_target_that_fits() {
    let coppice = Coppice::with(InitArg { max_stable_pages: Some(MIN_STABLE_PAGES), ..default_arg() });
    let most = greatest_target(MIN_STABLE_PAGES, LOG_CLASS, 0);
    assert!(most >= 6 * MIB, "{most}");
    let refused = coppice.operator().set_prune_policy(&target(most + MIB)).answer().unwrap_err().to_string();
    assert!(refused.contains(&format!("at most {most}")), "{refused}");
    coppice.set_policy(target(most)).unwrap();
    let mut lowest = u64::MAX;
    for number in 0..300 {
        let block = plain(number, 3, 200_000);
        if let Err(refused) = coppice.append(&block) {
            assert_eq!(refused, AppendError::CapacityExhausted { held_by: HeldBy::PruneLag }, "block {number}");
            coppice.settle(60);
            coppice.append(&block).unwrap();
        }
        lowest = lowest.min(coppice.prune_status().water_marks.unwrap().target);
    }
    let (status, storage) = (coppice.prune_status(), coppice.storage());
    assert_eq!(lowest, most, "the effective target is the target");
    assert!(status.pruned_blocks > 200 && status.capacity_bytes > most / 2, "{status:?}");
    assert!(storage.billed_bytes <= MIN_STABLE_PAGES * WASM_PAGE, "{storage:?}");
}

/// Records keep more than their new cap, so the target fits by the settings alone.
#[test]
fn chain_beside_records_that_keep_its_memory_is_pruned_after_the_exporter() {
    let coppice = with_cap(6_500);
    coppice.register(Who::Exporter);
    let world = World::on(coppice);
    let coppice = &world.coppice;
    let external = |number: u64| {
        let transaction = ExternalTransaction {
            txid: id(number).into(),
            store: ExternalStore {
                blob_key: ByteBuf::from(number.to_le_bytes()),
                file_type: FileType::Outputs,
                store_type: StoreType::Tx,
            },
            coinbase: false,
            version: 1,
            lock_time: 0,
            size: 9,
            inputs: Vec::new(),
            utxo_hashes: vec![None; 100_000],
        };
        let source = TransactionSource::External(transaction);
        UtxoCreate { source, mined: None, locked: Some(true), conflicting: false, fee: None, is_new: false }
    };
    let mut records = 0;
    while create(coppice, 1_000, vec![external(records)]).results.remove(0).is_ok() {
        records += 1;
    }
    let kept = coppice.storage().utxo.unwrap().kept_bytes;
    assert!(records > 10 && kept > 150 * MIB, "{records} records keep {kept}");
    let utxo = UtxoSettingsChange { max_utxo_bytes: Some(MIB), ..Default::default() };
    coppice.configure(ConfigChange { utxo: Some(utxo), ..ConfigChange::default() });
    coppice.set_policy(target(300 * MIB)).unwrap();
    let (next, refused) = fill(coppice, 0);
    assert_eq!(refused, held_by_exporter());
    let status = coppice.prune_status();
    let marks = status.water_marks.unwrap();
    assert!(marks.target < 240 * MIB && status.capacity_bytes >= marks.emergency, "{status:?}");
    let message = coppice.health().problems.into_iter().find(|problem| problem.code == ProblemCode::CapacityExhausted);
    let message = message.expect("appends are refused").message;
    assert!(message.contains("max_stable_pages") && message.contains(&marks.emergency.to_string()), "{message}");
    // A block that is too large for what is left is refused for its size, and nothing more is pruned for it.
    acknowledge_and_go_on(coppice, next, 60);
    let before = coppice.prune_status();
    let (mut begin, _) = upload(&plain(next + 60, 1, 10), 1 << 20);
    begin.lengths[0] = 250 << 20;
    for _ in 0..3 {
        let refused = coppice.producer().begin_block(&begin).answer();
        assert_eq!(refused, Err(AppendError::NoMemory(NoMemory::OutOfSpace)));
        coppice.pass(60);
    }
    assert_eq!(coppice.prune_status().pruned_before_block, before.pruned_before_block);
}
