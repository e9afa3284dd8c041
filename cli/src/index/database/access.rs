//! Access to a database: its URL, the conditions of its use, and the limits of its calls.
//!
//! Every call of a database ends: when it is answered, at its limit, or at the [deadline](crate::stop::DEADLINE) of a run that was stopped. A
//! call that was given up may still take effect, a commit too. So its connection is dropped, and the position is read again over a new one.

use crate::stop::{Stop, Waiter};
use anyhow::{Context, Result, anyhow};
use std::cell::Cell;
use std::time::{Duration, Instant};

/// Limits of the calls of a database.
#[derive(Clone, Copy, Debug, clap::Args)]
pub struct Limits {
    /// Longest wait for a connection to the database, in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = Limits::default().database_connect_secs, value_parser = clap::value_parser!(u64).range(1..=86_400))]
    pub database_connect_secs: u64,
    /// Longest wait for the answer to a statement, in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = Limits::default().database_statement_secs, value_parser = clap::value_parser!(u64).range(1..=86_400))]
    pub database_statement_secs: u64,
    /// Longest wait for a commit, in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = Limits::default().database_commit_secs, value_parser = clap::value_parser!(u64).range(1..=86_400))]
    pub database_commit_secs: u64,
    /// Longest wait for the end of a connection, in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = Limits::default().database_close_secs, value_parser = clap::value_parser!(u64).range(1..=86_400))]
    pub database_close_secs: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            database_connect_secs: 30,
            database_statement_secs: 60,
            database_commit_secs: 60,
            database_close_secs: 5,
        }
    }
}

/// A call of a database.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Call {
    Connect,
    Statement,
    Commit,
    Close,
}

impl Call {
    /// Returns the call's name, its limit in seconds, and the option that sets the limit.
    fn limit(self, limits: &Limits) -> (&'static str, u64, &'static str) {
        match self {
            Self::Connect => ("connection", limits.database_connect_secs, "--database-connect-secs"),
            Self::Statement => ("statement", limits.database_statement_secs, "--database-statement-secs"),
            Self::Commit => ("commit", limits.database_commit_secs, "--database-commit-secs"),
            Self::Close => ("close", limits.database_close_secs, "--database-close-secs"),
        }
    }
}

/// The URL of a database, and the conditions of its use.
#[derive(Clone, Default)]
pub struct Access {
    pub url: String,
    /// The database may lose committed data in a crash.
    pub volatile: bool,
    pub limits: Limits,
    /// Ends calls of a run that is to end.
    pub stop: Stop,
}

impl Access {
    /// Access to a database that may lose committed data, as that of a test or of a demonstration may.
    pub fn volatile(url: &str) -> Self {
        Self { url: url.into(), volatile: true, ..Self::default() }
    }
}

/// The connection to the database has ended, or a call was given up. Whether its last commit took effect is unknown.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Lost(pub String);

/// Returns whether an error means that the connection is to be opened again.
pub fn is_lost(error: &anyhow::Error) -> bool {
    error.chain().any(|error| error.is::<Lost>() || error.downcast_ref().is_some_and(ends_connection))
}

/// Returns whether the same statement may succeed over a new connection.
fn ends_connection(error: &sqlx::Error) -> bool {
    match error {
        sqlx::Error::Io(_) | sqlx::Error::Tls(_) | sqlx::Error::Protocol(_) | sqlx::Error::WorkerCrashed => true,
        sqlx::Error::Database(error) => error.code().is_some_and(|code| is_passing(&code)),
        _ => false,
    }
}

/// Returns whether an error code of PostgreSQL, of five characters, or an extended code of SQLite is of the moment.
fn is_passing(code: &str) -> bool {
    /// Connection, shutdown, too many connections, deadlock, lock, cancelled statement, idle transaction, standby.
    const POSTGRES: [&str; 9] = ["08", "57P", "53300", "40001", "40P01", "55P03", "57014", "25P03", "25006"];
    /// Busy, locked.
    const SQLITE: [u32; 2] = [5, 6];
    match code.len() {
        5 => POSTGRES.iter().any(|class| code.starts_with(class)),
        _ => code.parse::<u32>().is_ok_and(|code| SQLITE.contains(&(code & 0xff))),
    }
}

