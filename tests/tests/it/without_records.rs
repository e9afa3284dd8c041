//! The build without UTXO records: its methods, answers and pages, and upgrades between the two builds.

use crate::apply;
use crate::deletion_queue::{at, name};
use crate::utxo::{all_ok, configure, create, spend};
use candid::encode_args;
use coppice_client_tests::{NAMES, OF_RECORDS, ROLES, run};
use coppice_tests::client::Answered;
use coppice_tests::coppice::{Coppice, Who, default_arg};
use coppice_tests::transactions::{Tx, block};
use coppice_tests::wasm;
use ic_coppice_interface::methods::TABLE;
use ic_coppice_interface::*;

/// Most bytes of the wasm.
const MOST_BYTES: usize = 3_600_000;

#[test]
fn wasm_has_no_method_of_records_and_at_most_3_6_megabytes() {
    assert!(wasm::blocks_canister().len() <= MOST_BYTES, "{}", wasm::blocks_canister().len());
    let coppice = Coppice::of_blocks(default_arg());
    let all: Vec<Role> = Role::ALL.into_iter().filter(|role| *role != Role::Exporter).collect();
    all.into_iter().for_each(|role| coppice.grant(Who::Operator, role));
    coppice.register(Who::Exporter);
    for method in TABLE {
        let caller = if method.roles == [Role::Exporter] { Who::Exporter } else { Who::Operator }.principal();
        let argument = encode_args(()).unwrap();
        let answer = match method.is_query {
            true => coppice.ic.query(coppice.id, caller, method.name, argument).map(drop),
            false => coppice.ic.update(coppice.id, caller, method.name, argument).map(drop),
        };
        let is_missing =
            answer.is_err_and(|reject| reject.message.contains("no method") || reject.error_code == "IC0536");
        assert_eq!(is_missing, method.is_of_records(), "{}", method.name);
    }
}

#[test]
fn chain_lives_without_records_and_nothing_speaks_of_them() {
    let coppice = Coppice::of_blocks(default_arg());
    coppice.append_plain(0..6, 100);
    let rolled_back = coppice.producer().rollback_to(4, None).answer().unwrap();
    assert_eq!((rolled_back.head, rolled_back.removed, rolled_back.not_restored), (4, 1, None));
    coppice.append_plain(5..20, 100);
    coppice.set_policy(PrunePolicyArg { retain_blocks: Some(10), ..PrunePolicyArg::default() }).unwrap();
    coppice.settle(120);
    assert_eq!(coppice.prune_status().pruned_before_block, 9);
    coppice.upgrade_to(wasm::blocks_canister(), None).unwrap();
    assert_eq!(coppice.chain().len(), 11);

    assert_eq!(coppice.anyone().get_config().answer().utxo, None);
    assert_eq!(coppice.anyone().list_uploads().answer(), OpenUploads { block: None, transactions: None });
    let storage = coppice.storage();
    assert_eq!((storage.utxo, storage.owners.len()), (None, Owner::ALL.len() - 4));
    coppice.operator().set_deletions_stopped(true).answer().unwrap();
    let health = coppice.anyone().health().answer();
    let texts = [coppice.page("/metrics"), coppice.page("/"), coppice.page("/tx/00"), format!("{health:?}")];
    for text in texts {
        // Commands have records of Candid.
        let lower = text.to_lowercase().replace("record {", "");
        let found = ["utxo", "record", "deletion_", "lease", "worker"].into_iter().find(|word| lower.contains(word));
        assert_eq!(found, None, "{text}");
    }
    let head_hash = coppice.anyone().get_head().answer().unwrap().hash;
    let reset = coppice.operator().reset_chain(&ResetChain { head_hash, drop_unexported: false }).answer().unwrap();
    assert_eq!((reset.blocks, reset.utxo_records), (11, None));
}

#[test]
fn settings_of_records_are_refused_and_change_nothing() {
    let coppice = Coppice::of_blocks(default_arg());
    let before = coppice.anyone().get_config().answer();
    let utxo = UtxoSettingsChange { least_retries: Some(5), ..UtxoSettingsChange::default() };
    let change = ConfigChange { nodes: Some(34), utxo: Some(utxo), ..ConfigChange::default() };
    let refused = coppice.operator().set_config(&change).answer().unwrap_err();
    assert!(matches!(&refused, ConfigError::BadArgument(why) if why.field == "utxo"), "{refused:?}");
    assert_eq!(coppice.anyone().get_config().answer(), before);

    let arg = Some(CanisterArg::Upgrade(Some(change)));
    let refused = coppice.upgrade_to(wasm::blocks_canister(), arg).unwrap_err();
    assert!(refused.message.contains("keeps no UTXO records"), "{refused:?}");
    assert_eq!(coppice.anyone().get_config().answer(), before);
}

