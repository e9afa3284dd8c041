//! Tests of every fault that can be injected.

use crate::common::*;
use ic_coppice_host::{ErrorCode, Host, INJECTED_FAULT, Kind, Outcome, TrapPoint};

fn is_injected(host: &Host) -> bool {
    match host.last_execution().unwrap().outcome {
        Outcome::Trapped { message, .. } => message.contains(INJECTED_FAULT),
        Outcome::Completed => false,
    }
}

#[test]
fn trap_message_traps_the_kth_message() {
    for point in [TrapPoint::Start, TrapPoint::End, TrapPoint::Instructions(50), TrapPoint::SystemCall(3)] {
        let (host, canister) = installed();
        host.faults().trap_message(2, point);
        update(&host, canister, "bump", &[]).unwrap();
        let reject = update(&host, canister, "bump", &[]).unwrap_err();
        assert!(reject.reject_message.contains(INJECTED_FAULT), "{point:?}: {reject}");
        assert_eq!(reject.error_code, ErrorCode::CanisterTrapped);
        assert!(is_injected(&host));
        assert_eq!(state(&host, canister), bumped(1), "{point:?}");
        update(&host, canister, "bump", &[]).unwrap();
        assert_eq!(state(&host, canister), bumped(2));
        assert_eq!(host.faults().injected(), 1);
    }
}

#[test]
fn trap_at_every_point_of_a_message_rolls_back() {
    let (host, canister) = installed();
    update(&host, canister, "bump", &[]).unwrap();
    let checkpoint = host.checkpoint();
    update(&host, canister, "bump", &[]).unwrap();
    let whole = host.last_execution().unwrap();
    let points = (0..whole.instructions)
        .step_by(97)
        .map(TrapPoint::Instructions)
        .chain((1..=whole.system_calls).map(TrapPoint::SystemCall));
    for point in points {
        host.restore(&checkpoint);
        host.faults().clear();
        host.faults().trap_every_message(point);
        let result = update(&host, canister, "bump", &[]);
        host.faults().clear();
        // Fuel is checked only at intervals, so one of the last points may be missed.
        if result.is_err() {
            assert_eq!(state(&host, canister), bumped(1), "{point:?}");
        } else {
            assert!(matches!(point, TrapPoint::Instructions(n) if n + 500 > whole.instructions), "{point:?}");
        }
        update(&host, canister, "bump", &[]).unwrap();
    }
    host.faults().trap_every_message(TrapPoint::SystemCall(whole.system_calls + 1));
    host.restore(&checkpoint);
    update(&host, canister, "bump", &[]).unwrap();
}

#[test]
fn queries_and_inspection_do_not_count_as_messages() {
    let (host, canister) = installed();
    let before = host.faults().messages();
    host.faults().trap_message(1, TrapPoint::End);
    state(&host, canister);
    update(&host, canister, "bump", &[]).unwrap_err();
    assert_eq!(host.faults().messages(), before + 1);
}

#[test]
fn callbacks_and_timers_can_trap() {
    let (host, canister) = installed();
    host.faults().trap_message(3, TrapPoint::End);
    update(&host, canister, "call_bump", &[]).unwrap_err();
    let executions = host.take_executions();
    assert_eq!(executions.last().unwrap().kind, Kind::Cleanup);
    assert_eq!(state(&host, canister).cleanup, 43);
    update(&host, canister, "set_timer", &[1]).unwrap();
    host.faults().trap_message(1, TrapPoint::Start);
    assert!(host.step());
    assert!(is_injected(&host));
    assert_eq!(state(&host, canister).firings, 0);
}

#[test]
fn growth_fault_refuses_or_traps() {
    let (host, canister) = installed();
    host.faults().refuse_growth(2);
    assert_eq!(update(&host, canister, "grow", &[1]).unwrap(), [0]);
    assert_eq!(update(&host, canister, "grow", &[1]).unwrap(), [u64::MAX]);
    assert_eq!(update(&host, canister, "grow", &[1]).unwrap(), [1]);
    host.faults().trap_growth(1);
    assert_eq!(code(update(&host, canister, "grow", &[1])), ErrorCode::InsufficientCyclesInMemoryGrow);
    assert_eq!(update(&host, canister, "grow", &[1]).unwrap(), [2]);
}

#[test]
fn low_cycles_takes_effect_between_messages() {
    let (host, canister) = installed();
    let id = host.submit_call(canister, ANYONE, "bump", vec![]).unwrap();
    host.faults().low_cycles(canister, 0);
    assert_eq!(code(host.await_call(id)), ErrorCode::CanisterOutOfCycles);
    assert_eq!(host.cycle_balance(canister), 0);
}

#[test]
fn upgrade_before_the_kth_message_is_executed_there() {
    for k in 1..=4 {
        let (host, canister) = installed();
        update(&host, canister, "bump", &[]).unwrap();
        host.faults().upgrade_before(k, canister, wasm(), vec![]);
        let reply = update(&host, canister, "call_bump", &[]).unwrap();
        assert_eq!(reply[5], 3, "stable memory is kept");
        // Heap and global start anew at the upgrade; its own `start` hook counts as a message.
        let expected = match k {
            1 => [2, 2],
            2 => [1, 1],
            _ => [3, 3],
        };
        assert_eq!(reply[3..5], expected, "k = {k}");
        update(&host, canister, "bump", &[]).unwrap();
        assert_eq!(host.faults().upgrade_results(), [Ok(())]);
        let expected = [3, 2, 1, 1][k as usize - 1];
        assert_eq!(state(&host, canister).heap, expected, "k = {k}");
    }
}

#[test]
fn upgrade_that_traps_changes_nothing() {
    let (host, canister) = installed();
    update(&host, canister, "bump", &[]).unwrap();
    host.faults().trap_message(1, TrapPoint::End);
    let reject = host.upgrade_canister(canister, wasm(), vec![], None).unwrap_err();
    assert!(reject.reject_message.contains(INJECTED_FAULT), "{reject}");
    assert_eq!(state(&host, canister), bumped(1));
}

/// A piece of work traps in whichever message it runs, identified by an access of stable memory that only it makes.
#[test]
fn trap_after_access_traps_every_message_with_the_access() {
    let (host, canister) = installed();
    update(&host, canister, "bump", &[]).unwrap();
    host.faults().watch_accesses();
    update(&host, canister, "bump", &[]).unwrap();
    let accesses = host.faults().take_accesses();
    assert!(accesses.iter().any(|access| access.writes), "{accesses:?}");
    assert!(host.faults().take_accesses().is_empty(), "recording has ended");
    for access in accesses {
        for n in 1.. {
            let before = state(&host, canister);
            host.faults().trap_after_access(access, n);
            let results = [(); 2].map(|()| update(&host, canister, "bump", &[]).is_ok());
            host.faults().clear();
            assert_eq!(results[0], results[1], "the same every time");
            if results[0] {
                assert!(n > 1, "the access itself traps");
                break;
            }
            assert_eq!(state(&host, canister), before, "{access:?}, {n}");
        }
    }
}
