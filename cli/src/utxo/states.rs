//! Reads the states of outputs from the store.

use crate::client::{Client, Transport, Wait};
use anyhow::{Result, anyhow, bail};
use bitcoin::OutPoint;
use bitcoin::hashes::Hash;
use coppice_interface::{Outpoint, UtxoGetSpend, UtxoSpendState};

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
