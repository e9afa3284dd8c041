//! Where a record's transaction comes from.

use super::super::UploadProgress;
use super::{BlockRef, Outpoint, UtxoCreateError, UtxoRefusal};
use crate::BlobPtr;
use candid::{CandidType, Principal};
use serde::{Deserialize, Serialize};
use serde_bytes::ByteBuf;

/// Records to create.
#[derive(Clone, Debug, PartialEq, Eq, CandidType, Serialize, Deserialize)]
pub struct UtxoCreateBatch {
    /// The height at which the chain is.
    pub height: u32,
    /// The records, in order.
    pub items: Vec<UtxoCreate>,
}

/// A record to create.
#[derive(Clone, Debug, PartialEq, Eq, CandidType, Serialize, Deserialize)]
pub struct UtxoCreate {
    /// The transaction.
    pub source: TransactionSource,
    /// The blocks that have it; none while it is unmined.
    pub mined: Option<MinedIn>,
    /// Whether its outputs cannot be spent yet. By default they cannot while it is unmined.
    pub locked: Option<bool>,
    /// It is a double spend.
    pub conflicting: bool,
    /// Its fee in satoshis. What an extended transaction says goes before this.
    pub fee: Option<u64>,
}

/// Blocks that have a transaction.
#[derive(Clone, Debug, PartialEq, Eq, CandidType, Serialize, Deserialize)]
pub struct MinedIn {
    /// At least one; their ids differ.
    pub blocks: Vec<BlockRef>,
    /// One of them is part of the longest chain.
    pub on_longest_chain: bool,
}

/// A transaction, in one of four forms.
#[derive(Clone, Debug, PartialEq, Eq, CandidType, Serialize, Deserialize)]
pub enum TransactionSource {
    /// Its bytes: standard, extended (version ‖ `0000000000ef` ‖ …), or with witnesses, which its txid leaves out.
    Raw(ByteBuf),
    /// The txid of a transaction that was uploaded in chunks.
    Uploaded(ByteBuf),
    /// Its outputs only, or some of them: kept as `.outputs`.
    Outputs(PartialTransaction),
    /// Its bytes are kept outside the canister.
    Outside(OutsideTransaction),
}

/// A transaction of which only outputs are known.
#[derive(Clone, Debug, PartialEq, Eq, CandidType, Serialize, Deserialize)]
pub struct PartialTransaction {
    /// Its id.
    pub txid: ByteBuf,
    /// It is a coinbase.
    pub coinbase: bool,
    /// All of its outputs, known or not. They are numbered from 0.
    pub total_outputs: u32,
    /// Those that are known, by rising index.
    pub outputs: Vec<PartialOutput>,
}

/// An output that is known.
#[derive(Clone, Debug, PartialEq, Eq, CandidType, Serialize, Deserialize)]
pub struct PartialOutput {
    /// Its number.
    pub index: u32,
    /// Its value.
    pub satoshis: u64,
    /// Its locking script.
    pub script: ByteBuf,
}

/// A transaction whose bytes are kept elsewhere. Nothing of it is parsed or hashed: what is said here is believed.
#[derive(Clone, Debug, PartialEq, Eq, CandidType, Serialize, Deserialize)]
pub struct OutsideTransaction {
    /// Its id.
    pub txid: ByteBuf,
    /// Where its bytes are.
    pub store: ExternalStore,
    /// It is a coinbase.
    pub coinbase: bool,
    /// Its version.
    pub version: u32,
    /// Its lock time.
    pub lock_time: u32,
    /// Its bytes.
    pub size: u64,
    /// What its inputs spend, in the order of the inputs; empty for a coinbase.
    pub inputs: Vec<Outpoint>,
    /// The hash of each output, none for one that is no UTXO.
    pub utxo_hashes: Vec<Option<ByteBuf>>,
}

/// Bytes of the longest key of a blob outside: a thousand of them fit a reply.
pub const MAX_BLOB_KEY: usize = 1_024;

/// A blob outside the canister, as the deletion queue names it.
#[derive(Clone, Debug, PartialEq, Eq, CandidType, Serialize, Deserialize)]
pub struct ExternalStore {
    /// The blob's key, 1 to 1,024 bytes. No two records name the same blob.
    pub blob_key: ByteBuf,
    /// What kind of file it is.
    pub file_type: FileType,
    /// Which store has it.
    pub store_type: StoreType,
}

