//! The problems of `health`, by code: each is raised and cleared. Problems that need a fault, low cycles or a run of the pruner are tested
//! in `cycles`, `traps` and `pruner`.

mod deletions;
mod head;
mod records;
mod uploads;

use coppice_tests::blocks::{hash, plain, upload};
use coppice_tests::client::Answered;
use coppice_tests::coppice::{Coppice, LOG_CLASS, Who, default_arg};
use ic_coppice_host::TrapPoint;
use ic_coppice_interface::*;
use std::time::Duration;

const NS: u64 = 1_000_000_000;

/// `health` without the notice about `max_height_jump`, which is raised on every canister with a notified height and default settings.
fn health(coppice: &Coppice) -> Health {
    let mut health = coppice.health();
    health.problems.retain(|problem| problem.code != ProblemCode::HeightJumpWide);
    health
}

fn found(coppice: &Coppice, code: ProblemCode) -> Option<Problem> {
    health(coppice).problems.into_iter().find(|problem| problem.code == code)
}

/// Asserts that a problem is raised with this severity and text. Returns the problem.
fn raised(coppice: &Coppice, code: ProblemCode, severity: Severity, says: &str) -> Problem {
    let health = health(coppice);
    let problem = health.problems.iter().find(|problem| problem.code == code);
    let problem = problem.unwrap_or_else(|| panic!("{code:?} is not raised: {health:?}")).clone();
    assert!(problem.severity == severity && problem.message.contains(says), "{problem:?}");
    let is_past = problem.since_ns.is_none_or(|since| since <= health.time_ns && since > 0);
    assert!(problem.action.ends_with('.') && is_past, "{problem:?}");
    let worst = health.problems.iter().map(|problem| problem.severity).min();
    assert_eq!(health.healthy, worst == Some(Severity::Notice));
    assert_eq!(health.problems[0].severity, worst.unwrap(), "the worst problem is first");
    problem
}

fn cleared(coppice: &Coppice, code: ProblemCode) {
    assert_eq!(found(coppice, code), None);
}

/// The dashboard's HTML.
fn page(coppice: &Coppice) -> String {
    page_at(coppice, "/")
}

/// The page with this URL.
fn page_at(coppice: &Coppice, url: &str) -> String {
    let request = HttpRequest {
        method: "GET".into(),
        url: url.into(),
        headers: Vec::new(),
        body: Default::default(),
        certificate_version: None,
    };
    String::from_utf8(coppice.anyone().http_request(&request).answer().body.into_vec()).unwrap()
}

fn policy(change: PrunePolicyArg) -> PrunePolicyArg {
    PrunePolicyArg { min_kept_blocks: Some(0), ..change }
}

fn enable(coppice: &Coppice, enabled: bool) {
    coppice
        .operator()
        .set_prune_policy(&PrunePolicyArg { pruning_enabled: Some(enabled), ..PrunePolicyArg::default() })
        .answer()
        .unwrap();
}

fn configure(coppice: &Coppice, change: ConfigChange) {
    coppice.operator().set_config(&change).answer().unwrap();
}

#[test]
fn a_new_canister_has_no_problems() {
    let coppice = Coppice::new();
    let health = health(&coppice);
    assert_eq!((health.healthy, health.problems), (true, vec![]));
}

/// A canister without setup is healthy: its page names what is missing, and the commands to type.
#[test]
fn missing_setup_is_no_problem_and_names_the_commands() {
    let coppice = Coppice::with(InitArg::default());
    let missing = || -> Vec<String> {
        let health = coppice.anyone().health().answer();
        assert!(health.healthy);
        for problem in &health.problems {
            let command = format!("`icp canister call -n ic {} ", coppice.id);
            assert!(problem.severity == Severity::Notice && problem.action.contains(&command), "{problem:?}");
        }
        health.problems.into_iter().map(|problem| problem.code).collect()
    };
    let is_new = || page(&coppice).contains("<h1>Not all is set up</h1>");
    assert_eq!((missing(), is_new()), (["NoProducer", "NoExporter", "NoPolicy"].map(String::from).to_vec(), true));
    assert!(page(&coppice).contains("set_prune_policy &#39;") || page(&coppice).contains("set_prune_policy '"));
    coppice.grant(Who::Rival, Role::UtxoFeeder);
    coppice.register(Who::Exporter);
    assert_eq!((missing(), is_new()), (vec!["NoPolicy".to_string()], true));
    coppice.set_policy(policy(PrunePolicyArg { retain_blocks: Some(3), ..Default::default() })).unwrap();
    assert_eq!((missing(), is_new()), (vec![], false));
    assert!(page(&coppice).contains("<h1>All is well</h1>"));
    // An admin who is not an operator may declare that a canister without an exporter is set up as intended.
    coppice.remove_exporter(Who::Exporter, true).unwrap();
    assert_eq!((missing(), is_new()), (vec!["NoExporter".to_string()], true));
    let change = ConfigChange { set_up_as_meant: Some(true), ..Default::default() };
    coppice.grant(Who::Operator, Role::Operator);
    assert!(coppice.by(Who::Operator).set_config(&change).try_answer().is_err());
    configure(&coppice, change);
    coppice.upgrade();
    assert_eq!((missing(), is_new()), (vec![], false));
    coppice.operator().revoke_role(&Grant { principal: Who::Rival.principal(), role: Role::UtxoFeeder }).answer();
    assert_eq!(missing(), ["NoProducer"]);
}

