//! `coppice status`.

use crate::client::reached;
use crate::exit::{Exit, UNHEALTHY};
use crate::network::NetworkArgs;
use crate::status::{ask, page};
use crate::terminal;
use anyhow::Result;
use std::io::IsTerminal as _;

/// Help text after the options.
const HELP: &str = "\
Exit codes: 0 well, or only notices; 7 the canister does not answer; 8 there are problems; 2 wrong command line; 1 another error.
Operators, observers and admins (--identity) also see the cycles.";

/// Options of `coppice status`.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = HELP)]
pub struct StatusArgs {
    /// The canister.
    #[command(flatten)]
    pub network: NetworkArgs,
    /// Print only one line of JSON on stdout: all answers of the canister
    #[arg(long)]
    pub json: bool,
}

/// Prints how the canister is.
///
/// # Errors
/// [`Exit`] with a code listed in the help, without a sentence if there are problems, because the page has them.
pub fn command(args: &StatusArgs) -> Result<()> {
    let client = args.network.connect()?;
    let transport = client.transport();
    let seen = reached(ask(&client, transport.canister().to_string(), transport.url()))?;
    if args.json {
        terminal::print(&serde_json::to_string(&seen)?)?;
    } else {
        let in_colours = std::io::stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none();
        terminal::print_page(&page::page(&seen, in_colours))?;
    }
    if seen.health.healthy { Ok(()) } else { Err(Exit::error(UNHEALTHY, "")) }
}
