//! Tests of the indexer on the canister's real wasm.

use anyhow::Result;
use candid::Principal;
use coppice_lab::lockstep_indexer::LockstepIndexer;
use coppice_testkit::embedded::Embedded;
use coppice_testkit::random::Random;
use coppice_testkit::wasm;
use ic_coppice_cli::client::{Block, CanisterClient, Client, Failure, Transport, Wait};
use ic_coppice_cli::feed;
use ic_coppice_cli::get::chain::Page;
use ic_coppice_cli::get::query::{Order, Wanted};
use ic_coppice_cli::get::{archive, get};
use ic_coppice_cli::index::database::Access;
use ic_coppice_cli::index::engine::Engine;
use ic_coppice_cli::index::origin::{Origin, Payload};
use ic_coppice_cli::index::steps::{Checkpoint, Event, Options, Step};
use ic_coppice_cli::index::store::Store;
use ic_coppice_cli::index::tables::Tables;
use ic_coppice_cli::ledger::Ledger;
use ic_coppice_client::KeyPager;
use ic_coppice_client::certificate::Vouched;
use ic_coppice_interface::segments::{Index, Receipts};
use ic_coppice_interface::{AppendBlock, ExportError, ExportPage, Exporter, PrunePolicyArg, Role};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Different keys of transactions.
const KEYS: u64 = 4;

/// Appends blocks of random sizes, rolls back, and records the chain.
struct Feeder<'a> {
    client: &'a Client<Embedded>,
    random: Random,
    chain: Vec<AppendBlock>,
}

impl Feeder<'_> {
    fn append(&mut self, body: u64) {
        let (number, parent) = match self.chain.last() {
            Some(block) => (block.number + 1, block.hash.as_slice().try_into().unwrap()),
            None => (500, [9; 32]),
        };
        let hash = feed::sha256(&[&parent[..], &self.random.word().to_le_bytes()].concat());
        let body: Vec<u8> = (0..body).map(|_| self.random.word() as u8).collect();
        let ids: Vec<[u8; 32]> =
            (0..self.random.below(5)).map(|_| feed::sha256(&self.random.word().to_le_bytes())).collect();
        let block = Block::new(number, hash, parent, self.client.transport().now_secs()).body(body);
        let with = |block: Block, id: [u8; 32]| {
            let key = [self.random.below(KEYS) as u8];
            block.transaction(id, Some(&id[..usize::from(id[0]) % 32]), &[&key])
        };
        let block = ids.into_iter().fold(block, with).seal().unwrap();
        feed::send(self.client, std::slice::from_ref(&block)).unwrap();
        self.chain.push(block);
    }

    fn roll_back(&mut self, blocks: usize) {
        self.chain.truncate(self.chain.len() - blocks);
        let head = self.chain.last().unwrap().number;
        self.client.roll_back_to(head).done().unwrap();
    }
}

/// Fails at the n-th checkpoint.
struct Die(u64);

impl Checkpoint for Die {
    fn reached(&mut self, _: Step) -> Result<()> {
        self.0 -= 1;
        if self.0 == 0 { anyhow::bail!("died") } else { Ok(()) }
    }
}

/// Indexes, failing and restarting every few checkpoints, until the head or `pages` pages. Returns the notes on reorgs.
fn index(client: &Client<Embedded>, url: &str, random: &mut Random, pages: Option<u64>, tables: Tables) -> Vec<String> {
    let origin =
        Origin { canister: client.transport().canister().to_string(), network: "".into(), payload: Payload::All };
    let options = Options {
        page_bytes: 40_000,
        ack_every: Some(2),
        skip_damaged: false,
        accept_reset: false,
        accept_restore: false,
        keep_orphaned: 1_000,
        tables,
    };
    let (mut notes, mut stored) = (Vec::new(), 0);
    loop {
        let store = Store::open(Access::volatile(url), &origin).unwrap();
        let mut engine = Engine::open(client, store, options, Die(3 + random.below(20))).unwrap();
        loop {
            match engine.step() {
                Ok(Event::CaughtUp) => return notes,
                Ok(Event::Stored) => stored += 1,
                Ok(Event::Note(note)) if note.contains("lack rows") => {}
                Ok(Event::Note(note)) => notes.push(note),
                Ok(_) => {}
                Err(error) if error.to_string() == "died" => break,
                Err(error) => panic!("{error:#}"),
            }
            if pages.is_some_and(|pages| stored >= pages) {
                return notes;
            }
        }
    }
}

