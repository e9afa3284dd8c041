//! `ingest --utxo`: compares the UTXO store after real and generated blocks, read through the Candid interface, with sets that are computed
//! here by code independent of the command's.

use crate::chain::{self, Chain, Expected};
use candid::Principal;
use coppice_lab::ingest::run;
use coppice_testkit::embedded::Embedded;
use coppice_testkit::wasm;
use ic_coppice_cli::client::{CanisterClient, Client, Failure, Transport, Wait};
use ic_coppice_cli::ingest::{self, IngestReport, Plan};
use ic_coppice_cli::order::Ordered;
use ic_coppice_cli::report::Report;
use ic_coppice_cli::utxo::Replayed;
use ic_coppice_interface::*;
use std::collections::BTreeSet;
use std::io::Write;
use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

const UTXO: Plan =
    Plan { first_number: None, retain_blocks: None, utxo: true, coinbase_maturity: None, leave_out: Vec::new() };

fn canister() -> Vec<u8> {
    ic_coppice_host::set_module_cache(ic_coppice_host::default_module_cache());
    wasm::of_tests()
}

fn start() -> Client<Embedded> {
    Embedded::start(canister()).unwrap()
}

fn replay(client: &Client<impl CanisterClient>, ordered: &Ordered) -> (IngestReport, Replayed) {
    let report = ingest::feed_to(client, ordered, &UTXO).unwrap();
    let utxo = report.utxo.clone().unwrap();
    (report, utxo)
}

/// Writes blocks to a file and reads them as the command does.
fn read(bytes: &[u8]) -> (tempfile::TempDir, Ordered) {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("blocks.dat"), bytes).unwrap();
    let ordered = ingest::read(&[dir.path().to_path_buf()], None).unwrap();
    (dir, ordered)
}

#[test]
fn mainnet_blocks_1_to_255_leave_the_set_that_they_imply() {
    let Some(blocks) = std::env::var_os("COPPICE_BLOCKS").map(PathBuf::from) else {
        // Bypasses the test harness, which hides the output of a passing test.
        let note = "not run: mainnet_blocks_1_to_255_leave_the_set_that_they_imply; COPPICE_BLOCKS names no directory of blocks";
        writeln!(std::io::stderr(), "{note}").unwrap();
        return;
    };
    let ordered = ingest::read(&[blocks], None).unwrap();
    let blocks: Vec<bitcoin::Block> = ordered.chain.iter().map(|found| found.load().unwrap().1).collect();
    let expected = Expected::of(1, &blocks);
    assert_eq!(
        (expected.transactions.len(), expected.unspent.len(), expected.satoshis()),
        (262, 260, 1_275_000_000_000)
    );

    let client = start();
    let (report, utxo) = replay(&client, &ordered);
    assert_eq!((report.last_block, report.verified.transactions), (255, 262));
    assert_eq!((utxo.transactions, utxo.records, utxo.already_there), (262, 262, 0));
    assert_eq!((utxo.unspent_outputs, utxo.unspent_satoshis), (260, 1_275_000_000_000));
    assert_eq!((utxo.spent_outputs, utxo.spends_without_record), (expected.spent.len() as u64, 0));
    assert_eq!(
        (utxo.verified.unspent, utxo.verified.spent, utxo.verified.transactions),
        (260, utxo.spent_outputs, 262)
    );
    let costs = client.transport().costs();
    assert!(costs.apply_instructions > 0);
    expected.check(&client);
}

