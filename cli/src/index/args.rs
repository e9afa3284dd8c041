//! Options of `coppice index`.

use super::schema;
use super::store::Payload;
use crate::args::{HostArgs, MIN_DEMO_BLOCKS};
use crate::network::NetworkArgs;
use std::time::Duration;

/// Options of `coppice index`.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = schema::HELP)]
pub struct IndexArgs {
    /// Where blocks go: sqlite://FILE or, on another machine, postgres://USER@HOST/NAME?sslmode=verify-full
    #[arg(
        long,
        value_name = "URL",
        env = "COPPICE_DATABASE",
        default_value = "sqlite://coppice.db",
        hide_env_values = true
    )]
    pub database: String,
    /// Reach PostgreSQL on another machine without sslmode=verify-full: whoever stands between can read and change all
    #[arg(long)]
    pub insecure_database: bool,
    /// What is kept of a block's payload, all of which is verified
    #[arg(long, value_name = "WHAT", value_enum, default_value_t = Payload::All)]
    pub payload: Payload,
    /// Acknowledge nothing: a plain reader, whom pruning does not wait for
    #[arg(long, requires = "network")]
    pub no_ack: bool,
    /// Acknowledge every so many blocks, and at the head
    #[arg(long, value_name = "N", default_value_t = 100, requires = "network", value_parser = clap::value_parser!(u64).range(1..), conflicts_with = "no_ack")]
    pub ack_every: u64,
    /// Acknowledge with --payload headers, too: the canister may then prune payloads that no database has
    #[arg(long, conflicts_with = "no_ack")]
    pub ack_headers: bool,
    /// Blocks that a reorg or a reset takes out that are kept in the table orphaned
    #[arg(long, value_name = "BLOCKS", default_value_t = 10_000, requires = "network")]
    pub keep_orphaned: u64,
    /// Leave out a block that cannot be read or is damaged, and note it in the table gaps
    #[arg(long, requires = "network")]
    pub skip_damaged: bool,
    /// Where the canister's chain was reset: take all blocks of the one before out of the database, and begin with the new one
    #[arg(long, requires = "network")]
    pub accept_reset: bool,
    /// End at the head instead of waiting for more
    #[arg(long, requires = "network")]
    pub until_caught_up: bool,
    /// The most seconds between two attempts, at the head or after an error of the network
    #[arg(long, value_name = "SECONDS", default_value_t = 10, requires = "network", value_parser = clap::value_parser!(u64).range(1..))]
    pub max_wait: u64,
    /// Payload bytes of a page [default: as many as a reply holds]
    #[arg(long, value_name = "BYTES", default_value_t = 0, hide_default_value = true, requires = "network")]
    pub page_bytes: u64,
    /// Without --network: blocks to append to a canister in this process
    #[arg(long, value_name = "N", default_value_t = 1_000, conflicts_with = "network", value_parser = clap::value_parser!(u64).range(MIN_DEMO_BLOCKS..=700_000))]
    pub blocks: u64,
    /// Without --network: seed of the generated chain
    #[arg(long, value_name = "N", default_value_t = 1, conflicts_with = "network")]
    pub seed: u64,
    /// Without --network: blocks behind the head that the canister retains [default: a fifth of all]
    #[arg(long, value_name = "N", conflicts_with = "network", value_parser = clap::value_parser!(u64).range(1..))]
    pub retain_blocks: Option<u64>,
    /// Where the canister is.
    #[command(flatten)]
    pub network: NetworkArgs,
    /// What every command has.
    #[command(flatten)]
    pub host: HostArgs,
}

impl IndexArgs {
    /// Whether what is stored is acknowledged.
    pub fn acknowledges(&self) -> bool {
        !self.no_ack && (self.payload == Payload::All || self.ack_headers)
    }

    /// The longest wait between two attempts.
    pub fn max_wait(&self) -> Duration {
        Duration::from_secs(self.max_wait)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::{Cli, Command};
    use clap::Parser;

    fn parse(args: &[&str]) -> Result<IndexArgs, clap::Error> {
        let network = ["--network", "http://127.0.0.1:1", "--canister", "aaaaa-aa"];
        let cli = Cli::try_parse_from([&["coppice", "index"][..], &network, args].concat())?;
        let Command::Index(args) = cli.command else { panic!("another command") };
        Ok(args)
    }

    #[test]
    fn headers_alone_acknowledge_nothing_unless_that_is_said() {
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

    /// Nothing would be pruned in this process, which is what it is for.
    #[test]
    fn headers_alone_are_refused_in_this_process_unless_they_are_acknowledged() {
        let cli = Cli::try_parse_from(["coppice", "index", "--payload", "headers"]).unwrap();
        let Command::Index(args) = cli.command else { panic!("another command") };
        let error = crate::index::command(&args).unwrap_err().to_string();
        assert!(error.contains("--ack-headers"), "{error}");
    }

    #[test]
    fn how_many_orphans_are_kept_may_be_any_number() {
        assert_eq!(parse(&[]).unwrap().keep_orphaned, 10_000);
        for (number, expected) in [("0", Some(0)), ("18446744073709551615", Some(u64::MAX)), ("-1", None), ("x", None)]
        {
            let args = parse(&[&format!("--keep-orphaned={number}")]).ok();
            assert_eq!(args.map(|args| args.keep_orphaned), expected, "{number}");
        }
    }
}
