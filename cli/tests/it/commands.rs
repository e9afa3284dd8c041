//! The command without a network.

use std::io::{BufRead, BufReader};
use std::net::TcpStream;
use std::process::{Child, Command, Output, Stdio};

fn coppice(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_coppice")).args(args).output().unwrap()
}

#[test]
fn command_without_a_network_reports_it_in_one_sentence() {
    let (lab, none) = ("; coppice-lab COMMAND runs a canister in its own process", "");
    for (command, options, hint) in [
        ("index", &["--no-ack"][..], none),
        ("status", &[], none),
        ("policy", &[], none),
        ("ingest", &["--blk", "no-such-file"], lab),
        ("serve", &[], lab),
        ("blob-worker", &["--store", "tx/tx=file:///"], none),
    ] {
        let named =
            "name the canister with --network NETWORK and --canister ID, or with COPPICE_NETWORK and COPPICE_CANISTER";
        let expected = format!("{named}{hint}").replace("COMMAND", command);
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
fn json_log_format_reports_the_error_as_json() {
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
        let stderr = String::from_utf8(output.stderr).unwrap();
        let last: serde_json::Value = serde_json::from_str(stderr.lines().last().unwrap()).unwrap();
        assert_eq!((&last["level"], &last["event"]), (&"error".into(), &"ended".into()), "{stderr}");
        assert!(last["message"].as_str().unwrap().contains("none.pem"), "{stderr}");
    }
}

/// The command accepts the command line of the systemd unit, with lines joined and variables filled in.
#[test]
fn systemd_unit_has_a_valid_command_line_and_timeouts() {
    use clap::Parser;
    use ic_coppice_cli::blob_worker::times;
    use ic_coppice_cli::commands::{Cli, Command};
    use std::time::Duration;
    let unit = include_str!("../../../deploy/coppice-blob-worker@.service").replace("\\\n", " ");
    let start = unit.lines().find_map(|line| line.strip_prefix("ExecStart=")).unwrap();
    let filled = start
        .replace("${COPPICE_NETWORK}", "https://icp-api.io")
        .replace("${COPPICE_CANISTER}", "aaaaa-aa")
        .replace("${CREDENTIALS_DIRECTORY}", "/run/credentials")
        .replace("${COPPICE_TX_STORE}", "s3://bucket/tx")
        .replace("${COPPICE_OUTPUTS_STORE}", "file:///srv/outputs")
        .replace("%i", "1");
    assert!(!filled.contains('$'), "{filled}");
    let cli = Cli::try_parse_from(filled.split_whitespace()).unwrap();
    let Command::BlobWorker(args) = cli.command else { panic!("{cli:?}") };
    assert_eq!(args.stores.stores.len(), 2);
    // The stop time-out covers a running request, a look at the markers, the report, and a call.
    let most: u64 = unit.lines().find_map(|line| line.strip_prefix("TimeoutStopSec=")).unwrap().parse().unwrap();
    let ending = times::REQUEST.of(args.options.lease) + times::LAST_LOOK + times::PARTING.of(times::CALL);
    assert!(Duration::from_secs(most) >= ending + Duration::from_secs(60), "{ending:?}");
    // The codes after which systemd does not restart the worker are in the help.
    let codes = unit.lines().find_map(|line| line.strip_prefix("RestartPreventExitStatus=")).unwrap();
    let help = <Cli as clap::CommandFactory>::command().find_subcommand_mut("blob-worker").unwrap().render_long_help();
    for code in codes.split(' ') {
        assert!(help.to_string().contains(&format!(" {code} ")), "{code}");
    }
}

#[test]
fn version_names_the_interface_and_the_commit() {
    let output = Command::new(env!("CARGO_BIN_EXE_coppice")).arg("--version").output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let version = env!("CARGO_PKG_VERSION");
    // Only a release names its commit.
    let commit = option_env!("COPPICE_COMMIT").unwrap_or("unknown");
    assert_eq!(text, format!("coppice {version}, interface {version}, commit {commit}\n"));
}

#[test]
fn get_without_a_chain_or_with_a_wrong_argument_ends_with_one_sentence() {
    let dir = tempfile::tempdir().unwrap();
    let missing = format!("sqlite://{}", dir.path().join("none.db").display());
    let get = |args: &[&str], environment: Option<&str>| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_coppice"));
        command.arg("get").args(args).env_remove("COPPICE_DATABASE").env_remove("COPPICE_IDENTITY");
        if !args.contains(&"--network") {
            // A reader of a database needs no identity, and reads none.
            command.env("COPPICE_IDENTITY", "/none.pem");
        }
        command.envs(environment.map(|url| ("COPPICE_DATABASE", url)));
        let output = command.output().unwrap();
        assert!(output.stdout.is_empty(), "{args:?}");
        (output.status.code().unwrap(), String::from_utf8(output.stderr).unwrap())
    };
    let network = ["--network", "http://127.0.0.1:1", "--canister", "aaaaa-aa"];
    let zeros = "0".repeat(62);
    for (args, environment, code, part) in [
        (&["7"][..], None, 2, "name the chain: --database URL, or --network NETWORK and --canister ID"),
        (&["0x7", "--database", &missing], None, 2, "two for each byte"),
        (&[&zeros, "--as", "transaction"], None, 2, "64 hexadecimal digits"),
        (&["99999999999999999999", "--database", &missing], None, 2, "--as key"),
        (&["7", "--database", &missing], None, 1, "coppice index makes its tables"),
        (&["7"], Some(missing.as_str()), 1, "coppice index makes its tables"),
        (&["7", "--database", "postgres://db.invalid/x"], None, 1, "sslmode=verify-full"),
        (&["7", "--database", "mysql://x"], None, 1, "mysql"),
        (&["7", "--limit", "0"], None, 2, "--limit"),
        (&["7", "--limit", "1001"], None, 2, "--limit"),
        (&[], None, 2, "NUMBER|TXID|KEY"),
        (&[&["7", "--database", &missing], &network[..]].concat(), None, 2, "--network"),
        // The network counts, and not the variable.
        (&[&["7"], &network[..]].concat(), Some(missing.as_str()), 1, "http://127.0.0.1:1/ does not answer"),
    ] {
        let (found, stderr) = get(args, environment);
        assert!(found == code && stderr.contains(part), "{args:?} {environment:?}: {found} {stderr}");
    }
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0, "no database is made");
}