fn client() -> Client<Embedded> {
    ic_coppice_host::set_module_cache(ic_coppice_host::default_module_cache());
    Embedded::start(wasm::of_tests()).unwrap()
}

#[test]
fn chain_with_rollbacks_and_pruning_is_copied_by_a_restarting_indexer() {
    let dir = tempfile::tempdir().unwrap();
    let url = format!("sqlite://{}/index.db", dir.path().display());
    let client = client();
    let principal = client.transport().principal(Role::Exporter);
    client.register_exporter(&Exporter { name: "tests".into(), principal }).done().unwrap();
    let policy = PrunePolicyArg { retain_blocks: Some(10), ..PrunePolicyArg::default() };
    let policy = client.set_prune_policy(&policy).done().unwrap().new;
    let mut random = Random::new(11);
    let mut feeder = Feeder { client: &client, random: Random::new(5), chain: Vec::new() };
    let mut reorgs = 0;
    for round in 0..25 {
        for _ in 0..1 + random.below(6) {
            let long = random.below(6) == 0;
            feeder.append(if long { 200_000 } else { random.below(9_000) });
        }
        // Every third round stops before the head, in the middle of a block.
        let pages = (round % 3 == 1).then(|| 1 + random.below(3));
        // Some rounds leave tables unfilled, and the next round that fills them makes their rows.
        let tables = Tables { keys: random.below(4) > 0, receipts: random.below(2) > 0 };
        reorgs += index(&client, &url, &mut random, pages, tables).len();
        client.transport().pass(Duration::from_secs(policy.timer_interval_secs)).unwrap();
        if round % 4 == 2 {
            let blocks = 1 + random.below(3) as usize;
            feeder.roll_back(blocks);
        }
    }
    reorgs += index(&client, &url, &mut random, None, Tables { keys: true, receipts: true }).len();
    assert!(reorgs >= 3, "{reorgs}");

    let mut ledger = Ledger::default();
    feeder.chain.iter().for_each(|block| ledger.record(block));
    let origin =
        Origin { canister: client.transport().canister().to_string(), network: "".into(), payload: Payload::All };
    let mut store = Store::open(Access::volatile(&url), &origin).unwrap();
    let held = store.held().unwrap();
    assert_eq!(store.count_same(ledger.entries()).unwrap(), feeder.chain.len() as u64);
    assert_eq!(
        (held.blocks, held.transactions, held.gap_blocks),
        (feeder.chain.len() as u64, ledger.transactions(), 0)
    );
    let status = client.get_prune_status().wait().unwrap();
    assert!(status.pruned_blocks > 20, "{status:?}");
    let exporter = &client.get_export_status().wait().unwrap().exporters[0];
    assert_eq!((exporter.lag_blocks, Some(exporter.exported_before_block)), (0, held.last.map(|last| last + 1)));
    assert_eq!((held.blocks_without_keys, held.blocks_without_receipts), (0, 0));
    for key in 0..KEYS as u8 {
        archive_answers_by_key_as_the_canister(&client, &url, &feeder.chain, &[key]);
    }
    for block in &feeder.chain {
        archive_answers_by_id(&url, block);
    }
}

