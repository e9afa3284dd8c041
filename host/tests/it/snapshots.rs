//! Prices of installations and snapshots, and the parts of a canister that a snapshot brings back.

use std::time::Duration;

use crate::common::*;
use ic_coppice_host::{CanisterSettings, CanisterStatus, ErrorCode, Host, Principal};

#[test]
fn loading_a_snapshot_restores_code_and_data() {
    let (host, canister) = installed();
    update(&host, canister, "bump", &[]).unwrap();
    update(&host, canister, "set_timer", &[u64::MAX]).unwrap();
    let before = host.canister_status(canister, None).unwrap();
    let snapshot = host.take_canister_snapshot(canister, None, None).unwrap();
    update(&host, canister, "bump", &[]).unwrap();
    update(&host, canister, "grow_heap", &[5]).unwrap();
    host.upgrade_canister(canister, wasm_with(HOOKS), bytes(&[1]), None).unwrap();
    let controllers = vec![ANYONE, Principal::from_slice(&[1])];
    host.set_controllers(canister, None, controllers.clone()).unwrap();
    let now = host.canister_status(canister, None).unwrap();
    host.load_canister_snapshot(canister, None, snapshot.id.clone()).unwrap();
    let after = host.canister_status(canister, None).unwrap();
    let data = |status: &CanisterStatus| {
        (status.module_hash.clone(), status.wasm_memory_size, status.stable_memory_size, status.certified_data.clone())
    };
    assert_eq!((data(&after), after.memory_size), (data(&before), before.memory_size + snapshot.total_size));
    assert_eq!((after.version, after.controllers), (now.version + 1, controllers));
    assert!(after.cycles < now.cycles, "the cycles do not come back");
    assert_eq!((before.global_timer, now.global_timer, after.global_timer), (u64::MAX, 0, 0));
    assert_eq!(state(&host, canister), bumped(1));
    update(&host, canister, "bump", &[]).unwrap();
    host.load_canister_snapshot(canister, None, snapshot.id.clone()).unwrap();
    assert_eq!(state(&host, canister), bumped(1), "later changes do not affect a snapshot");
    host.delete_canister_snapshot(canister, None, snapshot.id.clone()).unwrap();
    assert_eq!(host.canister_status(canister, None).unwrap().memory_size, before.memory_size);
    assert_eq!(code(host.load_canister_snapshot(canister, None, snapshot.id)), ErrorCode::CanisterSnapshotNotFound);
}

const G: u128 = 1_000_000_000;

/// Sets the balance to `liquid` cycles above the freezing threshold.
fn set_liquid(host: &Host, canister: Principal, liquid: u128) {
    let frozen = host.canister_status(canister, None).unwrap().freezing_limit;
    host.faults().low_cycles(canister, frozen + liquid);
    host.tick();
}

#[test]
fn snapshot_is_charged_by_its_bytes_which_count_for_the_freezing_threshold() {
    let (host, canister) = installed();
    update(&host, canister, "grow", &[4_096]).unwrap();
    let before = host.canister_status(canister, None).unwrap();
    let first = host.take_canister_snapshot(canister, None, None).unwrap();
    let taken = host.canister_status(canister, None).unwrap();
    assert_eq!((first.total_size, taken.memory_size), (before.memory_size, 2 * before.memory_size));
    let bytes = u128::from(first.total_size);
    assert_eq!(before.cycles - taken.cycles, 2 * G + bytes + 5_000_000);
    assert!(taken.freezing_limit.abs_diff(2 * before.freezing_limit) <= 1);
    // The replaced snapshot makes room for the new one.
    let second = host.take_canister_snapshot(canister, None, Some(first.id.clone())).unwrap();
    let replaced = host.canister_status(canister, None).unwrap();
    assert_eq!((replaced.memory_size, replaced.freezing_limit), (taken.memory_size, taken.freezing_limit));
    assert_eq!(code(host.load_canister_snapshot(canister, None, first.id)), ErrorCode::CanisterSnapshotNotFound);
    host.load_canister_snapshot(canister, None, second.id).unwrap();
    let loaded = host.canister_status(canister, None).unwrap();
    let compiling = 30 * wasm().len() as u128;
    assert_eq!(replaced.cycles - loaded.cycles, 2 * G + bytes + compiling + 2 * 5_000_000);
    // At the balance that a snapshot needs it is taken, and below it is refused and changes nothing.
    let needed = 2 * G + bytes + 5_000_000 + before.freezing_limit;
    for (liquid, fits) in [(needed - 2, false), (needed + 2, true)] {
        set_liquid(&host, canister, liquid);
        let balance = host.canister_status(canister, None).unwrap();
        let taken = host.take_canister_snapshot(canister, None, None);
        assert_eq!(taken.is_ok(), fits, "{liquid}");
        if !fits {
            assert_eq!(code(taken), ErrorCode::InsufficientCyclesInMemoryGrow);
            assert_eq!(host.canister_status(canister, None).unwrap(), balance);
        }
    }
    host.advance_time(Duration::from_secs(30 * 365 * 86_400));
    let status = host.canister_status(canister, None).unwrap();
    assert_eq!((status.cycles, status.memory_size), (0, 0), "without cycles the snapshots are deleted, too");
}

