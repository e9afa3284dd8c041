//! The canister's UTXO store as a whole: its settings and its memory.

use crate::client::{CanisterClient, Client, Wait};
use anyhow::{Context, Result};
use ic_coppice_interface::{UtxoSettings, UtxoStorage};

/// Error for a build of the canister without UTXO records.
const NO_RECORDS: &str = "this canister keeps no UTXO records: it was built without them (coppice-blocks.wasm)";

/// Returns the memory of the canister's UTXO records.
///
/// # Errors
/// When the canister keeps no UTXO records, or does not answer.
pub fn storage(client: &Client<impl CanisterClient>) -> Result<UtxoStorage> {
    client.get_storage_status(None).wait()?.utxo.context(NO_RECORDS)
}

/// Returns the settings of the canister's UTXO store.
///
/// # Errors
/// When the canister keeps no UTXO records, or does not answer.
pub fn settings(client: &Client<impl CanisterClient>) -> Result<UtxoSettings> {
    client.get_config().wait()?.utxo.context(NO_RECORDS)
}
