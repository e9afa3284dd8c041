//! `coppice-evm follow`: copies a node's chain to a canister.
//!
//! ```text
//! node ── eth_getBlockByNumber, eth_getBlockReceipts ──▶ verify ──▶ index ──▶ client.follow ──▶ canister
//! ```
//! The command keeps no state: it continues after the canister's head.

mod args;
mod chain;

pub use args::{FollowArgs, Tag};

use crate::node::{Node, Stopped};
use anyhow::{Result, anyhow};
use args::wrong_line;
use chain::NodeChain;
use ic_coppice_cli::exit::Exit;
use ic_coppice_cli::network::Network;
use ic_coppice_cli::stop::Stop;
use ic_coppice_cli::terminal::{Level, stderr};
use ic_coppice_client::{Client, Error, FollowError};
use ic_coppice_interface::{ReadError, RollbackError};
use pollster::block_on;
use std::collections::BTreeSet;

/// Follows the node until a signal, or until the block of `--until` is kept.
///
/// # Errors
/// When a block does not prove itself, no wait helps a refusal, the reorg is too deep, or the node has another chain id.
pub fn command(args: &FollowArgs) -> Result<()> {
    if let (Some(from), Some(until)) = (args.from, args.until)
        && from > until
    {
        return Err(wrong_line(format!("no block lies between --from {from} and --until {until}")));
    }
    let stop = Stop::on_signals()?;
    let client = args.network.connect()?;
    let node = Node::new(args.rpc.clone(), stop.clone())?;
    for extra in args.index.iter().collect::<BTreeSet<_>>() {
        let kind = clap::ValueEnum::to_possible_value(extra).map_or(String::new(), |kind| kind.get_name().into());
        stderr().note(Level::Info, "index", &format!("{kind}: {}", extra.cost()));
    }
    let chain = NodeChain::new(node, args, stop.clone());
    let followed = chain.check_id().and_then(|()| run(&client, &chain));
    match followed {
        Err(error) if error.is::<Stopped>() || stop.is_set() => Ok(()),
        followed => followed,
    }
}

/// Follows the node until the block of `--until` is kept.
fn run(client: &Client<Network>, chain: &NodeChain) -> Result<()> {
    // The subnet is asked whether the canister is empty; afterwards a replica is enough to notice a reset.
    let mut asks_subnet = true;
    loop {
        let head = match asks_subnet {
            true => block_on(client.replicated().get_head()),
            false => block_on(client.get_head()),
        };
        match head {
            // A reorg may reach down to the oldest kept block.
            Ok(head) => chain.begin_below(head.number),
            Err(Error::Refused(ReadError::NotFound)) if asks_subnet => chain.begin_empty()?,
            Err(Error::Refused(ReadError::NotFound)) => {
                asks_subnet = true;
                continue;
            }
            Err(error) => {
                let error = anyhow!(error);
                if chain.pause(&error) {
                    continue;
                }
                return Err(error);
            }
        }
        asks_subnet = false;
        match block_on(client.follow(chain)) {
            Ok(followed) => {
                chain.show(&followed);
                if chain.is_complete() {
                    return Ok(());
                }
                chain.await_change()?;
            }
            Err(FollowError::Chain(cause)) => return Err(anyhow!(cause)),
            Err(error) => return Err(advised(error)),
        }
    }
}

/// Adds the remedy to an error that ends the command.
fn advised(error: FollowError) -> anyhow::Error {
    let advice = match &error {
        FollowError::NoCommonBlock { .. } => Some(
            "the node has another chain, or a reorg below the oldest kept block: check --rpc and --canister; to begin anew, an admin \
             calls reset_chain, or installs another canister",
        ),
        FollowError::Rollback { error: Error::Refused(RollbackError::TooDeep { .. }), .. } => Some(
            "the reorg is deeper than a producer may roll back: an admin checks the node, and then rolls back by rollback_to, or raises \
             max_rollback_blocks with set_config",
        ),
        _ => None,
    };
    let error = anyhow!(error);
    match advice {
        Some(advice) => {
            let why = ic_coppice_cli::exit::why(&error);
            Exit::error(ic_coppice_cli::exit::REFUSED, format!("{why}; {advice}"))
        }
        None => error,
    }
}