/// What kind of file keeps a transaction (`utxo-data-model.md`, External Blob Storage).
#[derive(Clone, Copy, Debug, PartialEq, Eq, CandidType, Serialize, Deserialize)]
pub enum FileType {
    /// `.tx`: the whole transaction.
    Tx,
    /// `.outputs`: a UTXOWrapper, outputs only.
    Outputs,
}

/// Which store has a blob (`blob-deletion-api.md`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, CandidType, Serialize, Deserialize)]
pub enum StoreType {
    /// Transactions.
    Tx,
    /// Subtrees.
    Subtree,
    /// Blocks.
    Block,
    /// Temporary files.
    Temp,
    /// The block persister's.
    BlockPersister,
    /// The peer registry's.
    PeerRegistry,
}

impl StoreType {
    /// All of them, by their number.
    pub const ALL: [Self; 6] =
        [Self::Tx, Self::Subtree, Self::Block, Self::Temp, Self::BlockPersister, Self::PeerRegistry];
}

/// What was created.
#[derive(Clone, Debug, PartialEq, Eq, CandidType, Serialize, Deserialize)]
pub struct UtxoCreated {
    /// The transaction.
    pub txid: ByteBuf,
    /// Its outputs that can be spent.
    pub utxos: u32,
    /// Pages behind the master record.
    pub extra_pages: u32,
    /// Its bytes lie in the BlobStore or outside.
    pub external: bool,
}

/// A transaction that is longer than a message, to be sent in chunks.
#[derive(Clone, Debug, PartialEq, Eq, CandidType, Serialize, Deserialize)]
pub struct BeginTransaction {
    /// Its id.
    pub txid: ByteBuf,
    /// Its bytes, at most 32 MiB.
    pub length: u64,
    /// Bytes of a chunk, all but the last: at most 1 MiB, and a power of two.
    pub chunk_size: u32,
}

/// A chunk of the transaction that is being uploaded.
#[derive(Clone, Debug, PartialEq, Eq, CandidType, Serialize, Deserialize)]
pub struct PutTransactionChunk {
    /// The transaction.
    pub txid: ByteBuf,
    /// Which chunk, from 0.
    pub chunk: u32,
    /// Its bytes.
    pub bytes: ByteBuf,
}

/// Why a transaction's upload was refused. Nothing has changed.
#[derive(Clone, Debug, PartialEq, Eq, CandidType, Serialize, Deserialize)]
pub enum TransactionUploadError {
    /// The caller uploads another transaction: finish or abort it.
    OtherUpload {
        /// Which.
        txid: ByteBuf,
    },
    /// None is.
    NoUpload,
    /// The transaction has no such chunk.
    ChunkOutOfRange {
        /// How many it has.
        chunks: u32,
    },
    /// The chunk's length is wrong.
    WrongLength {
        /// Its bytes.
        expected: u32,
    },
    /// The chunk was received already, with other bytes.
    ChunkMismatch,
    /// The upload itself is not acceptable.
    Refused(UtxoCreateError),
    /// As many producers have uploads open as may: wait until one is done or expires.
    TooMany {
        /// The most.
        limit: u64,
    },
}

impl From<UtxoRefusal> for TransactionUploadError {
    fn from(refusal: UtxoRefusal) -> Self {
        Self::Refused(refusal.into())
    }
}

/// An upload that is open.
#[derive(Clone, Debug, PartialEq, Eq, CandidType, Serialize, Deserialize)]
pub struct OpenTransaction {
    /// Who began it; none where that was not noted.
    pub by: Option<Principal>,
    /// Of which transaction.
    pub txid: ByteBuf,
    /// How far it is.
    pub progress: UploadProgress,
    /// When it expires, in Unix seconds, unless the producer goes on with it before.
    pub expires_at: u64,
}

/// Where a record's transaction lies.
#[derive(Clone, Debug, PartialEq, Eq, CandidType, Serialize, Deserialize)]
pub enum TransactionPlace {
    /// In the record.
    Record,
    /// In the BlobStore, one part behind the other.
    Blobs {
        /// What it is.
        file_type: FileType,
        /// Its parts.
        parts: Vec<BlobPtr>,
    },
    /// Outside the canister.
    Outside(ExternalStore),
}
