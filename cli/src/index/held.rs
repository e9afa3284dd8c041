//! Contents of a database: counts, and a comparison with the blocks that were appended.

use super::change::int;
use super::header::SEGMENTS;
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
    pub blocks: u64,
    pub transactions: u64,
    /// Blocks missing between others.
    pub gap_blocks: u64,
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
                       (SELECT count(*) FROM orphaned), \
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
                orphaned_blocks: number(&row, 5)?,
                blocks_without_keys: number(&row, 6)?,
                blocks_without_receipts: number(&row, 7)?,
            })
        })
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
