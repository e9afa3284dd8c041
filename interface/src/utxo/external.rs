//! External blobs that contain transactions, and their stores.

use ic_coppice_macros::candid_type;
use serde_bytes::ByteBuf;

/// An external blob, as the deletion queue names it.
#[candid_type]
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExternalStore {
    /// The blob's key, 1 to 1,024 bytes. No two records name the same blob.
    pub blob_key: ByteBuf,
    /// The kind of file.
    pub file_type: FileType,
    /// The store that contains the blob.
    pub store_type: StoreType,
}

/// The kind of file that contains a transaction.
#[candid_type]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileType {
    /// `.tx`: the whole transaction.
    Tx,
    /// `.outputs`: a UTXOWrapper, only outputs.
    Outputs,
}

/// A store of external blobs, by its content.
#[candid_type]
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
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
