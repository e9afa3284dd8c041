//! Options of a worker.

use clap::builder::TypedValueParser;
use coppice_interface::BLOB_SAFETY_WINDOW;
use std::ops::RangeInclusive;
use std::time::Duration;

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
