//! Low cycles: growth that cannot be paid is refused, and timers that cannot be paid do not run. Only the embedded host can take cycles
//! away and fill a subnet.

use coppice_tests::blocks::{hash, plain, upload};
use coppice_tests::client::Answered;
use coppice_tests::coppice::{Coppice, Who, default_arg};
use coppice_tests::transactions::Tx;
use ic_coppice_host::{CanisterSettings, CanisterStatus, Host, Kind, Limits, Outcome};
use ic_coppice_interface::*;
use std::time::Duration;

const G: u128 = 1_000_000_000;
const T: u128 = 1_000 * G;
const DAY: u64 = 86_400;
/// Bytes of a body; two such bodies fill 4 MiB.
const BODY: usize = 1_900_000;

fn status(coppice: &Coppice, host: &Host) -> CanisterStatus {
    host.canister_status(coppice.id, Some(Who::Controller.principal())).unwrap()
}

/// Sets the balance to `liquid` cycles above the freezing threshold.
fn set_liquid(coppice: &Coppice, host: &Host, liquid: u128) {
    let balance = status(coppice, host).freezing_limit + liquid;
    let now = host.cycle_balance(coppice.id);
    if balance > now {
        host.add_cycles(coppice.id, balance - now);
    } else {
        host.faults().low_cycles(coppice.id, balance);
    }
}

fn settings(coppice: &Coppice, host: &Host, settings: CanisterSettings) {
    host.update_canister_settings(coppice.id, Some(Who::Controller.principal()), settings).unwrap();
}

fn configure(coppice: &Coppice, change: ConfigChange) -> Result<Config, ConfigError> {
    coppice.operator().set_config(&change).answer()
}

/// The problems, without the warning that an upgrade could not be paid.
fn problems(coppice: &Coppice) -> Vec<ProblemCode> {
    let health = coppice.health();
    health.problems.iter().filter_map(Problem::known).filter(|code| *code != ProblemCode::UpgradeUnpaid).collect()
}

/// A canister that accepts blocks however few cycles it has, and prunes down to 100 G.
fn without_feed_limit() -> (Coppice, std::sync::Arc<Host>) {
    let (coppice, host) = Coppice::embedded(default_arg());
    let low =
        ConfigChange { min_liquid_cycles: Some(100 * G), feed_min_liquid_cycles: Some(1), ..ConfigChange::default() };
    configure(&coppice, low).unwrap();
    (coppice, host)
}

/// A canister of more than 64 MiB whose next block needs memory to grow, and that block.
fn full() -> (Coppice, std::sync::Arc<Host>, AppendBlock) {
    let (coppice, host) = without_feed_limit();
    for number in 0.. {
        let (checkpoint, billed) = (host.checkpoint(), coppice.storage().billed_bytes);
        let block = plain(number, 1, BODY);
        coppice.append(&block).unwrap();
        if billed >= 64 << 20 && coppice.storage().billed_bytes > billed {
            let grown = coppice.storage().billed_bytes - billed;
            assert!((4 << 20..5 << 20).contains(&grown), "a block, which is a sixteenth: {grown}");
            host.restore(&checkpoint);
            return (coppice, host, block);
        }
        assert!(number < 60, "memory must have to grow");
    }
    unreachable!()
}

fn trapped(host: &Host) -> Vec<String> {
    let trap = |outcome| match outcome {
        Outcome::Completed => None,
        Outcome::Trapped { message, .. } => Some(message),
    };
    host.take_executions().into_iter().filter_map(|execution| trap(execution.outcome)).collect()
}

