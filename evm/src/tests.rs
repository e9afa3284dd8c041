//! Blocks from a node's JSON to the canister's segments, and back.

use crate::index::{Extra, coppice_block, emitter, topic};
use crate::testing::{Recorded, made, with_blobs};
use crate::{Block, Wrong};
use alloy_eips::eip2718::Typed2718 as _;
use alloy_primitives::{Address, B256, hex};
use ic_coppice_interface::segments::{Index, Receipts};
use serde_json::{Value, json};

const ALL: [Extra; 4] = [Extra::Senders, Extra::Receivers, Extra::Created, Extra::Topics];

/// Decodes the segments of a Coppice block.
fn decoded(block: &Block, body: &[u8], receipts: &[u8]) -> Result<Block, Wrong> {
    let count = block.receipts.len() as u32 + 1;
    let receipts = Receipts::parse(receipts, count).unwrap();
    Block::decode(block.number(), block.hash, body, (0..count).map(|position| receipts.get(position).unwrap()))
}

#[test]
fn recorded_blocks_verify_and_are_the_same_after_their_encoding() {
    let recorded = [Recorded::types(), Recorded::deposit()].map(|recorded| recorded.read().unwrap());
    let types: Vec<u8> = recorded[0].body.transactions.iter().map(|transaction| transaction.ty()).collect();
    assert_eq!((types, recorded[1].body.transactions[0].ty()), (vec![0, 1, 2, 2, 2, 2, 4], 0x7e));
    for block in recorded.into_iter().chain([with_blobs(9, B256::ZERO), made(9, B256::ZERO, vec![], vec![])]) {
        let sent = coppice_block(&block, &ALL).unwrap();
        assert_eq!((sent.number, &sent.hash[..]), (block.number(), &block.hash[..]));
        assert_eq!(
            (&sent.parent_hash[..], sent.timestamp_secs),
            (&block.header.parent_hash[..], block.header.timestamp)
        );
        assert_eq!(decoded(&block, &sent.body, &sent.receipts).unwrap(), block);
        // The last id is the block's own hash.
        let index = Index::parse(&sent.index).unwrap();
        let mut ids: Vec<B256> = block.body.transactions.iter().map(|transaction| transaction.hash()).collect();
        ids.push(block.hash);
        assert_eq!(index.all_ids(), ids.iter().map(|id| id.0).collect::<Vec<_>>());
    }
}

/// Checks that each field of a node's JSON is in the answer, except those that the answer leaves out.
fn assert_has(answer: &Value, node: &Value, left_out: &[&str]) {
    for (name, value) in node.as_object().unwrap() {
        if !left_out.contains(&name.as_str()) {
            assert_eq!(&answer[name], value, "{name} of {answer}");
        }
    }
}

#[test]
fn answers_are_those_of_the_node() {
    for recorded in [Recorded::types(), Recorded::deposit()] {
        let block = recorded.read().unwrap();
        assert_has(&block.answer(true).unwrap(), &recorded.block, &["size", "totalDifficulty", "transactions"]);
        let hashes: Vec<Value> = block.body.transactions.iter().map(|transaction| json!(transaction.hash())).collect();
        assert_eq!(block.answer(false).unwrap()["transactions"], Value::Array(hashes));
        for (position, node) in recorded.block["transactions"].as_array().unwrap().iter().enumerate() {
            // Anvil writes the signature that a deposit does not have as 64 digits, and its nonce as 0.
            let left_out: &[&str] = if node["type"] == "0x7e" { &["r", "s", "nonce"] } else { &[] };
            assert_has(&block.transaction(position).unwrap(), node, left_out);
            // The signing key recovers the sender, which a deposit names.
            assert_eq!(block.transaction(position).unwrap()["from"], node["from"]);
        }
        for (position, node) in recorded.receipts.as_array().unwrap().iter().enumerate() {
            assert_has(&block.receipt(position).unwrap(), node, &["type", "blobGasPrice", "blockTimestamp"]);
        }
    }
    let block = with_blobs(9, B256::ZERO);
    assert_eq!(block.receipt(0).unwrap()["blobGasUsed"], json!("0x40000"));
    assert_eq!(block.answer(true).unwrap()["withdrawals"][1]["index"], json!("0x4"));
    // A node that answers the same is read as the same block.
    let ommers: Vec<Value> = block.body.ommers.iter().map(|ommer| serde_json::to_value(ommer).unwrap()).collect();
    let receipts = json!([block.receipt(0).unwrap()]);
    assert_eq!(Block::read(&block.answer(true).unwrap(), &ommers, &receipts).unwrap(), block);
}

#[test]
fn receipt_with_a_changed_byte_is_refused() {
    let block = Recorded::types().read().unwrap();
    let sent = coppice_block(&block, &[]).unwrap();
    let table = 4 + 4 * (block.receipts.len() + 1);
    let mut refused = 0;
    for at in (table..sent.receipts.len()).step_by(7) {
        let mut receipts = sent.receipts.clone();
        receipts[at] ^= 1;
        let wrong = decoded(&block, &sent.body, &receipts).unwrap_err();
        assert!(wrong.to_string().starts_with(&format!("block {}: ", block.number())), "{wrong}");
        refused += u32::from(matches!(wrong, Wrong::Mismatch { field: "receiptsRoot", .. }));
    }
    assert!(refused > 100, "{refused}");
}

