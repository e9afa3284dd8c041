//! Creation of UTXO records, and the source of a record's transaction.

use super::super::UploadProgress;
use super::{BlockRef, ExternalStore, FileType, Outpoint, UtxoCreateError, UtxoRefusal};
use crate::{BlobPtr, Txid, UtxoHash};
use candid::Principal;
use ic_coppice_macros::candid_type;
use serde_bytes::ByteBuf;
use thiserror::Error;

/// Records to create.
#[candid_type]
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UtxoCreateBatch {
    /// The chain's height.
    pub height: u32,
    /// The records, in order.
    pub items: Vec<UtxoCreate>,
}

/// A record to create.
#[candid_type]
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UtxoCreate {
    /// The transaction.
    pub source: TransactionSource,
    /// The blocks that have the transaction; `null` if it is unmined.
    pub mined: Option<MinedIn>,
    /// True if the transaction's outputs cannot be spent yet. `null`: they cannot be spent while the transaction is
    /// unmined.
    pub locked: Option<bool>,
    /// The transaction is a double spend.
    pub conflicting: bool,
    /// The transaction's fee in satoshis; `null` if unknown. If the transaction is extended, the fee computed from it
    /// is used instead.
    pub fee: Option<u64>,
    /// The transaction was never recorded before: the record is also created if none of its parents has a record and
    /// all its blocks are at or below `pruned_height`. Even so, it is refused if an output names the transaction as
    /// pruned.
    pub is_new: bool,
}

/// Blocks that have a transaction.
#[candid_type]
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MinedIn {
    /// The blocks, at least one, with different ids.
    pub blocks: Vec<BlockRef>,
    /// One of the blocks is part of the longest chain.
    pub on_longest_chain: bool,
}

/// A transaction, in one of five forms.
#[candid_type]
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TransactionSource {
    /// The transaction's bytes: standard, extended (version ‖ `0000000000ef` ‖ …), or with witnesses, which its txid
    /// excludes.
    Raw(ByteBuf),
    /// The txid of a transaction that was uploaded in chunks.
    Uploaded(Txid),
    /// Only outputs of the transaction, all or some: stored as `.outputs`.
    Outputs(PartialTransaction),
    /// The transaction's bytes are in an external blob.
    External(ExternalTransaction),
    /// A transaction in the body of a kept block.
    Kept(KeptTransaction),
}

/// The place of a transaction in a kept block.
#[candid_type]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeptTransaction {
    /// The block's number.
    pub number: u64,
    /// The transaction's position in the block, from 0.
    pub position: u32,
}

/// A transaction of which only outputs are known.
#[candid_type]
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PartialTransaction {
    /// The transaction's id.
    pub txid: Txid,
    /// The transaction is a coinbase.
    pub coinbase: bool,
    /// The number of all outputs, known and unknown. Outputs are numbered from 0.
    pub total_outputs: u32,
    /// The known outputs, by ascending index.
    pub outputs: Vec<PartialOutput>,
}

/// A known output.
#[candid_type]
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PartialOutput {
    /// The output's number.
    pub index: u32,
    /// The output's value in satoshis.
    pub satoshis: u64,
    /// The output's locking script.
    pub script: ByteBuf,
}

/// A transaction whose bytes are in an external blob. The canister neither parses nor hashes them: it trusts these
/// fields.
#[candid_type]
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExternalTransaction {
    /// The transaction's id.
    pub txid: Txid,
    /// The place of the transaction's bytes.
    pub store: ExternalStore,
    /// The transaction is a coinbase.
    pub coinbase: bool,
    /// The transaction's version.
    pub version: u32,
    /// The transaction's lock time.
    pub lock_time: u32,
    /// The transaction's size in bytes.
    pub size: u64,
    /// The outputs that the inputs spend, in the order of the inputs; empty for a coinbase.
    pub inputs: Vec<Outpoint>,
    /// The hash of each output; `null` for an output that is not a UTXO.
    pub utxo_hashes: Vec<Option<UtxoHash>>,
}

