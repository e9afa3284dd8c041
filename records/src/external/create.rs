//! Creation of records whose transactions are elsewhere: in external blobs, or in kept blocks. The queue holds an external blob from the
//! creation on, so that no two records name the same blob and no call deletes it while a record needs it.

use crate::apply;
use crate::deletion::{DeletionQueue, Name};
use crate::utxo::{Ahead, Call, UtxoStore};
use ic_coppice_interface::blocks::Blocks;
use ic_coppice_interface::{KeptTransaction, TransactionSource, UtxoCreate, UtxoCreated, UtxoRefusal};
use ic_coppice_storage::blob::BlobStore;

/// Creates a record; if its blob is external, the queue holds the blob. A transaction of a kept block is read from there.
///
/// # Errors
/// `NotReady` until the hash key is set. As [`UtxoStore::create`]; `BlobTaken` if another record names the blob, `BeingDeleted` if the blob is queued. Nothing has changed.
pub fn create(
    store: &mut UtxoStore,
    (blocks, blobs): (&dyn Blocks, &mut BlobStore),
    deletions: &mut DeletionQueue,
    item: &UtxoCreate,
    batch: &mut Ahead,
    call: &Call,
) -> Result<UtxoCreated, UtxoRefusal> {
    store.check_ready()?;
    let external = match &item.source {
        TransactionSource::External(external) => external,
        TransactionSource::Kept(KeptTransaction { number, position }) => {
            let raw = apply::transaction(blocks, blobs, *number, *position)?;
            let item = UtxoCreate { source: TransactionSource::Raw(raw.into()), ..item.clone() };
            return store.create(blobs, &item, &mut Ahead::default(), call);
        }
        _ => return store.create(blobs, item, batch, call),
    };
    let (name, txid) = (Name::from(&external.store), <&[u8; 32]>::try_from(external.txid.as_slice()));
    let (Ok(()), Ok(txid)) = (name.check(), txid) else {
        // The store refuses the item with the reason.
        return store.create(blobs, item, batch, call);
    };
    call.check()?;
    store.check_absent(txid)?;
    deletions.admits(&name, txid)?;
    let created = store.create(blobs, item, batch, call)?;
    deletions.hold(&name, txid);
    Ok(created)
}
