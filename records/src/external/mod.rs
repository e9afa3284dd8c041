//! UTXO records with external data: a record and its data are created together and deleted together.

pub mod complete;
pub mod create;

use crate::deletion::DeletionQueue;
use crate::utxo::UtxoStore;
use ic_coppice_interface::UtxoSettings;
use ic_coppice_storage::blob::BlobStore;

/// The stores of records and of their external data.
pub struct Records<'a> {
    /// UTXO records.
    pub utxo: &'a mut UtxoStore,
    /// Data of the records in the BlobStore.
    pub blobs: &'a mut BlobStore,
    /// Queue of the records' external blobs.
    pub deletions: &'a mut DeletionQueue,
    /// The UTXO store's settings in force.
    pub settings: &'a UtxoSettings,
}
