//! `coppice check-proof`.

use super::archive::TrustArgs;
use crate::get::query::Order;
use crate::proof::format::Proof;
use crate::proof::print::CheckReport;
use crate::report;
use anyhow::{Context, Result};
use std::fs::File;
use std::path::{Path, PathBuf};

/// Help text after the options.
const HELP: &str = "\
No database and no network is used. The certificate is checked by the root key, at its own time, whatever its age. Ends with code 1 if the proof \
does not hold.
Hashes of blocks are printed in display order, the last byte first, as Bitcoin writes them; --order internal is the order in which the \
canister has them. The SHA-256 of a segment is compared with that of the bytes, which come from elsewhere.";

/// Options of `coppice check-proof`.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = HELP)]
pub struct CheckProofArgs {
    /// File of the proof; - for stdin
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
    /// The canister and the root key.
    #[command(flatten)]
    pub trust: TrustArgs,
    /// Order of the bytes of the block's hashes
    #[arg(long, value_enum, value_name = "ORDER", default_value_t)]
    pub order: Order,
    /// Print only one line of JSON on stdout
    #[arg(long)]
    pub json: bool,
}

/// Checks a proof and prints the block's header.
///
/// # Errors
/// [`Refused`](crate::proof::format::Refused); when the file cannot be read.
pub fn command(args: &CheckProofArgs) -> Result<()> {
    let proof = if args.file == Path::new("-") {
        Proof::read(std::io::stdin().lock()).context("the proof on stdin is refused")?
    } else {
        let name = args.file.display();
        let file = File::open(&args.file).with_context(|| format!("cannot read the proof {name}"))?;
        Proof::read(file).with_context(|| format!("the proof {name} is refused"))?
    };
    let what = || format!("the proof of block {} is refused", proof.header.number);
    let checked = proof.check(args.trust.vouch()?).with_context(what)?;
    report::print(&CheckReport::of(&proof, &checked, args.trust.canister.to_string(), args.order), args.json)
}
