//! One connection to the database, SQLite or PostgreSQL, and its transactions.
//!
//! Both understand `$1`, `ON CONFLICT`, recursive queries and transactional DDL, so every statement is written once
//! (`store.rs`, `schema.rs`); only this file knows which of them it talks to. What is committed is on disk before `commit`
//! returns, whatever the server's default is: the canister prunes what is acknowledged next.

use anyhow::{Context, Result, anyhow, bail};
use sqlx::postgres::{PgConnectOptions, PgRow};
use sqlx::sqlite::{SqliteConnectOptions, SqliteJournalMode, SqliteRow, SqliteSynchronous};
use sqlx::{AssertSqlSafe, Connection, Decode, Executor, Row as _, Sqlite, SqliteConnection, Transaction, Type};
use sqlx::{PgConnection, Postgres};
use std::str::FromStr;
use std::time::Duration;
use tokio::runtime::Runtime;

/// How long a statement of SQLite waits for somebody else's.
const BUSY: Duration = Duration::from_secs(30);
/// Pages that SQLite keeps in memory, in KiB: the index of transaction ids is written at random.
const SQLITE_CACHE: &str = "-262144";

/// Pages of SQLite's log after which they go to their places: a page that changes often goes there once.
const SQLITE_CHECKPOINT: &str = "65536";

/// What a statement is given for a placeholder. Integers have 64 bits in all columns.
#[derive(Clone, Copy, Debug)]
pub enum Value<'a> {
    /// An integer.
    Int(Option<i64>),
    /// Bytes.
    Bytes(Option<&'a [u8]>),
    /// A text.
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

/// Which database a URL names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A file, by SQLite.
    Sqlite,
    /// A PostgreSQL server.
    Postgres,
}

impl Kind {
    /// By the scheme of a URL.
    ///
    /// # Errors
    /// When it is none of the two.
    pub fn of(url: &str) -> Result<Self> {
        match url.split_once(':').map(|(scheme, _)| scheme) {
            Some("sqlite") => Ok(Self::Sqlite),
            Some("postgres" | "postgresql") => Ok(Self::Postgres),
            Some(scheme) => bail!("no database is known by {scheme}: name one with sqlite: or postgres:"),
            None => bail!("{url:?} is no URL of a database: sqlite://FILE or postgres://HOST/NAME"),
        }
    }

    /// As it is called.
    pub fn name(self) -> &'static str {
        match self {
            Self::Sqlite => "SQLite",
            Self::Postgres => "PostgreSQL",
        }
    }
}

enum Link {
    Sqlite(SqliteConnection),
    Postgres(PgConnection),
}

