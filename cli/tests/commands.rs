//! The command, where no network answers.

use std::io::{BufRead, BufReader};
use std::net::TcpStream;
use std::process::{Child, Command, Output, Stdio};

fn coppice(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_coppice")).args(args).output().unwrap()
}

#[test]
fn a_command_without_a_network_says_so_in_one_sentence() {
    let (lab, blob_worker) = ("; coppice-lab COMMAND runs a canister in its own process", "");
    for (command, options, hint) in [
        ("index", &["--no-ack"][..], lab),
        ("ingest", &["--blk", "no-such-file"], lab),
        ("serve", &[], lab),
        ("blob-worker", &["--store", "tx/tx=file:///"], blob_worker),
    ] {
        let expected = format!("--network and --canister say where the canister is{hint}").replace("COMMAND", command);
        let output = coppice(&[&[command], options].concat());
        assert_eq!((output.status.code(), output.stdout), (Some(2), Vec::new()), "{command}");
        assert_eq!(String::from_utf8(output.stderr).unwrap(), format!("error: {expected}\n"));
        let output = coppice(&[&[command, "--log-format", "json"], options].concat());
        assert_eq!(output.status.code(), Some(2), "{command}");
        let line: serde_json::Value = serde_json::from_slice(&output.stderr).unwrap();
        assert_eq!((&line["level"], &line["event"]), (&"error".into(), &"ended".into()), "{line}");
        assert_eq!(line["message"], expected);
    }
}

#[test]
fn each_command_says_in_json_why_it_ended_where_lines_are_json() {
    let network = ["--network", "http://127.0.0.1:1", "--canister", "aaaaa-aa", "--identity", "/none.pem"];
    for (command, options) in
        [("index", &["--no-ack"][..]), ("serve", &[]), ("blob-worker", &["--store", "tx/tx=file:///"])]
    {
        let output = Command::new(env!("CARGO_BIN_EXE_coppice"))
            .args([command, "--log-format", "json"])
            .args(network)
            .args(options)
            .output()
            .unwrap();
        assert_eq!(output.status.code(), Some(1), "{command}");
        let said = String::from_utf8(output.stderr).unwrap();
        let last: serde_json::Value = serde_json::from_str(said.lines().last().unwrap()).unwrap();
        assert_eq!((&last["level"], &last["event"]), (&"error".into(), &"ended".into()), "{said}");
        assert!(last["message"].as_str().unwrap().contains("none.pem"), "{said}");
    }
}

/// The command line of the systemd unit, with its lines joined and its variables filled in, is one that the command takes.
#[test]
fn the_systemd_unit_starts_a_worker() {
    use clap::Parser;
    use coppice::blob_worker::times;
    use coppice::commands::{Cli, Command};
    use std::time::Duration;
    let unit = include_str!("../../deploy/coppice-blob-worker@.service").replace("\\\n", " ");
    let start = unit.lines().find_map(|line| line.strip_prefix("ExecStart=")).unwrap();
    let filled = start
        .replace("${COPPICE_NETWORK}", "https://icp-api.io")
        .replace("${COPPICE_CANISTER}", "aaaaa-aa")
        .replace("${CREDENTIALS_DIRECTORY}", "/run/credentials")
        .replace("${COPPICE_TX_STORE}", "s3://bucket/tx")
        .replace("${COPPICE_OUTPUTS_STORE}", "file:///srv/outputs");
    assert!(!filled.contains('$'), "{filled}");
    let cli = Cli::try_parse_from(filled.split_whitespace()).unwrap();
    let Command::BlobWorker(args) = cli.command else { panic!("{cli:?}") };
    assert_eq!(args.stores.stores.len(), 2);
    // It is not killed while it ends: what is under way, a look at the markers, what it says, and a call.
    let most: u64 = unit.lines().find_map(|line| line.strip_prefix("TimeoutStopSec=")).unwrap().parse().unwrap();
    let ending = times::REQUEST.of(args.options.lease) + times::LAST_LOOK + times::PARTING.of(times::CALL);
    assert!(Duration::from_secs(most) >= ending + Duration::from_secs(60), "{ending:?}");
    // Codes after which it is not started again are those that it knows.
    let codes = unit.lines().find_map(|line| line.strip_prefix("RestartPreventExitStatus=")).unwrap();
    let help = <Cli as clap::CommandFactory>::command().find_subcommand_mut("blob-worker").unwrap().render_long_help();
    for code in codes.split(' ') {
        assert!(help.to_string().contains(&format!(" {code} ")), "{code}");
    }
}

