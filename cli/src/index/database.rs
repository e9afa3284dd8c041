//! A connection to the database, SQLite or PostgreSQL, and its transactions.
//!
//! Both databases understand `$1`, `ON CONFLICT`, recursive queries and transactional DDL, so every statement is written once (`store.rs`,
//! `schema.rs`); only this file distinguishes them. `commit` returns only after the data is on disk, whatever the server's default, because
//! the canister may prune acknowledged blocks at once.

use anyhow::{Context, Result, anyhow, bail, ensure};
use sqlx::postgres::{PgConnectOptions, PgRow};
use sqlx::sqlite::{SqliteConnectOptions, SqliteJournalMode, SqliteRow, SqliteSynchronous};
use sqlx::{AssertSqlSafe, Connection, Decode, Executor, Row as _, Sqlite, SqliteConnection, Transaction, Type};
use sqlx::{PgConnection, Postgres};
use std::str::FromStr;
use std::time::Duration;
use tokio::runtime::Runtime;
use url::{Host, Url};

/// The longest time that SQLite waits for another process's lock.
const BUSY: Duration = Duration::from_secs(30);
/// SQLite's page cache, in KiB (negative by SQLite's convention); large, because the index of transaction ids is written at random.
const SQLITE_CACHE: &str = "-262144";

/// Pages of SQLite's write-ahead log between two checkpoints; large, because a page that changes often is then copied back once.
const SQLITE_CHECKPOINT: &str = "65536";

/// A value for a placeholder of a statement. Integers have 64 bits in all columns.
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

    /// Returns the database's name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Sqlite => "SQLite",
            Self::Postgres => "PostgreSQL",
        }
    }
}

/// Reads the URL of a PostgreSQL database. The driver would look up an IPv6 address with its brackets as a name.
fn postgres(url: &str) -> Result<PgConnectOptions> {
    let options = PgConnectOptions::from_str(url)?;
    let parsed = Url::parse(url).ok();
    Ok(match parsed.as_ref().and_then(Url::host) {
        Some(Host::Ipv6(address)) => options.host(&address.to_string()),
        _ => options,
    })
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

/// Does the same with the transaction or row of either database.
macro_rules! either {
    ($kind:ident, $link:expr, $inner:ident => $work:expr) => {
        match $link {
            $kind::Sqlite($inner) => $work,
            $kind::Postgres($inner) => $work,
        }
    };
}

/// Builds a statement with its values, for the database that the context implies.
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

/// A connection. Dropping it rolls back an open transaction.
pub struct Database {
    /// `None` once it is closed.
    link: Option<Link>,
    runtime: Runtime,
    kind: Kind,
    /// The database is only read.
    reads: bool,
}

impl Database {
    /// Connects, and creates an SQLite file if there is none.
    ///
    /// # Errors
    /// When the URL is invalid, or the database cannot be reached.
    pub fn open(url: &str) -> Result<Self> {
        let kind = Kind::of(url)?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        // Errors do not repeat the URL, because it may hold a password.
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
                let mut link = runtime.block_on(SqliteConnection::connect_with(&options)).with_context(context)?;
                // The canister prunes what was acknowledged.
                let file = sqlx::query_scalar("SELECT file FROM pragma_database_list WHERE name = 'main'");
                let file: String = runtime.block_on(file.fetch_one(&mut link)).with_context(context)?;
                ensure!(!file.is_empty(), "the database would be lost with this command: write sqlite://FILE");
                Link::Sqlite(link)
            }
            Kind::Postgres => {
                let options = postgres(url)
                    .with_context(context)?
                    .application_name("coppice index")
                    .options([("synchronous_commit", "on")]);
                Link::Postgres(runtime.block_on(PgConnection::connect_with(&options)).with_context(context)?)
            }
        };
        Ok(Self { link: Some(link), runtime, kind, reads: false })
    }

    /// Connects to an existing database, only to read it.
    ///
    /// # Errors
    /// When the URL is invalid, or the database does not exist or cannot be reached.
    pub fn open_to_read(url: &str) -> Result<Self> {
        let kind = Kind::of(url)?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let made = "coppice index makes its tables, and createdb a database of PostgreSQL";
        let context = || format!("cannot open the {} database; {made}", kind.name());
        let link = match kind {
            Kind::Sqlite => {
                let options =
                    SqliteConnectOptions::from_str(url).with_context(context)?.read_only(true).busy_timeout(BUSY);
                Link::Sqlite(runtime.block_on(SqliteConnection::connect_with(&options)).with_context(context)?)
            }
            Kind::Postgres => {
                let options = postgres(url).with_context(context)?.application_name("coppice get");
                Link::Postgres(runtime.block_on(PgConnection::connect_with(&options)).with_context(context)?)
            }
        };
        Ok(Self { link: Some(link), runtime, kind, reads: true })
    }

    /// Returns the kind of database.
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// Runs `work` as one transaction: all of it is committed to disk, or none of it if `work` returns an error.
    ///
    /// # Errors
    /// The error of `work`; when the database fails.
    pub fn transaction<R>(&mut self, work: impl FnOnce(&mut Tx<'_>) -> Result<R>) -> Result<R> {
        let runtime = &self.runtime;
        let link = match self.link.as_mut().context("the database is closed")? {
            Link::Sqlite(link) if self.reads => Open::Sqlite(runtime.block_on(link.begin())?),
            // Takes the write lock at once, because a lock that is taken later may be refused.
            Link::Sqlite(link) => Open::Sqlite(runtime.block_on(link.begin_with("BEGIN IMMEDIATE"))?),
            // All statements of a reader see the same blocks.
            Link::Postgres(link) if self.reads => {
                let begin = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY";
                Open::Postgres(runtime.block_on(link.begin_with(begin))?)
            }
            Link::Postgres(link) => Open::Postgres(runtime.block_on(link.begin())?),
        };
        let mut tx = Tx { link, runtime };
        let result = work(&mut tx)?;
        either!(Open, tx.link, link => runtime.block_on(link.commit())).context("cannot commit")?;
        Ok(result)
    }
}

