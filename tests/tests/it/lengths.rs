//! Ids and hashes of the wrong length: every method that takes one refuses it, does not trap and changes nothing.

use super::utxo::{all_ok, create, get};
use coppice_tests::blocks::{block_id, plain, upload};
use coppice_tests::client::Answered;
use coppice_tests::coppice::{Coppice, Who, blob_bytes};
use coppice_tests::transactions::Tx;
use ic_coppice_interface::*;
use serde_bytes::ByteBuf;
use std::fmt::Debug;

/// The method and its wrong field, and the answer.
type Answers = Vec<(&'static str, String)>;

/// Adds an answer.
fn note(answers: &mut Answers, what: &'static str, answer: impl Debug) {
    answers.push((what, format!("{answer:?}")));
}

/// Calls methods of records with one wrong id or hash each.
fn of_records(coppice: &Coppice, tx: &Tx, open: &Tx, wrong: &[u8]) -> Answers {
    let mut all = Answers::new();
    let answers = &mut all;
    let (producer, alert, anyone) = (coppice.producer(), coppice.by(Who::Alert), coppice.anyone());
    let (id, output) = (|| Txid::from(wrong), || UtxoHash::from(wrong));
    let right = tx.spend(0, 0);

    let record = |source| UtxoCreate { source, ..tx.record() };
    let outputs = vec![PartialOutput { index: 0, satoshis: 1, script: ByteBuf::from([0x51]) }];
    let partial = PartialTransaction { txid: id(), coinbase: false, total_outputs: 1, outputs };
    let external = |txid, input, utxo_hash| {
        TransactionSource::External(ExternalTransaction {
            txid,
            store: ExternalStore { blob_key: ByteBuf::from([7]), file_type: FileType::Tx, store_type: StoreType::Tx },
            coinbase: false,
            version: 1,
            lock_time: 0,
            size: 100,
            inputs: vec![Outpoint { txid: input, vout: 0 }],
            utxo_hashes: vec![Some(utxo_hash)],
        })
    };
    let (new, hashed) = (|| Txid::from([0xAA; 32]), || UtxoHash::from([0xBB; 32]));
    for (what, source) in [
        ("utxo_create, Uploaded", TransactionSource::Uploaded(id())),
        ("utxo_create, Outputs", TransactionSource::Outputs(partial)),
        ("utxo_create, External.txid", external(id(), new(), hashed())),
        ("utxo_create, External.inputs", external(new(), id(), hashed())),
        ("utxo_create, External.utxo_hashes", external(new(), new(), output())),
    ] {
        note(answers, what, create(coppice, 10, vec![record(source)]));
    }

    for (what, spender, spend) in [
        ("utxo_spend, spender", id(), right.clone()),
        ("utxo_spend, txid", new(), Spend { txid: id(), ..right.clone() }),
        ("utxo_spend, utxo_hash", new(), Spend { utxo_hash: output(), ..right.clone() }),
    ] {
        let items = vec![TransactionSpends { spender, spends: vec![spend] }];
        note(answers, what, producer.utxo_spend(&UtxoSpendBatch { height: 10, items }).answer());
    }

    let outpoint = || Outpoint { txid: tx.id(), vout: 0 };
    let spender = || Spender { txid: new(), vin: 0 };
    let unspend = Unspend { outpoint: outpoint(), utxo_hash: right.utxo_hash.clone(), spender: spender() };
    for (what, item) in [
        ("utxo_unspend, outpoint", Unspend { outpoint: Outpoint { txid: id(), vout: 0 }, ..unspend.clone() }),
        ("utxo_unspend, utxo_hash", Unspend { utxo_hash: output(), ..unspend.clone() }),
        ("utxo_unspend, spender", Unspend { spender: Spender { txid: id(), vin: 0 }, ..unspend }),
    ] {
        note(answers, what, producer.utxo_unspend(&UtxoUnspendBatch { height: 10, items: vec![item] }).answer());
    }

    let (height, txids) = (10, vec![id()]);
    let mined = UtxoSetMinedBatch {
        height,
        block_id: 1,
        block_height: 10,
        on_longest_chain: true,
        unset: false,
        items: vec![MinedTransaction { txid: id(), subtree: 0 }],
    };
    note(answers, "utxo_set_mined", producer.utxo_set_mined(&mined).answer());
    let longest = UtxoSetOnLongestChainBatch { height, txids: txids.clone(), on_longest_chain: false };
    note(answers, "utxo_set_on_longest_chain", producer.utxo_set_on_longest_chain(&longest).answer());
    let locked = UtxoSetLockedBatch { height, locked: true, txids: txids.clone() };
    note(answers, "utxo_set_locked", producer.utxo_set_locked(&locked).answer());
    let preserve = UtxoPreserveBatch { until_height: 100, txids: txids.clone() };
    note(answers, "utxo_preserve", producer.utxo_preserve(&preserve).answer());
    let conflicting = UtxoSetConflictingBatch { height, txids: txids.clone() };
    note(answers, "utxo_set_conflicting", producer.utxo_set_conflicting(&conflicting).answer());
    let winners = UtxoProcessConflicting { height, winners: txids };
    note(answers, "utxo_process_conflicting", producer.utxo_process_conflicting(&winners).answer());

    let target = FreezeTarget { txid: tx.id(), vout: Some(0), utxo_hash: None };
    for (what, item) in [
        ("utxo_freeze, txid", FreezeTarget { txid: id(), ..target.clone() }),
        ("utxo_freeze, utxo_hash", FreezeTarget { utxo_hash: Some(output()), ..target }),
    ] {
        let items = vec![item];
        note(answers, what, alert.utxo_freeze(&UtxoFreezeBatch { height, items: items.clone() }).answer());
        note(answers, what, alert.utxo_unfreeze(&UtxoFreezeBatch { height, items }).answer());
    }
    let reassign = Reassign { outpoint: outpoint(), utxo_hash: right.utxo_hash.clone(), new_utxo_hash: hashed() };
    for (what, item) in [
        ("utxo_reassign, outpoint", Reassign { outpoint: Outpoint { txid: id(), vout: 0 }, ..reassign.clone() }),
        ("utxo_reassign, utxo_hash", Reassign { utxo_hash: output(), ..reassign.clone() }),
        ("utxo_reassign, new_utxo_hash", Reassign { new_utxo_hash: output(), ..reassign }),
    ] {
        note(answers, what, alert.utxo_reassign(&UtxoReassignBatch { height, items: vec![item] }).answer());
    }

    let begin = BeginTransaction { txid: id(), length: open.raw.len() as u64, chunk_size: 64 << 10 };
    note(answers, "utxo_begin_transaction", producer.utxo_begin_transaction(&begin).answer());
    let chunk = PutTransactionChunk { txid: id(), chunk: 0, bytes: ByteBuf::from(open.raw.as_slice()) };
    note(answers, "utxo_put_transaction_chunk", producer.utxo_put_transaction_chunk(&chunk).answer());
    note(answers, "utxo_abort_transaction", producer.utxo_abort_transaction(&id()).answer());

    note(
        answers,
        "utxo_get",
        anyone.utxo_get(&UtxoGet { txid: id(), first: 0, limit: 1, extra_pages_cursor: None }).answer(),
    );
    let part = UtxoGetPart { txid: id(), part: UtxoPart::Transaction, offset: 0, length: 1 };
    note(answers, "utxo_get_transaction", anyone.utxo_get_transaction(&part).answer());
    let part = UtxoGetPart { part: UtxoPart::Inpoints, ..part };
    note(answers, "utxo_get_transaction", anyone.utxo_get_transaction(&part).answer());
    let outpoints = vec![Outpoint { txid: id(), vout: 0 }];
    note(answers, "utxo_get_spend", anyone.utxo_get_spend(&UtxoGetSpend { height, outpoints }).answer());
    let cursor = UnminedCursor { created_at_ns: 0, txid: id() };
    note(answers, "utxo_list_unmined", anyone.utxo_list_unmined(Some(cursor), 1).answer());
    all
}

/// Calls methods of blocks, whose hashes are opaque and have 1 to 32 bytes.
fn of_blocks(coppice: &Coppice, wrong: &[u8]) -> Answers {
    let (mut answers, open) = (Answers::new(), plain(3, 2, 100));
    let wrong = || BlockHash::from(wrong);
    let (producer, anyone) = (coppice.producer(), coppice.anyone());
    let hashed = AppendBlock { hash: wrong(), ..open.clone() };
    let parent = AppendBlock { parent_hash: wrong(), ..open.clone() };
    for (what, begun, block) in [
        ("append_block, hash", "begin_block, hash", hashed),
        ("append_block, parent_hash", "begin_block, parent_hash", parent),
    ] {
        // A hash of 31 bytes is valid for a block.
        if block.hash.len() == 31 {
            continue;
        }
        note(&mut answers, what, coppice.append(&block));
        note(&mut answers, begun, producer.begin_block(&upload(&block, 100).0).answer());
    }
    let mut of = block_id(&open);
    of.hash = wrong();
    note(&mut answers, "commit_block", producer.commit_block(&of).answer());
    note(&mut answers, "ack_exported", coppice.by(Who::Exporter).ack_exported(2, &wrong()).answer());
    let cursor = ExportCursor { number: 2, hash: wrong(), segment: 3, offset: 0, rollbacks: 0 };
    note(&mut answers, "export_blocks", anyone.export_blocks(Some(cursor), 0).answer());
    let cursor = KeyCursor { block_number: 2, block_hash: wrong(), position: 0, key: 0, newest: 2, rollbacks: 0 };
    note(&mut answers, "find_by_index_key", anyone.find_by_index_key(ByteBuf::from(b"key"), Some(cursor), 0).answer());
    let reset = ResetChain { head_hash: wrong(), drop_unexported: true };
    note(&mut answers, "reset_chain", coppice.operator().reset_chain(&reset).answer());
    answers
}

#[test]
fn an_id_or_hash_of_the_wrong_length_is_refused_and_changes_nothing() {
    let coppice = Coppice::new();
    coppice.grant(Who::Alert, Role::Alert);
    coppice.register(Who::Exporter);
    coppice.append_plain(0..3, 100);
    let (tx, open) = (Tx::orphan(1, 3), Tx::orphan(2, 3));
    all_ok(create(&coppice, 10, vec![tx.record()]));
    let begin = BeginTransaction { txid: open.id(), length: open.raw.len() as u64, chunk_size: 64 << 10 };
    coppice.producer().utxo_begin_transaction(&begin).answer().unwrap();
    let state = || {
        let uploads = (
            coppice.anyone().list_uploads().answer().transactions.unwrap(),
            coppice.anyone().list_uploads().answer().block,
        );
        let exported = coppice.export_status().exporters[0].exported_before_block;
        let rows = coppice.anyone().get_blob_deletion_status().answer().stores;
        // Chunks may have been taken before the whole item was checked, and the queue begins with its first item.
        let storage = coppice.storage();
        let (blobs, payload_bytes, utxo) = (blob_bytes(&storage), storage.payload_bytes, storage.utxo.unwrap());
        let utxo = UtxoStorage { kept_bytes: 0, reusable_bytes: 0, ..utxo };
        (coppice.chain(), get(&coppice, &tx), uploads, (rows, utxo, blobs, payload_bytes), exported)
    };
    let before = state();
    for length in [0, 31, 33] {
        let wrong = vec![0xEE; length];
        for (what, answer) in of_records(&coppice, &tx, &open, &wrong) {
            let refused = answer.contains("BadArgument") && answer.contains(&format!("{length} bytes, not 32"));
            assert!(refused && !answer.contains("Ok("), "{what} of {length} bytes: {answer}");
        }
        for (what, answer) in of_blocks(&coppice, &wrong) {
            let expected: &[&str] = match (what.split_once(", "), length) {
                (Some((_, "hash")), 0) => &["BadEncoding"],
                (Some(_), 33) => &["TooLarge"],
                // Such a hash is valid, but not a known block's.
                (Some(_), _) => &["WrongParent"],
                (None, _) => &["NoUpload", "WrongHash", "Reorged", "BadCursor"],
            };
            assert!(
                answer.starts_with("Err(") && expected.iter().any(|error| answer.contains(error)),
                "{what} of {length} bytes: {answer}"
            );
        }
        assert_eq!(state(), before, "{length} bytes");
    }
}