#[test]
fn body_with_a_changed_byte_is_refused() {
    for block in [Recorded::types().read().unwrap(), with_blobs(9, B256::ZERO)] {
        let sent = coppice_block(&block, &[]).unwrap();
        for at in (0..sent.body.len()).step_by(3) {
            let mut body = sent.body.clone();
            body[at] ^= 1;
            assert!(decoded(&block, &body, &sent.receipts).is_err(), "byte {at}");
        }
    }
}

#[test]
fn mismatch_names_the_block_and_the_field() {
    let field = |change: fn(&mut Block)| {
        let mut block = with_blobs(9, B256::ZERO);
        change(&mut block);
        match block.verify(block.hash).unwrap_err() {
            Wrong::Mismatch { number: 9, field, .. } => field.to_string(),
            wrong => wrong.to_string(),
        }
    };
    assert_eq!(field(|block| block.header.transactions_root = B256::ZERO), "transactionsRoot");
    assert_eq!(field(|block| block.header.receipts_root = B256::ZERO), "receiptsRoot");
    assert_eq!(field(|block| block.header.withdrawals_root = Some(B256::ZERO)), "withdrawalsRoot");
    assert_eq!(field(|block| block.header.logs_bloom.0[0] ^= 1), "logsBloom");
    assert_eq!(field(|block| drop(block.body.ommers.pop())), "sha3Uncles");
    assert_eq!(
        field(|block| block.body.withdrawals = None),
        "block 9: withdrawalsRoot is set, and withdrawals are missing"
    );
    assert_eq!(field(|block| drop(block.receipts.pop())), "block 9: it has 1 transactions and 0 receipts");
    let block = with_blobs(9, B256::ZERO);
    assert!(matches!(block.verify(B256::ZERO), Err(Wrong::Hash { number: 9, .. })));
}

#[test]
fn root_over_the_sidecar_is_refused_by_name() {
    let wrong = Recorded::sidecar().read().unwrap_err();
    assert!(matches!(wrong, Wrong::Mismatch { field: "transactionsRoot", .. }), "{wrong}");
}

#[test]
fn wrong_answers_of_a_node_are_refused() {
    let refused = |change: fn(&mut Recorded)| {
        let mut recorded = Recorded::types();
        change(&mut recorded);
        recorded.read().unwrap_err().to_string()
    };
    for (change, why) in [
        (
            (|recorded| recorded.block["transactions"][1]["type"] = json!("0x5")) as fn(&mut Recorded),
            "transaction 1 has the unknown type 0x05",
        ),
        (|recorded| recorded.block["transactions"][0]["hash"] = json!(B256::ZERO), "the node reports another"),
        (|recorded| recorded.block["hash"] = json!(B256::ZERO), "hash is 0x"),
        (|recorded| recorded.block["transactions"] = json!(null), "the transactions cannot be read"),
        (|recorded| recorded.block["transactions"][2] = json!(B256::ZERO), "transaction 2 cannot be read"),
        (|recorded| recorded.receipts[0]["transactionHash"] = json!(B256::ZERO), "receipt 0 is of transaction 0x0000"),
        (|recorded| recorded.receipts[0]["status"] = json!("0x0"), "receiptsRoot is 0x"),
        (|recorded| recorded.receipts[3]["type"] = json!("0x1"), "transaction 3 has type 2, and its receipt type 1"),
        (|recorded| recorded.receipts[3]["cumulativeGasUsed"] = json!("z"), "receipt 3 cannot be read"),
        (|recorded| drop(recorded.receipts.as_array_mut().unwrap().pop()), "it has 7 transactions and 6 receipts"),
    ] {
        let wrong = refused(change);
        assert!(wrong.contains(why), "{wrong}");
    }
    // Without its receipts, which a node does not find by a wrong hash.
    let mut block = Recorded::types().block;
    assert_eq!(Block::check_hash(&block), Ok(()));
    block["hash"] = json!(B256::ZERO);
    assert!(matches!(Block::check_hash(&block), Err(Wrong::Hash { .. })));
    assert!(matches!(Block::check_hash(&json!({})), Err(Wrong::Unreadable { .. })));
}

#[test]
fn keys_have_their_kind_in_the_first_byte() {
    let block = Recorded::types().read().unwrap();
    let keys_of = |extra: &[Extra], position: u32| -> Vec<Vec<u8>> {
        let sent = coppice_block(&block, extra).unwrap();
        let index = Index::parse(&sent.index).unwrap();
        let keys = index.each_key().filter(|key| key.transaction == position);
        keys.map(|key| key.bytes.to_vec()).collect()
    };
    let log = &block.receipts[0].logs()[0];
    let (contract, first, second) = (emitter(&log.address), topic(0, &log.topics()[0]), topic(1, &log.topics()[1]));
    assert_eq!((contract.len(), contract[0], first.len(), first[0]), (21, b'a', 33, b'0'));
    assert_eq!(keys_of(&[], 0), [first.clone(), contract.clone()]);
    let with_kind = |kind: u8, address: Address| [&[kind][..], address.as_slice()].concat();
    let sender = Address::from(hex!("f39fd6e51aad88f6f4ce6ab8827279cfffb92266"));
    let receiver = with_kind(b'r', log.address);
    assert_eq!(keys_of(&ALL, 0), [first, second, contract, receiver, with_kind(b's', sender)]);
    // The creation has no logs.
    let created = block.created(4, sender).unwrap();
    assert_eq!(keys_of(&[], 4), Vec::<Vec<u8>>::new());
    assert_eq!(keys_of(&[Extra::Created], 4), [with_kind(b'c', created)]);
    assert_eq!(keys_of(&ALL, 4), [with_kind(b'c', created), with_kind(b's', sender)]);
}
