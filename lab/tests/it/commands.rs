//! Tests of the commands on the canister's real wasm: `COPPICE_WASM`, or the output of `scripts/build-wasm`.

use coppice_lab::{demo, ingest};
use coppice_testkit::chain_gen::Generator;
use coppice_testkit::embedded::Embedded;
use coppice_testkit::refusals::World;
use coppice_testkit::wasm;
use ic_coppice_cli::client::{Client, Failure, Transport, Wait};
use ic_coppice_cli::feed;
use ic_coppice_cli::index::origin::{Origin, Payload};
use ic_coppice_cli::ingest::Plan;
use ic_coppice_cli::ledger::Ledger;
use ic_coppice_cli::verify::{Depth, verify};
use std::io::Write;
use std::path::PathBuf;
use std::process::Command;

fn wasm() -> Vec<u8> {
    ic_coppice_host::set_module_cache(ic_coppice_host::default_module_cache());
    wasm::of_tests()
}

#[test]
fn small_demonstration_prunes_verifies_and_prints_one_line_of_json() {
    // Without `--json`, because stdout is not a terminal.
    let args = ["demo", "--blocks", "200", "--retain-blocks", "30", "--seed", "5"];
    let output = Command::new(env!("CARGO_BIN_EXE_coppice-lab")).args(args).output().unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{stderr}");
    let stdout = String::from_utf8(output.stdout).unwrap();
    assert_eq!(stdout.lines().count(), 1, "{stdout}");
    let report: serde_json::Value = serde_json::from_str(&stdout).unwrap();
    assert_eq!(report["appended"]["blocks"], 200);
    assert_eq!((&report["pruned"]["blocks"], &report["kept"]["blocks"]), (&169.into(), &31.into()));
    assert_eq!((&report["verified"]["blocks"], &report["verified"]["pruned_blocks"]), (&31.into(), &169.into()));
    let number = |name: &str| report[name].as_u64().unwrap();
    assert!(number("used_bytes") + number("reusable_bytes") < number("billed_bytes"), "{report}");
    assert!(report["instructions"]["per_block_pruned"].as_u64().unwrap() > 0, "{report}");
}

#[test]
fn demonstration_on_another_client_counts_no_instructions_and_removes_its_exporter() {
    let world = World::new();
    let (client, begins_at) = (world.client(), world.host.get_time_nanos() / 1_000_000_000);
    let origin = Origin { canister: world.canister.to_string(), network: "embedded".into(), payload: Payload::Headers };
    let report = demo::play(&client, demo::Plan::new(150, Some(20), 1).unwrap(), begins_at, &origin).unwrap();
    assert_eq!((report.indexed.verified_blocks, report.indexed.pruned_before_indexed), (150, 0));
    assert_eq!(report.verified.pruned_blocks, 129);
    assert!(report.instructions.is_none(), "only the embedded canister counts instructions");
    assert!(client.get_export_status().wait().unwrap().exporters.is_empty(), "the exporter was removed again");
}

#[test]
fn mainnet_blocks_1_to_255_go_in_whole() {
    let Some(blocks) = std::env::var_os("COPPICE_BLOCKS").map(PathBuf::from) else {
        // Bypasses the test harness, which hides the output of a passing test.
        let note = "not run: mainnet_blocks_1_to_255_go_in_whole; COPPICE_BLOCKS names no directory of blocks";
        writeln!(std::io::stderr(), "{note}").unwrap();
        return;
    };
    let ordered = ic_coppice_cli::ingest::read(&[blocks], None).unwrap();
    let report = ingest::run(wasm(), &ordered, &Plan::default()).unwrap().ingest;
    assert_eq!((report.first_block, report.last_block), (1, 255));
    assert_eq!(report.last_hash, "00000000d0a75c861fabf9ff7b92022f60e4afeed9331fe5aa073d8e4706fe3c");
    let verified = report.verified;
    assert_eq!((verified.blocks, verified.transactions, verified.receipts), (255, 262, 262));
    let plan = Plan { first_number: Some(1_000), retain_blocks: Some(100), ..Plan::default() };
    let pruning = ingest::run(wasm(), &ordered, &plan).unwrap().ingest;
    assert_eq!((pruning.first_block, pruning.pruned.blocks, pruning.verified.blocks), (1_000, 154, 101));
}