#[test]
fn single_real_block_is_ingested_with_its_in_block_spends_and_repetition_changes_nothing() {
    let raw = bitcoin_test_data::blocks::mainnet_702861();
    let block: bitcoin::Block = bitcoin::consensus::deserialize(raw).unwrap();
    let expected = Expected::of(702_861, std::slice::from_ref(&block));
    let inputs: usize = block.txdata[1..].iter().map(|transaction| transaction.input.len()).sum();
    assert!(!expected.spent.is_empty() && expected.without_record > 0);
    assert_eq!(expected.spent.len() + expected.without_record, inputs);

    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("block.raw"), raw).unwrap();
    let ordered = ingest::read(&[dir.path().to_path_buf()], None).unwrap();
    let client = start();
    let (_, first) = replay(&client, &ordered);
    let (transactions, spent) = (block.txdata.len() as u64, expected.spent.len() as u64);
    assert_eq!((first.transactions, first.records, first.already_there), (transactions, transactions, 0));
    assert_eq!((first.spent_outputs, first.already_spent), (spent, 0));
    assert_eq!(first.spends_without_record, expected.without_record as u64);
    assert_eq!((first.unspent_outputs, first.unspent_satoshis), (expected.unspent.len() as u64, expected.satoshis()));
    expected.check(&client);

    let storage = client.get_storage_status(None).wait().unwrap();
    let (report, again) = replay(&client, &ordered);
    assert_eq!(report.already_there_blocks, 1);
    assert_eq!((again.already_there, again.already_spent), (transactions, spent));
    let figures =
        |replayed: &Replayed| Replayed { already_there: 0, already_spent: 0, elapsed_secs: 0.0, ..replayed.clone() };
    // Nothing is applied again, so nothing is skipped again.
    assert_eq!(again.spends_without_record, 0);
    assert_eq!(figures(&again), Replayed { spends_without_record: 0, ..figures(&first) });
    assert_eq!(client.get_storage_status(None).wait().unwrap(), storage);
    expected.check(&client);
}

#[test]
fn chain_with_in_block_spends_and_transactions_longer_than_a_message_is_ingested() {
    let chain = Chain::new();
    let expected = Expected::of(chain::FIRST, &chain.blocks);
    let (_dir, ordered) = read(&chain.bytes());
    let client = start();
    let (report, utxo) = replay(&client, &ordered);
    assert_eq!(report.last_block, u64::from(chain.height()));
    // A block longer than an ingress message.
    assert_eq!((report.appended_in_chunks, utxo.repeated), (1, 1));
    assert_eq!((utxo.spent_outputs, utxo.spends_without_record), (expected.spent.len() as u64, 1));
    assert_eq!((utxo.unspent_outputs, utxo.unspent_satoshis), (expected.unspent.len() as u64, expected.satoshis()));
    expected.check(&client);

    // The next block spends an output of an earlier run, which is not in the blocks of this one.
    let next = chain.next();
    let (_dir, later) = read(&chain::framed(std::slice::from_ref(&next)));
    let (report, utxo) = replay(&client, &later);
    assert_eq!((report.first_block, utxo.transactions, utxo.already_there), (u64::from(chain.height()) + 1, 2, 0));
    assert_eq!((utxo.spent_outputs, utxo.spends_without_record, utxo.verified.spent), (1, 0, 1));
    Expected::of(chain::FIRST, &[chain.blocks, vec![next]].concat()).check(&client);
}

/// Fails permanently after `left` updates, or at one method, and records the failed method.
struct Flaky<'a> {
    inner: &'a Embedded,
    left: AtomicU32,
    /// The method that always fails.
    never: Option<&'static str>,
    failed: Mutex<Option<String>>,
}

impl Transport for Flaky<'_> {
    async fn update(&self, method: &str, arg: Vec<u8>) -> Result<Vec<u8>, Failure> {
        if self.left.load(Ordering::Relaxed) == 0 || self.never == Some(method) {
            self.failed.lock().unwrap().get_or_insert_with(|| method.into());
            return Err(Failure::Transport("interrupted".into()));
        }
        self.left.fetch_sub(1, Ordering::Relaxed);
        self.inner.update(method, arg).await
    }

    async fn query(&self, method: &str, arg: Vec<u8>) -> Result<Vec<u8>, Failure> {
        self.inner.query(method, arg).await
    }
}

impl CanisterClient for Flaky<'_> {
    fn principal(&self, role: Role) -> Principal {
        self.inner.principal(role)
    }

    fn pass(&self, time: Duration) -> anyhow::Result<()> {
        self.inner.pass(time)
    }

    fn await_timer(&self, interval: Duration) -> anyhow::Result<()> {
        self.inner.await_timer(interval)
    }

    fn patience(&self) -> u32 {
        self.inner.patience()
    }
}