/// The driver takes the host and the mode of TLS from the environment, too.
#[test]
fn postgresql_elsewhere_without_a_verified_certificate_is_refused_whoever_names_it() {
    let index = |database: &str, environment: &[(&str, &str)], more: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_coppice"));
        command.args(["index", "--no-ack", "--network", "http://127.0.0.1:1", "--canister", "aaaaa-aa"]).args(more);
        for name in ["PGHOST", "PGHOSTADDR", "PGSSLMODE", "PGPORT"] {
            command.env_remove(name);
        }
        command.envs(environment.iter().copied()).env("COPPICE_DATABASE", database);
        let Output { status, stderr, .. } = command.output().unwrap();
        assert!(!status.success());
        String::from_utf8(stderr).unwrap()
    };
    let elsewhere = "postgres://u:secret@db.invalid/x";
    for (database, environment, more, refused) in [
        (elsewhere, &[][..], &[][..], true),
        (elsewhere, &[("PGSSLMODE", "require")], &[], true),
        ("postgres:///x", &[("PGHOST", "db.invalid")], &[], true),
        ("postgres:///x", &[("PGHOST", "localhost"), ("PGHOSTADDR", "192.0.2.1")], &[], true),
        // These go on, and find no server.
        (elsewhere, &[("PGSSLMODE", "verify-full")], &[], false),
        (elsewhere, &[], &["--insecure-database"], false),
        ("postgres:///x", &[("PGHOST", "127.0.0.1"), ("PGPORT", "1")], &[], false),
        ("postgres:///x", &[("PGHOST", "/nowhere")], &[], false),
    ] {
        let said = index(database, environment, more);
        let names_both = said.contains("sslmode=verify-full") && said.contains("--insecure-database");
        assert_eq!(names_both, refused, "{database} {environment:?} {more:?}: {said}");
        assert!(refused || said.contains("cannot open the PostgreSQL database"), "{said}");
        assert!(!said.contains("secret"), "{said}");
    }
}

/// `coppice serve`, started as a shell starts what runs in the background, which ignores Ctrl-C; and the first line that it prints on stdout.
fn serve(args: &[&str]) -> (Child, String) {
    let mut child = Command::new("sh")
        .args(["-c", "trap '' INT; exec \"$0\" \"$@\"", env!("CARGO_BIN_EXE_coppice"), "serve"])
        .args(args)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    (child, line)
}

/// Nobody is asked before the first request comes, so there need not be a network.
#[test]
fn the_command_prints_its_url_and_ends_when_it_is_told_to() {
    let network = ["--network", "http://127.0.0.1:9", "--canister", "aaaaa-aa"];
    let (mut child, line) = serve(&[&network[..], &["--port", "0"]].concat());
    let address = line.trim().strip_prefix("http://").and_then(|url| url.strip_suffix('/')).unwrap().to_string();
    TcpStream::connect(&address).unwrap();
    let port = address.split_once(':').unwrap().1;
    let (taken, line) = serve(&[&network[..], &["--port", port]].concat());
    let taken = taken.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&taken.stderr);
    assert!(!taken.status.success() && line.is_empty() && said.contains("--port"), "{said}");
    let (mut json, line) = serve(&[&network[..], &["--port", "0", "--json"]].concat());
    let line: serde_json::Value = serde_json::from_str(&line).unwrap();
    assert!(line["url"].as_str().is_some_and(|url| url.starts_with("http://127.0.0.1:")), "{line}");
    for (child, signal) in [(&mut child, "-INT"), (&mut json, "-TERM")] {
        assert!(Command::new("kill").args([signal, &child.id().to_string()]).status().unwrap().success());
        assert_eq!(child.wait().unwrap().code(), Some(i32::from(coppice::stop::INTERRUPTED)), "{signal}");
    }
}
