//! The database of one canister's chain: its origin, the position of the copy, and its changes. `held.rs` reads its contents.

use super::assemble::{Position, Tip};
use super::change::{Change, int};
use super::database::{Access, Database, Kind, Lost, Row, Tx, Value};
use super::origin::{Origin, Payload};
use super::schema::{self, VERSION};
use super::tables::{Tables, Through};
use anyhow::{Context, Error, Result, anyhow, ensure};
use ic_coppice_interface::seals::Seal;
use serde::{Deserialize, Serialize};

/// The certificate that proved the newest block, as far as later ones are compared with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Proof {
    /// The certificate's time, in nanoseconds since 1970.
    pub time_ns: u64,
    /// The number of the canister's oldest block.
    pub first: u64,
    /// Resets so far.
    pub resets: u64,
    /// Blocks that were ever rolled back.
    pub rollbacks: u64,
}

/// The database of one canister's chain.
pub struct Store {
    pub(super) database: Database,
    origin: Origin,
    /// The number of changes that were committed.
    revision: i64,
    /// The connection was opened again, so that an earlier commit may still arrive.
    reopened: bool,
    /// The committed value.
    proof: Option<Proof>,
    /// A newer value, to be committed with the next change.
    newest: Option<Proof>,
    tables: Tables,
    /// The blocks whose rows these tables have, as of the last change.
    through: Through,
}

/// The error if another process changes the database.
const ANOTHER: &str = "another indexer writes to this database: stop one of them";

pub(super) fn number(row: &Row, column: usize) -> Result<u64> {
    let value: i64 = row.get(column)?;
    u64::try_from(value).with_context(|| format!("the database holds {value} instead of a non-negative number"))
}

fn seal(row: &Row, column: usize) -> Result<Seal> {
    let bytes: Vec<u8> = row.get(column)?;
    <[u8; 32]>::try_from(bytes).map_err(|bytes| anyhow!("the database holds a seal of {} bytes", bytes.len()))
}

