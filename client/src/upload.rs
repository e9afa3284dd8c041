//! Writes that take several calls: blocks and transactions in chunks, commits and rollbacks over several messages.

use crate::{Client, Error, Transport};
use ic_coppice_interface::segments::Index;
use ic_coppice_interface::*;
use serde_bytes::ByteBuf;

/// Bytes of payload that one `append_block` carries; a message may have 2 MiB in all.
pub const MAX_APPEND: usize = 1_900_000;
/// Bytes of a chunk.
pub const CHUNK: u32 = 1 << 20;
/// Transactions and keys above which a block is sent in chunks at once, because a message has no room for more in large indexes.
pub(crate) const MOST_REFERENCES: u64 = 10_000;

/// The way a block was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sent {
    /// In one message.
    Whole,
    /// In chunks.
    InChunks,
}

impl<T: Transport> Client<T> {
    /// Appends a block: by `append_block`, compressed if that costs the canister less, or in chunks if one message cannot hold it or cannot
    /// enter all of its transactions and keys. The canister may find only by entering them that they do not fit (`TooLarge`); then the block
    /// is sent in chunks, too. For producers.
    ///
    /// A repeated call is Ok: a block that is already kept changes nothing, and an interrupted upload continues.
    ///
    /// # Errors
    /// When the canister refuses the block in any step, or there is no answer.
    pub async fn send_block(&self, block: &AppendBlock) -> Result<Sent, Error<UploadError>> {
        let bytes = block.body.len() + block.receipts.len() + block.index.len();
        if bytes <= MAX_APPEND && references(&block.index) <= MOST_REFERENCES {
            match self.append_single(block).await {
                Ok(()) => return Ok(Sent::Whole),
                Err(Error::Refused(AppendError::TooLarge { .. })) => {}
                Err(error) => return Err(error.map(UploadError::Append)),
            }
        }
        self.send_in_chunks(block).await?;
        Ok(Sent::InChunks)
    }

    /// Appends a block in chunks.
    pub(crate) async fn send_in_chunks(&self, block: &AppendBlock) -> Result<(), Error<UploadError>> {
        let segments = [&block.body, &block.receipts, &block.index].map(|segment| segment.as_slice());
        let begin = BeginBlock {
            number: block.number,
            hash: block.hash.clone(),
            parent_hash: block.parent_hash.clone(),
            timestamp_secs: block.timestamp_secs,
            lengths: segments.map(|segment| segment.len() as u64).into(),
            sha256: block.sha256.clone(),
            chunk_size: CHUNK,
        };
        let UploadProgress { chunks, missing } =
            self.begin_block(&begin).await.map_err(|error| error.map(UploadError::Append))?;
        // The missing chunks are unknown, so all chunks are sent: a repeated chunk is Ok.
        for chunk in if missing == 0 { 0..0 } else { 0..chunks } {
            let bytes = part_of(segments, chunk as usize * CHUNK as usize, CHUNK as usize);
            self.put_block_chunk(&PutBlockChunk { number: block.number, chunk, bytes: ByteBuf::from(bytes) }).await?;
        }
        self.commit(&BlockId { number: block.number, hash: block.hash.clone() }).await
    }

    /// Repeats `commit_block` until it is done. For the upload's producer, and operators. An upload expires after
    /// `upload_expiry_secs`, by default 120, without a call.
    ///
    /// A repeated call continues.
    ///
    /// # Errors
    /// When the canister refuses the block, or there is no answer.
    pub async fn commit(&self, block: &BlockId) -> Result<(), Error<UploadError>> {
        loop {
            match self.commit_block(block).await? {
                Commit::Done => return Ok(()),
                Commit::HasMore { .. } => {}
            }
        }
    }

