//! Compares the UTXO store with the set that the blocks imply.

use super::encodings;
use super::set::{Input, Record, Set, State, UtxoHash};
use super::states::{in_words, spender, states};
use super::store;
use crate::client::{CanisterClient, Client, Wait};
use crate::feed::sha256;
use crate::verify::hex;
use anyhow::{Result, bail, ensure};
use bitcoin::OutPoint;
use bitcoin::hashes::Hash;
use ic_coppice_interface::{FileType, SpendStatus, Spender, UtxoError, UtxoGet, UtxoSpendState};
use serde::Serialize;
use std::collections::HashSet;

/// The result of the verification.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Verified {
    /// Outputs with the right hash that no block spends.
    pub unspent: u64,
    /// Part of `unspent`: those that a transaction in no block spends, for example one of a node's mempool. The others can be spent or are
    /// of an immature coinbase.
    pub held: u64,
    /// Outputs with the right hash that are spent by the right input.
    pub spent: u64,
    /// Transactions whose bytes were read back.
    pub transactions: u64,
    /// Bytes of these transactions.
    pub bytes: u64,
    /// Transactions without a record, whose outputs are not found either; their block is at or below the canister's `pruned_height`.
    pub pruned: u64,
    /// Transactions with a record whose bytes were pruned with their block, because of the setting `copy_applied_transactions`.
    pub not_kept: u64,
}

/// The expected state of an output.
struct Expected<'a> {
    outpoint: OutPoint,
    /// The UTXO hash; `None` for an output that is not a UTXO.
    hash: Option<&'a UtxoHash>,
    coinbase: bool,
    spender: Option<Input>,
}

/// Verifies every output and every transaction. Records of blocks at or below the pruned height may be gone.
///
/// # Errors
/// At the first answer that differs from the blocks.
pub fn verify(
    client: &Client<impl CanisterClient>,
    set: &Set,
    height: u32,
    pruned_height: Option<u32>,
) -> Result<Verified> {
    let mut verified = Verified::default();
    let copied = store::settings(client)?.copy_applied_transactions;
    let mut gone = HashSet::new();
    for record in set.records() {
        match read_back(client, record)? {
            Found::Bytes(bytes) => {
                verified.bytes += bytes;
                verified.transactions += 1;
            }
            Found::NotKept => {
                ensure!(!copied, "transaction {} has a record, but its bytes are not kept", record.txid);
                verified.not_kept += 1;
            }
            Found::Nothing => {
                ensure!(Some(record.height) <= pruned_height, "transaction {} has no record", record.txid);
                gone.insert(record.txid);
                verified.pruned += 1;
            }
        }
    }
    let of_others = set.foreign.iter().map(|foreign| Expected {
        outpoint: foreign.outpoint,
        hash: Some(&foreign.hash),
        coinbase: false,
        spender: Some(foreign.by),
    });
    let expected: Vec<Expected> = set.records().iter().flat_map(outputs).chain(of_others).collect();
    let outpoints: Vec<OutPoint> = expected.iter().map(|expected| expected.outpoint).collect();
    for (expected, state) in expected.iter().zip(states(client, height, &outpoints)?) {
        let outpoint = expected.outpoint;
        if gone.contains(&outpoint.txid) {
            ensure!(state.status == SpendStatus::NotFound, "{outpoint} has no record, but {}", in_words(&state));
            continue;
        }
        if expected.hash.is_none() {
            ensure!(state.utxo_hash.is_none(), "{outpoint} can never be spent, but {}", in_words(&state));
            continue;
        }
        let reassigned = reassigned(client, expected, &state)?;
        let expected = &Expected { hash: reassigned.as_ref().or(expected.hash), ..*expected };
        match check(set, expected, &state, height)? {
            Checked::Unspent => verified.unspent += 1,
            Checked::Spent => verified.spent += 1,
            Checked::Held(by) => {
                check_holder(client, outpoint, by, height)?;
                verified.unspent += 1;
                verified.held += 1;
            }
        }
    }
    Ok(verified)
}

