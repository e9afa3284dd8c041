//! Functions that only the bench calls.

use crate::ChainStore;
use ic_coppice_interface::segments::{Index, Segment};
use ic_coppice_storage::blob::BlobStore;

impl ChainStore {
    /// Bytes of the buckets of the transaction index.
    pub fn index_bytes(&self) -> u64 {
        self.index.pages() * 4_096
    }

    /// Baseline for measuring sweeps: removes the entries of the oldest block one by one. Returns the number of entries.
    ///
    /// # Errors
    /// A sentence: the block's index segment cannot be read.
    pub fn remove_one_by_one(&mut self, blobs: &BlobStore) -> Result<u64, String> {
        let meta = self.headers.meta(self.state.oldest).ok_or("no block")?;
        let range = meta.segment_start(Segment::Index)..meta.payload_end();
        let bytes = self.log.read(blobs, range).map_err(|error| error.to_string())?;
        let index = Index::parse(&bytes).map_err(|error| error.why)?;
        let mut removed = 0;
        for (position, id) in (0..).zip(index.ids()) {
            let (hash, posting) = (self.id_hash(id), self.index_value(meta.number, position));
            removed += u64::from(self.index.remove(hash, posting));
        }
        for (position, key) in (0..).zip(index.each_key()) {
            let (hash, posting) = (self.key_hash(key.bytes), self.index_value(meta.number, position));
            removed += u64::from(self.keys.remove(hash, posting));
        }
        Ok(removed)
    }
}
