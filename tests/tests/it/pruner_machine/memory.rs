//! Full memory: the cap is set to the canister's current size, and the rest is filled. Then operations may be refused, and change nothing;
//! the pruner still works.

use super::Outcome;
use super::jobs::Cause;
use super::machine::Machine;
use super::operations::block_id;
use coppice_model::ensure;
use coppice_model::records::Setting;
use coppice_tests::blocks::id;
use coppice_tests::coppice::Who;
use ic_coppice_interface::*;
use serde_bytes::ByteBuf;

/// Pages of 64 KiB: the fewest that a canister starts with, and the most.
const PAGES: (u64, u64) = (5_120, 8_192_000);
/// Outputs of the largest record that fills memory.
const FILL: usize = 200_000;

/// The records that fill memory, besides the family.
#[derive(Clone, Copy, Debug, Default)]
pub struct Fillers {
    pub records: u64,
    pub pages: u64,
}

/// Returns whether an answer reports full memory.
pub fn is_refused(answer: &impl std::fmt::Debug) -> bool {
    let answer = format!("{answer:?}");
    ["OutOfSpace", "RecordsFull"].iter().any(|refusal| answer.contains(refusal))
}

impl Machine {
    pub fn memory(&mut self, full: bool) -> Outcome {
        let billed = self.coppice.storage().billed_bytes >> 16;
        // The reference has unlimited memory.
        if billed == 0 || full == self.full {
            return Ok(());
        }
        self.note(format!("memory is full: {full}"));
        let pages = if full { billed.max(PAGES.0) } else { PAGES.1 };
        let change = ConfigChange { max_stable_pages: Some(pages), ..ConfigChange::default() };
        let set: Result<Config, ConfigError> = self.call(Who::Controller, "set_config", (change,))?;
        ensure!(set.is_ok(), "{set:?}");
        self.full = full;
        self.was_full |= full;
        if full {
            self.seen("memory is full");
            let page = self.settings.utxo.utxo_batch_size;
            self.set(Setting::Page(20_000))?;
            self.fill()?;
            self.set(Setting::Page(page))?;
        }
        self.look(Cause::Nothing)
    }

    /// Makes smaller and smaller records that no step touches, until none fits.
    fn fill(&mut self) -> Outcome {
        let mut outputs = FILL;
        while outputs > 0 {
            let number = 0xF111_0000 + self.fillers.records;
            let blob_key = ByteBuf::from(number.to_le_bytes());
            let store = ExternalStore { blob_key, file_type: FileType::Outputs, store_type: StoreType::Tx };
            let source = TransactionSource::External(ExternalTransaction {
                txid: id(number).into(),
                store,
                coinbase: false,
                version: 1,
                lock_time: 0,
                size: 9,
                inputs: Vec::new(),
                utxo_hashes: vec![None; outputs],
            });
            let block = BlockRef { block_id: block_id(self.tip, 0), height: self.tip, subtree: 1 };
            let mined = Some(MinedIn { blocks: vec![block], on_longest_chain: true });
            let item = UtxoCreate { source, mined, locked: Some(true), conflicting: false, fee: None, is_new: false };
            let batch = UtxoCreateBatch { height: self.tip, items: vec![item] };
            let made: Batch<Result<UtxoCreated, UtxoCreateError>> =
                self.call(Who::Producer, "utxo_create", (batch,))?;
            match &made.results[..] {
                [Ok(made)] => {
                    self.fillers.records += 1;
                    self.fillers.pages += u64::from(made.extra_pages);
                }
                [
                    Err(
                        UtxoCreateError::NoMemory(NoMemory::OutOfSpace)
                        | UtxoCreateError::NoMemory(NoMemory::RecordsFull { .. }),
                    ),
                ] => outputs /= 4,
                other => return Err(format!("memory is filled, and {other:?}")),
            }
            self.look(Cause::Nothing)?;
        }
        Ok(())
    }
}
