//! Options of `coppice size`.

use ic_coppice_interface::SIZE_CLASSES;

/// Options of `coppice size`.
#[derive(Clone, Debug, clap::Args)]
pub struct SizeArgs {
    /// Payload bytes per block: body, receipts and index
    #[arg(long, value_name = "N", num_args = 1.., default_values_t = [16 << 10, 256 << 10, 1 << 20, 4 << 20],
        value_parser = clap::value_parser!(u64).range(1..=256 << 20))]
    pub block_bytes: Vec<u64>,
    /// Days for which blocks are retained
    #[arg(long, value_name = "N", num_args = 1.., default_values_t = [1, 30, 365],
        value_parser = clap::value_parser!(u64).range(1..=36_500))]
    pub days: Vec<u64>,
    /// Transactions per block [default: one per 500 bytes]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(0..=100_000))]
    pub transactions: Option<u64>,
    /// Secondary keys per block, all different, of 32 bytes each
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = clap::value_parser!(u64).range(0..=1_000_000))]
    pub keys: u64,
    /// UTXO records kept at a time, of transactions with two outputs; unless 0, each transaction creates one
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = clap::value_parser!(u64).range(0..=1_000_000_000_000))]
    pub records: u64,
    /// Do not compare segments with their digests (`verify_segments` off)
    #[arg(long)]
    pub unverified: bool,
    /// Seconds between two blocks, with at most three decimals
    #[arg(long = "interval-secs", value_name = "SECS", default_value = "600", value_parser = interval_ns)]
    pub interval_ns: u64,
    /// Bytes per blob of the log
    #[arg(long, value_name = "N", default_value_t = 1 << 20, value_parser = log_class)]
    pub log_class: u32,
    /// Seconds between two ticks of the daemon
    #[arg(long, value_name = "SECS", default_value_t = 600, value_parser = clap::value_parser!(u64).range(1..=86_400))]
    pub timer_interval_secs: u64,
    /// Print a line of JSON for each row instead of the table
    #[arg(long)]
    pub json: bool,
}

/// Parses a size class of the log's blobs.
///
/// # Errors
/// When there is no such class.
pub(super) fn log_class(text: &str) -> Result<u32, String> {
    let size = text.parse().ok().filter(|size| SIZE_CLASSES.contains(size));
    size.ok_or_else(|| "write 64, 128, 256 or 512 KiB, or 1, 2 or 4 MiB, in bytes".into())
}

/// Parses a number of seconds with up to three decimals into nanoseconds.
///
/// # Errors
/// When it is not a number, or below 0.001 or above 864,000.
pub(super) fn interval_ns(text: &str) -> Result<u64, String> {
    let millis = text.parse::<f64>().map_or(0.0, |secs| secs * 1_000.0).round();
    if (1.0..=864_000_000.0).contains(&millis) {
        Ok(millis as u64 * 1_000_000)
    } else {
        Err("write seconds from 0.001 to 864000, with at most three decimals".into())
    }
}
