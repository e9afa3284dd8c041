//! A database that stops answering, or ends the connection: every call has a limit, a signal ends the run, and the copy goes on over a new
//! connection, whatever became of the last commit.

use super::World;
use super::servers::{Mute, Proxy, Server, url};
use crate::running::{Running, json, stderr_of, wait_for};
use ic_coppice_cli::index::database::{Access, Database};
use std::time::{Duration, Instant};

/// A signal ends a run within this time, whatever is silent.
const SOON: Duration = Duration::from_secs(10);

#[test]
fn database_that_falls_silent_is_reported_and_the_copy_goes_on_when_it_answers() {
    let test = "database_that_falls_silent_is_reported_and_the_copy_goes_on_when_it_answers";
    let Some(server) = Server::start(test, &[]) else { return };
    let (proxy, mut world) = (Proxy::start(server.port), World::new());
    let limits = ["--database-statement-secs", "2", "--database-commit-secs", "2", "--database-connect-secs", "2"];
    let mut indexing = Running::start(world.index(&url(proxy.port), &limits));
    world.wait_until_acknowledged();
    let acknowledged = world.next();
    proxy.mute(Mute::All);
    world.append(10);
    indexing.wait_for_line("the database does not answer: statement limit (2 s, --database-statement-secs) reached", 1);
    indexing.wait_for_line("connection limit (2 s, --database-connect-secs) reached", 1);
    assert_eq!(world.bound(), acknowledged);
    proxy.mute(Mute::No);
    world.wait_until_acknowledged();
    let report = json(&indexing.terminate());
    assert_eq!((report["held"]["blocks"].as_u64(), server.rows()), (Some(30), 30));
}

#[test]
fn signal_ends_a_run_whose_database_is_silent() {
    let test = "signal_ends_a_run_whose_database_is_silent";
    let Some(server) = Server::start(test, &[]) else { return };
    let proxy = Proxy::start(server.port);
    // At the head, within a statement, and while the connection is opened.
    for blocks in [0, 10] {
        let mut world = World::new();
        server.ask("DROP SCHEMA public CASCADE; CREATE SCHEMA public");
        let indexing = Running::start(world.index(&url(proxy.port), &[]));
        world.wait_until_acknowledged();
        proxy.mute(Mute::All);
        world.append(blocks);
        std::thread::sleep(Duration::from_secs(3));
        let asked = Instant::now();
        let ended = indexing.terminate();
        assert!(asked.elapsed() < SOON, "{blocks}: {:?}", asked.elapsed());
        assert_eq!(ended.status.code(), Some(1), "{}", stderr_of(&ended));
        assert!(stderr_of(&ended).contains("is given up, because the run is to end"), "{}", stderr_of(&ended));
        proxy.mute(Mute::No);
    }
    proxy.mute(Mute::All);
    let world = World::new();
    let opening = Running::start(world.index(&url(proxy.port), &[]));
    std::thread::sleep(Duration::from_secs(3));
    let asked = Instant::now();
    assert_eq!(opening.terminate().status.code(), Some(1));
    assert!(asked.elapsed() < SOON, "{:?}", asked.elapsed());
}

/// All that follows a signal shares one deadline: the call of the canister, the database, the last acknowledgement.
#[test]
fn signal_ends_a_run_whose_canister_is_silent_with_its_database_or_alone() {
    let test = "signal_ends_a_run_whose_canister_is_silent_with_its_database_or_alone";
    let Some(server) = Server::start(test, &[]) else { return };
    for (silent_database, code, part) in
        [(true, 1, "is given up, because the run is to end"), (false, 0, "trying again")]
    {
        server.ask("DROP SCHEMA public CASCADE; CREATE SCHEMA public");
        let (proxy, world) = (Proxy::start(server.port), World::new());
        let indexing = Running::start(world.index(&url(proxy.port), &[]));
        world.wait_until_acknowledged();
        let (asked, _silence) = world.let_fall_silent();
        asked.recv().unwrap();
        proxy.mute(if silent_database { Mute::All } else { Mute::No });
        let began = Instant::now();
        let ended = indexing.terminate();
        assert!(began.elapsed() < SOON, "{silent_database}: {:?}", began.elapsed());
        let stderr = stderr_of(&ended);
        assert!(ended.status.code() == Some(code) && stderr.contains(part), "{:?}: {stderr}", ended.status);
    }
}

#[test]
fn signal_ends_a_run_whose_acknowledgement_is_not_answered() {
    let mut world = World::new();
    let indexing = Running::start(world.index(&format!("sqlite://{}", world.net.path("chain.db")), &[]));
    world.wait_until_acknowledged();
    world.append(1);
    world.net.gateway.hold(world.net.principal, "ack_exported");
    wait_for("an acknowledgement is held back", || world.net.gateway.is_holding());
    let began = Instant::now();
    let ended = indexing.terminate();
    assert!(began.elapsed() < SOON, "{:?}", began.elapsed());
    world.net.gateway.let_go();
    assert!(stderr_of(&ended).contains("no answer came in the time allowed"), "{}", stderr_of(&ended));
    assert_eq!(ended.status.code(), Some(1));
}

