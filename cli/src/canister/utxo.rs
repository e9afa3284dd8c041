//! The client's calls of UTXO records.

use super::{Caller, Client, Transport};
use anyhow::{Result, anyhow, bail};
use coppice_interface::*;
use serde_bytes::{ByteBuf, Bytes};

/// What a look at a record answers: what was asked for, or the canister's own reason why not.
pub type UtxoRead<T> = Result<Result<T, UtxoError>>;

/// How far an upload is, or the canister's own reason why it is not.
pub type TransactionUpload = Result<Result<UploadProgress, TransactionUploadError>>;

impl<T: Transport> Client<T> {
    /// `utxo_create`.
    pub fn utxo_create(&self, batch: &UtxoCreateBatch) -> Result<Batch<Result<UtxoCreated, UtxoCreateError>>> {
        self.update(Caller::Producer, "utxo_create", (batch,))
    }

    /// `utxo_spend`.
    pub fn utxo_spend(&self, batch: &UtxoSpendBatch) -> Result<Batch<Result<u32, Vec<RefusedSpend>>>> {
        self.update(Caller::Producer, "utxo_spend", (batch,))
    }

    /// `utxo_set_mined`.
    pub fn utxo_set_mined(&self, batch: &UtxoSetMinedBatch) -> Result<Batch<Result<Vec<u32>, UtxoError>>> {
        self.update(Caller::Producer, "utxo_set_mined", (batch,))
    }

    /// `utxo_set_conflicting`.
    pub fn utxo_set_conflicting(&self, batch: &UtxoSetConflictingBatch) -> Result<Batch<Result<Conflict, UtxoError>>> {
        self.update(Caller::Producer, "utxo_set_conflicting", (batch,))
    }

    /// `utxo_process_conflicting`.
    pub fn utxo_process_conflicting(
        &self,
        winners: &UtxoProcessConflicting,
    ) -> Result<Result<ConflictResolution, ConflictError>> {
        self.update(Caller::Producer, "utxo_process_conflicting", (winners,))
    }

    /// `utxo_begin_transaction`.
    pub fn utxo_begin_transaction(&self, transaction: &BeginTransaction) -> TransactionUpload {
        self.update(Caller::Producer, "utxo_begin_transaction", (transaction,))
    }

    /// `utxo_put_transaction_chunk`.
    pub fn utxo_put_transaction_chunk(&self, chunk: &PutTransactionChunk) -> TransactionUpload {
        self.update(Caller::Producer, "utxo_put_transaction_chunk", (chunk,))
    }

    /// `utxo_abort_transaction`.
    ///
    /// # Errors
    /// Also when the canister refuses, as another transaction is being uploaded.
    pub fn utxo_abort_transaction(&self, txid: &[u8]) -> Result<bool> {
        let result: Result<_, TransactionUploadError> =
            self.update(Caller::Producer, "utxo_abort_transaction", (Bytes::new(txid),))?;
        result.map_err(|error| anyhow!("utxo_abort_transaction: the canister refuses: {error:?}"))
    }

    /// `utxo_get`.
    pub fn utxo_get(&self, part: &UtxoGet) -> UtxoRead<UtxoRecord> {
        self.query("utxo_get", (part,))
    }

    /// `utxo_get_spend`.
    pub fn utxo_get_spend(&self, outpoints: &UtxoGetSpend) -> UtxoRead<Vec<UtxoSpendState>> {
        self.query("utxo_get_spend", (outpoints,))
    }

    /// `utxo_get_transaction`.
    pub fn utxo_get_transaction(&self, part: &UtxoGetPart) -> UtxoRead<TransactionPart> {
        self.query("utxo_get_transaction", (part,))
    }

    /// A transaction's bytes, or those of its outputs, in as many parts as that takes.
    ///
    /// # Errors
    /// Also when a part comes back empty, or there are more bytes than there should be.
    pub fn whole_transaction(&self, txid: &[u8]) -> UtxoRead<(FileType, Vec<u8>)> {
        let mut bytes: Vec<u8> = Vec::new();
        loop {
            let offset = bytes.len() as u64;
            let part = UtxoGetPart { txid: ByteBuf::from(txid), offset, length: u64::MAX };
            let part = match self.utxo_get_transaction(&part)? {
                Ok(part) => part,
                Err(error) => return Ok(Err(error)),
            };
            bytes.extend_from_slice(&part.bytes);
            if bytes.len() as u64 == part.total {
                return Ok(Ok((part.file_type, bytes)));
            }
            if part.bytes.is_empty() || bytes.len() as u64 > part.total {
                bail!("utxo_get_transaction: {} bytes from {offset} of {}", part.bytes.len(), part.total);
            }
        }
    }
}