pub(super) fn optional(row: &Row, column: usize) -> Result<Option<u64>> {
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
    pub fn open(access: Access, origin: &Origin) -> Result<Self> {
        let mut database = Database::open(access)?;
        database.transaction(|tx| {
            if tx.has_table("state")? {
                return Ok(());
            }
            tx.define(&schema::tables())?;
            let sql = "INSERT INTO state (id, schema_version, canister, network, payload, revision) \
                       VALUES (1, $1, $2, $3, $4, 0)";
            let Origin { canister, network, payload } = origin;
            let values = [VERSION.into(), canister.as_str().into(), network.as_str().into(), payload.name().into()];
            tx.execute(sql, &values).map(drop)
        })?;
        Self::of(database, origin)
    }

    /// Reads the state of a database that has the tables.
    fn of(mut database: Database, origin: &Origin) -> Result<Self> {
        let (revision, proof, through) = database.transaction(|tx| {
            ensure!(tx.has_table("state")?, "the database has no tables of coppice index any more");
            check_version(tx)?;
            let sql = "SELECT canister, payload, revision, proof, keys_through, receipts_through FROM state";
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
            let proof: Option<String> = row.get(3)?;
            Ok((row.get(2)?, proof.map(|proof| serde_json::from_str(&proof)).transpose()?, through))
        })?;
        let (origin, tables) = (origin.clone(), Tables::NONE);
        Ok(Self { database, origin, revision, reopened: false, proof, newest: None, tables, through })
    }

    /// Returns whether the connection has ended.
    pub(super) fn is_lost(&self) -> bool {
        self.database.is_lost()
    }

    /// Returns the number of changes that were committed.
    pub(super) fn revision(&self) -> i64 {
        self.revision
    }

    /// Opens the connection again, and reads whether the last change was committed.
    ///
    /// # Errors
    /// As [`open`](Self::open); when the database lacks committed changes, or has changes of another process.
    pub(super) fn reopen(&mut self) -> Result<()> {
        let database = Database::open_existing(self.database.access().clone())?;
        let fresh = Self::of(database, &self.origin)?;
        ensure!(
            fresh.revision >= self.revision,
            "the database has lost committed changes: it is at change {}, and change {} was committed. Blocks that the canister may have \
             pruned are missing. Nothing was changed; continue with the newest copy of the database",
            fresh.revision,
            self.revision
        );
        ensure!(fresh.revision <= self.revision + 1, ANOTHER);
        *self = Self { reopened: true, tables: self.tables, ..fresh };
        Ok(())
    }

    /// Checks, in a new transaction, that the database holds a block, where the next run looks for it.
    ///
    /// # Errors
    /// When it does not; when the database fails.
    pub(super) fn ensure_kept(&mut self, tip: &Tip) -> Result<()> {
        self.ensure_in_place()?;
        ensure!(
            self.hash_of(tip.number)?.is_some_and(|hash| hash == tip.hash),
            "the database does not hold block {}, which was committed: another process has changed it. Nothing more is acknowledged",
            tip.number
        );
        self.ensure_in_place()
    }

    /// Checks that the database is where the next run looks for it.
    ///
    /// # Errors
    /// When a file was deleted, moved or replaced.
    pub fn ensure_in_place(&self) -> Result<()> {
        self.database.ensure_in_place()
    }

    /// Sets the tables that later changes fill. A database without payloads has nothing to fill them with.
    pub(super) fn fill_tables(&mut self, tables: Tables) {
        self.tables = if self.origin.payload == Payload::All { tables } else { Tables::NONE };
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

    pub fn kind(&self) -> Kind {
        self.database.kind()
    }

    /// Notes the proof of the blocks that the next change stores. Committed with that change.
    pub fn note_proof(&mut self, proof: Proof) {
        self.newest = Some(proof);
    }

    /// Returns the proof of the newest block, as of the last change.
    pub fn proof(&self) -> Option<Proof> {
        self.proof
    }

    /// Returns the position of the copy.
    ///
    /// # Errors
    /// When the database fails, or holds something that this code does not write.
    pub fn load(&mut self) -> Result<Position> {
        self.database.transaction(|tx| {
            let tip = match tx.one("SELECT number, hash, seal FROM blocks ORDER BY number DESC LIMIT 1", &[])? {
                None => None,
                Some(row) => Some(Tip { number: number(&row, 0)?, hash: row.get(1)?, seal: seal(&row, 2)? }),
            };
            let row = tx.one("SELECT max(last) FROM gaps", &[])?.context("no answer")?;
            let expected = optional(&row, 0)?.max(tip.as_ref().map(|tip| tip.number)).map(|last| last + 1);
            let row = tx.one("SELECT block FROM incomplete", &[])?;
            let block = row.map(|row| Ok::<_, Error>(serde_json::from_str(&row.get::<String>(0)?)?)).transpose()?;
            Ok(Position { tip, expected, block })
        })
    }

    /// Returns the hash of a stored block.
    ///
    /// # Errors
    /// When the database fails.
    pub fn hash_of(&mut self, block: u64) -> Result<Option<Vec<u8>>> {
        let row = self.block("SELECT hash FROM blocks WHERE number = $1", block)?;
        row.map(|row| row.get(0)).transpose()
    }

    /// Returns the seal of a stored block.
    ///
    /// # Errors
    /// When the database fails.
    pub fn seal_of(&mut self, block: u64) -> Result<Option<Seal>> {
        let row = self.block("SELECT seal FROM blocks WHERE number = $1", block)?;
        row.map(|row| seal(&row, 0)).transpose()
    }

    /// Reads the row of a block. A number that no database holds has none: a replica may claim it.
    fn block(&mut self, sql: &'static str, number: u64) -> Result<Option<Row>> {
        match i64::try_from(number) {
            Ok(number) => self.one(sql, &[number.into()]),
            Err(_) => Ok(None),
        }
    }

    /// Returns the number of the oldest stored block.
    ///
    /// # Errors
    /// When the database fails.
    pub(super) fn oldest(&mut self) -> Result<Option<u64>> {
        let row = self.one("SELECT min(number) FROM blocks", &[])?;
        optional(&row.context("no answer")?, 0)
    }

    /// Returns the number of the newest certificate.
    ///
    /// # Errors
    /// When the database fails.
    pub(super) fn newest_certificate(&mut self) -> Result<Option<u64>> {
        let row = self.one("SELECT max(number) FROM certificates", &[])?;
        optional(&row.context("no answer")?, 0)
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

    /// Makes one change, in one transaction.
    ///
    /// # Errors
    /// The error of `work`; when the database fails, or another process has changed it meanwhile. An error leaves the database unchanged.
    pub fn change<R>(&mut self, work: impl FnOnce(&mut Change<'_, '_>) -> Result<R>) -> Result<R> {
        let (payload, revision, rows) = (self.origin.payload, self.revision, (self.tables, self.through));
        let (proof, reopened) = (self.newest.or(self.proof), self.reopened);
        let (result, through) = self.database.transaction(|tx| {
            let sql = "UPDATE state SET revision = revision + 1 WHERE revision = $1";
            let alone = tx.execute(sql, &[revision.into()])? == 1;
            // The position is read again.
            ensure!(alone || !reopened, Lost("a change was committed after its connection had ended".into()));
            ensure!(alone, ANOTHER);
            let mut change = Change::new(tx, payload, revision, rows);
            let result = work(&mut change)?;
            let text = proof.as_ref().map(serde_json::to_string).transpose()?;
            let through = change.through;
            let [keys, receipts] = [through.keys, through.receipts].map(|of| of.map(int).transpose());
            let values = [Value::Text(text.as_deref()), Value::Int(keys?), Value::Int(receipts?)];
            tx.execute("UPDATE state SET proof = $1, keys_through = $2, receipts_through = $3", &values)?;
            Ok((result, through))
        })?;
        self.revision += 1;
        self.reopened = false;
        self.through = through;
        (self.proof, self.newest) = (proof, None);
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