    /// Repeats `rollback_to` until this block is the head, or the rollback waits for memory. Blocks that are applied to the UTXO records are
    /// taken back from them. For producers, at most `max_rollback_blocks` deep; deeper for admins. Returns how many blocks these calls
    /// removed, without those that the canister's own timer removed in between. If the answer has `has_more`, the timer does the rest, and
    /// appends are refused as `RollbackUnderway` until it is done.
    ///
    /// Stop appending meanwhile: the timer may finish the rollback between two calls, and the next call then removes blocks appended since.
    /// A repeated call continues, and removes those blocks, too.
    ///
    /// # Errors
    /// When the canister refuses, or there is no answer. Blocks removed until then stay removed.
    pub async fn roll_back_to(&self, number: u64) -> Result<Rollback, Error<RollbackError>> {
        let (mut removed, mut not_restored) = (0u64, None);
        loop {
            let step = self.rollback_to(number, None).await?;
            removed = removed.saturating_add(step.removed);
            not_restored = step.not_restored.map(|count| count.saturating_add(not_restored.unwrap_or_default()));
            // Once the block is the head, another call would remove blocks appended after it. The canister's timer does the rest.
            if !step.has_more || step.head == number || step.waits.is_some() {
                return Ok(Rollback { removed, not_restored, ..step });
            }
        }
    }

    /// Uploads a transaction that is too large for a message. Then create its record by [`utxo_create`](Self::utxo_create), from
    /// `TransactionSource::Uploaded`. For feeders; each has one upload at a time.
    ///
    /// A repeated call is Ok: an interrupted upload continues. An open upload of the same transaction in another form is replaced.
    ///
    /// # Errors
    /// When the canister refuses the transaction in any step, or there is no answer.
    pub async fn upload_transaction(&self, txid: &Txid, bytes: &[u8]) -> Result<(), Error<TransactionUploadError>> {
        let begin = BeginTransaction { txid: txid.clone(), length: bytes.len() as u64, chunk_size: CHUNK };
        let begun = match self.utxo_begin_transaction(&begin).await {
            Err(Error::Refused(TransactionUploadError::OtherUpload { txid: other })) if other == *txid => {
                self.utxo_abort_transaction(txid).await?;
                self.utxo_begin_transaction(&begin).await?
            }
            begun => begun?,
        };
        for chunk in if begun.missing == 0 { 0..0 } else { 0..begun.chunks } {
            let bytes = part_of([bytes], chunk as usize * CHUNK as usize, CHUNK as usize);
            let chunk = PutTransactionChunk { txid: txid.clone(), chunk, bytes: ByteBuf::from(bytes) };
            self.utxo_put_transaction_chunk(&chunk).await?;
        }
        Ok(())
    }
}

/// Returns the number of transactions and keys of an index segment, or 0 for a malformed one, which the canister refuses.
pub(crate) fn references(index: &[u8]) -> u64 {
    Index::parse(index).map_or(0, |index| index.references())
}

