//! Check of the connection to the database: TLS with a verified certificate, except on this machine.

use super::database::Kind;
use anyhow::{Context as _, Result, ensure};
use sqlx::postgres::{PgConnectOptions, PgSslMode};
use std::net::IpAddr;
use std::str::FromStr as _;

/// Checks the URL of a database. With `insecure`, a server without a verified certificate is allowed.
///
/// # Errors
/// As [`ensure_secure`].
pub fn ensure_allowed(url: &str, insecure: bool) -> Result<()> {
    if insecure { Kind::of(url).map(drop) } else { ensure_secure(url) }
}

/// Refuses a PostgreSQL server without a verified certificate, because a machine in between could read the password and change the data. A
/// server on this machine, reached by loopback or a socket, needs no certificate.
///
/// # Errors
/// When the URL names such a server, or is invalid.
pub fn ensure_secure(url: &str) -> Result<()> {
    if Kind::of(url)? == Kind::Sqlite {
        return Ok(());
    }
    // Resolves settings like the driver: from the URL, the environment (PGHOST, PGHOSTADDR, PGSSLMODE) or its defaults.
    let options = PgConnectOptions::from_str(url).context("cannot read the URL of the PostgreSQL database")?;
    ensure_secure_options(&options)
}

fn ensure_secure_options(options: &PgConnectOptions) -> Result<()> {
    let host = options.get_host();
    let is_socket = options.get_socket().is_some() || host.starts_with('/');
    let address = host.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>();
    let is_loopback =
        host.eq_ignore_ascii_case("localhost") || address.is_ok_and(|address| address.to_canonical().is_loopback());
    ensure!(
        is_socket || is_loopback || matches!(options.get_ssl_mode(), PgSslMode::VerifyFull),
        "PostgreSQL on {host} would be reached without a verified certificate: add sslmode=verify-full to the URL \
         (postgres://USER@HOST/NAME?sslmode=verify-full, with &sslrootcert=FILE for your own certificate authority), or use \
         --insecure-database if no other machine can reach the connection"
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Settings from the environment are tested with the built command.
    #[test]
    fn remote_server_without_a_verified_certificate_is_refused() {
        for url in [
            "sqlite://coppice.db",
            "postgres://localhost/x",
            "postgres://u:p@LOCALHOST:5433/x?sslmode=disable",
            "postgres://127.0.0.1/x",
            "postgres://127.9.8.7/x",
            "postgres://[::1]/x",
            "postgres://[::ffff:127.0.0.1]/x",
            "postgres://%2Fvar%2Frun%2Fpostgresql/x",
            "postgres:///x?host=/var/run/postgresql",
            "postgres://db.example/x?host=/var/run/postgresql",
            "postgres://db.example/x?host=localhost",
            "postgres://db.example/x?sslmode=verify-full",
            "postgres://db.example/x?ssl-mode=verify-full&sslrootcert=ca.pem",
            "postgres://db.example/x?sslmode=disable&sslmode=verify-full",
            "postgres://db.example/x?%73slmode=verify%2Dfull",
        ] {
            ensure_secure(url).unwrap_or_else(|error| panic!("{url}: {error:#}"));
        }
        for url in [
            "postgres://db.example/x",
            "postgresql://db.example/x?sslmode=prefer",
            "postgres://db.example/x?sslmode=require",
            "postgres://db.example/x?sslmode=verify-ca",
            "postgres://db.example/x?sslmode=verify-full&sslmode=disable",
            "postgres://localhost/x?host=db.example",
            "postgres://localhost/x?hostaddr=192.0.2.1",
            "postgres://127.0.0.1/x?%68ost=db.example",
            "postgres://localhost,db.example/x",
            "postgres://localhost/x?host=127.0.0.1,db.example",
            "postgres://localhost.example/x",
            "postgres://127.0.0.1.example/x",
            "postgres://[::2]/x",
            "postgres://[::ffff:192.0.2.1]/x",
            "postgres://0.0.0.0/x",
            "postgres://u:secret@db.example/x",
        ] {
            let error = ensure_secure(url).expect_err(url).to_string();
            assert!(error.contains("sslmode=verify-full") && error.contains("--insecure-database"), "{url}: {error}");
            assert!(!error.contains("secret"), "{error}");
        }
        for url in ["postgres://db.example/x?sslmode=verify", "postgres://localhost/x?hostaddr=db.example", "mysql://x"]
        {
            assert!(ensure_secure(url).is_err(), "{url}");
        }
    }
}
