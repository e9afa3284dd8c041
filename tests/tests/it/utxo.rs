//! UTXO records through the interface: batches, roles, uploads, upgrades at every message.

use coppice_tests::client::Answered;
use coppice_tests::coppice::{Coppice, Who, blob_bytes};
use coppice_tests::transactions::Tx;
use ic_coppice_interface::*;
use serde_bytes::ByteBuf;

pub type Done<T> = Batch<Result<T, UtxoError>>;

pub fn create(coppice: &Coppice, height: u32, items: Vec<UtxoCreate>) -> Batch<Result<UtxoCreated, UtxoCreateError>> {
    coppice.producer().utxo_create(&UtxoCreateBatch { height, items }).answer()
}

pub fn spend(coppice: &Coppice, height: u32, items: Vec<TransactionSpends>) -> Batch<Result<u32, Vec<RefusedSpend>>> {
    coppice.producer().utxo_spend(&UtxoSpendBatch { height, items }).answer()
}

pub fn set_mined(coppice: &Coppice, height: u32, block_id: u32, txs: &[&Tx], unset: bool) -> Done<Vec<u32>> {
    let items = txs.iter().map(|tx| MinedTransaction { txid: tx.id(), subtree: 3 }).collect();
    let set = UtxoSetMinedBatch { height, block_id, block_height: height, on_longest_chain: !unset, unset, items };
    coppice.producer().utxo_set_mined(&set).answer()
}

pub fn get(coppice: &Coppice, tx: &Tx) -> Result<UtxoRecord, UtxoError> {
    coppice.anyone().utxo_get(&UtxoGet { txid: tx.id(), first: 0, limit: 10_000, extra_pages_cursor: None }).answer()
}

pub fn configure(coppice: &Coppice, change: UtxoSettingsChange) -> Result<Config, ConfigError> {
    coppice.operator().set_config(&ConfigChange { utxo: Some(change), ..ConfigChange::default() }).answer()
}

pub fn all_ok<T: std::fmt::Debug, E: std::fmt::Debug>(batch: Batch<Result<T, E>>) -> Vec<T> {
    assert_eq!(batch.remaining, 0);
    batch.results.into_iter().map(|result| result.unwrap()).collect()
}