/// With every freezing threshold, around the edge: the answer is Ok or names what is missing, and is never a trap.
#[test]
fn growth_that_cannot_be_paid_is_refused_with_the_missing_cycles() {
    let (coppice, host, block) = full();
    let base = host.checkpoint();
    for days in [0, 30, 180, 1_000, 3_650] {
        host.restore(&base);
        let secs = days * DAY;
        settings(&coppice, &host, CanisterSettings { freezing_threshold: Some(secs), ..CanisterSettings::default() });
        // The price learned under another threshold has expired.
        coppice.pass(601);
        let checkpoint = host.checkpoint();
        // 4 MiB, and two calls of a timer on top of this message and its bytes.
        let price = 127_000 * u128::from(secs) / 256;
        let edge = price + 84 * G + 40 * G + 4 * G;
        let mut refused = 0;
        let mut grown = 0;
        for percent in [34, 50, 70, 90, 95, 98, 99, 101, 102, 105, 120, 200] {
            host.restore(&checkpoint);
            set_liquid(&coppice, &host, edge * percent / 100);
            host.take_executions();
            let (before, billed) = (coppice.head(), coppice.storage().billed_bytes);
            let answer = coppice.producer().append_block(&block).try_answer();
            assert_eq!(trapped(&host), Vec::<String>::new(), "{days} days, {percent} %");
            match answer {
                Ok(Ok(())) => grown += 1,
                Ok(Err(AppendError::NoMemory(NoMemory::LowCycles { missing }))) => {
                    refused += 1;
                    let page = coppice.storage().billed_bytes - billed;
                    assert!(coppice.head() == before && page <= 64 << 10, "{page} bytes, {:?}", coppice.head());
                    assert!(problems(&coppice).contains(&ProblemCode::GrowthUnpaid), "{:?}", problems(&coppice));
                    if days == 180 {
                        // The canister knows the price under a threshold at which it has grown before. The cost of the message itself comes
                        // on top.
                        host.add_cycles(coppice.id, missing - G / 10);
                        let again = coppice.append(&block);
                        assert!(
                            matches!(again, Err(AppendError::NoMemory(NoMemory::LowCycles { missing: 1.. }))),
                            "{again:?}"
                        );
                        host.add_cycles(coppice.id, 10 * G);
                    } else {
                        host.add_cycles(coppice.id, missing + 10 * G);
                    }
                    assert_eq!(coppice.append(&block), Ok(()), "{days} days, {percent} %: {missing}");
                }
                Ok(Err(other)) => panic!("{other:?}"),
                // The cycles do not suffice even for a message.
                Err(reject) => assert_eq!(reject.error_code, "IC0207", "{reject:?}"),
            }
        }
        assert!(refused > 2 && grown > 2, "{days} days: {refused} refused, {grown} grown");
    }
}

#[test]
fn health_warns_before_appends_are_refused_for_low_cycles() {
    let (coppice, host, block) = full();
    assert_eq!(problems(&coppice), []);
    // 4 MiB cost 8 G, 64 MiB sixteen times that.
    set_liquid(&coppice, &host, 200 * G);
    coppice.ic.tick();
    assert!(problems(&coppice).contains(&ProblemCode::GrowthUnpaid), "{:?}", problems(&coppice));
    assert_eq!(coppice.append(&block), Ok(()));
    host.add_cycles(coppice.id, T);
    coppice.ic.tick();
    assert_eq!(problems(&coppice), []);
}

/// A canister on a nearly full subnet: 4 MiB reserve 0.15 T.
fn on_a_full_subnet() -> (Coppice, std::sync::Arc<Host>, AppendBlock) {
    let (coppice, host, block) = full();
    let gib = 1 << 30;
    host.set_limits(Limits {
        subnet_reservation_bytes: 100 * gib,
        subnet_bytes: 200 * gib,
        subnet_bytes_elsewhere: 198 * gib,
        ..Limits::default()
    });
    (coppice, host, block)
}

fn reserved_limit(coppice: &Coppice, host: &Host, cycles: u128) {
    let limit = Some(cycles);
    settings(coppice, host, CanisterSettings { reserved_cycles_limit: limit, ..CanisterSettings::default() });
}

