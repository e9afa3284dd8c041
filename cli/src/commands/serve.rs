//! `coppice serve`.

use crate::gateway::Gateway;
use crate::network::NetworkArgs;
use crate::say;
use crate::stop::exit_on_signals;
use anyhow::Result;

/// Options of `coppice serve`.
#[derive(Clone, Debug, clap::Args)]
pub struct ServeArgs {
    /// Port on 127.0.0.1; 0: any that is free
    #[arg(long, value_name = "N", default_value_t = 8080)]
    pub port: u16,
    /// Where the canister is.
    #[command(flatten)]
    pub network: NetworkArgs,
    /// Print nothing but one line of JSON on stdout
    #[arg(long)]
    pub json: bool,
}

/// Serves until the process is ended by Ctrl-C or SIGTERM.
///
/// # Errors
/// When the port is taken, or the network cannot be used.
pub fn command(args: &ServeArgs) -> Result<()> {
    exit_on_signals()?;
    let client = args.network.connect_for("serve")?;
    let gateway = Gateway::bind(args.port)?;
    gateway.announce("/", args.json)?;
    say!("canister {}; Ctrl-C ends it", client.transport().canister());
    gateway.serve(&client);
    Ok(())
}