/// A small life: parent and child are made, spent, mined, frozen, reassigned; a double spend wins; a reorg.
fn life(coppice: &Coppice, mut after_each: impl FnMut(&Coppice)) -> Vec<UtxoRecord> {
    let parent = Tx::orphan(1, 3);
    let child = Tx::of(2, &[(parent.txid, 0), (parent.txid, 1)], 2);
    let rival = Tx::of(3, &[(parent.txid, 1)], 1);
    let grandchild = Tx::of(4, &[(child.txid, 1)], 1);
    let alert = Grant { principal: Who::Alert.principal(), role: Role::Alert };
    coppice.operator().grant_role(&alert).answer().unwrap();
    let alerted = |method: &str, height: u32, vout: u32| -> Done<u32> {
        let target = FreezeTarget { txid: parent.id(), vout: Some(vout), utxo_hash: None };
        coppice.call(Who::Alert, method, (UtxoFreezeBatch { height, items: vec![target] },)).unwrap()
    };
    all_ok(create(coppice, 10, [&parent, &child, &grandchild].map(Tx::record).into()));
    after_each(coppice);
    let of_child = vec![parent.spend(0, 0), parent.spend(1, 1)];
    let of_grandchild = vec![child.spend(1, 0)];
    let spends = vec![
        TransactionSpends { spender: child.id(), spends: of_child },
        TransactionSpends { spender: grandchild.id(), spends: of_grandchild },
    ];
    for expected in [[2, 1], [0, 0]] {
        assert_eq!(all_ok(spend(coppice, 11, spends.clone())), expected, "the same again is Ok and counts nothing");
        after_each(coppice);
    }
    assert_eq!(all_ok(set_mined(coppice, 12, 7, &[&parent, &child], false)), [[7], [7]]);
    after_each(coppice);
    assert_eq!(all_ok(alerted("utxo_freeze", 12, 2)), [1]);
    after_each(coppice);
    let item = Reassign {
        outpoint: parent.outpoint(2),
        utxo_hash: UtxoHash::from(parent.hash(2)),
        new_utxo_hash: UtxoHash::from([5; 32]),
    };
    let reassigned: Done<u32> =
        coppice.by(Who::Alert).utxo_reassign(&UtxoReassignBatch { height: 12, items: vec![item] }).answer();
    assert_eq!(all_ok(reassigned), [1_012]);
    after_each(coppice);
    assert_eq!(all_ok(alerted("utxo_freeze", 12, 2)), [1]);
    after_each(coppice);
    assert_eq!(all_ok(alerted("utxo_unfreeze", 12, 2)), [1]);
    after_each(coppice);
    for locked in [true, false] {
        let set = UtxoSetLockedBatch { height: 12, locked, txids: vec![grandchild.id()] };
        all_ok::<(), UtxoError>(coppice.producer().utxo_set_locked(&set).answer());
        assert_eq!(get(coppice, &grandchild).unwrap().locked, locked);
        after_each(coppice);
    }
    let unspend = |of: &Tx, vout: u32, by: &Tx, vin: u32| Unspend {
        outpoint: of.outpoint(vout),
        utxo_hash: UtxoHash::from(of.hash(vout)),
        spender: Spender { txid: by.id(), vin },
    };
    let items = vec![
        unspend(&parent, 0, &child, 0),
        unspend(&parent, 0, &child, 0),
        unspend(&child, 1, &grandchild, 0),
        unspend(&parent, 1, &rival, 0),
    ];
    let done: Done<bool> = coppice.producer().utxo_unspend(&UtxoUnspendBatch { height: 12, items }).answer();
    assert_eq!(all_ok(done), [true, false, true, false]);
    assert_eq!(get(coppice, &parent).unwrap().spent_utxos, 1);
    after_each(coppice);
    assert_eq!(all_ok(spend(coppice, 12, spends.clone())), [1, 1]);
    after_each(coppice);
    all_ok(create(coppice, 13, vec![UtxoCreate { conflicting: true, ..rival.record() }]));
    after_each(coppice);
    // A reorg: the child's block is removed, and the double spend replaces the child.
    all_ok(set_mined(coppice, 13, 7, &[&child], true));
    after_each(coppice);
    let arg = UtxoProcessConflicting { height: 14, winners: vec![rival.id()] };
    let resolved: Result<ConflictResolution, ConflictError> =
        coppice.producer().utxo_process_conflicting(&arg).answer();
    assert_eq!(resolved.unwrap().losers, [child.id(), grandchild.id()]);
    after_each(coppice);
    let preserve = UtxoPreserveBatch { until_height: 99, txids: vec![child.id(), Txid::from([1; 32])] };
    assert_eq!(all_ok::<bool, UtxoError>(coppice.producer().utxo_preserve(&preserve).answer()), [true, false]);
    after_each(coppice);
    [&parent, &child, &rival, &grandchild].map(|tx| UtxoRecord { created_at_ns: 0, ..get(coppice, tx).unwrap() }).into()
}

#[test]
fn upgrades_after_every_message_do_not_change_a_life_of_records() {
    let undisturbed = life(&Coppice::new(), |_| ());
    let [parent, child, rival, grandchild] = &undisturbed[..] else { panic!("four records") };
    assert_eq!(parent.utxos.iter().map(|utxo| utxo.as_ref().unwrap().len()).collect::<Vec<_>>(), [32, 68, 32]);
    assert_eq!(parent.conflicting_children, std::slice::from_ref(&child.txid));
    assert_eq!((child.conflicting, child.preserve_until, child.delete_at_height), (true, Some(99), None));
    assert_eq!((rival.conflicting, rival.delete_at_height), (false, None));
    assert_eq!(grandchild.delete_at_height, Some(14 + 288));
    assert_eq!(life(&Coppice::new(), Coppice::upgrade), undisturbed);
}

