//! The upload of a transaction.

use super::source::class_bytes;
use super::{Call, Model, hash_argument};
use coppice_interface::*;
use serde_bytes::ByteBuf;

/// A transaction that is being uploaded.
#[derive(Clone, Debug)]
pub struct Upload {
    pub begun: BeginTransaction,
    /// The chunks that are there.
    chunks: Vec<Option<ByteBuf>>,
    whole: Option<Vec<u8>>,
}

impl Upload {
    fn progress(&self) -> UploadProgress {
        let missing = self.chunks.iter().filter(|chunk| chunk.is_none()).count() as u32;
        UploadProgress { chunks: self.chunks.len() as u32, missing }
    }
}

impl Model {
    /// The upload that a source names, where it is complete.
    pub fn uploaded(&self, source: &TransactionSource) -> Option<&[u8]> {
        let TransactionSource::Uploaded(txid) = source else { return None };
        self.upload.as_ref().filter(|upload| upload.begun.txid == *txid)?.whole.as_deref()
    }

    /// Class bytes that the upload keeps.
    pub fn upload_bytes(&self) -> u64 {
        self.upload.as_ref().map_or(0, |upload| class_bytes(upload.begun.length))
    }

    pub fn begin(&mut self, arg: &BeginTransaction, call: &Call) -> Result<UploadProgress, TransactionUploadError> {
        let txid = hash_argument("txid", &arg.txid).map_err(TransactionUploadError::from)?;
        if self.records.contains_key(&txid) {
            return Err(TransactionUploadError::from(UtxoRefusal::TxExists));
        }
        let limit = call.settings.max_external_bytes;
        match &self.upload {
            Some(open) if open.begun == *arg => return Ok(open.progress()),
            Some(open) => return Err(TransactionUploadError::OtherUpload { txid: open.begun.txid.clone() }),
            None if self.external_bytes() + class_bytes(arg.length) > limit => {
                return Err(TransactionUploadError::from(UtxoRefusal::ExternalFull { limit }));
            }
            None => {}
        }
        let chunks = vec![None; arg.length.div_ceil(arg.chunk_size.into()) as usize];
        let upload = self.upload.insert(Upload { begun: arg.clone(), chunks, whole: None });
        Ok(upload.progress())
    }

    pub fn put(&mut self, arg: &PutTransactionChunk) -> Result<UploadProgress, TransactionUploadError> {
        hash_argument("txid", &arg.txid).map_err(TransactionUploadError::from)?;
        let open = self.upload.as_mut().ok_or(TransactionUploadError::NoUpload)?;
        if open.begun.txid != arg.txid {
            return Err(TransactionUploadError::OtherUpload { txid: open.begun.txid.clone() });
        }
        let (length, size) = (open.begun.length, u64::from(open.begun.chunk_size));
        let chunks = open.chunks.len() as u32;
        let chunk = open.chunks.get_mut(arg.chunk as usize);
        let chunk = chunk.ok_or(TransactionUploadError::ChunkOutOfRange { chunks })?;
        let expected = size.min(length - size * u64::from(arg.chunk)) as u32;
        if arg.bytes.len() as u32 != expected {
            return Err(TransactionUploadError::WrongLength { expected });
        }
        if chunk.as_ref().is_some_and(|bytes| *bytes != arg.bytes) {
            return Err(TransactionUploadError::ChunkMismatch);
        }
        *chunk = Some(arg.bytes.clone());
        let there: Option<Vec<&[u8]>> = open.chunks.iter().map(|chunk| Some(&chunk.as_ref()?[..])).collect();
        open.whole = there.map(|chunks| chunks.concat());
        Ok(open.progress())
    }

    pub fn abort(&mut self, txid: &[u8]) -> Result<bool, TransactionUploadError> {
        hash_argument("txid", txid).map_err(TransactionUploadError::from)?;
        if let Some(other) = self.upload.as_ref().filter(|open| open.begun.txid[..] != *txid) {
            return Err(TransactionUploadError::OtherUpload { txid: other.begun.txid.clone() });
        }
        Ok(self.upload.take().is_some())
    }
}
