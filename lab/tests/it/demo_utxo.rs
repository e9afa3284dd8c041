//! `demo --utxo`: the output of a short story, and detection of a store that differs from the ledger.

use candid::Principal;
use coppice_lab::demo_utxo::{self, UtxoDemoReport};
use coppice_testkit::embedded::Embedded;
use coppice_testkit::wasm;
use ic_coppice_cli::client::{CanisterClient, Client, Failure, Transport, Wait};
use ic_coppice_interface::*;
use serde_bytes::ByteBuf;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

const BLOCKS: u64 = 600;

fn start() -> Client<Embedded> {
    ic_coppice_host::set_module_cache(ic_coppice_host::default_module_cache());
    Embedded::start(wasm::of_tests()).unwrap()
}

#[test]
fn short_story_succeeds_and_prints_one_line_of_json() {
    let args = ["demo", "--utxo", "--external", "--blocks", "600", "--retain-blocks", "40", "--seed", "5", "--json"];
    let output = Command::new(env!("CARGO_BIN_EXE_coppice-lab")).args(args).output().unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{stderr}");
    let stdout = String::from_utf8(output.stdout).unwrap();
    assert_eq!(stdout.lines().count(), 1, "{stdout}");
    let report: serde_json::Value = serde_json::from_str(&stdout).unwrap();
    assert_eq!((&report["blocks"], &report["block_height_retention"]), (&600.into(), &40.into()));
    let number = |name: &str| report[name].as_u64().unwrap();
    let verified = |name: &str| report["verified"][name].as_u64().unwrap();
    let jobs = |name: &str| report["jobs"][name].as_u64().unwrap();
    assert_eq!(number("records_kept") + number("records_deleted"), number("transactions"));
    assert_eq!((verified("kept"), verified("gone")), (number("records_kept"), number("records_deleted")));
    assert!(verified("gone") > verified("kept") / 2 && verified("due") > 0, "{report}");
    assert!(
        number("parents_updated") > 0 && number("pages_deleted") > 0 && number("preservations_expired") > 0,
        "{report}"
    );
    assert!(jobs("completed") > 100 && jobs("superseded") > 0, "{report}");
    assert_eq!(jobs("stopped"), 1, "{report}");
    assert!(report["instructions_per_record_deleted"].as_u64().is_some_and(|each| each > 0), "{report}");
    let external = |name: &str| report["external"][name].as_u64().unwrap();
    assert_eq!(external("deleted") + external("left"), external("written"));
    assert!(external("deleted") > 100 && external("left") > 100 && external("leases") > 10, "{report}");
    let story: Vec<&str> =
        report["story"].as_array().unwrap().iter().map(|row| row["event"].as_str().unwrap()).collect();
    for expected in [
        "the first records go",
        "the block persister starts",
        "due records wait for it",
        "it has caught up",
        "it stays unmined",
        "kept until",
        "are still there: preserved",
        "mined at last",
        "preserved no longer",
        "are gone",
        "the block assembly stops, and with it the run under way",
        "rolled back",
        "nothing is lost",
        "InvalidSpend",
    ] {
        assert!(story.iter().any(|event| event.contains(expected)), "{expected}: {story:#?}");
    }
}

#[test]
fn too_few_blocks_are_refused_before_the_build() {
    let args = ["demo", "--utxo", "--blocks", "600", "--retain-blocks", "300"];
    let output = Command::new(env!("CARGO_BIN_EXE_coppice-lab")).args(args).output().unwrap();
    assert!(!output.status.success() && output.stdout.is_empty());
    assert!(String::from_utf8_lossy(&output.stderr).contains("--retain-blocks"));
}

/// Preserves a record in addition to its calls, unknown to the ledger.
struct Meddler {
    inner: Client<Embedded>,
    at: u32,
    done: AtomicBool,
}

impl Transport for Meddler {
    async fn update(&self, method: &str, arg: Vec<u8>) -> Result<Vec<u8>, Failure> {
        let reply = self.inner.transport().update(method, arg.clone()).await?;
        if method == "utxo_spend" && !self.done.load(Ordering::Relaxed) {
            let spends: UtxoSpendBatch = candid::decode_one(&arg).unwrap();
            if spends.height >= self.at && !spends.items.is_empty() {
                self.done.store(true, Ordering::Relaxed);
                let until = UtxoPreserveBatch { until_height: 1_000_000, txids: vec![spends.items[0].spender.clone()] };
                self.inner.utxo_preserve(&until).await.unwrap();
            }
        }
        Ok(reply)
    }

    async fn query(&self, method: &str, arg: Vec<u8>) -> Result<Vec<u8>, Failure> {
        self.inner.transport().query(method, arg).await
    }
}

impl CanisterClient for Meddler {
    fn principal(&self, role: Role) -> Principal {
        self.inner.transport().principal(role)
    }

    fn pass(&self, time: Duration) -> anyhow::Result<()> {
        self.inner.transport().pass(time)
    }

    fn await_timer(&self, interval: Duration) -> anyhow::Result<()> {
        self.inner.transport().await_timer(interval)
    }

    fn patience(&self) -> u32 {
        self.inner.transport().patience()
    }
}

#[test]
fn unexpected_change_of_a_record_is_named() {
    let client = Client::new(Meddler { inner: start(), at: 150, done: AtomicBool::new(false) });
    let error = demo_utxo::run(&client, BLOCKS, None, 1).unwrap_err();
    let why = format!("{error:#}");
    assert!(why.contains("transaction ") && why.contains("preserve_until should be None"), "{why}");
}

#[test]
fn canister_with_records_is_refused() {
    let client = start();
    let wrapped = PartialTransaction {
        txid: [7; 32].into(),
        coinbase: false,
        total_outputs: 1,
        outputs: vec![PartialOutput { index: 0, satoshis: 1, script: ByteBuf::from([0x51]) }],
    };
    let item = UtxoCreate {
        source: TransactionSource::Outputs(wrapped),
        mined: None,
        locked: None,
        conflicting: false,
        fee: None,
        is_new: false,
    };
    let batch = client.utxo_create(&UtxoCreateBatch { height: 1, items: vec![item] }).wait().unwrap();
    batch.results[0].as_ref().unwrap();
    let result: anyhow::Result<UtxoDemoReport> = demo_utxo::run(&client, BLOCKS, None, 1);
    assert!(result.unwrap_err().to_string().contains("needs an empty one"));
}