#[test]
fn a_batch_stops_before_an_uploaded_transaction_and_reports_the_rest() {
    let coppice = Coppice::new();
    let mut items: Vec<UtxoCreate> = (0..300).map(|salt| Tx::orphan(salt, 2).record()).collect();
    // An uploaded transaction may change as many pages as a message may.
    for at in [100, 200] {
        let source = TransactionSource::Uploaded(Tx::orphan(1_000, 2).id());
        items.insert(at, UtxoCreate { source, ..items[0].clone() });
    }
    let mut rest = &items[..];
    let mut done = Vec::new();
    while !rest.is_empty() {
        let batch = create(&coppice, 5, rest.to_vec());
        assert_eq!(batch.results.len() + batch.remaining as usize, rest.len());
        let refused = batch.results.iter().filter(|result| result.is_err()).count();
        assert_eq!(refused, usize::from(!done.is_empty()), "the upload, which is the first item");
        rest = &rest[batch.results.len()..];
        done.push(batch.results.len());
    }
    assert_eq!(done, [100, 100, 102]);
    assert_eq!(coppice.storage().utxo.unwrap().records, 300);
}

#[test]
fn a_message_full_of_nonsense_is_answered_item_by_item() {
    let coppice = Coppice::new();
    let nothing = UtxoCreate { source: TransactionSource::Raw(ByteBuf::new()), ..Tx::orphan(1, 1).record() };
    let batch = create(&coppice, 5, vec![nothing; 15_000]);
    assert_eq!(batch.results.len() + batch.remaining as usize, 15_000);
    assert!(
        batch.results.iter().all(|result| matches!(result, Err(UtxoCreateError::BadTransaction { offset: 0, .. })))
    );
    let bad = Spend { txid: Txid::default(), vout: 0, utxo_hash: UtxoHash::default(), vin: 0 };
    let spends = vec![TransactionSpends { spender: [1; 32].into(), spends: vec![bad; 6_000] }; 2];
    let batch = spend(&coppice, 5, spends);
    let errors = batch.results[0].as_ref().unwrap_err();
    assert!(
        errors.len() >= 1_000
            && errors.iter().all(|e| matches!(e.error, UtxoSpendError::BadArgument(BadArgument { .. })))
    );
    let storage = coppice.storage().utxo.unwrap();
    let UtxoStorage { kept_bytes, max_bytes, reusable_bytes, .. } = storage;
    assert_eq!(
        storage,
        UtxoStorage { used_bytes: 128, kept_bytes, max_bytes, reusable_bytes, ..UtxoStorage::default() }
    );
}

#[test]
fn a_transaction_longer_than_a_message_is_uploaded_and_read_in_parts() {
    let coppice = Coppice::new();
    let tx = Tx::new(&[([7; 32], 0)], &[(5, vec![0x51; 3_000_000]), (6, vec![0x51])]);
    let begin = BeginTransaction { txid: tx.id(), length: tx.raw.len() as u64, chunk_size: 1 << 20 };
    let begun: Result<UploadProgress, TransactionUploadError> =
        coppice.producer().utxo_begin_transaction(&begin).answer();
    assert_eq!(begun, Ok(UploadProgress { chunks: 3, missing: 3 }));
    for (chunk, bytes) in (0..).zip(tx.raw.chunks(1 << 20)) {
        let put = PutTransactionChunk { txid: tx.id(), chunk, bytes: ByteBuf::from(bytes) };
        let done: Result<UploadProgress, TransactionUploadError> =
            coppice.producer().utxo_put_transaction_chunk(&put).answer();
        assert_eq!(done.unwrap().missing, 2 - chunk);
        coppice.upgrade();
    }
    let item = UtxoCreate { source: TransactionSource::Uploaded(tx.id()), ..tx.record() };
    assert!(all_ok(create(&coppice, 5, vec![item]))[0].external);
    let mut bytes = Vec::new();
    while bytes.len() < tx.raw.len() {
        let arg =
            UtxoGetPart { txid: tx.id(), part: UtxoPart::Transaction, offset: bytes.len() as u64, length: u64::MAX };
        let part: Result<TransactionPart, UtxoError> = coppice.anyone().utxo_get_transaction(&arg).answer();
        bytes.extend_from_slice(&part.unwrap().bytes);
    }
    assert_eq!(bytes, tx.raw);
    let outpoints = vec![tx.outpoint(0), tx.outpoint(1), tx.outpoint(2)];
    let arg = UtxoGetSpend { height: 5, outpoints };
    let states: Result<Vec<UtxoSpendState>, UtxoError> = coppice.anyone().utxo_get_spend(&arg).answer();
    let statuses: Vec<SpendStatus> = states.unwrap().into_iter().map(|state| state.status).collect();
    assert_eq!(statuses, [SpendStatus::Ok, SpendStatus::Ok, SpendStatus::NotFound]);
}