/// The database lists the transactions with a key of all blocks, of which the canister lists the newest.
fn archive_answers_by_key_as_the_canister(client: &Client<Embedded>, url: &str, chain: &[AppendBlock], key: &[u8]) {
    let with_key = |block: &AppendBlock| {
        let index = Index::parse(&block.index).unwrap();
        let mut positions: Vec<u32> = index.each_key().filter(|of| of.bytes == key).map(|of| of.transaction).collect();
        positions.sort_unstable();
        positions.into_iter().rev().map(|at| (block.number, at, index.id(at).unwrap().to_vec())).collect::<Vec<_>>()
    };
    let expected: Vec<_> = chain.iter().rev().flat_map(with_key).collect();
    let (mut found, mut cursor) = (Vec::new(), None);
    loop {
        let page = Page { cursor, limit: 7 };
        let wanted = Wanted::Key(key.to_vec());
        let list = archive::read(url, |archive| get(archive, &wanted, Order::Internal, &page)).unwrap();
        found.extend(list.transactions.into_iter().map(|of| (of.number, of.position, of.id)));
        cursor = list.cursor;
        if cursor.is_none() {
            break;
        }
    }
    let hex = |id: &[u8]| Order::Internal.show(id);
    let shown: Vec<_> = expected.iter().map(|(number, at, id)| (*number, *at, hex(id))).collect();
    assert_eq!(found, shown);
    let kept = KeyPager::new(key, 0).all(client).wait().unwrap().unwrap();
    let kept: Vec<_> = kept.into_iter().map(|of| (of.block_number, of.position, of.id.into_vec())).collect();
    assert!(!kept.is_empty() && kept.len() < expected.len(), "some are pruned");
    assert_eq!(kept, expected[..kept.len()]);
}

/// The database has the receipt and the keys of each transaction of a block.
fn archive_answers_by_id(url: &str, block: &AppendBlock) {
    let index = Index::parse(&block.index).unwrap();
    let receipts = Receipts::parse(&block.receipts, index.transactions()).unwrap();
    for (position, id) in (0..).zip(index.ids()) {
        let (wanted, page) = (Wanted::Transaction(*id), Page { cursor: None, limit: 5 });
        let found = archive::read(url, |archive| get(archive, &wanted, Order::Internal, &page)).unwrap();
        let [found] = &found.transactions[..] else { panic!("one block") };
        assert_eq!((found.number, found.position), (block.number, position));
        let whole = found.whole.as_ref().unwrap();
        assert_eq!(whole.receipt.clone().flatten(), receipts.get(position).map(|bytes| Order::Internal.show(bytes)));
        assert_eq!(whole.keys.as_ref().map(Vec::len), Some(1));
    }
}

/// A canister that cannot read its next block once `is_damaged` is set.
struct Damaged {
    inner: Client<Embedded>,
    is_damaged: AtomicBool,
}

impl Transport for Damaged {
    async fn update(&self, method: &str, arg: Vec<u8>) -> Result<Vec<u8>, Failure> {
        match self.page(method) {
            Some(page) => Ok(page),
            None => self.inner.transport().update(method, arg).await,
        }
    }

    async fn query(&self, method: &str, arg: Vec<u8>) -> Result<Vec<u8>, Failure> {
        match self.page(method) {
            Some(page) => Ok(page),
            None => self.inner.transport().query(method, arg).await,
        }
    }
}

impl Damaged {
    /// Returns the answer to a call for a page, if the block is damaged.
    fn page(&self, method: &str) -> Option<Vec<u8>> {
        let error = ExportError::Corrupt { number: 501, why: "damaged".into(), next: None };
        let is_damaged = method == "export_blocks" && self.is_damaged.load(Ordering::Relaxed);
        is_damaged.then(|| candid::encode_one(Err::<ExportPage, _>(error)).unwrap())
    }
}

impl CanisterClient for Damaged {
    fn principal(&self, role: Role) -> Principal {
        self.inner.transport().principal(role)
    }

    fn vouched(&self, certificate: &[u8]) -> Result<Vouched> {
        self.inner.transport().vouched(certificate)
    }

    fn now(&self) -> Duration {
        self.inner.transport().now()
    }
}

#[test]
fn failing_indexer_ends_the_run_with_its_error() {
    let dir = tempfile::tempdir().unwrap();
    let url = format!("sqlite://{}/index.db", dir.path().display());
    let client = Client::new(Damaged { inner: client(), is_damaged: AtomicBool::new(false) });
    let canister = client.transport().inner.transport().canister().to_string();
    let origin = Origin { canister, network: "embedded".into(), payload: Payload::Headers };
    let mut feeder = Feeder { client: &client.transport().inner, random: Random::new(5), chain: Vec::new() };
    let mut feed = |indexer: &mut LockstepIndexer<Damaged>| {
        feeder.append(10);
        indexer.appended(1);
        indexer.catch_up()
    };
    let mut indexer = LockstepIndexer::start(&client, Access::volatile(&url), &origin, Tables::NONE).unwrap();
    feed(&mut indexer).unwrap();
    assert_eq!(indexer.engine().tip(), Some(500));
    client.transport().is_damaged.store(true, Ordering::Relaxed);
    assert!(feed(&mut indexer).unwrap_err().to_string().contains("cannot read block 501"));
    drop(indexer);
    let again =
        LockstepIndexer::start(&client, Access::volatile(&url), &origin, Tables::NONE).err().unwrap().to_string();
    assert!(again.contains("1 block of another run"), "{again}");
}

