//! Connections that end, and rows that another process removes between the commit and the acknowledgement.

use super::*;
use crate::index::database::is_lost;

struct Hook<'a>(&'a dyn Fn(Step) -> Result<()>);

impl Checkpoint for Hook<'_> {
    fn reached(&mut self, step: Step) -> Result<()> {
        (self.0)(step)
    }
}

#[test]
fn block_that_is_gone_after_its_commit_is_not_acknowledged() {
    let postgres = Postgres::new("gone").map(|server| Box::new(server) as Box<dyn Server>);
    for server in &mut [Box::new(Sqlite::new()) as Box<dyn Server>].into_iter().chain(postgres).collect::<Vec<_>>() {
        for sql in ["DELETE FROM blocks WHERE number = 12", "UPDATE blocks SET hash = parent_hash WHERE number = 12"] {
            let (url, client) = (server.fresh(), chain(&[10, 20, 30]));
            let remove = |step| {
                if step == Step::Committed {
                    Database::open(Access::volatile(&url))?.transaction(|tx| tx.execute(sql, &[]))?;
                }
                Ok(())
            };
            let store = Store::open(Access::volatile(&url), &origin(Payload::All)).unwrap();
            let error =
                Engine::open(&client, store, options(), Hook(&remove)).unwrap().settle().unwrap_err().to_string();
            assert!(
                error.contains("does not hold block 12") && error.contains("Nothing more is acknowledged"),
                "{error}"
            );
            assert_eq!(client.transport().chain().bound, 0);
        }
    }
}

/// The server ends the connection at each point of a run, also within a transaction. The run goes on over a new one.
#[test]
fn postgresql_connection_that_ends_anywhere_changes_nothing() {
    let Some(mut server) = Postgres::new("ends_anywhere") else { return };
    let mut play = |end_at: usize| {
        let (url, client) = (server.fresh(), chain(&[10, 3_000, 20, 0, 2_500]));
        let (places, ended, pid) = (Cell::new(0), Cell::new(0), Cell::new(0));
        let end = |_: Step| {
            places.set(places.get() + 1);
            if places.get() == end_at {
                ended.set(ended.get() + 1);
                let sql = "SELECT CAST(pg_terminate_backend(CAST($1 AS INTEGER)) AS TEXT)";
                Database::open(Access::volatile(&url))?
                    .transaction(|tx| tx.one(sql, &[Value::Int(Some(pid.get()))]))?;
            }
            Ok(())
        };
        let store = Store::open(Access::volatile(&url), &origin(Payload::All)).unwrap();
        let mut running = Engine::open(&client, store, options(), Hook(&end)).unwrap();
        for round in 0..3 {
            loop {
                let row = running.store().one("SELECT CAST(pg_backend_pid() AS BIGINT)", &[]);
                if let Ok(Some(row)) = row {
                    pid.set(row.get::<i64>(0).unwrap());
                }
                match running.step() {
                    Ok(Event::CaughtUp) => break,
                    Ok(_) => {}
                    Err(error) => assert!(is_lost(&error), "{end_at}: {error:#}"),
                }
            }
            let mut chain = client.transport().chain();
            match round {
                0 => chain.append(1, &[70; 4]),
                1 => {
                    chain.roll_back_to(15);
                    chain.append(2, &[90; 3]);
                }
                _ => {}
            }
        }
        assert_eq!(ended.get(), usize::from(end_at > 0), "{end_at}");
        assert_eq!(client.transport().chain().bound, 19, "{end_at}");
        (places.get(), dump(&url))
    };
    let (places, expected) = play(0);
    assert!(places > 30, "{places}");
    for end_at in 1..=places {
        assert_eq!(play(end_at).1, expected, "the connection ended at place {end_at} of {places}");
    }
}

/// A commit that arrives after its connection was given up is not another indexer, and a database with fewer changes is not a continuation.
#[test]
fn late_commit_is_read_back_and_older_copy_is_refused() {
    let mut server = Sqlite::new();
    let (url, client) = (server.fresh(), chain(&[10, 20]));
    let mut store = Store::open(Access::volatile(&url), &origin(Payload::All)).unwrap();
    let revise = |sql: &'static str| {
        Database::open(Access::volatile(&url)).unwrap().transaction(|tx| tx.execute(sql, &[])).unwrap()
    };
    store.reopen().unwrap();
    revise("UPDATE state SET revision = revision + 1");
    let error = store.change(|_| Ok(())).unwrap_err();
    assert!(is_lost(&error) && store.is_lost(), "{error:#}");
    store.reopen().unwrap();
    store.change(|_| Ok(())).unwrap();
    revise("UPDATE state SET revision = revision + 1");
    let error = store.change(|_| Ok(())).unwrap_err();
    assert!(!is_lost(&error) && error.to_string().contains("another indexer"), "{error:#}");
    revise("UPDATE state SET revision = revision + 1");
    assert!(store.reopen().unwrap_err().to_string().contains("another indexer"));
    revise("UPDATE state SET revision = 1");
    assert!(store.reopen().unwrap_err().to_string().contains("has lost committed changes"));
    // A database that is not there is not made anew.
    drop(store);
    let mut running = engine(&client, &url, options());
    running.settle().unwrap();
    let path = url.strip_prefix("sqlite://").unwrap();
    ["", "-wal", "-shm"].iter().for_each(|end| std::fs::remove_file(format!("{path}{end}")).unwrap());
    running.store().reopen().unwrap_err();
    assert!(!std::path::Path::new(path).exists());
}