#[test]
fn a_double_spend_is_marked_with_its_descendants() {
    let coppice = Coppice::new();
    let parent = Tx::orphan(1, 1);
    let child = Tx::of(2, &[(parent.txid, 0)], 1);
    all_ok(create(&coppice, 5, [&parent, &child].map(Tx::record).into()));
    let spends = vec![parent.spend(0, 0)];
    all_ok(spend(&coppice, 5, vec![TransactionSpends { spender: child.id(), spends }]));
    let arg = UtxoSetConflictingBatch { height: 6, txids: vec![parent.id(), Txid::from([9; 32])] };
    let done: Done<Conflict> = coppice.producer().utxo_set_conflicting(&arg).answer();
    let marked = done.results[0].as_ref().unwrap();
    assert_eq!(marked.marked, [parent.id(), child.id()]);
    assert_eq!(marked.parent_spends.len(), 1);
    assert_eq!(done.results[1], Err(UtxoError::TxNotFound));
    let part = UtxoGetPart { txid: child.id(), part: UtxoPart::Inpoints, offset: 0, length: 100 };
    let inpoints: Result<TransactionPart, UtxoError> = coppice.anyone().utxo_get_transaction(&part).answer();
    let expected = [&[1, 0, 0, 0][..], &parent.txid, &[1, 0, 0, 0, 0, 0, 0, 0]].concat();
    assert_eq!(inpoints.unwrap().bytes[..], expected);
}

#[test]
fn an_abandoned_upload_expires() {
    let coppice = Coppice::new();
    let begin = BeginTransaction { txid: Txid::from([1; 32]), length: 1 << 20, chunk_size: 1 << 20 };
    let begun: Result<UploadProgress, TransactionUploadError> =
        coppice.producer().utxo_begin_transaction(&begin).answer();
    begun.unwrap();
    let abort = |txid: [u8; 32]| -> Result<bool, TransactionUploadError> {
        coppice.producer().utxo_abort_transaction(&Txid::from(txid)).answer()
    };
    let other = TransactionUploadError::OtherUpload { txid: [1; 32].into() };
    assert_eq!(abort([2; 32]), Err(other));
    coppice.pass(110);
    assert_eq!(coppice.anyone().list_uploads().answer().transactions.unwrap().len(), 1);
    coppice.pass(20);
    assert_eq!(coppice.anyone().list_uploads().answer().transactions.unwrap(), []);
    assert_eq!(blob_bytes(&coppice.storage()), 0);
    assert_eq!(abort([1; 32]), Ok(false));
}

#[test]
fn unmined_transactions_are_listed_by_creation_time_and_id() {
    let coppice = Coppice::new();
    let txs: Vec<Tx> = (0..30).map(|salt| Tx::orphan(salt, 1)).collect();
    for some in txs.chunks(10) {
        all_ok(create(&coppice, 5, some.iter().map(Tx::record).collect()));
        coppice.pass(1);
    }
    all_ok(set_mined(&coppice, 6, 1, &[&txs[3], &txs[15]], false));
    // A transaction that a reorg unmines is listed in its original second.
    all_ok(set_mined(&coppice, 7, 1, &[&txs[3]], true));
    let (mut listed, mut cursor) = (Vec::new(), None::<UnminedCursor>);
    loop {
        let page: UnminedPage = coppice.anyone().utxo_list_unmined(&cursor, 7u32).answer().unwrap();
        listed.extend(page.transactions);
        cursor = page.cursor;
        if cursor.is_none() {
            break;
        }
    }
    assert!(listed.is_sorted_by_key(|tx| (tx.created_at_ns, tx.txid.clone())));
    let mut expected: Vec<Txid> = txs.iter().map(Tx::id).filter(|id| *id != txs[15].id()).collect();
    let mut found: Vec<Txid> = listed.iter().map(|tx| tx.txid.clone()).collect();
    expected.sort();
    found.sort();
    assert_eq!(found, expected);
    assert_eq!(coppice.storage().utxo.unwrap().unmined, 29);
}

