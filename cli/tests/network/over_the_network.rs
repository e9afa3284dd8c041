//! The command over a network: ic-agent, HTTP and certificates, with the canister's real wasm behind a gateway.

use crate::net::Net;
use coppice_testkit::chain_gen::Generator;
use ic_coppice_cli::client::{Block, CanisterClient, Wait};
use ic_coppice_cli::feed;
use ic_coppice_cli::index::database::Access;
use ic_coppice_cli::index::origin::{Origin, Payload};
use ic_coppice_cli::ledger::Ledger;
use ic_coppice_cli::network::NetworkArgs;
use ic_coppice_interface::{Exporter, PrunePolicyArg, Role};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

fn json(output: &Output) -> serde_json::Value {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn error(output: &Output) -> String {
    assert!(!output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Writes mainnet's block 702,861 to a file.
fn block_file(dir: &Path) -> String {
    let path = dir.join("block.raw");
    std::fs::write(&path, bitcoin_test_data::blocks::mainnet_702861()).unwrap();
    path.display().to_string()
}

#[test]
fn blocks_are_ingested_and_indexed_over_the_network() {
    let net = Net::start();
    let file = block_file(net.dir.path());
    let ingested = json(&net.run(&["ingest", "--blk", &file]));
    assert_eq!((&ingested["last_block"], &ingested["verified"]["blocks"]), (&702_861.into(), &1.into()));
    assert!(ingested["utxo"].is_null(), "{ingested}");
    // A second run finds and verifies the block; only this run fills the UTXO store.
    let again = json(&net.run(&["ingest", "--utxo", "--blk", &file]));
    assert_eq!((&again["already_there_blocks"], &again["verified"]["blocks"]), (&1.into(), &1.into()));
    let utxo = &again["utxo"];
    assert_eq!((&utxo["transactions"], &utxo["already_there"]), (&again["appended"]["transactions"], &0.into()));
    assert!(utxo["spent_outputs"].as_u64() > Some(0) && utxo["verified"]["spent"] == utxo["spent_outputs"], "{utxo}");

    let index = ["index", "--until-caught-up", "--database", &net.database()];
    let stranger = error(&net.run(&index));
    let client = net.client();
    let principal = client.transport().principal(Role::Exporter);
    assert!(stranger.contains("register_exporter(record") && stranger.contains(&principal.to_string()), "{stranger}");
    client.register_exporter(&Exporter { name: "indexer".into(), principal }).done().unwrap();
    // Without payloads nothing is acknowledged by default.
    let headers = format!("sqlite://{}", net.path("headers.db"));
    let headers = ["index", "--until-caught-up", "--database", &headers, "--payload", "headers"];
    let read = net.run(&headers);
    assert!(String::from_utf8_lossy(&read.stderr).contains("--ack-headers"), "{read:?}");
    let read = json(&read);
    assert_eq!((&read["blocks"], &read["acks"]), (&1.into(), &0.into()));
    assert_eq!(client.get_export_status().wait().unwrap().exporters[0].acknowledged_at_ns, None);
    let indexed = json(&net.run(&index));
    assert_eq!(
        (&indexed["blocks"], &indexed["acknowledged_before"], &indexed["lag"]),
        (&1.into(), &702_862.into(), &0.into())
    );
    let status = client.get_export_status().wait().unwrap();
    assert_eq!((status.exporters[0].lag_blocks, status.exported_before_block), (0, Some(702_862)));
    let acknowledged = json(&net.run(&[&headers[..], &["--ack-headers"]].concat()));
    assert_eq!((&acknowledged["acks"], &acknowledged["acknowledged_before"]), (&1.into(), &702_862.into()));
    let nothing = json(&net.run(&index));
    assert_eq!((&nothing["blocks"], &nothing["acks"], &nothing["held"]["blocks"]), (&0.into(), &1.into(), &1.into()));
    let other = ["index", "--volatile-database", "--database", &net.database(), "--canister", "aaaaa-aa", "--no-ack"];
    let mut command = Command::new(env!("CARGO_BIN_EXE_coppice"));
    let other = command.args(other).args(["--network", &net.gateway.url()]).output().unwrap();
    assert!(error(&other).contains("holds the chain of canister"), "{other:?}");
}

/// A block of mainnet, and a block with keys above it: canister and database answer alike, and the database also after the canister has
/// pruned them.
#[test]
fn get_prints_the_same_from_canister_and_database() {
    let net = Net::start();
    let file = block_file(net.dir.path());
    json(&net.run(&["ingest", "--blk", &file]));
    let client = net.client();
    let head = client.get_head().done().unwrap();
    let ids = [[1; 32], std::array::from_fn(|at| at as u8)];
    let block = Block::new(702_862, [9; 32], head.hash, 1)
        .body("no Bitcoin")
        .transaction(ids[0], Some(b"none"), &[&[0xff], b"alice"])
        .transaction(ids[1], Some(b"two"), &[b"alice"]);
    feed::send(&client, &[block.seal().unwrap()]).unwrap();
    let principal = client.transport().principal(Role::Exporter);
    client.register_exporter(&Exporter { name: "indexer".into(), principal }).done().unwrap();
    let indexed = json(&net.run(&["index", "--until-caught-up", "--database", &net.database()]));
    assert_eq!(
        (&indexed["held"]["blocks_without_keys"], &indexed["held"]["blocks_without_receipts"]),
        (&0.into(), &2.into())
    );
    let filled = json(&net.run(&["index", "--until-caught-up", "--database", &net.database(), "--receipts"]));
    assert_eq!((&filled["filled_blocks"], &filled["held"]["blocks_without_receipts"]), (&2.into(), &0.into()));

    let own = |what: &[&str]| {
        let database = net.database();
        let args = [&["get"], what, &["--database", &database]].concat();
        Command::new(env!("CARGO_BIN_EXE_coppice")).args(args).output().unwrap()
    };
    let both = |what: &[&str]| {
        let canister = json(&net.run(&[&["get"], what].concat()));
        let database = json(&own(&[what, &["--json"]].concat()));
        assert_eq!(canister["chain"], format!("canister {}", net.canister));
        assert_eq!(canister["transactions"], database["transactions"], "{what:?}");
        database
    };
    let block = both(&["702861", "--limit", "1000"]);
    let bitcoin: bitcoin::Block = bitcoin::consensus::deserialize(bitcoin_test_data::blocks::mainnet_702861()).unwrap();
    assert_eq!(block["block"]["hash"], bitcoin.block_hash().to_string(), "in display order");
    assert_eq!(block["block"]["confirmed"], true);
    assert_eq!(block["transactions"].as_array().unwrap().len(), bitcoin.txdata.len().min(1_000));
    let spend = &bitcoin.txdata[1];
    let txid = spend.compute_txid().to_string();
    let found = &both(&[&txid])["transactions"][0];
    assert_eq!((&found["number"], &found["position"]), (&702_861.into(), &1.into()));
    assert_eq!(found["bitcoin"]["inputs"][0]["spends"], spend.input[0].previous_output.to_string());
    assert_eq!(found["bitcoin"]["outputs"][0]["satoshis"], spend.output[0].value.to_sat());
    let alice = both(&["alice"]);
    let place =
        |at: usize| (alice["transactions"][at]["number"].as_u64(), alice["transactions"][at]["position"].as_u64());
    assert_eq!([place(0), place(1), place(2)], [(Some(702_862), Some(1)), (Some(702_862), Some(0)), (None, None)]);
    let internal = both(&[&hex(&ids[1]), "--order", "internal"]);
    assert_eq!(internal["transactions"][0]["receipt"], hex(b"two"));
    assert_eq!(internal["transactions"][0]["keys"], serde_json::json!(["alice"]));
    // Pages: a cursor of the canister, and one of the database.
    for is_canister in [true, false] {
        let page = |what: &[&str]| match is_canister {
            true => net.run(&[&["get"], what].concat()),
            false => own(&[what, &["--json"]].concat()),
        };
        let first = json(&page(&["0xff", "--limit", "1"]));
        assert_eq!((&first["key"], &first["cursor"]), (&"0xff".into(), &serde_json::Value::Null));
        let first = json(&page(&["alice", "--limit", "1"]));
        let cursor = first["cursor"].as_str().unwrap();
        let second = json(&page(&["alice", "--limit", "1", "--cursor", cursor]));
        assert_eq!(
            (&second["transactions"][0], &second["transactions"][1]),
            (&alice["transactions"][1], &serde_json::Value::Null)
        );
    }

    // For people.
    let text = |what: &[&str]| String::from_utf8(own(what).stdout).unwrap();
    let shown = text(&["702861"]);
    assert!(
        shown.starts_with("block 702861\n  hash          000000") && shown.contains("there are more: --cursor 20"),
        "{shown}"
    );
    let shown = text(&[&txid]);
    let first_output =
        format!("output 0    {} BTC", spend.output[0].value.to_string_in(bitcoin::Denomination::Bitcoin));
    assert!(
        shown.contains(&format!("transaction {txid}\n")) && shown.contains(first_output.trim_end_matches("0 BTC")),
        "{shown}"
    );
    assert!(!shown.contains('{'), "JSON is printed only with --json: {shown}");
    // The reader of the pipe has ended.
    let mut unread = Command::new(env!("CARGO_BIN_EXE_coppice"));
    unread.args(["get", "702861", "--database", &net.database()]).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut unread = unread.spawn().unwrap();
    drop(unread.stdout.take());
    let ended = unread.wait_with_output().unwrap();
    assert!(ended.status.success() && ended.stderr.is_empty(), "{ended:?}");
    assert!(error(&own(&["bob"])).contains("no transaction has the key bob"));
    assert!(error(&own(&[&"ab".repeat(32)])).contains("--order"));
    assert!(error(&net.run(&["get", "702860"])).contains("block 702860: "));

    feed::send(&client, &[Block::new(702_863, [8; 32], [9; 32], 2).seal().unwrap()]).unwrap();
    let policy = PrunePolicyArg { retain_blocks: Some(1), ..PrunePolicyArg::default() };
    client.set_prune_policy(&policy).done().unwrap();
    client.prune_now(1_000).done().unwrap();
    for what in ["702861", &txid] {
        assert!(error(&net.run(&["get", what])).contains("a database that coppice index fills keeps pruned blocks"));
        assert!(own(&[what]).status.success(), "{what}");
    }
}

#[test]
fn answers_not_signed_by_the_mainnet_are_refused() {
    let net = Net::start();
    // A registered caller's update passes the ingress filter, whose refusals are not signed.
    let client = net.client();
    let principal = client.transport().principal(Role::Exporter);
    client.register_exporter(&Exporter { name: "indexer".into(), principal }).done().unwrap();
    let untrusting = NetworkArgs { fetch_root_key: false, ..net.args() }.connect().unwrap();
    for error in
        [untrusting.get_head().wait().err().unwrap(), untrusting.ack_exported(1, &[1].into()).wait().err().unwrap()]
    {
        assert!(format!("{error:#}").contains("--fetch-root-key"), "{error:#}");
    }
}

#[test]
fn accepted_call_is_polled_and_a_reject_is_reported() {
    let net = Net::start();
    net.gateway.accept_only();
    let client = net.client();
    let principal = client.transport().principal(Role::Exporter);
    client.register_exporter(&Exporter { name: "indexer".into(), principal }).done().unwrap();
    let anonymous = NetworkArgs { identity: None, ..net.args() }.connect().unwrap();
    let error = anonymous.ack_exported(1, &[1].into()).wait().err().unwrap();
    assert!(format!("{error:#}").contains(&net.gateway.url()), "{error:#}");
}

fn wait_for(what: &str, mut is: impl FnMut() -> bool) {
    let started = Instant::now();
    while !is() {
        assert!(started.elapsed() < Duration::from_secs(300), "{what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Kills the process without warning.
fn kill(mut child: Child) {
    child.kill().unwrap();
    child.wait().unwrap();
}

#[test]
fn repeatedly_killed_indexer_loses_nothing_and_survives_a_failing_gateway() {
    let net = Net::start();
    let client = net.client();
    let principal = client.transport().principal(Role::Exporter);
    client.register_exporter(&Exporter { name: "indexer".into(), principal }).done().unwrap();
    let mut ledger = Ledger::default();
    let blocks = Generator::new(3, 60, 1_700_000_000, 15).unwrap();
    let first = blocks.first();
    for (at, block) in (0..).zip(blocks) {
        feed::send(&client, std::slice::from_ref(&block)).unwrap();
        ledger.record(&block);
        if at % 6 == 0 {
            let args = [
                "index",
                "--database",
                &net.database(),
                "--page-bytes",
                "50000",
                "--ack-every",
                "1",
                "--max-wait-secs",
                "1",
            ];
            let child = net.command(&args).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
            // At an arbitrary point, within a request or between two; a run's first page is about its seventh request.
            let before = net.gateway.answered();
            wait_for("the indexer makes calls", || net.gateway.answered() > before + 1 + at / 4);
            kill(child);
        }
    }
    let index = ["index", "--until-caught-up", "--database", &net.database()];
    let report = json(&net.run(&index));
    assert_eq!(
        (&report["held"]["blocks"], &report["held"]["first"], &report["lag"]),
        (&60.into(), &first.into(), &0.into())
    );
    assert!(report["blocks"].as_u64().unwrap() < 60, "the killed runs have stored blocks: {report}");
    let origin = Origin { canister: net.canister.to_string(), network: String::new(), payload: Payload::All };
    let mut store = ic_coppice_cli::index::store::Store::open(Access::volatile(&net.database()), &origin).unwrap();
    assert_eq!(store.count_same(ledger.entries()).unwrap(), 60);
    assert_eq!(client.get_export_status().wait().unwrap().exported_before_block, Some(first + 60));
    drop(store);

    // An indexer that waits at the head reports failures, continues after them, and ends on a signal.
    let follow = ["index", "--database", &net.database(), "--max-wait-secs", "1"];
    let before = net.gateway.answered();
    let child = net.command(&follow).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    // The root key, the registration, an acknowledgement, and pages.
    wait_for("the indexer is at the head", || net.gateway.answered() > before + 8);
    net.gateway.fail(4);
    wait_for("the indexer retries", || net.gateway.has_failed());
    std::thread::sleep(Duration::from_secs(1));
    let asked = Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap();
    assert!(asked.success());
    let output = child.wait_with_output().unwrap();
    assert!(String::from_utf8_lossy(&output.stderr).contains("trying again"), "{output:?}");
    assert_eq!(json(&output)["held"]["blocks"], 60);
}
