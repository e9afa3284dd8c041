//! Options of `coppice-evm follow`.

use crate::index::Extra;
use ic_coppice_cli::exit::{Exit, WRONG_LINE};
use ic_coppice_cli::network::NetworkArgs;
use std::time::Duration;
use url::Url;

/// The node's newest block that is sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum Tag {
    /// The newest block, which a reorg may replace
    #[default]
    Latest,
    /// The newest block that a reorg is unlikely to replace
    Safe,
    /// The newest block that no reorg replaces
    Finalized,
}

impl Tag {
    /// Returns the tag as the node's JSON-RPC names it.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Latest => "latest",
            Self::Safe => "safe",
            Self::Finalized => "finalized",
        }
    }
}

/// Options of `coppice-evm follow`.
#[derive(Clone, Debug, clap::Args)]
pub struct FollowArgs {
    /// URL of the node's JSON-RPC
    #[arg(long, value_name = "URL", env = "COPPICE_EVM_RPC", hide_env_values = true)]
    pub rpc: Url,
    /// The canister.
    #[command(flatten)]
    pub network: NetworkArgs,
    /// The chain's id, which the node must have
    #[arg(long, value_name = "N")]
    pub chain_id: u64,
    /// Send blocks up to this one of the node
    #[arg(long, value_enum, value_name = "TAG", default_value_t, conflicts_with = "confirmations")]
    pub tag: Tag,
    /// Send blocks that have at least this many blocks after them [default: 0]
    #[arg(long, value_name = "N")]
    pub confirmations: Option<u64>,
    /// First block of an empty canister [default: the newest block to send]
    #[arg(long, value_name = "N")]
    pub from: Option<u64>,
    /// End after this block
    #[arg(long, value_name = "N")]
    pub until: Option<u64>,
    /// More kinds of secondary keys; each costs bytes of the block and work of the canister
    #[arg(long, value_enum, value_name = "KINDS", value_delimiter = ',')]
    pub index: Vec<Extra>,
    /// Seconds between two questions for the node's newest block, with at most three decimals
    #[arg(long, value_name = "SECONDS", default_value = "1", value_parser = seconds)]
    pub poll_secs: Duration,
}

/// Parses a number of seconds from 0.05 to 3,600.
///
/// # Errors
/// When it is not such a number.
fn seconds(text: &str) -> Result<Duration, String> {
    let secs = text.parse::<f64>().ok().filter(|secs| (0.05..=3_600.0).contains(secs));
    secs.map(Duration::from_secs_f64).ok_or_else(|| "write seconds from 0.05 to 3600".into())
}

/// An error of the command line.
pub(super) fn wrong_line(why: impl Into<String>) -> anyhow::Error {
    Exit::error(WRONG_LINE, why)
}