/// Returns the hash of an output that the alert system has given to a new owner, by its record; `None` for other outputs.
fn reassigned(
    client: &Client<impl CanisterClient>,
    expected: &Expected,
    state: &UtxoSpendState,
) -> Result<Option<UtxoHash>> {
    let found = state.utxo_hash.as_ref();
    let mut hash = expected.hash.copied();
    if found.is_none_or(|found| hash.is_some_and(|hash| **found == hash)) {
        return Ok(None);
    }
    let OutPoint { txid, vout } = expected.outpoint;
    let arg = UtxoGet { txid: txid.to_byte_array().into(), first: 0, limit: 0, extra_pages_cursor: None };
    let record = client.utxo_get(&arg).wait()?;
    for change in record.iter().flat_map(|record| &record.reassignments).filter(|change| change.offset == vout) {
        if hash.is_some_and(|hash| *change.utxo_hash == hash) {
            hash = change.new_utxo_hash.as_slice().try_into().ok();
        }
    }
    Ok(hash)
}

/// Checks that the spender of an output that no block spends has a record, and is in no block up to this height: a node spends outputs for
/// its mempool before a block has the transaction.
fn check_holder(client: &Client<impl CanisterClient>, outpoint: OutPoint, by: &Spender, height: u32) -> Result<()> {
    let arg = UtxoGet { txid: by.txid.clone(), first: 0, limit: 0, extra_pages_cursor: None };
    let spender = spender(by);
    match client.utxo_get(&arg).wait()? {
        Err(UtxoError::TxNotFound) => bail!("{outpoint} should be unspent, but {spender}, without a record, spends it"),
        Err(error) => bail!("{outpoint} is spent by {spender}, whose record cannot be read: {error}"),
        Ok(record) => {
            let mined = record.blocks.iter().filter(|_| record.unmined_since.is_none()).map(|block| block.height).min();
            match mined.filter(|&mined| mined <= height) {
                None => Ok(()),
                Some(mined) => {
                    bail!("{outpoint} should be unspent, but {spender} of a block at height {mined} spends it")
                }
            }
        }
    }
}

/// Returns the expected states of a transaction's outputs.
fn outputs(record: &Record) -> impl Iterator<Item = Expected<'_>> {
    record.outputs.iter().zip(0..).map(|(output, vout)| Expected {
        outpoint: OutPoint { txid: record.txid, vout },
        hash: output.as_ref().map(|output| &output.hash),
        coinbase: record.coinbase,
        spender: match output.as_ref().map(|output| &output.state) {
            None | Some(State::Unspent(_)) => None,
            Some(State::Spent(by)) => Some(*by),
        },
    })
}

/// An output whose state was checked.
#[derive(Debug, PartialEq, Eq)]
enum Checked<'a> {
    /// It can be spent, or is of an immature coinbase.
    Unspent,
    /// The right input spends it.
    Spent,
    /// Another input spends it, but no block does.
    Held(&'a Spender),
}

/// Checks an output's state.
fn check<'a>(set: &Set, expected: &Expected, state: &'a UtxoSpendState, height: u32) -> Result<Checked<'a>> {
    let Expected { outpoint, hash, coinbase, spender } = expected;
    let hash = hash.map_or(&[][..], |hash| &hash[..]);
    let found = state.utxo_hash.as_ref().is_some_and(|found| **found == *hash);
    ensure!(found, "{outpoint} should have the hash {}, but {}", hex(hash), in_words(state));
    let is_spent = state.status == SpendStatus::Spent;
    match (spender, &state.spender) {
        (None, None) => {
            let ok = match state.status {
                SpendStatus::Ok => true,
                SpendStatus::Immature { spendable_at } => *coinbase && spendable_at > height,
                // The reason for which a transaction was left out is still there.
                _ => set.refused.contains(&outpoint.txid),
            };
            ensure!(ok, "{outpoint} should be unspent, but {}", in_words(state));
            Ok(Checked::Unspent)
        }
        (None, Some(by)) if is_spent => Ok(Checked::Held(by)),
        (None, Some(_)) => bail!("{outpoint} should be unspent, but {}", in_words(state)),
        (Some((id, vin)), by) => {
            let txid = set.records()[*id as usize].txid;
            let ok = by.as_ref().is_some_and(|by| *by.txid == txid.to_byte_array() && by.vin == *vin);
            ensure!(ok && is_spent, "{outpoint} should be spent by {txid}, input {vin}, but {}", in_words(state));
            Ok(Checked::Spent)
        }
    }
}

