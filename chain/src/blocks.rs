//! Kept blocks and their notes, as `ic_coppice_records` reads them (the trait [`Blocks`]).

use super::store::ChainStore;
use ic_coppice_interface::blocks::{Blocks, KeptBlock, Note};
use ic_coppice_interface::segments::Segment;
use ic_coppice_interface::{BlockHash, ReadError};
use ic_coppice_storage::blob::BlobStore;

impl Blocks for ChainStore {
    fn kept(&self, number: u64) -> Result<KeptBlock, ReadError> {
        let meta = self.find(number)?;
        let body = u64::from(meta.lengths[Segment::Body.index()]);
        Ok(KeptBlock { number, body, transactions: meta.transactions })
    }

    fn hash_of(&self, number: u64) -> BlockHash {
        self.hash(number).unwrap_or_default().to_bytes()
    }

    fn bytes(&self, blobs: &BlobStore, number: u64, part: (Segment, u64, u64)) -> Result<Vec<u8>, ReadError> {
        Ok(self.read_part(blobs, &self.find(number)?, part)?.into_vec())
    }

    fn note(&self, number: u64) -> Option<Note> {
        let kept = self.state.started && (self.state.oldest..self.state.next).contains(&number);
        if kept { self.headers.note(number) } else { None }
    }

    fn set_note(&mut self, number: u64, note: Option<&Note>) {
        self.headers.set_note(number, note);
    }

    fn rolling_back_to(&self) -> Option<u64> {
        self.state.rollback_to
    }
}
