//! Rows of a database of `coppice index` that seals are computed from. Payloads are not read.

use crate::index::database::{Row, Tx, Value};
use crate::index::header::{Declared, Header};
use crate::index::reader::{int, number};
use anyhow::{Context, Result, anyhow};
use candid::Principal;
use ic_coppice_interface::TipCertificate;
use ic_coppice_interface::seals::Seal;

/// The most rows that memory holds.
pub const BATCH: i64 = 1_000;

/// A stored block without its payload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stored {
    pub header: Header,
    pub seal: Seal,
    /// The seal before it, in the table `runs`.
    pub before: Option<Seal>,
}

/// Returns the canister whose chain the database holds.
///
/// # Errors
/// When the database fails, or names no canister.
pub fn canister(tx: &mut Tx<'_>) -> Result<Principal> {
    let row = tx.one("SELECT canister FROM state", &[])?.context("the database has no row in the table state")?;
    let text: String = row.get(0)?;
    Principal::from_text(&text).with_context(|| format!("the database names the canister {text:?}"))
}

/// Returns stored blocks from number `first` to `last`, both included, in their order, at most [`BATCH`] of them.
///
/// # Errors
/// When the database fails, or a row holds something that `coppice index` does not write.
pub fn blocks(tx: &mut Tx<'_>, first: u64, last: u64) -> Result<Vec<Stored>> {
    let sql = "SELECT blocks.number, hash, parent_hash, timestamp_secs, seal, runs.before, body_length, receipts_length, \
               index_length, body_sha256, receipts_sha256, index_sha256 \
               FROM blocks LEFT JOIN runs ON runs.number = blocks.number \
               WHERE blocks.number >= $1 AND blocks.number <= $2 ORDER BY blocks.number LIMIT $3";
    let rows = tx.all(sql, &[bound(first), bound(last), BATCH.into()])?;
    let stored = |row: &Row| {
        let block = number(row, 0)?;
        of_row(row, block).with_context(|| format!("the row of block {block} is wrong"))
    };
    rows.iter().map(stored).collect()
}

/// Returns certificates of blocks from number `first` to `last`, both included, in their order, at most [`BATCH`] of them.
///
/// # Errors
/// When the database fails.
pub fn certificates(tx: &mut Tx<'_>, first: u64, last: u64) -> Result<Vec<(u64, TipCertificate)>> {
    let sql = "SELECT number, certificate, hash_tree FROM certificates \
               WHERE number >= $1 AND number <= $2 ORDER BY number LIMIT $3";
    let rows = tx.all(sql, &[bound(first), bound(last), BATCH.into()])?;
    rows.iter().map(certificate).collect()
}

/// Returns the first certificate of a block or a later one.
///
/// # Errors
/// When the database fails.
pub fn next_certificate(tx: &mut Tx<'_>, block: u64) -> Result<Option<(u64, TipCertificate)>> {
    let sql = "SELECT number, certificate, hash_tree FROM certificates WHERE number >= $1 ORDER BY number LIMIT 1";
    tx.one(sql, &[bound(block)])?.as_ref().map(certificate).transpose()
}

/// Returns the missing blocks, as ranges of which both numbers are included.
///
/// # Errors
/// When the database fails.
pub fn gaps(tx: &mut Tx<'_>) -> Result<Vec<(u64, u64)>> {
    let rows = tx.all("SELECT first, last FROM gaps ORDER BY first", &[])?;
    rows.iter().map(|row| Ok((number(row, 0)?, number(row, 1)?))).collect()
}

/// Returns a bound of stored numbers, of which none is larger than the largest `i64`.
fn bound(number: u64) -> Value<'static> {
    int(number).unwrap_or(i64::MAX).into()
}

fn certificate(row: &Row) -> Result<(u64, TipCertificate)> {
    let (certificate, hash_tree): (Vec<u8>, Vec<u8>) = (row.get(1)?, row.get(2)?);
    Ok((number(row, 0)?, TipCertificate { certificate: certificate.into(), hash_tree: hash_tree.into() }))
}

fn digest(bytes: Vec<u8>, what: &str) -> Result<Seal> {
    bytes.try_into().map_err(|bytes: Vec<u8>| anyhow!("{what} has {} bytes instead of 32", bytes.len()))
}

fn of_row(row: &Row, block: u64) -> Result<Stored> {
    let declared = |column: usize, what: &str| {
        let length = number(row, column)?;
        let length = length.try_into().with_context(|| format!("{what} has {length} bytes"))?;
        Ok::<_, anyhow::Error>(Declared { length, sha256: digest(row.get(column + 3)?, what)? })
    };
    let before: Option<Vec<u8>> = row.get(5)?;
    Ok(Stored {
        header: Header {
            number: block,
            hash: row.get(1)?,
            parent_hash: row.get(2)?,
            timestamp_secs: row.get::<i64>(3)?.cast_unsigned(),
            segments: [declared(6, "the body")?, declared(7, "the receipts")?, declared(8, "the index")?],
        },
        seal: digest(row.get(4)?, "the seal")?,
        before: before.map(|before| digest(before, "the seal before it")).transpose()?,
    })
}
