//! The commands, each with a canister that gives it something to do.

use super::treated::TREATED;
use anyhow::Result;
use candid::Principal;
use clap::Parser;
use coppice_testkit::refusals::{Commands, Liar, Run, World, chain, framed};
use ic_coppice_cli::blob_worker::store::Store;
use ic_coppice_cli::blob_worker::stores::Stores;
use ic_coppice_cli::client::{Block, Client, Wait};
use ic_coppice_cli::commands::blob_worker::{BlobWorkerArgs, Init, delete, mark_stores};
use ic_coppice_cli::commands::get::from_canister;
use ic_coppice_cli::commands::index::{IndexArgs, copy};
use ic_coppice_cli::commands::policy;
use ic_coppice_cli::commands::{Cli, Command};
use ic_coppice_cli::exit::{Exit, end};
use ic_coppice_cli::feed;
use ic_coppice_cli::gateway::Gateway;
use ic_coppice_cli::get::print;
use ic_coppice_cli::index::DatabaseArgs;
use ic_coppice_cli::index::origin::{Origin, Payload};
use ic_coppice_cli::ingest::{feed_to, read};
use ic_coppice_cli::report;
use ic_coppice_cli::stop::Stop;
use ic_coppice_cli::terminal::printable;
use ic_coppice_interface::*;
use serde_bytes::ByteBuf;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;
use tempfile::TempDir;

pub const COMMANDS: Commands = Commands {
    names: &[
        "ingest --utxo",
        "index",
        "index --no-ack",
        "index --skip-damaged --accept-reset",
        "index after a reorg",
        "get block",
        "get transaction",
        "get key",
        "policy",
        "blob-worker",
        "blob-worker --dry-run",
        "blob-worker init",
        "serve",
    ],
    command,
    is_endless: |name| name.starts_with("blob-worker"),
    due: |_, method| (0..method.cases.len()).collect(),
    treated: TREATED,
    end: |result| {
        let code = result.as_ref().err().map_or(0, Exit::code_of);
        end(result);
        code
    },
    shown: |sentence| printable(sentence).into_owned(),
};

/// Length of a lease; half of it is over when a late answer comes.
const LEASE: Duration = Duration::from_millis(400);
/// Height of the chain of a blob worker.
const HEIGHT: u32 = 1_010;

/// Returns a command's canister, and the command.
fn command(name: &str) -> (World, Run) {
    let mut world = World::new();
    let args: Vec<_> = name.split(' ').collect();
    let run = match args[0] {
        "ingest" => ingest(&mut world),
        "index" if args.contains(&"after") => index_after_reorg(&mut world),
        "index" => index(&mut world, &args[1..]),
        "get" => get(&mut world, args[1]),
        "blob-worker" if args.contains(&"init") => init(&mut world),
        "blob-worker" => blob_worker(&mut world, &args[1..]),
        "policy" => policy(&mut world),
        "serve" => serve(&mut world),
        other => panic!("there is no command {other}"),
    };
    (world, run)
}

/// Changes the policy.
fn policy(world: &mut World) -> Run {
    let Command::Policy(args) = parse(&["policy", "--retain-blocks", "9", "--yes", "--json"]) else {
        panic!("another command")
    };
    world.keep();
    Box::new(move |client| policy::policy(&args, client, || None))
}

fn parse(args: &[&str]) -> Command {
    Cli::try_parse_from([&["coppice"], args].concat()).unwrap().command
}

/// Ingests blocks of which an earlier run has appended the first.
fn ingest(world: &mut World) -> Run {
    let blocks = chain();
    let [first, all] = ["first.dat", "all.dat"].map(|name| world.path(name));
    std::fs::write(&first, framed(&blocks[..1])).unwrap();
    std::fs::write(&all, framed(&blocks)).unwrap();
    let plan = |file: &str, more: &[&str]| {
        let Command::Ingest(args) = parse(&[&["ingest", "--utxo", "--json", "--blk", file][..], more].concat()) else {
            panic!("another command")
        };
        args
    };
    let client = world.client();
    let utxo = UtxoSettingsChange { coinbase_maturity: Some(1), ..UtxoSettingsChange::default() };
    client.set_config(&ConfigChange { utxo: Some(utxo), ..ConfigChange::default() }).done().unwrap();
    feed_to(&client, &read(&[first.clone().into()], None).unwrap(), &plan(&first, &[]).blocks.plan).unwrap();
    let args = plan(&all, &["--retain-blocks", "4"]);
    let ordered = read(&args.blocks.blk, args.blocks.network_rules).unwrap();
    world.keep();
    Box::new(move |client| report::print(&feed_to(client, &ordered, &args.blocks.plan)?, args.json))
}

/// Appends blocks with these numbers, of a branch that begins at a block.
fn append(client: &Client<Liar>, numbers: std::ops::Range<u64>, branch: u64) {
    let hash = |number: u64| feed::sha256(&[number, u64::from(number >= branch)].map(u64::to_le_bytes).concat());
    for number in numbers {
        let block = Block::new(number, hash(number), hash(number - 1), 1_700_000_000 + number).body([7; 1_000]);
        feed::send(client, &[block.seal().unwrap()]).unwrap();
    }
}

fn index_args(more: &[&str]) -> IndexArgs {
    let args = ["index", "--until-caught-up", "--page-bytes", "3000", "--json"];
    let no_ack = more.contains(&"--no-ack");
    let acks = if no_ack { &[][..] } else { &["--ack-every", "2"] };
    let Command::Index(args) = parse(&[&args[..], acks, more].concat()) else { panic!("another command") };
    // A test waits for nothing.
    IndexArgs { max_wait_secs: 0, ..args }
}