#[test]
fn commit_whose_answer_is_lost_is_read_back_and_made_once() {
    let test = "commit_whose_answer_is_lost_is_read_back_and_made_once";
    let Some(server) = Server::start(test, &[]) else { return };
    let (proxy, mut world) = (Proxy::start(server.port), World::new());
    let limits = ["--database-statement-secs", "3", "--database-commit-secs", "2"];
    let indexing = Running::start(world.index(&url(proxy.port), &limits));
    world.wait_until_acknowledged();
    for (round, mute) in [Mute::AfterCommit, Mute::BeforeCommit, Mute::AfterCommit].into_iter().enumerate() {
        proxy.mute(mute);
        world.append(5);
        wait_for("a connection falls silent", || *proxy.silenced.lock().unwrap() == round as u32 + 1);
        world.wait_until_acknowledged();
    }
    let report = json(&indexing.terminate());
    assert_eq!((report["held"]["blocks"].as_u64(), server.rows()), (Some(35), 35), "{report}");
    assert!(report["retried"].as_u64().unwrap() >= 3, "{report}");
}

#[test]
fn server_that_crashes_and_comes_back_is_used_again() {
    let test = "server_that_crashes_and_comes_back_is_used_again";
    let Some(server) = Server::start(test, &[]) else { return };
    let mut world = World::new();
    let mut indexing = Running::start(world.index(&server.url(), &[]));
    world.wait_until_acknowledged();
    for round in 1..=3 {
        server.crash();
        assert!(server_is_down(&server));
        world.append(5);
        indexing.wait_for_line("opening the database again", round);
        server.resume();
        world.wait_until_acknowledged();
    }
    let report = json(&indexing.terminate());
    assert_eq!((report["held"]["blocks"].as_u64(), server.rows()), (Some(35), 35));
}

fn server_is_down(server: &Server) -> bool {
    std::net::TcpStream::connect(("127.0.0.1", server.port)).is_err()
}

#[test]
fn database_that_stays_away_ends_the_run_at_the_limit() {
    let test = "database_that_stays_away_ends_the_run_at_the_limit";
    let Some(server) = Server::start(test, &[]) else { return };
    let mut world = World::new();
    let indexing = Running::start(world.index(&server.url(), &["--database-retry-secs", "3"]));
    world.wait_until_acknowledged();
    let acknowledged = world.next();
    server.crash();
    world.append(5);
    let ended = indexing.end();
    let error = stderr_of(&ended);
    assert_eq!(ended.status.code(), Some(1), "{error}");
    assert!(error.contains("database retry limit (3 s, --database-retry-secs) reached"), "{error}");
    assert_eq!(world.bound(), acknowledged);
}

#[test]
fn older_copy_of_the_database_is_refused() {
    let test = "older_copy_of_the_database_is_refused";
    let Some(server) = Server::start(test, &[]) else { return };
    let mut world = World::new();
    let mut indexing = Running::start(world.index(&server.url(), &[]));
    world.wait_until_acknowledged();
    let acknowledged = world.next();
    // The same as a server that falls back to an older copy of its data.
    let older = "BEGIN; DELETE FROM blocks WHERE number > (SELECT min(number) + 3 FROM blocks); UPDATE state SET revision = 1; \
                 SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'coppice index'; COMMIT";
    server.ask(older);
    world.append(5);
    wait_for("the run ends", || indexing.child.try_wait().unwrap().is_some());
    let ended = indexing.end();
    let error = stderr_of(&ended);
    assert_eq!(ended.status.code(), Some(1), "{error}");
    assert!(error.contains("has lost committed changes"), "{error}");
    assert_eq!(world.bound(), acknowledged);
}

/// Another process holds SQLite's write lock.
#[test]
fn signal_ends_a_run_whose_sqlite_file_is_locked() {
    let mut world = World::new();
    let path = format!("sqlite://{}", world.net.path("chain.db"));
    let indexing = Running::start(world.index(&path, &[]));
    world.wait_until_acknowledged();
    let (locked, is_locked) = std::sync::mpsc::channel();
    let (release, is_released) = std::sync::mpsc::channel::<()>();
    let holder = std::thread::spawn(move || {
        let mut database = Database::open(Access::volatile(&path)).unwrap();
        database
            .transaction(|_| {
                locked.send(()).unwrap();
                is_released.recv().unwrap_err();
                Ok(())
            })
            .unwrap();
    });
    is_locked.recv().unwrap();
    world.append(5);
    std::thread::sleep(Duration::from_secs(3));
    let asked = Instant::now();
    let ended = indexing.terminate();
    assert!(asked.elapsed() < SOON, "{:?}", asked.elapsed());
    assert_eq!(ended.status.code(), Some(1), "{}", stderr_of(&ended));
    drop(release);
    holder.join().unwrap();
}
