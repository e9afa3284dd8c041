//! Installation, upgrade, timers, stopping, storage, checkpoints.

use std::io::Write;
use std::time::Duration;

use crate::common::*;
use ic_coppice_host::{CanisterSettings, ErrorCode, Host, Kind, Limits, Principal, Status};

const PRE_UPGRADE_TRAPS: &str = r#"(func (export "canister_pre_upgrade") (call $do_bump) (call $boom))"#;
const POST_UPGRADE_TRAPS: &str = r#"(func (export "canister_post_upgrade") (call $do_bump) (call $boom))"#;

#[test]
fn installation_runs_start_and_init() {
    let host = Host::new();
    let canister = host.create_canister();
    assert_eq!(code(update(&host, canister, "bump", &[])), ErrorCode::CanisterWasmModuleNotFound);
    host.install_canister(canister, wasm_with(HOOKS), bytes(&[77]), None);
    let kinds: Vec<_> = host.take_executions().into_iter().map(|execution| execution.kind).collect();
    assert_eq!(kinds, [Kind::Start, Kind::Init]);
    assert_eq!(state(&host, canister).firings, 77);
    let again = host.try_install_canister(canister, wasm(), vec![], None);
    assert_eq!(code(again), ErrorCode::CanisterNonEmpty);
    let stranger = Some(Principal::from_slice(&[1]));
    assert_eq!(code(host.upgrade_canister(canister, wasm(), vec![], stranger)), ErrorCode::CanisterInvalidController);
    assert_eq!(code(host.upgrade_canister(canister, vec![1], vec![], None)), ErrorCode::CanisterInvalidWasm);
    let foreign = wat::parse_str(r#"(module (import "env" "f" (func)))"#).unwrap();
    assert_eq!(code(host.upgrade_canister(canister, foreign, vec![], None)), ErrorCode::CanisterInvalidWasm);
}

#[test]
fn modules_may_be_compressed() {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    encoder.write_all(&wasm()).unwrap();
    let host = Host::new();
    let canister = host.create_canister();
    host.install_canister(canister, encoder.finish().unwrap(), vec![], None);
    update(&host, canister, "bump", &[]).unwrap();
}

#[test]
fn upgrade_keeps_only_stable_memory() {
    let (host, canister) = installed();
    host.upgrade_canister(canister, wasm_with(HOOKS), bytes(&[5]), None).unwrap();
    update(&host, canister, "bump", &[]).unwrap();
    host.take_executions();
    host.upgrade_canister(canister, wasm_with(HOOKS), bytes(&[6]), None).unwrap();
    let kinds: Vec<_> = host.take_executions().into_iter().map(|execution| execution.kind).collect();
    assert_eq!(kinds, [Kind::PreUpgrade, Kind::Start, Kind::PostUpgrade]);
    let expected = State { stable: 2, stable_pages: 1, firings: 6, ..State::default() };
    assert_eq!(state(&host, canister), expected, "pre_upgrade of the old code wrote to stable memory");
    host.reinstall_canister(canister, wasm(), vec![], None).unwrap();
    assert_eq!(state(&host, canister), State::default());
}

#[test]
fn failed_upgrade_keeps_the_old_version() {
    for (old, new) in [(PRE_UPGRADE_TRAPS, HOOKS), ("", POST_UPGRADE_TRAPS)] {
        let host = Host::new();
        let canister = host.create_canister();
        host.install_canister(canister, wasm_with(old), vec![], None);
        update(&host, canister, "bump", &[]).unwrap();
        update(&host, canister, "set_timer", &[u64::MAX]).unwrap();
        let before = host.canister_status(canister, None).unwrap();
        let result = host.upgrade_canister(canister, wasm_with(new), bytes(&[5]), None);
        assert_eq!(code(result), ErrorCode::CanisterCalledTrap);
        assert_eq!(state(&host, canister), bumped(1));
        let mut after = host.canister_status(canister, None).unwrap();
        assert!(after.cycles < before.cycles);
        after.cycles = before.cycles;
        assert_eq!(after, before);
        update(&host, canister, "bump", &[]).unwrap();
        assert_eq!(state(&host, canister), bumped(2));
    }
}

#[test]
fn answers_after_an_upgrade_go_to_the_new_code() {
    let (host, canister) = installed();
    let id = host.submit_call(canister, ANYONE, "call_bump", vec![]).unwrap();
    host.step();
    host.upgrade_canister(canister, wasm(), vec![], None).unwrap();
    let reply = numbers(&host.await_call(id).unwrap());
    assert_eq!(reply[3..6], [1, 1, 2], "heap and global are new, stable memory isn't");
}

#[test]
fn timer_fires_once_at_or_after_its_time() {
    let (host, canister) = installed();
    let due = host.get_time_nanos() + 1_000;
    assert_eq!(update(&host, canister, "set_timer", &[due]).unwrap(), [0]);
    assert!(!host.step(), "it is not due");
    host.advance_time(Duration::from_nanos(999));
    host.tick();
    assert_eq!(state(&host, canister).firings, 0);
    host.advance_time(Duration::from_nanos(1));
    assert_eq!(state(&host, canister).firings, 0, "the clock alone executes nothing");
    host.tick();
    host.tick();
    assert_eq!(state(&host, canister).firings, 1);
    assert_eq!(update(&host, canister, "set_timer", &[1]).unwrap(), [0], "it is no longer set");
    assert!(host.step());
    assert!(!host.step());
    assert_eq!(update(&host, canister, "set_timer", &[u64::MAX]).unwrap(), [0]);
    assert_eq!(update(&host, canister, "set_timer", &[0]).unwrap(), [u64::MAX]);
    host.advance_time(Duration::from_secs(1));
    assert!(!host.step(), "0 unsets it");
    assert_eq!(state(&host, canister).firings, 2);
}

/// As on a server, a query sees the state after the last round.
#[test]
fn query_sees_the_time_of_the_last_round() {
    let (host, canister) = installed();
    let clock = || query(&host, canister, "clock", &[]).unwrap()[0];
    let start = host.get_time_nanos();
    assert_eq!(clock(), start);
    let rounds: [&dyn Fn(); 5] = [
        &|| host.tick(),
        &|| assert!(!host.step()),
        &|| drop(update(&host, canister, "bump", &[]).unwrap()),
        &|| drop(host.run_round()),
        &|| host.upgrade_canister(canister, wasm(), vec![], None).unwrap(),
    ];
    for round in rounds {
        let before = clock();
        host.advance_time(Duration::from_secs(10));
        assert!(clock() == before && host.get_time_nanos() == before + 10_000_000_000);
        // A refused or waiting message does not run a round.
        host.submit_call(canister, ANYONE, "bad", vec![]).unwrap_err();
        assert_eq!(clock(), before);
        round();
        assert_eq!(clock(), host.get_time_nanos());
    }
    let waiting = host.submit_call(canister, ANYONE, "bump", vec![]).unwrap();
    host.advance_time(Duration::from_secs(1));
    let checkpoint = host.checkpoint();
    let before = clock();
    host.await_call(waiting).unwrap();
    assert_eq!(clock(), before + 1_000_000_000);
    host.restore(&checkpoint);
    assert_eq!(clock(), before);
}

#[test]
fn timer_that_traps_is_unset() {
    let (host, canister) = installed();
    update(&host, canister, "trap_in_timer", &[]).unwrap();
    update(&host, canister, "set_timer", &[1]).unwrap();
    assert!(host.step());
    let execution = host.last_execution().unwrap();
    assert_eq!(execution.kind, Kind::Timer);
    assert_ne!(execution.outcome, ic_coppice_host::Outcome::Completed);
    assert!(!host.step());
    assert_eq!(host.canister_status(canister, None).unwrap().global_timer, 0);
}

#[test]
fn timers_are_lost_on_upgrade() {
    let (host, canister) = installed();
    update(&host, canister, "set_timer", &[1]).unwrap();
    host.upgrade_canister(canister, wasm(), vec![], None).unwrap();
    assert!(!host.step());
    assert_eq!(host.canister_status(canister, None).unwrap().global_timer, 0);
}

#[test]
fn timer_fires_between_the_messages_of_a_call() {
    let (host, canister) = installed();
    update(&host, canister, "set_timer", &[host.get_time_nanos() + 1]).unwrap();
    let id = host.submit_call(canister, ANYONE, "call_bump", vec![]).unwrap();
    host.step();
    host.advance_time(Duration::from_nanos(1));
    host.take_executions();
    host.await_call(id).unwrap();
    let kinds: Vec<_> = host.take_executions().into_iter().map(|execution| execution.kind).collect();
    assert_eq!(kinds, [Kind::Update, Kind::Timer, Kind::ReplyCallback]);
}

#[test]
fn stopped_canister_executes_nothing() {
    let (host, canister) = installed();
    update(&host, canister, "set_timer", &[1]).unwrap();
    host.stop_canister(canister, None).unwrap();
    assert!(!host.step(), "its timer does not fire");
    let reject = update(&host, canister, "bump", &[]).unwrap_err();
    assert_eq!(reject.error_code.to_string(), "IC0508");
    assert_eq!(code(query(&host, canister, "state", &[])), ErrorCode::CanisterStopped);
    host.start_canister(canister, None).unwrap();
    assert!(host.step());
    assert_eq!(state(&host, canister).firings, 1);
}

#[test]
fn stopping_waits_for_open_calls() {
    let (host, canister) = installed();
    let id = host.submit_call(canister, ANYONE, "call_bump", vec![]).unwrap();
    host.step();
    host.begin_stop_canister(canister, None).unwrap();
    assert_eq!(host.canister_status(canister, None).unwrap().status, Status::Stopping);
    assert_eq!(code(update(&host, canister, "bump", &[])), ErrorCode::CanisterStopping);
    host.stop_canister(canister, None).unwrap();
    assert_eq!(host.canister_status(canister, None).unwrap().status, Status::Stopped);
    let reply = host.await_call(id).unwrap();
    assert_eq!(numbers(&reply[..16]), [42, 5], "the call to itself was rejected because it was stopping");
}

#[test]
fn uninstalling_rejects_open_calls() {
    let (host, canister) = installed();
    let id = host.submit_call(canister, ANYONE, "call_bump", vec![]).unwrap();
    host.step();
    host.uninstall_canister(canister, None).unwrap();
    assert_eq!(code(host.await_call(id)), ErrorCode::CanisterRejectedMessage);
    while host.step() {}
    assert_eq!(code(update(&host, canister, "bump", &[])), ErrorCode::CanisterWasmModuleNotFound);
}

#[test]
fn storage_is_charged_and_low_balance_freezes() {
    let (host, canister) = installed();
    update(&host, canister, "grow", &[16_384]).unwrap();
    let before = host.cycle_balance(canister);
    host.advance_time(Duration::from_secs(1_000));
    let spent = before - host.cycle_balance(canister);
    assert!((127_000_000..127_100_000).contains(&spent), "{spent}");
    // 100 T pay for about 25 years of a GiB, without the cycles that must be left.
    let settings = CanisterSettings { freezing_threshold: Some(26 * 365 * 86_400), ..CanisterSettings::default() };
    host.update_canister_settings(canister, None, settings).unwrap();
    assert_eq!(code(update(&host, canister, "bump", &[])), ErrorCode::CanisterOutOfCycles);
    let reject = query(&host, canister, "state", &[]).unwrap_err();
    assert!(reject.reject_message.contains("frozen"), "{reject}");
    host.add_cycles(canister, 10_000_000_000_000);
    update(&host, canister, "bump", &[]).unwrap();
    let liquid = host.query_call(canister, ANYONE, "liquid", vec![]).unwrap();
    let liquid = u128::from_le_bytes(liquid.try_into().unwrap());
    let status = host.canister_status(canister, None).unwrap();
    assert_eq!(liquid, status.cycles - status.freezing_limit);
    assert_eq!(code(update(&host, canister, "grow", &[16_384])), ErrorCode::InsufficientCyclesInMemoryGrow);
    assert_eq!(code(update(&host, canister, "grow_heap", &[16_384])), ErrorCode::InsufficientCyclesInMemoryGrow);
    assert_eq!(state(&host, canister).stable_pages, 16_384);
    host.advance_time(Duration::from_secs(30 * 365 * 86_400));
    assert_eq!(host.cycle_balance(canister), 0);
    assert_eq!(
        host.canister_status(canister, None).unwrap().module_hash,
        None,
        "without cycles the canister is uninstalled"
    );
}

#[test]
fn growing_above_the_threshold_reserves_cycles() {
    let (host, canister) = half_full();
    let before = host.canister_status(canister, None).unwrap();
    assert_eq!((before.reserved_cycles, before.reserved_cycles_limit), (0, 5_000_000_000_000));
    update(&host, canister, "grow", &[256]).unwrap();
    let status = host.canister_status(canister, None).unwrap();
    // Half of 300 million seconds of 16 MiB, because the subnet is half full beyond the threshold.
    let reserved = 300_000_000 / 2 * 127_000 / 64;
    assert!(status.reserved_cycles.abs_diff(reserved) < reserved / 1_000, "{status:?}");
    assert!(before.cycles - status.cycles > status.reserved_cycles);
    assert_eq!(status.freezing_limit, 0, "the reserved cycles cover thirty days many times over");
    // The reserved cycles pay for storage first.
    host.advance_time(Duration::from_secs(100_000));
    let later = host.canister_status(canister, None).unwrap();
    assert_eq!(later.cycles, status.cycles);
    assert!(later.reserved_cycles < status.reserved_cycles);
    host.advance_time(Duration::from_secs(300_000_000));
    let last = host.canister_status(canister, None).unwrap();
    assert!(last.reserved_cycles == 0 && last.cycles < status.cycles, "{last:?}");
}

#[test]
fn growth_beyond_the_reservation_limit_traps() {
    let (host, canister) = half_full();
    // A reservation costs 19 T per GiB, so 5 T suffice for 268 MiB.
    update(&host, canister, "grow", &[4_096]).unwrap();
    let before = host.canister_status(canister, None).unwrap();
    let reject = update(&host, canister, "grow", &[256]).unwrap_err();
    assert_eq!(reject.error_code, ErrorCode::ReservedCyclesLimitExceededInMemoryGrow);
    assert_eq!(reject.error_code.to_string(), "IC0534");
    assert!(
        reject.reject_message.contains(
            "Canister cannot grow memory by 16777216 bytes due to its reserved cycles limit. The current limit \
             (5000000000000) would be exceeded by "
        ),
        "{reject}"
    );
    let status = host.canister_status(canister, None).unwrap();
    assert_eq!(
        (status.reserved_cycles, status.stable_memory_size),
        (before.reserved_cycles, before.stable_memory_size)
    );
    let more = CanisterSettings { reserved_cycles_limit: Some(50_000_000_000_000), ..CanisterSettings::default() };
    host.update_canister_settings(canister, None, more).unwrap();
    update(&host, canister, "grow", &[256]).unwrap();
    // The balance must cover the reservation, too.
    host.faults().low_cycles(canister, 1_300_000_000_000);
    let reject = update(&host, canister, "grow", &[8_192]).unwrap_err();
    assert_eq!(reject.error_code, ErrorCode::InsufficientCyclesInMemoryGrow);
    // With a limit of 0, memory does not grow while the subnet requires reservations.
    let none = CanisterSettings { reserved_cycles_limit: Some(0), ..CanisterSettings::default() };
    host.update_canister_settings(canister, None, none).unwrap();
    host.add_cycles(canister, 100_000_000_000_000);
    assert_eq!(code(update(&host, canister, "grow", &[1])), ErrorCode::ReservedCyclesLimitExceededInMemoryGrow);
    host.set_limits(Limits::default());
    update(&host, canister, "grow", &[256]).unwrap();
}

#[test]
fn timer_of_a_frozen_canister_waits() {
    let (host, canister) = installed();
    update(&host, canister, "set_timer", &[1]).unwrap();
    let balance = host.cycle_balance(canister);
    host.faults().low_cycles(canister, 1_000);
    assert!(!host.step());
    host.add_cycles(canister, balance);
    assert!(host.step());
    assert_eq!(state(&host, canister).firings, 1);
}

#[test]
fn checkpoint_includes_messages_in_flight() {
    let (host, canister) = installed();
    let id = host.submit_call(canister, ANYONE, "call_bump", vec![]).unwrap();
    host.step();
    let checkpoint = host.checkpoint();
    for _ in 0..2 {
        let reply = numbers(&host.await_call(id).unwrap());
        assert_eq!(reply[3..6], [2, 2, 2]);
        host.restore(&checkpoint);
        assert_eq!(state(&host, canister), bumped(1));
    }
    let other = Host::new();
    other.restore(&checkpoint);
    other.await_call(id).unwrap();
}

#[test]
fn stable_memory_can_be_read_and_set_from_outside() {
    let (host, canister) = installed();
    update(&host, canister, "bump", &[]).unwrap();
    let memory = host.get_stable_memory(canister);
    assert_eq!((memory.len(), memory[0]), (65_536, 1));
    host.set_stable_memory(canister, &bytes(&[9]));
    assert_eq!(state(&host, canister).stable, 9);
}
