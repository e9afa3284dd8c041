//! `coppice verify`, `prove` and `check-proof` on the copy of a canister's chain, of which the canister has pruned most blocks.

use crate::net::Net;
use coppice_testkit::chain_gen::Generator;
use ic_coppice_cli::client::{CanisterClient, Wait};
use ic_coppice_interface::{Exporter, PrunePolicyArg, ReadError, Role};
use serde_json::Value;
use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Output};

/// Blocks of the chain.
const BLOCKS: u64 = 30;

/// A chain that was copied, and then pruned.
struct Copied {
    net: Net,
    /// The first block, and the head.
    numbers: [u64; 2],
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn stderr_of(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn json(output: &Output) -> Value {
    assert!(output.status.success(), "{}", stderr_of(output));
    serde_json::from_slice(&output.stdout).unwrap()
}

impl Copied {
    fn new() -> Self {
        let net = Net::start();
        let client = net.client();
        let principal = client.transport().principal(Role::Exporter);
        client.register_exporter(&Exporter { name: "indexer".into(), principal }).done().unwrap();
        let blocks: Vec<_> = Generator::new(5, BLOCKS, 1_700_000_000, 15).unwrap().collect();
        ic_coppice_cli::feed::send(&client, &blocks).unwrap();
        let copied = net.run(&["index", "--until-caught-up", "--database", &net.database()]);
        assert!(copied.status.success(), "{}", stderr_of(&copied));
        let policy = PrunePolicyArg { retain_blocks: Some(1), ..PrunePolicyArg::default() };
        client.set_prune_policy(&policy).done().unwrap();
        client.prune_now(1_000).done().unwrap();
        Self { net, numbers: [blocks[0].number, blocks[blocks.len() - 1].number] }
    }

    fn run(&self, args: &[&str]) -> Output {
        Command::new(env!("CARGO_BIN_EXE_coppice")).args(args).output().unwrap()
    }

    /// Returns the options of a check by the network's root key.
    fn trust(&self) -> [String; 4] {
        let (canister, key) = (self.net.canister.to_string(), hex(&self.net.host.root_key()));
        ["--canister".into(), canister, "--root-key".into(), key]
    }

    fn verify(&self, trust: &[String]) -> Output {
        let trust: Vec<&str> = trust.iter().map(String::as_str).collect();
        self.run(&[&["verify", "--json", "--database", &self.net.database()][..], &trust].concat())
    }

    /// Writes the proof of a block, and returns its file.
    fn prove(&self, block: u64) -> String {
        let output = self.run(&["prove", &block.to_string(), "--database", &self.net.database()]);
        assert!(output.status.success(), "{}", stderr_of(&output));
        let path = self.net.path(&format!("{block}.json"));
        std::fs::write(&path, output.stdout).unwrap();
        path
    }

    fn check(&self, file: &str, trust: &[String]) -> Output {
        let trust: Vec<&str> = trust.iter().map(String::as_str).collect();
        self.run(&[&["check-proof", file, "--json", "--order", "internal"][..], &trust].concat())
    }
}

#[test]
fn archive_proves_pruned_blocks_by_the_root_key() {
    let copied = Copied::new();
    let ([first, last], trust) = (copied.numbers, copied.trust());
    let client = copied.net.client();
    assert!(matches!(client.get_block(first + 1).wait().unwrap(), Err(ReadError::Pruned { .. })));
    let verified = json(&copied.verify(&trust));
    assert_eq!((&verified["blocks"], &verified["last"]), (&BLOCKS.into(), &last.into()), "{verified}");
    assert_eq!(verified["newest_certificate"]["number"], last, "{verified}");
    assert_eq!(verified["unreached"], Value::Array(Vec::new()), "{verified}");
    for block in [first + 1, first + 7, last] {
        let file = copied.prove(block);
        let checked = json(&copied.check(&file, &trust));
        assert_eq!((&checked["block"]["number"], &checked["certified"]["number"]), (&block.into(), &last.into()));
    }
    let head = client.get_head().wait().unwrap().unwrap();
    let checked = json(&copied.check(&copied.prove(last), &trust));
    assert_eq!(
        (&checked["block"]["hash"], &checked["block"]["seal"]),
        (&hex(&head.hash).into(), &hex(&head.seal).into())
    );
    // The mainnet's key, another key, and another canister.
    let file = copied.prove(first + 1);
    let [name, canister, option, _] = trust.clone();
    let subnet = hex(copied.net.host.keys().subnet_key());
    for trust in [
        vec![name.clone(), canister.clone()],
        vec![name.clone(), canister, option.clone(), subnet],
        vec![name, "aaaaa-aa".into(), option, trust[3].clone()],
    ] {
        let refused = copied.check(&file, &trust);
        assert_eq!((refused.status.code(), refused.stdout.len()), (Some(1), 0), "{trust:?}");
        let why = stderr_of(&refused);
        assert!(why.contains("the certificate does not hold for this canister and this root key"), "{why}");
        assert_eq!(copied.verify(&trust).status.code(), Some(1), "{trust:?}");
    }
}

/// Returns the directory that `scripts/setup --with-bindgen` installs. Returns `None` and prints a note if it or Node is missing.
fn installed() -> Option<std::path::PathBuf> {
    let target = Path::new(env!("CARGO_MANIFEST_DIR")).join("../target/bindgen");
    let has_node = Command::new("node").arg("--version").output().is_ok_and(|output| output.status.success());
    if has_node && target.join("node_modules/@icp-sdk/core").exists() {
        return Some(target);
    }
    let note = "not run: a proof by Node; node or the packages of scripts/setup --with-bindgen are missing\n";
    std::io::stderr().write_all(note.as_bytes()).unwrap();
    None
}

#[test]
fn proof_of_a_pruned_block_is_checked_by_node() {
    let Some(bindgen) = installed() else { return };
    let copied = Copied::new();
    let [_, canister, _, root_key] = copied.trust();
    let file = copied.prove(copied.numbers[0] + 7);
    // Below the installation, where node finds the library.
    let dir = tempfile::tempdir_in(&bindgen).unwrap();
    let script = dir.path().join("proof.mjs");
    std::fs::copy(concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/typescript/proof.mjs"), &script).unwrap();
    let run = |file: &str, canister: &str, root_key: &str| {
        Command::new("node").arg(&script).args([file, canister, root_key]).output().unwrap()
    };
    let found = json(&run(&file, &canister, &root_key));
    let ours = json(&copied.check(&file, &copied.trust()));
    for field in ["number", "hash", "parent_hash", "timestamp_secs", "lengths", "sha256", "seal"] {
        assert_eq!(found[field], ours["block"][field], "{field}");
    }
    assert_eq!(found["time_ns"], ours["certified"]["time_ns"].to_string());
    // Both refuse a changed leaf, and another key.
    let text = std::fs::read_to_string(&file).unwrap();
    let leaf = text.find("\"leaves\":[\"").unwrap() + 11;
    let digit = if text.as_bytes()[leaf] == b'0' { "1" } else { "0" };
    let changed = copied.net.path("changed.json");
    std::fs::write(&changed, [&text[..leaf], digit, &text[leaf + 1..]].concat()).unwrap();
    assert!(!copied.check(&changed, &copied.trust()).status.success());
    let refused = run(&changed, &canister, &root_key);
    assert!(!refused.status.success() && stderr_of(&refused).contains("another seal"), "{}", stderr_of(&refused));
    assert!(!run(&file, &canister, &hex(copied.net.host.keys().subnet_key())).status.success());
}
