//! `docs/operations/deploy.md`: ten steps whose commands do what the page says. icp-cli runs the commands that need no network; the calls go to the
//! embedded host.

mod steps;

use candid::Principal;
use candid::TypeEnv;
use candid::types::value::IDLArgs;
use candid::types::{Function, Type, TypeInner};
use candid_parser::parse_idl_args;
use candid_parser::utils::CandidSource;
use coppice_tests::blocks::hash;
use coppice_tests::coppice::{Coppice, Who};
use ic_coppice_host::{CanisterSettings, ErrorCode};
use ic_coppice_interface::UPGRADE_CYCLES;
use std::path::{Path, PathBuf};
use std::process::Command;
use steps::{Step, call, is_printed, steps};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn page() -> Vec<Step> {
    steps(&std::fs::read_to_string(root().join("docs/operations/deploy.md")).unwrap())
}

#[test]
fn an_ellipsis_of_the_page_matches_any_output() {
    for (expected, text, same) in [
        ("(variant { Ok })", "(variant { Ok })", true),
        ("(variant { Ok })", "(variant { Err })", false),
        ("{\n  …\n  a = 1;\n  …\n}", "{\n  b = 2;\n  a = 1;\n}", true),
        ("{\n  …\n  a = 1;\n  …\n}", "{\n  b = 2;\n  a = 2;\n}", false),
        ("Created snapshot …", "Created snapshot 17", true),
        ("Created snapshot …", "Deleted snapshot 17", false),
        ("…", "", true),
        ("", "a", false),
    ] {
        assert_eq!(is_printed(expected, text), same, "{expected}: {text}");
    }
}

#[test]
fn the_page_has_ten_steps_each_with_commands_and_output() {
    let steps = page();
    let headings: Vec<&str> = steps.iter().map(|step| step.heading.as_str()).collect();
    let expected = [
        "1. Size",
        "2. Deposit",
        "3. Deploy",
        "4. Identities",
        "5. Exporter",
        "6. Index",
        "7. Policy",
        "8. Health",
        "9. Upgrade",
        "10. Back from an upgrade",
    ];
    assert_eq!(headings, expected);
    for Step { heading, commands } in &steps {
        assert!(!commands.is_empty(), "{heading} has no command");
        let says = |(command, printed): &(String, String)| command.contains(" > ") == printed.is_empty();
        assert!(commands.iter().all(says), "{heading} does not show the output");
    }
}

/// The canister's interface.
fn interface() -> (TypeEnv, Type) {
    let (env, actor) = CandidSource::File(&root().join("candid/coppice.did")).load().unwrap();
    (env, actor.unwrap())
}

fn function(env: &TypeEnv, actor: &Type, method: &str) -> Function {
    env.get_method(actor, method).unwrap_or_else(|error| panic!("{method}: {error}")).clone()
}

/// Every call in the pages names its network, and has an argument that the canister accepts.
#[test]
fn every_call_in_the_pages_names_its_network_and_has_a_valid_argument() {
    let (env, actor) = interface();
    let mut calls = 0;
    let folders = ["guide", "operations", "design", "reference"].map(|name| root().join("docs").join(name));
    let docs = folders.iter().flat_map(|folder| std::fs::read_dir(folder).unwrap()).map(|file| file.unwrap().path());
    let pages = docs.chain([root().join("README.md"), root().join("SECURITY.md")]);
    for path in pages.filter(|path| path.extension().is_some_and(|extension| extension == "md")) {
        let text = std::fs::read_to_string(&path).unwrap();
        for line in text.lines().filter(|line| line.contains("canister call ")) {
            let named = [" -e ", " -n ", " --network "].iter().any(|option| line.contains(option));
            assert!(named, "{}: no network is named: {line}", path.display());
            let Some((options, method, argument)) = call(line) else { continue };
            let function = function(&env, &actor, &method);
            assert!(!options.contains("--query") || function.is_query(), "{line}");
            calls += 1;
            if argument.contains("{ … }") {
                continue;
            }
            let argument = argument.replace("principal \"…\"", "principal \"aaaaa-aa\"");
            let parsed = parse_idl_args(&argument).unwrap_or_else(|error| panic!("{line}: {error}"));
            parsed.to_bytes_with_types(&env, &function.args).unwrap_or_else(|error| panic!("{line}: {error}"));
            // Candid would drop a misspelt field silently.
            if let (Some(TypeInner::Record(fields)), true) = (
                function.args.first().map(|first| env.trace_type(first).unwrap().as_ref().clone()),
                !argument.contains('…'),
            ) {
                let known = |name: &str| fields.iter().any(|field| field.id.to_string() == name);
                let names = argument.split(" = ").filter_map(|before| before.rsplit([' ', '{', ';']).next());
                let of_fields: Vec<&str> =
                    names.filter(|name| name.chars().all(|c| c.is_alphanumeric() || c == '_')).collect();
                for name in of_fields.iter().filter(|name| name.contains('_')) {
                    assert!(known(name), "{line}: no field {name}");
                }
            }
        }
    }
    assert!(calls > 20, "{calls} calls were found");
}