#[test]
fn unmined_transactions_of_one_message_are_listed_in_its_order() {
    let coppice = Coppice::new();
    let mut txs = vec![Tx::orphan(1, 1)];
    for salt in 2..40 {
        let parent = txs.last().unwrap().txid;
        txs.push(Tx::of(salt, &[(parent, 0)], 1));
    }
    let (first, rest) = txs.split_at(30);
    all_ok(create(&coppice, 5, first.iter().map(Tx::record).collect()));
    coppice.upgrade();
    all_ok(create(&coppice, 5, rest.iter().map(Tx::record).collect()));
    let listed = coppice.anyone().utxo_list_unmined(&None, 0u32).answer().unwrap().transactions;
    assert!(listed.windows(2).all(|pair| pair[0].created_at_ns < pair[1].created_at_ns));
    let listed: Vec<Txid> = listed.into_iter().map(|one| one.txid).collect();
    assert_eq!(listed, txs.iter().map(Tx::id).collect::<Vec<_>>(), "each child after its parent");
}

#[test]
fn more_than_a_page_of_one_second_is_listed_while_statuses_change() {
    let coppice = Coppice::new();
    let txs: Vec<Tx> = (0..40).map(|salt| Tx::orphan(salt, 1)).collect();
    all_ok(create(&coppice, 5, txs.iter().map(Tx::record).collect()));
    all_ok(set_mined(&coppice, 6, 1, &[&txs[0], &txs[1]], false));
    let (mut listed, mut cursor) = (Vec::new(), None::<UnminedCursor>);
    for page in 0.. {
        assert!(page < 20, "a list that ends");
        let found: UnminedPage = coppice.anyone().utxo_list_unmined(&cursor, 3u32).answer().unwrap();
        listed.extend(found.transactions.into_iter().map(|tx| tx.txid));
        cursor = found.cursor;
        if cursor.is_none() {
            break;
        }
        // The transaction listed last is mined, and another one becomes unmined again.
        let last = txs.iter().find(|tx| tx.id() == *listed.last().unwrap()).unwrap();
        all_ok(set_mined(&coppice, 6, 1, &[last], false));
        all_ok(set_mined(&coppice, 6, 1, &[&txs[page % 2]], true));
        all_ok(set_mined(&coppice, 6, 1, &[&txs[(page + 1) % 2]], false));
    }
    let places: Vec<_> = listed.iter().map(|id| txs.iter().position(|tx| tx.id() == *id)).collect();
    assert!(
        places.windows(2).all(|pair| pair[0] < pair[1]),
        "all of one second, in the order of creation, and each once"
    );
    assert!(
        txs[2..].iter().all(|tx| listed.contains(&tx.id())),
        "a transaction unmined when its position was reached is listed"
    );
}

