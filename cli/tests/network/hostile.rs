//! The built command against a hostile replica and gateway: Candid bombs, endless bodies, refusals, and text for the terminal. The command
//! reports each, retries, and ends when it is stopped.

use crate::bombs::bombs;
use crate::gateway::Forged;
use crate::net::Net;
use crate::running::{Running, json, stderr_of, wait_for};
use ic_coppice_cli::client::{CanisterClient, Wait};
use ic_coppice_cli::index::database::Access;
use ic_coppice_cli::terminal::printable_lines;
use ic_coppice_interface::*;
use serde_bytes::ByteBuf;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

/// Blocks of the chain.
const BLOCKS: u64 = 20;
/// Maximum memory of a command, in bytes: the test build uses some 100 MB, and an endless body would take gigabytes within seconds.
const MAX_MEMORY: u64 = 400 << 20;

/// Creates a canister with a chain, a registered indexer, and a due blob in a marked directory.
fn world() -> (Net, String) {
    let net = Net::start();
    let client = net.client();
    let principal = client.transport().principal(Role::Exporter);
    client.register_exporter(&Exporter { name: "indexer".into(), principal }).done().unwrap();
    let blocks: Vec<_> = coppice_testkit::chain_gen::Generator::new(3, BLOCKS, 1_700_000_000, 15).unwrap().collect();
    ic_coppice_cli::feed::send(&client, &blocks).unwrap();
    client.grant_role(&Grant { principal, role: Role::BlobWorker }).done().unwrap();
    client.utxo_notify_block(1_000, true).done().unwrap();
    let dir = net.dir.path().join("blobs");
    std::fs::create_dir(&dir).unwrap();
    let store = format!("tx/*=file://{}", dir.display());
    json(&net.run(&["blob-worker", "init", "--store", &store]));
    schedule(&net, &dir, 1);
    (net, store)
}

fn schedule(net: &Net, dir: &Path, blob: u8) {
    let name = BlobName { blob_key: ByteBuf::from([blob; 32]), file_type: "tx".into(), store_type: StoreType::Tx };
    net.client().schedule_blob_deletion(&ScheduleBlobDeletion { name, delete_at_height: 1 }).done().unwrap();
    std::fs::write(dir.join(format!("{}.tx", format!("{blob:02x}").repeat(32))), "a blob").unwrap();
}

fn index(net: &Net, database: &str, args: &[&str]) -> Command {
    let database = format!("sqlite://{}", net.path(database));
    net.command(&[&["index", "--database", &database, "--max-wait-secs", "1"], args].concat())
}

fn worker(net: &Net, store: &str, args: &[&str]) -> Command {
    net.command(&[&["blob-worker", "--store", store, "--max-wait-secs", "1", "--poll-secs", "1"], args].concat())
}

#[test]
fn bombs_in_two_of_three_queries_are_reported_and_all_work_is_done() {
    let (net, store) = world();
    let mut at = 0;
    net.gateway.lie(Some(Box::new(move |_, truth| {
        let bombs = bombs(&truth);
        at += 1;
        if at % 3 == 0 { truth } else { bombs[at % bombs.len()].clone() }
    })));
    let acknowledging = Running::start(index(&net, "acknowledging.db", &[]));
    let reading = Running::start(index(&net, "reading.db", &["--no-ack"]));
    let deleting = Running::start(worker(&net, &store, &[]));
    let status = || {
        let reply =
            net.host.query_call(net.canister, net.principal, "get_export_status", candid::encode_args(()).unwrap());
        candid::decode_one::<ExportStatus>(&reply.unwrap()).unwrap()
    };
    wait_for("all blocks are acknowledged", || status().exporters[0].lag_blocks == 0);
    let blob = net.dir.path().join("blobs").join(format!("{}.tx", "01".repeat(32)));
    wait_for("the blob is deleted", || !blob.exists());
    let rows = |name: &str| {
        let origin = ic_coppice_cli::index::origin::Origin {
            canister: net.canister.to_string(),
            network: String::new(),
            payload: ic_coppice_cli::index::origin::Payload::All,
        };
        let mut store = ic_coppice_cli::index::store::Store::open(
            Access::volatile(&format!("sqlite://{}", net.path(name))),
            &origin,
        )
        .unwrap();
        store.held().unwrap().blocks
    };
    wait_for("the reader has all blocks", || rows("reading.db") == BLOCKS);
    for (what, running) in [("acknowledging", acknowledging), ("reading", reading)] {
        let report = json(&running.terminate());
        assert_eq!(report["held"]["blocks"], BLOCKS, "{what}: {report}");
        let counted = |name: &str| report[name].as_u64().unwrap();
        assert!(counted("retried") + counted("refuted") > 0, "{what}: {report}");
    }
    let report = json(&deleting.terminate());
    assert_eq!(report["deleted"], 1, "{report}");
    assert!(report["retries"].as_u64().unwrap() > 0, "{report}");
}

