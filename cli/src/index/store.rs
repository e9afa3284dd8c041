//! The database of one canister's chain: its origin, the position of the copy, and its contents.

use super::assemble::{Assembly, SEGMENTS, Tip};
use super::change::{Change, int};
use super::database::{Database, Kind, Row, Tx, Value};
use super::origin::{Origin, Payload};
use super::schema::{self, VERSION};
use super::tables::{Tables, Through};
use crate::ledger::Entry;
use anyhow::{Context, Error, Result, ensure};
use coppice_interface::ExportCursor;
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

/// The database of one canister's chain.
pub struct Store {
    database: Database,
    payload: Payload,
    revision: i64,
    /// The committed value.
    pruned_before: Option<u64>,
    /// A newer value, to be committed with the next change.
    newly_pruned: Option<u64>,
    /// The tables to fill.
    tables: Tables,
    /// The blocks whose rows these tables have, as of the last change.
    through: Through,
}

fn number(row: &Row, column: usize) -> Result<u64> {
    let value: i64 = row.get(column)?;
    u64::try_from(value).with_context(|| format!("the database holds {value} instead of a non-negative number"))
}

fn optional(row: &Row, column: usize) -> Result<Option<u64>> {
    let value: Option<i64> = row.get(column)?;
    value
        .map(|value| {
            u64::try_from(value).with_context(|| format!("the database holds {value} instead of a non-negative number"))
        })
        .transpose()
}

/// Checks the version of the schema.
///
/// # Errors
/// When the database has another version, or fails.
pub(crate) fn check_version(tx: &mut Tx<'_>) -> Result<()> {
    let row = tx.one("SELECT schema_version FROM state", &[])?;
    let version: i64 = row.context("the database has the tables, but no row in the table state")?.get(0)?;
    ensure!(
        version == VERSION,
        "the database has schema {version}, but this command needs {VERSION}; use another database (--database)"
    );
    Ok(())
}

impl Store {
    /// Opens a database, and creates the tables if there are none.
    ///
    /// # Errors
    /// When it cannot be opened, holds the chain of another canister, was begun with another `--payload`, or has another schema.
    pub fn open(url: &str, origin: &Origin) -> Result<Self> {
        let mut database = Database::open(url)?;
        let (revision, pruned_before, through) = database.transaction(|tx| {
            if !tx.has_table("state")? {
                tx.define(&schema::tables())?;
                let sql = "INSERT INTO state (id, schema_version, canister, network, payload, revision) \
                           VALUES (1, $1, $2, $3, $4, 0)";
                let Origin { canister, network, payload } = origin;
                let values = [VERSION.into(), canister.as_str().into(), network.as_str().into(), payload.name().into()];
                tx.execute(sql, &values)?;
            }
            check_version(tx)?;
            let sql = "SELECT canister, payload, revision, pruned_before, keys_through, receipts_through FROM state";
            let row = tx.one(sql, &[])?.context("the database has no row in the table state")?;
            let canister: String = row.get(0)?;
            ensure!(
                canister == origin.canister,
                "the database holds the chain of canister {canister}, not of {}; use another database (--database)",
                origin.canister
            );
            let payload: String = row.get(1)?;
            ensure!(
                payload == origin.payload.name(),
                "the database was begun with --payload {payload}; use that option again, or another database (--database)"
            );
            let through = Through { keys: optional(&row, 4)?, receipts: optional(&row, 5)? };
            Ok((row.get(2)?, optional(&row, 3)?, through))
        })?;
        let (payload, tables) = (origin.payload, Tables::NONE);
        Ok(Self { database, payload, revision, pruned_before, newly_pruned: None, tables, through })
    }

    /// Sets the tables that later changes fill. A database without payloads has nothing to fill them with.
    pub(super) fn fill_tables(&mut self, tables: Tables) {
        self.tables = if self.payload == Payload::All { tables } else { Tables::NONE };
    }

    /// Returns how many stored blocks lack rows in the tables to fill.
    ///
    /// # Errors
    /// When the database fails.
    pub fn count_unfilled(&mut self) -> Result<u64> {
        if self.tables == Tables::NONE {
            return Ok(0);
        }
        let above = self.through.of(self.tables).map_or(Ok(-1), int)?;
        let row = self.one("SELECT count(*) FROM blocks WHERE number > $1", &[above.into()])?;
        number(&row.context("no answer")?, 0)
    }

    /// Returns the kind of database.
    pub fn kind(&self) -> Kind {
        self.database.kind()
    }

    /// Notes that the canister keeps no block below this number. Committed with the next change.
    pub fn note_pruned(&mut self, before: u64) {
        self.newly_pruned = self.newly_pruned.max(Some(before));
    }

    /// Returns the number below which the canister keeps no block, as of the last change.
    pub fn pruned_before(&self) -> Option<u64> {
        self.pruned_before
    }

