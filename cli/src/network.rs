//! A canister that runs elsewhere, reached over the network.
//!
//! What reaches it (ic-agent, TLS, the curves of identities) is the feature `network`, as building that takes minutes: a command
//! that was built without it knows the same options, and says what it lacks.

#[cfg(any(test, not(feature = "network")))]
mod absent;
#[cfg(feature = "network")]
mod agent;

#[cfg(not(feature = "network"))]
use absent as agent;
pub use agent::Network;

use crate::client::Client;
use anyhow::Result;
use candid::Principal;
use std::path::PathBuf;
use url::Url;

/// Options that name a canister on a network.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct NetworkArgs {
    /// URL of a network on which the canister is installed, instead of one in this process
    #[arg(long, value_name = "URL", requires = "canister")]
    pub network: Option<Url>,
    /// Principal of that canister
    #[arg(long, value_name = "ID", requires = "network")]
    pub canister: Option<Principal>,
    /// PEM file with the private key to call with: Ed25519, secp256k1 or prime256v1 [default: nobody's]
    #[arg(long, value_name = "PATH", requires = "network", env = "COPPICE_IDENTITY")]
    pub identity: Option<PathBuf>,
    /// Trust the key that the network names for itself; for local networks only
    #[arg(long, requires = "network")]
    pub fetch_root_key: bool,
}

impl NetworkArgs {
    /// A client, where a network is named; nothing is asked yet.
    ///
    /// # Errors
    /// When the identity cannot be read, or the root key is to be asked for where it must not be; when this command was built without the
    /// feature `network`.
    pub fn connect(&self) -> Result<Option<Client<Network>>> {
        agent::connect(self)
    }
}

#[cfg(test)]
mod tests {
    use crate::args::{Cli, Command};
    use clap::Parser;

    #[test]
    fn the_flags_belong_together() {
        let parse = |args: &[&str]| Cli::try_parse_from([&["coppice", "index"], args].concat());
        assert!(parse(&["--network", "http://127.0.0.1:1", "--canister", "aaaaa-aa", "--fetch-root-key"]).is_ok());
        assert!(parse(&["--network", "http://127.0.0.1:1"]).is_err());
        assert!(parse(&["--canister", "aaaaa-aa"]).is_err());
        assert!(parse(&["--fetch-root-key"]).is_err());
        assert!(parse(&["--network", "no url", "--canister", "aaaaa-aa"]).is_err());
        assert!(parse(&["--network", "http://a", "--canister", "aaaaa"]).is_err());
        assert!(parse(&["--network", "http://a", "--canister", "aaaaa-aa", "--blocks", "500"]).is_err());
        let Command::Index(args) = parse(&[]).unwrap().command else { panic!("another command") };
        assert!(args.network.connect().unwrap().is_none());
    }
}
