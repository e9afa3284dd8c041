//! `coppice status`: how a canister is, on a page of a terminal.
//!
//! ```text
//! health, status of pruning, storage, exporters, records, queue ──▶ Seen ──▶ page: verdict, problems, figures ──▶ at most 24 × 80
//! ```

pub mod figures;
pub mod page;
pub mod wrap;

use crate::client::{CanisterClient, Client, Wait};
use crate::gateway::on_network;
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
    pub health: Health,
    pub config: Config,
    pub prune: PruneStatus,
    pub storage: StorageStatus,
    pub export: ExportStatus,
    /// The queue of external blobs, and the pruner of UTXO records; `None` in a build without UTXO records.
    pub queue: Option<BlobDeletionStatus>,
    pub records: Option<UtxoPrunerStatus>,
}

/// Asks a canister on a network how it is. The commands of its problems name the network.
///
/// # Errors
/// When it does not answer.
pub fn ask(client: &Client<impl CanisterClient>, canister: String, network: &str) -> Result<Seen> {
    let storage = client.get_storage_status(None).wait()?;
    let has_records = storage.utxo.is_some();
    let mut health = client.health().wait()?;
    for problem in &mut health.problems {
        problem.action = on_network(&problem.action, network);
    }
    Ok(Seen {
        canister,
        health,
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
