use super::sentences::remedy_of_holder;
use super::*;
use crate::memory;
use crate::operation::daemon;
use ic_coppice_chain::pruning::policy;
use ic_coppice_chain::testing::pruning::{self, World};
use ic_coppice_interface::{HeldBy, PruneBacklog, PrunePolicyArg, PruneStatus, UPGRADE_RESERVE, UtxoPrunerPhase};
use ic_coppice_records::pruning::Stored;
use ic_coppice_records::utxo::Cursor;

/// The health that a caller without a role sees.
fn seen(state: &State) -> Health {
    health(state, Principal::anonymous())
}

/// Installs a canister without any setup.
fn new() {
    platform::native::reset();
    memory::forget();
    crate::logs::forget();
    crate::state::init(&ic_coppice_interface::InitArg::default()).unwrap();
}

/// Returns the commands between backticks, with a principal in place of that of an identity.
fn typed(action: &str) -> Vec<String> {
    let parts = action.split('`').skip(1).step_by(2).filter(|part| part.starts_with("icp "));
    let principal = |part: &str| match part.split_once("'\"$(icp identity principal --identity ") {
        Some((before, after)) => format!("{before}aaaaa-aa{}", after.split_once(")\"'").unwrap().1),
        None => part.to_string(),
    };
    parts.map(principal).collect()
}

/// Each command is a valid icp-cli command for this canister without a gap; each call names a method of the interface, with a valid argument.
#[test]
fn every_code_has_a_severity_and_commands_that_run_as_printed() {
    use candid_parser::utils::CandidSource;
    new();
    let did = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../candid/coppice.did");
    let (env, actor) = CandidSource::File(&did).load().unwrap();
    let actor = actor.unwrap();
    let id = platform::canister_self().to_text();
    let of_cases = [
        HeldBy::Exporter("archive".into()),
        HeldBy::KeylessExporter("archive".into()),
        HeldBy::NoExporter,
        HeldBy::Disabled,
        HeldBy::Stopped,
        HeldBy::PruneLag,
        HeldBy::UtxoApply,
        HeldBy::LowCycles,
    ];
    let of_cases = of_cases.iter().map(|held_by| remedy_of_holder(held_by).unwrap());
    let blocked = ["LowCycles", "ReservedCyclesLimit", "RecordsFull", "OutOfSpace"];
    let of_blocked = blocked.iter().map(|code| records::remedy(code, 7).unwrap());
    let of_codes = ProblemCode::ALL.into_iter().map(|code| advice(code).1);
    let known = Some(ic_coppice_interface::CyclesStatus { liquid: 1, missing: 1_234_567_890_123 });
    let mut calls = 0;
    for (at, code) in ProblemCode::ALL.into_iter().enumerate() {
        assert_eq!((code as usize, code.to_string()), (at, format!("{code:?}")));
    }
    for action in of_codes.chain(of_cases).chain(of_blocked) {
        let action = crate::state::read(|state| [None, known].map(|cycles| say(&action, state, cycles)));
        assert!(action.iter().all(|action| action.ends_with("`.") && action.len() > 60), "{action:?}");
        let commands = action.iter().flat_map(|action| typed(action)).collect::<Vec<_>>();
        assert!(commands.len() > 1, "{action:?}");
        for command in commands {
            assert!(command.contains(&id) && command.contains(" -n ic ") && !command.contains(['…', '#']), "{command}");
            let Some(call) = command.strip_prefix("icp canister call ") else {
                let begins = ["top-up ", "settings update ", "install ", "status "];
                assert!(begins.iter().any(|begin| command.starts_with(&format!("icp canister {begin}"))), "{command}");
                continue;
            };
            let (_, call) = call.split_once(&format!("{id} ")).unwrap();
            let (method, argument) = call.split_once(' ').unwrap();
            let function = env.get_method(&actor, method).unwrap_or_else(|error| panic!("{command}: {error}"));
            let argument =
                argument.strip_prefix('\'').and_then(|argument| argument.strip_suffix('\'')).expect(&command);
            let parsed = candid_parser::parse_idl_args(argument).unwrap_or_else(|error| panic!("{command}: {error}"));
            parsed.to_bytes_with_types(&env, &function.args).unwrap_or_else(|error| panic!("{command}: {error}"));
            assert_eq!(command.contains("--query"), function.is_query(), "{command}");
            calls += 1;
        }
    }
    assert!(calls > 60, "{calls}");
}