/// Executes calls but no timers, which only the embedded host can do: a round of a server fires the due timers.
#[test]
fn a_timer_is_overdue_until_it_fires() {
    let (coppice, host) = Coppice::embedded(default_arg());
    let start = health(&coppice).time_ns;
    coppice.pass(60);
    let no_timer_fires = |secs| {
        host.advance_time(Duration::from_secs(secs));
        let nothing = candid::encode_args(()).unwrap();
        coppice.ic.update(coppice.id, Who::Controller.principal(), "get_head", nothing).unwrap();
    };
    // The safety timer may be one interval late.
    let before = host.checkpoint();
    no_timer_fires(1_130);
    cleared(&coppice, ProblemCode::TimerOverdue);
    host.restore(&before);
    no_timer_fires(2_130);
    let problem =
        raised(&coppice, ProblemCode::TimerOverdue, Severity::Critical, "a timer of the daemon is overdue by");
    assert!(problem.since_ns.unwrap().abs_diff(start + 600 * NS) < 30 * NS, "since it was due: {problem:?}");
    coppice.pass(0);
    cleared(&coppice, ProblemCode::TimerOverdue);
}

/// A trap in the platform's timer message loses the timer. Calls each method that `health` recommends then, and others that an operator may
/// call first.
#[test]
fn a_lost_timer_is_woken_by_an_operators_call() {
    type Call = fn(&Coppice);
    let calls: [(&str, Call); 4] = [
        ("prune_now", |coppice| assert_eq!(coppice.prune_now(1).blocks, 0)),
        ("acknowledge_faults", |coppice| assert_eq!(coppice.operator().acknowledge_faults(0u64).answer(), 0)),
        ("set_prune_policy", |coppice| enable(coppice, true)),
        ("set_prune_policy", |coppice| {
            assert_eq!(coppice.set_policy(PrunePolicyArg::default()).unwrap().retain_blocks, 3)
        }),
    ];
    let (coppice, host) = Coppice::embedded(default_arg());
    coppice.append_plain(0..9, 10);
    coppice.set_policy(policy(PrunePolicyArg { retain_blocks: Some(3), ..Default::default() })).unwrap();
    coppice.pass(60);
    for (name, call) in calls {
        coppice.pass(600);
        cleared(&coppice, ProblemCode::TimerOverdue);
        let ticks = coppice.prune_status().ticks;
        host.faults().trap_message(1, TrapPoint::Start);
        coppice.pass(600);
        for _ in 0..3 {
            coppice.pass(1_000);
        }
        assert_eq!(coppice.prune_status().ticks, ticks, "{name}: nothing fires any more");
        raised(&coppice, ProblemCode::TimerOverdue, Severity::Critical, "a timer of the daemon is overdue by");
        call(&coppice);
        coppice.pass(0);
        assert!(coppice.prune_status().ticks > ticks, "{name}");
        cleared(&coppice, ProblemCode::TimerOverdue);
    }
}

#[test]
fn a_long_pruning_lag_is_reported_with_its_expected_end() {
    let coppice = Coppice::new();
    coppice.append_plain(0..200, 10);
    coppice
        .set_policy(policy(PrunePolicyArg { retain_blocks: Some(1), max_ops_per_tick: Some(1), ..Default::default() }))
        .unwrap();
    (0..10).for_each(|_| coppice.pass(60));
    cleared(&coppice, ProblemCode::PruneBehind);
    (0..4).for_each(|_| coppice.pass(60));
    let problem = raised(&coppice, ProblemCode::PruneBehind, Severity::Warning, "done in about");
    let behind = coppice.prune_status().backlog.behind_since_secs.unwrap();
    assert_eq!(problem.since_ns, Some(behind * NS));
    coppice.set_policy(PrunePolicyArg { max_ops_per_tick: Some(10_000), ..Default::default() }).unwrap();
    (0..3).for_each(|_| coppice.pass(60));
    cleared(&coppice, ProblemCode::PruneBehind);
}

