//! Where a record's transaction comes from.

use super::super::UploadProgress;
use super::{BlockRef, ExternalStore, FileType, Outpoint, UtxoCreateError, UtxoRefusal};
use crate::BlobPtr;
use crate::{Txid, UtxoHash};
use candid::{CandidType, Principal};
use coppice_macros::native_docs;
use serde::{Deserialize, Serialize};
use serde_bytes::ByteBuf;
use thiserror::Error;

/// Records to create.
#[native_docs]
#[derive(Clone, Debug, PartialEq, Eq, CandidType, Serialize, Deserialize)]
pub struct UtxoCreateBatch {
    /// The height at which the chain is.
    pub height: u32,
    /// The records, in order.
    pub items: Vec<UtxoCreate>,
}

/// A record to create.
#[native_docs]
#[derive(Clone, Debug, PartialEq, Eq, CandidType, Serialize, Deserialize)]
pub struct UtxoCreate {
    /// The transaction.
    pub source: TransactionSource,
    /// The blocks that have it; none while it is unmined.
    pub mined: Option<MinedIn>,
    /// The transaction's outputs cannot be spent yet. By default they cannot while the transaction is unmined.
    pub locked: Option<bool>,
    /// The transaction is a double spend.
    pub conflicting: bool,
    /// The transaction's fee in satoshis; none where it is not known. The fee that an extended transaction says goes before
    /// this one.
    pub fee: Option<u64>,
    /// The transaction was never recorded before: a record is made also where none of its parents has one and all its blocks
    /// are at or below `pruned_height`. An output that names the transaction as pruned refuses it all the same.
    pub is_new: bool,
}

/// Blocks that have a transaction.
#[native_docs]
#[derive(Clone, Debug, PartialEq, Eq, CandidType, Serialize, Deserialize)]
pub struct MinedIn {
    /// The blocks, at least one; their ids differ.
    pub blocks: Vec<BlockRef>,
    /// One of the blocks is part of the longest chain.
    pub on_longest_chain: bool,
}

/// A transaction, in one of four forms.
#[native_docs]
#[derive(Clone, Debug, PartialEq, Eq, CandidType, Serialize, Deserialize)]
pub enum TransactionSource {
    /// The transaction's bytes: standard, extended (version ‖ `0000000000ef` ‖ …), or with witnesses, which its txid leaves
    /// out.
    Raw(ByteBuf),
    /// The txid of a transaction that was uploaded in chunks.
    Uploaded(Txid),
    /// The transaction's outputs only, or some of them: kept as `.outputs`.
    Outputs(PartialTransaction),
    /// The transaction's bytes are kept outside the canister.
    Outside(OutsideTransaction),
}

/// A transaction of which only outputs are known.
#[native_docs]
#[derive(Clone, Debug, PartialEq, Eq, CandidType, Serialize, Deserialize)]
pub struct PartialTransaction {
    /// The transaction's id.
    pub txid: Txid,
    /// The transaction is a coinbase.
    pub coinbase: bool,
    /// The number of outputs, known or not. They are numbered from 0.
    pub total_outputs: u32,
    /// The outputs that are known, by rising index.
    pub outputs: Vec<PartialOutput>,
}

/// An output that is known.
#[native_docs]
#[derive(Clone, Debug, PartialEq, Eq, CandidType, Serialize, Deserialize)]
pub struct PartialOutput {
    /// The output's number.
    pub index: u32,
    /// The output's value in satoshis.
    pub satoshis: u64,
    /// The output's locking script.
    pub script: ByteBuf,
}

/// A transaction whose bytes are kept elsewhere. Nothing of it is parsed or hashed: what is said here is believed.
#[native_docs]
#[derive(Clone, Debug, PartialEq, Eq, CandidType, Serialize, Deserialize)]
pub struct OutsideTransaction {
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
    /// The hash of each output, none for one that is no UTXO.
    pub utxo_hashes: Vec<Option<UtxoHash>>,
}

