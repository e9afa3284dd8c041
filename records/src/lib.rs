//! UTXO records in stable memory, from their creation to their deletion.
//!
//! | module | holds |
//! |---|---|
//! | [`utxo`] | the store: one record for each transaction |
//! | [`deletion`] | the deletion queue: external blobs that workers must delete |
//! | [`external`] | records with external data: created and deleted together with rows of the queue |
//! | [`apply`] | kept blocks to records, and back |
//! | [`pruning`] | which records are deleted, when, and how much of it in one message |
//! | [`places`], [`owners`] | where all of it lies in the canister's stable memory |
//!
//! Modules further down import those above them. The blocks to apply come through [`Blocks`](coppice_interface::blocks::Blocks): this crate does not
//! know the chain's store.

pub mod apply;
pub mod deletion;
pub mod external;
pub mod owners;
pub mod places;
pub mod pruning;
pub mod sha256;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
pub mod utxo;
