//! Calls of the record store, together with the settings and stores that it needs.

use super::State;
use crate::platform;
use coppice_chain::ChainStore;
use coppice_interface::Batch;
use coppice_records::RecordStores;
use coppice_records::external::Records;
use coppice_records::utxo::{BatchItem, Call, UtxoStore};

impl State {
    /// Returns the kept blocks, and the record store with the stores it needs, for a call that names a height.
    pub fn records_at(&mut self, height: u32) -> (&ChainStore, Records<'_>, Call<'_>) {
        let Self { records, blobs, config, chain, .. } = self;
        let RecordStores { utxo, applier, deletions, pruner } = records;
        let settings = &config.utxo;
        let call = Call {
            height,
            now_ns: platform::time_ns(),
            settings,
            most: pruner.most_height(),
            missing: applier.missing(),
        };
        (chain, Records { utxo, blobs, deletions, settings }, call)
    }

    /// Runs a batch of operations of the record store, for a call that names a height.
    pub fn batch<I: BatchItem<Result<T, E>>, T, R, E: From<R>>(
        &mut self,
        height: u32,
        items: &[I],
        mut each: impl FnMut(&mut UtxoStore, &I, &Call) -> Result<T, R>,
    ) -> Batch<Result<T, E>> {
        let (_, Records { utxo, .. }, call) = self.records_at(height);
        utxo.batch(items, |store, item| each(store, item, &call).map_err(E::from))
    }
}