fn coppice(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_coppice-lab")).args(args).output().unwrap()
}

#[test]
fn command_copies_a_chain_that_is_pruned_behind_it() {
    let dir = tempfile::tempdir().unwrap();
    let url = format!("sqlite://{}/index.db", dir.path().display());
    let args = ["index", "--database", &url, "--blocks", "200", "--retain-blocks", "40", "--json"];
    let output = coppice(&args);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((&report["blocks"], &report["held"]["blocks"], &report["lag"]), (&200.into(), &200.into(), &0.into()));
    assert_eq!((&report["pruned_blocks"], &report["held"]["gap_blocks"]), (&159.into(), &0.into()));
    assert_eq!(report["checked"]["verified_blocks"], 200);
    assert!(report["acks"].as_u64().unwrap() > 0, "{report}");
    // The canister no longer exists, and another one's chain must not be mixed in.
    let output = coppice(&args);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && stderr.contains("200 blocks of another run"), "{stderr}");
}

/// Copies blocks of files into a database. Returns the command's report, and the places at which the database has a transaction.
fn copied(blocks: &Path, more: &[&str], transaction: &str) -> (serde_json::Value, Vec<(u64, u32)>) {
    let dir = tempfile::tempdir().unwrap();
    let url = format!("sqlite://{}/index.db", dir.path().display());
    let args = ["index", "--json", "--database", &url, "--blk", blocks.to_str().unwrap()];
    let output = coppice(&[&args[..], more].concat());
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let (wanted, page) = (Wanted::parse(transaction, None, Order::Display).unwrap(), Page { limit: 10, cursor: None });
    let found = archive::read(&url, |archive| get(archive, &wanted, Order::Display, &page)).unwrap();
    let places = found.transactions.iter().map(|of| (of.number, of.position)).collect();
    (serde_json::from_slice(&output.stdout).unwrap(), places)
}

#[test]
fn bitcoin_blocks_of_files_are_indexed_and_pruned() {
    let dir = tempfile::tempdir().unwrap();
    let block = dir.path().join("block.raw");
    std::fs::write(&block, bitcoin_test_data::blocks::mainnet_702861()).unwrap();
    let third = "2b22b06220e31781c94ccaa68f654d54749eb37a1ab0de9c3aadd27f075e434b";
    let (report, found) = copied(&block, &[], third);
    assert_eq!((&report["held"]["blocks"], &report["pruned_blocks"]), (&1.into(), &0.into()), "{report}");
    assert_eq!(found, [(702_861, 2)]);
    let (_, found) = copied(&block, &["--first-number", "7"], third);
    assert_eq!(found, [(7, 2)]);
    let output = coppice(&["index", "--blk", "no-such-file"]);
    assert!(!output.status.success() && String::from_utf8_lossy(&output.stderr).contains("no-such-file"));

    let Some(blocks) = std::env::var_os("COPPICE_BLOCKS").map(PathBuf::from) else { return };
    let first = "0e3e2357e806b6cdb1f70b54c3a3a17b6714ee1f0e68bebb44a74b1efd512098";
    let (report, found) = copied(&blocks, &[], first);
    assert_eq!((&report["held"]["blocks"], &report["pruned_blocks"]), (&255.into(), &203.into()), "{report}");
    assert_eq!(report["checked"]["verified_blocks"], 255);
    assert_eq!(found, [(1, 0)]);
}

#[test]
fn unknown_database_kind_is_refused_first() {
    let output = coppice(&["index", "--database", "mysql://localhost/x"]);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && stderr.contains("mysql") && stderr.contains("sqlite:"), "{stderr}");
}
