//! External blobs that contain transactions, and their stores.

use candid::CandidType;
use coppice_macros::native_docs;
use serde::{Deserialize, Serialize};
use serde_bytes::ByteBuf;

/// An external blob, as the deletion queue names it.
#[native_docs]
#[derive(Clone, Debug, PartialEq, Eq, CandidType, Serialize, Deserialize)]
pub struct ExternalStore {
    /// The blob's key, 1 to 1,024 bytes. No two records name the same blob.
    pub blob_key: ByteBuf,
    /// The kind of file.
    pub file_type: FileType,
    /// The store that contains the blob.
    pub store_type: StoreType,
}

/// The kind of file that contains a transaction.
#[native_docs]
#[derive(Clone, Copy, Debug, PartialEq, Eq, CandidType, Serialize, Deserialize)]
pub enum FileType {
    /// `.tx`: the whole transaction.
    Tx,
    /// `.outputs`: a UTXOWrapper, only outputs.
    Outputs,
}

/// A store of external blobs, by its content.
#[native_docs]
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, CandidType, Serialize, Deserialize)]
pub enum StoreType {
    /// The store of transactions.
    Tx,
    /// The store of blocks' subtrees.
    Subtree,
    /// The store of blocks.
    Block,
    /// The store of temporary files.
    Temp,
    /// The block persister's store.
    BlockPersister,
    /// The peer registry's store.
    PeerRegistry,
}

impl StoreType {
    /// All stores, by their number.
    pub const ALL: [Self; 6] =
        [Self::Tx, Self::Subtree, Self::Block, Self::Temp, Self::BlockPersister, Self::PeerRegistry];
}
