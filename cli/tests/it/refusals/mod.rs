//! Every command of `coppice` against a canister that refuses, once for each case of the error of each method that the command calls.

mod commands;
mod treated;

use clap::CommandFactory;
use commands::COMMANDS;
use coppice_testkit::refusals::{OF_COPPICE, judge, play, played, uncalled};
use ic_coppice_cli::commands::Cli;
use std::collections::BTreeSet;
use std::path::Path;

/// A method that the source of `coppice` calls, and whose errors the runs of `coppice-lab` meet.
const OF_LAB: [&str; 1] = ["utxo_get"];

#[test]
fn every_command_shows_every_error_by_its_sentence() {
    let ran = played(&COMMANDS, "refusals::one_command_with_every_refusal");
    judge(&COMMANDS, &ran);
    let called: BTreeSet<&str> = ran.iter().flat_map(|run| run.called.iter().map(String::as_str)).collect();
    let missing: Vec<_> = OF_COPPICE.into_iter().filter(|name| !called.contains(name)).collect();
    assert!(missing.is_empty(), "the laboratory relies on calls of {missing:?}");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    eprintln!("{} runs; methods that no command calls: {:?}", ran.len(), uncalled(&ran, &OF_LAB, &[source]));
}

#[test]
fn every_subcommand_that_reaches_a_canister_is_run() {
    let cli = Cli::command();
    let subcommands: BTreeSet<&str> = cli.get_subcommands().map(|command| command.get_name()).collect();
    let run = COMMANDS.names.iter().filter_map(|name| name.split(' ').next());
    // These call no canister, and `status` no method that refuses.
    let without = ["size", "verify", "prove", "check-proof", "completions", "status"];
    assert_eq!(run.chain(without).collect::<BTreeSet<_>>(), subcommands);
}

/// The other process of [`played`].
#[test]
#[ignore = "the other test starts it"]
fn one_command_with_every_refusal() {
    play(&COMMANDS);
}
