//! `coppice index`.

use crate::client::{CanisterClient, Client};
use crate::index::engine::Engine;
use crate::index::origin::{Origin, Payload};
use crate::index::run::{self, Until};
use crate::index::steps::{Onward, Options};
use crate::index::store::Store;
use crate::index::{DatabaseArgs, IndexReport, schema};
use crate::listen::Listener;
use crate::network::NetworkArgs;
use crate::stop::Stop;
use crate::{report, say};
use anyhow::Result;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Options of `coppice index`.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = schema::HELP)]
pub struct IndexArgs {
    /// The database.
    #[command(flatten)]
    pub database: DatabaseArgs,
    /// Acknowledge nothing: a plain reader, for which pruning does not wait
    #[arg(long)]
    pub no_ack: bool,
    /// Acknowledge after this many blocks, during at most an eighth of the time, and at the head
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u64).range(1..), conflicts_with = "no_ack")]
    pub ack_every: u64,
    /// Acknowledge even with --payload headers; the canister may then prune payloads that no database holds
    #[arg(long, conflicts_with = "no_ack")]
    pub ack_headers: bool,
    /// Keep this many of the blocks that reorgs and resets remove, in the table orphaned
    #[arg(long, value_name = "BLOCKS", default_value_t = 10_000)]
    pub keep_orphaned: u64,
    /// Skip a block that cannot be read or is damaged, and record it in the table gaps
    #[arg(long)]
    pub skip_damaged: bool,
    /// After a reset of the canister's chain, remove all blocks of the old chain from the database and start with the new chain
    #[arg(long)]
    pub accept_reset: bool,
    /// After the canister was restored from a snapshot, move all blocks that it lacks to the table orphaned, where they stay, and continue
    #[arg(long)]
    pub accept_restore: bool,
    /// End at the head instead of waiting for more blocks
    #[arg(long)]
    pub until_caught_up: bool,
    /// Longest wait between two attempts, in seconds: at the head, or after an error of the network
    #[arg(long, value_name = "SECONDS", default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..))]
    pub max_wait_secs: u64,
    /// Longest time without a committed change while the database fails, in seconds; then the command ends
    #[arg(long, value_name = "SECONDS", default_value_t = 600, value_parser = clap::value_parser!(u64).range(1..))]
    pub database_retry_secs: u64,
    /// Run as a daemon: serve /metrics and /healthz on this address, and retry for ever while the database is away
    #[arg(long, value_name = "ADDRESS", conflicts_with = "until_caught_up")]
    pub listen: Option<SocketAddr>,
    /// Payload bytes per page [default: as many as a reply holds]
    #[arg(long, value_name = "BYTES", default_value_t = 0, hide_default_value = true)]
    pub page_bytes: u64,
    /// The canister.
    #[command(flatten)]
    pub network: NetworkArgs,
    /// Print only one line of JSON on stdout
    #[arg(long)]
    pub json: bool,
}

impl IndexArgs {
    /// Returns whether stored blocks are acknowledged.
    pub fn acknowledges(&self) -> bool {
        !self.no_ack && (self.database.payload == Payload::All || self.ack_headers)
    }

    /// Returns the longest wait between two attempts.
    pub fn max_wait(&self) -> Duration {
        Duration::from_secs(self.max_wait_secs)
    }
}

/// Runs the indexer and prints its report.
///
/// # Errors
/// As [`copy`]; when the network cannot be used.
pub fn command(args: &IndexArgs) -> Result<()> {
    args.database.check()?;
    let client = args.network.connect()?;
    let transport = client.transport();
    let (canister, network) = (transport.canister().to_string(), transport.url().into());
    let origin = Origin { canister, network, payload: args.database.payload };
    report::print(&copy(args, &client, &origin, &Stop::on_signals()?)?, args.json)
}