/// The driver also reads host and TLS mode from the environment.
#[test]
fn remote_postgresql_without_a_verified_certificate_is_refused_from_url_or_environment() {
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
        // These pass the check, and find no server.
        (elsewhere, &[("PGSSLMODE", "verify-full")], &[], false),
        (elsewhere, &[], &["--insecure-database"], false),
        ("postgres:///x", &[("PGHOST", "127.0.0.1"), ("PGPORT", "1")], &[], false),
        ("postgres:///x", &[("PGHOST", "/nowhere")], &[], false),
    ] {
        let stderr = index(database, environment, more);
        let names_both = stderr.contains("sslmode=verify-full") && stderr.contains("--insecure-database");
        assert_eq!(names_both, refused, "{database} {environment:?} {more:?}: {stderr}");
        assert!(refused || stderr.contains("cannot open the PostgreSQL database"), "{stderr}");
        assert!(!stderr.contains("secret"), "{stderr}");
    }
}

/// Starts `coppice serve` like a background job of a shell, which ignores Ctrl-C, and returns the first line of its stdout.
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

/// No call is made before the first request, so no network is needed.
#[test]
fn serve_prints_its_url_and_ends_by_sigint_or_sigterm() {
    let network = ["--network", "http://127.0.0.1:9", "--canister", "aaaaa-aa"];
    let (mut child, line) = serve(&[&network[..], &["--port", "0"]].concat());
    let address = line.trim().strip_prefix("http://").and_then(|url| url.strip_suffix('/')).unwrap().to_string();
    TcpStream::connect(&address).unwrap();
    let port = address.split_once(':').unwrap().1;
    let (taken, line) = serve(&[&network[..], &["--port", port]].concat());
    let taken = taken.wait_with_output().unwrap();
    let stderr = String::from_utf8_lossy(&taken.stderr);
    assert!(!taken.status.success() && line.is_empty() && stderr.contains("--port"), "{stderr}");
    let (mut json, line) = serve(&[&network[..], &["--port", "0", "--json"]].concat());
    let line: serde_json::Value = serde_json::from_str(&line).unwrap();
    assert!(line["url"].as_str().is_some_and(|url| url.starts_with("http://127.0.0.1:")), "{line}");
    for (child, signal) in [(&mut child, "-INT"), (&mut json, "-TERM")] {
        assert!(Command::new("kill").args([signal, &child.id().to_string()]).status().unwrap().success());
        assert_eq!(child.wait().unwrap().code(), Some(i32::from(ic_coppice_cli::stop::INTERRUPTED)), "{signal}");
    }
}

