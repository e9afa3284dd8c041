//! `coppice serve`.

use crate::gateway::Gateway;
use crate::network::NetworkArgs;
use crate::say;
use crate::stop::exit_on_signals;
use anyhow::Result;

/// Options of `coppice serve`.
#[derive(Clone, Debug, clap::Args)]
pub struct ServeArgs {
    /// Port on 127.0.0.1; 0 picks a free port
    #[arg(long, value_name = "N", default_value_t = 8080)]
    pub port: u16,
    /// The canister.
    #[command(flatten)]
    pub network: NetworkArgs,
    /// Print only one line of JSON on stdout
    #[arg(long)]
    pub json: bool,
}

/// Serves until Ctrl-C or SIGTERM ends the process.
///
/// # Errors
/// When the port is taken, or the network cannot be used.
pub fn command(args: &ServeArgs) -> Result<()> {
    exit_on_signals()?;
    let client = args.network.connect_for("serve")?;
    let gateway = Gateway::bind(args.port)?.naming(client.transport().url().into());
    let canister = client.transport().canister();
    gateway.announce("/", canister, args.json)?;
    say!("canister {canister}; press Ctrl-C to end");
    gateway.serve(&client);
    Ok(())
}
