//! Reads the states of outputs from the store.

use crate::client::{Client, Transport, Wait};
use crate::verify::hex;
use anyhow::{Result, anyhow, bail};
use bitcoin::hashes::Hash;
use bitcoin::{OutPoint, Txid};
use ic_coppice_interface::{Outpoint, SpendStatus, Spender, UtxoGetSpend, UtxoSpendState};

/// Maximum number of outputs per query.
const OUTPOINTS: usize = 5_000;

/// Returns the states of outputs at a height.
///
/// # Errors
/// When the canister refuses, or returns another number of states.
pub fn states(client: &Client<impl Transport>, height: u32, outpoints: &[OutPoint]) -> Result<Vec<UtxoSpendState>> {
    let mut states = Vec::with_capacity(outpoints.len());
    for outpoints in outpoints.chunks(OUTPOINTS) {
        let outpoint =
            |outpoint: &OutPoint| Outpoint { txid: outpoint.txid.to_byte_array().into(), vout: outpoint.vout };
        let outpoints: Vec<Outpoint> = outpoints.iter().map(outpoint).collect();
        let asked = outpoints.len();
        let answers = client.utxo_get_spend(&UtxoGetSpend { height, outpoints }).wait()?;
        let answers = answers.map_err(|error| anyhow!("utxo_get_spend: the canister refuses: {error}"))?;
        if answers.len() != asked {
            bail!("utxo_get_spend returned {} states for {asked} outputs", answers.len());
        }
        states.extend(answers);
    }
    Ok(states)
}

/// Returns an input as "TXID, input N".
pub fn spender(by: &Spender) -> String {
    let txid = Txid::from_slice(&by.txid[..]).map_or_else(|_| hex(&by.txid[..]), |txid| txid.to_string());
    format!("{txid}, input {}", by.vin)
}

/// Returns an output's state as the end of a sentence.
pub fn in_words(state: &UtxoSpendState) -> String {
    let UtxoSpendState { status, utxo_hash, spender: by } = state;
    let status = match status {
        SpendStatus::Ok => "can be spent".into(),
        SpendStatus::Spent => "is spent".into(),
        SpendStatus::Immature { spendable_at } => format!("can be spent from height {spendable_at} on"),
        SpendStatus::NotFound => "does not exist".into(),
        SpendStatus::Frozen => "is frozen".into(),
        SpendStatus::Conflicting => "is of a double spend".into(),
        SpendStatus::Locked => "is locked".into(),
    };
    let by = by.as_ref().map(|by| format!(", spent by {}", spender(by))).unwrap_or_default();
    let hash = utxo_hash.as_ref().map(|hash| format!(", with the hash {}", hex(&hash[..]))).unwrap_or_default();
    format!("the store says that it {status}{by}{hash}")
}