/// Closes the connection, so that SQLite moves its write-ahead log into the file.
impl Drop for Database {
    fn drop(&mut self) {
        let closed = match self.link.take() {
            Some(Link::Sqlite(link)) => self.runtime.block_on(link.close()),
            Some(Link::Postgres(link)) => self.runtime.block_on(link.close()),
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
    runtime: &'a Runtime,
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
        either!(Open, &mut self.link, tx => self.runtime.block_on(tx.execute(sql)).map(drop))
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

    /// Runs a query for any number of rows, all of which are held in memory.
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
    anyhow!(error).context(format!("the database refuses the statement {sql}"))
}

/// A row of a result.
pub enum Row {
    /// An SQLite row.
    Sqlite(SqliteRow),
    /// A PostgreSQL row.
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

    #[test]
    fn address_of_a_server_may_be_ipv6() {
        for (url, host) in [
            ("postgres://u@[::1]:5499/x", "::1"),
            ("postgresql://u@[2001:db8::2]/x", "2001:db8::2"),
            ("postgres://u@127.0.0.1/x", "127.0.0.1"),
            ("postgres://u@localhost/x", "localhost"),
        ] {
            assert_eq!(postgres(url).unwrap().get_host(), host);
        }
    }

    /// The canister prunes what was acknowledged, so a database must outlive the command.
    #[test]
    fn database_in_memory_is_refused() {
        for url in ["sqlite://", "sqlite:", "sqlite::memory:", "sqlite://:memory:", "sqlite://?mode=memory"] {
            let why = Database::open(url).err().map(|why| format!("{why:#}")).unwrap_or_default();
            assert!(why.contains("write sqlite://FILE"), "{url}: {why}");
        }
        let dir = tempfile::tempdir().unwrap();
        let named = format!("sqlite://{}/x.db?mode=memory", dir.path().display());
        assert!(Database::open(&named).is_err());
    }

    #[test]
    fn closed_database_is_one_file() {
        let dir = tempfile::tempdir().unwrap();
        for _ in 0..20 {
            let mut database = Database::open(&format!("sqlite://{}/a.db", dir.path().display())).unwrap();
            database.transaction(|tx| tx.define("CREATE TABLE IF NOT EXISTS t (n {key})")).unwrap();
            assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 3, "the log and its index");
            drop(database);
            assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1);
        }
    }

    #[test]
    fn error_rolls_back_the_transaction() {
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
