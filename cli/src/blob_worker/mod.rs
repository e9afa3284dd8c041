//! `coppice blob-worker`: deletes what the canister's deletion queue hands out, from S3 or a file system.
//!
//! ```text
//!  canister ── lease ──▶ run ── rows ──▶ work ──▶ store ──▶ S3, a directory      requests side by side, each shorter than the lease
//!      ▲                  │               │         ├ layout: a blob's path
//!      └── what is gone ──┴── outcome ────┘         └ marker: whose blobs these are
//! ```
//! As many processes as one likes work on one queue, as rows that one has leased are with it alone. `docs/blob-deletion.md` says how many,
//! what they cost and what to alert on.

pub mod args;
pub mod layout;
pub mod lease;
pub mod log;
pub mod marker;
pub mod place;
pub mod run;
#[cfg(feature = "s3")]
mod s3;
pub mod store;
pub mod times;
pub mod work;

use crate::client::{Client, Reach as _, Wait as _, is_passing};
use crate::exit::{Exit, WRONG_LINE};
use crate::network::{Network, NetworkArgs};
use crate::report::{count, print_fields, seconds_since};
use crate::stop::{INTERRUPTED, Stop};
use anyhow::Result;
use args::{BlobWorkerArgs, Init, StoreArgs};
use candid::Principal;
use log::Log;
use run::{Figures, NOT_ALL, Run};
use serde::Serialize;
use std::sync::Arc;
use std::time::Instant;
use store::Stores;
use work::Worker;

/// The report that a command prints at its end.
#[derive(Clone, Debug, Serialize)]
pub struct Printed<T> {
    /// The command: "blob-worker", and what it was to do.
    pub command: &'static str,
    /// The canister.
    pub canister: Principal,
    /// The stores.
    pub stores: Vec<String>,
    /// Wall-clock seconds.
    pub seconds: f64,
    /// The outcome.
    #[serde(flatten)]
    pub what: T,
}

/// What `init` did.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Marked {
    /// Stores that have got a marker, or a new one.
    pub marked: Vec<String>,
    /// Stores that had it.
    pub had: Vec<String>,
}

/// Does what the command line says.
///
/// # Errors
/// [`Exit`] with the code that the options' help names, or what stands in the way of beginning.
pub fn command(args: &BlobWorkerArgs) -> Result<()> {
    match &args.command {
        Some(Init::Init(args)) => init(args),
        None => work(args),
    }
}

fn connect(args: &NetworkArgs) -> Result<Client<Network>> {
    let no_network = || Exit::error(WRONG_LINE, "--network and --canister say where the canister is");
    args.connect()?.ok_or_else(no_network)
}

/// Writes the markers.
fn init(args: &StoreArgs) -> Result<()> {
    let began = Instant::now();
    let stores = Stores::open(&args.stores, args.layout, times::INIT)?;
    let client = connect(&args.network)?;
    client.transport().limit(Arc::new(move || began.elapsed() >= times::INIT));
    // A canister that does not answer this identity is not the one that is meant. Whether it has the role, the first lease shows.
    let what = "asking for the queue's status";
    let status = client.replicated().get_blob_deletion_status().wait();
    status.map_err(|error| if is_passing(&error) { error.context(what) } else { run::refused(what, error) })?;
    let (canister, named) = (client.transport().canister(), stores.names());
    let what = mark(&Worker::new(stores, canister, 1)?)?;
    let seconds = seconds_since(began);
    print_fields(&Printed { command: "blob-worker init", canister, stores: named, seconds, what }, args.json)
}

/// Marks the stores of a worker as its canister's. Answers which it has marked.
///
/// # Errors
/// As [`marker::mark`].
pub fn mark(worker: &Worker) -> Result<Marked> {
    let mut report = Marked::default();
    for store in &worker.stores.0 {
        let is_new = worker.wait_for(marker::mark(store, worker.canister))?;
        if is_new { &mut report.marked } else { &mut report.had }.push(store.url.to_string());
    }
    Ok(report)
}

fn work(args: &BlobWorkerArgs) -> Result<()> {
    let began = Instant::now();
    let (options, json) = (args.options.clone(), args.stores.json);
    let stores = Stores::open(&args.stores.stores, args.stores.layout, times::REQUEST.of(options.lease))?;
    let named = stores.names();
    let stop = Stop::on_signals()?;
    let log = Log::new()?;
    let client = connect(&args.stores.network)?;
    let canister = client.transport().canister();
    let run = Run::new(&client, Worker::new(stores, canister, args.parallel.into())?, options, &stop, &log);
    if args.dry_run {
        let looked = run::dry_run(&run)?;
        drop(run);
        drop(log);
        let interrupted = || Exit::error(INTERRUPTED, "it was ended before it knew what would be deleted");
        let (command, what) = ("blob-worker --dry-run", looked.ok_or_else(interrupted)?);
        return print_fields(&Printed { command, canister, stores: named, seconds: seconds_since(began), what }, json);
    }
    let ended = run.run();
    let what = run.figures();
    drop(run);
    drop(log);
    let done = all_done(&what);
    // How it ended is told by the code even where nobody reads what it did.
    let (command, seconds) = ("blob-worker", seconds_since(began));
    let printed = print_fields(&Printed { command, canister, stores: named, seconds, what }, json);
    ended.and(done).and(printed)
}

/// Whether a run that was to end by itself has done all that it found.
///
/// # Errors
/// [`Exit`] with [`NOT_ALL`].
pub fn all_done(figures: &Figures) -> Result<()> {
    if figures.undone == 0 {
        return Ok(());
    }
    Err(Exit::error(NOT_ALL, format!("blobs of which it is not known that they are gone: {}", count(figures.undone))))
}

#[cfg(test)]
mod tests;