#[test]
fn an_output_that_is_reassigned_to_its_own_hash_is_frozen_until_a_height() {
    let coppice = Coppice::new();
    let tx = Tx::orphan(1, 1);
    all_ok(create(&coppice, 5, vec![tx.record()]));
    all_ok(set_mined(&coppice, 5, 1, &[&tx], false));
    coppice.grant(Who::Alert, Role::Alert);
    let spend = tx.spend(0, 0);
    let target = FreezeTarget { txid: tx.id(), vout: Some(0), utxo_hash: None };
    all_ok(coppice.by(Who::Alert).utxo_freeze(&UtxoFreezeBatch { height: 6, items: vec![target] }).answer());
    let item = Reassign {
        outpoint: Outpoint { txid: tx.id(), vout: 0 },
        utxo_hash: spend.utxo_hash.clone(),
        new_utxo_hash: spend.utxo_hash.clone(),
    };
    let arg = UtxoReassignBatch { height: 12, items: vec![item] };
    let reassign = || coppice.by(Who::Alert).utxo_reassign(&arg).answer().results.remove(0);
    assert_eq!(reassign(), Ok(1_012));
    assert_eq!(reassign(), Err(UtxoError::UtxoNotFrozen));
    let at = |height| {
        let items = vec![TransactionSpends { spender: [7; 32].into(), spends: vec![spend.clone()] }];
        coppice.producer().utxo_spend(&UtxoSpendBatch { height, items }).answer().results.remove(0)
    };
    let refused = RefusedSpend { spend: 0, error: UtxoSpendError::FrozenUntil { height: 1_012 } };
    assert_eq!((at(1_011), at(1_012)), (Err(vec![refused]), Ok(1)));
}

#[test]
fn a_cap_on_memory_refuses_records_and_loses_none() {
    let coppice = Coppice::new();
    let pages = coppice.storage().billed_bytes / 65_536;
    let utxo = Some(UtxoSettingsChange { max_utxo_bytes: Some(1 << 40), ..UtxoSettingsChange::default() });
    let cap = ConfigChange { max_stable_pages: Some(pages.max(1_024)), utxo, ..ConfigChange::default() };
    coppice.operator().set_config(&cap).answer().unwrap();
    let mut made = 0;
    let refused = (0..200_000u64).step_by(400).find_map(|first| {
        let script = vec![0x51; 3_000];
        let txs = (first..first + 400).map(|salt| Tx::new(&[([1; 32], salt as u32)], &[(5, script.clone())]));
        let batch = create(&coppice, 5, txs.map(|tx| tx.record()).collect());
        made += batch.results.iter().filter(|result| result.is_ok()).count() as u64;
        batch.results.into_iter().find_map(Result::err)
    });
    assert_eq!(refused, Some(UtxoCreateError::NoMemory(NoMemory::OutOfSpace)));
    assert_eq!(coppice.storage().utxo.unwrap().records, made);
    let first = Tx::new(&[([1; 32], 0)], &[(5, vec![0x51; 3_000])]);
    assert!(get(&coppice, &first).is_ok());
}

/// A block's id under another height or subtree is not a repetition, and the record keeps the block that it has.
#[test]
fn set_mined_of_a_known_id_at_another_height_or_subtree_is_refused() {
    let coppice = Coppice::new();
    let tx = Tx::new(&[([1; 32], 0)], &[(5, vec![0x51])]);
    all_ok(create(&coppice, 10, vec![tx.record()]));
    let set = |block_id: u32, block_height: u32, subtree: u32, unset: bool| {
        let items = vec![MinedTransaction { txid: tx.id(), subtree }];
        let set = UtxoSetMinedBatch { height: 20, block_id, block_height, on_longest_chain: true, unset, items };
        coppice.producer().utxo_set_mined(&set).answer().results.remove(0)
    };
    // Two blocks are kept in the record itself, and more of them in another place.
    for block_id in 0..4 {
        assert!(set(block_id, 11, 3, false).is_ok());
    }
    let before = get(&coppice, &tx).unwrap();
    for block_id in 0..4 {
        let block = BlockRef { block_id, height: 11, subtree: 3 };
        assert_eq!(set(block_id, 11, 3, false), Ok(vec![0, 1, 2, 3]));
        for (height, subtree) in [(12, 3), (11, 4), (10, 0)] {
            let refused = set(block_id, height, subtree, false);
            assert_eq!(refused, Err(UtxoError::OtherBlock { block }), "{block_id} at {height} in {subtree}");
        }
    }
    assert_eq!(get(&coppice, &tx).unwrap(), before);
    assert_eq!(set(1, 99, 0, true), Ok(vec![0, 2, 3]), "unset looks at the id only");
    assert_eq!(set(1, 12, 4, false), Ok(vec![0, 2, 3, 1]));
}