#[test]
fn repeatedly_interrupted_ingest_ends_with_the_same_store() {
    let chain = Chain::new();
    let expected = Expected::of(chain::FIRST, &chain.blocks);
    let (_dir, ordered) = read(&chain.bytes());
    let client = start();
    // Each run gets one message further than the last one, through the blocks with all kinds of transactions.
    let before = 2 * (chain.blocks.len() as u32 - chain::EVENTFUL);
    let mut interrupted = BTreeSet::new();
    let somewhere = ["append_block", "put_block_chunk", "commit_block", "utxo_apply_block"];
    // First a failure at each method: later runs send less of what is already stored, so they may skip some messages.
    let at_each = somewhere.iter().map(|method| (u32::MAX, Some(*method)));
    for (left, never) in at_each.chain((before..).map(|left| (left, None))) {
        let flaky = Flaky { inner: client.transport(), left: AtomicU32::new(left), never, failed: Mutex::default() };
        let flaky = Client::new(flaky);
        let result = ingest::feed_to(&flaky, &ordered, &UTXO);
        let Some(method) = flaky.transport().failed.lock().unwrap().take() else {
            result.unwrap();
            break;
        };
        assert!(result.is_err());
        interrupted.insert(method);
    }
    assert!(somewhere.iter().all(|method| interrupted.contains(*method)), "{interrupted:?}");
    let (report, utxo) = replay(&client, &ordered);
    assert_eq!(report.already_there_blocks, chain.blocks.len() as u64);
    assert_eq!(utxo.already_there, utxo.transactions);
    expected.check(&client);
}

/// Replays the same files after records were pruned: nothing changes, and the rest is as the blocks imply.
#[test]
fn replay_after_pruning_of_records_finds_the_rest() {
    let chain = Chain::new();
    let expected = Expected::of(chain::FIRST, &chain.blocks);
    let (_dir, ordered) = read(&chain.bytes());
    let client = start();
    let at_once = UtxoSettingsChange { block_height_retention: Some(1), ..UtxoSettingsChange::default() };
    client.set_config(&ConfigChange { utxo: Some(at_once), ..ConfigChange::default() }).done().unwrap();
    let (_, first) = replay(&client, &ordered);
    assert_eq!((first.left_out_blocks, first.verified.pruned), (0, 0));
    client.utxo_set_block_assembly_state(UtxoBlockAssemblyState::Running, None).wait().unwrap();
    client.utxo_notify_block_persisted(chain.height()).done().unwrap();
    for _ in 0..100 {
        client.transport().pass(Duration::from_secs(60)).unwrap();
    }
    let storage = client.get_storage_status(None).wait().unwrap().utxo.unwrap();
    let gone = first.records - storage.records;
    let pruned = storage.pruned_height.unwrap();
    assert!(gone > 0 && (chain::FIRST..chain.height()).contains(&pruned), "{storage:?}");

    let (_, again) = replay(&client, &ordered);
    assert_eq!((again.left_out_blocks, again.maybe_pruned), (0, 0));
    assert_eq!((again.verified.pruned, again.records), (gone, storage.records));
    assert_eq!(again.verified.unspent, expected.unspent.len() as u64);
    assert_eq!(again.transactions, again.already_there, "no record is created again");
    // The next block is replayed on the records that are left.
    let next = chain.next();
    let (_dir, later) = read(&chain::framed(std::slice::from_ref(&next)));
    let (_, utxo) = replay(&client, &later);
    assert_eq!((utxo.left_out_blocks, utxo.spent_outputs, utxo.spends_without_record), (0, 1, 0));
}

