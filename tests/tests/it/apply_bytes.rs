//! Bytes of applied transactions that stay in their blocks (`copy_applied_transactions = false`), and transactions that leave these blocks.

use crate::apply::{HEIGHT, apply, apply_by, argument};
use crate::utxo::get;
use coppice_tests::client::Answered;
use coppice_tests::coppice::{Coppice, Who};
use coppice_tests::transactions::{Tx, block, serialise, txid};
use ic_coppice_interface::*;

/// A canister that leaves the bytes of applied transactions in their blocks.
fn without_copies() -> Coppice {
    let coppice = Coppice::new();
    let utxo = UtxoSettingsChange { copy_applied_transactions: Some(false), ..UtxoSettingsChange::default() };
    coppice.operator().set_config(&ConfigChange { utxo: Some(utxo), ..ConfigChange::default() }).answer().unwrap();
    coppice
}

pub fn bytes_of(coppice: &Coppice, tx: &Tx) -> Result<Vec<u8>, UtxoError> {
    let part = UtxoGetPart { txid: tx.id(), part: UtxoPart::Transaction, offset: 0, length: u64::MAX };
    coppice.anyone().utxo_get_transaction(&part).answer().map(|part| part.bytes.into_vec())
}

fn prune_all_but_the_head(coppice: &Coppice) {
    coppice.set_policy(PrunePolicyArg { retain_blocks: Some(1), ..PrunePolicyArg::default() }).unwrap();
    coppice.settle(100);
}

/// Takes a block from transactions, or sets them as not on the longest chain. Returns the answers and what remains.
fn leave(coppice: &Coppice, txs: &[Tx], number: u64, unset: bool) -> (Vec<Result<(), UtxoError>>, u32) {
    let height = HEIGHT + number as u32;
    if unset {
        let items = txs.iter().map(|tx| MinedTransaction { txid: tx.id(), subtree: 0 }).collect();
        let (block_id, block_height) = (number as u32, height);
        let set = UtxoSetMinedBatch { height, block_id, block_height, on_longest_chain: true, unset: true, items };
        let Batch { results, remaining } = coppice.producer().utxo_set_mined(&set).answer();
        return (results.into_iter().map(|result| result.map(drop)).collect(), remaining);
    }
    let txids = txs.iter().map(Tx::id).collect();
    let set = UtxoSetOnLongestChainBatch { height, on_longest_chain: false, txids };
    let Batch { results, remaining } = coppice.producer().utxo_set_on_longest_chain(&set).answer();
    (results, remaining)
}

#[test]
fn bytes_of_a_transaction_that_becomes_unmined_outlast_its_block() {
    for unset in [true, false] {
        let coppice = without_copies();
        let txs = [Tx::coinbase(0, 1), Tx::orphan(1, 2), Tx::orphan(2, 3_000), Tx::orphan(3, 1)];
        coppice.append(&block(0, &txs)).unwrap();
        for number in 1..4 {
            coppice.append(&block(number, &[Tx::coinbase(number, 1)])).unwrap();
        }
        apply_by(&coppice, Who::Controller, &argument(0)).unwrap();
        (1..4).for_each(|number| assert!(apply(&coppice, number).is_ok()));
        let place = |tx: &Tx| get(&coppice, tx).unwrap().transaction;
        // A block that a transaction does not have takes nothing from it.
        assert_eq!(leave(&coppice, &txs[..1], 2, true), (vec![Ok(())], 0));
        assert!(txs.iter().all(|tx| matches!(place(tx), TransactionPlace::Block { .. })));
        for _ in 0..2 {
            assert_eq!(leave(&coppice, &txs[..3], 0, unset), (vec![Ok(()); 3], 0), "twice");
        }
        assert!(txs[..3].iter().all(|tx| !matches!(place(tx), TransactionPlace::Block { .. })));
        prune_all_but_the_head(&coppice);
        for tx in &txs[..3] {
            assert_eq!(bytes_of(&coppice, tx).as_ref(), Ok(&tx.raw));
            assert!(get(&coppice, tx).unwrap().unmined_since.is_some());
        }
        // The other order: the block is gone before the transaction leaves it.
        assert_eq!(bytes_of(&coppice, &txs[3]), Err(UtxoError::NotKept));
        assert_eq!(leave(&coppice, &txs[3..], 0, unset), (vec![Ok(())], 0));
        assert_eq!(bytes_of(&coppice, &txs[3]), Err(UtxoError::NotKept));
        // Another block has them.
        coppice.append(&block(4, &txs[1..3])).unwrap();
        assert_eq!(apply(&coppice, 4).map(|done| done.existed), Ok(2));
        for number in 5..7 {
            coppice.append(&block(number, &[])).unwrap();
            apply(&coppice, number).unwrap();
        }
        coppice.settle(100);
        assert_eq!(coppice.prune_status().pruned_before_block, 5);
        for tx in &txs[1..3] {
            assert_eq!(bytes_of(&coppice, tx).as_ref(), Ok(&tx.raw));
        }
    }
}

