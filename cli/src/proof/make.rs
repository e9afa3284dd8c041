//! Makes the proof of a stored block.

use super::digits::Hex;
use super::format::{Fields, Format, MAX_LEAVES, Proof};
use super::rows::{self, Stored};
use crate::index::database::Tx;
use crate::index::reader::why_missing;
use crate::report::{blocks, count};
use anyhow::{Context, Result, bail, ensure};
use ic_coppice_client::certificate::Vouched;
use ic_coppice_interface::TipCertificate;
use ic_coppice_interface::seals::Seal;

/// Returns the proof of a block. `vouch` reads certificates of the canister; it may leave out the signature, because the root key need not be
/// known.
///
/// # Errors
/// When the database lacks the block, a later one, the seal before it or a certificate; when the parent's hash of one of these blocks is
/// unknown; when the rows do not fit together.
pub fn make(tx: &mut Tx<'_>, block: u64, vouch: impl FnOnce(&[u8]) -> Result<Vouched>) -> Result<Proof> {
    let Some(stored) = rows::blocks(tx, block, block)?.pop() else {
        bail!("there is no block {block} here: {}", why_missing(tx, block)?);
    };
    let header = Fields::of(&stored.header).with_context(|| {
        format!("block {block} cannot be proved by its seal: its parent's hash was lost, because the parent's header was damaged")
    })?;
    let before = before(tx, &stored)?.with_context(|| {
        format!("block {block} cannot be proved by its seal: the database has neither the block before it nor a row of it in the table runs")
    })?;
    let (certified, TipCertificate { certificate, hash_tree }) =
        rows::next_certificate(tx, block)?.with_context(|| {
            format!(
                "there is no certificate of block {block} or a later one yet: run coppice index until it is at the head"
            )
        })?;
    ensure!(
        certified - block <= MAX_LEAVES,
        "the next certificate is {} later, at block {certified}: a proof spans at most {}",
        blocks(certified - block),
        count(MAX_LEAVES)
    );
    let proof = Proof {
        format: Format,
        header,
        seal_before: Hex(before),
        leaves: leaves(tx, block, certified)?,
        certificate: Hex(certificate.into_vec()),
        hash_tree: Hex(hash_tree.into_vec()),
    };
    proof
        .check(vouch)
        .context("the database does not prove the block, and coppice verify finds the first wrong row")?;
    Ok(proof)
}

/// Returns the seal before a block.
fn before(tx: &mut Tx<'_>, stored: &Stored) -> Result<Option<Seal>> {
    let Some(number) = stored.header.number.checked_sub(1) else { return Ok(stored.before) };
    Ok(rows::blocks(tx, number, number)?.pop().map(|before| before.seal).or(stored.before))
}

/// Returns the leaves after a block, up to the certified one.
fn leaves(tx: &mut Tx<'_>, block: u64, certified: u64) -> Result<Vec<Hex<Seal>>> {
    let (mut leaves, mut last) = (Vec::new(), block);
    while last < certified {
        let batch = rows::blocks(tx, last + 1, certified)?;
        ensure!(!batch.is_empty(), missing(tx, block, last + 1, certified)?);
        for Stored { header, .. } in batch {
            ensure!(header.number == last + 1, missing(tx, block, last + 1, certified)?);
            ensure!(
                header.parent_hash.is_some(),
                "no certificate proves block {block}: the next one is of block {certified}, and the leaf of block {} is unknown, because its \
                 parent's hash was lost with a damaged header",
                header.number
            );
            leaves.push(Hex(header.leaf()?));
            last = header.number;
        }
    }
    Ok(leaves)
}

fn missing(tx: &mut Tx<'_>, block: u64, first: u64, certified: u64) -> Result<String> {
    let why = why_missing(tx, first)?;
    Ok(format!(
        "no certificate proves block {block}: the next one is of block {certified}, and block {first} before it is missing: {why}"
    ))
}