#[test]
fn store_that_differs_from_the_blocks_is_detected() {
    let chain = Chain::new();
    let expected = Expected::of(chain::FIRST, &chain.blocks);
    let (_dir, ordered) = read(&chain.bytes());
    let client = start();
    replay(&client, &ordered);
    let height = chain.height();
    let (outpoint, _) = expected.unspent.iter().find(|(_, output)| !output.coinbase).unwrap();
    let spend = Spend {
        txid: chain::internal(outpoint.txid).into(),
        vout: outpoint.vout,
        utxo_hash: UtxoHash::from(expected.unspent[outpoint].hash),
        vin: 3,
    };
    let items = vec![TransactionSpends { spender: [9; 32].into(), spends: vec![spend] }];
    client.utxo_spend(&UtxoSpendBatch { height, items }).wait().unwrap().results[0].as_ref().unwrap();
    let error = ingest::feed_to(&client, &ordered, &UTXO).err().unwrap();
    let error = format!("{error:#}");
    assert!(error.contains(&format!("{outpoint} should be unspent")) && !error.contains('{'), "{error}");
}

/// A node spends outputs for its mempool while the command applies blocks.
#[test]
fn output_held_by_an_unmined_record_is_counted_and_by_a_mined_one_refused() {
    let chain = Chain::new();
    let (expected, height) = (Expected::of(chain::FIRST, &chain.blocks), chain.height());
    let (_dir, ordered) = read(&chain.bytes());
    let client = start();
    let (_, before) = replay(&client, &ordered);
    assert_eq!(before.verified.held, 0);
    let (&outpoint, output) = expected.unspent.iter().find(|(_, output)| !output.coinbase).unwrap();
    let transaction = chain::spending_one(outpoint);
    let txid: Txid = chain::internal(transaction.compute_txid()).into();
    let spend = Spend {
        txid: chain::internal(outpoint.txid).into(),
        vout: outpoint.vout,
        utxo_hash: UtxoHash::from(output.hash),
        vin: 0,
    };
    let items = vec![TransactionSpends { spender: txid.clone(), spends: vec![spend] }];
    client.utxo_spend(&UtxoSpendBatch { height, items }).wait().unwrap().results[0].as_ref().unwrap();
    let item = UtxoCreate {
        source: TransactionSource::Raw(bitcoin::consensus::serialize(&transaction).into()),
        mined: None,
        locked: None,
        conflicting: false,
        fee: None,
        is_new: false,
    };
    client.utxo_create(&UtxoCreateBatch { height, items: vec![item] }).wait().unwrap().results[0].as_ref().unwrap();

    let (report, utxo) = replay(&client, &ordered);
    assert_eq!((utxo.verified.held, utxo.verified.unspent), (1, before.verified.unspent));
    assert_eq!((utxo.verified.spent, utxo.records), (before.verified.spent, before.records + 1));
    let held = report.rows().into_iter().find(|(name, _)| name.contains("held by transactions in no block"));
    assert_eq!(held.unwrap().1, "1 output");

    let mut set = UtxoSetMinedBatch {
        height,
        block_id: height + 1,
        block_height: height + 1,
        on_longest_chain: true,
        unset: false,
        items: vec![MinedTransaction { txid, subtree: 0 }],
    };
    // A block above these is not yet among them; one of these would have spent the output.
    for (block, is_refused) in [(height + 1, false), (height, true)] {
        (set.block_id, set.block_height) = (block, block);
        client.utxo_set_mined(&set).wait().unwrap().results[0].as_ref().unwrap();
        let result = ingest::feed_to(&client, &ordered, &UTXO);
        assert_eq!(result.is_err(), is_refused, "{block}");
        if let Err(error) = result {
            let error = format!("{error:#}");
            assert!(
                error.contains(&format!("{outpoint} should be unspent, but {}", transaction.compute_txid())),
                "{error}"
            );
            assert!(error.contains(&format!("a block at height {height}")) && !error.contains('{'), "{error}");
        }
    }
}

/// Appends blocks without applying them.
fn append(client: &Client<impl CanisterClient>, blocks: &[bitcoin::Block], retain_blocks: Option<u64>) {
    let (_dir, ordered) = read(&chain::framed(blocks));
    ingest::feed_to(client, &ordered, &Plan { retain_blocks, ..Plan::default() }).unwrap();
}