#[test]
fn snapshot_on_a_full_subnet_reserves_cycles() {
    let (host, canister) = half_full();
    update(&host, canister, "grow", &[256]).unwrap();
    let before = host.canister_status(canister, None).unwrap();
    let snapshot = host.take_canister_snapshot(canister, None, None).unwrap();
    let after = host.canister_status(canister, None).unwrap();
    assert!(after.reserved_cycles > 2 * before.reserved_cycles - before.reserved_cycles / 100, "{after:?}");
    let none = CanisterSettings { reserved_cycles_limit: Some(0), ..CanisterSettings::default() };
    host.update_canister_settings(canister, None, none).unwrap();
    let refused = host.take_canister_snapshot(canister, None, None);
    assert_eq!(code(refused), ErrorCode::ReservedCyclesLimitExceededInMemoryGrow);
    host.take_canister_snapshot(canister, None, Some(snapshot.id)).unwrap();
}

/// An installation pays for the messages that bring the module, for compiling it, and for the hooks, with one fee.
#[test]
fn installation_is_charged_for_the_module() {
    let (host, canister) = installed();
    let small = wasm_with(HOOKS);
    host.upgrade_canister(canister, small.clone(), bytes(&[1]), None).unwrap();
    // A custom section of 2 MB makes the module too long for one message: section 0, its length, and its name.
    let filling = [&[0, 0x84, 0x89, 0x7A, 3][..], b"big", &[0; 2_000_000]].concat();
    let large = [small.clone(), filling].concat();
    for (module, chunks) in [(small, 0), (large, 2)] {
        host.take_executions();
        let before = host.cycle_balance(canister);
        let Ok(()) = host.upgrade_canister(canister, module.clone(), bytes(&[1]), None) else { panic!("{chunks}") };
        let hooks: u64 = host.take_executions().iter().map(|execution| execution.instructions_charged).sum();
        let rest = before - host.cycle_balance(canister) - u128::from(hooks) - 3_000 * module.len() as u128 - 5_000_000;
        let bringing = 2_000 * module.len() as u128 + chunks * 206_500_000;
        assert!(rest.abs_diff(bringing) < 5_000_000, "{chunks} chunks: {rest}, not {bringing}");
    }
}

#[test]
fn installation_sets_300_g_aside_above_the_freezing_threshold() {
    let (host, canister) = installed();
    update(&host, canister, "grow", &[4_096]).unwrap();
    let bringing = 1_200_000 + 2_000 * (wasm().len() as u128 + 130);
    for (liquid, fits) in [(300 * G, false), (300 * G + 5_000_000 + bringing + 100_000, true)] {
        set_liquid(&host, canister, liquid);
        let upgraded = host.upgrade_canister(canister, wasm(), vec![], None);
        assert_eq!(upgraded.is_ok(), fits, "{upgraded:?}");
        if !fits {
            assert_eq!(code(upgraded), ErrorCode::CanisterOutOfCycles);
        }
    }
    assert!(host.cycle_balance(canister) > 299 * G, "the rest comes back");
}