/// The first block is pruned, and a later one has the transaction as well.
#[test]
fn bytes_of_a_transaction_of_two_blocks_are_read_in_the_newer_one() {
    for leaves in [0, 1] {
        let coppice = without_copies();
        let tx = Tx::orphan(1, 2);
        for (number, txs) in
            (0..).zip([vec![tx.clone()], vec![Tx::coinbase(1, 1)], vec![Tx::coinbase(2, 1), tx.clone()], vec![]])
        {
            coppice.append(&block(number, &txs)).unwrap();
            apply_by(&coppice, Who::Controller, &argument(number)).unwrap();
        }
        prune_all_but_the_head(&coppice);
        assert_eq!(coppice.prune_status().pruned_before_block, 2);
        assert_eq!(bytes_of(&coppice, &tx).as_ref(), Ok(&tx.raw));
        for number in [[0, 2], [2, 0]][leaves] {
            assert_eq!(leave(&coppice, std::slice::from_ref(&tx), number, true), (vec![Ok(())], 0));
        }
        coppice.append(&block(4, &[])).unwrap();
        apply(&coppice, 4).unwrap();
        coppice.settle(100);
        assert_eq!(coppice.prune_status().pruned_before_block, 3);
        assert!(get(&coppice, &tx).unwrap().unmined_since.is_some());
        assert_eq!(bytes_of(&coppice, &tx).as_ref(), Ok(&tx.raw));
    }
}

#[test]
fn batch_of_transactions_that_leave_a_block_ends_by_the_pages_that_their_bytes_take() {
    let wide = |salt: u8| {
        let mut tx = Tx::orphan(salt.into(), 1);
        tx.outputs[0].1 = vec![salt; 8 << 20];
        tx.raw = serialise(&tx.inputs, None, &tx.outputs);
        tx.txid = txid(&tx.raw);
        tx
    };
    let txs: Vec<Tx> = (0..9).map(wide).collect();
    let coppice = without_copies();
    coppice.upload(&block(0, &txs), 1 << 20).unwrap();
    while apply_by(&coppice, Who::Controller, &argument(0)).unwrap().has_more {}
    // 68 MiB of pages: the heap of one, and the store of each, with room for another one.
    let (done, remaining) = leave(&coppice, &txs, 0, true);
    assert_eq!((done, remaining), (vec![Ok(()); 6], 3));
    let (done, remaining) = leave(&coppice, &txs[6..], 0, false);
    assert_eq!((done, remaining), (vec![Ok(()); 3], 0));
    for tx in &txs {
        assert!(!matches!(get(&coppice, tx).unwrap().transaction, TransactionPlace::Block { .. }));
    }
}

#[test]
fn transaction_whose_bytes_find_no_room_stays_mined() {
    for unset in [true, false] {
        let coppice = without_copies();
        let utxo = UtxoSettingsChange {
            externalize_all: Some(true),
            max_external_bytes: Some(4_096),
            ..UtxoSettingsChange::default()
        };
        coppice.operator().set_config(&ConfigChange { utxo: Some(utxo), ..ConfigChange::default() }).answer().unwrap();
        let txs = [Tx::orphan(1, 300), Tx::orphan(2, 1)];
        coppice.append(&block(0, &txs)).unwrap();
        apply_by(&coppice, Who::Controller, &argument(0)).unwrap();
        let before = get(&coppice, &txs[0]).unwrap();
        let (done, _) = leave(&coppice, &txs, 0, unset);
        assert!(matches!(&done[..], [Err(UtxoError::ExternalFull { limit: 4_096 }), Err(_)]), "{done:?}");
        assert_eq!(get(&coppice, &txs[0]).unwrap(), before);
        let utxo = UtxoSettingsChange { max_external_bytes: Some(1 << 20), ..UtxoSettingsChange::default() };
        coppice.operator().set_config(&ConfigChange { utxo: Some(utxo), ..ConfigChange::default() }).answer().unwrap();
        assert_eq!(leave(&coppice, &txs[..1], 0, unset), (vec![Ok(())], 0));
        assert_eq!(bytes_of(&coppice, &txs[0]).as_ref(), Ok(&txs[0].raw));
    }
}