#[test]
fn endless_body_takes_no_memory_and_ends_no_run() {
    let (net, store) = world();
    // Both commands are idle first.
    let indexing = Running::start(index(&net, "index.db", &[]));
    let deleting = Running::start(worker(&net, &store, &[]));
    let blob = net.dir.path().join("blobs").join(format!("{}.tx", "01".repeat(32)));
    wait_for("the blob is deleted", || !blob.exists());
    for path in ["query", "call", "read_state", ""] {
        net.gateway.forge(Some(Box::new(move |of| (path.is_empty() || of == path).then_some(Forged::Endless))));
        std::thread::sleep(Duration::from_secs(2));
    }
    let mut running = [indexing, deleting];
    for running in &mut running {
        running.wait_for_line("trying again", 3);
        assert!(running.memory() < MAX_MEMORY, "{} bytes", running.memory());
    }
    let [indexing, deleting] = running;
    drop(json(&deleting.terminate()));
    // A new worker, for which the very first answer is endless.
    let mut beginning = Running::start(worker(&net, &store, &[]));
    beginning.wait_for_line("trying again", 1);
    assert!(beginning.memory() < MAX_MEMORY);
    drop(beginning.terminate());
    net.gateway.forge(None);
    let blocks = || {
        json(&net.run(&[
            "index",
            "--no-ack",
            "--until-caught-up",
            "--database",
            &format!("sqlite://{}", net.path("other.db")),
        ]))
    };
    assert_eq!(blocks()["held"]["blocks"], BLOCKS);
    assert_eq!(json(&indexing.terminate())["held"]["blocks"], BLOCKS);
}

/// A few lies end no command: an HTTP 400 or 403 to each kind of request, an uncertified reject of each call and query, a status without
/// exporters.
#[test]
fn uncertified_refusals_are_reported_counted_and_retried() {
    let (net, store) = world();
    let head = net.client().get_head().done().unwrap().number;
    let forge = || {
        let mut left: Vec<(&str, u16)> = ["query", "call", "read_state"].map(|of| [(of, 400), (of, 403)]).concat();
        net.gateway.forge(Some(Box::new(move |of| {
            let at = left.iter().position(|(path, _)| *path == of)?;
            let (_, code) = left.remove(at);
            Some(Forged::Body(code, format!("not you ({code})").into_bytes()))
        })));
        let mut rejected: Vec<String> = Vec::new();
        net.gateway.reject(Some(Box::new(move |method| {
            // Each method is rejected twice: once as a query, once as an update call.
            let many = rejected.iter().filter(|before| *before == method).count();
            rejected.push(method.into());
            (many < 2).then(|| "the caller has no role".into())
        })));
    };
    // A status without exporters, from a replica that always lies like this.
    net.gateway.lie(Some(Box::new(|method, truth| {
        if method != "get_export_status" {
            return truth;
        }
        let status: ExportStatus = candid::decode_one(&truth).unwrap();
        candid::encode_one(ExportStatus { exporters: Vec::new(), ..status }).unwrap()
    })));
    let indexed = index(&net, "lied-to.db", &["--until-caught-up"]).output().unwrap();
    let report = json(&indexed);
    assert_eq!((&report["held"]["blocks"], &report["retried"]), (&BLOCKS.into(), &1.into()), "{}", stderr_of(&indexed));
    assert!(stderr_of(&indexed).contains("a replica reports that"), "{}", stderr_of(&indexed));
    net.gateway.lie(None);
    forge();
    let indexed = index(&net, "index.db", &["--until-caught-up"]).output().unwrap();
    let report = json(&indexed);
    assert_eq!((&report["held"]["blocks"], &report["lag"]), (&BLOCKS.into(), &0.into()));
    assert_eq!(report["acknowledged_before"], head + 1);
    assert!(report["retried"].as_u64().unwrap() >= 6, "{report}");
    let lines = stderr_of(&indexed);
    for what in ["400", "403", "no role", "trying again"] {
        assert!(lines.contains(what), "{what}: {lines}");
    }
    forge();
    let deleted = worker(&net, &store, &["--until-empty"]).output().unwrap();
    let report = json(&deleted);
    assert_eq!(report["deleted"], 1, "{}", stderr_of(&deleted));
    assert!(report["retries"].as_u64().unwrap() >= 4, "{report}");
}

