//! Workers that reach no canister or no store, and how they end.

use super::*;
use axum::http::StatusCode;
use ic_coppice_cli::blob_worker::layout::Layout;
use ic_coppice_cli::blob_worker::store::Store;
use ic_coppice_cli::blob_worker::stores::Stores;
use ic_coppice_cli::blob_worker::work::Worker;
use ic_coppice_cli::http_server::Server;
use std::path::Path;
use std::sync::Arc;

/// Returns the command of a worker without a canister, with a marked store.
fn without_a_canister(url: &str, dir: &Path, args: &[&str]) -> Command {
    let canister = Principal::from_slice(&[0, 0, 0, 0, 0, 0, 0, 7, 1, 1]);
    let store = format!("tx/tx=file://{}", dir.display());
    let stores = Stores::open(&[store.parse().unwrap()], Layout::Hex, Store::directory).unwrap();
    ic_coppice_cli::blob_worker::mark(&Worker::new(stores, canister, 1).unwrap()).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_coppice"));
    command.args(["blob-worker", "--network", url, "--canister", &canister.to_string(), "--store", &store]);
    command.args(args).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

#[test]
fn calls_refused_by_a_gateway_are_retried_until_a_signal() {
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
    // A dry run has no report then; a worker has one, because nothing was leased.
    for (args, code) in [
        (&["--dry-run"][..], 130),
        (&["--once"], 0),
        (&["--fetch-root-key"], 0),
        (&["--fetch-root-key", "--dry-run"], 130),
    ] {
        let args = [args, &["--log-format", "json", "--json", "--max-wait-secs", "1"]].concat();
        let mut worker = Running::start(without_a_canister(&url, dir.path(), &args));
        worker.wait_for_line("trying again", 2);
        signal(&worker.child, "-INT");
        let output = worker.end();
        let stderr = stderr_of(&output);
        assert_eq!(output.status.code(), Some(code), "{args:?}: {stderr}");
        let events = events(&stderr);
        assert!(stderr.contains("ingress_expiry"), "{stderr}");
        if code == 0 {
            assert_eq!(serde_json::from_slice::<serde_json::Value>(&output.stdout).unwrap()["leases"], 0);
        } else {
            assert_eq!((&events.last().unwrap()["level"], output.stdout.len()), (&"error".into(), 0));
        }
    }
    server.unblock();
    answers.join().unwrap();
}

/// Makes a directory hang: opening its marker blocks until a writer opens it.
fn let_hang(dir: &Path) {
    let marker = dir.join(ic_coppice_cli::blob_worker::MARKER);
    std::fs::remove_file(&marker).unwrap();
    assert!(Command::new("mkfifo").arg(&marker).status().unwrap().success());
}

#[test]
fn second_signal_ends_a_waiting_worker_without_a_reader() {
    let dir = tempfile::tempdir().unwrap();
    let mut worker = without_a_canister("http://127.0.0.1:1", dir.path(), &["--log-format", "json"]);
    let_hang(dir.path());
    let mut child = worker.spawn().unwrap();
    drop(child.stderr.take());
    wait_for("the worker listens to signals", || listens(&child));
    assert!(child.try_wait().unwrap().is_none(), "the worker waits for the store");
    let mut status = None;
    wait_for("the second signal ends it", || {
        signal(&child, "-TERM");
        status = child.try_wait().unwrap();
        status.is_some()
    });
    assert_eq!(status.unwrap().code(), Some(130));
}

#[test]
fn first_signal_ends_a_worker_with_a_hanging_call_or_directory() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let dir = tempfile::tempdir().unwrap();
    let child = without_a_canister(&url, dir.path(), &["--json"]).spawn().unwrap();
    // The worker has made a call, which is not answered.
    let _asked = listener.accept().unwrap();
    signal(&child, "-TERM");
    let output = child.wait_with_output().unwrap();
    let report = json(&output, 0);
    // The call was given up at the signal, not at its time limit, and was not repeated.
    assert_eq!((&report["leases"], &report["retries"]), (&0.into(), &0.into()), "{}", stderr_of(&output));
    assert!(!stderr_of(&output).contains("trying again"), "{}", stderr_of(&output));
    // A worker whose directory hangs at the start ends some seconds after the signal.
    let mut worker = without_a_canister(&url, dir.path(), &["--json"]);
    let_hang(dir.path());
    let mut child = worker.spawn().unwrap();
    wait_for("the worker listens to signals", || listens(&child));
    assert!(child.try_wait().unwrap().is_none(), "the worker waits for the store");
    signal(&child, "-TERM");
    assert_eq!(json(&child.wait_with_output().unwrap(), 0)["leases"], 0);
}

#[test]
fn invalid_stores_and_missing_network_exit_with_code_2() {
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
        assert_eq!(output.status.code(), Some(2), "{args:?}: {}", stderr_of(&output));
    }
}
