//! The commands of `coppice-lab`, on a canister without blocks. `bench` has no client: it measures a wasm of its own.

use super::blocks;
use super::commands::Run;
use super::world::World;
use clap::Parser;
use coppice::index::origin::{Origin, Payload};
use coppice::ingest::read;
use coppice::report;
use coppice_lab::commands::{Cli, Command as LabCommand};
use coppice_lab::demonstration::Demonstration;
use coppice_lab::{demo, demo_utxo, index, ingest};

/// Minutes in which a demonstration acknowledges once.
const MINUTES: u64 = 100;

/// Blocks that a demonstration of records retains, so few that its reorg comes soon.
const RETAINED: u64 = 20;

/// Returns a command by its name after `coppice-lab`.
pub fn command(world: &mut World, name: &str) -> Run {
    world.keep();
    let (canister, begins_at) = (world.canister, world.host.get_time_nanos() / 1_000_000_000);
    match name {
        "demo" => Box::new(move |client| {
            let origin =
                Origin { canister: canister.to_string(), network: "embedded".into(), payload: Payload::Headers };
            report::print(&demo::play(client, demo::Plan::new(150, None, 1)?, begins_at, &origin)?, true)
        }),
        "demo --utxo" => Box::new(|client| report::print(&demo_utxo::run(client, 600, Some(RETAINED), 1)?, true)),
        "demo --utxo --external" => Box::new(move |client| {
            report::print(&demo_utxo::run_external(client, canister, 600, Some(RETAINED), 1)?, true)
        }),
        "index" => {
            let LabCommand::Index(args) = Cli::parse_from(["coppice-lab", "index", "--blocks", "150"]).command else {
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
            std::fs::write(&path, blocks::framed(&blocks::chain())).unwrap();
            let args = ["coppice-lab", "ingest", "--utxo", "--coinbase-maturity", "1", "--blk", &path];
            let LabCommand::Ingest(args) = Cli::parse_from(args).command else { panic!("another command") };
            let ordered = read(&args.blocks.blk, args.blocks.network_rules).unwrap();
            Box::new(move |client| report::print(&ingest::feed(client, &ordered, &args.blocks.plan)?, true))
        }
        other => panic!("there is no command coppice-lab {other}"),
    }
}
