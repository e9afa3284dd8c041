//! Options of `coppice blob-worker`.

use super::layout::Layout;
use super::place::Place;
use crate::network::NetworkArgs;
use clap::builder::TypedValueParser;
use coppice_interface::BLOB_SAFETY_WINDOW;
use std::ops::RangeInclusive;
use std::time::Duration;

/// What is said behind the options.
const HELP: &str = "\
A --store is STORE_TYPE/FILE_TYPE=URL; * is any file type, and the narrower one that has a blob is taken:
  --store tx/tx=s3://bucket/prefix --store tx/outputs=file:///srv/blobs --store 'temp/*=file:///srv/temp'
Store types: tx, subtree, block, temp, block-persister, peer-registry. Blobs that no --store has are not leased.
S3's credentials, region and endpoint come from the environment (AWS_ACCESS_KEY_ID, AWS_REGION, AWS_ENDPOINT_URL, …).
Exit codes: 0 done, or ended as asked, and what was leased is given back; 1 another error; 2 the command line; 3 a store has not the
right marker; 4 --once or --until-empty, and some blobs were not deleted; 5 the canister refuses; 6 ended before the canister could
be told what was deleted; 130 ended by a second signal, or a --dry-run by the first.";

/// Options of `coppice blob-worker`.
#[derive(Clone, Debug, clap::Args)]
#[command(args_conflicts_with_subcommands = true, after_help = HELP)]
pub struct BlobWorkerArgs {
    /// What else there is to do.
    #[command(subcommand)]
    pub command: Option<Init>,
    /// Stores and canister.
    #[command(flatten)]
    pub stores: StoreArgs,
    /// The options of each lease.
    #[command(flatten)]
    pub options: Options,
    /// Requests to the stores at a time
    #[arg(long, value_name = "N", default_value_t = 16, value_parser = clap::value_parser!(u16).range(1..=1_024))]
    pub parallel: u16,
    /// Say which of the first --batch rows would be deleted, and whether they are there; lease and delete nothing
    #[arg(long, conflicts_with_all = ["once", "until_empty"])]
    pub dry_run: bool,
}

/// What is done before the first worker runs.
#[derive(Clone, Debug, clap::Subcommand)]
pub enum Init {
    /// Write into each store a marker that names the canister and the store, without which no worker touches it
    Init(StoreArgs),
}

/// Options that name stores and canister.
#[derive(Clone, Debug, clap::Args)]
pub struct StoreArgs {
    /// Where blobs of a store type and a file type are, as often as there are such: tx/tx=s3://BUCKET/PREFIX, temp/*=file:///DIRECTORY
    #[arg(long = "store", value_name = "STORE/TYPE=URL", required = true)]
    pub stores: Vec<Place>,
    /// How blobs are named in the stores
    #[arg(long, value_enum, value_name = "LAYOUT", default_value_t)]
    pub layout: Layout,
    /// Where the canister is.
    #[command(flatten)]
    pub network: NetworkArgs,
    /// Print nothing but one line of JSON on stdout
    #[arg(long)]
    pub json: bool,
}

/// Options of a worker's leases and waits.
#[derive(Clone, Debug, clap::Args)]
pub struct Options {
    /// Blocks below the chain's height, or the persister's where one runs, up to which blobs may go
    #[arg(long, value_name = "BLOCKS", default_value_t = BLOB_SAFETY_WINDOW)]
    pub safety_window: u32,
    /// Blobs of a lease
    #[arg(long, value_name = "N", default_value_t = 1_000, value_parser = clap::value_parser!(u32).range(1..=1_000))]
    pub batch: u32,
    /// Seconds of a lease, which is extended in time; no request to a store takes longer than a quarter of it, and a call takes some seconds
    #[arg(long, value_name = "SECONDS", default_value = "300", value_parser = seconds(30..=43_200))]
    pub lease: Duration,
    /// How often deleting a blob may fail until it is given up
    #[arg(long, value_name = "N", default_value_t = 5)]
    pub max_retries: u32,
    /// End after one lease, or where nothing is due
    #[arg(long, conflicts_with = "until_empty")]
    pub once: bool,
    /// End where nothing is due
    #[arg(long)]
    pub until_empty: bool,
    /// Seconds until the queue is asked again where nothing is due
    #[arg(long, value_name = "SECONDS", default_value = "10", value_parser = seconds(1..=3_600))]
    pub poll: Duration,
    /// Up to how many seconds the waits between attempts double after errors of the network or of a store; each may by chance be twice as long
    #[arg(long, value_name = "SECONDS", default_value = "60", value_parser = seconds(1..=3_600))]
    pub max_wait: Duration,
}

impl Options {
    /// True if the worker ends by itself.
    pub fn ends(&self) -> bool {
        self.once || self.until_empty
    }
}

/// A parser of whole seconds within bounds.
fn seconds(bounds: RangeInclusive<u64>) -> impl TypedValueParser<Value = Duration> {
    clap::value_parser!(u64).range(bounds).map(Duration::from_secs)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::{Cli, Command};
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
        assert_eq!(options.lease, Duration::from_secs(300));
        assert!(parse(&[]).is_err(), "a store is needed");
        let store = ["--store", "tx/tx=s3://b"];
        for (option, taken, refused) in [
            ("--batch", &["1", "1000"][..], &["0", "1001", "-1"][..]),
            ("--lease", &["30", "43200"], &["29", "43201"]),
            ("--parallel", &["1", "1024"], &["0", "1025"]),
            ("--safety-window", &["0", "4294967295"], &["4294967296", "-1"]),
            ("--max-retries", &["0", "4294967295"], &["x"]),
            ("--poll", &["1"], &["0", "3601"]),
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
    fn init_has_stores_and_a_canister_and_nothing_of_a_worker() {
        let args =
            parse(&["init", "--store", "tx/tx=s3://b", "--network", "http://a", "--canister", "aaaaa-aa"]).unwrap();
        let Some(Init::Init(args)) = args.command else { panic!("{args:?}") };
        assert_eq!(args.stores.len(), 1);
        assert!(parse(&["init"]).is_err());
        assert!(parse(&["init", "--store", "tx/tx=s3://b", "--once"]).is_err());
    }
}
