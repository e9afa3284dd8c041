//! A long run: stable memory grows to a plateau and stays there.

use coppice_tests::blocks::{block, hash, id};
use coppice_tests::coppice::{Coppice, LOG_CLASS, Who, blob_bytes, default_arg};
use ic_coppice_interface::*;

/// Blocks, if `COPPICE_LONG_RUN` names no other number.
const BLOCKS: u64 = 4_000;
/// Blocks after which the next trigger takes its turn.
const TURN: u64 = 500;
/// Approximate number of blocks that each trigger keeps.
const WINDOW: u64 = 300;
const INTERVAL: u64 = 288;
/// Added to a block's number for the size of its body. With most salts the highest peak of the kept bytes comes in the first half; with 0 it
/// comes after 3,500 blocks, and memory grows for it.
const SALT: u64 = 10_000;

#[derive(Clone, Copy, Debug, PartialEq)]
enum Trigger {
    Count,
    Age,
    Capacity,
    /// The count again, with an exporter that acknowledges every hundredth block.
    Exporter,
}

const TRIGGERS: [Trigger; 4] = [Trigger::Count, Trigger::Age, Trigger::Capacity, Trigger::Exporter];

/// Bytes of a block's body: mostly small, sometimes large.
fn body(number: u64) -> usize {
    let random = u64::from_le_bytes(id(number)[..8].try_into().unwrap());
    match random % 20 {
        0 => 1_000_000,
        1..5 => 200_000 + (random >> 8) as usize % 100_000,
        _ => (random >> 8) as usize % 20_000,
    }
}

/// The policy of a turn. A day has 300 blocks.
fn policy(trigger: Trigger) -> PrunePolicyArg {
    // The previous trigger is switched off.
    let default = PrunePolicyArg {
        retain_blocks: Some(0),
        retain_days: Some(0),
        target_bytes: Some(0),
        ..PrunePolicyArg::default()
    };
    match trigger {
        Trigger::Count | Trigger::Exporter => PrunePolicyArg { retain_blocks: Some(WINDOW), ..default },
        Trigger::Age => PrunePolicyArg { retain_days: Some(1), ..default },
        // 300 blocks take about 32 MiB.
        Trigger::Capacity => PrunePolicyArg { target_bytes: Some(36 << 20), ..default },
    }
}

#[test]
fn thousands_of_blocks_with_each_trigger_in_turn_stop_growing() {
    let blocks = std::env::var("COPPICE_LONG_RUN").map_or(BLOCKS, |blocks| blocks.parse().expect("a number of blocks"));
    let (coppice, host) = Coppice::embedded(default_arg());
    host.add_cycles(coppice.id, 1 << 60);
    let first = coppice.storage().billed_bytes;
    let mut half = None;
    let (mut peak_kept, mut pruned, mut turns) = (0, 0, Vec::new());
    for number in 0..blocks {
        let trigger = TRIGGERS[(number / TURN) as usize % TRIGGERS.len()];
        if number.is_multiple_of(TURN) {
            if number > 0 && trigger == Trigger::Count {
                coppice.remove_exporter(Who::Exporter, true).unwrap();
            }
            coppice.set_policy(policy(trigger)).unwrap();
            if trigger == Trigger::Exporter {
                coppice.register(Who::Exporter);
            }
            pruned = coppice.prune_status().pruned_blocks;
            coppice.pass(INTERVAL);
        }
        let ids: Vec<_> = (0..number % 12).map(|i| id(number << 20 | i)).collect();
        let mut next = block(number, &ids, body(SALT + number));
        next.timestamp_secs = coppice.ic.now() / 1_000_000_000;
        coppice.append(&next).unwrap_or_else(|error| panic!("block {number}, {trigger:?}: {error:?}"));
        if trigger == Trigger::Exporter && number % 100 == 99 {
            coppice.ack(Who::Exporter, number, &hash(number)).unwrap();
        }
        coppice.pass(INTERVAL);
        let storage = coppice.storage();
        peak_kept = peak_kept.max(blob_bytes(&storage));
        if number == blocks / 2 {
            half = Some((storage.billed_bytes, storage.arena_bytes));
        }
        if number % TURN == TURN - 1 {
            let status = coppice.prune_status();
            let (gone, run) = (status.pruned_blocks - pruned, status.last_run.unwrap());
            let expected = if trigger == Trigger::Capacity { PruneReason::Capacity } else { PruneReason::Retention };
            assert_eq!(run.reason, Some(expected), "{trigger:?}");
            assert!(gone > TURN / 4, "{trigger:?} pruned {gone} blocks");
            turns.push((trigger, gone));
            println!(
                "{:>6} blocks, {trigger:?}: {gone} pruned, {} kept in {} KiB, {} KiB billed",
                number + 1,
                storage.blocks,
                blob_bytes(&storage) >> 10,
                storage.billed_bytes >> 10
            );
        }
    }
    let storage = coppice.storage();
    assert_eq!(Some((storage.billed_bytes, storage.arena_bytes)), half, "the last half grew nothing");
    assert!(storage.billed_bytes > first, "the first half did");
    assert_eq!(turns.len() as u64, blocks / TURN);
    assert!(
        storage.arena_bytes < peak_kept + (16 << 20) + u64::from(LOG_CLASS),
        "no more than the peak of the kept bytes"
    );
    let status = coppice.prune_status();
    assert_eq!((status.faults, storage.quarantined_bytes), (0, 0));
    assert_eq!(status.pruned_blocks + storage.blocks, blocks);
}