/// `head` reads one line and ends.
#[test]
fn closed_pipe_ends_the_command_quietly() {
    let sizes: Vec<String> = (1..=3_650).map(|days| days.to_string()).collect();
    for more in [&[][..], &["--json"]] {
        let mut child = Command::new(env!("CARGO_BIN_EXE_coppice"))
            .args(["size", "--block-bytes", "1000", "--transactions", "1", "--days"])
            .args(&sizes)
            .args(more)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut reader = BufReader::with_capacity(1, child.stdout.take().unwrap());
        reader.read_line(&mut String::new()).unwrap();
        drop(reader);
        let output = child.wait_with_output().unwrap();
        assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
    }
}

#[cfg(unix)]
#[test]
fn identity_that_others_can_read_is_warned_of() {
    use std::os::unix::fs::PermissionsExt;
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("key.pem");
    let key = ic_ed25519::PrivateKey::generate_from_seed(b"a test key");
    std::fs::write(&path, key.serialize_pkcs8_pem(ic_ed25519::PrivateKeyFormat::Pkcs8v2)).unwrap();
    let other = dir.path().display().to_string();
    for (mode, credentials, is_warned) in [
        (0o600, None, false),
        (0o400, None, false),
        (0o640, None, true),
        (0o604, None, true),
        (0o644, None, true),
        (0o440, Some(&*other), false),
        (0o444, Some(&*other), true),
        (0o440, Some("/elsewhere"), true),
    ] {
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_coppice"));
        command
            .args(["get", "7", "--network", "http://127.0.0.1:1", "--canister", "aaaaa-aa", "--identity"])
            .arg(&path);
        command.env_remove("CREDENTIALS_DIRECTORY").envs(credentials.map(|path| ("CREDENTIALS_DIRECTORY", path)));
        let stderr = String::from_utf8(command.output().unwrap().stderr).unwrap();
        let warning = format!("key.pem (mode {mode:03o}): chmod 600 ");
        assert_eq!(stderr.contains(&warning), is_warned, "{mode:o} {credentials:?}: {stderr}");
    }
}

#[test]
fn error_names_each_cause_once() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name).display().to_string();
    std::fs::write(path("key.pem"), "no key").unwrap();
    let network = ["--network", "http://127.0.0.1:1", "--canister", "aaaaa-aa"];
    let (key, database) = (path("key.pem"), format!("sqlite://{}", path("none/x.db")));
    let (store, file) = (format!("tx/tx=file://{}/x", path("file")), path("file"));
    std::fs::write(&file, "no directory").unwrap();
    for (args, expected) in [
        (
            [&["get", "7", "--identity", &key][..], &network].concat(),
            format!("{key} holds no unencrypted private key of Ed25519, secp256k1 or prime256v1 in PEM"),
        ),
        (
            vec!["get", "7", "--database", &database],
            "cannot open the SQLite database; coppice index makes its tables, and createdb a database of PostgreSQL: error returned from \
             database: (code: 14) unable to open database file"
                .into(),
        ),
        (
            [&["get", "7", "--identity", "/none.pem"][..], &network].concat(),
            "cannot read the identity /none.pem: No such file or directory (os error 2)".into(),
        ),
    ] {
        let output = coppice(&args);
        let stderr = String::from_utf8(output.stderr).unwrap();
        let last = stderr.lines().last().unwrap();
        assert_eq!((output.status.code(), last), (Some(1), &*format!("error: {expected}")), "{args:?}");
    }
    // A marker below a file, in the warning of a worker.
    let mut worker = Command::new(env!("CARGO_BIN_EXE_coppice"));
    worker.args(["blob-worker", "--store", &store]).args(network).stderr(Stdio::piped()).stdout(Stdio::null());
    let mut worker = worker.spawn().unwrap();
    let mut line = String::new();
    BufReader::new(worker.stderr.take().unwrap()).read_line(&mut line).unwrap();
    worker.kill().unwrap();
    worker.wait().unwrap();
    assert_eq!(line.matches("Not a directory (os error 20)").count(), 1, "{line}");
}

