//! `coppice blob-worker`.

use crate::blob_worker::layout::Layout;
use crate::blob_worker::log::Log;
use crate::blob_worker::options::Options;
use crate::blob_worker::place::Place;
use crate::blob_worker::run::{self, Run};
use crate::blob_worker::stores::Stores;
use crate::blob_worker::work::Worker;
use crate::blob_worker::{all_done, mark, s3, times};
use crate::client::{CanisterClient, Client, Wait as _, is_passing};
use crate::exit::{Exit, UNREPORTED};
use crate::listen::Listener;
use crate::network::NetworkArgs;
use crate::report::{print_fields, seconds_since};
use crate::stop::{INTERRUPTED, Stop};
use anyhow::Result;
use candid::Principal;
use serde::Serialize;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The longest time from a signal to the end of a daemon.
const DAEMON_END: Duration = Duration::from_secs(9);

/// Help text after the options.
const HELP: &str = "\
A --store is STORE_TYPE/FILE_TYPE=URL; * means all file types. If several match a blob, the narrowest one is used:
  --store tx/tx=s3://bucket/prefix --store tx/outputs=file:///srv/blobs --store 'temp/*=file:///srv/temp'
Store types: tx, subtree, block, temp, block-persister, peer-registry. Blobs that match no --store are not leased.
The credentials, region and endpoint of S3 come from the environment (AWS_ACCESS_KEY_ID, AWS_REGION, AWS_ENDPOINT_URL, …).
Exit codes: 0 done, or ended as asked, with leased rows given back; 1 another error; 2 wrong command line; 3 a store does not have the
right marker, or keeps versions; 4 --once or --until-empty, and some blobs were not deleted; 5 the canister refuses; 6 ended before the deletions
could be reported to the canister; 130 ended by a second signal, or a --dry-run by the first.";

/// Options of `coppice blob-worker`.
#[derive(Clone, Debug, clap::Args)]
#[command(args_conflicts_with_subcommands = true, after_help = HELP)]
pub struct BlobWorkerArgs {
    /// The subcommand, or `None` to run a worker.
    #[command(subcommand)]
    pub command: Option<Init>,
    /// Stores and canister.
    #[command(flatten)]
    pub stores: StoreArgs,
    /// The options of each lease.
    #[command(flatten)]
    pub options: Options,
    /// Parallel requests to the stores
    #[arg(long, value_name = "N", default_value_t = 16, value_parser = clap::value_parser!(u16).range(1..=1_024))]
    pub parallel: u16,
    /// Run as a daemon: serve /metrics and /healthz on this address, and end within ten seconds of a signal, with leased rows left to their
    /// expiry if a store does not answer in time
    #[arg(long, value_name = "ADDRESS", conflicts_with_all = ["once", "until_empty", "dry_run"])]
    pub listen: Option<SocketAddr>,
    /// Print which of the first --batch rows would be deleted, and whether their blobs exist; lease and delete nothing
    #[arg(long, conflicts_with_all = ["once", "until_empty"])]
    pub dry_run: bool,
}

/// The step before the first worker runs.
#[derive(Clone, Debug, clap::Subcommand)]
pub enum Init {
    /// Write a marker into each store that names the canister and the store; workers touch only stores with the right marker
    Init(StoreArgs),
}

/// Options that name stores and canister.
#[derive(Clone, Debug, clap::Args)]
pub struct StoreArgs {
    /// Blobs of a store type and file type, and their place; may be repeated: tx/tx=s3://BUCKET/PREFIX, temp/*=file:///DIRECTORY
    #[arg(long = "store", value_name = "STORE/TYPE=URL", required = true)]
    pub stores: Vec<Place>,
    /// Layout of the blobs in the stores
    #[arg(long, value_enum, value_name = "LAYOUT", default_value_t)]
    pub layout: Layout,
    /// Accept buckets that keep versions: a deleted blob stays there as an older version, until a rule of the bucket deletes it
    #[arg(long)]
    pub keep_versions: bool,
    /// The canister.
    #[command(flatten)]
    pub network: NetworkArgs,
    /// Print only one line of JSON on stdout
    #[arg(long)]
    pub json: bool,
}

impl StoreArgs {
    /// Opens the stores, with a time limit for a request to a bucket.
    fn open(&self, most: Duration) -> Result<Stores> {
        let open = |url| {
            let mut store = s3::bucket_or_directory(url, most)?;
            store.may_keep_versions = self.keep_versions;
            Ok(store)
        };
        Stores::open(&self.stores, self.layout, open)
    }
}

/// The report that a command prints at its end.
#[derive(Clone, Debug, Serialize)]
pub struct Printed<T> {
    /// The command, with its subcommand or mode.
    pub command: &'static str,
    pub canister: Principal,
    pub stores: Vec<String>,
    /// Wall-clock seconds.
    pub elapsed_secs: f64,
    /// The outcome.
    #[serde(flatten)]
    pub what: T,
}

/// Runs the command.
///
/// # Errors
/// [`Exit`] with a code listed in the help; when the stores, the network or the canister cannot be used.
pub fn command(args: &BlobWorkerArgs) -> Result<()> {
    match &args.command {
        Some(Init::Init(args)) => init(args),
        None => work(args),
    }
}

fn init(args: &StoreArgs) -> Result<()> {
    let stores = args.open(times::INIT)?;
    let client = args.network.connect()?;
    mark_stores(args, &client, client.transport().canister(), stores)
}

