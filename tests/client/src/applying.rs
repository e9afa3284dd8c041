//! Kept blocks that are applied to the UTXO records, and taken back.

use crate::blocks::{append, next, sha256};
use candid::Principal;
use ic_coppice_client::{Block, Client, Error, Retry, Transport};
use ic_coppice_interface::*;

/// Inputs of a transaction that takes more than one message.
const INPUTS: u16 = 4_001;

/// Returns a transaction of these inputs, with one output.
fn transaction(inputs: &[([u8; 32], u32)], height: u32) -> Vec<u8> {
    let mut raw = 1u32.to_le_bytes().to_vec();
    raw.push(0xFD);
    raw.extend((inputs.len() as u16).to_le_bytes());
    for (txid, vout) in inputs {
        raw.extend(txid);
        raw.extend(vout.to_le_bytes());
        // The script keeps coinbases of different heights apart.
        raw.push(4);
        raw.extend(height.to_le_bytes());
        raw.extend([0xFF; 4]);
    }
    raw.push(1);
    raw.extend(1_000u64.to_le_bytes());
    raw.extend([1, 0x51]);
    raw.extend([0; 4]);
    raw
}

/// Returns a coinbase whose input count is written with as few bytes as the count needs.
fn coinbase(height: u32) -> Vec<u8> {
    let mut raw = transaction(&[([0; 32], u32::MAX)], height);
    raw.splice(4..7, [1]);
    raw
}

/// Returns a block of a coinbase and of a transaction that spends outputs of transactions without a record, with the second one's id.
pub fn block((number, parent_hash): (u64, BlockHash)) -> (AppendBlock, Txid) {
    let unknown: Vec<([u8; 32], u32)> = (0..u32::from(INPUTS)).map(|vout| ([9; 32], vout)).collect();
    let transactions = [coinbase(number as u32), transaction(&unknown, number as u32)];
    let ids = transactions.each_ref().map(|raw| sha256(&sha256(raw)));
    let body = [&[7; 80][..], &[2], &transactions.concat()].concat();
    let block = Block::new(number, sha256(&body), parent_hash, 1_700_000_000 + number).body(body);
    let block = ids.iter().fold(block, |block, id| block.transaction(*id, None, &[])).seal().unwrap();
    (block, ids[1].into())
}

pub async fn a_block_is_applied_over_several_messages_and_taken_back<T: Transport>(client: &Client<T>, _: Principal) {
    // A block to roll back to.
    append(client, 1, b"below").await;
    let (kept, wide) = block(next(client).await);
    let number = kept.number;
    client.send_block(&kept).await.unwrap();
    let (height, block_id) = (number as u32, 1_000_000);
    let hash = kept.hash.clone();
    let passed = UtxoApplyBlock {
        number,
        hash,
        height,
        block_id,
        missing_parents: Some(MissingParents::Skip),
        skip: None,
        skip_rest: false,
    };
    let refused = UtxoApplyBlock { missing_parents: Some(MissingParents::Refuse), ..passed.clone() };

    let error = client.apply(&refused).await.unwrap_err();
    assert_eq!(error.retry(), Retry::Never, "{error:?}");
    let Error::Refused(UtxoApplyError::Stopped(stop)) = error else { panic!("{error:?}") };
    let expected = UtxoApplyStop {
        number,
        transaction: 1,
        txid: wide.clone(),
        input: Some(0),
        output: Some(Outpoint { txid: [9; 32].into(), vout: 0 }),
        reason: UtxoApplyReason::MissingParent,
    };
    assert_eq!(*stop, expected);
    // The coinbase is applied already. The transaction of many inputs takes a message of its own for its record.
    let first = client.utxo_apply_block(&passed).await.unwrap();
    let applied = client.apply(&passed).await.unwrap();
    assert_eq!(applied.transactions, 2);
    assert_eq!(first.created + applied.created, 1);
    assert_eq!(first.missing_parents + applied.missing_parents, u32::from(INPUTS));
    for skip in [None, Some(wide.clone())] {
        let again = client.apply(&UtxoApplyBlock { skip, ..passed.clone() }).await.unwrap();
        assert_eq!(again, UtxoApplied { known: true, transactions: 2, ..UtxoApplied::default() });
    }
    let record = UtxoGet { txid: wide, first: 0, limit: 0, extra_pages_cursor: None };
    let blocks = client.utxo_get(&record).await.unwrap().blocks;
    assert_eq!(blocks, [BlockRef { block_id, height, subtree: 0 }]);

    let other = client.apply(&UtxoApplyBlock { block_id: 7, ..passed.clone() }).await.unwrap_err();
    assert_eq!(other.retry(), Retry::Reorg, "{other:?}");
    let other = client.apply(&UtxoApplyBlock { hash: [7; 32].into(), ..passed.clone() }).await.unwrap_err();
    assert_eq!(other.retry(), Retry::Reorg, "{other:?}");
    let coming = UtxoApplyBlock { number: number + 1, height: height + 1, ..passed.clone() };
    let error = client.apply(&coming).await.unwrap_err();
    assert_eq!(error.retry(), Retry::Again, "{error:?}");
    let done = client.roll_back_to(number - 1).await.unwrap();
    assert_eq!((done.head, done.not_restored, done.waits), (number - 1, Some(0), None));
    let unmined = client.utxo_get(&record).await.unwrap();
    assert_eq!((unmined.blocks, unmined.unmined_since), (vec![], Some(height)));
    let error = client.apply(&passed).await.unwrap_err();
    assert_eq!(error.retry(), Retry::Again, "{error:?}");
    assert_eq!(client.utxo_stop_applying().await.unwrap().map(|at| at.next), Some(number));
}
