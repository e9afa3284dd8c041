//! `coppice verify`.

use super::archive::{ArchiveArgs, TrustArgs};
use crate::index::database::Tx;
use crate::index::reader;
use crate::progress::Progress;
use crate::proof::print::VerifyReport;
use crate::proof::rows;
use crate::proof::walk::{Walked, walk};
use crate::report;
use anyhow::{Context, Result, ensure};
use std::time::Instant;

/// Help text after the options.
const HELP: &str = "\
Each seal is computed from the header and the seal before it, and compared; each certificate is checked at its own time, whatever its age. The \
segments' lengths and SHA-256 are part of the header. The segments themselves, and the tables transactions, keys and receipts, are not \
read.
Ends with code 1 at the first block or certificate that is wrong. The newest blocks may lack a certificate; the report lists them.";

/// Options of `coppice verify`.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = HELP)]
pub struct VerifyArgs {
    /// The database.
    #[command(flatten)]
    pub archive: ArchiveArgs,
    /// The canister and the root key.
    #[command(flatten)]
    pub trust: TrustArgs,
    /// Print only one line of JSON on stdout
    #[arg(long)]
    pub json: bool,
}

/// Verifies a database and prints the report.
///
/// # Errors
/// [`Wrong`](crate::proof::walk::Wrong), for the first row that is wrong; when the database cannot be read, or holds another chain.
pub fn command(args: &VerifyArgs) -> Result<()> {
    let started = Instant::now();
    let url = args.archive.url()?;
    let (walked, kind) = reader::read(url, |tx, kind| Ok((walked(tx, args)?, kind)))?;
    let report = VerifyReport {
        command: "verify",
        database: kind.name(),
        canister: args.trust.canister.to_string(),
        walked,
        elapsed_secs: report::seconds_since(started),
    };
    report::print(&report, args.json)
}

fn walked(tx: &mut Tx<'_>, args: &VerifyArgs) -> Result<Walked> {
    let (canister, named) = (rows::canister(tx)?, args.trust.canister);
    ensure!(canister == named, "the database holds the chain of canister {canister}, not of {named}");
    let row = tx.one("SELECT count(*) FROM blocks", &[])?.context("no answer")?;
    let progress = Progress::new("verifying", reader::number(&row, 0)?);
    let walked = walk(tx, args.trust.vouch()?, || progress.advance())?;
    progress.finish();
    Ok(walked)
}
