//! The database that `coppice index` fills, which has pruned blocks, too.

use super::{Failure, Found, Source, decode, hash};
use crate::{Block, Wrong};
use alloy_consensus::Header;
use alloy_primitives::B256;
use anyhow::{Context as _, Result, anyhow, ensure};
use ic_coppice_cli::index::database::{Row, Tx, Value};
use ic_coppice_cli::index::reader::{int, number, read, why_missing};
use ic_coppice_interface::segments::MAX_BLOCK;
use std::ops::RangeInclusive;
use std::sync::Arc;

/// A database of `coppice index`.
pub struct Database {
    url: String,
}

impl Database {
    /// Opens a database once, to see whether it has the payload of blocks.
    ///
    /// # Errors
    /// When it cannot be read, or holds only headers.
    pub fn open(url: &str) -> Result<Self> {
        let payload = read(url, |tx, _| {
            tx.one("SELECT payload FROM state", &[])?.context("the database has no row in the table state")?.get(0)
        });
        let payload: String = payload?;
        ensure!(
            payload == "all",
            "the database was begun with --payload headers, so it has no blocks to answer with: index into another one"
        );
        Ok(Self { url: url.into() })
    }

    /// Reads in one transaction, so that everything belongs to one chain.
    fn read<R>(&self, work: impl FnOnce(&mut Tx<'_>) -> Result<Result<R, Failure>>) -> Result<R, Failure> {
        read(&self.url, |tx, _| work(tx))?
    }
}

/// The numbers of the oldest and the newest block.
fn range(tx: &mut Tx<'_>) -> Result<Option<RangeInclusive<u64>>> {
    let row = tx.one("SELECT min(number), max(number) FROM blocks", &[])?.context("no answer")?;
    match row.get::<Option<i64>>(0)? {
        Some(_) => Ok(Some(number(&row, 0)?..=number(&row, 1)?)),
        None => Ok(None),
    }
}

/// The reason why a block is not in the database.
fn missing(tx: &mut Tx<'_>, block: u64) -> Result<Failure> {
    match range(tx)? {
        Some(range) if block < *range.start() => Ok(Failure::Pruned { first: *range.start() }),
        _ => Ok(Failure::Failed(anyhow!("there is no block {block}: {}", why_missing(tx, block)?))),
    }
}

/// Returns a segment, which is in parts if it is long.
fn segment(tx: &mut Tx<'_>, row: &Row, column: usize, block: u64, segment: u8) -> Result<Vec<u8>> {
    if let Some(bytes) = row.get::<Option<Vec<u8>>>(column)? {
        return Ok(bytes);
    }
    let sql = "SELECT bytes FROM parts WHERE number = $1 AND segment = $2 ORDER BY starts_at";
    let mut bytes = Vec::new();
    for part in tx.all(sql, &[Value::Int(int(block)), i64::from(segment).into()])? {
        bytes.extend(part.get::<Vec<u8>>(0)?);
        ensure!(bytes.len() as u64 <= MAX_BLOCK, "block {block}: segment {segment} has too many parts");
    }
    Ok(bytes)
}

/// Decodes the header at the beginning of a block's RLP.
fn header(body: &[u8], block: u64) -> Result<Header, Wrong> {
    use alloy_rlp::Decodable as _;
    let unreadable = |why: alloy_rlp::Error| Wrong::unreadable(block, "the header", why);
    let mut rest = body;
    alloy_rlp::Header::decode(&mut rest).map_err(unreadable)?;
    Header::decode(&mut rest).map_err(unreadable)
}

impl Source for Database {
    fn range(&self) -> Result<Option<RangeInclusive<u64>>, Failure> {
        self.read(|tx| Ok(Ok(range(tx)?)))
    }

    fn hash(&self, block: u64) -> Result<Option<B256>, Failure> {
        self.read(|tx| {
            let Some(range) = range(tx)?.filter(|range| block <= *range.end()) else { return Ok(Ok(None)) };
            if block < *range.start() {
                return Ok(Err(Failure::Pruned { first: *range.start() }));
            }
            match tx.one("SELECT hash FROM blocks WHERE number = $1", &[Value::Int(int(block))])? {
                Some(row) => Ok(hash(&row.get::<Vec<u8>>(0)?, block).map(Some)),
                None => Ok(Err(missing(tx, block)?)),
            }
        })
    }

    fn blocks(&self, numbers: &[u64], wants: &(dyn Fn(&Header) -> bool + Sync)) -> Result<Vec<Arc<Block>>, Failure> {
        self.read(|tx| {
            let mut blocks = Vec::new();
            for block in numbers.iter().copied() {
                let sql = "SELECT hash, body, receipts FROM blocks WHERE number = $1";
                let Some(row) = tx.one(sql, &[Value::Int(int(block))])? else { return Ok(Err(missing(tx, block)?)) };
                let hash = match hash(&row.get::<Vec<u8>>(0)?, block) {
                    Ok(hash) => hash,
                    Err(failure) => return Ok(Err(failure)),
                };
                let body = segment(tx, &row, 1, block, 0)?;
                let header = header(&body, block)?;
                if header.hash_slow() == hash && !wants(&header) {
                    continue;
                }
                let receipts = segment(tx, &row, 2, block, 1)?;
                match decode(block, hash, &body, &receipts) {
                    Ok(block) => blocks.push(block),
                    Err(failure) => return Ok(Err(failure)),
                }
            }
            Ok(Ok(blocks))
        })
    }

    fn locate(&self, id: &B256) -> Result<Option<u64>, Failure> {
        self.read(|tx| {
            let sql = "SELECT max(number) FROM transactions WHERE id = $1";
            let row = tx.one(sql, &[id.as_slice().into()])?.context("no answer")?;
            Ok(Ok(row.get::<Option<i64>>(0)?.map(|_| number(&row, 0)).transpose()?))
        })
    }

    fn with_keys(&self, keys: &[Vec<u8>], range: RangeInclusive<u64>, most: usize) -> Result<Vec<u64>, Failure> {
        self.read(|tx| {
            let sql = "SELECT min(number) FROM blocks WHERE number BETWEEN $1 AND $2 \
                       AND number > (SELECT coalesce(keys_through, -1) FROM state)";
            // No stored number is larger than the largest of the database.
            let bounds = [*range.start(), *range.end()].map(|bound| int(bound).unwrap_or(i64::MAX));
            let row = tx.one(sql, &[bounds[0].into(), bounds[1].into()])?.context("no answer")?;
            if let Some(first) = row.get::<Option<i64>>(0)? {
                let why = anyhow!("the table keys lacks blocks from {first} on: run coppice index without --no-keys");
                return Ok(Err(why.into()));
            }
            let mut found = Found::new(most);
            for key in keys {
                let sql = "SELECT DISTINCT number FROM keys WHERE key = $1 AND number BETWEEN $2 AND $3 \
                           ORDER BY number DESC LIMIT $4";
                let limit = i64::try_from(most).unwrap_or(i64::MAX).saturating_add(1);
                let values = [key.as_slice().into(), bounds[0].into(), bounds[1].into(), limit.into()];
                let rows = tx.all(sql, &values)?;
                found.add(rows.iter().map(|row| number(row, 0)).collect::<Result<Vec<u64>>>()?);
            }
            Ok(found.done())
        })
    }
}