/// Bytes of the longest key of a blob outside: a thousand of them fit a reply.
pub const MAX_BLOB_KEY: usize = 1_024;

/// What was created.
#[native_docs]
#[derive(Clone, Debug, PartialEq, Eq, CandidType, Serialize, Deserialize)]
pub struct UtxoCreated {
    /// The transaction's id.
    pub txid: Txid,
    /// The number of the transaction's outputs that can be spent.
    pub utxos: u32,
    /// The number of pages behind the master record.
    pub extra_pages: u32,
    /// The transaction's bytes lie in the BlobStore or outside.
    pub external: bool,
}

/// A transaction that is longer than a message, to be sent in chunks.
#[native_docs]
#[derive(Clone, Debug, PartialEq, Eq, CandidType, Serialize, Deserialize)]
pub struct BeginTransaction {
    /// The transaction's id.
    pub txid: Txid,
    /// The transaction's size in bytes, at most 32 MiB.
    pub length: u64,
    /// The bytes of a chunk, all but the last: a power of two from 64 KiB to 1 MiB.
    pub chunk_size: u32,
}

/// A chunk of the transaction that is being uploaded.
#[native_docs]
#[derive(Clone, Debug, PartialEq, Eq, CandidType, Serialize, Deserialize)]
pub struct PutTransactionChunk {
    /// The transaction that is uploaded.
    pub txid: Txid,
    /// The chunk's number, from 0.
    pub chunk: u32,
    /// The chunk's bytes.
    pub bytes: ByteBuf,
}

/// Why a transaction's upload was refused. Nothing has changed.
#[native_docs]
#[derive(Clone, Debug, PartialEq, Eq, Error, CandidType, Serialize, Deserialize)]
pub enum TransactionUploadError {
    /// The caller has an upload open of another transaction, or of this one with another `length` or `chunk_size`:
    /// finish or abort it.
    #[error("the caller has another upload open: complete or abort it")]
    OtherUpload {
        /// The transaction whose upload is open.
        txid: Txid,
    },
    /// The caller uploads no such transaction.
    #[error("the caller uploads no such transaction: begin again")]
    NoUpload,
    /// The transaction has no such chunk.
    #[error("the transaction has only {chunks} chunks")]
    ChunkOutOfRange {
        /// The number of chunks that the transaction has.
        chunks: u32,
    },
    /// The chunk's length is wrong.
    #[error("the chunk must have {expected} bytes")]
    WrongLength {
        /// The number of bytes that the chunk must have.
        expected: u32,
    },
    /// The chunk was received already, with other bytes.
    #[error("the chunk is there already, with other bytes")]
    ChunkMismatch,
    /// The upload itself is not acceptable.
    #[error(transparent)]
    Refused(UtxoCreateError),
    /// As many feeders have uploads open as may: wait until one is done or expires.
    #[error("{limit} uploads are open, which is the most: try again")]
    TooMany {
        /// The most feeders that may have uploads open.
        limit: u64,
    },
    /// A reason that this version does not name.
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

/// An upload that is open.
#[native_docs]
#[derive(Clone, Debug, PartialEq, Eq, CandidType, Serialize, Deserialize)]
pub struct OpenTransaction {
    /// The feeder that began the upload; none where that was not noted.
    pub by: Option<Principal>,
    /// The transaction that is uploaded.
    pub txid: Txid,
    /// How many chunks there are, and how many are still to come.
    pub progress: UploadProgress,
    /// The moment at which the upload expires, in Unix seconds, unless the feeder goes on with it before.
    pub expires_at: u64,
}

/// Where a record's transaction lies.
#[native_docs]
#[derive(Clone, Debug, PartialEq, Eq, CandidType, Serialize, Deserialize)]
pub enum TransactionPlace {
    /// The bytes are in the record.
    Record,
    /// The bytes are in the BlobStore, one part behind the other.
    Blobs {
        /// The kind of file.
        file_type: FileType,
        /// The blobs of the parts.
        parts: Vec<BlobPtr>,
    },
    /// The bytes are outside the canister.
    Outside(ExternalStore),
}