#[test]
fn due_pruning_that_is_switched_off_is_reported() {
    let coppice = Coppice::new();
    coppice.append_plain(0..9, 10);
    coppice.set_policy(policy(PrunePolicyArg { retain_blocks: Some(1), ..Default::default() })).unwrap();
    enable(&coppice, false);
    raised(&coppice, ProblemCode::PruningOff, Severity::Warning, "switched off");
    enable(&coppice, true);
    coppice.pass(60);
    cleared(&coppice, ProblemCode::PruningOff);
}

#[test]
fn an_exporter_that_holds_pruning_is_named_with_the_time_to_the_emergency_watermark() {
    let coppice = Coppice::new();
    coppice.register(Who::Exporter);
    let target_bytes = Some(1 << 30);
    let lag =
        PrunePolicyArg { retain_blocks: Some(1), max_export_lag_secs: Some(100), target_bytes, ..Default::default() };
    coppice.set_policy(policy(lag)).unwrap();
    coppice.pass(60);
    for number in 0..10 {
        coppice.append_plain(number..number + 1, 1_000);
        coppice.pass(10);
    }
    coppice.pass(60);
    cleared(&coppice, ProblemCode::ExportHeld);
    coppice.pass(101);
    let problem = raised(
        &coppice,
        ProblemCode::ExportHeld,
        Severity::Warning,
        "by exporter Exporter (max_export_lag_secs is 100)",
    );
    assert!(problem.message.contains("emergency water comes in about "), "{problem:?}");
    let since = coppice.prune_status().backlog.held_since_secs.unwrap();
    assert_eq!(problem.since_ns, Some(since * NS));
    // An upgrade restarts the measurement of the chain's growth.
    coppice.upgrade();
    raised(&coppice, ProblemCode::ExportHeld, Severity::Warning, "to emergency water is not known yet");
    coppice.pass(600);
    coppice.pass(600);
    raised(&coppice, ProblemCode::ExportHeld, Severity::Warning, "emergency water is not coming nearer");
    coppice.ack(Who::Exporter, 9, &hash(9)).unwrap();
    coppice.pass(60);
    cleared(&coppice, ProblemCode::ExportHeld);
    // No exporter is registered, and one is required.
    coppice.remove_exporter(Who::Exporter, true).unwrap();
    configure(&coppice, ConfigChange { require_export: Some(true), ..Default::default() });
    coppice.append_plain(10..20, 1_000);
    (0..3).for_each(|_| coppice.pass(60));
    raised(&coppice, ProblemCode::ExportHeld, Severity::Warning, "no exporter is registered");
    configure(&coppice, ConfigChange { require_export: Some(false), ..Default::default() });
    coppice.pass(60);
    cleared(&coppice, ProblemCode::ExportHeld);
}

/// The block count makes blocks due while an exporter holds them, and the held blocks reach the limit of bytes: `health` must be unhealthy
/// before then.
#[test]
fn an_exporter_that_holds_due_blocks_is_a_problem_before_appends_are_refused() {
    let coppice = Coppice::new();
    coppice.register(Who::Exporter);
    let change = PrunePolicyArg { target_bytes: Some(40 << 20), retain_blocks: Some(100), ..Default::default() };
    coppice.set_policy(change).unwrap();
    let (mut number, mut raised_at) = (0, None);
    while coppice.append(&plain(number, 3, 200_000)).is_ok() {
        if raised_at.is_none() && !health(&coppice).healthy {
            raised_at = Some(number);
        }
        number += 1;
    }
    let status = coppice.prune_status();
    assert_eq!(status.reason, Some(PruneReason::Retention));
    assert!(raised_at.is_some_and(|at| at + 8 <= number), "raised at {raised_at:?}, refused at {number}");
    raised(&coppice, ProblemCode::ExportHeld, Severity::Warning, "no room is left: emergency water is reached");
    raised(&coppice, ProblemCode::CapacityExhausted, Severity::Critical, "held by exporter Exporter");
    coppice.ack(Who::Exporter, number - 1, &hash(number - 1)).unwrap();
    coppice.pass(60);
    cleared(&coppice, ProblemCode::ExportHeld);
    cleared(&coppice, ProblemCode::CapacityExhausted);
}

