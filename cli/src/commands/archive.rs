//! Options of the commands that prove blocks of a database, or check proofs.

use crate::index::secure;
use crate::network::Verifier;
use crate::proof::digits;
use anyhow::Result;
use candid::Principal;
use ic_coppice_client::certificate::Vouched;
use std::str::FromStr;

/// Bytes of a root key in DER.
const ROOT_KEY: usize = 133;

/// Options that name a database to read.
#[derive(Clone, Debug, clap::Args)]
pub struct ArchiveArgs {
    /// Database of coppice index to read
    #[arg(long, value_name = "URL", env = "COPPICE_DATABASE", hide_env_values = true)]
    pub database: String,
    /// Allow PostgreSQL on another machine without sslmode=verify-full; machines in between can then read and change all data
    #[arg(long)]
    pub insecure_database: bool,
}

impl ArchiveArgs {
    /// Returns the database's URL.
    ///
    /// # Errors
    /// When it names no known database, or PostgreSQL on another machine without a verified certificate.
    pub fn url(&self) -> Result<&str> {
        secure::ensure_allowed(&self.database, self.insecure_database)?;
        Ok(&self.database)
    }
}

/// A root key in DER.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RootKey(Vec<u8>);

impl FromStr for RootKey {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let key = digits::read(&text.to_ascii_lowercase()).ok_or("a root key is written in hexadecimal digits")?;
        if key.len() != ROOT_KEY {
            return Err(format!("a root key in DER has {ROOT_KEY} bytes, and this has {}", key.len()));
        }
        Ok(Self(key))
    }
}

/// Options by which a certificate is verified.
#[derive(Clone, Debug, clap::Args)]
pub struct TrustArgs {
    /// Principal of the canister
    #[arg(long, value_name = "ID")]
    pub canister: Principal,
    /// Root key of the network, in DER as hexadecimal digits [default: that of the mainnet]
    #[arg(long, value_name = "HEX")]
    pub root_key: Option<RootKey>,
}

impl TrustArgs {
    /// Returns the verification of certificates of the canister.
    ///
    /// # Errors
    /// When the agent cannot be made.
    pub fn vouch(&self) -> Result<impl Fn(&[u8]) -> Result<Vouched> + use<>> {
        let (verifier, canister) = (Verifier::new(self.root_key.clone().map(|RootKey(key)| key))?, self.canister);
        Ok(move |certificate: &[u8]| verifier.vouched(certificate, canister))
    }
}

#[cfg(test)]
mod tests {
    use crate::commands::Cli;
    use clap::Parser;

    #[test]
    fn options_of_proofs_are_accepted_and_refused() {
        let (key, short) = ("0aF".repeat(88) + "00", "00".repeat(132));
        let (database, canister) = ("--database=sqlite://a", "--canister=aaaaa-aa");
        for (args, ok) in [
            (&["verify", database, canister][..], true),
            (&["verify", database, canister, "--root-key", &key, "--json"], true),
            (&["verify", database, canister, "--root-key", &short], false),
            (&["verify", database, canister, "--root-key", "xyz"], false),
            (&["verify", database], false),
            (&["prove", "7", database], true),
            (&["prove", "-7", database], false),
            (&["prove", "18446744073709551616", database], false),
            (&["prove", database], false),
            (&["check-proof", "-", canister], true),
            (&["check-proof", "a", canister, "--root-key", &key, "--order", "internal"], true),
            (&["check-proof", "a"], false),
            (&["check-proof", canister], false),
            (&["check-proof", "a", "--canister", "aaaaa"], false),
        ] {
            let parsed = Cli::try_parse_from([&["coppice"], args].concat());
            assert_eq!(parsed.is_ok(), ok, "{args:?}: {:?}", parsed.err());
        }
    }
}