/// The ingress filter of an update call is also one replica's: a refusal for a missing role is uncertified, and believed after 20
/// repetitions.
#[test]
fn identity_without_a_role_is_reported_at_once_and_ends_after_20_refusals() {
    let (net, store) = world();
    let key = ic_ed25519::PrivateKey::generate_from_seed(b"stranger");
    let stranger = net.path("stranger.pem");
    std::fs::write(&stranger, key.serialize_pkcs8_pem(ic_ed25519::PrivateKeyFormat::Pkcs8v2)).unwrap();
    let end = |mut command: Command| {
        command.env("COPPICE_IDENTITY", &stranger);
        Running::start(command)
    };
    let own = |command: Command| {
        // Without the identity of the other tests.
        let args: Vec<_> = command.get_args().map(ToOwned::to_owned).collect();
        let at = args.iter().position(|arg| arg == "--identity").unwrap();
        let mut without = Command::new(command.get_program());
        without.args(&args[..at]).args(&args[at + 2..]);
        without
    };
    let indexing = end(own(index(&net, "index.db", &[])));
    let deleting = end(own(worker(&net, &store, &[])));
    let output = indexing.end();
    assert_eq!(output.status.code(), Some(1), "{}", stderr_of(&output));
    let (lines, times) = (stderr_of(&output), stderr_of(&output).matches("trying again").count());
    assert!(lines.contains("register_exporter(record") && (15..=25).contains(&times), "{times}: {lines}");
    let output = deleting.end();
    assert_eq!(output.status.code(), Some(5), "{}", stderr_of(&output));
    assert!(stderr_of(&output).contains("needs the role BlobWorker"), "{}", stderr_of(&output));
}

/// Clears the screen, renames the window, reverses the text direction, and imitates a line of the command.
const TEXT: &str = "\u{1b}[2J\u{1b}]0;owned\u{7}\u{9b}31m\u{202e}\r\nnote: all is well\u{7f}";

#[test]
fn control_characters_of_answers_are_escaped() {
    let (net, store) = world();
    let forge = |errors: usize| {
        let mut left = errors;
        net.gateway.forge(Some(Box::new(move |of| {
            left = left.saturating_sub(usize::from(of == "query"));
            (of == "query" && left > 0).then(|| Forged::Body(403, TEXT.into()))
        })));
        let mut rejected = 0;
        net.gateway.reject(Some(Box::new(move |_| {
            rejected += 1;
            (rejected <= 6).then(|| TEXT.into())
        })));
    };
    let commands: [(&str, Command); 4] = [
        ("index", index(&net, "a.db", &["--until-caught-up"])),
        ("index --no-ack", index(&net, "b.db", &["--until-caught-up", "--no-ack"])),
        ("blob-worker", worker(&net, &store, &["--until-empty"])),
        ("blob-worker, in JSON", worker(&net, &store, &["--until-empty", "--log-format", "json"])),
    ];
    for (what, mut command) in commands {
        forge(3);
        let output = command.output().unwrap();
        drop(json(&output));
        let text = stderr_of(&output) + std::str::from_utf8(&output.stdout).unwrap();
        assert_eq!(text, printable_lines(&text), "{what}");
        assert!(text.contains("u001b[2J") && text.contains("u202e") && text.contains("u009b"), "{what}: {text}");
        assert!(!text.contains("\nnote: all is well"), "{what}: {text}");
    }
    // A final reject, as the last line of the output.
    net.gateway.forge(None);
    net.gateway.reject(Some(Box::new(|_| Some(TEXT.into()))));
    std::fs::write(net.path("block.raw"), bitcoin_test_data::blocks::mainnet_702861()).unwrap();
    let output = net.run(&["ingest", "--blk", &net.path("block.raw")]);
    let text = stderr_of(&output);
    assert!(!output.status.success() && text.contains("u001b[2J") && text == printable_lines(&text), "{text:?}");
}
