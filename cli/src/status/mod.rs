//! `coppice status`: how a canister is, on a page of a terminal.
//!
//! ```text
//! health, status of pruning, storage, exporters, records, queue ──▶ Seen ──▶ page: verdict, problems, figures ──▶ at most 24 × 80
//! ```

pub mod figures;
pub mod page;
pub mod wrap;

use crate::client::{CanisterClient, Client, Wait, is_passing};
use crate::exit::{Exit, UNREACHABLE};
use anyhow::Result;
use ic_coppice_interface::{
    BlobDeletionStatus, Config, ExportStatus, Health, PruneStatus, StorageStatus, UtxoPrunerStatus,
};
use serde::Serialize;

/// The answers of a canister about itself.
#[derive(Clone, Debug, Serialize)]
pub struct Seen {
    /// The canister's principal.
    pub canister: String,
    /// The network's URL.
    pub network: String,
    pub health: Health,
    pub config: Config,
    pub prune: PruneStatus,
    pub storage: StorageStatus,
    pub export: ExportStatus,
    /// The queue of external blobs, and the pruner of UTXO records; `None` in a build without UTXO records.
    pub queue: Option<BlobDeletionStatus>,
    pub records: Option<UtxoPrunerStatus>,
}

/// Asks a canister how it is.
///
/// # Errors
/// [`Exit`] with [`UNREACHABLE`] if it does not answer.
pub fn ask(client: &Client<impl CanisterClient>, canister: String, network: String) -> Result<Seen> {
    let seen = seen(client, canister, network);
    seen.map_err(|error| match is_passing(&error) {
        true => Exit::error(UNREACHABLE, crate::exit::why(&error)),
        false => error,
    })
}

fn seen(client: &Client<impl CanisterClient>, canister: String, network: String) -> Result<Seen> {
    let storage = client.get_storage_status(None).wait()?;
    let has_records = storage.utxo.is_some();
    Ok(Seen {
        canister,
        network,
        health: client.health().wait()?,
        config: client.get_config().wait()?,
        prune: client.get_prune_status().wait()?,
        export: client.get_export_status().wait()?,
        queue: has_records.then(|| client.get_blob_deletion_status().wait()).transpose()?,
        records: has_records.then(|| client.utxo_get_pruner_status().wait()).transpose()?,
        storage,
    })
}

#[cfg(test)]
mod tests;
