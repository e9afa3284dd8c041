//! Compares the predictions of `coppice size` with a canister that is fed until it stops growing.

use coppice_testkit::embedded::Embedded;
use coppice_testkit::wasm;
use ic_coppice_cli::client::{Block, CanisterClient, Wait};
use ic_coppice_cli::feed;
use ic_coppice_cli::size::{Size, Workload};
use ic_coppice_interface::PrunePolicyArg;
use std::time::Duration;

fn id(number: u64, position: u64) -> [u8; 32] {
    let mut id = [0; 32];
    id[..8].copy_from_slice(&number.wrapping_mul(0x9E37_79B9_7F4A_7C15).to_le_bytes());
    id[8..16].copy_from_slice(&position.to_le_bytes());
    id
}

/// Feeds a chain of equal blocks for three windows, with a day's retention and the predicted `target_bytes`.
fn check(block_bytes: u64, transactions: u64) {
    let workload = Workload {
        block_bytes,
        transactions,
        keys: 0,
        records: 0,
        verify: true,
        // Not a divisor of a day, so that blocks do not come due exactly when others arrive.
        interval_ns: 500_000_000_000,
        days: 1,
        log_class: 1 << 20,
        timer_interval_secs: 60,
    };
    let size = Size::of(workload);
    ic_coppice_host::set_module_cache(ic_coppice_host::default_module_cache());
    let client = Embedded::start(wasm::of_tests()).unwrap();
    let policy = PrunePolicyArg {
        retain_days: Some(1),
        target_bytes: Some(size.target_bytes),
        timer_interval_secs: Some(workload.timer_interval_secs),
        ..PrunePolicyArg::default()
    };
    client.set_prune_policy(&policy).done().unwrap();
    // A segment of ids without secondary keys: two counts and the ids.
    let index = 8 + 32 * transactions;
    let (mut billed, mut kept) = (Vec::new(), 0);
    // In the last of the three windows, each new block causes an old one to be pruned.
    let mut before = None;
    for number in 0..3 * size.blocks {
        if number == 2 * size.blocks {
            before = Some(client.transport().costs());
        }
        let hash = |number: u64| id(number, u64::MAX);
        let timestamp_secs = client.transport().now_secs();
        let body = vec![number as u8; (block_bytes - index) as usize];
        let block = Block::new(number, hash(number), hash(number.wrapping_sub(1)), timestamp_secs).body(body);
        let block = (0..transactions).fold(block, |block, position| block.transaction(id(number, position), None, &[]));
        feed::send(&client, &[block.seal().unwrap()]).unwrap();
        (0..workload.interval_ns / 20_000_000_000)
            .for_each(|_| client.transport().pass(Duration::from_secs(20)).unwrap());
        let storage = client.get_storage_status(None).wait().unwrap();
        billed.push(storage.billed_bytes);
        kept = kept.max(client.get_prune_status().wait().unwrap().estimated_kept_bytes);
    }
    let status = client.get_prune_status().wait().unwrap();
    let last = status.last_run.unwrap();
    assert_eq!(
        format!("{:?}", last.reason),
        "Some(Retention)",
        "the capacity target does not interfere with retention"
    );
    let plateau = *billed.last().unwrap();
    assert_eq!(billed[billed.len() / 2], plateau, "it has stopped growing");
    println!(
        "{block_bytes} bytes: {plateau} billed, {} predicted; {kept} kept, {} predicted",
        size.billed_bytes, size.kept_bytes
    );
    // Memory grows by a sixteenth at a time.
    let near = plateau / 16 + (2 << 20);
    assert!(size.billed_bytes.abs_diff(plateau) <= near, "{plateau} billed, {} predicted", size.billed_bytes);
    assert!((kept..=kept + 4 * workload.log_class).contains(&size.kept_bytes), "{kept}, {}", size.kept_bytes);
    let (before, costs) = (before.unwrap(), client.transport().costs());
    let near = |what: &str, predicted: u64, measured: u64| {
        println!("{what}: {measured}, {predicted} predicted");
        assert!(
            predicted * 4 / 5 <= measured && measured <= predicted * 5 / 4,
            "{what}: {measured}, {predicted} predicted"
        );
    };
    near(
        "feeding, instructions charged",
        size.workload.feeding_instructions() * size.blocks,
        costs.append_charged - before.append_charged,
    );
    let firings = (size.workload.firings() * size.blocks as f64) as u64;
    near("firings", firings, costs.timer_firings - before.timer_firings);
    near(
        "daemon, instructions charged",
        size.workload.daemon_instructions() * size.blocks,
        costs.timer_charged - before.timer_charged,
    );
}

#[test]
fn small_blocks_cost_what_was_predicted() {
    check(60_000, 120);
}

#[test]
fn large_blocks_cost_what_was_predicted() {
    check(1_000_000, 2_000);
}
