//! Stores that the pruner of UTXO records works on.

use crate::deletion::DeletionQueue;
use crate::storage::blob::BlobStore;
use crate::utxo::UtxoStore;
use coppice_interface::UtxoSettings;

/// The stores that the pruner works on.
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
