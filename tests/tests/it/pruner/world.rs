//! A canister with records that are pruned soon, and short names for operations on them.

use crate::utxo::{all_ok, configure, create, get, set_mined, spend};
use coppice_tests::client::Answered;
use coppice_tests::coppice::Coppice;
use coppice_tests::transactions::Tx;
use ic_coppice_interface::*;
use std::ops::Range;

/// Blocks for which a finished record is kept. Half of it, 5, is `unmined_tx_retention`.
pub const RETENTION: u32 = 10;
/// Seconds between two ticks.
pub const TICK: u64 = 10;
/// `parent_preservation_blocks`.
pub const PRESERVATION: u32 = 1_440;

/// A canister with its producer and its operator.
pub struct World {
    /// The canister.
    pub coppice: Coppice,
}

/// Returns whether each of these is `Some`.
pub fn which<T>(all: impl IntoIterator<Item = Option<T>>) -> Vec<bool> {
    all.into_iter().map(|one| one.is_some()).collect()
}

/// Transactions with one output, without parents that have a record.
pub fn orphans(salts: Range<u64>) -> Vec<Tx> {
    salts.map(|salt| Tx::orphan(salt, 1)).collect()
}

/// A transaction that spends an output and has no spendable outputs.
pub fn last_of(parent: &Tx, vout: u32) -> Tx {
    Tx::new(&[(parent.txid, vout)], &[(0, vec![0x6A])])
}

/// The transaction that [`World::spend_by_stranger`] names as the spender of a transaction's outputs.
pub fn stranger(of: &Tx) -> [u8; 32] {
    std::array::from_fn(|i| of.txid[31 - i])
}

impl World {
    /// Keeps records for [`RETENTION`] blocks, with the block assembly running.
    pub fn new() -> Self {
        Self::on(Coppice::new())
    }

    /// As [`World::new`], on an existing canister.
    pub fn on(coppice: Coppice) -> Self {
        let world = Self { coppice };
        world.retention(RETENTION);
        world.assembly(UtxoBlockAssemblyState::Running);
        world
    }

    /// A canister with default settings.
    pub fn as_installed() -> Self {
        Self { coppice: Coppice::new() }
    }

    /// `set_config` for records.
    pub fn configure(&self, change: UtxoSettingsChange) {
        configure(&self.coppice, change).unwrap();
    }

    /// `block_height_retention`.
    pub fn retention(&self, blocks: u32) {
        self.configure(UtxoSettingsChange { block_height_retention: Some(blocks), ..Default::default() });
    }

    /// `utxo_set_pruner_settings`.
    pub fn try_set(&self, change: UtxoPrunerSettingsChange) -> Result<UtxoPrunerSettings, UtxoPrunerError> {
        self.coppice.operator().utxo_set_pruner_settings(&change).answer()
    }

    /// `utxo_set_pruner_settings`, which must succeed.
    pub fn set(&self, change: UtxoPrunerSettingsChange) -> UtxoPrunerSettings {
        self.try_set(change).unwrap()
    }

    /// `utxo_get_pruner_status`.
    pub fn settings(&self) -> UtxoPrunerSettings {
        self.coppice.anyone().utxo_get_pruner_status().answer().settings
    }

    /// Limits a tick to one step: to preserve the parents of a record, or to delete it.
    pub fn slow(&self) {
        self.set(UtxoPrunerSettingsChange { max_instructions_per_tick: Some(1), ..Default::default() });
    }

    /// `utxo_set_block_assembly_state`.
    pub fn assembly(&self, state: UtxoBlockAssemblyState) {
        self.coppice.producer().utxo_set_block_assembly_state(state, None).answer()
    }

    /// As [`World::assembly`], running, with its height.
    pub fn assembly_at(&self, height: u32) {
        let running = UtxoBlockAssemblyState::Running;
        self.coppice.producer().utxo_set_block_assembly_state(running, Some(height)).answer()
    }

    /// Makes unmined records with spendable outputs.
    pub fn create(&self, height: u32, txs: &[&Tx]) {
        all_ok(create(&self.coppice, height, txs.iter().map(|tx| tx.record()).collect()));
    }

    /// Mines transactions in a block of this height, with the height as its id.
    pub fn mine(&self, height: u32, txs: &[&Tx]) {
        all_ok(set_mined(&self.coppice, height, height, txs, false));
    }

    /// Removes transactions from the block with this id.
    pub fn unmine(&self, height: u32, block_id: u32, txs: &[&Tx]) {
        all_ok(set_mined(&self.coppice, height, block_id, txs, true));
    }

    /// `utxo_spend` of the outputs of these parents that the transaction's inputs name.
    pub fn try_spend(&self, height: u32, spender: &Tx, parents: &[&Tx]) -> Result<u32, Vec<RefusedSpend>> {
        let of = |(vin, (txid, vout)): (u32, &([u8; 32], u32))| {
            let parent = parents.iter().find(|parent| parent.txid == *txid)?;
            Some(parent.spend(*vout, vin))
        };
        let spends: Vec<Spend> = (0..).zip(&spender.inputs).filter_map(of).collect();
        assert!(!spends.is_empty(), "it spends from none of the parents");
        let batch = spend(&self.coppice, height, vec![TransactionSpends { spender: spender.id(), spends }]);
        batch.results.into_iter().next().unwrap()
    }