#[test]
fn blocks_after_a_gap_are_refused_and_an_earlier_run_without_applying_is_made_up() {
    let chain = Chain::new();
    let (one, two) = chain.blocks.split_at(50);
    let client = start();
    let (_dir, first) = read(&chain::framed(one));
    replay(&client, &first);
    append(&client, &two[..5], None);
    let (_dir, later) = read(&chain::framed(&two[5..]));
    let error = refusal(ingest::feed_to(&client, &later, &UTXO));
    let next = u64::from(chain::FIRST) + 50;
    assert!(error.contains(&format!("the next block to apply to the UTXO records is {next}")), "{error}");
    assert!(error.contains("utxo_stop_applying"), "{error}");
    let (_dir, all) = read(&chain.bytes());
    let (report, utxo) = replay(&client, &all);
    assert_eq!((report.already_there_blocks, utxo.left_out_blocks, utxo.already_there), (55, 0, 50));
    Expected::of(chain::FIRST, &chain.blocks).check(&client);
}

#[test]
fn blocks_that_were_pruned_before_they_were_applied_are_skipped() {
    let chain = Chain::new();
    let client = start();
    append(&client, &chain.blocks[..60], Some(9));
    let (_dir, all) = read(&chain.bytes());
    let (_, utxo) = replay(&client, &all);
    // The two coinbases that the chain spends are among the pruned blocks.
    assert_eq!((utxo.left_out_blocks, utxo.spends_without_record), (50, 3));
    assert_eq!((utxo.transactions, utxo.already_there), (utxo.records, 0));
    let (_, again) = replay(&client, &all);
    assert_eq!((again.left_out_blocks, again.already_there), (50, utxo.transactions));
}

#[test]
fn double_spend_stops_the_command_until_it_is_resolved_or_left_out() {
    let chain = Chain::new();
    let (_dir, ordered) = read(&chain.bytes());
    let client = start();
    let before = chain.blocks.len() - 1;
    let (_dir, first) = read(&chain::framed(&chain.blocks[..before]));
    replay(&client, &first);
    // Another transaction spends an output that the last block spends.
    let heir = &chain.blocks[before].txdata[1];
    let (height, outpoint) = (chain.height(), heir.input[0].previous_output);
    let expected = Expected::of(chain::FIRST, &chain.blocks[..before]);
    let spend = Spend {
        txid: chain::internal(outpoint.txid).into(),
        vout: outpoint.vout,
        utxo_hash: UtxoHash::from(expected.unspent[&outpoint].hash),
        vin: 0,
    };
    let items = vec![TransactionSpends { spender: [9; 32].into(), spends: vec![spend] }];
    client.utxo_spend(&UtxoSpendBatch { height, items }).wait().unwrap().results[0].as_ref().unwrap();
    let error = refusal(ingest::feed_to(&client, &ordered, &UTXO));
    let names = [&format!("block {height}, transaction 1, input 0"), &heir.compute_txid().to_string()];
    assert!(names.iter().all(|name| error.contains(*name)), "{error}");
    for command in ["utxo_create", "utxo_set_conflicting", "utxo_process_conflicting"] {
        assert!(error.contains(&format!("{command} '(record {{")), "{error}");
    }
    // The other spender has no record, so its spend is taken back.
    let unspend = Unspend {
        outpoint: Outpoint { txid: chain::internal(outpoint.txid).into(), vout: outpoint.vout },
        utxo_hash: UtxoHash::from(expected.unspent[&outpoint].hash),
        spender: Spender { txid: [9; 32].into(), vin: 0 },
    };
    let unspent = client.utxo_unspend(&UtxoUnspendBatch { height, items: vec![unspend] }).wait().unwrap();
    unspent.results[0].as_ref().unwrap();
    replay(&client, &ordered);
    Expected::of(chain::FIRST, &chain.blocks).check(&client);
}