#[test]
fn the_emergency_watermark_problem_names_what_holds_pruning_back() {
    let coppice = Coppice::new();
    let target_bytes = Some(20 * u64::from(LOG_CLASS));
    coppice.set_policy(policy(PrunePolicyArg { target_bytes, ..Default::default() })).unwrap();
    enable(&coppice, false);
    let mut number = 0;
    while coppice.append(&plain(number, 3, 50_000)).is_ok() {
        number += 1;
    }
    raised(
        &coppice,
        ProblemCode::CapacityExhausted,
        Severity::Critical,
        "appends are refused; held by the daemon, which is switched off",
    );
    let page = page(&coppice);
    assert!(page.contains("Appends are refused: ") && !page.contains("Appends go on"));
    enable(&coppice, true);
    coppice.pass(60);
    cleared(&coppice, ProblemCode::CapacityExhausted);
}

#[test]
fn memory_near_and_at_the_cap_is_reported() {
    let coppice = Coppice::new();
    coppice.append_plain(0..1, 10);
    let cap = |pages: u64| configure(&coppice, ConfigChange { max_stable_pages: Some(pages), ..Default::default() });
    // More than 2,048 pages and less than 8,192, so that an eighth of the cap, and no twentieth, counts.
    let mut number = 1;
    while coppice.storage().billed_bytes >> 16 < 2_048 {
        coppice.append_plain(number..number + 1, 1_900_000);
        number += 1;
    }
    let storage = coppice.storage();
    // Blocks cannot take what is free in the units that records touch.
    let counted = [Owner::External, Owner::Records, Owner::Deletions, Owner::UtxoIndex];
    let kept = storage.owners.iter().filter(|of| counted.contains(&of.owner)).map(|of| of.kept_bytes).sum::<u64>();
    let (billed, reusable) =
        (storage.billed_bytes >> 16, (storage.reusable_bytes - (storage.utxo.unwrap().kept_bytes - kept)) >> 16);
    assert!(reusable < 200, "{reusable} pages");
    let mut met = [false; 3];
    for left in 0..400 {
        let pages = billed + left;
        cap(pages);
        let (at, near) = (left < pages / 8 / 4, left + reusable < pages / 8);
        assert_eq!(found(&coppice, ProblemCode::MemoryAtCap).is_some(), at, "{left} pages are left");
        assert_eq!(found(&coppice, ProblemCode::MemoryNearCap).is_some(), near && !at, "{left} pages are left");
        met[usize::from(at) + usize::from(near)] = true;
    }
    assert_eq!(met, [true; 3]);
    // With a large cap, `MemoryNearCap` is raised when less than a twentieth is left.
    cap(8_192_000);
    cleared(&coppice, ProblemCode::MemoryNearCap);
    // The billed memory never decreases, and new blocks reuse the space of pruned ones.
    cap(billed);
    raised(&coppice, ProblemCode::MemoryAtCap, Severity::Critical, "of which new blobs can take");
    let few = PrunePolicyArg { retain_blocks: Some(10), ..PrunePolicyArg::default() };
    coppice.set_policy(policy(few)).unwrap();
    (0..5).for_each(|_| coppice.pass(60));
    let storage = coppice.storage();
    assert!(storage.billed_bytes >> 16 == billed && storage.reusable_bytes > 80 << 20, "{storage:?}");
    cleared(&coppice, ProblemCode::MemoryAtCap);
    cleared(&coppice, ProblemCode::MemoryNearCap);
    coppice.append_plain(number..number + 20, 1_900_000);
    assert_eq!(coppice.storage().billed_bytes >> 16, billed);
}

#[test]
fn an_open_upload_is_a_notice_and_healthy() {
    let coppice = Coppice::new();
    let (begin, _) = upload(&plain(0, 3, 5_000), 1_000);
    coppice.producer().begin_block(&begin).answer().unwrap();
    raised(&coppice, ProblemCode::UploadOpen, Severity::Notice, "the upload of block 0 is open");
    assert!(health(&coppice).healthy);
    configure(&coppice, ConfigChange { set_up_as_meant: Some(true), ..Default::default() });
    let open = "Nothing needs you. Appends are refused: the upload of block 0 is open until it is done or dropped.";
    assert!(page(&coppice).contains(open));
    coppice.producer().abort_block(0).answer().unwrap();
    cleared(&coppice, ProblemCode::UploadOpen);
    coppice.pass(0);
    assert!(page(&coppice).contains("Nothing needs you. Appends go on."));
}

