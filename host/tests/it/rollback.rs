//! Rollback: a trap undoes everything, a query's changes are discarded, and growth can be refused.

use crate::common::*;
use ic_coppice_host::{CanisterSettings, ErrorCode, Host, Kind, Limits, Outcome};

#[test]
fn updates_change_heap_globals_and_stable_memory() {
    let (host, canister) = installed();
    for times in 1..4 {
        update(&host, canister, "bump", &[]).unwrap();
        assert_eq!(state(&host, canister), bumped(times));
    }
}

#[test]
fn trap_undoes_everything() {
    let (host, canister) = installed();
    update(&host, canister, "bump", &[]).unwrap();
    let before = host.canister_status(canister, None).unwrap();
    let reject = update(&host, canister, "bump_trap", &[]).unwrap_err();
    assert_eq!(reject.error_code, ErrorCode::CanisterCalledTrap);
    let expected = format!("Error from Canister {canister}: Canister called `ic0.trap` with message: 'boom'");
    assert!(reject.reject_message.starts_with(&expected), "{}", reject.reject_message);
    assert_eq!(state(&host, canister), bumped(1));
    let mut after = host.canister_status(canister, None).unwrap();
    assert!(after.cycles < before.cycles, "executed instructions are paid for");
    after.cycles = before.cycles;
    assert_eq!(after, before, "timer, certified data, version and sizes are as before");
    assert_eq!(host.pending_messages(), 0, "the call made before the trap is undone");
    let log: Vec<_> = host.fetch_canister_logs(canister).into_iter().map(|record| record.content).collect();
    let expected: [&[u8]; 3] = [b"started", b"bump", b"[TRAP]: Canister called `ic0.trap` with message: 'boom'"];
    assert_eq!(log, expected, "debug output stays");
    update(&host, canister, "bump", &[]).unwrap();
    assert_eq!(state(&host, canister), bumped(2));
}

#[test]
fn trap_undoes_the_growth_of_the_heap() {
    let (host, canister) = installed();
    update(&host, canister, "bump", &[]).unwrap();
    let reject = update(&host, canister, "grow_heap_trap", &[]).unwrap_err();
    assert_eq!(reject.error_code, ErrorCode::CanisterTrapped);
    assert!(reject.reject_message.ends_with("Canister trapped: unreachable"), "{}", reject.reject_message);
    assert_eq!(state(&host, canister), bumped(1));
    assert_eq!(update(&host, canister, "grow_heap", &[0]).unwrap(), [2]);
    let reject = update(&host, canister, "out_of_bounds", &[]).unwrap_err();
    assert!(reject.reject_message.ends_with("heap out of bounds"), "{}", reject.reject_message);
    assert_eq!(state(&host, canister), bumped(1));
}

#[test]
fn query_changes_nothing() {
    let (host, canister) = installed();
    update(&host, canister, "bump", &[]).unwrap();
    let seen = query(&host, canister, "bump_query", &[]).unwrap();
    assert_eq!(seen[..3], [2, 2, 2]);
    assert_eq!(state(&host, canister), bumped(1));
    // Called as an update, it is answered too, and its changes are discarded.
    let seen = update(&host, canister, "bump_query", &[]).unwrap();
    assert_eq!(seen[..3], [2, 2, 2]);
    assert_eq!(host.last_execution().unwrap().kind, Kind::ReplicatedQuery);
    assert_eq!(state(&host, canister), bumped(1));
}

#[test]
fn growth_beyond_a_limit_is_refused() {
    let (host, canister) = installed();
    host.set_limits(Limits { subnet_stable_pages: 10, ..Limits::default() });
    assert_eq!(update(&host, canister, "grow", &[8]).unwrap(), [0]);
    assert_eq!(update(&host, canister, "grow", &[3]).unwrap(), [u64::MAX]);
    assert_eq!(update(&host, canister, "grow", &[u64::MAX]).unwrap(), [u64::MAX]);
    let other = host.create_canister();
    host.install_canister(other, wasm(), vec![], None);
    assert_eq!(update(&host, other, "grow", &[3]).unwrap(), [u64::MAX], "the subnet is shared");
    assert_eq!(update(&host, other, "grow", &[2]).unwrap(), [0]);
    host.set_limits(Limits::default());
    assert_eq!(update(&host, canister, "grow", &[500 * 16_384 - 8 + 1]).unwrap(), [u64::MAX]);
}

#[test]
fn stable_api_of_32_bits_reaches_4_gib() {
    let (host, canister) = installed();
    assert_eq!(update(&host, canister, "grow32", &[65_537]).unwrap(), [u64::MAX]);
    assert_eq!(update(&host, canister, "grow32", &[65_536]).unwrap(), [0]);
    update(&host, canister, "grow", &[1]).unwrap();
    assert_eq!(code(update(&host, canister, "grow32", &[0])), ErrorCode::CanisterTrapped);
}

