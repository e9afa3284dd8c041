//! Durability of PostgreSQL: through PgBouncer, over a crash, and with settings that lose commits.

use super::World;
use super::servers::{Pooler, Server, ask, url};
use crate::running::{Running, json, stderr_of};

/// A server that by its own settings loses the last commits in a crash.
const LOSES_COMMITS: &[&str] = &["synchronous_commit=off", "wal_writer_delay=10s", "autovacuum=off"];

#[test]
fn blocks_acknowledged_through_a_pooler_outlive_a_crash_of_the_server() {
    let test = "blocks_acknowledged_through_a_pooler_outlive_a_crash_of_the_server";
    let Some(server) = Server::start(test, LOSES_COMMITS) else { return };
    let world = World::new();
    for settings in [
        "pool_mode = session\nignore_startup_parameters = options,extra_float_digits",
        "pool_mode = transaction\nignore_startup_parameters = options,extra_float_digits",
        "pool_mode = session",
        "pool_mode = transaction",
    ] {
        let Some(pooler) = Pooler::start(test, &server, settings) else { return };
        server.ask("DROP SCHEMA public CASCADE; CREATE SCHEMA public");
        let output = world.index(&url(pooler.port), &["--until-caught-up"]).output().unwrap();
        assert!(output.status.success(), "{settings}: {}", stderr_of(&output));
        server.crash();
        server.resume();
        assert_eq!(world.bound(), world.next());
        assert_eq!(server.rows(), super::BLOCKS, "{settings}: acknowledged blocks are gone");
        // Reading works through the pooler, too.
        let newest = (world.next() - 1).to_string();
        let mut get = std::process::Command::new(env!("CARGO_BIN_EXE_coppice"));
        let output = get.args(["get", &newest, "--database", &url(pooler.port)]).output().unwrap();
        assert!(output.status.success(), "{settings}: {}", stderr_of(&output));
    }
}

#[test]
fn connections_of_a_transaction_pooler_change_under_a_running_indexer() {
    let test = "connections_of_a_transaction_pooler_change_under_a_running_indexer";
    let Some(server) = Server::start(test, &[]) else { return };
    let Some(pooler) = Pooler::start(test, &server, "pool_mode = transaction\nserver_lifetime = 1\nmin_pool_size = 3")
    else {
        return;
    };
    let mut world = World::new();
    let indexing = Running::start(world.index(&url(pooler.port), &[]));
    for _ in 0..8 {
        world.append(5);
        world.wait_until_acknowledged();
        std::thread::sleep(std::time::Duration::from_millis(400));
    }
    let report = json(&indexing.terminate());
    assert_eq!((report["held"]["blocks"].as_u64(), server.rows()), (Some(60), 60));
}

#[test]
fn server_that_stops_syncing_is_refused_before_the_next_change() {
    let test = "server_that_stops_syncing_is_refused_before_the_next_change";
    let Some(server) = Server::start(test, &[]) else { return };
    let mut world = World::new();
    let indexing = Running::start(world.index(&server.url(), &[]));
    world.wait_until_acknowledged();
    server.ask("ALTER SYSTEM SET fsync = off");
    server.ask("SELECT pg_reload_conf()");
    let acknowledged = world.next();
    world.append(5);
    let ended = indexing.end();
    assert_eq!(ended.status.code(), Some(1), "{}", stderr_of(&ended));
    let error = stderr_of(&ended);
    assert!(error.contains("fsync = off") && error.contains("--volatile-database"), "{error}");
    assert_eq!((world.bound(), server.rows()), (acknowledged, super::BLOCKS));
    let output = world.index(&server.url(), &["--until-caught-up"]).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    let report = json(&world.index(&server.url(), &["--until-caught-up", "--volatile-database"]).output().unwrap());
    assert_eq!(report["acknowledged_before"], world.next());
}

#[test]
fn search_path_that_another_client_of_the_pooler_left_is_refused() {
    let test = "search_path_that_another_client_of_the_pooler_left_is_refused";
    let Some(server) = Server::start(test, &[]) else { return };
    let Some(pooler) = Pooler::start(test, &server, "pool_mode = transaction\ndefault_pool_size = 1") else { return };
    let mut world = World::new();
    server.ask("CREATE SCHEMA other");
    let indexing = Running::start(world.index(&url(pooler.port), &[]));
    world.wait_until_acknowledged();
    let acknowledged = world.next();
    ask(pooler.port, "SET search_path = other");
    world.append(5);
    let ended = indexing.end();
    let error = stderr_of(&ended);
    assert_eq!(ended.status.code(), Some(1), "{error}");
    assert!(error.contains("search_path changed") && error.contains("options[search_path]"), "{error}");
    assert_eq!((world.bound(), server.rows()), (acknowledged, super::BLOCKS));
    // A schema in the URL holds for each transaction.
    let named = format!("{}?options[search_path]=public", url(pooler.port));
    let report = json(&world.index(&named, &["--until-caught-up"]).output().unwrap());
    assert_eq!((report["acknowledged_before"].as_u64(), server.rows()), (Some(world.next()), super::BLOCKS + 5));
    let other = format!("{}?options[search_path]=other", url(pooler.port));
    json(&world.index(&other, &["--until-caught-up", "--no-ack"]).output().unwrap());
    assert_eq!(server.ask("SELECT count(*) FROM other.blocks"), "25");
}

#[test]
fn tables_that_a_crash_empties_are_refused() {
    let test = "tables_that_a_crash_empties_are_refused";
    let Some(server) = Server::start(test, &[]) else { return };
    let world = World::new();
    let before = world.bound();
    let refused = |url: &str, args: &[&str], says: &str| {
        let output = world.index(url, &[&["--until-caught-up"], args].concat()).output().unwrap();
        let error = stderr_of(&output);
        assert_eq!((output.status.code(), world.bound()), (Some(1), before), "{error}");
        assert!(error.contains(says), "{error}");
    };
    for path in ["pg_temp", "pg_temp,public"] {
        let temporary = format!("{}?options[search_path]={path}", server.url());
        refused(&temporary, &[], "temporary tables");
        refused(&temporary, &["--volatile-database"], "temporary tables");
    }
    let missing = format!("{}?options[search_path]=none", server.url());
    let why =
        "error: the tables cannot be created: error returned from database: no schema has been selected to create in";
    refused(&missing, &[], why);
    json(&world.index(&server.url(), &["--until-caught-up", "--no-ack"]).output().unwrap());
    server.ask("ALTER TABLE parts SET UNLOGGED");
    refused(&server.url(), &[], "UNLOGGED, so a crash of the server empties them: parts");
    let report = json(&world.index(&server.url(), &["--until-caught-up", "--volatile-database"]).output().unwrap());
    assert_eq!(report["acknowledged_before"], world.next());
}

#[test]
fn startup_options_are_refused_by_name() {
    let world = World::new();
    for (url, environment, name) in [
        ("postgres://postgres@127.0.0.1:1/x?options=-c%20fsync%3Doff", None, "options"),
        ("postgres://postgres@127.0.0.1:1/x?options[synchronous_commit]=off", None, "options[synchronous_commit]"),
        ("postgres://postgres@127.0.0.1:1/x", Some("-c search_path=x"), "PGOPTIONS"),
    ] {
        let mut command = world.index(url, &[]);
        environment.map(|options| command.env("PGOPTIONS", options));
        let output = command.output().unwrap();
        let error = stderr_of(&output);
        assert!(error.contains(&format!("{name} is not supported")) && error.contains("ALTER ROLE"), "{error}");
    }
}
