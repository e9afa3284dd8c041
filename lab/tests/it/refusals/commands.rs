//! The commands, each on a canister without blocks.

use super::treated::TREATED;
use clap::Parser;
use coppice_lab::commands::{Cli, Command};
use coppice_lab::{demo, demo_utxo, index, ingest};
use coppice_testkit::demonstration::Demonstration;
use coppice_testkit::refusals::{Commands, Method, OF_COPPICE, Run, World, chain, framed};
use ic_coppice_cli::exit::{Exit, end};
use ic_coppice_cli::index::origin::{Origin, Payload};
use ic_coppice_cli::ingest::read;
use ic_coppice_cli::report;
use ic_coppice_cli::terminal::printable;
use std::collections::BTreeSet;

pub const COMMANDS: Commands = Commands {
    names: &["ingest", "index", "serve", "demo", "demo --utxo", EXTERNAL],
    command,
    is_endless: |_| false,
    due,
    treated: TREATED,
    end: |result| {
        let code = result.as_ref().err().map_or(0, Exit::code_of);
        end(result);
        code
    },
    shown: |sentence| printable(sentence).into_owned(),
};

/// Command whose first call alone is refused, because the other calls are those of `demo --utxo` and of the blob worker.
const EXTERNAL: &str = "demo --utxo --external";
/// The first call of [`EXTERNAL`].
const FIRST_EXTERNAL: &str = "grant_role";

/// Minutes in which a demonstration acknowledges once.
const MINUTES: u64 = 100;

/// Blocks that a demonstration of records retains, so few that its reorg comes soon.
const RETAINED: u64 = 20;

/// Returns the numbers of the cases for a command: the first three outermost cases and those that the command treats apart, and one alone of
/// a method whose errors `coppice` shows in every case. All commands show the errors of a method by the same code, and long runs with every
/// case would take minutes.
fn due(command: &str, method: &Method) -> Vec<usize> {
    let cases = &method.cases;
    let outermost = |at: usize| cases[at].name.split('/').next();
    let all = 0..cases.len();
    if command == EXTERNAL && method.name != FIRST_EXTERNAL {
        return Vec::new();
    }
    if OF_COPPICE.contains(&method.name) {
        return all.take(1).collect();
    }
    let is_treated =
        |at: usize| COMMANDS.row(command, method.name, &cases[at].name).is_some_and(|row| !TREATED[row].2.is_empty());
    let first = all.clone().filter(|&at| (0..at).all(|before| outermost(before) != outermost(at))).take(3);
    first.chain(all.filter(|&at| is_treated(at))).collect::<BTreeSet<_>>().into_iter().collect()
}

/// Returns a command's canister, and the command.
fn command(name: &str) -> (World, Run) {
    let mut world = World::new();
    world.keep();
    let run = run(&world, name);
    (world, run)
}

fn run(world: &World, name: &str) -> Run {
    let (canister, begins_at) = (world.canister, world.host.get_time_nanos() / 1_000_000_000);
    match name {
        "demo" => Box::new(move |client| {
            let origin =
                Origin { canister: canister.to_string(), network: "embedded".into(), payload: Payload::Headers };
            report::print(&demo::play(client, demo::Plan::new(60, None, 1)?, begins_at, &origin)?, true)
        }),
        "demo --utxo" => Box::new(|client| report::print(&demo_utxo::run(client, 600, Some(RETAINED), 1)?, true)),
        "demo --utxo --external" => Box::new(move |client| {
            report::print(&demo_utxo::run_external(client, canister, 600, Some(RETAINED), 1)?, true)
        }),
        "index" => {
            let Command::Index(args) = Cli::parse_from(["coppice-lab", "index", "--blocks", "150"]).command else {
                panic!("another command")
            };
            Box::new(move |client| {
                let (mut args, dir) = (args.clone(), tempfile::tempdir()?);
                args.database.database = format!("sqlite://{}", dir.path().join("index.db").display());
                report::print(&index::copy(&args, client, canister.to_string(), begins_at)?, true)
            })
        }
        "serve" => Box::new(move |client| {
            let mut demonstration = Demonstration::on(client.clone(), 1, begins_at)?;
            demonstration.pass(MINUTES * 60)
        }),
        "ingest" => {
            let path = world.path("all.dat");
            std::fs::write(&path, framed(&chain())).unwrap();
            let args = ["coppice-lab", "ingest", "--utxo", "--coinbase-maturity", "1", "--blk", &path];
            let Command::Ingest(args) = Cli::parse_from(args).command else { panic!("another command") };
            let ordered = read(&args.blocks.blk, args.blocks.network_rules).unwrap();
            Box::new(move |client| report::print(&ingest::feed(client, &ordered, &args.blocks.plan)?, true))
        }
        other => panic!("there is no command coppice-lab {other}"),
    }
}
