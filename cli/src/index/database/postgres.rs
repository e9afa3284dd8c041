//! Connections to PostgreSQL, directly or through a pooler.
//!
//! A pooler drops startup parameters, and in transaction mode it gives each transaction another connection, with the settings that other
//! clients left there. So nothing is set at the start of a connection: each transaction sets what it depends on, and reads it back.

use super::access::Limits;
use anyhow::{Context, Result, bail, ensure};
use sqlx::postgres::{PgConnectOptions, PgRow};
use sqlx::{AssertSqlSafe, Executor, PgConnection, Row as _};
use std::str::FromStr;
use url::{Host, Url};

/// The option of a URL that names the schemas.
const SEARCH_PATH: &str = "options[search_path]";

/// Reads the URL of a PostgreSQL database. Returns the options of the driver, and the schemas that the URL names.
///
/// # Errors
/// When the URL is invalid, or names options for the start of a connection.
pub(super) fn options(url: &str) -> Result<(PgConnectOptions, Option<String>)> {
    let (url, search_path) = without_options(url)?;
    let from_environment = std::env::var_os("PGOPTIONS").is_some_and(|options| !options.is_empty());
    ensure!(!from_environment, not_supported("PGOPTIONS"));
    let options = PgConnectOptions::from_str(&url)?.extra_float_digits(None);
    // The driver would look up an IPv6 address with its brackets as a name.
    let parsed = Url::parse(&url).ok();
    let options = match parsed.as_ref().and_then(Url::host) {
        Some(Host::Ipv6(address)) => options.host(&address.to_string()),
        _ => options,
    };
    Ok((options, search_path))
}

fn not_supported(name: &str) -> String {
    format!(
        "{name} is not supported, because a pooler drops the startup options of a connection: set them for the role (ALTER ROLE … SET …), \
         or name a schema with {SEARCH_PATH}=NAME in the URL"
    )
}

/// Takes the schemas out of a URL.
fn without_options(url: &str) -> Result<(String, Option<String>)> {
    let Ok(mut parsed) = Url::parse(url) else { return Ok((url.into(), None)) };
    let is_option = |key: &str| key == "options" || key.starts_with("options[");
    let pairs: Vec<(String, String)> = parsed.query_pairs().into_owned().collect();
    if !pairs.iter().any(|(key, _)| is_option(key)) {
        return Ok((url.into(), None));
    }
    let mut search_path = None;
    let mut rest = Vec::new();
    for (key, value) in pairs {
        match key.as_str() {
            SEARCH_PATH => search_path = Some(value),
            other if is_option(other) => bail!(not_supported(other)),
            _ => rest.push((key, value)),
        }
    }
    parsed.query_pairs_mut().clear().extend_pairs(rest);
    Ok((parsed.into(), search_path))
}

/// Settings that each transaction has in common.
pub(super) struct Session {
    /// The schemas: those of the URL, else those of the first transaction.
    search_path: Option<String>,
    is_named: bool,
}

impl Session {
    pub fn new(search_path: Option<String>) -> Self {
        Self { is_named: search_path.is_some(), search_path }
    }

    /// Returns the statements that a transaction starts with, as one simple query. The server then ends a statement that takes too long,
    /// and a transaction whose client is gone, which would hold its locks.
    pub fn settings(&self, limits: &Limits, reads: bool) -> String {
        let millis = limits.database_statement_secs * 1_000;
        let mut sql = format!(
            "SET LOCAL statement_timeout = {millis}; SET LOCAL idle_in_transaction_session_timeout = {millis}; "
        );
        if !reads {
            sql += "SET LOCAL synchronous_commit = on; ";
        }
        let path = match (&self.search_path, self.is_named) {
            (Some(path), true) => format!("set_config('search_path', '{}', true)", path.replace('\'', "''")),
            _ => "current_setting('search_path')".into(),
        };
        let names = super::super::schema::NAMES.join("', '");
        // Tables that vanish with the connection, and tables that a crash of the server empties.
        let of = |persistence: char| {
            format!(
                "(SELECT coalesce(string_agg(relname, ', '), '') FROM pg_catalog.pg_class WHERE relpersistence = '{persistence}' AND relname \
                 IN ('{names}') AND pg_catalog.pg_table_is_visible(oid))"
            )
        };
        let (temporary, unlogged) = (of('t'), of('u'));
        format!(
            "{sql}SELECT {path}, current_setting('synchronous_commit'), current_setting('fsync'), {temporary}, {unlogged}"
        )
    }