/// The bytes of a transaction in the store.
enum Found {
    /// As many bytes.
    Bytes(u64),
    /// A record without bytes.
    NotKept,
    /// No record.
    Nothing,
}

fn read_back(client: &Client<impl CanisterClient>, record: &Record) -> Result<Found> {
    let txid = record.txid;
    match client.whole_transaction(&txid.to_byte_array().into()).wait()? {
        Ok((FileType::Tx, bytes)) => {
            // A record that existed before may hold another form of the transaction.
            let same = sha256(&bytes) == record.sha256 || record.existed && encodings::txid(&bytes) == Some(txid);
            ensure!(same, "transaction {txid} reads back as other data of {} bytes", bytes.len());
            Ok(Found::Bytes(bytes.len() as u64))
        }
        Ok((FileType::Outputs, _)) => bail!("transaction {txid} was stored as outputs only"),
        Err(UtxoError::NotKept) => Ok(Found::NotKept),
        Err(UtxoError::TxNotFound) => Ok(Found::Nothing),
        Err(error) => bail!("transaction {txid} has a record that cannot be read: {error}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_states_that_the_blocks_imply_pass() {
        let block: bitcoin::Block =
            bitcoin::consensus::deserialize(bitcoin_test_data::blocks::mainnet_702861()).unwrap();
        let mut set = Set::default();
        block.txdata.iter().take(2).for_each(|transaction| assert!(set.add(transaction, 9).1));
        let [coinbase, spender] = [0, 1].map(|at: usize| set.records()[at].txid);
        let by = |txid: bitcoin::Txid, vin| Some(Spender { txid: txid.to_byte_array().into(), vin });
        let hash = [7; 32];
        let outpoint = OutPoint { txid: coinbase, vout: 0 };
        let check = |coinbase, expected, status: &SpendStatus, hash_there: [u8; 32], spender| {
            let expected = Expected { outpoint, hash: Some(&hash), coinbase, spender: expected };
            let utxo_hash = Some(hash_there.into());
            let state = UtxoSpendState { status: status.clone(), utxo_hash, spender };
            check(&set, &expected, &state, 10).map(|checked| format!("{checked:?}")).map_err(|error| error.to_string())
        };
        let (ok, spent) = (SpendStatus::Ok, SpendStatus::Spent);
        let immature = |spendable_at| SpendStatus::Immature { spendable_at };
        assert_eq!(check(false, None, &ok, hash, None).unwrap(), "Unspent");
        assert_eq!(check(true, None, &immature(11), hash, None).unwrap(), "Unspent");
        assert_eq!(check(false, Some((1, 3)), &spent, hash, by(spender, 3)).unwrap(), "Spent");
        assert!(check(false, None, &spent, hash, by(spender, 3)).unwrap().starts_with("Held"));
        for refused in [
            check(false, None, &ok, [8; 32], None),
            check(false, None, &immature(11), hash, None),
            check(true, None, &immature(10), hash, None),
            check(false, None, &SpendStatus::Locked, hash, None),
            check(false, None, &spent, [8; 32], by(spender, 3)),
            check(false, None, &SpendStatus::Frozen, hash, by(spender, 3)),
            check(false, Some((1, 3)), &ok, hash, None),
            check(false, Some((1, 3)), &spent, hash, by(spender, 4)),
            check(false, Some((1, 3)), &spent, hash, by(coinbase, 3)),
            check(false, Some((1, 3)), &SpendStatus::Frozen, hash, by(spender, 3)),
        ] {
            let sentence = refused.unwrap_err();
            assert!(sentence.contains("but the store says that") && !sentence.contains(['{', '[']), "{sentence}");
        }
    }
}