/// The database's file in its directory.
const DATABASE: &str = "index.db";

/// Waits until the last connection to a directory's database is closed. Until then a part of the database is in other files.
fn wait_until_closed(dir: &TempDir) {
    for _ in 0..1_000 {
        if std::fs::read_dir(dir).unwrap().count() == 1 {
            return;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    panic!("the database is not closed");
}

/// Runs the indexer on the database of a directory.
fn run_index(args: &IndexArgs, canister: Principal, client: &Client<Liar>, dir: &TempDir) -> Result<()> {
    let database = format!("sqlite://{}", dir.path().join(DATABASE).display());
    let args = IndexArgs {
        database: DatabaseArgs { database, volatile_database: true, ..args.database.clone() },
        ..args.clone()
    };
    let origin = Origin { canister: canister.to_string(), network: "embedded".into(), payload: Payload::All };
    report::print(&copy(&args, client, &origin, &Stop::default())?, args.json)
}

/// Copies a chain into an empty database.
fn index(world: &mut World, more: &[&str]) -> Run {
    world.register();
    append(&world.client(), 1..8, u64::MAX);
    world.keep();
    let (args, canister) = (index_args(more), world.canister);
    Box::new(move |client| run_index(&args, canister, client, &tempfile::tempdir()?))
}

/// Continues a copy, whose last blocks a reorg has replaced.
fn index_after_reorg(world: &mut World) -> Run {
    world.register();
    let (client, copied) = (world.client(), tempfile::tempdir().unwrap());
    append(&client, 1..8, u64::MAX);
    let (args, canister) = (index_args(&[]), world.canister);
    run_index(&args, canister, &client, &copied).unwrap();
    wait_until_closed(&copied);
    client.roll_back_to(5).done().unwrap();
    append(&client, 6..9, 6);
    world.keep();
    Box::new(move |client| {
        let dir = tempfile::tempdir()?;
        std::fs::copy(copied.path().join(DATABASE), dir.path().join(DATABASE))?;
        run_index(&args, canister, client, &dir)
    })
}

/// Looks up a block, a transaction or a key.
fn get(world: &mut World, kind: &str) -> Run {
    let block = Block::new(1, [1; 32], [0; 32], 1_700_000_000).body([7; 1_000]);
    let block = block.transaction([1; 32], None, &[]).transaction([2; 32], None, &[b"key"]);
    feed::send(&world.client(), &[block.seal().unwrap()]).unwrap();
    world.keep();
    let id = "02".repeat(32);
    let what = match kind {
        "block" => "1",
        "transaction" => &id,
        kind => kind,
    };
    let Command::Get(args) = parse(&["get", what]) else { panic!("another command") };
    let canister = world.canister.to_string();
    Box::new(move |client| print::print(&from_canister(&args, client, canister.clone())?, args.json))
}

/// Returns a worker's options, and its stores in the world's directory.
fn worker(world: &World, more: &[&str]) -> (BlobWorkerArgs, impl Fn() -> Stores + use<>) {
    let store = format!("tx/tx=file://{}", world.dir.path().display());
    let Command::BlobWorker(args) = parse(&[&["blob-worker"], more, &["--json", "--store", &store]].concat()) else {
        panic!("another command")
    };
    let of = match &args.command {
        Some(Init::Init(of)) => of.clone(),
        None => args.stores.clone(),
    };
    (*args, move || Stores::open(&of.stores, of.layout, Store::directory).unwrap())
}

fn init(world: &mut World) -> Run {
    world.keep();
    let ((args, stores), canister) = (worker(world, &["init"]), world.canister);
    let Some(Init::Init(args)) = args.command else { panic!("another command") };
    Box::new(move |client| mark_stores(&args, client, canister, stores()))
}

/// Deletes blobs that are due.
fn blob_worker(world: &mut World, more: &[&str]) -> Run {
    let client = world.client();
    client.utxo_notify_block(HEIGHT, true).done().unwrap();
    for blob in 0..3 {
        let (blob_key, file_type) = (ByteBuf::from([blob; 32]), "tx".to_string());
        let name = BlobName { blob_key, file_type, store_type: StoreType::Tx };
        client.schedule_blob_deletion(&ScheduleBlobDeletion { name, delete_at_height: 1 }).done().unwrap();
    }
    let canister = world.canister;
    init(world)(&world.client().into()).unwrap();
    world.keep();
    let more = if more.is_empty() { &["--until-empty"] } else { more };
    let (mut args, stores) = worker(world, more);
    (args.options.lease, args.options.max_wait) = (LEASE, Duration::from_millis(1));
    Box::new(move |client| delete(&args, client, canister, stores(), &Stop::default()))
}

/// Serves one page.
fn serve(world: &mut World) -> Run {
    world.keep();
    Box::new(|client| {
        let gateway = Gateway::bind(0)?;
        let address = gateway.url().replace("http://", "");
        let page = gateway.serve_while(client, || -> Result<String> {
            let mut stream = TcpStream::connect(address)?;
            write!(stream, "GET /health HTTP/1.1\r\nHost: here\r\nConnection: close\r\n\r\n")?;
            let mut page = String::new();
            stream.read_to_string(&mut page)?;
            Ok(page)
        })?;
        anyhow::ensure!(page.starts_with("HTTP/1.1 200"), "{page}");
        Ok(())
    })
}