    /// Returns the cursor and the position of the copy.
    ///
    /// # Errors
    /// When the database fails, or holds something that this code does not write.
    pub fn load(&mut self) -> Result<(Option<ExportCursor>, Assembly)> {
        self.database.transaction(|tx| {
            let row = tx.one("SELECT cursor FROM state", &[])?.context("the database has no row in the table state")?;
            let cursor: Option<String> = row.get(0)?;
            let cursor: Option<ExportCursor> = cursor.map(|cursor| serde_json::from_str(&cursor)).transpose()?;
            let tip = match tx.one("SELECT number, hash FROM blocks ORDER BY number DESC LIMIT 1", &[])? {
                None => None,
                Some(row) => Some(Tip { number: number(&row, 0)?, hash: row.get(1)? }),
            };
            let row = tx.one("SELECT max(last) FROM gaps", &[])?.context("no answer")?;
            let expected = optional(&row, 0)?.max(tip.as_ref().map(|tip| tip.number)).map(|last| last + 1);
            let whole = cursor.as_ref().filter(|at| usize::from(at.segment) >= SEGMENTS);
            let expected = whole.map_or(expected, |at| at.number.checked_add(1));
            let restart = cursor.is_none();
            let row = if restart { None } else { tx.one("SELECT block FROM incomplete", &[])? };
            let block = row.map(|row| Ok::<_, Error>(serde_json::from_str(&row.get::<String>(0)?)?)).transpose()?;
            Ok((cursor, Assembly { tip, expected, block, restart }))
        })
    }

    /// Returns the hash of a stored block.
    ///
    /// # Errors
    /// When the database fails.
    pub fn hash_of(&mut self, block: u64) -> Result<Option<Vec<u8>>> {
        Ok(self.hash_and_confirmed(block)?.map(|(hash, _)| hash))
    }

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

    /// Returns the hash of a stored block, and whether the subnet vouches for the block.
    ///
    /// # Errors
    /// When the database fails.
    pub fn hash_and_confirmed(&mut self, block: u64) -> Result<Option<(Vec<u8>, bool)>> {
        let row = self.one("SELECT hash, confirmed FROM blocks WHERE number = $1", &[int(block)?.into()])?;
        row.map(|row| Ok((row.get(0)?, row.get::<i64>(1)? != 0))).transpose()
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
                let mut is_same =
                    *row.get::<Vec<u8>>(0)? == **entry.hash && *row.get::<Vec<u8>>(1)? == **entry.parent_hash;
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

    /// Returns whether any stored block lacks rows in the tables to fill.
    ///
    /// # Errors
    /// When the database fails.
    pub(super) fn has_unfilled(&mut self) -> Result<bool> {
        if self.tables == Tables::NONE {
            return Ok(false);
        }
        let above = self.through.of(self.tables).map_or(Ok(-1), int)?;
        Ok(self.one("SELECT 1 FROM blocks WHERE number > $1 LIMIT 1", &[above.into()])?.is_some())
    }

    /// Makes one change and moves the cursor, in one transaction.
    ///
    /// # Errors
    /// The error of `work`; when the database fails, or another process has changed it meanwhile. An error leaves the database unchanged.
    pub fn change<R>(
        &mut self,
        work: impl FnOnce(&mut Change<'_, '_>) -> Result<(R, Option<ExportCursor>)>,
    ) -> Result<R> {
        let (payload, revision, rows) = (self.payload, self.revision, (self.tables, self.through));
        let pruned_before = self.pruned_before.max(self.newly_pruned);
        let (result, pruned_before, through) = self.database.transaction(|tx| {
            let sql = "UPDATE state SET revision = revision + 1 WHERE revision = $1";
            let alone = tx.execute(sql, &[revision.into()])? == 1;
            ensure!(alone, "another indexer writes to this database: stop one of them");
            let mut change = Change::new(tx, payload, revision, rows);
            let (result, cursor) = work(&mut change)?;
            let pruned_before = pruned_before.filter(|_| !change.is_of_another_chain());
            let text = cursor.as_ref().map(serde_json::to_string).transpose()?;
            let through = change.through;
            let numbers = [pruned_before, through.keys, through.receipts].map(|of| of.map(int).transpose());
            let [pruned, keys, receipts] = numbers;
            let values = [Value::Int(pruned?), Value::Text(text.as_deref()), Value::Int(keys?), Value::Int(receipts?)];
            let sql = "UPDATE state SET pruned_before = $1, cursor = $2, keys_through = $3, receipts_through = $4";
            tx.execute(sql, &values)?;
            Ok((result, pruned_before, through))
        })?;
        self.revision += 1;
        self.through = through;
        (self.pruned_before, self.newly_pruned) = (pruned_before, None);
        Ok(result)
    }

    /// Reads one row.
    ///
    /// # Errors
    /// When the database fails.
    pub fn one(&mut self, sql: &'static str, values: &[Value<'_>]) -> Result<Option<Row>> {
        self.database.transaction(|tx| tx.one(sql, values))
    }
}