/// Makes the calls of a step as a controller of the canister, and compares their answers.
fn make_calls(coppice: &Coppice, step: &Step, principal: Principal) -> usize {
    let (env, actor) = interface();
    let mut made = 0;
    for (command, printed) in &step.commands {
        let Some((options, method, argument)) = call(command) else { continue };
        let function = function(&env, &actor, &method);
        let argument = argument.replace("principal \"…\"", &format!("principal \"{principal}\""));
        let bytes = parse_idl_args(&argument).unwrap().to_bytes_with_types(&env, &function.args).unwrap();
        let who = Who::Controller.principal();
        let reply = if options.contains("--query") {
            coppice.ic.query(coppice.id, who, &method, bytes).unwrap()
        } else {
            coppice.ic.update(coppice.id, who, &method, bytes).unwrap()
        };
        let reply = IDLArgs::from_bytes_with_types(&reply, &env, &function.rets).unwrap().to_string();
        assert!(is_printed(printed, &reply), "{command}\nprints\n{reply}\nand not\n{printed}");
        made += 1;
    }
    made
}

/// The calls of the page, step by step, with an upgrade and its reversal.
#[test]
fn the_calls_of_the_ten_steps_print_the_pages_output() {
    let steps = page();
    let (coppice, host) = Coppice::embedded(super::deploy::init("deploy/init.production.did"));
    let controller = Who::Controller.principal();
    let step = |at: usize, principal: Principal| make_calls(&coppice, &steps[at - 1], principal);
    assert_eq!(step(4, Who::Producer.principal()), 1);
    assert_eq!(step(5, Who::Exporter.principal()), 1);
    assert_eq!(step(7, controller), 1);
    assert_eq!(step(8, controller), 1);
    // The storage of a snapshot of 180 MB costs more than an upgrade.
    coppice.append_plain(0..95, 1_900_000);
    coppice.ack(Who::Exporter, 4, &hash(4)).unwrap();
    coppice.pass(60);

    let commands: Vec<&str> = steps[8].commands.iter().map(|(command, _)| command.as_str()).collect();
    let words: Vec<String> =
        commands.iter().filter_map(|command| command.strip_prefix("icp canister ")).map(verb).collect();
    let order = [
        "settings update",
        "stop",
        "snapshot create",
        "install",
        "start",
        "call",
        "snapshot delete",
        "settings update",
    ];
    assert_eq!(words, order);
    let argument = commands[3].split('\'').nth(1).unwrap();
    let argument = parse_idl_args(argument).unwrap().to_bytes().unwrap();
    let threshold = |command: &str| {
        let days = command.split("--freezing-threshold ").nth(1).and_then(|rest| rest.split('d').next()).unwrap();
        let secs = Some(days.parse::<u64>().unwrap() * 86_400);
        let settings = CanisterSettings { freezing_threshold: secs, ..CanisterSettings::default() };
        host.update_canister_settings(coppice.id, Some(controller), settings).unwrap();
    };
    let status = || host.canister_status(coppice.id, Some(controller)).unwrap();
    let take = || host.take_canister_snapshot(coppice.id, Some(controller), None);
    // The balance covers the threshold of 180 days and an upgrade, and so a snapshot under half the threshold.
    threshold(commands[7]);
    let frozen = status().freezing_limit;
    host.faults().low_cycles(coppice.id, frozen + UPGRADE_CYCLES + 8_000_000_000);
    coppice.ic.tick();
    assert_eq!(take().unwrap_err().error_code, ErrorCode::InsufficientCyclesInMemoryGrow);
    threshold(commands[0]);
    coppice.ic.stop(coppice.id, controller).unwrap();
    let snapshot = take().unwrap();
    assert!(status().freezing_limit <= frozen, "{:?}", status());
    coppice.ic.upgrade(coppice.id, coppice_tests::wasm::canister(), argument, controller).unwrap();
    coppice.ic.start(coppice.id, controller).unwrap();
    host.add_cycles(coppice.id, 10_000_000_000_000);
    // The safety timer notices the top-up.
    coppice.pass(600);
    assert_eq!(step(9, controller), 1);
    coppice.append_plain(95..98, 1_000);

    coppice.ic.stop(coppice.id, controller).unwrap();
    let before = status();
    host.load_canister_snapshot(coppice.id, Some(controller), snapshot.id.clone()).unwrap();
    assert!(status().cycles < before.cycles && status().global_timer == before.global_timer, "{:?}", status());
    coppice.ic.start(coppice.id, controller).unwrap();
    assert_eq!((step(10, controller), coppice.head()), (1, Some(94)));
    host.delete_canister_snapshot(coppice.id, Some(controller), snapshot.id).unwrap();
    threshold(commands[7]);
    // The chain continues from the snapshot: the blocks since then are appended again, and the timers fire.
    coppice.append_plain(95..99, 1_000);
    let ticks = coppice.prune_status().ticks;
    coppice.pass(600);
    assert!(coppice.prune_status().ticks > ticks);
    assert_eq!((coppice.head(), coppice.health().healthy), (Some(98), true));
}

