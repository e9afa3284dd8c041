//! A reorg of 50 blocks: the store equals one that has only seen the other branch, except for the records of the abandoned one. Then a
//! reorg back.

use super::by_single_calls::payload;
use super::same::{bytes, record, unmined};
use super::{net, reader};
use crate::net::Net;
use bitcoin::hashes::Hash;
use bitcoin::{Block, OutPoint, Transaction, Txid};
use coppice_testkit::spend_chain::{self, FIRST, MATURITY, Shape};
use ic_coppice_cli::client::{Client, Wait};
use ic_coppice_client::Embedded;
use ic_coppice_interface::{MissingParents, UtxoApplyBlock, UtxoRecord};
use std::collections::{BTreeSet, HashMap, HashSet};

const SHAPE: Shape = Shape { seed: 9, blocks: 60, per_block: 20, pool: 200, wide: 0 };
const DEPTH: usize = 50;
/// One transaction in this many, and all that spend from it, is left out by the other branch.
const LEAVE: usize = 40;

/// Appends and applies blocks from a height on. The ids of a branch's blocks begin at `block_id`.
fn feed(client: &Client<Embedded>, first: u32, block_id: u32, blocks: &[Block]) {
    for ((height, block_id), block) in (first..).zip(block_id..).zip(blocks) {
        let number = u64::from(height);
        client.send_block(&payload(number, block)).done().unwrap();
        let (hash, missing_parents) = (block.block_hash().to_byte_array().into(), Some(MissingParents::Refuse));
        let arg = UtxoApplyBlock { number, hash, height, block_id, missing_parents, skip: None, skip_rest: false };
        assert_eq!(client.apply(&arg).done().unwrap().transactions as usize, block.txdata.len());
    }
}

/// Rolls back the blocks above a height. Their records are restored.
fn take_back(client: &Client<Embedded>, fork: u32) {
    assert_eq!(client.roll_back_to(fork.into()).done().unwrap().not_restored, Some(0));
}

fn writer(net: &Net) -> Client<Embedded> {
    Client::new(Embedded::new(net.host.clone(), net.canister, net.principal))
}

fn id(txid: Txid) -> ic_coppice_interface::Txid {
    txid.to_byte_array().into()
}

fn transactions(blocks: &[Block]) -> impl Iterator<Item = &Transaction> {
    blocks.iter().flat_map(|block| &block.txdata)
}

#[test]
fn reorgs_of_50_blocks_there_and_back_leave_the_store_of_each_branch() {
    let chain = spend_chain::blocks(SHAPE);
    let branch = spend_chain::branch(&chain, DEPTH, LEAVE);
    let (trunk, rolled_back) = chain.split_at(chain.len() - DEPTH);
    let fork = FIRST + trunk.len() as u32 - 1;
    let [reorged, straight, first] = [(); 3].map(|()| net(MATURITY));
    let client = writer(&reorged);
    feed(&client, FIRST, 1, &chain);
    take_back(&client, fork);
    feed(&client, fork + 1, 10_000, &branch);
    let other = writer(&straight);
    feed(&other, FIRST, 1, trunk);
    feed(&other, fork + 1, 10_000, &branch);

    // The abandoned transactions, and what each of them still holds.
    let kept: HashSet<Txid> = transactions(trunk).chain(transactions(&branch)).map(Transaction::compute_txid).collect();
    let abandoned: Vec<&Transaction> =
        transactions(rolled_back).filter(|transaction| !kept.contains(&transaction.compute_txid())).collect();
    let mut held: HashMap<OutPoint, (Txid, u32)> = HashMap::new();
    for transaction in abandoned.iter().filter(|transaction| !transaction.is_coinbase()) {
        let spender = transaction.compute_txid();
        held.extend((0..).zip(&transaction.input).map(|(vin, input)| (input.previous_output, (spender, vin))));
    }
    let parents: HashSet<Txid> = held.keys().map(|outpoint| outpoint.txid).collect();
    assert!(abandoned.len() > DEPTH && parents.iter().any(|parent| kept.contains(parent)));

    let (one, two) = (reader(&reorged), reader(&straight));
    let mut equal = 0;
    for transaction in transactions(trunk).chain(transactions(&branch)) {
        let txid = transaction.compute_txid();
        let (mut found, mut expected) = (record(&one, &id(txid)), record(&two, &id(txid)));
        assert!(bytes(&one, &id(txid)) == bytes(&two, &id(txid)), "{txid}");
        if parents.contains(&txid) {
            for (vout, entry) in (0..).zip(&mut expected.utxos) {
                let Some((spender, vin)) = held.get(&OutPoint { txid, vout }) else { continue };
                let entry = entry.as_mut().expect("a UTXO");
                assert_eq!(entry.len(), 32, "{txid}, output {vout} is unspent without the abandoned branch");
                entry.extend_from_slice(spender.as_byte_array());
                entry.extend_from_slice(&vin.to_le_bytes());
                expected.spent_utxos += 1;
            }
            // With the abandoned spends, all outputs may be spent.
            (found.delete_at_height, expected.delete_at_height) = (None, None);
        } else {
            equal += 1;
        }
        assert_eq!(found, expected);
    }
    assert!(equal > kept.len() / 2, "{equal} of {}", kept.len());
    assert_eq!(unmined(&two), BTreeSet::new());
    assert_eq!(unmined(&one), abandoned.iter().map(|transaction| id(transaction.compute_txid())).collect());
    for transaction in abandoned {
        let record = record(&one, &id(transaction.compute_txid()));
        assert!(record.blocks.is_empty() && record.unmined_since > Some(fork), "{record:?}");
        assert_eq!(record.conflicting, transaction.is_coinbase());
    }
    // Back to the first branch.
    take_back(&client, fork);
    feed(&client, fork + 1, 1 + trunk.len() as u32, rolled_back);
    feed(&writer(&first), FIRST, 1, &chain);
    let first = reader(&first);
    for transaction in transactions(&chain) {
        let txid = id(transaction.compute_txid());
        let (found, expected) = (record(&one, &txid), record(&first, &txid));
        // The other branch may have spent the last output later.
        assert!(found.delete_at_height >= expected.delete_at_height, "{found:?}, {expected:?}");
        let delete_at_height = expected.delete_at_height.and(found.delete_at_height);
        assert_eq!(found, UtxoRecord { delete_at_height, ..expected });
        assert!(bytes(&one, &txid) == bytes(&first, &txid), "{txid:?}");
    }
    let coinbases = branch.iter().map(|block| id(block.txdata[0].compute_txid())).collect();
    assert_eq!((unmined(&one), unmined(&first)), (coinbases, BTreeSet::new()));
}