#[test]
fn missing_cycles_are_named_to_those_who_may_know_them() {
    use crate::platform::native;
    use ic_coppice_interface::{Grant, Role};
    new();
    let observer = Principal::from_slice(&[7]);
    crate::state::mutate(|state| state.grant_role(Grant { principal: observer, role: Role::Observer })).unwrap();
    native::with(|world| world.liquid_cycles = 100_000_000_000);
    let of = |caller| {
        let health = crate::state::read(|state| health(state, caller));
        assert_eq!(health.problems[0].code, ProblemCode::CyclesLow);
        (health.cycles, health.problems[0].action.clone())
    };
    let (cycles, action) = of(observer);
    let wanted = crate::state::read(cycles::wanted);
    assert!(wanted > UPGRADE_RESERVE && wanted < 2 * UPGRADE_RESERVE, "{wanted}");
    let missing = wanted - 100_000_000_000;
    assert_eq!(cycles, Some(ic_coppice_interface::CyclesStatus { liquid: 100_000_000_000, missing }));
    let milli = missing.div_ceil(1_000_000_000);
    let named = format!("Liquid cycles are {}.{:03} T below the highest threshold.", milli / 1_000, milli % 1_000);
    assert!(action.contains(&named) && action.contains(" --amount 1t "), "{action}");
    let (cycles, action) = of(Principal::anonymous());
    assert!(cycles.is_none() && action.contains("`icp canister status -n ic "), "{action}");
    assert!(!action.contains("below the highest") && action.contains(" --amount 1t "), "{action}");
}

#[test]
fn refusal_of_the_next_block_is_named_with_its_reason() {
    use crate::platform::native;
    use crate::state;
    new();
    let refused = || state::read(seen).appends_refused;
    assert_eq!(refused(), None);
    native::with(|world| world.liquid_cycles = 100_000_000_000);
    assert_eq!(refused().as_deref(), Some("cycles are missing: top up the canister"));
    native::with(|world| world.liquid_cycles = u128::MAX);
    assert_eq!(refused(), None);
    let begin = ic_coppice_interface::BeginBlock {
        number: 5,
        hash: [1; 32].into(),
        parent_hash: [0; 32].into(),
        timestamp_secs: 1,
        lengths: [100, 0, 0].into(),
        sha256: [(); 3].map(|()| serde_bytes::ByteBuf::from([0; 32])).into(),
        chunk_size: 100,
    };
    let now = platform::time_secs();
    state::mutate(|state| {
        let admission = state.admission();
        state.chain.begin(&mut state.blobs, &begin, platform::caller(), &admission, now).unwrap();
    });
    assert_eq!(refused().as_deref(), Some("the upload of block 5 is open until it is done or dropped"));
}

#[test]
fn roles_and_set_up_as_meant_clear_the_setup_findings() {
    use crate::state;
    use candid::Principal;
    use ic_coppice_interface::{ConfigChange, Grant, InitArg, Role};
    let codes = || state::read(seen).problems.iter().filter_map(Problem::known).collect::<Vec<_>>();
    let all = [ProblemCode::NoProducer, ProblemCode::NoExporter, ProblemCode::NoPolicy];
    for role in [Role::Producer, Role::BlockProducer, Role::UtxoFeeder] {
        platform::native::reset();
        memory::forget();
        crate::logs::forget();
        state::init(&InitArg::default()).unwrap();
        assert_eq!((codes(), state::read(seen).healthy), (all.to_vec(), true));
        state::mutate(|state| {
            state.grant_role(Grant { principal: Principal::from_slice(&[7]), role: Role::BlobWorker })
        })
        .unwrap();
        assert_eq!(codes(), all);
        let grant = Grant { principal: Principal::from_slice(&[7]), role };
        state::mutate(|state| state.grant_role(grant)).unwrap();
        assert_eq!(codes(), all[1..]);
        state::mutate(|state| state.set_prune_policy(&Default::default())).unwrap();
        assert_eq!(codes(), all[1..2]);
        let means = |is: bool| {
            let change = ConfigChange { set_up_as_meant: Some(is), ..ConfigChange::default() };
            state::mutate(|state| state.set_config("set_config", &change)).unwrap();
        };
        means(true);
        assert_eq!(codes(), []);
        state::mutate(|state| state.revoke_role(&grant));
        assert_eq!(codes(), all[..1]);
        means(false);
        state::upgrade(None).unwrap();
        assert_eq!(codes(), all[..2]);
    }
}

#[test]
fn severity_of_every_code_matches_the_manual() {
    let manual = include_str!("../../../../docs/operations/alerts.md");
    let heading = |line: &str| {
        let (code, severity) = line.strip_prefix("### `")?.split_once("`: ")?;
        Some((code.to_string(), severity.to_string()))
    };
    let mut said: Vec<(String, String)> = manual.lines().filter_map(heading).collect();
    let is = |code: ProblemCode| (format!("{code:?}"), format!("{:?}", advice(code).0).to_lowercase());
    let mut all = ProblemCode::ALL.map(is);
    said.retain(|(code, _)| !code.starts_with("Coppice"));
    said.sort();
    all.sort();
    assert_eq!(said, all);
}

