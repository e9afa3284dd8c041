//! Reads blocks and transactions of any size, in as many parts as needed.

use crate::{CallError, Client, Error, Failure, Transport};
use ic_coppice_interface::*;
use serde_bytes::ByteBuf;

/// The three segments of a block: body, receipts, index.
pub type Segments = [Vec<u8>; 3];

impl<T: Transport> Client<T> {
    /// Returns a block's header and payload, whatever its size: by `get_block`, or by `read_segment` in parts if no reply holds the block.
    ///
    /// The parts are read one after the other. If a rollback replaces the block in between, the parts may belong to different blocks.
    /// Compare with the header's SHA-256.
    ///
    /// # Errors
    /// When the canister has no such block, there is no answer, a part comes back empty, or a segment's length changes.
    pub async fn whole_block(&self, number: u64) -> Result<(BlockHeader, Segments), Error<ReadError>> {
        match self.get_block(number).await {
            Ok(Block { header, body, receipts, index }) => {
                return Ok((header, [body, receipts, index].map(ByteBuf::into_vec)));
            }
            Err(Error::Refused(ReadError::TooLarge { .. })) => {}
            Err(error) => return Err(error),
        }
        let header = self.header(number).await?;
        let mut segments = Segments::default();
        for (index, segment) in (0u8..).zip(&mut segments) {
            let mut total = None;
            while total != Some(segment.len() as u64) {
                let part = self.read_segment(number, index, segment.len() as u64, u64::MAX).await?;
                append("read_segment", segment, &part.bytes, &mut total, part.total)?;
            }
        }
        Ok((header, segments))
    }

    /// Returns the header of a kept block.
    ///
    /// # Errors
    /// When the canister has no such block, or there is no answer.
    pub async fn header(&self, number: u64) -> Result<BlockHeader, Error<ReadError>> {
        let page = self.get_block_headers(number, number).await?;
        page.headers.into_iter().next().ok_or_else(|| {
            let error = candid::Error::msg("a page without the block that it begins with");
            CallError { method: "get_block_headers".into(), failure: Failure::Answer(error) }.into()
        })
    }

    /// Returns a transaction's bytes, or those of its outputs.
    ///
    /// # Errors
    /// When the canister does not have them, there is no answer, a part comes back empty, or the length changes.
    pub async fn whole_transaction(&self, txid: &Txid) -> Result<(FileType, Vec<u8>), Error<UtxoError>> {
        let (mut bytes, mut total) = (Vec::new(), None);
        loop {
            let part = UtxoGetPart {
                txid: txid.clone(),
                part: UtxoPart::Transaction,
                offset: bytes.len() as u64,
                length: u64::MAX,
            };
            let part = self.utxo_get_transaction(&part).await?;
            append("utxo_get_transaction", &mut bytes, &part.bytes, &mut total, part.total)?;
            if total == Some(bytes.len() as u64) {
                return Ok((part.file_type, bytes));
            }
        }
    }
}

/// Appends a part, if it makes progress and belongs to the same whole. `reported` is the whole's length by this answer.
fn append(
    method: &str,
    bytes: &mut Vec<u8>,
    part: &[u8],
    total: &mut Option<u64>,
    reported: u64,
) -> Result<(), CallError> {
    let (before, whole) = (bytes.len() as u64, *total.get_or_insert(reported));
    bytes.extend_from_slice(part);
    let after = bytes.len() as u64;
    if reported == whole && after <= whole && (after > before || after == whole) {
        return Ok(());
    }
    let why = format!("{} bytes at {before} of {reported}, which was {whole} before", part.len());
    Err(CallError { method: method.into(), failure: Failure::Transport(why.into()) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Script, block_on};

    fn too_large() -> Script {
        let header = BlockHeader {
            number: 7,
            hash: [1; 32].into(),
            parent_hash: Some([0; 32].into()),
            timestamp_secs: 0,
            monotonic_timestamp_secs: 0,
            transactions: 0,
            keys: 0,
            lengths: [5, 0, 2].into(),
            sha256: BySegment::default(),
            seal: ByteBuf::default(),
        };
        Script::default()
            .answers("get_block", Err::<Block, _>(ReadError::TooLarge { size: 9, limit: 4 }))
            .answers("get_block_headers", Ok::<_, ReadError>(HeaderPage { headers: vec![header], next: None }))
    }

    fn part(bytes: &[u8], total: u64) -> Result<SegmentPart, ReadError> {
        Ok(SegmentPart { bytes: ByteBuf::from(bytes), total })
    }

    #[test]
    fn block_too_large_for_a_reply_is_read_in_parts() {
        let parts = [part(&[1; 3], 5), part(&[2; 2], 5), part(&[], 0), part(&[3; 2], 2)];
        let script = parts.into_iter().fold(too_large(), |script, part| script.answers("read_segment", part));
        let client = Client::new(script);
        let (header, read) = block_on(client.whole_block(7)).unwrap();
        assert_eq!((header.number, read), (7, [vec![1, 1, 1, 2, 2], Vec::new(), vec![3, 3]]));
        client.transport().ended();
    }

    #[test]
    fn part_without_progress_or_of_another_length_stops_the_read() {
        let whole = [
            vec![part(&[], 5)],
            vec![part(&[1; 6], 5)],
            vec![part(&[1; 3], 5), part(&[], 5)],
            vec![part(&[1; 3], 5), part(&[1; 3], 6)],
            vec![part(&[1; 3], 5), part(&[], 3)],
        ];
        for parts in whole {
            let script = parts.into_iter().fold(too_large(), |script, part| script.answers("read_segment", part));
            let client = Client::new(script);
            assert!(matches!(block_on(client.whole_block(7)), Err(Error::Call(_))));
            client.transport().ended();
        }
        let gone = ReadError::Pruned { first_available: 9 };
        let client = Client::new(too_large().answers("read_segment", Err::<SegmentPart, _>(gone.clone())));
        let error = block_on(client.whole_block(7)).unwrap_err();
        assert!(matches!(&error, Error::Refused(why) if *why == gone), "{error:?}");
    }
}