    /// `utxo_spend`, which must succeed.
    pub fn spend(&self, height: u32, spender: &Tx, parents: &[&Tx]) {
        self.try_spend(height, spender, parents).unwrap();
    }

    /// Spends these outputs by [`stranger`]s, who have no record.
    pub fn spend_by_stranger(&self, height: u32, tx: &Tx, vouts: Range<u32>) {
        let spends = vouts.map(|vout| tx.spend(vout, vout)).collect();
        let spender = stranger(tx).into();
        all_ok(spend(&self.coppice, height, vec![TransactionSpends { spender, spends }]));
    }

    /// Makes records that are mined and spent at a height, and due [`RETENTION`] blocks later.
    pub fn make_spent(&self, height: u32, txs: &[Tx]) {
        let all: Vec<&Tx> = txs.iter().collect();
        self.create(height, &all);
        self.mine(height, &all);
        txs.iter().for_each(|tx| self.spend_by_stranger(height, tx, 0..tx.outputs.len() as u32));
    }

    /// The record, if there is one.
    pub fn record(&self, tx: &Tx) -> Option<UtxoRecord> {
        match get(&self.coppice, tx) {
            Ok(record) => Some(record),
            Err(UtxoError::TxNotFound) => None,
            Err(error) => panic!("{error:?}"),
        }
    }

    /// Returns whether each of them has a record.
    pub fn have_records(&self, txs: &[Tx]) -> Vec<bool> {
        which(txs.iter().map(|tx| self.record(tx)))
    }

    /// The number of them that have a record.
    pub fn count(&self, txs: &[Tx]) -> usize {
        self.have_records(txs).into_iter().filter(|there| *there).count()
    }

    /// The `delete_at_height` and `preserve_until` of a record.
    pub fn heights(&self, tx: &Tx) -> (Option<u32>, Option<u32>) {
        let record = self.record(tx).expect("it has a record");
        (record.delete_at_height, record.preserve_until)
    }

    /// `utxo_notify_block_persisted`.
    pub fn persisted(&self, height: u32) -> UtxoNotifyOutcome {
        self.coppice.producer().utxo_notify_block_persisted(height).answer().unwrap()
    }

    /// `utxo_notify_block`.
    pub fn block(&self, height: u32, mined_set: bool) -> UtxoNotifyOutcome {
        let reply = self.coppice.producer().utxo_notify_block(height, mined_set).try_answer();
        reply.unwrap().unwrap()
    }

    /// The job that a trigger made.
    pub fn scheduled(trigger: UtxoNotifyOutcome) -> UtxoPruneJob {
        match trigger {
            UtxoNotifyOutcome::Scheduled(job) => job,
            other => panic!("{other:?}"),
        }
    }

    /// Lets the timer fire `times` times.
    pub fn ticks(&self, times: u32) {
        (0..times).for_each(|_| self.coppice.pass(TICK));
    }

    /// Notifies a persisted block, and runs the job for it to its end.
    pub fn prune(&self, height: u32) -> UtxoPruneJob {
        let job = Self::scheduled(self.persisted(height));
        self.finish(job.id)
    }

    /// Runs a job to its end.
    pub fn finish(&self, id: u64) -> UtxoPruneJob {
        for _ in 0..200 {
            self.ticks(1);
            if let Some(job) = self.status().last_job.filter(|job| job.id == id) {
                assert_eq!((job.state, &job.end), (UtxoJobState::Completed, &None));
                return job;
            }
        }
        panic!("job {id} does not end: {:?}", self.status());
    }

    /// `utxo_prune`.
    pub fn prune_manually(&self, height: u32) -> Result<UtxoPruneJob, UtxoPrunerError> {
        self.coppice.operator().utxo_prune(height).answer()
    }

    /// `utxo_get_pruner_status`.
    pub fn status(&self) -> UtxoPrunerStatus {
        self.coppice.anyone().utxo_get_pruner_status().answer()
    }

    /// The last job that ended.
    pub fn last(&self) -> UtxoPruneJob {
        self.status().last_job.expect("a job ended")
    }

    /// `utxo_list_prune_jobs`.
    pub fn page(&self, cursor: Option<u64>, limit: u32) -> UtxoPruneJobPage {
        self.coppice.anyone().utxo_list_prune_jobs(cursor, limit).answer()
    }

    /// All jobs, in the order of the list.
    pub fn jobs(&self) -> Vec<UtxoPruneJob> {
        let UtxoPruneJobPage { jobs, cursor } = self.page(None, 500);
        assert_eq!(cursor, None);
        jobs
    }

    /// A metric, with the value of its only label if it has one.
    pub fn metric(&self, name: &str, label: Option<&str>) -> f64 {
        let metrics = self.status().metrics;
        let is =
            |metric: &&Metric| metric.name == name && metric.labels.iter().map(|label| label.value.as_str()).eq(label);
        metrics.iter().find(is).unwrap_or_else(|| panic!("{name} {label:?}")).value
    }

    /// `pruner_skipped_total` with this reason.
    pub fn skipped(&self, reason: &str) -> f64 {
        self.metric("pruner_skipped_total", Some(reason))
    }

    /// `health`.
    pub fn health(&self) -> Health {
        self.coppice.health()
    }
}
