//! Contents of a database: counts, unconfirmed blocks, and a comparison with the blocks that were appended.

use super::assemble::SEGMENTS;
use super::change::int;
use super::store::{Store, number, optional};
use crate::ledger::Entry;
use anyhow::{Context, Result};
use serde::Serialize;

/// The contents of a database.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Held {
    /// Number of the oldest block.
    pub first: Option<u64>,
    /// Number of the newest block.
    pub last: Option<u64>,
    /// Blocks.
    pub blocks: u64,
    /// Transactions.
    pub transactions: u64,
    /// Blocks missing between others.
    pub gap_blocks: u64,
    /// Unconfirmed blocks, which only one replica vouches for.
    pub unconfirmed_blocks: u64,
    /// Blocks that a reorg or a reset removed, as far as they are kept.
    pub orphaned_blocks: u64,
    /// Blocks whose keys are not in `keys`.
    pub blocks_without_keys: u64,
    /// Blocks whose receipts are not in `receipts`.
    pub blocks_without_receipts: u64,
}

impl Store {
    /// Returns the contents of the database.
    ///
    /// # Errors
    /// When the database fails.
    pub fn held(&mut self) -> Result<Held> {
        self.database.transaction(|tx| {
            let sql = "SELECT min(number), max(number), count(*), (SELECT count(*) FROM transactions), \
                       (SELECT CAST(sum(last - first + 1) AS BIGINT) FROM gaps), \
                       (SELECT count(*) FROM blocks WHERE confirmed = 0), (SELECT count(*) FROM orphaned), \
                       (SELECT count(*) FROM blocks WHERE number > (SELECT coalesce(keys_through, -1) FROM state)), \
                       (SELECT count(*) FROM blocks WHERE number > (SELECT coalesce(receipts_through, -1) FROM state)) \
                       FROM blocks";
            let row = tx.one(sql, &[])?.context("no answer")?;
            Ok(Held {
                first: optional(&row, 0)?,
                last: optional(&row, 1)?,
                blocks: number(&row, 2)?,
                transactions: number(&row, 3)?,
                gap_blocks: optional(&row, 4)?.unwrap_or_default(),
                unconfirmed_blocks: number(&row, 5)?,
                orphaned_blocks: number(&row, 6)?,
                blocks_without_keys: number(&row, 7)?,
                blocks_without_receipts: number(&row, 8)?,
            })
        })
    }

    /// Returns the first unconfirmed block from `from` on, and the last unconfirmed block among the `most` numbers from there on.
    ///
    /// # Errors
    /// When the database fails.
    pub fn unconfirmed_from(&mut self, from: u64, most: u64) -> Result<Option<(u64, u64)>> {
        // No block number has more than 63 bits.
        let Ok(from) = int(from) else { return Ok(None) };
        self.database.transaction(|tx| {
            let sql = "SELECT min(number) FROM blocks WHERE confirmed = 0 AND number >= $1";
            let row = tx.one(sql, &[from.into()])?.context("no answer")?;
            let Some(first) = optional(&row, 0)? else { return Ok(None) };
            let sql = "SELECT max(number) FROM blocks WHERE confirmed = 0 AND number >= $1 AND number <= $2";
            let end = i64::try_from(first.saturating_add(most - 1)).unwrap_or(i64::MAX);
            let row = tx.one(sql, &[int(first)?.into(), end.into()])?.context("no answer")?;
            Ok(Some((first, number(&row, 0)?)))
        })
    }

    /// Returns the unconfirmed blocks as ranges of numbers, both inclusive: the lowest `most` ranges.
    ///
    /// # Errors
    /// When the database fails.
    pub fn unconfirmed_ranges(&mut self, most: i64) -> Result<Vec<(u64, u64)>> {
        // Within a range, the difference between number and row number is constant.
        let sql = "SELECT min(number), max(number) FROM \
                   (SELECT number, number - row_number() OVER (ORDER BY number) AS away FROM blocks WHERE confirmed = 0) \
                   AS unconfirmed GROUP BY away ORDER BY min(number) LIMIT $1";
        let rows = self.database.transaction(|tx| tx.all(sql, &[most.into()]))?;
        rows.iter().map(|row| Ok((number(row, 0)?, number(row, 1)?))).collect()
    }

    /// Returns whether the subnet vouches for any block from `from` on.
    ///
    /// # Errors
    /// When the database fails.
    pub fn has_confirmed_from(&mut self, from: u64) -> Result<bool> {
        let sql = "SELECT 1 FROM blocks WHERE confirmed <> 0 AND number >= $1 LIMIT 1";
        Ok(self.one(sql, &[int(from)?.into()])?.is_some())
    }

    /// Returns how many of these blocks are stored unchanged, with the same number of transaction ids. The ids themselves are compared for
    /// every sixteenth block.
    ///
    /// # Errors
    /// When the database fails.
    pub fn count_same(&mut self, entries: &[Entry]) -> Result<u64> {
        let sql = "SELECT hash, parent_hash, timestamp_secs, body_length, receipts_length, index_length, body_sha256, \
                   receipts_sha256, index_sha256, (SELECT count(*) FROM transactions WHERE number = $1) \
                   FROM blocks WHERE number = $1";
        self.database.transaction(|tx| {
            let mut same = 0;
            for entry in entries {
                let Some(row) = tx.one(sql, &[int(entry.number)?.into()])? else { continue };
                let parent = row.get::<Option<Vec<u8>>>(1)?;
                let mut is_same = *row.get::<Vec<u8>>(0)? == **entry.hash;
                is_same &= parent.is_none_or(|parent| *parent == **entry.parent_hash);
                is_same &= row.get::<i64>(2)? as u64 == entry.timestamp_secs;
                for (column, (length, sha256)) in (3..).zip(entry.lengths.each().into_iter().zip(entry.sha256.each())) {
                    is_same &= number(&row, column)? == *length;
                    is_same &= *row.get::<Vec<u8>>(column + SEGMENTS)? == ***sha256;
                }
                is_same &= number(&row, 9)? == u64::from(entry.transactions);
                if entry.number % 16 == 0 {
                    let sql = "SELECT id FROM transactions WHERE number = $1 ORDER BY position";
                    let rows = tx.all(sql, &[int(entry.number)?.into()])?;
                    let ids = rows.iter().map(|row| row.get::<Vec<u8>>(0)).collect::<Result<Vec<_>>>()?;
                    is_same &= crate::feed::sha256(&ids.concat()) == entry.ids_sha256;
                }
                same += u64::from(is_same);
            }
            Ok(same)
        })
    }
}
