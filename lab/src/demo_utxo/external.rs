//! Transactions in external blobs: files of a directory, which a blob worker deletes after the records were pruned.

use super::blocks::Made;
use super::ledger::{Entry, Ledger};
use anyhow::{Context, Result, ensure};
use bitcoin::consensus::encode::serialize;
use bitcoin::hashes::Hash;
use candid::Principal;
use ic_coppice_cli::blob_worker;
use ic_coppice_cli::blob_worker::layout::Layout;
use ic_coppice_cli::blob_worker::log::Log;
use ic_coppice_cli::blob_worker::options::Options;
use ic_coppice_cli::blob_worker::place::Place;
use ic_coppice_cli::blob_worker::run::Run;
use ic_coppice_cli::blob_worker::store::Store;
use ic_coppice_cli::blob_worker::stores::Stores;
use ic_coppice_cli::blob_worker::work::Worker;
use ic_coppice_cli::client::{CanisterClient, Client, Wait};
use ic_coppice_cli::stop::Stop;
use ic_coppice_interface::*;
use serde::Serialize;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Fewest outputs of a transaction that is external; coinbases never are.
const OUTPUTS: usize = 3;
/// Seconds of a lease.
const LEASE: Duration = Duration::from_secs(300);

/// Figures of the external transactions.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ExternalFigures {
    /// Files that were written.
    pub written: u64,
    /// Blobs that the worker deleted.
    pub deleted: u64,
    /// Leases used for deleting.
    pub leases: u64,
    /// Files that are left, those of existing records.
    pub left: u64,
}

/// The directory and its worker.
pub struct External<'a, C> {
    directory: PathBuf,
    worker: Run<'a, C>,
    /// The transactions of the files that were written.
    written: BTreeSet<bitcoin::Txid>,
}

impl<'a, C: CanisterClient> External<'a, C> {
    /// Creates a worker on a directory, marks the directory, and grants the worker's role.
    ///
    /// # Errors
    /// When the directory cannot be used, or the canister does not grant the role.
    pub fn new(
        client: &'a Client<C>,
        canister: Principal,
        directory: &Path,
        stop: &'a Stop,
        log: &'a Log,
    ) -> Result<Self> {
        let principal = client.transport().principal(Role::BlobWorker);
        client.grant_role(&Grant { principal, role: Role::BlobWorker }).done()?;
        let url = url::Url::from_directory_path(directory).ok().context("the directory has no URL")?;
        let place: Place = format!("tx/tx={url}").parse().map_err(anyhow::Error::msg)?;
        let stores = Stores::open(&[place], Layout::Teranode, Store::directory)?;
        let worker = Worker::new(stores, canister, 16)?;
        blob_worker::mark(&worker)?;
        let options = Options {
            // No blocks between due and deleted, because the ledger expects due blobs to be deleted at once.
            safety_window: 0,
            batch: 1_000,
            lease: LEASE,
            max_retries: 5,
            once: false,
            until_empty: true,
            poll: Duration::from_secs(1),
            ask: Duration::from_secs(600),
            max_wait: Duration::from_secs(1),
        };
        let worker = Run::new(client, worker, options, stop, log);
        Ok(Self { directory: directory.to_path_buf(), worker, written: BTreeSet::new() })
    }

    /// Returns whether a transaction is external.
    pub fn takes(transaction: &bitcoin::Transaction) -> bool {
        !transaction.is_coinbase() && transaction.output.len() >= OUTPUTS
    }

    /// Writes a transaction's file, if it is external. Returns the source of its record in place of the bytes.
    ///
    /// # Errors
    /// When its file cannot be written.
    pub fn put(&mut self, made: &Made, entry: &Entry) -> Result<Option<ExternalTransaction>> {
        let transaction = &made.transaction;
        if !Self::takes(transaction) {
            return Ok(None);
        }
        let bytes = serialize(transaction);
        let file = self.directory.join(format!("{}.tx", entry.txid));
        std::fs::write(&file, &bytes).with_context(|| format!("cannot write {}", file.display()))?;
        self.written.insert(entry.txid);
        let txid = Txid::from(entry.txid.to_byte_array());
        let spent = |input: &bitcoin::TxIn| Outpoint {
            txid: input.previous_output.txid.to_byte_array().into(),
            vout: input.previous_output.vout,
        };
        Ok(Some(ExternalTransaction {
            txid: txid.clone(),
            store: ExternalStore { blob_key: txid.into(), file_type: FileType::Tx, store_type: StoreType::Tx },
            coinbase: false,
            version: transaction.version.0 as u32,
            lock_time: transaction.lock_time.to_consensus_u32(),
            size: bytes.len() as u64,
            inputs: transaction.input.iter().map(spent).collect(),
            utxo_hashes: entry
                .outputs
                .iter()
                .map(|output| output.as_ref().map(|output| UtxoHash::from(output.hash)))
                .collect(),
        }))
    }

    /// Lets the worker delete blobs until the queue hands out none.
    ///
    /// # Errors
    /// As [`Run::run`]; when a blob could not be deleted, or was not there.
    pub fn work(&mut self) -> Result<()> {
        self.worker.run()?;
        let figures = self.worker.figures();
        ensure!(
            (figures.failed, figures.left, figures.late, figures.unknown, figures.absent) == (0, 0, 0, 0, 0),
            "the blob worker should have deleted everything: {figures:?}"
        );
        Ok(())
    }

    /// Compares the directory with the ledger: it must have a file for each existing record, and no other.
    ///
    /// # Errors
    /// When a file is missing, or should have been deleted.
    pub fn verify(&self, ledger: &Ledger) -> Result<ExternalFigures> {
        let files =
            std::fs::read_dir(&self.directory)?.map(|file| Ok(file?.file_name().to_string_lossy().into_owned()));
        let mut files: BTreeSet<String> = files.collect::<Result<_>>()?;
        files.retain(|name| name != blob_worker::MARKER);
        let kept = ledger.entries().filter(|(_, entry)| !entry.deleted && self.written.contains(&entry.txid));
        let expected: BTreeSet<String> = kept.map(|(_, entry)| format!("{}.tx", entry.txid)).collect();
        if let Some(file) = expected.symmetric_difference(&files).next() {
            let is = if files.contains(file) { "should be deleted, but exists" } else { "should exist, but does not" };
            anyhow::bail!("{}: {file} {is}", self.directory.display());
        }
        let figures = self.worker.figures();
        ensure!(
            figures.deleted + files.len() as u64 == self.written.len() as u64,
            "{} files were written, {} are left: {figures:?}",
            self.written.len(),
            files.len()
        );
        Ok(ExternalFigures {
            written: self.written.len() as u64,
            deleted: figures.deleted,
            leases: figures.leases,
            left: files.len() as u64,
        })
    }
}
