//! `coppice prove`.

use super::archive::ArchiveArgs;
use crate::index::reader;
use crate::proof::make::make;
use crate::proof::rows;
use crate::report::{blocks, bytes};
use crate::{say, terminal};
use anyhow::Result;
use ic_coppice_client::certificate;

/// The most leaves of a proof without a note.
const MANY: usize = 100_000;

/// Bytes of a leaf in the file.
const LEAF: u64 = 67;

/// Help text after the options.
const HELP: &str = "\
The proof is a line of JSON: the header, the seal before it, a leaf of 32 bytes for each later block up to the next certified one, and that one's \
certificate. coppice check-proof checks it, and needs nothing else. It is proved that the block was in the chain at the certificate's time.
Pruned blocks are proved, too. The newest blocks have no certificate until coppice index is at the head.";

/// Options of `coppice prove`.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = HELP)]
pub struct ProveArgs {
    /// Number of the block
    #[arg(value_name = "BLOCK")]
    pub block: u64,
    /// The database.
    #[command(flatten)]
    pub archive: ArchiveArgs,
}

/// Writes the proof of a block to stdout.
///
/// # Errors
/// As [`make`]; when the database cannot be read, or the proof cannot be written.
pub fn command(args: &ProveArgs) -> Result<()> {
    let proof = reader::read(args.archive.url()?, |tx, _| {
        let canister = rows::canister(tx)?;
        make(tx, args.block, |bytes| certificate::vouched(bytes, canister, |_| Ok(())))
    })?;
    let leaves = proof.leaves.len() as u64;
    if proof.leaves.len() > MANY {
        say!(
            "note: the proof has {}, because the next certificate is {} after block {}",
            bytes(leaves * LEAF),
            blocks(leaves),
            args.block
        );
    }
    Ok(terminal::print_json(&proof)?)
}