/// Asserts that an upgrade to the build without records is refused with these words, and that the canister goes on.
fn assert_refused(coppice: &Coppice, words: &str) {
    let refused = coppice.upgrade_to(wasm::blocks_canister(), None).unwrap_err();
    assert!(refused.message.contains(words), "{refused:?}");
    assert!(coppice.storage().utxo.is_some());
}

#[test]
fn upgrade_to_the_build_without_records_is_refused_while_anything_of_them_is_kept() {
    let coppice = Coppice::new();
    let txs = [Tx::coinbase(0, 1), Tx::orphan(500, 2)];
    coppice.append(&block(0, &txs)).unwrap();

    // A row.
    coppice.producer().schedule_blob_deletion(&at(1, 900)).answer().unwrap();
    assert_refused(&coppice, "and there are 1 row of the deletion queue");
    coppice.producer().cancel_blob_deletion(&name(1)).answer().unwrap();
    // An open upload.
    let begin = BeginTransaction { txid: [1; 32].into(), length: 1 << 20, chunk_size: 1 << 20 };
    coppice.producer().utxo_begin_transaction(&begin).answer().unwrap();
    assert_refused(&coppice, "1 open upload of transactions");
    coppice.producer().utxo_abort_transaction(&begin.txid).answer().unwrap();
    // A record.
    configure(&coppice, UtxoSettingsChange { block_height_retention: Some(1), ..UtxoSettingsChange::default() })
        .unwrap();
    let parent = Tx::orphan(1, 1);
    let mined = MinedIn { blocks: vec![BlockRef { block_id: 1, height: 10, subtree: 0 }], on_longest_chain: true };
    all_ok(create(&coppice, 10, vec![UtxoCreate { mined: Some(mined), ..parent.record() }]));
    assert_refused(&coppice, "1 UTXO record");
    let spent = TransactionSpends { spender: Tx::of(2, &[(parent.txid, 0)], 1).id(), spends: vec![parent.spend(0, 0)] };
    all_ok(spend(&coppice, 10, vec![spent]));
    coppice.producer().utxo_set_block_assembly_state(UtxoBlockAssemblyState::Running, None).answer();
    coppice.operator().utxo_prune(400).answer().unwrap();
    coppice.pass(3_600);
    assert_eq!(coppice.storage().utxo.unwrap().records, 0);

    // A job that waits is left, and no timer fires for it.
    coppice.producer().utxo_notify_block(900, true).answer().unwrap();
    coppice.upgrade_to(wasm::blocks_canister(), None).unwrap();
    assert_eq!((coppice.storage().utxo, coppice.chain().len()), (None, 1));
    coppice.pass(3_600);
    let next = coppice.prune_status().next_tick_ns - coppice.ic.now();
    assert!(next > 30 * 1_000_000_000, "the next firing comes in {next} ns; the job's interval is 10 s");
    // The other way.
    coppice.append_plain(1..2, 100);
    coppice.upgrade();
    assert_eq!((coppice.storage().utxo.unwrap().records, coppice.chain().len()), (0, 2));
    assert_eq!(coppice.anyone().get_config().answer().utxo, Some(UtxoSettings::default()));

    // A position of applying.
    apply::apply_by(&coppice, Who::Controller, &apply::argument(0)).unwrap();
    assert_refused(&coppice, "a position of applying, at block 1");
}

#[test]
fn one_client_works_with_both_builds() {
    let coppice = Coppice::of_blocks(default_arg());
    let caller = Who::Operator;
    ROLES.into_iter().chain([Role::Admin]).for_each(|role| coppice.grant(caller, role));
    let client = coppice.by(caller);
    for name in NAMES.iter().filter(|name| !OF_RECORDS.contains(name)) {
        pollster::block_on(run(name, &client, caller.principal()));
    }
    assert!(coppice.anyone().health().answer().healthy);
}