/// Makes the calls of a database, within their limits.
pub(super) struct Calls {
    waiter: Waiter,
    pub access: Access,
    /// A call was given up, so its connection is unusable.
    gave_up: Cell<bool>,
}

impl Calls {
    pub fn new(access: Access) -> Result<Self> {
        Ok(Self { waiter: Waiter::new()?, access, gave_up: Cell::new(false) })
    }

    /// Returns whether a call was given up.
    pub fn gave_up(&self) -> bool {
        self.gave_up.get()
    }

    /// Makes a call.
    ///
    /// # Errors
    /// The error of `work`; [`Lost`] at the call's limit, or at the deadline of a run that was stopped.
    pub fn make<T>(&self, call: Call, work: impl Future<Output = sqlx::Result<T>>) -> Result<T> {
        let (name, secs, option) = call.limit(&self.access.limits);
        let (began, limit) = (Instant::now(), Duration::from_secs(secs));
        let is_late = || self.access.stop.is_late(Duration::ZERO);
        // Many calls that are answered slowly end at the deadline, too.
        let waiter = Some(&self.waiter).filter(|_| !is_late());
        match waiter.and_then(|waiter| waiter.unless(|| began.elapsed() >= limit || is_late(), work)) {
            Some(done) => done.map_err(|error| anyhow!(error)),
            None => {
                self.gave_up.set(true);
                let why = match began.elapsed() >= limit {
                    true => format!("the database does not answer: {name} limit ({secs} s, {option}) reached"),
                    false => format!("the {name} of the database is given up, because the run is to end"),
                };
                Err(Lost(why)).context("whether the last change was committed is unknown, and is read again")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stop::DEADLINE;

    #[test]
    fn error_codes_of_the_moment_open_the_connection_again() {
        for code in
            ["08006", "08P01", "57P01", "57P03", "53300", "40P01", "25P03", "25006", "57014", "5", "6", "261", "517"]
        {
            assert!(is_passing(code), "{code}");
        }
        for code in ["42P01", "23505", "53100", "58030", "28P01", "3D000", "1", "10", "11", "13", "26", "2067", ""] {
            assert!(!is_passing(code), "{code}");
        }
    }

    #[test]
    fn call_without_an_answer_ends_at_its_limit_or_after_a_stop() {
        let limits = Limits { database_commit_secs: 1, ..Limits::default() };
        let calls = Calls::new(Access { limits, ..Access::default() }).unwrap();
        assert_eq!(calls.make(Call::Commit, std::future::ready(Ok(7))).unwrap(), 7);
        assert!(!calls.gave_up());
        let error = calls.make(Call::Commit, std::future::pending::<sqlx::Result<()>>()).unwrap_err();
        assert!(is_lost(&error) && calls.gave_up());
        assert!(format!("{error:#}").contains("commit limit (1 s, --database-commit-secs) reached"), "{error:#}");
        let (began, half) = (Instant::now(), DEADLINE / 2);
        calls.access.stop.set_since(began - half);
        assert_eq!(calls.make(Call::Statement, std::future::ready(Ok(7))).unwrap(), 7);
        // The call sleeps in a thread of its own, which is not waited for.
        let sleeps = async {
            tokio::task::spawn_blocking(|| std::thread::sleep(4 * DEADLINE)).await.unwrap();
            Ok(())
        };
        let error = calls.make(Call::Connect, sleeps).unwrap_err();
        assert!(is_lost(&error) && (half..2 * half).contains(&began.elapsed()), "{:?}", began.elapsed());
        // After the deadline not even a call that would be answered at once is made.
        assert!(is_lost(&calls.make(Call::Statement, std::future::ready(Ok(7))).unwrap_err()));
        drop(calls);
        assert!(began.elapsed() < 2 * DEADLINE, "{:?}", began.elapsed());
    }
}