#[test]
fn the_reservation_limit_is_not_exceeded() {
    let (coppice, host, block) = on_a_full_subnet();
    host.take_executions();
    let (mut number, mut reported) = (block.number, None);
    let missing = loop {
        if reported.is_none() && problems(&coppice).contains(&ProblemCode::ReservationLimit) {
            reported = Some(number);
        }
        match coppice.append(&plain(number, 1, BODY)) {
            Ok(()) => number += 1,
            Err(AppendError::NoMemory(NoMemory::ReservedCyclesLimit { missing })) => break missing,
            Err(other) => panic!("{other:?}"),
        }
        assert!(number < block.number + 200, "5 T are reserved at some time: {:?}", status(&coppice, &host));
    };
    assert!(reported.is_some_and(|reported| reported < number), "{reported:?} of {number}");
    let reserved = status(&coppice, &host).reserved_cycles;
    assert!(reserved > 4 * T && missing < T, "{reserved}, {missing}");
    assert_eq!(trapped(&host), Vec::<String>::new());
    // The refusal is the same after an upgrade.
    coppice.upgrade();
    assert!(matches!(
        coppice.append(&plain(number, 1, BODY)),
        Err(AppendError::NoMemory(NoMemory::ReservedCyclesLimit { .. }))
    ));
    // The operator raises the limit on the platform, and then in the settings.
    reserved_limit(&coppice, &host, 20 * T);
    let change = ConfigChange { reserved_cycles_limit: Some(20 * T), ..ConfigChange::default() };
    assert_eq!(configure(&coppice, change).unwrap().reserved_cycles_limit, 20 * T);
    assert!(!problems(&coppice).contains(&ProblemCode::ReservationLimit), "{:?}", problems(&coppice));
    assert_eq!(coppice.append(&plain(number, 1, BODY)), Ok(()));
    // The reserved cycles must be available besides the cost of storage.
    set_liquid(&coppice, &host, 200 * G);
    let refused = (number + 1..number + 30).find_map(|number| coppice.append(&plain(number, 1, BODY)).err());
    assert!(matches!(refused, Some(AppendError::NoMemory(NoMemory::LowCycles { missing: 1.. }))), "{refused:?}");
    assert_eq!(trapped(&host), Vec::<String>::new());
}

/// The cycles that a block of a list reserves are missing for the next one.
#[test]
fn each_block_of_a_list_is_admitted_by_the_cycles_that_are_left() {
    let (coppice, host, block) = on_a_full_subnet();
    let next = plain(block.number + 1, 1, 10);
    let feed_min = ConfigChange { feed_min_liquid_cycles: Some(10 * T), ..ConfigChange::default() };
    configure(&coppice, feed_min).unwrap();
    // Set after the message has set cycles aside.
    set_liquid(&coppice, &host, 10 * T + 5 * G);
    let list = vec![block.clone(), next.clone()];
    let answer: AppendedBlocks = coppice.producer().append_blocks(&list).answer();
    let low = |stop: &AppendStop| {
        matches!(stop, AppendStop::Refused(AppendError::NoMemory(NoMemory::LowCycles { missing: 1.. })))
    };
    assert!(answer.next == next.number && answer.stopped.as_ref().is_some_and(low), "{answer:?}");
    assert_eq!(coppice.head(), Some(block.number));
    host.add_cycles(coppice.id, T);
    let answer: AppendedBlocks = coppice.producer().append_blocks(&list).answer();
    assert_eq!(answer, AppendedBlocks { next: next.number + 1, stopped: None });
}

/// The canister cannot read the platform's reservation limit: if its setting is higher, the platform traps, and nothing changes.
#[test]
fn a_setting_above_the_platforms_limit_traps_and_changes_nothing() {
    let (coppice, host, block) = on_a_full_subnet();
    reserved_limit(&coppice, &host, 0);
    let (chain, billed) = (coppice.head(), coppice.storage().billed_bytes);
    for _ in 0..3 {
        let reject = coppice.producer().append_block(&block).try_answer().unwrap_err();
        assert_eq!(reject.error_code, "IC0534", "{reject:?}");
        assert_eq!((coppice.head(), coppice.storage().billed_bytes), (chain, billed));
    }
    host.take_executions();
    (0..360).for_each(|_| coppice.pass(10));
    assert_eq!(trapped(&host), Vec::<String>::new(), "no timer has anything to do with it");
    reserved_limit(&coppice, &host, 5 * T);
    assert_eq!(coppice.append(&block), Ok(()));
}

