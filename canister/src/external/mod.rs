//! UTXO records with the data that they keep outside: made together, and gone together.

pub mod complete;
pub mod create;

use crate::deletion::DeletionQueue;
use crate::storage::blob::BlobStore;
use crate::utxo::UtxoStore;
use coppice_interface::UtxoSettings;

/// The stores of records and of their external data.
pub struct Records<'a> {
    /// UTXO records.
    pub utxo: &'a mut UtxoStore,
    /// What they keep in the BlobStore.
    pub blobs: &'a mut BlobStore,
    /// What they keep outside and is to be deleted.
    pub deletions: &'a mut DeletionQueue,
    /// The UTXO store's settings in force.
    pub settings: &'a UtxoSettings,
}
