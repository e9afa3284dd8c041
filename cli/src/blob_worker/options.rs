//! Options of a worker.

use clap::builder::TypedValueParser;
use ic_coppice_interface::BLOB_SAFETY_WINDOW;
use std::ops::RangeInclusive;
use std::time::Duration;

/// Options of a worker's leases and waits.
#[derive(Clone, Debug, clap::Args)]
pub struct Options {
    /// Delete blobs up to this many blocks below the chain's height, or below the block persister's height if one runs
    #[arg(long, value_name = "BLOCKS", default_value_t = BLOB_SAFETY_WINDOW)]
    pub safety_window: u32,
    /// Blobs per lease
    #[arg(long, value_name = "N", default_value_t = 1_000, value_parser = clap::value_parser!(u32).range(1..=1_000))]
    pub batch: u32,
    /// Length of a lease, in seconds. The worker extends a lease before it ends. A request to a store takes at most a quarter of it
    #[arg(long = "lease-secs", value_name = "SECONDS", default_value = "300", value_parser = seconds(30..=43_200))]
    pub lease: Duration,
    /// Failed attempts after which a blob is given up
    #[arg(long, value_name = "N", default_value_t = 5)]
    pub max_retries: u32,
    /// End after one lease, or when nothing is due
    #[arg(long, conflicts_with = "until_empty")]
    pub once: bool,
    /// End when nothing is due
    #[arg(long)]
    pub until_empty: bool,
    /// Seconds between looks at the queue while nothing is due
    #[arg(long = "poll-secs", value_name = "SECONDS", default_value = "10", value_parser = seconds(1..=3_600))]
    pub poll: Duration,
    /// Seconds after which a worker asks by update call although queries report nothing due, because one replica answers a query
    #[arg(long = "ask-secs", value_name = "SECONDS", default_value = "600", value_parser = seconds(1..=3_600))]
    pub ask: Duration,
    /// Longest wait between retries after errors of the network or a store, in seconds. Waits double up to it; a random part may double
    /// each wait again
    #[arg(long = "max-wait-secs", value_name = "SECONDS", default_value = "60", value_parser = seconds(1..=3_600))]
    pub max_wait: Duration,
}

impl Options {
    /// Returns whether the worker ends by itself.
    pub fn ends(&self) -> bool {
        self.once || self.until_empty
    }
}

/// Returns a parser of whole seconds within bounds.
fn seconds(bounds: RangeInclusive<u64>) -> impl TypedValueParser<Value = Duration> {
    clap::value_parser!(u64).range(bounds).map(Duration::from_secs)
}