/// An update sees fewer liquid cycles than a query, and a timer's work even fewer; all use the cycles that are liquid between messages.
#[test]
fn low_cycles_are_reported_as_the_daemon_sees_them() {
    use crate::platform::native;
    use crate::state;
    use ic_coppice_interface::{ConfigChange, Grant, InitArg, Role};
    native::reset();
    memory::forget();
    crate::logs::forget();
    state::init(&InitArg::default()).unwrap();
    let producer = Grant { principal: Principal::from_slice(&[1]), role: Role::Producer };
    state::mutate(|state| state.grant_role(producer)).unwrap();
    let change = ConfigChange {
        set_up_as_meant: Some(true),
        min_liquid_cycles: Some(1_000_000_000_000),
        feed_min_liquid_cycles: Some(1),
        ..ConfigChange::default()
    };
    state::mutate(|state| state.set_config("set_config", &change)).unwrap();
    state::mutate(daemon::start);
    let a_call = native::with(|world| world.timer_call_cycles);
    let codes = |liquid: u128, replicated: bool| -> Vec<ProblemCode> {
        native::with(|world| (world.liquid_cycles, world.replicated) = (liquid, replicated));
        let problems = state::read(seen).problems;
        let of_others = [ProblemCode::GrowthUnpaid, ProblemCode::UpgradeUnpaid];
        problems.iter().filter_map(Problem::known).filter(|code| !of_others.contains(code)).collect()
    };
    let min = 1_000_000_000_000;
    assert_eq!(codes(min, false), []);
    assert_eq!(codes(min - 1, false), [ProblemCode::CyclesLow]);
    assert_eq!((codes(min - a_call, true), codes(min - a_call - 1, true)), (vec![], vec![ProblemCode::CyclesLow]));
    assert_eq!(codes(3 * a_call, false), [ProblemCode::CyclesLow]);
    let stopped = [ProblemCode::CyclesLow, ProblemCode::TimersStopped];
    assert_eq!((codes(3 * a_call - 1, false), codes(2 * a_call - 1, true)), (stopped.to_vec(), stopped.to_vec()));
    // After a top-up the daemon stays paused, and the problem remains, until the safety timer or a call checks again.
    for (liquid, code) in [(min - a_call - 1, ProblemCode::CyclesLow), (9, ProblemCode::TimersStopped)] {
        native::with(|world| world.liquid_cycles = liquid);
        state::mutate(daemon::watch_cycles);
        assert_eq!(codes(u128::MAX, false), [code]);
        state::mutate(daemon::watch_cycles);
        assert_eq!(codes(u128::MAX, false), []);
    }
}

#[test]
fn unreadable_head_is_reported_until_replaced() {
    use crate::state;
    use ic_coppice_interface::InitArg;
    platform::native::reset();
    memory::forget();
    crate::logs::forget();
    platform::native::with(|world| world.time_ns = 1_700_000_000_000_000_000);
    state::init(&InitArg::default()).unwrap();
    let append = |number| {
        state::mutate(|state| {
            let (block, admission) = (ic_coppice_chain::testing::block(number, &[], 10), state.admission());
            state.chain.append(&mut state.blobs, &block, &admission, 1_700_000_000).unwrap();
        });
    };
    let severity = || {
        let problems = state::read(seen).problems;
        problems.iter().find(|problem| problem.code == ProblemCode::HeadUnreadable).map(|problem| problem.severity)
    };
    (1..4).for_each(append);
    assert_eq!(severity(), None);
    state::mutate(|state| state.chain.poison_header(3));
    assert_eq!(severity(), Some(Severity::Critical));
    // The remedy of `health`.
    state::mutate(|state| state.rollback_to(2, false)).unwrap();
    assert_eq!(severity(), None);
    append(3);
    assert_eq!(severity(), None);
}

#[test]
fn durations_have_two_units() {
    let all = [0, 59, 60, 3_599, 3_600, 86_399, 86_400, 1_000_000, u64::MAX].map(duration);
    let expected = ["0 s", "59 s", "1 min", "59 min 59 s", "1 h", "23 h 59 min", "1 d", "11 d 13 h"];
    assert_eq!(all[..8], expected);
    assert!(all[8].ends_with('h'));
}

