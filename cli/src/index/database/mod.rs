//! A connection to the database, SQLite or PostgreSQL, and its transactions.
//!
//! Both databases understand `$1`, `ON CONFLICT`, recursive queries and transactional DDL, so every statement is written once (`store.rs`,
//! `schema.rs`); only this directory distinguishes them. `commit` returns only after the data is on disk, whatever the server's default,
//! because the canister may prune acknowledged blocks at once.
//!
//! - `access.rs`: the URL, the conditions of its use, and the limits of calls.
//! - `postgres.rs`: the settings of a transaction, directly or through a pooler.
//! - `sqlite.rs`: the settings of a file, and whether it is still there.

mod access;
mod postgres;
mod sqlite;

pub use access::{Access, Limits, Lost, is_lost};

use access::{Call, Calls};
use anyhow::{Context, Result, bail};
use postgres::Session;
use sqlite::Files;
use sqlx::postgres::PgRow;
use sqlx::sqlite::SqliteRow;
use sqlx::{AssertSqlSafe, Connection, Decode, Executor, Row as _, Sqlite, SqliteConnection, Transaction, Type};
use sqlx::{PgConnection, Postgres};

/// A value for a placeholder of a statement. Integers have 64 bits in all columns.
#[derive(Clone, Copy, Debug)]
pub enum Value<'a> {
    Int(Option<i64>),
    Bytes(Option<&'a [u8]>),
    Text(Option<&'a str>),
}

impl From<i64> for Value<'_> {
    fn from(value: i64) -> Self {
        Self::Int(Some(value))
    }
}

impl<'a> From<&'a [u8]> for Value<'a> {
    fn from(value: &'a [u8]) -> Self {
        Self::Bytes(Some(value))
    }
}

impl<'a> From<&'a str> for Value<'a> {
    fn from(value: &'a str) -> Self {
        Self::Text(Some(value))
    }
}

/// The kind of database that a URL names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// An SQLite file.
    Sqlite,
    /// A PostgreSQL server.
    Postgres,
}

impl Kind {
    /// Returns the kind by the scheme of a URL.
    ///
    /// # Errors
    /// When the scheme is neither.
    pub fn of(url: &str) -> Result<Self> {
        match url.split_once(':').map(|(scheme, _)| scheme) {
            Some("sqlite") => Ok(Self::Sqlite),
            Some("postgres" | "postgresql") => Ok(Self::Postgres),
            Some(scheme) => {
                bail!("the database {scheme} is not supported: use a URL that starts with sqlite: or postgres:")
            }
            None => bail!("{url:?} is not the URL of a database: write sqlite://FILE or postgres://HOST/NAME"),
        }
    }

    pub fn name(self) -> &'static str {
        match self {
            Self::Sqlite => "SQLite",
            Self::Postgres => "PostgreSQL",
        }
    }
}

enum Link {
    /// With the open files, unless the database is only read.
    Sqlite(SqliteConnection, Option<Files>),
    Postgres(PgConnection, Session),
}