#[test]
fn stable_memory_of_500_gib_is_sparse() {
    let (host, canister) = installed();
    host.add_cycles(canister, 1 << 60);
    let pages = 500 * 16_384;
    assert_eq!(update(&host, canister, "grow", &[pages]).unwrap(), [0]);
    let last = pages * 65_536 - 16;
    update(&host, canister, "write", &[last, 16]).unwrap();
    assert_eq!(query(&host, canister, "read", &[last, 16]).unwrap(), [last], "the arguments were written");
    assert_eq!(query(&host, canister, "read", &[last / 2, 8]).unwrap(), [0]);
    assert_eq!(code(query(&host, canister, "read", &[last, 17])), ErrorCode::CanisterTrapped);
    assert_eq!(state(&host, canister).stable_pages, pages);
}

#[test]
fn distinct_pages_are_counted_and_charged() {
    let (host, canister) = installed();
    update(&host, canister, "grow", &[16]).unwrap();
    let counted = |offset, size| {
        let instructions = update(&host, canister, "write", &[offset, size]).unwrap()[0];
        let execution = host.last_execution().unwrap();
        assert_eq!(execution.stable_pages_read, 0);
        (instructions, execution.stable_pages_written)
    };
    let (one, pages) = counted(0, 4_096);
    assert_eq!(pages, 1);
    let (two, pages) = counted(1, 4_096);
    assert_eq!((pages, two - one), (2, 1_000));
    let (none, pages) = counted(0, 0);
    assert_eq!((pages, one - none), (0, 1_000 + 4_096));
    query(&host, canister, "read", &[4_095, 4_098]).unwrap();
    let execution = host.last_execution().unwrap();
    assert_eq!((execution.stable_pages_read, execution.stable_pages_written, execution.kind), (3, 0, Kind::Query));
    update(&host, canister, "bump", &[]).unwrap();
    let execution = host.last_execution().unwrap();
    assert_eq!((execution.stable_pages_read, execution.stable_pages_written), (1, 1));
    assert_eq!(execution.outcome, Outcome::Completed);
    assert!(execution.system_calls > 5);
}

#[test]
fn exceeding_the_stable_page_limit_traps() {
    let (host, canister) = installed();
    update(&host, canister, "grow", &[16]).unwrap();
    host.set_limits(Limits { update_stable_bytes: 2 * 4_096, query_stable_bytes: 4_096, ..Limits::default() });
    update(&host, canister, "write", &[0, 8_192]).unwrap();
    let refused = update(&host, canister, "write", &[0, 8_193]);
    assert_eq!(code(refused), ErrorCode::CanisterMemoryAccessLimitExceeded);
    assert_eq!(code(query(&host, canister, "read", &[4_000, 100])), ErrorCode::CanisterMemoryAccessLimitExceeded);
}

#[test]
fn exceeding_the_instruction_limit_traps() {
    let (host, canister) = installed();
    host.set_limits(Limits { update_instructions: 1_000_000, query_instructions: 100_000, ..Limits::default() });
    update(&host, canister, "bump", &[]).unwrap();
    let used = update(&host, canister, "spin", &[10_000]).unwrap()[0];
    assert_eq!(state(&host, canister), bumped(2));
    let one_more = update(&host, canister, "spin", &[10_001]).unwrap()[0];
    // An iteration has ten operators at 1, and `br_if` at 2.
    assert_eq!(one_more - used, 12);
    let reject = update(&host, canister, "spin", &[100_000]).unwrap_err();
    assert_eq!(reject.error_code, ErrorCode::CanisterInstructionLimitExceeded);
    assert!(reject.reject_message.contains("exceeded the limit of 1000000 instructions"), "{reject}");
    assert_eq!(host.last_execution().unwrap().instructions, 1_000_000);
    assert_eq!(state(&host, canister), bumped(3));
    query(&host, canister, "spin_query", &[1_000]).unwrap();
    assert_eq!(code(query(&host, canister, "spin_query", &[10_000])), ErrorCode::CanisterInstructionLimitExceeded);
}

#[test]
fn exceeding_the_heap_limit_traps() {
    let (host, canister) = installed();
    let settings = CanisterSettings { wasm_memory_limit: Some(10 * 65_536), ..CanisterSettings::default() };
    host.update_canister_settings(canister, None, settings).unwrap();
    assert_eq!(update(&host, canister, "grow_heap", &[8]).unwrap(), [2]);
    assert_eq!(code(update(&host, canister, "grow_heap", &[1])), ErrorCode::CanisterWasmMemoryLimitExceeded);
    assert_eq!(update(&host, canister, "grow_heap", &[0]).unwrap(), [10]);
}

#[test]
fn many_hosts_share_modules_across_threads() {
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let host = Host::new();
                let canister = host.create_canister();
                host.install_canister(canister, wasm(), vec![], None);
                update(&host, canister, "bump", &[]).unwrap();
                assert_eq!(state(&host, canister), bumped(1));
            });
        }
    });
}