/// Due blocks that an exporter holds: each state of the watermarks has its clause.
#[test]
fn held_blocks_are_reported_with_the_time_and_the_room_that_is_left() {
    let policy = |target_bytes, lag| PrunePolicyArg {
        retain_blocks: Some(2),
        target_bytes: Some(target_bytes),
        max_export_lag_secs: Some(lag),
        ..pruning::policy()
    };
    let found = |world: &World| {
        let due = world.pruner.due(&world.chain, &world.blobs, world.constraints.guard().as_ref());
        let of = |deep| {
            blocks::due((&world.pruner, &world.chain, &world.blobs), || world.constraints.clone(), due.as_ref(), deep)
        };
        let (deep, shallow) = (of(true), of(false));
        let codes = |found: &[Finding]| found.iter().map(|found| (found.code, found.since)).collect::<Vec<_>>();
        assert_eq!(codes(&deep), codes(&shallow));
        deep
    };
    let mut world = pruning::world(policy(0, 1_000));
    world.hold_at(0);
    world.append(10, 100, 1);
    world.tick_next();
    let since = platform::time_ns();
    world.wait(1_001);
    world.tick_next();
    let held = found(&world).remove(0);
    assert!(
        held.message.contains("held back for 16 min 41 s") && held.message.contains("no capacity limit"),
        "{held:?}"
    );
    assert_eq!((held.code, held.since), (ProblemCode::ExportHeld, Some(since)));

    let mut world = pruning::world(policy(40 << 20, 86_400));
    world.hold_at(0);
    while found(&world).is_empty() {
        world.append(1, 200_000, 1);
    }
    let held = found(&world).remove(0).message;
    assert!(held.starts_with("kept bytes are above high water; ") && held.contains("not known yet"), "{held}");
    while world.exhausted().is_none() {
        world.append(1, 200_000, 1);
    }
    let held = found(&world).remove(0).message;
    assert!(held.ends_with("; no room is left: emergency water is reached"), "{held}");
    // The switch holds the blocks back, not an exporter.
    world.pruner.switch(false);
    assert_eq!(found(&world).iter().map(|found| found.code).collect::<Vec<_>>(), [ProblemCode::PruningOff]);
}

#[test]
fn backlog_that_lasts_and_a_target_that_is_too_small_are_reported_with_figures() {
    let mut world =
        pruning::world(PrunePolicyArg { retain_blocks: Some(1), max_ops_per_tick: Some(1), ..pruning::policy() });
    world.append_ids(100, 2);
    for _ in 0..12 {
        world.tick_next();
        world.wait(60);
        world.append_ids(2, 2);
    }
    let status = world.status();
    let lagging = blocks::lagging(&status, world.pruner.interval_secs()).unwrap();
    assert!(lagging.message.contains("behind for 12 min") && lagging.message.contains("never"), "{lagging:?}");
    assert_eq!(lagging.code, ProblemCode::PruneBehind);
    let idle = PruneStatus { backlog: PruneBacklog { behind_since_secs: None, ..status.backlog.clone() }, ..status };
    assert_eq!(blocks::lagging(&idle, world.pruner.interval_secs()), None);

    let target = 40 * u64::from(pruning::CLASS);
    let mut world = pruning::world(PrunePolicyArg { target_bytes: Some(target), ..pruning::policy() });
    world.append(1, 30 * pruning::CLASS as usize, 1);
    assert_eq!(blocks::too_small(&world.pruner, &world.chain, &world.blobs), None);
    world.append(1, 30 * pruning::CLASS as usize, 1);
    let needed = policy::target_for(world.pruner.policy().unwrap(), world.chain.capacity_bytes(&world.blobs));
    let small = blocks::too_small(&world.pruner, &world.chain, &world.blobs).unwrap().message;
    assert!(small.contains("emergency water") && small.contains(&needed.to_string()), "{small}");
}

#[test]
fn records_that_hold_the_pruner_up_are_reported_with_their_ids() {
    let cursor = Cursor { slot: 7, txid: [0xAB; 32], ..Cursor::default() };
    let codes = |stored: &Stored| {
        let found = records::of(stored);
        found.iter().map(|found| found.code).collect::<Vec<_>>()
    };
    let idle = Stored { assembly_running: true, ..Stored::default() };
    assert_eq!(codes(&idle), []);
    let trapped = Stored { trapped: Some((3, UtxoPrunerPhase::DeleteAtHeight)), ..idle.clone() };
    let message = records::of(&trapped).remove(0).message;
    assert!(message.contains("job 3 failed") && message.contains("DeleteAtHeight"), "{message}");
    let skipping = Stored { unreadable: vec![cursor], ..idle.clone() };
    assert_eq!(codes(&skipping), [ProblemCode::UnminedSkipped]);
    assert!(records::of(&skipping)[0].message.ends_with(&format!("that of transaction {}", "ab".repeat(32))));
}