/// Answers one query with the answer to another argument.
struct Liar<'a> {
    honest: &'a Embedded,
    method: &'static str,
    arg: Vec<u8>,
}

impl Transport for Liar<'_> {
    async fn update(&self, method: &str, arg: Vec<u8>) -> Result<Vec<u8>, Failure> {
        self.honest.update(method, arg).await
    }

    async fn query(&self, method: &str, arg: Vec<u8>) -> Result<Vec<u8>, Failure> {
        self.honest.query(method, if method == self.method { self.arg.clone() } else { arg }).await
    }
}

#[test]
fn verify_detects_wrong_answers() {
    let client = Embedded::start(wasm()).unwrap();
    let mut ledger = Ledger::default();
    let mut id = Vec::new();
    let generator = Generator::new(1, 10, client.transport().now_secs(), 0).unwrap();
    let first = generator.first();
    for block in generator {
        feed::send(&client, std::slice::from_ref(&block)).unwrap();
        ledger.record(&block);
        id = feed::ids_of(&block.index)[0].to_vec();
    }
    let check = |method, arg| {
        let liar = Client::new(Liar { honest: client.transport(), method, arg });
        verify(&liar, &ledger, first, Depth::All)
    };
    assert_eq!(check("", Vec::new()).unwrap().blocks, 10);
    let id = candid::encode_one(serde_bytes::Bytes::new(&id)).unwrap();
    for (method, arg) in [
        ("get_block", candid::encode_one(first + 1).unwrap()),
        ("get_transaction_location", id.clone()),
        ("get_receipt", id),
    ] {
        assert!(check(method, arg).is_err(), "{method}");
    }
    // Verification fails if kept blocks should be pruned.
    assert!(verify(&client, &ledger, first + 1, Depth::All).is_err());
}

#[test]
fn error_names_the_missing_file() {
    let output =
        Command::new(env!("CARGO_BIN_EXE_coppice-lab")).args(["ingest", "--blk", "no-such-file"]).output().unwrap();
    assert!(!output.status.success() && output.stdout.is_empty());
    assert!(String::from_utf8_lossy(&output.stderr).contains("no-such-file"));
}

/// The compiled canister is cached for the next command; `ic_coppice_host` tests damaged entries.
#[test]
fn compiled_canister_is_cached_unless_the_option_says_no() {
    let dir = tempfile::tempdir().unwrap();
    let (module, wasm_file, cache) =
        (b"\0asm\x01\0\0\0", dir.path().join("canister.wasm"), dir.path().join("compiled"));
    std::fs::write(&wasm_file, module).unwrap();
    // A canister without methods is compiled and installed, and the first call fails.
    let run = |more: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_coppice-lab"));
        command.args(["demo", "--json", "--wasm"]).arg(&wasm_file).args(more);
        let output = command.env("COPPICE_MODULE_CACHE", &cache).output().unwrap();
        assert_eq!(output.status.code(), Some(1), "{}", String::from_utf8_lossy(&output.stderr));
    };
    run(&["--no-cache"]);
    assert!(!cache.exists());
    run(&[]);
    let entries = || -> Vec<PathBuf> { std::fs::read_dir(&cache).unwrap().map(|file| file.unwrap().path()).collect() };
    let [entry] = &entries()[..] else { panic!("{:?}", entries()) };
    // A new entry is a new file that replaces the old one.
    let file = || std::os::unix::fs::MetadataExt::ino(&std::fs::metadata(entry).unwrap());
    let first = file();
    run(&[]);
    assert_eq!((entries().len(), file()), (1, first), "the entry is used unchanged");
}
