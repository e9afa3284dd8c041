//! UTXO records in batches, and transactions in chunks.

use crate::blocks::{id, sha256};
use candid::Principal;
use ic_coppice_client::{Client, Transport};
use ic_coppice_interface::*;
use serde_bytes::ByteBuf;

const RECORDS: u32 = 60;
const HEIGHT: u32 = 10;

fn record(txid: [u8; 32]) -> UtxoCreate {
    let output = PartialOutput { index: 0, satoshis: 1_000, script: ByteBuf::from([0x51]) };
    let outputs =
        PartialTransaction { txid: Txid::from(txid), coinbase: false, total_outputs: 1, outputs: vec![output] };
    UtxoCreate {
        source: TransactionSource::Outputs(outputs),
        mined: None,
        locked: Some(false),
        conflicting: false,
        fee: None,
        is_new: false,
    }
}

pub async fn a_batch_of_any_size_is_answered_whole<T: Transport>(client: &Client<T>, _: Principal) {
    let txids: Vec<[u8; 32]> = (0..RECORDS).map(|of| id(u64::MAX, of)).collect();
    // An uploaded transaction may change as many pages as a message may, so a message ends before it.
    let uploaded = UtxoCreate { source: TransactionSource::Uploaded(Txid::from([7; 32])), ..record([7; 32]) };
    let mut items: Vec<UtxoCreate> = txids.iter().copied().map(record).collect();
    items.insert(txids.len() / 2, uploaded);
    let batch = UtxoCreateBatch { height: HEIGHT, items };
    assert!(client.utxo_create(&batch).await.unwrap().remaining > 0, "one message does not do all");
    let created = client.utxo_create_all(batch.clone()).await.unwrap();
    assert_eq!(created.len(), txids.len() + 1);
    assert_eq!(created[txids.len() / 2], Err(UtxoCreateError::NoUpload));
    let made = created.iter().filter(|answer| answer.as_ref().is_ok_and(|created| created.utxos == 1)).count();
    let existed = created.iter().filter(|answer| matches!(answer, Err(UtxoCreateError::TxExists))).count();
    assert!(made > 0 && existed > 0 && made + existed == txids.len(), "{made}, {existed}");
    let none = UtxoCreateBatch { height: HEIGHT, items: Vec::new() };
    assert_eq!(client.utxo_create_all(none).await.unwrap(), []);

    let outpoints: Vec<Outpoint> = txids.iter().map(|txid| Outpoint { txid: Txid::from(*txid), vout: 0 }).collect();
    let states = client.utxo_get_spend(&UtxoGetSpend { height: HEIGHT, outpoints }).await.unwrap();
    let items: Vec<TransactionSpends> = (0u32..)
        .zip(txids.iter().zip(&states))
        .map(|(of, (txid, state))| TransactionSpends {
            spender: Txid::from(id(u64::MAX - 1, of)),
            spends: vec![Spend {
                txid: Txid::from(*txid),
                vout: 0,
                utxo_hash: state.utxo_hash.clone().expect("it is there"),
                vin: 0,
            }],
        })
        .collect();
    // A repeated spend is Ok; another spender learns who spent the output first.
    for _ in 0..2 {
        let spent = client.utxo_spend_all(UtxoSpendBatch { height: HEIGHT, items: items.clone() }).await.unwrap();
        assert!(spent.len() == items.len() && spent.iter().all(Result::is_ok), "{spent:?}");
    }
    let late = TransactionSpends { spender: Txid::from([9; 32]), ..items[0].clone() };
    let refused = client.utxo_spend_all(UtxoSpendBatch { height: HEIGHT, items: vec![late] }).await.unwrap();
    let Err(why) = &refused[0] else { panic!("{refused:?}") };
    let by = Spender { txid: items[0].spender.clone(), vin: 0 };
    assert_eq!(why[0].error, UtxoSpendError::Spent { by });
    let states = client
        .utxo_get(&UtxoGet { txid: items[0].spends[0].txid.clone(), first: 0, limit: 1, extra_pages_cursor: None })
        .await;
    assert_eq!(states.unwrap().spent_utxos, 1);
}

/// A transaction with one output, whose locking script has `script` bytes.
fn long_transaction(script: u32) -> Vec<u8> {
    let mut raw = 1u32.to_le_bytes().to_vec();
    raw.push(1);
    raw.extend([7; 36]);
    raw.push(0);
    raw.extend([0xFF; 4]);
    raw.push(1);
    raw.extend(1_000u64.to_le_bytes());
    raw.push(0xFE);
    raw.extend(script.to_le_bytes());
    raw.extend((0..script).map(|at| at as u8));
    raw.extend([0; 4]);
    raw
}

pub async fn a_transaction_larger_than_a_message_is_uploaded<T: Transport>(client: &Client<T>, _: Principal) {
    let raw = long_transaction(2_300_000);
    let txid = Txid::from(sha256(&sha256(&raw)));
    // An upload with another length is open; the client replaces it.
    let other = BeginTransaction { txid: txid.clone(), length: 3_000_000, chunk_size: 1 << 20 };
    client.utxo_begin_transaction(&other).await.unwrap();
    for _ in 0..2 {
        client.upload_transaction(&txid, &raw).await.unwrap();
    }
    let source = TransactionSource::Uploaded(txid.clone());
    let items = vec![UtxoCreate { source, ..record([0; 32]) }];
    let created = client.utxo_create_all(UtxoCreateBatch { height: HEIGHT, items }).await.unwrap();
    assert!(created[0].as_ref().is_ok_and(|created| created.external), "{created:?}");
    let (file_type, read) = client.whole_transaction(&txid).await.unwrap();
    assert_eq!(file_type, FileType::Tx);
    assert!(read == raw, "{} bytes", read.len());
    assert_eq!(client.list_uploads().await.unwrap().transactions, Some(vec![]));
    assert!(client.whole_transaction(&Txid::from([1; 32])).await.is_err());
}