/// Returns at most `length` bytes from `start` of the concatenated parts.
fn part_of<const N: usize>(parts: [&[u8]; N], start: usize, length: usize) -> Vec<u8> {
    let (mut bytes, mut skip) = (Vec::new(), start);
    for part in parts {
        let rest = part.get(skip..).unwrap_or_default();
        bytes.extend_from_slice(&rest[..rest.len().min(length - bytes.len())]);
        skip = skip.saturating_sub(part.len());
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Script, block_on};

    #[test]
    fn chunks_cover_the_concatenated_segments() {
        let segments: [&[u8]; 3] = [&[1, 2, 3], &[], &[4, 5, 6, 7]];
        let all = segments.concat();
        for size in 1..9 {
            let chunks: Vec<Vec<u8>> = (0..9).map(|chunk| part_of(segments, chunk * size, size)).collect();
            assert_eq!(chunks.concat(), all, "{size}");
            assert!(chunks[..all.len() / size].iter().all(|chunk| chunk.len() == size), "{size}");
        }
        assert!(part_of([&[]], 0, 4).is_empty() && part_of(segments, usize::MAX, 4).is_empty());
    }

    fn long() -> AppendBlock {
        let body = ByteBuf::from(vec![7; MAX_APPEND + 1]);
        AppendBlock { number: 5, hash: [1].into(), body, ..AppendBlock::default() }
    }

    #[test]
    fn long_block_is_uploaded_in_chunks_and_committed_over_messages() {
        let progress = |missing| Ok::<_, UploadError>(UploadProgress { chunks: 2, missing });
        let script = Script::default()
            .answers("begin_block", Ok::<_, AppendError>(UploadProgress { chunks: 2, missing: 2 }))
            .answers("put_block_chunk", progress(1))
            .answers("put_block_chunk", progress(0))
            .answers("commit_block", Ok::<_, UploadError>(Commit::HasMore { entered: 1, of: 2 }))
            .answers("commit_block", Ok::<_, UploadError>(Commit::Done));
        let client = Client::new(script);
        assert_eq!(block_on(client.send_block(&long())).unwrap(), Sent::InChunks);
        client.transport().ended();
    }

    #[test]
    fn complete_upload_is_not_sent_again_and_a_refusal_stops_it() {
        let script = Script::default()
            .answers("begin_block", Ok::<_, AppendError>(UploadProgress { chunks: 2, missing: 0 }))
            .answers("commit_block", Err::<Commit, _>(UploadError::Aborting));
        let client = Client::new(script);
        let error = block_on(client.send_block(&long())).unwrap_err();
        assert!(matches!(error, Error::Refused(UploadError::Aborting)), "{error:?}");
        client.transport().ended();
        let held = AppendError::CapacityExhausted { held_by: HeldBy::PruneLag };
        let client = Client::new(Script::default().answers("append_block", Err::<(), _>(held.clone())));
        let error = block_on(client.send_block(&AppendBlock::default())).unwrap_err();
        assert!(matches!(&error, Error::Refused(UploadError::Append(why)) if *why == held), "{error:?}");
    }

    #[test]
    fn block_for_which_a_message_has_no_room_is_uploaded_in_chunks() {
        let no_room = AppendError::TooLarge { what: "references: upload the block".into(), limit: 99 };
        let client = Client::new(
            Script::default()
                .answers("append_block", Err::<(), _>(no_room))
                .answers("begin_block", Ok::<_, AppendError>(UploadProgress { chunks: 0, missing: 0 }))
                .answers("commit_block", Ok::<_, UploadError>(Commit::Done)),
        );
        assert_eq!(block_on(client.send_block(&AppendBlock::default())).unwrap(), Sent::InChunks);
        client.transport().ended();
    }

    #[test]
    fn short_block_with_many_references_is_uploaded_in_chunks() {
        let index = ByteBuf::from(segments::encode_index(vec![[0; 32]; 12_501].into_iter(), [].into_iter()).unwrap());
        let client = Client::new(
            Script::default().answers("begin_block", Err::<UploadProgress, _>(AppendError::Gap { expected: 1 })),
        );
        assert!(block_on(client.send_block(&AppendBlock { index, ..AppendBlock::default() })).is_err());
        client.transport().ended();
    }

    #[test]
    fn rollback_is_repeated_and_sums_removed_blocks() {
        let step = |head, removed, has_more| {
            Ok::<_, RollbackError>(Rollback { head, removed, has_more, ..Rollback::default() })
        };
        let script = Script::default()
            .answers("rollback_to", step(5, 2, true))
            .answers("rollback_to", step(5, 0, true))
            .answers("rollback_to", step(3, u64::MAX, false));
        let client = Client::new(script);
        assert_eq!(block_on(client.roll_back_to(3)).unwrap().removed, u64::MAX);
        client.transport().ended();
    }

    #[test]
    fn rollback_is_not_repeated_once_its_block_is_the_head() {
        let step = Rollback { head: 3, removed: 2, has_more: true, ..Rollback::default() };
        let client = Client::new(Script::default().answers("rollback_to", Ok::<_, RollbackError>(step.clone())));
        assert_eq!(block_on(client.roll_back_to(3)).unwrap(), step);
        client.transport().ended();
    }

    #[test]
    fn upload_of_the_same_transaction_in_another_form_is_replaced() {
        type Begun = Result<UploadProgress, TransactionUploadError>;
        let other = |txid: u8| Begun::Err(TransactionUploadError::OtherUpload { txid: Txid::from([txid]) });
        let script = Script::default()
            .answers("utxo_begin_transaction", other(1))
            .answers("utxo_abort_transaction", Ok::<_, TransactionUploadError>(true))
            .answers("utxo_begin_transaction", Begun::Ok(UploadProgress { chunks: 1, missing: 1 }))
            .answers("utxo_put_transaction_chunk", Begun::Ok(UploadProgress { chunks: 1, missing: 0 }));
        let client = Client::new(script);
        block_on(client.upload_transaction(&Txid::from([1]), &[2])).unwrap();
        client.transport().ended();
        let client = Client::new(Script::default().answers("utxo_begin_transaction", other(9)));
        let error = block_on(client.upload_transaction(&Txid::from([1]), &[2])).unwrap_err();
        assert!(matches!(error, Error::Refused(TransactionUploadError::OtherUpload { .. })), "{error:?}");
    }
}