enum Open<'a> {
    Sqlite(Transaction<'a, Sqlite>),
    Postgres(Transaction<'a, Postgres>),
}

/// A type that a column may have.
pub trait Column: for<'r> Decode<'r, Sqlite> + Type<Sqlite> + for<'r> Decode<'r, Postgres> + Type<Postgres> {}
impl<T> Column for T where T: for<'r> Decode<'r, Sqlite> + Type<Sqlite> + for<'r> Decode<'r, Postgres> + Type<Postgres> {}

/// Does the same with the transaction or row of either database.
macro_rules! either {
    ($kind:ident, $link:expr, $inner:ident => $work:expr) => {
        match $link {
            $kind::Sqlite($inner) => $work,
            $kind::Postgres($inner) => $work,
        }
    };
}

/// Builds a statement with its values, for the database that the context implies. A pooler hands each transaction another connection, which
/// does not know the statements that an earlier one has named; SQLite keeps them.
macro_rules! statement {
    ($sql:expr, $values:expr, $named:expr) => {{
        let mut query = sqlx::query($sql).persistent($named);
        for value in $values {
            query = match *value {
                Value::Int(value) => query.bind(value),
                Value::Bytes(value) => query.bind(value),
                Value::Text(value) => query.bind(value),
            };
        }
        query
    }};
}

/// A connection. Dropping it rolls back an open transaction.
pub struct Database {
    /// `None` once it is closed or lost.
    link: Option<Link>,
    calls: Calls,
    kind: Kind,
    /// The database is only read.
    reads: bool,
}

impl Database {
    /// Connects, and creates an SQLite file if there is none.
    ///
    /// # Errors
    /// When the URL is invalid, or the database cannot be reached, or a crash may lose its commits.
    pub fn open(access: Access) -> Result<Self> {
        Self::connect(access, false, true)
    }

    /// Connects to an existing database.
    ///
    /// # Errors
    /// As [`open`](Self::open); when there is no such SQLite file.
    pub fn open_existing(access: Access) -> Result<Self> {
        Self::connect(access, false, false)
    }

    /// Connects to an existing database, only to read it.
    ///
    /// # Errors
    /// When the URL is invalid, or the database does not exist or cannot be reached.
    pub fn open_to_read(url: &str) -> Result<Self> {
        Self::connect(Access { url: url.into(), ..Access::default() }, true, false)
    }

    fn connect(access: Access, reads: bool, creates: bool) -> Result<Self> {
        let kind = Kind::of(&access.url)?;
        let calls = Calls::new(access)?;
        // Errors do not repeat the URL, because it may hold a password.
        let made = if reads { "; coppice index makes its tables, and createdb a database of PostgreSQL" } else { "" };
        let context = || format!("cannot open the {} database{made}", kind.name());
        let link = match kind {
            Kind::Sqlite => {
                let options = sqlite::options(&calls.access, reads, creates).with_context(context)?;
                let (link, read_back) = calls.make(Call::Connect, sqlite::connect(&options)).with_context(context)?;
                let (named, volatile) = (options.get_filename(), calls.access.volatile);
                let files = if reads { None } else { Some(read_back.check(named, volatile)?) };
                Link::Sqlite(link, files)
            }
            Kind::Postgres => {
                let (options, search_path) = postgres::options(&calls.access.url).with_context(context)?;
                let name = if reads { "coppice get" } else { "coppice index" };
                let options = options.application_name(name);
                let link = calls.make(Call::Connect, PgConnection::connect_with(&options)).with_context(context)?;
                Link::Postgres(link, Session::new(search_path))
            }
        };
        Ok(Self { link: Some(link), calls, kind, reads })
    }

    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// Returns how the database is reached.
    pub fn access(&self) -> &Access {
        &self.calls.access
    }

    /// Returns whether the connection has ended, so that the database is to be opened again.
    pub fn is_lost(&self) -> bool {
        self.link.is_none()
    }

    /// Checks that a committed row is where the next run looks for it: in SQLite, that the paths are those of the open files.
    ///
    /// # Errors
    /// When a file was deleted, moved or replaced.
    pub fn ensure_in_place(&self) -> Result<()> {
        match &self.link {
            Some(Link::Sqlite(_, Some(files))) => files.check(),
            _ => Ok(()),
        }
    }

    /// Runs `work` as one transaction: all of it is committed to disk, or none of it if `work` returns an error. After [`Lost`] whether it
    /// was committed is unknown, and the connection has ended.
    ///
    /// # Errors
    /// The error of `work`; when the database fails.
    pub fn transaction<R>(&mut self, work: impl FnOnce(&mut Tx<'_>) -> Result<R>) -> Result<R> {
        let result = self.run(work);
        if self.calls.gave_up() || result.as_ref().is_err_and(is_lost) {
            self.link = None;
        }
        result
    }

    fn run<R>(&mut self, work: impl FnOnce(&mut Tx<'_>) -> Result<R>) -> Result<R> {
        let (calls, reads) = (&self.calls, self.reads);
        let Access { limits, volatile, .. } = &calls.access;
        let link = self.link.as_mut().ok_or_else(|| Lost("the connection to the database has ended".into()))?;
        let open = match link {
            Link::Sqlite(link, _) if reads => Open::Sqlite(calls.make(Call::Statement, link.begin())?),
            // Takes the write lock at once, because a lock that is taken later may be refused.
            Link::Sqlite(link, _) => Open::Sqlite(calls.make(Call::Statement, link.begin_with("BEGIN IMMEDIATE"))?),
            Link::Postgres(link, session) => {
                // All statements of a reader see the same blocks.
                let begin = if reads { "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY" } else { "BEGIN" };
                let mut open = calls.make(Call::Statement, link.begin_with(begin))?;
                let row = calls.make(Call::Statement, session.begin(&mut open, limits, reads))?;
                session.check(&row, reads, *volatile)?;
                Open::Postgres(open)
            }
        };
        let mut tx = Tx { link: open, calls };
        let result = work(&mut tx)?;
        either!(Open, tx.link, link => calls.make(Call::Commit, link.commit())).context("cannot commit")?;
        Ok(result)
    }
}

/// Closes the connection, so that SQLite moves its write-ahead log into the file.
impl Drop for Database {
    fn drop(&mut self) {
        let closed = match self.link.take() {
            Some(Link::Sqlite(link, _)) => self.calls.make(Call::Close, link.close()),
            Some(Link::Postgres(link, _)) => self.calls.make(Call::Close, link.close()),
            None => Ok(()),
        };
        // Everything is committed, and the next connection reads the log.
        drop(closed);
    }
}

impl Open<'_> {
    fn kind(&self) -> Kind {
        match self {
            Self::Sqlite(_) => Kind::Sqlite,
            Self::Postgres(_) => Kind::Postgres,
        }
    }
}

/// Replaces `{displayed COLUMN}`. Neither database can reverse bytes in all of its supported versions, so each byte is written by itself.
fn with_displayed(sql: &str, kind: Kind) -> String {
    let mut parts = sql.split("{displayed ");
    let mut sql = parts.next().unwrap_or_default().to_string();
    for (column, rest) in parts.filter_map(|part| part.split_once('}')) {
        let bytes: Vec<String> = (1..=32).rev().map(|at| format!("substr({column}, {at}, 1)")).collect();
        sql += &match kind {
            Kind::Sqlite => {
                format!("lower({})", bytes.iter().map(|byte| format!("hex({byte})")).collect::<Vec<_>>().join(" || "))
            }
            Kind::Postgres => format!("encode({}, 'hex')", bytes.join(" || ")),
        };
        sql += rest;
    }
    sql
}

/// An open transaction. Dropping it rolls it back.
pub struct Tx<'a> {
    link: Open<'a>,
    calls: &'a Calls,
}

impl Tx<'_> {
    /// Runs statements without placeholders. Replaces `{bytes}` by the database's type for bytes, `{key}` by an integer primary key,
    /// `{clustered}` by the option for a table that is stored in the order of its key, and `{displayed COLUMN}` by the hexadecimal digits
    /// of a column's up to 32 bytes, the last byte first.
    ///
    /// # Errors
    /// When the database fails.
    pub fn define(&mut self, sql: &str) -> Result<()> {
        let words = match self.link {
            Open::Sqlite(_) => ["BLOB", "INTEGER PRIMARY KEY", "WITHOUT ROWID"],
            Open::Postgres(_) => ["BYTEA", "BIGINT PRIMARY KEY", ""],
        };
        let sql = ["{bytes}", "{key}", "{clustered}"]
            .iter()
            .zip(words)
            .fold(sql.into(), |sql: String, (name, word)| sql.replace(name, word));
        let sql = with_displayed(&sql, self.link.kind());
        let sql = sqlx::raw_sql(AssertSqlSafe(sql));
        either!(Open, &mut self.link, tx => self.calls.make(Call::Statement, tx.execute(sql)).map(drop))
            .context("the tables cannot be created")
    }

    /// Returns whether there is a table of this name.
    ///
    /// # Errors
    /// When the database fails.
    pub fn has_table(&mut self, name: &str) -> Result<bool> {
        let sql = match self.link {
            Open::Sqlite(_) => "SELECT count(*) FROM sqlite_master WHERE type = 'table' AND name = $1",
            Open::Postgres(_) => "SELECT count(*) FROM pg_catalog.pg_class WHERE oid = to_regclass($1)",
        };
        let row = self.one(sql, &[name.into()])?.context("no count came back")?;
        Ok(row.get::<i64>(0)? > 0)
    }

    /// Runs a statement and returns how many rows it changed.
    ///
    /// # Errors
    /// When the database fails.
    pub fn execute(&mut self, sql: &'static str, values: &[Value<'_>]) -> Result<u64> {
        let done = match &mut self.link {
            Open::Sqlite(tx) => {
                let done = statement!(sql, values, true).execute(&mut **tx);
                self.calls.make(Call::Statement, done).map(|done| done.rows_affected())
            }
            Open::Postgres(tx) => {
                let done = statement!(sql, values, false).execute(&mut **tx);
                self.calls.make(Call::Statement, done).map(|done| done.rows_affected())
            }
        };
        done.map_err(|error| failed(sql, error))
    }

    /// Runs a query for at most one row.
    ///
    /// # Errors
    /// When the database fails.
    pub fn one(&mut self, sql: &'static str, values: &[Value<'_>]) -> Result<Option<Row>> {
        Ok(self.all(sql, values)?.into_iter().next())
    }

    /// Runs a query for any number of rows, all of which are held in memory.
    ///
    /// # Errors
    /// When the database fails.
    pub fn all(&mut self, sql: &'static str, values: &[Value<'_>]) -> Result<Vec<Row>> {
        let rows = match &mut self.link {
            Open::Sqlite(tx) => {
                let rows = statement!(sql, values, true).fetch_all(&mut **tx);
                self.calls.make(Call::Statement, rows).map(|rows| rows.into_iter().map(Row::Sqlite).collect())
            }
            Open::Postgres(tx) => {
                let rows = statement!(sql, values, false).fetch_all(&mut **tx);
                self.calls.make(Call::Statement, rows).map(|rows| rows.into_iter().map(Row::Postgres).collect())
            }
        };
        rows.map_err(|error| failed(sql, error))
    }
}