/// Returns the words of a command of `icp canister` up to its first option or argument.
fn verb(command: &str) -> String {
    let words = command.split_whitespace().take_while(|word| *word != "coppice" && !word.starts_with('-'));
    words.collect::<Vec<_>>().join(" ")
}

/// The page's icp-cli commands that need no network: keys, their principals, and their files.
#[test]
fn the_identities_of_the_page_are_made_by_icp_cli() {
    let Some(icp) = super::deploy::icp() else { return };
    let home = tempfile::tempdir().unwrap();
    let mut made = 0;
    for (command, printed) in page().iter().flat_map(|step| &step.commands) {
        let Some(arguments) = command.strip_prefix("icp identity ") else { continue };
        let arguments = arguments.split_whitespace().take_while(|word| *word != ">");
        let mut run = Command::new(&icp);
        run.arg("identity").args(arguments).env("HOME", home.path()).env("DO_NOT_TRACK", "1").current_dir(home.path());
        let output = run.output().unwrap();
        let stdout = String::from_utf8(output.stdout).unwrap();
        assert!(output.status.success(), "{command}: {}", String::from_utf8_lossy(&output.stderr));
        if command.contains("identity principal") {
            Principal::from_text(stdout.trim()).unwrap();
        } else if command.contains("identity export") {
            assert!(stdout.starts_with("-----BEGIN "), "{command}");
            continue;
        }
        assert!(is_printed(printed, &stdout), "{command} prints\n{stdout}");
        made += 1;
    }
    assert!(made >= 4, "{made} commands were run");
}

/// icp-cli has the commands and options that need a network.
#[test]
fn icp_cli_has_the_commands_of_the_page() {
    let Some(icp) = super::deploy::icp() else { return };
    let home = tempfile::tempdir().unwrap();
    for (command, _) in page().iter().flat_map(|step| &step.commands) {
        let Some(arguments) = command.strip_prefix("icp ") else { continue };
        let words = arguments.split(" '").next().unwrap_or_default().split_whitespace();
        let names: Vec<&str> = words.clone().take_while(|word| !word.starts_with('-') && *word != "coppice").collect();
        let groups = ["snapshot", "settings"];
        let depth = if names[0] == "canister" && groups.contains(&names[1]) { 3 } else { 2 };
        let names = &names[..names.len().min(depth)];
        let help = |names: &[&str]| {
            let mut run = Command::new(&icp);
            run.args(names).arg("--help").env("HOME", home.path()).env("DO_NOT_TRACK", "1");
            let output = run.output().unwrap();
            output.status.success().then(|| String::from_utf8(output.stdout).unwrap())
        };
        let help = help(names).unwrap_or_else(|| panic!("icp-cli has no {names:?}: {command}"));
        for option in words.filter(|word| word.starts_with('-')) {
            let known = help.contains(&format!("{option} "))
                || help.contains(&format!("{option},"))
                || help.contains(&format!("{option}\n"));
            assert!(known, "{command}: {names:?} has no {option}");
        }
    }
}