/// Removes a proxy from the environment of a command.
fn without_proxy(command: &mut Command) -> &mut Command {
    for name in ["NO_PROXY", "no_proxy", "http_proxy", "ALL_PROXY", "all_proxy", "REQUEST_METHOD"] {
        command.env_remove(name);
    }
    command
}

#[test]
fn proxy_of_the_environment_is_not_used_for_an_s3_server_on_this_machine() {
    let [proxy, server] = [(); 2].map(|()| std::net::TcpListener::bind("127.0.0.1:0").unwrap());
    [&proxy, &server].into_iter().for_each(|listener| listener.set_nonblocking(true).unwrap());
    let url = format!("http://{}", proxy.local_addr().unwrap());
    let port = server.local_addr().unwrap().port();
    for (endpoint, is_proxied) in [
        (format!("http://127.0.0.1:{port}"), false),
        (format!("http://localhost:{port}"), false),
        (format!("http://0.0.0.0:{port}"), false),
        ("http://s3.invalid".into(), true),
    ] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_coppice"));
        command.args(["blob-worker", "--store", "tx/tx=s3://bucket/tx", "--network", "http://127.0.0.1:1"]);
        without_proxy(&mut command).args(["--canister", "aaaaa-aa"]).env("HTTP_PROXY", &url);
        for (name, value) in
            [("ALLOW_HTTP", "true"), ("ACCESS_KEY_ID", "a"), ("SECRET_ACCESS_KEY", "b"), ("REGION", "x")]
        {
            command.env(format!("AWS_{name}"), value);
        }
        command.env("AWS_ENDPOINT_URL", &endpoint).stderr(Stdio::null()).stdout(Stdio::null());
        let mut child = command.spawn().unwrap();
        let is_asked = loop {
            if proxy.accept().is_ok() {
                break true;
            }
            if server.accept().is_ok() {
                break false;
            }
            assert!(child.try_wait().unwrap().is_none(), "{endpoint}");
            std::thread::sleep(std::time::Duration::from_millis(20));
        };
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(is_asked, is_proxied, "{endpoint}");
        while server.accept().is_ok() || proxy.accept().is_ok() {}
    }
}

#[test]
fn proxy_of_the_environment_is_not_used_for_this_machine() {
    let proxy = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    proxy.set_nonblocking(true).unwrap();
    let url = format!("http://{}", proxy.local_addr().unwrap());
    let asked = |network: &str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_coppice"));
        command.args(["get", "7", "--canister", "aaaaa-aa", "--network", network]);
        without_proxy(&mut command);
        let mut child = command.env("HTTP_PROXY", &url).stderr(Stdio::null()).stdout(Stdio::null()).spawn().unwrap();
        // The proxy hangs up, so the command ends.
        loop {
            if proxy.accept().is_ok() {
                child.kill().unwrap();
                child.wait().unwrap();
                return true;
            }
            if child.try_wait().unwrap().is_some() {
                return proxy.accept().is_ok();
            }
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
    };
    for here in [
        "http://127.0.0.1:1",
        "http://127.9.8.7:1",
        "http://localhost:1",
        "http://a.localhost:1",
        "http://[::1]:1",
        "http://0.0.0.0:1",
        "http://[::]:1",
    ] {
        assert!(!asked(here), "{here}");
    }
    // Another machine is reached by the proxy.
    assert!(asked("http://canister.invalid"));
}