#[test]
fn node_count_and_reservation_limit_are_settings() {
    let arg = InitArg { nodes: Some(34), reserved_cycles_limit: Some(7 * T), ..default_arg() };
    let coppice = Coppice::with(arg);
    let config: Config = coppice.anyone().get_config().answer();
    assert_eq!((config.nodes, config.reserved_cycles_limit), (34, 7 * T));
    for (nodes, fits) in [(0, false), (1, true), (1_000, true), (1_001, false), (u32::MAX, false), (13, true)] {
        let change = ConfigChange { nodes: Some(nodes), ..ConfigChange::default() };
        let answer = configure(&coppice, change);
        assert_eq!(answer.is_ok(), fits, "{nodes}: {answer:?}");
    }
    for limit in [0, 1, u128::MAX] {
        let change = ConfigChange { reserved_cycles_limit: Some(limit), ..ConfigChange::default() };
        assert_eq!(configure(&coppice, change).unwrap().reserved_cycles_limit, limit);
        assert_eq!(coppice.append(&plain(0, 1, 10)), Ok(()), "without a reservation the limit does not matter");
    }
    coppice.upgrade();
    let config: Config = coppice.anyone().get_config().answer();
    assert_eq!((config.nodes, config.reserved_cycles_limit), (13, u128::MAX));
    let default: Config = Coppice::new().anyone().get_config().answer();
    assert_eq!((default.nodes, default.reserved_cycles_limit), (13, 5 * T));
}

/// The number of firings of the platform's timer, and of calls of a timer's work.
fn firings(host: &Host) -> (usize, usize) {
    let all = host.take_executions();
    let of = |kind| all.iter().filter(|execution| execution.kind == kind).count();
    (of(Kind::Timer), of(Kind::Update))
}

fn with_work() -> (Coppice, std::sync::Arc<Host>) {
    let (coppice, host) = without_feed_limit();
    coppice.append_plain(0..20, 10);
    let policy = PrunePolicyArg { retain_blocks: Some(5), min_kept_blocks: Some(0), ..PrunePolicyArg::default() };
    coppice.set_policy(policy).unwrap();
    (coppice, host)
}

/// `ic-cdk-timers` fires a timer that the balance cannot pay in each round. Therefore the daemon stops its timers before that point, and
/// the next message stops a timer that has reached it.
#[test]
fn a_timer_that_cannot_be_paid_fires_each_round_until_a_message_stops_it() {
    let (coppice, host) = with_work();
    // The balance can pay a firing, which sets 40 G aside, but not the call that the firing makes.
    set_liquid(&coppice, &host, 70 * G);
    coppice.ic.tick();
    coppice.ic.advance_time(Duration::from_secs(60));
    host.take_executions();
    (0..50).for_each(|_| coppice.ic.tick());
    assert_eq!(firings(&host), (50, 0), "a firing each round, and no work");
    // Any message of a caller with a role stops the timer.
    coppice.operator().acknowledge_faults(0u64).answer();
    host.take_executions();
    for _ in 0..36 {
        coppice.pass(600);
    }
    assert!(firings(&host).0 <= 1, "the one that was under way");
    assert!(problems(&coppice).contains(&ProblemCode::TimersStopped), "{:?}", problems(&coppice));
    // A canister is not notified of new cycles: the next message notices them.
    host.add_cycles(coppice.id, 100 * T);
    for _ in 0..6 {
        coppice.pass(600);
    }
    assert_eq!((firings(&host).0, coppice.prune_status().pruned_before_block), (0, 0));
    coppice.append_plain(20..21, 10);
    coppice.pass(60);
    assert_eq!(coppice.prune_status().pruned_before_block, 15);
    coppice.pass(600);
    assert!(firings(&host).0 >= 2, "the safety timer fires again");
    assert_eq!(problems(&coppice), []);
}

