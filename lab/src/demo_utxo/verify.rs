//! Compares the store with the ledger, record by record.

use super::ledger::{Entry, Id, Ledger};
use anyhow::{Result, ensure};
use bitcoin::hashes::Hash;
use bitcoin::{OutPoint, Txid};
use ic_coppice_cli::client::{CanisterClient, Client, Wait};
use ic_coppice_cli::utxo::states::states;
use ic_coppice_interface::*;
use serde::Serialize;
use serde_bytes::ByteBuf;
use std::collections::BTreeSet;

/// The verified items.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Verified {
    /// Existing records, each with its outputs, blocks, heights and deleted children.
    pub kept: u64,
    /// Existing records with the right `delete_at_height`.
    pub due: u64,
    /// Existing records with the right `preserve_until`.
    pub preserved: u64,
    /// Transactions whose record was deleted.
    pub gone: u64,
    /// Unspent outputs, spendable or, for an immature coinbase or a double spend, not.
    pub unspent: u64,
    /// Outputs that are spent, by the right input.
    pub spent: u64,
}

/// Verifies every transaction, at the chain's height.
///
/// # Errors
/// At the first difference from the ledger.
pub fn verify(client: &Client<impl CanisterClient>, ledger: &Ledger, height: u32) -> Result<Verified> {
    let mut verified = Verified::default();
    let children = ledger.conflicting_children();
    let none = BTreeSet::new();
    let mut asked: Vec<OutPoint> = Vec::new();
    let mut of: Vec<Id> = Vec::new();
    for (id, entry) in ledger.entries() {
        if entry.deleted {
            verified.gone += 1;
            asked.push(OutPoint { txid: entry.txid, vout: 0 });
            of.push(id);
            continue;
        }
        record(client, ledger, entry, children.get(&id).unwrap_or(&none))?;
        verified.kept += 1;
        verified.due += u64::from(entry.delete_at.is_some());
        verified.preserved += u64::from(entry.preserve_until.is_some());
        for (vout, _) in entry.utxos() {
            asked.push(OutPoint { txid: entry.txid, vout });
            of.push(id);
        }
    }
    for ((outpoint, id), state) in asked.iter().zip(of).zip(states(client, height, &asked)?) {
        let entry = ledger.entry(id);
        let expected = state_of(ledger, entry, outpoint.vout, height);
        ensure!(state == expected, "{outpoint} should be {expected:?}, but is {state:?}");
        match (entry.deleted, expected.spender) {
            (true, _) => {}
            (false, None) => verified.unspent += 1,
            (false, Some(_)) => verified.spent += 1,
        }
    }
    Ok(verified)
}

/// Returns the expected state of an output.
fn state_of(ledger: &Ledger, entry: &Entry, vout: u32, height: u32) -> UtxoSpendState {
    let output = entry.outputs[vout as usize].as_ref().filter(|_| !entry.deleted);
    let Some(output) = output else {
        return UtxoSpendState { status: SpendStatus::NotFound, utxo_hash: None, spender: None };
    };
    let spender = output.spender.map(|(id, vin)| Spender { txid: key(ledger.entry(id).txid), vin });
    let status = if entry.conflicting {
        SpendStatus::Conflicting
    } else if height < entry.spendable_at {
        SpendStatus::Immature { spendable_at: entry.spendable_at }
    } else if spender.is_some() {
        SpendStatus::Spent
    } else {
        SpendStatus::Ok
    };
    UtxoSpendState { status, utxo_hash: Some(output.hash.into()), spender }
}

/// Checks a record that must be there.
fn record(
    client: &Client<impl CanisterClient>,
    ledger: &Ledger,
    entry: &Entry,
    children: &BTreeSet<Txid>,
) -> Result<()> {
    let txid = entry.txid;
    let limit = entry.outputs.len() as u32;
    let found = match client.utxo_get(&UtxoGet { txid: key(txid), first: 0, limit, extra_pages_cursor: None }).wait()? {
        Ok(found) => found,
        Err(error) => anyhow::bail!("transaction {txid} should have a record: {error}"),
    };
    let same = |what: &str, expected: &dyn std::fmt::Debug, found: &dyn std::fmt::Debug| {
        let [expected, found] = [expected, found].map(|value| format!("{value:?}"));
        ensure!(expected == found, "transaction {txid}: its {what} should be {expected}, but is {found}");
        Ok(())
    };
    same("delete_at_height", &entry.delete_at, &found.delete_at_height)?;
    same("preserve_until", &entry.preserve_until, &found.preserve_until)?;
    same("unmined_since", &entry.unmined_since, &found.unmined_since)?;
    same(
        "state",
        &(entry.conflicting, false, false, false),
        &(found.conflicting, found.locked, found.frozen, found.being_deleted),
    )?;
    let spendable_at = Some(entry.spendable_at).filter(|height| *height > 0);
    same("spending_height", &spendable_at, &found.spending_height)?;
    let blocks: Vec<(u32, u32)> = entry.blocks.iter().map(|block| (block.id, block.height)).collect();
    same("blocks", &blocks, &found.blocks.iter().map(|block| (block.block_id, block.height)).collect::<Vec<_>>())?;
    let entries = entry.outputs.iter().map(|output| {
        let output = output.as_ref()?;
        let spender = output.spender.map(|(id, vin)| (ledger.entry(id).txid, vin));
        let spender = spender.map(|(txid, vin)| [&txid.to_byte_array()[..], &vin.to_le_bytes()].concat());
        Some(ByteBuf::from([&output.hash[..], &spender.unwrap_or_default()].concat()))
    });
    same("outputs", &entries.collect::<Vec<_>>(), &found.utxos)?;
    let deleted = entry.utxos().filter(|(_, output)| output.spender_deleted).filter_map(|(_, output)| output.spender);
    let deleted: BTreeSet<ic_coppice_interface::Txid> = deleted.map(|(id, _)| key(ledger.entry(id).txid)).collect();
    same("deleted_children", &deleted, &found.deleted_children.into_iter().collect::<BTreeSet<_>>())?;
    let children: BTreeSet<ic_coppice_interface::Txid> = children.iter().copied().map(key).collect();
    same("conflicting_children", &children, &found.conflicting_children.into_iter().collect::<BTreeSet<_>>())
}

fn key(txid: Txid) -> ic_coppice_interface::Txid {
    ic_coppice_interface::Txid::from(txid.to_byte_array())
}
