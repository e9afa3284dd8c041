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
#[cfg(feature = "s3")]
mod requests;
pub mod run;
pub mod store;
pub mod times;
pub mod work;

use crate::client::{Client, Reach as _, Trials, Wait as _, is_passing};
use crate::exit::{Exit, WRONG_LINE};
use crate::network::{Network, NetworkArgs};
use crate::report::{count, print_fields, seconds_since};
use crate::stop::{ENDING, INTERRUPTED, Stop};
use anyhow::Result;
use args::{BlobWorkerArgs, Init, LogFormat, StoreArgs, WorkArgs};
use log::{Level, Log};
use run::{Figures, NOT_ALL, Run};
use serde::Serialize;
use std::sync::Arc;
use std::time::{Duration, Instant};
use store::Stores;
use work::Worker;

/// The report that a command prints at its end.
#[derive(Clone, Debug, Serialize)]
pub struct Printed<T> {
    /// The command: "blob-worker", and what it was to do.
    pub command: &'static str,
    /// The canister's principal.
    pub canister: String,
    /// The outcome.
    #[serde(flatten)]
    pub what: T,
}

/// The figures of a worker's run.
#[derive(Clone, Debug, Serialize)]
pub struct Worked {
    /// The stores.
    pub stores: Vec<String>,
    /// The outcome.
    #[serde(flatten)]
    pub figures: Figures,
    /// Wall-clock seconds.
    pub seconds: f64,
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
        None => work(&args.work).map_err(|error| match args.work.log_format {
            LogFormat::Text => error,
            // The last line, too, is one of JSON.
            LogFormat::Json => {
                Log::new(LogFormat::Json).note(Level::Error, "ended", &format!("{error:#}"));
                Exit::error(Exit::code_of(&error), "")
            }
        }),
    }
}

/// The client, as soon as the network answers; none where the worker is to end before that.
fn connect(args: &NetworkArgs, stop: &Stop, log: &Log, wait: Duration) -> Result<Option<Client<Network>>> {
    let (mut delays, mut trials) = (run::waits(wait), Trials::default());
    loop {
        match args.connect() {
            Err(error) if trials.go_on(&error) => {
                if stop.is_set() {
                    return Ok(None);
                }
                let delay = delays.next().unwrap_or(wait);
                let why = format!("{error:#}; trying again in {:.1} s", delay.as_secs_f64());
                log.note(Level::Warn, "canister", &why);
                stop.wait(delay);
            }
            result => return result?.ok_or_else(no_network).map(Some),
        }
    }
}

fn no_network() -> anyhow::Error {
    Exit::error(WRONG_LINE, "--network and --canister say where the canister is")
}

/// Writes the markers.
fn init(args: &StoreArgs) -> Result<()> {
    let stores = Stores::open(&args.stores, args.layout, times::INIT)?;
    let client = args.network.connect()?.ok_or_else(no_network)?;
    let began = Instant::now();
    client.transport().limit(Arc::new(move || began.elapsed() >= times::INIT));
    // A canister that does not answer this identity is not the one that is meant. Whether it has the role, the first lease shows.
    let what = "asking for the queue's status";
    let status = client.replicated().get_blob_deletion_status().wait();
    status.map_err(|error| if is_passing(&error) { error.context(what) } else { run::refused(what, error) })?;
    let canister = client.transport().canister();
    let worker = Worker::new(stores, canister, 1)?;
    let canister = canister.to_string();
    print_fields(&Printed { command: "blob-worker init", canister, what: mark(&worker)? }, args.json)
}

/// Marks the stores of a worker as its canister's. Answers which it has marked.
///
/// # Errors
/// As [`marker::mark`].
pub fn mark(worker: &Worker) -> Result<Marked> {
    let mut report = Marked::default();
    for store in worker.stores.all() {
        let is_new = worker.wait_for(marker::mark(store, worker.canister))?;
        if is_new { &mut report.marked } else { &mut report.had }.push(store.url.to_string());
    }
    Ok(report)
}

fn work(args: &WorkArgs) -> Result<()> {
    let started = Instant::now();
    let (options, network, json) = (args.options.clone(), &args.stores.network, args.stores.json);
    if args.log_format == LogFormat::Json {
        log::panics_as_json();
    }
    let stores = Stores::open(&args.stores.stores, args.stores.layout, times::REQUEST.of(options.lease))?;
    let named: Vec<String> = stores.all().iter().map(|store| store.url.to_string()).collect();
    let stop = Stop::on_signals(match args.log_format {
        LogFormat::Text => ENDING,
        LogFormat::Json => r#"{"level":"info","event":"ending","message":"once more ends at once"}"#,
    })?;
    let log = Log::with_progress(args.log_format)?;
    let client = connect(network, &stop, &log, options.max_wait)?;
    let canister = network.canister.ok_or_else(no_network)?;
    let worker = Worker::new(stores, canister, args.parallel.into())?;
    let canister = canister.to_string();
    let run = client.as_ref().map(|client| Run::new(client, worker, options, &stop, &log));
    if args.dry_run {
        let looked = run.as_ref().map(run::dry_run).transpose()?.flatten();
        drop(run);
        drop(log);
        let interrupted = || Exit::error(INTERRUPTED, "it was ended before it knew what would be deleted");
        let what = looked.ok_or_else(interrupted)?;
        return print_fields(&Printed { command: "blob-worker --dry-run", canister, what }, json);
    }
    let ended = run.as_ref().map_or(Ok(()), Run::run);
    let figures = run.as_ref().map_or_else(Figures::default, Run::figures);
    drop(run);
    drop(log);
    let done = all_done(&figures);
    let what = Worked { stores: named, figures, seconds: seconds_since(started) };
    // How it ended is told by the code even where nobody reads what it did.
    let printed = print_fields(&Printed { command: "blob-worker", canister, what }, json);
    ended.and(done).and(printed)
}

/// Whether a run that was to end by itself has done all that it found.
///
/// # Errors
/// [`Exit`] with [`NOT_ALL`].
pub fn all_done(figures: &Figures) -> Result<()> {
    let blobs = match figures.undone {
        0 => return Ok(()),
        1 => "1 blob".into(),
        undone => format!("{} blobs", count(undone)),
    };
    Err(Exit::error(NOT_ALL, format!("of {blobs} it is not known that they are gone")))
}

#[cfg(test)]
mod tests;