/// As messages use up the cycles, the timers stop before they can no longer be paid.
#[test]
fn timers_stop_before_they_cannot_be_paid() {
    let (coppice, host) = with_work();
    coppice.pass(60);
    set_liquid(&coppice, &host, 180 * G);
    coppice.ic.tick();
    let mut number = 20;
    // Each message brings 200 kB, which cost 0.4 G.
    while coppice.producer().append_block(&plain(number, 1, 200_000)).try_answer().is_ok() {
        host.take_executions();
        coppice.ic.advance_time(Duration::from_secs(10));
        (0..5).for_each(|_| coppice.ic.tick());
        let (fired, worked) = firings(&host);
        assert!(fired <= 2 && worked + 1 >= fired, "block {number}: {fired} firings, {worked} with work");
        number += 1;
        assert!(number < 2_000);
    }
    assert!(number > 100, "{number}");
    host.take_executions();
    for _ in 0..36 {
        coppice.pass(600);
    }
    assert_eq!(firings(&host), (0, 0));
    // An upgrade arms no timer either.
    set_liquid(&coppice, &host, 350 * G);
    coppice.upgrade();
    set_liquid(&coppice, &host, 70 * G);
    coppice.operator().acknowledge_faults(0u64).answer();
    host.take_executions();
    (0..6).for_each(|_| coppice.pass(600));
    assert!(firings(&host).0 <= 1);
}

/// An upgrade sets more cycles aside than a message does: the daemon must not read that as low cycles.
#[test]
fn timers_keep_firing_after_an_upgrade() {
    let (coppice, host) = with_work();
    set_liquid(&coppice, &host, 345 * G);
    coppice.upgrade();
    coppice.pass(60);
    assert_eq!(coppice.prune_status().pruned_before_block, 14);
}

#[test]
fn below_min_liquid_cycles_only_the_safety_timer_fires() {
    let (coppice, host) = with_work();
    let floor = |cycles: u128| {
        let change = ConfigChange { min_liquid_cycles: Some(cycles), ..ConfigChange::default() };
        configure(&coppice, change).unwrap();
    };
    floor(u128::MAX);
    host.take_executions();
    for _ in 0..360 {
        coppice.pass(10);
    }
    let (fired, worked) = firings(&host);
    assert!(fired <= 7 && worked == 6, "once in ten minutes, and the timers set before: {fired}, {worked}");
    let status = coppice.prune_status();
    assert_eq!((status.pruned_before_block, status.held_by), (0, Some(HeldBy::LowCycles)));
    // Appends continue and arm no timer.
    coppice.append_plain(20..40, 10);
    host.take_executions();
    (0..59).for_each(|_| coppice.pass(10));
    assert!(firings(&host).0 <= 1);
    floor(0);
    coppice.pass(60);
    assert_eq!(coppice.prune_status().pruned_before_block, 34);
}

/// Low cycles stop pruning, but not the end of what was begun.
#[test]
fn below_min_liquid_cycles_expired_uploads_and_rollbacks_still_end() {
    let (coppice, _) = with_work();
    let floor = |cycles: u128| {
        let change = ConfigChange { min_liquid_cycles: Some(cycles), ..ConfigChange::default() };
        configure(&coppice, change).unwrap();
    };
    let tx = Tx::orphan(1, 3);
    let begin = BeginTransaction { txid: tx.id(), length: tx.raw.len() as u64, chunk_size: 64 << 10 };
    coppice.producer().utxo_begin_transaction(&begin).answer().unwrap();
    let (begin, _) = upload(&plain(20, 1, 1_000), 600);
    coppice.producer().begin_block(&begin).answer().unwrap();
    floor(u128::MAX);
    (0..5).for_each(|_| coppice.pass(600));
    let uploads = coppice.anyone().list_uploads().answer();
    assert!(uploads.block.is_none() && uploads.transactions.is_some_and(|open| open.is_empty()));
    // One block a message.
    let slow = PrunePolicyArg { max_ops_per_tick: Some(1), ..PrunePolicyArg::default() };
    coppice.operator().set_prune_policy(&slow).answer().unwrap();
    assert!(coppice.producer().rollback_to(15u64, None).answer().unwrap().has_more);
    (0..20).for_each(|_| coppice.pass(600));
    assert_eq!(coppice.head(), Some(15));
    let status = coppice.prune_status();
    assert_eq!((status.pruned_before_block, status.held_by), (0, Some(HeldBy::LowCycles)));
}