enum Open<'a> {
    Sqlite(Transaction<'a, Sqlite>),
    Postgres(Transaction<'a, Postgres>),
}

/// A type that a column may have.
pub trait Column: for<'r> Decode<'r, Sqlite> + Type<Sqlite> + for<'r> Decode<'r, Postgres> + Type<Postgres> {}
impl<T> Column for T where T: for<'r> Decode<'r, Sqlite> + Type<Sqlite> + for<'r> Decode<'r, Postgres> + Type<Postgres> {}

/// Does the same with either transaction or row.
macro_rules! either {
    ($kind:ident, $link:expr, $inner:ident => $work:expr) => {
        match $link {
            $kind::Sqlite($inner) => $work,
            $kind::Postgres($inner) => $work,
        }
    };
}

/// A statement with its values, for whichever database the place is of.
macro_rules! statement {
    ($sql:expr, $values:expr) => {{
        let mut query = sqlx::query($sql);
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

/// A connection. Dropping it undoes a transaction that is open.
pub struct Database {
    // Goes before the runtime that it needs.
    link: Link,
    runtime: Runtime,
    kind: Kind,
}

impl Database {
    /// Connects, and makes the file of SQLite where there is none.
    ///
    /// # Errors
    /// When the URL is none, or the database cannot be reached.
    pub fn open(url: &str) -> Result<Self> {
        let kind = Kind::of(url)?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        // A URL may hold a password: errors do not repeat it.
        let context = || format!("cannot open the {} database", kind.name());
        let link = match kind {
            Kind::Sqlite => {
                let options = SqliteConnectOptions::from_str(url)
                    .with_context(context)?
                    .create_if_missing(true)
                    .journal_mode(SqliteJournalMode::Wal)
                    .synchronous(SqliteSynchronous::Full)
                    .busy_timeout(BUSY)
                    .pragma("cache_size", SQLITE_CACHE)
                    .pragma("wal_autocheckpoint", SQLITE_CHECKPOINT);
                Link::Sqlite(runtime.block_on(SqliteConnection::connect_with(&options)).with_context(context)?)
            }
            Kind::Postgres => {
                let options = PgConnectOptions::from_str(url)
                    .with_context(context)?
                    .application_name("coppice index")
                    .options([("synchronous_commit", "on")]);
                Link::Postgres(runtime.block_on(PgConnection::connect_with(&options)).with_context(context)?)
            }
        };
        Ok(Self { link, runtime, kind })
    }

    /// Which database it is.
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// Does some work as one transaction: all of it is done and on disk, or nothing where it ends with an error.
    ///
    /// # Errors
    /// The work's own; when the database fails.
    pub fn transaction<R>(&mut self, work: impl FnOnce(&mut Tx<'_>) -> Result<R>) -> Result<R> {
        let runtime = &self.runtime;
        let link = match &mut self.link {
            // Locked for writing at once: a lock that is taken later may be refused.
            Link::Sqlite(link) => Open::Sqlite(runtime.block_on(link.begin_with("BEGIN IMMEDIATE"))?),
            Link::Postgres(link) => Open::Postgres(runtime.block_on(link.begin())?),
        };
        let mut tx = Tx { link, runtime };
        let result = work(&mut tx)?;
        either!(Open, tx.link, link => runtime.block_on(link.commit())).context("cannot commit")?;
        Ok(result)
    }
}

/// An open transaction. Dropping it undoes it.
pub struct Tx<'a> {
    link: Open<'a>,
    runtime: &'a Runtime,
}

impl Tx<'_> {
    /// Runs statements that have no placeholders; `{bytes}` becomes what the database calls a column of bytes, `{key}` an
    /// integer that is the primary key, `{clustered}` the option of a table that is stored in the order of its key.
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
        let sql = sqlx::raw_sql(AssertSqlSafe(sql));
        either!(Open, &mut self.link, tx => self.runtime.block_on(tx.execute(sql)).map(drop))
            .context("the tables cannot be made")
    }

    /// Whether there is a table of this name.
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

    /// Runs a statement and answers how many rows it changed.
    ///
    /// # Errors
    /// When the database fails.
    pub fn execute(&mut self, sql: &'static str, values: &[Value<'_>]) -> Result<u64> {
        either!(Open, &mut self.link, tx => {
            self.runtime.block_on(statement!(sql, values).execute(&mut **tx)).map(|done| done.rows_affected())
        })
        .map_err(|error| failed(sql, error))
    }

    /// Runs a query for at most one row.
    ///
    /// # Errors
    /// When the database fails.
    pub fn one(&mut self, sql: &'static str, values: &[Value<'_>]) -> Result<Option<Row>> {
        Ok(self.all(sql, values)?.into_iter().next())
    }

    /// Runs a query for any number of rows, all of which are in memory then.
    ///
    /// # Errors
    /// When the database fails.
    pub fn all(&mut self, sql: &'static str, values: &[Value<'_>]) -> Result<Vec<Row>> {
        let runtime = self.runtime;
        match &mut self.link {
            Open::Sqlite(tx) => runtime
                .block_on(statement!(sql, values).fetch_all(&mut **tx))
                .map(|rows| rows.into_iter().map(Row::Sqlite).collect()),
            Open::Postgres(tx) => runtime
                .block_on(statement!(sql, values).fetch_all(&mut **tx))
                .map(|rows| rows.into_iter().map(Row::Postgres).collect()),
        }
        .map_err(|error| failed(sql, error))
    }
}

fn failed(sql: &str, error: sqlx::Error) -> anyhow::Error {
    anyhow!(error).context(format!("the database refuses: {sql}"))
}

/// A row of an answer.
pub enum Row {
    /// Of SQLite.
    Sqlite(SqliteRow),
    /// Of PostgreSQL.
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
    fn other_schemes_are_refused_by_name() {
        assert_eq!(Kind::of("sqlite://coppice.db").unwrap(), Kind::Sqlite);
        assert_eq!(Kind::of("postgresql://localhost/x").unwrap(), Kind::Postgres);
        assert!(Kind::of("mysql://localhost/x").unwrap_err().to_string().contains("mysql"));
        assert!(Kind::of("coppice.db").unwrap_err().to_string().contains("sqlite://"));
    }

    #[test]
    fn an_error_undoes_the_transaction() {
        let dir = tempfile::tempdir().unwrap();
        let mut database = Database::open(&format!("sqlite://{}/a.db", dir.path().display())).unwrap();
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
