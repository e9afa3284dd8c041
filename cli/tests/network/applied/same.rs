//! Compares the records of two canisters, field by field.

use bitcoin::hashes::Hash;
use bitcoin::{Block, OutPoint};
use ic_coppice_cli::client::{Client, Transport, Wait};
use ic_coppice_cli::utxo::states::states;
use ic_coppice_interface::{Txid, UtxoGet, UtxoRecord, UtxoStorage};
use std::collections::BTreeSet;

/// Most entries of an answer.
const ENTRIES: u32 = 5_000;

/// Returns a record with all its entries, without the time at which it was created.
pub fn record(client: &Client<impl Transport>, txid: &Txid) -> UtxoRecord {
    let part = |first: u32| {
        let get = UtxoGet { txid: txid.clone(), first, limit: ENTRIES, extra_pages_cursor: None };
        client.utxo_get(&get).done().unwrap_or_else(|error| panic!("{txid:?}: {error:#}"))
    };
    let mut whole = part(0);
    while (whole.utxos.len() as u32) < whole.total_outputs {
        let next = part(whole.utxos.len() as u32);
        assert!(!next.utxos.is_empty(), "{txid:?}");
        whole.utxos.extend(next.utxos);
    }
    assert_eq!(whole.extra_pages_cursor, None);
    UtxoRecord { created_at_ns: 0, ..whole }
}

/// Returns a record's transaction as it is kept.
pub fn bytes(client: &Client<impl Transport>, txid: &Txid) -> Vec<u8> {
    client.whole_transaction(txid).done().unwrap().1
}

/// Returns the ids of all unmined records.
pub fn unmined(client: &Client<impl Transport>) -> BTreeSet<Txid> {
    let (mut all, mut cursor) = (BTreeSet::new(), None);
    loop {
        let page = client.utxo_list_unmined(cursor, 1_000).wait().unwrap().unwrap();
        all.extend(page.transactions.into_iter().map(|of| of.txid));
        cursor = page.cursor;
        if cursor.is_none() {
            return all;
        }
    }
}

fn storage(client: &Client<impl Transport>) -> UtxoStorage {
    UtxoStorage { applying: None, ..client.get_storage_status(None).wait().unwrap().utxo.unwrap() }
}

/// Checks that two canisters have equal records of the blocks' transactions, and no others. The height of the first block is `first`.
pub fn assert_same(one: &Client<impl Transport>, other: &Client<impl Transport>, first: u32, blocks: &[Block]) {
    let height = first + blocks.len() as u32 - 1;
    let mut outpoints: Vec<OutPoint> = Vec::new();
    let mut txids = BTreeSet::new();
    for transaction in blocks.iter().flat_map(|block| &block.txdata) {
        let txid = transaction.compute_txid();
        txids.insert(Txid::from(txid.to_byte_array()));
        outpoints.extend((0..transaction.output.len() as u32).map(|vout| OutPoint { txid, vout }));
    }
    for txid in &txids {
        assert_eq!(record(one, txid), record(other, txid));
        assert!(bytes(one, txid) == bytes(other, txid), "{txid:?}");
    }
    assert_eq!(states(one, height, &outpoints).unwrap(), states(other, height, &outpoints).unwrap());
    assert_eq!(storage(one), storage(other));
    assert_eq!(storage(one).records, txids.len() as u64);
    assert_eq!((unmined(one), unmined(other)), (BTreeSet::new(), BTreeSet::new()));
}