#[test]
fn blocks_without_heights_are_refused_before_sending() {
    let chain = Chain::new();
    let (_dir, ordered) = read(&chain.bytes());
    let client = start();
    let plan = Plan { first_number: Some(0), ..UTXO };
    let error = ingest::feed_to(&client, &ordered, &plan).err().unwrap();
    assert!(format!("{error:#}").contains("--first-number"), "{error:#}");
    assert_eq!(client.get_head().wait().unwrap(), Err(ReadError::NotFound));
}

fn with_maturity(blocks: u32) -> Plan {
    Plan { coinbase_maturity: Some(blocks), ..UTXO }
}

fn refusal<T>(result: anyhow::Result<T>) -> String {
    format!("{:#}", result.err().unwrap())
}

#[test]
fn coinbase_maturity_option_allows_early_spends() {
    // Depths in the order of blocks, and the depth of the youngest coinbase that is spent.
    for (depths, youngest) in [(&[9, 5, 7][..], 5), (&[1, 1, 4], 1), (&[2, 0], 0)] {
        let chain = Chain::young(depths);
        let (_dir, ordered) = read(&chain.bytes());
        let report = run(canister(), &ordered, &with_maturity(youngest)).unwrap();
        let instructions = report.utxo_instructions.unwrap();
        assert!(instructions.per_transaction_applied > 0);
        let utxo = report.ingest.utxo.unwrap();
        assert_eq!((utxo.spent_outputs, utxo.verified.spent), (depths.len() as u64, depths.len() as u64));
        // Without the option, with one block more, and with the largest value.
        for (plan, maturity) in
            [(UTXO, 100), (with_maturity(youngest + 1), youngest + 1), (with_maturity(u32::MAX / 2), u32::MAX / 2)]
        {
            let error = refusal(run(canister(), &ordered, &plan));
            let depth = depths.iter().find(|&&depth| (depth as u32) < maturity).unwrap();
            let block = chain.blocks.iter().find(|block| block.txdata.len() > 1);
            let [says, after] =
                [format!("coinbase_maturity is {maturity},"), format!("{depth} blocks after it was made")];
            assert!(error.contains("--coinbase-maturity") && error.contains(&says), "{error}");
            assert!(error.contains(&after), "{error}");
            if maturity == 100 {
                assert!(error.contains(&block.unwrap().txdata[1].compute_txid().to_string()), "{error}");
            }
        }
    }
    let (_dir, ordered) = read(&Chain::young(&[9]).bytes());
    let error = refusal(run(canister(), &ordered, &with_maturity(u32::MAX / 2 + 1)));
    assert!(error.contains("coinbase_maturity") && error.contains("is not from 0 to"), "{error}");
}

#[test]
fn differing_maturity_of_an_existing_canister_is_refused_before_sending() {
    let chain = Chain::young(&[4, 3]);
    let (_dir, ordered) = read(&chain.bytes());
    let client = start();
    let error = refusal(ingest::feed_to(&client, &ordered, &with_maturity(3)));
    let says = ["--coinbase-maturity 3", "coinbase_maturity is 100", "set_config", "coinbase_maturity = opt 3"];
    assert!(says.iter().all(|says| error.contains(says)), "{error}");
    assert_eq!(client.get_head().wait().unwrap(), Err(ReadError::NotFound));
    assert_eq!(client.get_config().wait().unwrap().utxo.unwrap().coinbase_maturity, 100);

    let utxo = UtxoSettingsChange { coinbase_maturity: Some(3), ..UtxoSettingsChange::default() };
    client.set_config(&ConfigChange { utxo: Some(utxo), ..ConfigChange::default() }).done().unwrap();
    assert!(refusal(ingest::feed_to(&client, &ordered, &with_maturity(100))).contains("is 3;"));
    // With the matching option, and without the option.
    for plan in [with_maturity(3), UTXO] {
        ingest::feed_to(&client, &ordered, &plan).unwrap();
    }
    let expected = Expected { maturity: 3, ..Expected::of(chain::FIRST, &chain.blocks) };
    expected.check(&client);
}