/// A policy by age under which 20 blocks become due after a day, with a freezing threshold of `days` days.
fn by_age(min: u128, days: u64) -> (Coppice, std::sync::Arc<Host>) {
    let (coppice, host) = without_feed_limit();
    settings(&coppice, &host, CanisterSettings { freezing_threshold: Some(days * DAY), ..CanisterSettings::default() });
    configure(
        &coppice,
        ConfigChange { min_liquid_cycles: Some(min), max_head_age_secs: Some(0), ..ConfigChange::default() },
    )
    .unwrap();
    for number in 0..20 {
        coppice.append(&AppendBlock { timestamp_secs: u64::MAX, ..plain(number, 3, 1) }).unwrap();
    }
    let policy = PrunePolicyArg { retain_days: Some(1), min_kept_blocks: Some(0), ..PrunePolicyArg::default() };
    coppice.set_policy(policy).unwrap();
    (coppice, host)
}

/// At every balance: either due blocks are pruned, or `health` names missing cycles as the reason.
#[test]
fn due_blocks_are_pruned_or_health_reports_missing_cycles() {
    let (mut pruned, mut reported) = (0, 0);
    for (min, liquid, days) in [
        (100, 90, 180),
        (100, 125, 180),
        (100, 130, 180),
        (100, 150, 30),
        (100, 180, 30),
        (100, 205, 30),
        (1_000, 990, 180),
        (1_000, 1_005, 180),
        (1_000, 1_030, 30),
        (1_000, 1_060, 180),
        (1_000, 1_100, 180),
    ] {
        let (coppice, host) = by_age(min * G, days);
        coppice.producer().utxo_set_block_assembly_state(UtxoBlockAssemblyState::Running, None).answer();
        coppice.producer().utxo_notify_block(1_000, true).answer().unwrap();
        // An interval timer makes one call for each missed firing, and each call sets cycles aside: the last firings are on time.
        for secs in [601; 160].into_iter().chain([10; 30]) {
            set_liquid(&coppice, &host, liquid * G);
            coppice.pass(secs);
        }
        set_liquid(&coppice, &host, liquid * G);
        coppice.ic.tick();
        let (status, problems) = (coppice.prune_status(), problems(&coppice));
        let why = format!("at least {min} G, {liquid} G liquid, {days} days: {status:?} {problems:?}");
        let missing = problems.contains(&ProblemCode::CyclesLow) || problems.contains(&ProblemCode::TimersStopped);
        assert_eq!(missing, status.pruned_blocks == 0, "{why}");
        assert_eq!(status.held_by, missing.then_some(HeldBy::LowCycles), "{why}");
        let job = coppice.anyone().utxo_get_pruner_status().answer();
        assert_eq!(job.pending.is_some() || job.running.is_some(), missing, "{why}: {job:?}");
        if missing { reported += 1 } else { pruned += 1 }
    }
    assert!(pruned > 3 && reported > 3, "{pruned} pruned, {reported} reported");
}