    /// Sets and reads back the settings of a transaction.
    pub async fn begin(&self, link: &mut PgConnection, limits: &Limits, reads: bool) -> sqlx::Result<PgRow> {
        link.fetch_one(sqlx::raw_sql(AssertSqlSafe(self.settings(limits, reads)))).await
    }

    /// Checks the settings that were read back: nothing is written that a crash may lose, or to the tables of another schema.
    ///
    /// # Errors
    /// When a setting differs.
    pub fn check(&mut self, row: &PgRow, reads: bool, volatile: bool) -> Result<()> {
        let of = |column: usize| row.try_get::<String, _>(column).context("PostgreSQL does not read back its settings");
        let path = of(0)?;
        let expected = self.search_path.get_or_insert_with(|| path.clone());
        ensure!(
            self.is_named || path == *expected,
            "search_path changed from {expected:?} to {path:?}: another client of the pooler has set it. Nothing was changed; name the \
             schema with {SEARCH_PATH}=NAME in the URL"
        );
        let (temporary, unlogged) = (of(3)?, of(4)?);
        ensure!(
            reads || temporary.is_empty(),
            "search_path {path:?} leads to temporary tables ({temporary}), which vanish with the connection. Nothing was changed; name another \
             schema first"
        );
        if reads || volatile {
            return Ok(());
        }
        ensure!(
            unlogged.is_empty(),
            "these tables are UNLOGGED, so a crash of the server empties them: {unlogged}. Nothing was changed; ALTER TABLE … SET LOGGED, or \
             use --volatile-database if the blocks may be lost"
        );
        let (commit, fsync) = (of(1)?, of(2)?);
        ensure!(
            commit == "on",
            "PostgreSQL runs this transaction with synchronous_commit = {commit}, so a crash loses blocks that the canister may have \
             pruned. Nothing was changed; let the pooler work in session or transaction mode"
        );
        ensure!(
            fsync == "on",
            "the PostgreSQL server runs with fsync = {fsync}, so a crash of its machine loses blocks that the canister may have pruned. \
             Nothing was changed; set fsync = on, or use --volatile-database if the blocks may be lost"
        );
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn address_of_a_server_may_be_ipv6() {
        for (url, host) in [
            ("postgres://u@[::1]:5499/x", "::1"),
            ("postgresql://u@[2001:db8::2]/x", "2001:db8::2"),
            ("postgres://u@127.0.0.1/x", "127.0.0.1"),
            ("postgres://u@localhost/x", "localhost"),
        ] {
            assert_eq!(options(url).unwrap().0.get_host(), host);
        }
    }

    #[test]
    fn url_names_schemas_and_no_other_startup_option() {
        let (url, path) = without_options("postgres://u:p%40@h:1/x?sslmode=disable&options[search_path]=a,b").unwrap();
        assert_eq!((url.as_str(), path.as_deref()), ("postgres://u:p%40@h:1/x?sslmode=disable", Some("a,b")));
        let plain = "postgres://h/x?host=/var/run/postgresql";
        assert_eq!(without_options(plain).unwrap(), (plain.into(), None));
        for url in ["postgres://h/x?options=-c%20fsync%3Doff", "postgres://h/x?options%5Bsynchronous_commit%5D=off"] {
            let error = without_options(url).unwrap_err().to_string();
            assert!(error.contains("is not supported") && error.contains("options[search_path]"), "{error}");
        }
    }

    #[test]
    fn schema_is_quoted_in_the_settings_of_a_transaction() {
        let of = |path: Option<&str>, reads| Session::new(path.map(Into::into)).settings(&Limits::default(), reads);
        assert!(of(Some("it's"), false).contains("set_config('search_path', 'it''s', true)"));
        assert!(of(None, false).contains("SET LOCAL synchronous_commit = on; SELECT current_setting('search_path')"));
        assert!(!of(None, true).contains("synchronous_commit = on"));
    }
}
