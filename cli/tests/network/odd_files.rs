//! `coppice ingest` of block files as nodes leave them, and as attackers leave them. `tests/data/odd` has the files, and the right answers
//! in its README.

use crate::net::Net;
use bitcoin::consensus::{deserialize, serialize};
use bitcoin::{Block, Witness};
use ic_coppice_cli::client::Wait;
use ic_coppice_interface::{ConfigChange, ReadError, UtxoSettingsChange};
use std::fs;
use std::path::{Path, PathBuf};

fn odd(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/odd").join(name)
}

/// The result of an ingest.
struct Ingested {
    code: Option<i32>,
    /// Appended blocks and the last hash, if the command reports them.
    reported: Option<(u64, String)>,
    stderr: String,
}

impl Ingested {
    /// Returns the notes on stderr.
    fn notes(&self) -> Vec<&str> {
        self.stderr.lines().filter(|line| line.starts_with("note: ")).collect()
    }

    /// Checks the exit code, the blocks, and the beginning of the last hash.
    fn expect(&self, code: i32, blocks: u64, hash: &str) -> &Self {
        assert_eq!(self.code, Some(code), "{}", self.stderr);
        let (appended, last) = self.reported.as_ref().unwrap();
        assert!(*appended == blocks && last.starts_with(hash), "{appended} {last}: {}", self.stderr);
        self
    }

    /// Checks that the command has ended before it sent anything, with an error that has these parts.
    fn expect_error(&self, parts: &[&str]) {
        assert_eq!((self.code, &self.reported), (Some(1), &None), "{}", self.stderr);
        let error = self.stderr.lines().find(|line| line.starts_with("error: ")).unwrap();
        assert!(parts.iter().all(|part| error.contains(part)), "{error}");
        assert!(!error.contains("{ ") && !error.contains("Some("), "{error}");
    }
}

fn ingest(net: &Net, paths: &[&Path], more: &[&str]) -> Ingested {
    let mut command = net.command(&[&["ingest"], more].concat());
    let output = command.arg("--blk").args(paths).output().unwrap();
    let report: Option<serde_json::Value> = serde_json::from_slice(&output.stdout).ok();
    let reported = report.map(|report| {
        (report["appended"]["blocks"].as_u64().unwrap(), report["last_hash"].as_str().unwrap().to_string())
    });
    Ingested { code: output.status.code(), reported, stderr: String::from_utf8(output.stderr).unwrap() }
}

#[test]
fn torn_frame_hides_no_good_block_and_is_noted_once() {
    for name in ["half-write", "torn-length", "long-frame", "overlap", "bad-then-good"] {
        let ingested = ingest(&Net::start(), &[&odd(name)], &[]);
        let notes = ingested.expect(0, 10, "000000002c05cc2e7892").notes();
        assert!(notes.len() == 1 && notes[0].contains("blk00000.dat") && notes[0].contains("6"), "{name}: {notes:?}");
    }
}

#[test]
fn mutated_block_ends_the_chain_before_it_until_the_right_one_comes() {
    let (mutated, good) = (odd("mutated-utxo"), odd("mutated-utxo-good"));
    let net = Net::start();
    let utxo = UtxoSettingsChange { coinbase_maturity: Some(1), ..UtxoSettingsChange::default() };
    net.client().set_config(&ConfigChange { utxo: Some(utxo), ..ConfigChange::default() }).done().unwrap();
    let rules = ["--network-rules", "regtest", "--utxo"];
    let ended = ingest(&net, &[&mutated], &rules);
    ended.expect(1, 2, "4aaaf295e94e9b010fd4");
    let error = ended.stderr.lines().last().unwrap();
    assert!(error.contains("5a0d1d3b0f24c0b81564") && error.contains("mutation"), "{error}");
    // Whichever comes first.
    for paths in [[&good, &mutated], [&mutated, &good]] {
        ingest(&net, &paths.map(PathBuf::as_path), &rules).expect(0, 4, "4b9af7b6f6474237a462");
    }
    // By the rules of the magic, which is mainnet's.
    ingest(&Net::start(), &[&good], &[]).expect_error(&["no block was found", "mainnet", "--network-rules"]);
}

#[test]
fn chain_with_the_most_work_is_chosen_and_forged_blocks_are_refused() {
    let most = ingest(&Net::start(), &[&odd("most-work")], &["--network-rules", "regtest"]);
    most.expect(0, 3, "000b6c3f27e43c3be1ad");
    let forged = ingest(&Net::start(), &[&odd("forged-fork")], &[]);
    let notes = forged.expect(0, 255, "00000000d0a75c861fab").notes();
    let [note] = &notes[..] else { panic!("{notes:?}") };
    assert!(["stray.dat", "250 blocks", "target", "mainnet"].iter().all(|part| note.contains(part)), "{note}");
}

#[test]
fn plain_and_obfuscated_files_are_read_whole_or_named() {
    let net = Net::start();
    ingest(&net, &[&odd("xor-mixed")], &[]).expect(0, 20, "0000000067a97a2a37b8");
    // Without the key.
    let (net, empty) = (Net::start(), tempfile::tempdir().unwrap());
    for name in ["blk00000.dat", "blk00001.dat"] {
        fs::copy(odd("xor-mixed").join(name), empty.path().join(name)).unwrap();
    }
    ingest(&net, &[empty.path()], &[]).expect_error(&["blk00000.dat", "probably obfuscated", "xor.dat"]);
    assert_eq!(net.client().get_head().wait().unwrap(), Err(ReadError::NotFound));
}