/// Stopped timers stay stopped after a top-up until a caller with a role calls, and `health` reports that until then.
#[test]
fn health_reports_stopped_timers_after_a_top_up() {
    let (coppice, host) = by_age(100 * G, 180);
    set_liquid(&coppice, &host, 110 * G);
    coppice.pass(700);
    set_liquid(&coppice, &host, 110 * G);
    coppice.ic.tick();
    assert!(problems(&coppice).contains(&ProblemCode::TimersStopped));
    let action = || {
        let problems = coppice.health().problems;
        let of = |problem: &Problem| problem.known() == Some(ProblemCode::TimersStopped);
        problems.into_iter().find(of).unwrap().action
    };
    assert!(action().contains("icp canister top-up") && action().contains("acknowledge_faults"), "{}", action());
    set_liquid(&coppice, &host, 100 * T);
    assert!(!action().contains("top-up") && action().contains("acknowledge_faults"), "{}", action());
    for _ in 0..200 {
        coppice.pass(700);
    }
    assert_eq!(coppice.prune_status().pruned_blocks, 0);
    assert_eq!(problems(&coppice), [ProblemCode::TimersStopped]);
    coppice.operator().acknowledge_faults(0u64).answer();
    coppice.pass(700);
    coppice.pass(700);
    assert_eq!(problems(&coppice), []);
    assert!(coppice.prune_status().pruned_blocks > 0);
}

/// While pruning is paused for low cycles, a refused append names that reason; otherwise no append is refused.
#[test]
fn append_refused_while_pruning_is_paused_names_low_cycles() {
    for (liquid, paused) in [(990, true), (1_020, false), (1_060, false)] {
        let (coppice, host) = without_feed_limit();
        configure(&coppice, ConfigChange { min_liquid_cycles: Some(T), ..ConfigChange::default() }).unwrap();
        let policy = PrunePolicyArg { target_bytes: Some(2_000_000), min_kept_blocks: Some(0), ..Default::default() };
        coppice.set_policy(policy).unwrap();
        let mut refused = Vec::new();
        for _ in 0..200 {
            set_liquid(&coppice, &host, liquid * G);
            let next = coppice.head().map_or(0, |head| head + 1);
            refused.extend(coppice.append(&plain(next, 3, 60_000)).err());
            set_liquid(&coppice, &host, liquid * G);
            coppice.pass(60);
        }
        assert_eq!(!refused.is_empty(), paused, "{liquid} G: {refused:?}");
        let low = AppendError::CapacityExhausted { held_by: HeldBy::LowCycles };
        assert!(refused.iter().all(|error| *error == low), "{liquid} G: {refused:?}");
    }
}

/// The same balance gives the same answer.
#[test]
fn health_as_an_update_equals_health_as_a_query() {
    let (coppice, host) = without_feed_limit();
    configure(&coppice, ConfigChange { min_liquid_cycles: Some(T), ..ConfigChange::default() }).unwrap();
    for (liquid, low) in [(990, true), (1_005, false), (1_030, false), (1_060, false)] {
        set_liquid(&coppice, &host, liquid * G);
        coppice.operator().acknowledge_faults(0u64).answer();
        set_liquid(&coppice, &host, liquid * G);
        coppice.ic.tick();
        let query = problems(&coppice);
        let bytes = candid::encode_args(()).unwrap();
        let update = coppice.ic.update(coppice.id, Who::Controller.principal(), "health", bytes).unwrap();
        let update: Health = candid::decode_one(&update).unwrap();
        let update = update.problems.iter().filter_map(Problem::known);
        let update = update.filter(|code| !code.is_of_set_up() && *code != ProblemCode::UpgradeUnpaid);
        assert_eq!(query, update.collect::<Vec<_>>(), "{liquid} G");
        assert_eq!(query.contains(&ProblemCode::CyclesLow), low, "{liquid} G");
    }
}

