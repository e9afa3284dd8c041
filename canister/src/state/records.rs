//! Calls of the record store, together with the settings and stores that it needs.

use super::State;
use crate::external::Records;
use crate::platform;
use crate::utxo::{BatchItem, Call, UtxoStore};
use coppice_interface::Batch;

impl State {
    /// Returns the record store and the stores it needs, for a call that names a height.
    pub fn records_at(&mut self, height: u32) -> (Records<'_>, Call<'_>) {
        let (pruner, records) = self.utxo_pruner();
        let call = Call { height, now_ns: platform::time_ns(), settings: records.settings, most: pruner.most_height() };
        (records, call)
    }

    /// Runs a batch of operations of the record store, for a call that names a height.
    pub fn batch<I: BatchItem<Result<T, E>>, T, R, E: From<R>>(
        &mut self,
        height: u32,
        items: &[I],
        mut each: impl FnMut(&mut UtxoStore, &I, &Call) -> Result<T, R>,
    ) -> Batch<Result<T, E>> {
        let (Records { utxo, .. }, call) = self.records_at(height);
        utxo.batch(items, |store, item| each(store, item, &call).map_err(E::from))
    }
}