#[test]
fn a_stale_head_is_reported_since_its_append() {
    let coppice = Coppice::new();
    let settings =
        |secs: u64| configure(&coppice, ConfigChange { max_head_age_secs: Some(secs), ..Default::default() });
    settings(3_600);
    // A chain that was never begun has no head.
    (0..8).for_each(|_| coppice.pass(600));
    cleared(&coppice, ProblemCode::HeadStale);
    coppice.append_plain(0..3, 10);
    let appended = health(&coppice).time_ns;
    (0..6).for_each(|_| coppice.pass(590));
    cleared(&coppice, ProblemCode::HeadStale);
    coppice.upgrade();
    (0..3).for_each(|_| coppice.pass(600));
    let problem = raised(&coppice, ProblemCode::HeadStale, Severity::Warning, "the head is block 2");
    assert!(problem.since_ns.unwrap().abs_diff(appended) < 700 * NS, "{problem:?}, appended at {appended}");
    settings(0);
    cleared(&coppice, ProblemCode::HeadStale);
    settings(3_600);
    raised(&coppice, ProblemCode::HeadStale, Severity::Warning, "no block was appended for");
    coppice.append_plain(3..4, 10);
    coppice.pass(60);
    cleared(&coppice, ProblemCode::HeadStale);
    settings(u64::MAX);
    coppice.pass(600);
    cleared(&coppice, ProblemCode::HeadStale);
}

/// The first message or tick that notices a problem sets `since`, and later ones keep it.
#[test]
fn since_survives_an_upgrade() {
    let coppice = Coppice::with(InitArg { max_stable_pages: Some(5_120), ..default_arg() });
    let mut number = 0;
    while coppice.append(&plain(number, 1, 1_900_000)).is_ok() {
        number += 1;
    }
    coppice.pass(600);
    let first = raised(&coppice, ProblemCode::MemoryAtCap, Severity::Critical, "max_stable_pages");
    coppice.pass(600);
    coppice.upgrade();
    coppice.pass(600);
    let later = raised(&coppice, ProblemCode::MemoryAtCap, Severity::Critical, "max_stable_pages");
    assert_eq!((first.since_ns, health(&coppice).time_ns > later.since_ns.unwrap() + 600 * NS), (later.since_ns, true));
}

#[test]
fn a_pruning_lag_survives_an_upgrade() {
    let coppice = Coppice::new();
    coppice.append_plain(0..400, 1);
    let policy = PrunePolicyArg {
        retain_blocks: Some(1),
        min_kept_blocks: Some(0),
        max_ops_per_tick: Some(1),
        ..Default::default()
    };
    coppice.set_policy(policy).unwrap();
    (0..14).for_each(|_| coppice.pass(60));
    let since = || {
        let health = coppice.anyone().health().answer();
        health
            .problems
            .into_iter()
            .find(|problem| problem.code == ProblemCode::PruneBehind)
            .map(|problem| problem.since_ns)
    };
    let before = since();
    assert!(before.is_some());
    coppice.upgrade();
    coppice.pass(60);
    assert!(coppice.prune_status().backlog.blocks > 0);
    assert_eq!(since(), before);
    coppice.set_policy(PrunePolicyArg { max_ops_per_tick: Some(10_000), ..Default::default() }).unwrap();
    (0..10).for_each(|_| coppice.pass(600));
    cleared(&coppice, ProblemCode::PruneBehind);
    coppice.upgrade();
    cleared(&coppice, ProblemCode::PruneBehind);
}

/// The age of the head counts from its append, not from the next sample.
#[test]
fn the_age_of_a_stale_head_does_not_depend_on_samples() {
    let coppice = Coppice::new();
    coppice.append_plain(0..1, 1);
    configure(&coppice, ConfigChange { max_head_age_secs: Some(600), ..Default::default() });
    let appended = coppice.anyone().health().answer().time_ns;
    (0..3).for_each(|_| coppice.pass(601));
    let problem = raised(&coppice, ProblemCode::HeadStale, Severity::Warning, "no block was appended for 30 min");
    assert!(problem.since_ns.unwrap().abs_diff(appended) <= 5_000_000_000, "{problem:?}");
}
