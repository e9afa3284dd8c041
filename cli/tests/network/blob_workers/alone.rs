//! Workers that reach no canister, or no store: what ends them, and how.

use super::*;
use axum::http::StatusCode;
use coppice::blob_worker::layout::Layout;
use coppice::blob_worker::store::Store;
use coppice::blob_worker::stores::Stores;
use coppice::blob_worker::work::Worker;
use coppice::http_server::Server;
use std::path::Path;
use std::sync::Arc;

/// A worker on a network that is no canister's, with a store that is marked.
fn without_a_canister(url: &str, dir: &Path, args: &[&str]) -> Command {
    let canister = Principal::from_slice(&[0, 0, 0, 0, 0, 0, 0, 7, 1, 1]);
    let store = format!("tx/tx=file://{}", dir.display());
    let stores = Stores::open(&[store.parse().unwrap()], Layout::Hex, Store::directory).unwrap();
    coppice::blob_worker::mark(&Worker::new(stores, canister, 1).unwrap()).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_coppice"));
    command.args(["blob-worker", "--network", url, "--canister", &canister.to_string(), "--store", &store]);
    command.args(args).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

#[test]
fn what_a_gateway_turns_away_is_tried_again_until_a_signal_ends_it() {
    let server = Arc::new(Server::bind(0).unwrap());
    let url = server.url();
    let turning_away = server.clone();
    let answers = std::thread::spawn(move || {
        while let Some(request) = turning_away.recv() {
            let why = "Invalid request expiry: Specified ingress_expiry not within expected range";
            request.respond((StatusCode::BAD_REQUEST, why));
        }
    });
    let dir = tempfile::tempdir().unwrap();
    // One that only looks has nothing to say then; one that works has, as nothing was leased.
    for (args, code) in [
        (&["--dry-run"][..], 130),
        (&["--once"], 0),
        (&["--fetch-root-key"], 0),
        (&["--fetch-root-key", "--dry-run"], 130),
    ] {
        let args = [args, &["--log-format", "json", "--json", "--max-wait", "1"]].concat();
        let mut worker = Running::start(without_a_canister(&url, dir.path(), &args));
        worker.says("trying again", 2);
        signal(&worker.child, "-INT");
        let output = worker.end();
        let said = said(&output);
        assert_eq!(output.status.code(), Some(code), "{args:?}: {said}");
        let events = events(&said);
        assert!(said.contains("ingress_expiry"), "{said}");
        if code == 0 {
            assert_eq!(serde_json::from_slice::<serde_json::Value>(&output.stdout).unwrap()["leases"], 0);
        } else {
            assert_eq!((&events.last().unwrap()["level"], output.stdout.len()), (&"error".into(), 0));
        }
    }
    server.unblock();
    answers.join().unwrap();
}

/// A directory hangs from now on: whoever opens its marker waits for somebody who writes it.
fn let_hang(dir: &Path) {
    let marker = dir.join(coppice::blob_worker::MARKER);
    std::fs::remove_file(&marker).unwrap();
    assert!(Command::new("mkfifo").arg(&marker).status().unwrap().success());
}

#[test]
fn a_second_signal_ends_a_worker_that_waits_though_nobody_reads_what_it_says() {
    let dir = tempfile::tempdir().unwrap();
    let mut worker = without_a_canister("http://127.0.0.1:1", dir.path(), &["--log-format", "json"]);
    let_hang(dir.path());
    let mut child = worker.spawn().unwrap();
    drop(child.stderr.take());
    wait_for("it listens to signals", || listens(&child));
    assert!(child.try_wait().unwrap().is_none(), "it waits for the store");
    let mut status = None;
    wait_for("the second signal ends it", || {
        signal(&child, "-TERM");
        status = child.try_wait().unwrap();
        status.is_some()
    });
    assert_eq!(status.unwrap().code(), Some(130));
}

#[test]
fn a_worker_whose_call_nobody_answers_ends_well_at_the_first_signal_though_its_directory_may_hang() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let dir = tempfile::tempdir().unwrap();
    let child = without_a_canister(&url, dir.path(), &["--json"]).spawn().unwrap();
    // It has asked, and is not answered.
    let _asked = listener.accept().unwrap();
    signal(&child, "-TERM");
    let output = child.wait_with_output().unwrap();
    let report = json(&output, 0);
    // The call was given up with the signal, and not when its time was over: it was not made again.
    assert_eq!((&report["leases"], &report["retries"]), (&0.into(), &0.into()), "{}", said(&output));
    assert!(!said(&output).contains("trying again"), "{}", said(&output));
    // One whose directory hangs when it begins ends some seconds behind the signal.
    let mut worker = without_a_canister(&url, dir.path(), &["--json"]);
    let_hang(dir.path());
    let mut child = worker.spawn().unwrap();
    wait_for("it listens to signals", || listens(&child));
    assert!(child.try_wait().unwrap().is_none(), "it waits for the store");
    signal(&child, "-TERM");
    assert_eq!(json(&child.wait_with_output().unwrap(), 0)["leases"], 0);
}

#[test]
fn a_wrong_command_line_is_said_as_the_parsers_own() {
    let dir = tempfile::tempdir().unwrap();
    let [store, folders] = ["", "?hashPrefix=2"].map(|query| format!("tx/tx=file://{}{query}", dir.path().display()));
    let network = ["--network", "http://127.0.0.1:1", "--canister", "aaaaa-aa"];
    for args in [
        vec!["--store", &store],
        vec!["init", "--store", &store],
        [&["--store", &store, "--store", &store], &network[..]].concat(),
        [&["--store", &folders], &network[..]].concat(),
        vec!["--store", "tx/tx=nothing"],
        [&["--store", &store.replacen("tx/tx=", "tx=", 1)], &network[..]].concat(),
        [&["--store", &format!("{store}#a")], &network[..]].concat(),
        [&["--store", &store, "--store", &store.replacen("tx/tx=", "temp/*=", 1)], &network[..]].concat(),
    ] {
        let output = Command::new(env!("CARGO_BIN_EXE_coppice")).arg("blob-worker").args(&args).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{args:?}: {}", said(&output));
    }
}