/// Writes the markers of a canister that answers, and prints the report.
///
/// # Errors
/// When the canister does not answer, or a store cannot be marked.
pub fn mark_stores(
    args: &StoreArgs,
    client: &Client<impl CanisterClient>,
    canister: Principal,
    stores: Stores,
) -> Result<()> {
    let began = Instant::now();
    client.transport().limit(Arc::new(move || began.elapsed() >= times::INIT));
    // A canister that does not answer this identity is not the intended one. The first lease shows whether the identity has the role.
    let what = "asking for the queue's status";
    let status = client.replicated().get_blob_deletion_status().wait();
    status.map_err(|error| if is_passing(&error) { error.context(what) } else { run::refused(what, error) })?;
    let named = stores.names();
    let what = mark(&Worker::new(stores, canister, 1)?)?;
    let elapsed_secs = seconds_since(began);
    print_fields(&Printed { command: "blob-worker init", canister, stores: named, elapsed_secs, what }, args.json)
}

fn work(args: &BlobWorkerArgs) -> Result<()> {
    let stores = args.stores.open(times::REQUEST.of(args.options.lease))?;
    let stop = Stop::on_signals()?;
    let client = args.stores.network.connect()?;
    delete(args, &client, client.transport().canister(), stores, &stop)
}

/// Runs a worker of a canister until it ends or is stopped, and prints its report.
///
/// # Errors
/// As [`Run::run`]; [`Exit`] with [`NOT_ALL`](crate::exit::NOT_ALL) if it ends by itself and not every blob was deleted.
pub fn delete<T: CanisterClient>(
    args: &BlobWorkerArgs,
    client: &Client<T>,
    canister: Principal,
    stores: Stores,
    stop: &Stop,
) -> Result<()> {
    let began = Instant::now();
    let (options, json) = (args.options.clone(), args.stores.json);
    let named = stores.names();
    let log = Log::new()?;
    let _listener = args.listen.map(|address| Listener::new(address, Arc::clone(&log.watch))).transpose()?;
    if args.listen.is_some() {
        stop.exit_after(DAEMON_END, UNREPORTED)?;
    }
    let run = Run::new(client, Worker::new(stores, canister, args.parallel.into())?, options, stop, &log);
    if args.dry_run {
        let looked = run::dry_run(&run)?;
        drop(run);
        drop(log);
        let interrupted = || Exit::error(INTERRUPTED, "interrupted before it knew which blobs would be deleted");
        let (command, what) = ("blob-worker --dry-run", looked.ok_or_else(interrupted)?);
        return print_fields(
            &Printed { command, canister, stores: named, elapsed_secs: seconds_since(began), what },
            json,
        );
    }
    let ended = run.run();
    let what = run.figures();
    drop(run);
    drop(log);
    let done = all_done(&what);
    // The exit code reports the end even if the output has no reader.
    let (command, elapsed_secs) = ("blob-worker", seconds_since(began));
    let printed = print_fields(&Printed { command, canister, stores: named, elapsed_secs, what }, json);
    ended.and(done).and(printed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::{Cli, Command};
    use clap::Parser;

    fn parse(args: &[&str]) -> Result<BlobWorkerArgs, clap::Error> {
        let cli = Cli::try_parse_from([&["coppice", "blob-worker"][..], args].concat())?;
        let Command::BlobWorker(args) = cli.command else { panic!("another command") };
        Ok(*args)
    }

    #[test]
    fn options_are_read_and_their_limits_hold() {
        let args = parse(&["--store", "tx/tx=s3://b/p", "--store", "temp/*=file:///srv"]).unwrap();
        assert!(args.command.is_none() && args.stores.stores.len() == 2);
        let options = args.options;
        assert_eq!((options.safety_window, options.batch, options.ends()), (10, 1_000, false));
        assert_eq!((options.lease, options.ask), (Duration::from_secs(300), Duration::from_secs(600)));
        assert!(!args.stores.keep_versions);
        assert!(parse(&[]).is_err(), "a store is needed");
        let store = ["--store", "tx/tx=s3://b"];
        for (option, taken, refused) in [
            ("--batch", &["1", "1000"][..], &["0", "1001", "-1"][..]),
            ("--lease-secs", &["30", "43200"], &["29", "43201"]),
            ("--parallel", &["1", "1024"], &["0", "1025"]),
            ("--safety-window", &["0", "4294967295"], &["4294967296", "-1"]),
            ("--max-retries", &["0", "4294967295"], &["x"]),
            ("--poll-secs", &["1"], &["0", "3601"]),
            ("--ask-secs", &["1", "3600"], &["0", "3601"]),
            ("--log-format", &["text", "json"], &["yaml"]),
        ] {
            for value in taken {
                assert!(parse(&[&store[..], &[option, value]].concat()).is_ok(), "{option} {value}");
            }
            for value in refused {
                assert!(parse(&[&store[..], &[&format!("{option}={value}")]].concat()).is_err(), "{option} {value}");
            }
        }
        assert!(parse(&[&store[..], &["--once", "--until-empty"]].concat()).is_err());
        assert!(parse(&[&store[..], &["--once", "--dry-run"]].concat()).is_err());
    }

    #[test]
    fn init_accepts_stores_and_a_canister_but_no_worker_options() {
        let args =
            parse(&["init", "--store", "tx/tx=s3://b", "--network", "http://a", "--canister", "aaaaa-aa"]).unwrap();
        let Some(Init::Init(args)) = args.command else { panic!("{args:?}") };
        assert_eq!(args.stores.len(), 1);
        assert!(parse(&["init"]).is_err());
        assert!(parse(&["init", "--store", "tx/tx=s3://b", "--once"]).is_err());
    }
}