/// Names the statement that failed. A database that is gone has refused nothing.
fn failed(sql: &str, error: anyhow::Error) -> anyhow::Error {
    if is_lost(&error) { error } else { error.context(format!("the database refuses the statement {sql}")) }
}

/// A row of a result.
pub enum Row {
    Sqlite(SqliteRow),
    Postgres(PgRow),
}

impl Row {
    /// The value of a column, counted from 0: `i64`, `String`, `Vec<u8>`, or an `Option` of one of these.
    ///
    /// # Errors
    /// When there is no such column, or it has another type.
    pub fn get<T: Column>(&self, column: usize) -> Result<T> {
        Ok(either!(Row, self, row => row.try_get(column))?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_scheme_is_refused_by_name() {
        assert_eq!(Kind::of("sqlite://coppice.db").unwrap(), Kind::Sqlite);
        assert_eq!(Kind::of("postgresql://localhost/x").unwrap(), Kind::Postgres);
        assert!(Kind::of("mysql://localhost/x").unwrap_err().to_string().contains("mysql"));
        assert!(Kind::of("coppice.db").unwrap_err().to_string().contains("sqlite://"));
    }

    /// The canister prunes what was acknowledged, so a database must outlive the command.
    #[test]
    fn database_in_memory_is_refused() {
        for url in ["sqlite://", "sqlite:", "sqlite::memory:", "sqlite://:memory:", "sqlite://?mode=memory"] {
            let why = Database::open(Access::volatile(url)).err().map(|why| format!("{why:#}")).unwrap_or_default();
            assert!(why.contains("write sqlite://FILE"), "{url}: {why}");
        }
        let dir = tempfile::tempdir().unwrap();
        let named = format!("sqlite://{}/x.db?mode=memory", dir.path().display());
        assert!(Database::open(Access::volatile(&named)).is_err());
    }

    #[test]
    fn closed_database_is_one_file() {
        let dir = tempfile::tempdir().unwrap();
        for _ in 0..20 {
            let mut database =
                Database::open(Access::volatile(&format!("sqlite://{}/a.db", dir.path().display()))).unwrap();
            database.transaction(|tx| tx.define("CREATE TABLE IF NOT EXISTS t (n {key})")).unwrap();
            assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 3, "the log and its index");
            drop(database);
            assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1);
        }
    }

    #[test]
    fn error_rolls_back_the_transaction() {
        let dir = tempfile::tempdir().unwrap();
        let mut database =
            Database::open(Access::volatile(&format!("sqlite://{}/a.db", dir.path().display()))).unwrap();
        database.transaction(|tx| tx.define("CREATE TABLE t (n {key}, b {bytes})")).unwrap();
        let insert = "INSERT INTO t (n, b) VALUES ($1, $2)";
        let undone: Result<()> = database.transaction(|tx| {
            tx.execute(insert, &[1.into(), (&b"x"[..]).into()])?;
            bail!("no")
        });
        assert_eq!(undone.unwrap_err().to_string(), "no");
        database.transaction(|tx| tx.execute(insert, &[2.into(), Value::Bytes(None)])).unwrap();
        let row = database.transaction(|tx| tx.one("SELECT n, b FROM t", &[])).unwrap().unwrap();
        assert_eq!((row.get::<i64>(0).unwrap(), row.get::<Option<Vec<u8>>>(1).unwrap()), (2, None));
        assert!(row.get::<String>(0).is_err());
        assert!(database.transaction(|tx| tx.has_table("t")).unwrap());
        assert!(!database.transaction(|tx| tx.has_table("u")).unwrap());
    }
}