#[test]
fn file_that_is_half_in_another_form_is_named_after_the_rest_is_ingested() {
    // Mainnet's blocks in a plain file, and the next ones obfuscated, or with the magic of another network.
    let [plain, obfuscated] = ["half-write", "xor-mixed"].map(|name| fs::read(odd(name).join("blk00000.dat")).unwrap());
    let mut testnet = plain.clone();
    let magic: [u8; 4] = plain[..4].try_into().unwrap();
    while let Some(at) = testnet.windows(4).position(|bytes| bytes == magic) {
        testnet[at..at + 4].copy_from_slice(&[0x0B, 0x11, 0x09, 0x07]);
    }
    for (what, more) in [("obfuscated", obfuscated), ("testnet", testnet)] {
        let net = Net::start();
        let path = net.dir.path().join("half.dat");
        fs::write(&path, [&plain[..], &more].concat()).unwrap();
        let half = ingest(&net, &[&path], &[]);
        half.expect(1, 10, "000000002c05cc2e7892");
        let error = format!(
            "error: {}: {} bytes from byte {} on are not blocks of mainnet and are left out; they may be blocks of another network, or obfuscated \
             differently. Get the file anew, or remove these bytes if they are not blocks",
            path.display(),
            // Zeros at the end count as reserved space.
            more.iter().rposition(|&byte| byte != 0).unwrap() + 1,
            plain.len()
        );
        assert_eq!(half.stderr.lines().last(), Some(&*error), "{what}");
    }
}

#[test]
fn branches_after_a_block_that_no_file_has_are_compared_by_their_work() {
    let net = Net::start();
    let rules = ["--network-rules", "regtest"];
    // Without the first block, which both branches continue, and with a frame of zeros and sevens at the end.
    let whole = fs::read(odd("most-work").join("blk00000.dat")).unwrap();
    let path = net.dir.path().join("branches.dat");
    let junk = [&whole[..4], &[200, 0, 0, 0], &[7; 200]].concat();
    fs::write(&path, [&whole[152..], &junk].concat()).unwrap();
    let chosen = ingest(&net, &[&path], &rules);
    chosen.expect(0, 2, "000b6c3f27e43c3be1ad");
    let notes = chosen.notes();
    assert!(notes.iter().any(|note| note.contains("left out: a fork after 6c5a55ffc7d159ef36c9")), "{notes:?}");
    assert!(!chosen.stderr.contains("not in the files") && !chosen.stderr.contains("another chain"), "{notes:?}");
}

#[test]
fn mutated_stripped_and_damaged_real_block_is_refused() {
    let net = Net::start();
    let path = net.dir.path().join("block.raw");
    let real = || deserialize::<Block>(bitcoin_test_data::blocks::mainnet_702861()).unwrap();
    let inputs = |block: &mut Block, alter: fn(&mut Witness)| {
        let inputs = block.txdata.iter_mut().flat_map(|transaction| &mut transaction.input);
        inputs.for_each(|input| alter(&mut input.witness));
    };
    let [mut twice, mut stripped, mut flipped] = [real(), real(), real()];
    twice.txdata.extend(real().txdata.pop());
    inputs(&mut stripped, Witness::clear);
    inputs(&mut flipped, |witness| {
        let mut items = witness.to_vec();
        items.iter_mut().filter(|item| item.len() > 64).for_each(|item| item[9] ^= 1);
        *witness = Witness::from_slice(&items);
    });
    for (block, part) in [(twice, "mutation"), (stripped, "stripped"), (flipped, "do not match the commitment")] {
        fs::write(&path, serialize(&block)).unwrap();
        ingest(&net, &[&path], &[]).expect_error(&["block.raw", part]);
    }
    assert_eq!(net.client().get_head().wait().unwrap(), Err(ReadError::NotFound));
}

#[test]
fn head_on_another_branch_is_named_with_the_calls_that_help() {
    let net = Net::start();
    let rules = ["--network-rules", "regtest", "--utxo"];
    let whole = odd("most-work").join("blk00000.dat");
    let weak = net.dir.path().join("weak.dat");
    // The branch with four blocks, without the one that has more work.
    fs::write(&weak, &fs::read(&whole).unwrap()[..611]).unwrap();
    ingest(&net, &[&weak], &rules).expect(0, 4, "3d98b1e5abaf606405dd");
    let common = "the last block of both is number 1 (6c5a55ffc7d159ef36c9";
    let parts =
        ["number 4 (3d98b1e5abaf606405dd", common, "rollback_to '(1 : nat64, null)'", "takes applied blocks back"];
    ingest(&net, &[&whole], &rules).expect_error(&parts);
    let client = net.client();
    client.roll_back_to(1).done().unwrap();
    ingest(&net, &[&whole], &rules).expect(0, 3, "000b6c3f27e43c3be1ad");
    // Files that end below the head, and files of another chain.
    fs::write(&weak, &fs::read(&whole).unwrap()[..152]).unwrap();
    ingest(&net, &[&weak], &rules).expect_error(&["is ahead of these blocks", "its block 1"]);
    ingest(&net, &[&odd("mutated-utxo-good").join("blk00000.dat")], &rules).expect_error(&["on another branch"]);
    ingest(&net, &[&odd("xor-mixed").join("blk00001.dat")], &[]).expect_error(&["not among these blocks"]);
}
