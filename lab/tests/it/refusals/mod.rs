//! The commands of `coppice-lab` against a canister that refuses: each shows the error's sentence. `bench` has no client, because it measures
//! a wasm of its own.

mod commands;
mod treated;

use clap::CommandFactory;
use commands::COMMANDS;
use coppice_lab::commands::Cli;
use coppice_testkit::refusals::{OF_COPPICE, judge, play, played, uncalled};
use std::collections::BTreeSet;
use std::path::Path;

#[test]
fn every_command_shows_a_choice_of_errors_by_their_sentences() {
    let ran = played(&COMMANDS, "refusals::one_command_with_every_refusal");
    judge(&COMMANDS, &ran);
    let lab = Path::new(env!("CARGO_MANIFEST_DIR"));
    let uncalled = uncalled(&ran, &OF_COPPICE, &[lab.join("src"), lab.join("../testkit/src")]);
    eprintln!("{} runs; methods that no command calls: {uncalled:?}", ran.len());
}

#[test]
fn every_subcommand_that_reaches_a_canister_is_run() {
    let cli = Cli::command();
    let subcommands: BTreeSet<&str> = cli.get_subcommands().map(|command| command.get_name()).collect();
    let run = COMMANDS.names.iter().filter_map(|name| name.split(' ').next());
    assert_eq!(run.chain(["bench"]).collect::<BTreeSet<_>>(), subcommands);
}

/// The other process of [`played`].
#[test]
#[ignore = "the other test starts it"]
fn one_command_with_every_refusal() {
    play(&COMMANDS);
}
