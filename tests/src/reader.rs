//! A reader of exports that does what an indexer does, over a plain map, and checks everything that it reads.

use crate::coppice::Coppice;
use ic_coppice_interface::*;
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;

/// The result of a pull.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pulled {
    /// Chunks.
    Some,
    /// Nothing: the reader is at the head.
    Nothing,
    /// A reorg; blocks above the common ancestor are dropped.
    Reorged {
        /// The common ancestor that the canister named.
        common_ancestor: u64,
    },
}

/// The blocks pulled so far.
#[derive(Clone, Debug, Default)]
pub struct Reader {
    /// Whole blocks.
    pub blocks: BTreeMap<u64, AppendBlock>,
    /// The block that is not whole yet.
    partial: Option<(AppendBlock, u8)>,
    cursor: Option<ExportCursor>,
}

impl Reader {
    /// A reader that resumes at a cursor.
    pub fn resume(cursor: Option<ExportCursor>) -> Self {
        Self { cursor, ..Self::default() }
    }

    /// Pulls one page.
    ///
    /// # Panics
    /// If a chunk is out of order or does not match its digest, or if the next block was pruned, which must not happen to an exporter.
    pub fn pull(&mut self, coppice: &Coppice, max_bytes: u64) -> Pulled {
        let page = match coppice.export(self.cursor.clone(), max_bytes) {
            Ok(page) => page,
            Err(ExportError::Reorged { common_ancestor, cursor }) => {
                self.blocks.retain(|&number, _| number <= common_ancestor);
                if let Some(block) = self.blocks.get(&common_ancestor) {
                    assert_eq!(block.hash, cursor.hash, "it is a common ancestor");
                }
                (self.partial, self.cursor) = (None, Some(cursor));
                return Pulled::Reorged { common_ancestor };
            }
            Err(error) => panic!("export_blocks: {error:?}"),
        };
        if page.chunks.is_empty() {
            assert_eq!(page.cursor, self.cursor, "at the head the cursor stays");
            return Pulled::Nothing;
        }
        page.chunks.into_iter().for_each(|chunk| self.take(chunk));
        self.cursor = page.cursor;
        Pulled::Some
    }

    /// The newest whole block.
    pub fn newest(&self) -> Option<&AppendBlock> {
        let number = match &self.partial {
            None => self.cursor.as_ref()?.number,
            Some((partial, _)) => partial.number.checked_sub(1)?,
        };
        self.blocks.get(&number)
    }

    fn take(&mut self, chunk: ExportChunk) {
        let (mut block, whole) = self.partial.take().unwrap_or_else(|| {
            if let Some(before) = self.newest() {
                assert_eq!(
                    (before.number + 1, &before.hash),
                    (chunk.number, chunk.parent_hash.as_ref().expect("no block is damaged"))
                );
            }
            let block = AppendBlock {
                number: chunk.number,
                hash: chunk.hash.clone(),
                parent_hash: chunk.parent_hash.clone().expect("no block is damaged"),
                timestamp_secs: chunk.timestamp_secs,
                ..AppendBlock::default()
            };
            (block, 0)
        });
        assert_eq!((block.number, &block.hash), (chunk.number, &chunk.hash));
        assert_eq!(whole, chunk.segment, "no segment is left out");
        let segment = match chunk.segment {
            0 => &mut block.body,
            1 => &mut block.receipts,
            _ => &mut block.index,
        };
        assert_eq!(segment.len() as u64, chunk.offset, "no gap and nothing twice");
        segment.extend_from_slice(&chunk.bytes);
        let ends = segment.len() as u64 == chunk.total;
        if ends {
            assert_eq!(Sha256::digest(segment.as_slice())[..], chunk.sha256[..]);
            block.sha256[usize::from(chunk.segment)] = chunk.sha256;
        }
        let number = block.number;
        // A block counts as the newest only now: the page's cursor points after its last chunk.
        match whole + u8::from(ends) {
            3 => {
                let whole = ExportCursor { number, hash: block.hash.clone(), segment: 3, offset: 0, rollbacks: 0 };
                self.cursor = Some(whole);
                self.blocks.insert(number, block);
            }
            whole => self.partial = Some((block, whole)),
        }
    }
}