/// Blocks may not use up the cycles that pruning needs: feeding calls are refused while the daemon still prunes.
#[test]
fn feeding_is_refused_for_low_cycles_while_pruning_continues() {
    let (coppice, host) = Coppice::embedded(default_arg());
    // 30 days of one firing a minute plus the safety timer, above `min_liquid_cycles`.
    let by_default = Config::default().min_liquid_cycles + cycles_of_ticks(60, 30 * DAY, 13);
    assert!((T..12 * T / 10).contains(&by_default), "{by_default}");
    coppice.append_plain(0..20, 10);
    let policy = PrunePolicyArg { retain_blocks: Some(5), min_kept_blocks: Some(0), ..PrunePolicyArg::default() };
    coppice.set_policy(policy).unwrap();
    let (begin, chunks) = upload(&plain(20, 3, 5_000), 4_000);
    coppice.producer().begin_block(&begin).answer().unwrap();
    for (chunk, bytes) in (0..).zip(chunks) {
        coppice.put(20, chunk, bytes).unwrap();
    }
    coppice.ic.tick();
    set_liquid(&coppice, &host, by_default - 50 * G);
    let is_missing = |missing: u128| (45 * G..60 * G).contains(&missing);
    let low = |answer: Result<(), AppendError>| matches!(answer, Err(AppendError::NoMemory(NoMemory::LowCycles { missing })) if is_missing(missing));
    let commit = coppice.producer().commit_block(&BlockId { number: 20, hash: hash(20).into() }).answer();
    assert!(
        matches!(&commit, Err(UploadError::Append(AppendError::NoMemory(NoMemory::LowCycles { missing }))) if is_missing(*missing)),
        "{commit:?}"
    );
    coppice.producer().abort_block(20).answer().unwrap();
    assert!(low(coppice.append(&plain(20, 1, 10))));
    assert!(low(coppice.producer().begin_block(&begin).answer().map(|_| ())));
    assert_eq!(coppice.append(&plain(19, 3, 10)), Ok(()), "a kept block needs no cycles");
    let items = vec![Tx::orphan(1, 2).record()];
    let created = coppice.producer().utxo_create(&UtxoCreateBatch { height: 1, items }).answer();
    assert!(
        matches!(&created.results[..], [Err(UtxoCreateError::NoMemory(NoMemory::LowCycles { missing }))] if is_missing(*missing)),
        "{created:?}"
    );
    let name = BlobName { blob_key: vec![7].into(), file_type: "tx".into(), store_type: StoreType::Tx };
    let scheduled =
        coppice.producer().schedule_blob_deletion(&ScheduleBlobDeletion { name, delete_at_height: 1 }).answer();
    assert!(
        matches!(&scheduled, Err(BlobDeletionError::NoMemory(NoMemory::LowCycles { missing })) if is_missing(*missing)),
        "{scheduled:?}"
    );
    assert_eq!((coppice.head(), coppice.storage().utxo.unwrap().records), (Some(19), 0));
    assert_eq!(problems(&coppice), [ProblemCode::FeedingRefused]);
    // The cycles still suffice for pruning.
    coppice.pass(60);
    assert_eq!((coppice.prune_status().pruned_before_block, coppice.prune_status().held_by), (14, None));
    // A longer interval needs fewer cycles for ticks; a configured minimum replaces the computed one.
    coppice.set_policy(PrunePolicyArg { timer_interval_secs: Some(600), ..PrunePolicyArg::default() }).unwrap();
    assert_eq!(problems(&coppice), []);
    assert_eq!(coppice.append(&plain(20, 1, 10)), Ok(()));
    configure(&coppice, ConfigChange { feed_min_liquid_cycles: Some(u128::MAX), ..ConfigChange::default() }).unwrap();
    assert!(matches!(coppice.append(&plain(21, 1, 10)), Err(AppendError::NoMemory(NoMemory::LowCycles { .. }))));
    coppice.upgrade();
    assert!(matches!(coppice.append(&plain(21, 1, 10)), Err(AppendError::NoMemory(NoMemory::LowCycles { .. }))));
    configure(&coppice, ConfigChange { feed_min_liquid_cycles: Some(1), ..ConfigChange::default() }).unwrap();
    assert_eq!((coppice.append(&plain(21, 1, 10)), problems(&coppice)), (Ok(()), vec![]));
}