/// Copies the chain of a canister, up to the head or until stopped.
///
/// # Errors
/// As [`Engine::step`]; when the canister or the database cannot be used.
pub fn copy(
    args: &IndexArgs,
    client: &Client<impl CanisterClient>,
    origin: &Origin,
    stop: &Stop,
) -> Result<IndexReport> {
    let started = Instant::now();
    let until = Until {
        caught_up: args.until_caught_up,
        max_wait: args.max_wait(),
        database_retry: Some(Duration::from_secs(args.database_retry_secs)).filter(|_| args.listen.is_none()),
        watch: Arc::default(),
    };
    let _listener = args.listen.map(|address| Listener::new(address, Arc::clone(&until.watch))).transpose()?;
    let store = run::opened(&until, stop, || Store::open(args.database.access(stop), origin))?;
    let ack_every = args.acknowledges().then_some(args.ack_every);
    if !args.acknowledges() && !args.no_ack {
        say!("note: nothing is acknowledged, because no payloads are kept; use --ack-headers to acknowledge anyway");
    }
    run::bound_calls(client, stop);
    let mut retried = 0;
    if ack_every.is_some() {
        // Checks the registration now, not after the first gigabyte.
        retried = run::await_registration(client, &until, stop)?;
    }
    let options = Options {
        page_bytes: args.page_bytes,
        ack_every,
        skip_damaged: args.skip_damaged,
        accept_reset: args.accept_reset,
        accept_restore: args.accept_restore,
        keep_orphaned: args.keep_orphaned,
        tables: args.database.tables(),
    };
    let mut engine = Engine::open(client, store, options, Onward)?;
    engine.count_retried(retried);
    run::run(&mut engine, &until, stop)?;
    IndexReport::of(&mut engine, origin.canister.clone(), started)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::{Cli, Command};
    use crate::index::tables::Tables;
    use clap::Parser;

    fn parse(args: &[&str]) -> Result<IndexArgs, clap::Error> {
        let network = ["--network", "http://127.0.0.1:1", "--canister", "aaaaa-aa"];
        let cli = Cli::try_parse_from([&["coppice", "index"][..], &network, args].concat())?;
        let Command::Index(args) = cli.command else { panic!("another command") };
        Ok(args)
    }

    #[test]
    fn payload_headers_acknowledges_only_with_ack_headers() {
        for (args, acknowledges) in [
            (&[][..], true),
            (&["--payload", "all", "--ack-headers"], true),
            (&["--payload", "headers"], false),
            (&["--payload", "headers", "--ack-every", "1"], false),
            (&["--payload", "headers", "--ack-headers"], true),
            (&["--payload", "headers", "--no-ack"], false),
            (&["--no-ack"], false),
        ] {
            assert_eq!(parse(args).unwrap().acknowledges(), acknowledges, "{args:?}");
        }
        assert!(parse(&["--no-ack", "--ack-headers"]).is_err());
    }

    #[test]
    fn receipts_without_payload_are_refused_and_keys_are_filled_by_default() {
        let database = |args: &[&str]| parse(args).unwrap().database;
        for (args, keys, receipts) in [
            (&[][..], true, false),
            (&["--no-keys"], false, false),
            (&["--receipts"], true, true),
            (&["--no-keys", "--receipts"], false, true),
        ] {
            let args = database(args);
            args.check().unwrap();
            assert_eq!(args.tables(), Tables { keys, receipts });
        }
        database(&["--payload", "headers", "--no-keys"]).check().unwrap();
        let error = database(&["--payload", "headers", "--receipts"]).check().unwrap_err().to_string();
        assert!(error.contains("--payload all"), "{error}");
    }

    #[test]
    fn keep_orphaned_accepts_any_u64() {
        assert_eq!(parse(&[]).unwrap().keep_orphaned, 10_000);
        for (number, expected) in [("0", Some(0)), ("18446744073709551615", Some(u64::MAX)), ("-1", None), ("x", None)]
        {
            let args = parse(&[&format!("--keep-orphaned={number}")]).ok();
            assert_eq!(args.map(|args| args.keep_orphaned), expected, "{number}");
        }
    }
}
