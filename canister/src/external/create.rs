//! Records whose bytes lie outside: the queue holds their blob from their creation on, so that no two records name the same one, and
//! nobody has it deleted while a record needs it.

use crate::deletion::{DeletionQueue, Name};
use crate::storage::blob::BlobStore;
use crate::utxo::{Call, UtxoStore};
use coppice_interface::{TransactionSource, UtxoCreate, UtxoCreated, UtxoRefusal};

/// Makes a record, and has the queue hold its blob where that is outside.
///
/// # Errors
/// As [`UtxoStore::create`]; `BlobTaken` where another record names the blob, `BeingDeleted` where it is queued. Nothing has changed.
pub fn create(
    store: &mut UtxoStore,
    blobs: &mut BlobStore,
    deletions: &mut DeletionQueue,
    item: &UtxoCreate,
    call: &Call,
) -> Result<UtxoCreated, UtxoRefusal> {
    let TransactionSource::Outside(outside) = &item.source else { return store.create(blobs, item, call) };
    let (name, txid) = (Name::from(&outside.store), <&[u8; 32]>::try_from(outside.txid.as_slice()));
    let (Ok(()), Ok(txid)) = (name.check(), txid) else {
        // The store says what is wrong with it.
        return store.create(blobs, item, call);
    };
    call.check()?;
    store.check_absent(txid)?;
    deletions.admits(&name, txid)?;
    let created = store.create(blobs, item, call)?;
    store.note_pages(deletions.hold(&name, txid));
    Ok(created)
}
