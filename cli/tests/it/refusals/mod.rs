//! Every command against a canister that refuses, once for each case of the error of each method that the command calls: the user reads the
//! error's sentence, and never its `Debug` form.

mod blocks;
mod cases;
mod commands;
mod judge;
mod lab;
mod liar;
mod play;
mod samples;
mod treated;
mod world;

use clap::CommandFactory;
use coppice::commands::Cli;
use play::Ran;
use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Mutex;

/// Processes at one time.
const PROCESSES: usize = 2;

#[test]
fn every_command_shows_every_error_by_its_sentence() {
    let (lab, own) = commands::NAMES.iter().partition(|name| name.starts_with(commands::LAB));
    let mut ran = played(own, &BTreeSet::new());
    let known = ran.iter().flat_map(|run| run.called.clone()).collect();
    ran.extend(played(lab, &known));
    judge::judge(&ran, &known);
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let uncalled = judge::uncalled(&ran, &[root.join("cli/src"), root.join("lab/src")]);
    eprintln!("{} runs; methods that no command calls: {uncalled:?}", ran.len());
}

/// Runs commands in several processes.
fn played(commands: Vec<&'static str>, known: &BTreeSet<String>) -> Vec<Ran> {
    let (left, ran) = (Mutex::new(commands), Mutex::new(Vec::new()));
    std::thread::scope(|scope| {
        for _ in 0..PROCESSES {
            scope.spawn(|| {
                while let Some(command) = { left.lock().unwrap().pop() } {
                    let runs = play::played(command, "refusals::one_command_with_every_refusal", known);
                    ran.lock().unwrap().extend(runs);
                }
            });
        }
    });
    ran.into_inner().unwrap()
}

#[test]
fn every_subcommand_that_reaches_a_canister_is_run() {
    let (lab, own): (Vec<&str>, Vec<&str>) = commands::NAMES.iter().partition(|name| name.starts_with(commands::LAB));
    let lab = lab.into_iter().filter_map(|name| name.strip_prefix(commands::LAB)).collect();
    // `size`, `verify`, `prove` and `check-proof` call no canister, and `bench` measures a wasm of its own without a client.
    let without = &["size", "verify", "prove", "check-proof"][..];
    for (cli, run, more) in [(Cli::command(), own, without), (coppice_lab::commands::Cli::command(), lab, &["bench"])] {
        let subcommands: BTreeSet<&str> = cli.get_subcommands().map(|command| command.get_name()).collect();
        let run = run.iter().filter_map(|name| name.split(' ').next());
        assert_eq!(run.chain(more.iter().copied()).collect::<BTreeSet<_>>(), subcommands);
    }
}

/// The other process of [`play::played`].
#[test]
#[ignore = "the other test starts it"]
fn one_command_with_every_refusal() {
    play::play();
}