/// Bytes of the longest key of an external blob: a thousand such keys fit a reply.
pub const MAX_BLOB_KEY: usize = 1_024;

/// Outcome of a creation.
#[candid_type]
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UtxoCreated {
    /// The transaction's id.
    pub txid: Txid,
    /// The number of the transaction's outputs that can be spent.
    pub utxos: u32,
    /// The number of pages after the master record.
    pub extra_pages: u32,
    /// The transaction's bytes are in the BlobStore or in an external blob.
    pub external: bool,
}

/// A transaction that is longer than a message, to upload in chunks.
#[candid_type]
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BeginTransaction {
    /// The transaction's id.
    pub txid: Txid,
    /// The transaction's size in bytes, at most 16 MiB.
    pub length: u64,
    /// The bytes of each chunk except the last: a power of two from 64 KiB to 1 MiB.
    pub chunk_size: u32,
}

/// A chunk of the transaction that is being uploaded.
#[candid_type]
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PutTransactionChunk {
    /// The uploaded transaction.
    pub txid: Txid,
    /// The chunk's number, from 0.
    pub chunk: u32,
    /// The chunk's bytes.
    pub bytes: ByteBuf,
}

/// The reason why a transaction's upload was refused. Nothing has changed.
#[candid_type]
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum TransactionUploadError {
    /// The caller has an open upload of another transaction, or of this one with another `length` or `chunk_size`:
    /// finish or abort it.
    #[error("the caller has another upload open: complete or abort it")]
    OtherUpload {
        /// The transaction whose upload is open.
        txid: Txid,
    },
    /// The caller has no open upload of this transaction.
    #[error("no open upload for this transaction: begin one")]
    NoUpload,
    /// The transaction has no such chunk.
    #[error("the transaction has only {chunks} chunks")]
    ChunkOutOfRange {
        /// The number of chunks that the transaction has.
        chunks: u32,
    },
    /// The chunk has the wrong length.
    #[error("the chunk must have {expected} bytes")]
    WrongLength {
        /// The required length of the chunk, in bytes.
        expected: u32,
    },
    /// The chunk was received already, with other bytes.
    #[error("the chunk was received before, with other bytes")]
    ChunkMismatch,
    /// The transaction itself was refused.
    #[error(transparent)]
    Refused(UtxoCreateError),
    /// The number of feeders with an open upload has reached its limit: wait until an upload is done or expires.
    #[error("upload limit ({limit}) reached: try again")]
    TooMany {
        /// The most feeders with an open upload.
        limit: u64,
    },
    /// A reason that this version does not know.
    #[error("{message}")]
    Other {
        /// The reason as a stable word.
        code: String,
        /// The reason as a sentence.
        message: String,
    },
}

impl From<UtxoRefusal> for TransactionUploadError {
    fn from(refusal: UtxoRefusal) -> Self {
        Self::Refused(refusal.into())
    }
}

/// An open upload.
#[candid_type]
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OpenTransaction {
    /// The feeder that began the upload.
    pub by: Principal,
    /// The uploaded transaction.
    pub txid: Txid,
    /// The number of chunks, and of missing chunks.
    pub progress: UploadProgress,
    /// The moment at which the upload expires unless it is continued, in Unix seconds.
    pub expires_at_secs: u64,
}

/// The place of the bytes of a record's transaction.
#[candid_type]
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TransactionPlace {
    /// The bytes are in the record.
    Record,
    /// The bytes are in the BlobStore, in consecutive parts.
    Blobs {
        /// The kind of file.
        file_type: FileType,
        /// The blobs of the parts.
        parts: Vec<BlobPtr>,
    },
    /// The bytes are in an external blob.
    External(ExternalStore),
    /// The bytes are in the body of a block, as long as the block is kept (the setting `copy_applied_transactions` was
    /// off).
    Block {
        /// The block.
        number: u64,
        /// The first byte in the block's body.
        offset: u64,
    },
}
