//! UTXO records in stable memory, from their creation to their deletion.
//!
//! | module | holds |
//! |---|---|
//! | [`utxo`] | the store: one record for each transaction |
//! | [`deletion`] | the deletion queue: external blobs that workers must delete |
//! | [`external`] | records with external data: created and deleted together with rows of the queue |
//! | [`apply`] | kept blocks to records, and back |
//! | [`pruning`] | which records are deleted, when, and how much of it in one message |
//! | [`sha256`] | digests of several messages at once |
//! | [`RecordStores`] | all of these, opened together |
//! | [`places`], [`owners`] | places and owners of this data in the canister's stable memory |
//!
//! Modules further down import those above them. The blocks to apply come through [`Blocks`](ic_coppice_interface::blocks::Blocks): this crate does not
//! depend on the chain's store.

pub mod apply;
pub mod deletion;
pub mod external;
#[cfg(any(test, feature = "testing"))]
pub mod faults;
pub mod owners;
pub mod places;
pub mod pruning;
pub mod sha256;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
pub mod utxo;

use apply::Applier;
use deletion::DeletionQueue;
use ic_coppice_interface::text::many;
use ic_coppice_storage::arena::Arena;
use ic_coppice_storage::{HashKey, Space};
use pruning::UtxoPruner;
use std::rc::Rc;
use utxo::UtxoStore;

/// All stores of records.
pub struct RecordStores {
    /// UTXO records.
    pub utxo: UtxoStore,
    /// Position of applying blocks to the records.
    pub applier: Applier,
    /// Deletion queue of external blobs.
    pub deletions: DeletionQueue,
    /// The pruner of records.
    pub pruner: UtxoPruner,
}

impl RecordStores {
    /// Opens all stores over their spaces and cells, or makes empty ones.
    ///
    /// # Errors
    /// A sentence that names the store and its fault.
    pub fn open(arena: &Arena, cells: &Rc<Space>, key: &HashKey) -> Result<Self, String> {
        Ok(Self {
            utxo: UtxoStore::open(arena, Rc::clone(cells), key.clone())?,
            applier: Applier::open(Rc::clone(cells))?,
            deletions: DeletionQueue::open(arena, key.clone())?,
            pruner: UtxoPruner::open(arena, Rc::clone(cells))?,
        })
    }

    /// Returns words for what the stores keep: records, rows of the deletion queue, open uploads, a position of applying.
    pub fn kept(&self) -> Vec<String> {
        let (records, (rows, _)) = (self.utxo.storage().records, self.deletions.rows());
        let uploads = self.utxo.uploads.list(0).len() as u64;
        let counted = [
            (records, many(records, "UTXO record")),
            (rows, format!("{} of the deletion queue", many(rows, "row"))),
            (uploads, format!("{} of transactions", many(uploads, "open upload"))),
        ];
        let counted = counted.into_iter().filter(|(count, _)| *count > 0).map(|(_, words)| words);
        let applying = self.applier.next().map(|next| format!("a position of applying, at block {next}"));
        counted.chain(applying).collect()
    }

    /// Writes all that the heap mirrors anew.
    pub fn rewrite(&mut self) {
        self.utxo.rewrite();
        self.deletions.rewrite();
        self.applier.rewrite();
        self.pruner.rewrite();
    }
}
