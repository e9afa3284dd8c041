//! Reading a database of `coppice index`, in one transaction, so that everything belongs to one chain.

use super::database::{Database, Kind, Row, Tx};
use super::store::check_version;
use anyhow::{Context, Result, ensure};

/// Opens a database only to read it, and does `work` in one transaction.
///
/// # Errors
/// When the database cannot be opened or was not made by this version of `coppice index`; errors of `work`.
pub fn read<R>(url: &str, work: impl FnOnce(&mut Tx<'_>, Kind) -> Result<R>) -> Result<R> {
    let mut database = Database::open_to_read(url)?;
    let kind = database.kind();
    database.transaction(|tx| {
        ensure!(
            tx.has_table("state")?,
            "the database has no tables of coppice index: name the database that coppice index fills"
        );
        check_version(tx)?;
        work(tx, kind)
    })
}

/// Returns the database's form of a number; `None` if no stored number is as large.
pub fn int(number: u64) -> Option<i64> {
    i64::try_from(number).ok()
}

/// Returns a stored number.
///
/// # Errors
/// When the column holds something else.
pub fn number(row: &Row, column: usize) -> Result<u64> {
    let value: i64 = row.get(column)?;
    u64::try_from(value).with_context(|| format!("the database holds {value} instead of a non-negative number"))
}

/// Returns the reason why a block is missing, as a sentence.
///
/// # Errors
/// When the database fails.
pub fn why_missing(tx: &mut Tx<'_>, block: u64) -> Result<String> {
    if let Some(block) = int(block) {
        let sql = "SELECT first, last, why FROM gaps WHERE first <= $1 AND last >= $1";
        if let Some(row) = tx.one(sql, &[block.into()])? {
            let (first, last, why) = (number(&row, 0)?, number(&row, 1)?, row.get::<String>(2)?);
            return Ok(format!("the database lacks blocks {first} to {last}: {why}"));
        }
    }
    let row = tx.one("SELECT min(number), max(number) FROM blocks", &[])?.context("no answer")?;
    Ok(match (row.get::<Option<i64>>(0)?, row.get::<Option<i64>>(1)?) {
        (Some(first), Some(last)) => format!("the database holds blocks {first} to {last}"),
        _ => "the database holds no block yet: coppice index fills it".into(),
    })
}
