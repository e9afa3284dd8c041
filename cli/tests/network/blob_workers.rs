//! Blob workers, as processes: four on one canister, of which one is killed behind a deletion, while first answers are lost.

use crate::gateway::Made;
use crate::net::Net;
use axum::http::StatusCode;
use candid::{CandidType, Principal};
use coppice::blob_worker::place::LayoutName;
use coppice::blob_worker::store::Stores;
use coppice::blob_worker::work::Worker;
use coppice::client::Wait;
use coppice::http_server::Server;
use coppice_interface::*;
use ic_ed25519::{PrivateKey, PrivateKeyFormat};
use serde_bytes::ByteBuf;
use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Command, Output, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

const BLOBS: u64 = 10_000;
/// Where the chain is; a worker goes up to ten blocks below.
const HEIGHT: u32 = 1_010;
const ACQUIRE: &str = "acquire_blob_deletion_batch";
const COMPLETE: &str = "complete_blob_deletion_batch";
/// Longer than it takes on any machine: the clock is moved where one is to end.
const LEASE: Duration = Duration::from_secs(600);

fn key(blob: u64) -> [u8; 32] {
    let mut key = [0xAB; 32];
    key[..8].copy_from_slice(&blob.wrapping_mul(0x9E37_79B9_7F4A_7C15).to_be_bytes());
    key
}

/// A blob's name in the layout `hex`.
fn file(blob: u64) -> String {
    named(&key(blob))
}

fn named(key: &[u8]) -> String {
    key.iter().map(|byte| format!("{byte:02x}")).collect::<String>() + ".tx"
}

fn call<A: CandidType, R: CandidType + for<'a> serde::Deserialize<'a>>(net: &Net, method: &str, arg: A) -> R {
    let reply = net.host.update_call(net.canister, net.principal, method, candid::encode_one(arg).unwrap()).unwrap();
    candid::decode_one(&reply).unwrap()
}

fn status(net: &Net) -> BlobDeletionStatus {
    net.client().get_blob_deletion_status().wait().unwrap()
}

fn waiting(net: &Net) -> u64 {
    status(net).stores.iter().map(|store| store.waiting).sum()
}

fn metric(net: &Net, name: &str) -> f64 {
    let metrics = status(net).metrics;
    metrics.iter().find(|metric| metric.name.ends_with(name)).unwrap_or_else(|| panic!("{name}: {metrics:?}")).value
}

/// A canister whose clock is off, with a row for each blob.
fn world(blobs: u64, clock: SystemTime) -> Net {
    let net = Net::start();
    net.host.set_time(clock);
    net.gateway.follow_the_clock();
    let arg = candid::encode_args((HEIGHT, true)).unwrap();
    net.host.update_call(net.canister, net.principal, "notify_block", arg).unwrap();
    for blob in 0..blobs {
        let name = BlobName { blob_key: ByteBuf::from(key(blob)), file_type: "tx".into(), store_type: StoreType::Tx };
        // The last ones are due just up to the safety window.
        let delete_at_height = if blob % 2 == 0 { HEIGHT - 10 } else { 1 };
        let scheduled: Result<ScheduledBlobDeletion, BlobDeletionError> =
            call(&net, "schedule_blob_deletion", ScheduleBlobDeletion { name, delete_at_height });
        scheduled.unwrap();
    }
    net
}

/// Whom the key of a name makes.
fn principal(name: &str) -> Principal {
    let key = PrivateKey::generate_from_seed(name.as_bytes());
    Principal::self_authenticating(key.public_key().serialize_rfc8410_der())
}

/// An identity that may work there.
fn identity(net: &Net, name: &str) -> Principal {
    let key = PrivateKey::generate_from_seed(name.as_bytes());
    std::fs::write(net.path(name), key.serialize_pkcs8_pem(PrivateKeyFormat::Pkcs8v2)).unwrap();
    let principal = principal(name);
    let granted: Result<(), RoleError> = call(net, "grant_role", Grant { principal, role: Role::BlobWorker });
    granted.unwrap();
    principal
}

fn command(net: &Net, identity: &str, args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_coppice"));
    let (url, canister) = (net.gateway.url(), net.canister.to_string());
    command.args(["blob-worker"]).args(args).args(["--network", &url, "--canister", &canister]);
    command.args(["--identity", &net.path(identity), "--fetch-root-key", "--json"]);
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn json(output: &Output, code: i32) -> serde_json::Value {
    assert_eq!(output.status.code(), Some(code), "{}", said(output));
    serde_json::from_slice(&output.stdout).unwrap()
}

/// Lines of JSON, and nothing else.
fn events(said: &str) -> Vec<serde_json::Value> {
    let event =
        |line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{line:?} is no JSON, {error}: {said}"));
    said.lines().map(event).collect()
}

fn signal(child: &Child, which: &str) {
    assert!(Command::new("kill").args([which, &child.id().to_string()]).status().unwrap().success());
}

/// Whether a worker has come so far that a signal does not simply end it: there is the thread that waits for them.
fn listens(child: &Child) -> bool {
    let Ok(threads) = std::fs::read_dir(format!("/proc/{}/task", child.id())) else { return false };
    let mut names = threads.filter_map(|thread| std::fs::read_to_string(thread.ok()?.path().join("comm")).ok());
    names.any(|name| name.trim() == "signals")
}

fn wait_for(what: &str, mut is: impl FnMut() -> bool) {
    let started = Instant::now();
    while !is() {
        // A hang, where it takes that long.
        assert!(started.elapsed() < Duration::from_secs(600), "{what}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// A lease, as the gateway saw it.
#[derive(Clone, Debug)]
pub struct Held {
    pub holder: Principal,
    pub rows: Vec<BlobDeletion>,
    pub from: Instant,
    /// Until when: it was completed then, or ended with the clock.
    pub until: Instant,
    pub completed: bool,
}

/// All leases. Those that nobody completed ended when the clock was moved.
fn leases(made: &[Made], moved: Instant) -> Vec<Held> {
    let mut held: BTreeMap<Vec<u8>, Held> = BTreeMap::new();
    for call in made {
        let Some(reply) = &call.reply else { continue };
        if call.method == ACQUIRE {
            let given: Result<Option<BlobDeletionLease>, BlobDeletionError> = candid::decode_one(reply).unwrap();
            let Some(lease) = given.unwrap() else { continue };
            let (token, holder, from) = (lease.token.into_vec(), call.sender, call.at);
            held.entry(token).or_insert(Held { holder, rows: lease.rows, from, until: moved, completed: false });
        } else if call.method == COMPLETE {
            let arg: CompleteBlobDeletionBatch = candid::decode_one(&call.arg).unwrap();
            let answer: Result<CompletedBlobDeletions, BlobDeletionError> = candid::decode_one(reply).unwrap();
            let lease = held.get_mut(&arg.token.into_vec()).unwrap();
            assert!(answer.unwrap().skipped.is_empty() && lease.holder == call.sender);
            if !lease.completed {
                (lease.completed, lease.until) = (true, call.at);
            }
        }
    }
    held.into_values().collect()
}

/// No row is with two leases at a time.
fn none_overlap(leases: &[Held]) {
    let mut of: BTreeMap<u64, Vec<(Instant, Instant)>> = BTreeMap::new();
    for lease in leases {
        lease.rows.iter().for_each(|row| of.entry(row.id).or_default().push((lease.from, lease.until)));
    }
    assert_eq!(of.len() as u64, BLOBS);
    for (row, mut times) in of {
        times.sort();
        assert!(times.windows(2).all(|pair| pair[0].1 <= pair[1].0), "row {row} is with two at a time: {times:?}");
    }
}

/// Four workers, of which the first is killed when it has deleted what it leased, and cannot say so. Answers the leases.
fn four(
    net: &Net,
    identities: [&str; 4],
    log_format: &str,
    spawn: impl Fn(usize, &str, &[&str]) -> Child,
) -> (Vec<Held>, Vec<serde_json::Value>) {
    let options = [&OPTIONS[..], &["--log-format", log_format]].concat();
    let spawn = |at, name| spawn(at, name, &options);
    let principals: BTreeMap<&str, Principal> = identities
        .iter()
        .copied()
        .collect::<BTreeSet<_>>()
        .into_iter()
        .map(|name| (name, identity(net, name)))
        .collect();
    net.gateway.remember();
    net.gateway.lose_first_answers(&[ACQUIRE, COMPLETE]);
    let victim = principals[identities[0]];
    net.gateway.cut_off(victim, COMPLETE);
    let before = metric(net, "leases_acquired_total") as usize;
    let mut killed = spawn(0, identities[0]);
    wait_for("the first has leased something", || !status(net).leases.is_empty());
    let workers: Vec<Child> = (1..).zip(&identities[1..]).map(|(at, name)| spawn(at, name)).collect();
    // What the others have is complete; what it has is leased.
    wait_for("the others are done", || {
        let status = status(net);
        let sum = |of: fn(&StoreDeletions) -> u64| status.stores.iter().map(of).sum::<u64>();
        sum(|store| store.waiting) == 0 && sum(|store| store.leased) > 0 && status.leases.len() == 1
    });
    assert_eq!(status(net).leases[0].holder, victim);
    killed.kill().unwrap();
    killed.wait().unwrap();
    let moved = Instant::now();
    net.host.advance_time(LEASE + Duration::from_secs(1));
    net.host.tick();
    wait_for("the rest is done", || metric(net, "blob_deletion_pending") == 0.0 && status(net).leases.is_empty());
    // SIGTERM to one, SIGINT to the others.
    let reports = workers.into_iter().enumerate().map(|(at, worker)| {
        signal(&worker, if at == 0 { "-TERM" } else { "-INT" });
        let output = worker.wait_with_output().unwrap();
        let (said, report) = (said(&output), json(&output, 0));
        assert!(said.contains("trying again") && said.contains("once more ends at once"), "{said}");
        match log_format {
            "json" => assert!(!events(&said).is_empty()),
            _ => assert!(said.lines().all(|line| !line.starts_with('{')), "{said}"),
        }
        report
    });
    let reports: Vec<_> = reports.collect();
    let leases = leases(&net.gateway.made(), moved);
    none_overlap(&leases);
    assert_eq!(leases.iter().filter(|lease| !lease.completed).count(), 1, "the one that was killed");
    let acquired = metric(net, "leases_acquired_total") as usize - before;
    assert_eq!(acquired, leases.len(), "no lease was made that nobody heard of");
    let sum = |name: &str| reports.iter().map(|report| report[name].as_u64().unwrap()).sum::<u64>();
    assert_eq!((sum("deleted"), sum("failed"), sum("late")), (BLOBS, 0, 0), "{reports:?}");
    assert_eq!(sum("leases") as usize, leases.len() - 1);
    assert!(sum("retries") > 0 && net.gateway.lost() > 2 * leases.len() - 2, "first answers are lost");
    assert_eq!((metric(net, "processed_total"), metric(net, "errors_total")), (BLOBS as f64, 0.0));
    (leases, reports)
}

const OPTIONS: [&str; 8] = ["--batch", "250", "--lease", "600", "--poll", "1", "--max-wait", "1"];

#[test]
fn four_workers_delete_ten_thousand_files_though_one_is_killed_two_share_an_identity_and_answers_are_lost() {
    // The canister's clock is an hour ahead.
    let net = world(BLOBS, SystemTime::now() + Duration::from_secs(3_600));
    let dir = net.dir.path().join("blobs");
    std::fs::create_dir(&dir).unwrap();
    (0..BLOBS).for_each(|blob| std::fs::write(dir.join(file(blob)), "a blob").unwrap());
    std::fs::write(dir.join("not-a-blob"), "stays").unwrap();
    let store = format!("tx=file://{}", dir.display());
    identity(&net, "w0");

    // Before there is a marker, nobody touches it.
    let run = |args: &[&str]| command(&net, "w0", args).output().unwrap();
    let unmarked = run(&["--store", &store, "--until-empty", "--log-format", "json"]);
    assert_eq!(unmarked.status.code(), Some(3), "{}", said(&unmarked));
    assert!(said(&unmarked).contains("init") && waiting(&net) == BLOBS);
    let events = events(&said(&unmarked));
    assert_eq!(
        (&events.last().unwrap()["level"], &events.last().unwrap()["event"]),
        (&"error".into(), &"ended".into())
    );
    let marked = json(&run(&["init", "--store", &store]), 0);
    assert_eq!(marked["marked"].as_array().unwrap().len(), 1);
    assert_eq!(json(&run(&["init", "--store", &store]), 0)["had"].as_array().unwrap().len(), 1, "again");
    let other = run(&["--store", &format!("outputs=file://{}", dir.display()), "--once"]);
    assert_eq!((other.status.code(), waiting(&net)), (Some(3), BLOBS), "{}", said(&other));
    // Nothing is leased by one that only looks, and nobody works without the role.
    let dry = json(&run(&["--store", &store, "--dry-run", "--batch", "3"]), 0);
    assert_eq!((&dry["would_delete"], &dry["absent"], &dry["height"]), (&3.into(), &0.into(), &(HEIGHT - 10).into()));
    let key = PrivateKey::generate_from_seed(b"stranger").serialize_pkcs8_pem(PrivateKeyFormat::Pkcs8v2);
    std::fs::write(net.path("stranger"), key).unwrap();
    let stranger = command(&net, "stranger", &["--store", &store, "--once"]).output().unwrap();
    assert_eq!(stranger.status.code(), Some(5), "{}", said(&stranger));
    assert!(said(&stranger).contains("BlobWorker"));

    let (leases, reports) = four(&net, ["w0", "w1", "w2", "w2"], "json", |_, name, options| {
        command(&net, name, &[&["--store", &store][..], options].concat()).spawn().unwrap()
    });
    let left: Vec<_> = std::fs::read_dir(&dir).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(left.len(), 2, "the marker, and what is no blob: {left:?}");
    let killed = leases.iter().find(|lease| !lease.completed).unwrap().rows.len();
    let absent: u64 = reports.iter().map(|report| report["absent"].as_u64().unwrap()).sum();
    assert_eq!(absent as usize, killed, "what was killed had deleted was not there, and counts as done");
}

/// A worker on a network that is no canister's, with a store that is marked.
fn without_a_canister(url: &str, dir: &std::path::Path, args: &[&str]) -> Command {
    let canister = Principal::from_slice(&[0, 0, 0, 0, 0, 0, 0, 7, 1, 1]);
    let store = format!("tx=file://{}", dir.display());
    let stores = Stores::open(&[store.parse().unwrap()], LayoutName::Hex, Duration::from_secs(1)).unwrap();
    coppice::blob_worker::mark(&Worker::new(stores, 1).unwrap(), canister).unwrap();
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
        let mut child = without_a_canister(&url, dir.path(), &args).spawn().unwrap();
        let mut stderr = BufReader::new(child.stderr.take().unwrap());
        let mut said = String::new();
        while said.matches("trying again").count() < 2 {
            assert_ne!(stderr.read_line(&mut said).unwrap(), 0, "{args:?} has ended: {said}");
        }
        signal(&child, "-INT");
        let output = child.wait_with_output().unwrap();
        stderr.read_to_string(&mut said).unwrap();
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
fn let_hang(dir: &std::path::Path) {
    let marker = dir.join(coppice::blob_worker::marker::NAME);
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
    let began = Instant::now();
    wait_for("it listens to signals", || listens(&child));
    assert!(child.try_wait().unwrap().is_none(), "it waits for the store");
    let status = loop {
        if let Some(status) = child.try_wait().unwrap() {
            break status;
        }
        if began.elapsed() > Duration::from_secs(300) {
            child.kill().unwrap();
        }
        signal(&child, "-TERM");
        std::thread::sleep(Duration::from_millis(200));
    };
    assert_eq!(status.code(), Some(130));
}

#[test]
fn a_worker_whose_call_nobody_answers_ends_well_at_the_first_signal_though_its_directory_may_hang() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let dir = tempfile::tempdir().unwrap();
    let child = without_a_canister(&url, dir.path(), &["--json"]).spawn().unwrap();
    // It has asked, and is not answered.
    let _asked = listener.accept().unwrap();
    let began = Instant::now();
    signal(&child, "-TERM");
    let output = child.wait_with_output().unwrap();
    assert_eq!(json(&output, 0)["leases"], 0);
    assert!(began.elapsed() < Duration::from_secs(300), "{:?}", began.elapsed());
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
    let [store, folders] = ["", "?hashPrefix=2"].map(|query| format!("tx=file://{}{query}", dir.path().display()));
    let network = ["--network", "http://127.0.0.1:1", "--canister", "aaaaa-aa"];
    for args in [
        vec!["--store", &store],
        vec!["init", "--store", &store],
        [&["--store", &store, "--store", &store], &network[..]].concat(),
        [&["--store", &folders], &network[..]].concat(),
        vec!["--store", "tx=nothing"],
    ] {
        let output = Command::new(env!("CARGO_BIN_EXE_coppice")).arg("blob-worker").args(&args).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{args:?}: {}", said(&output));
    }
}

/// What `docs/blob-deletion.md` says, in billions of cycles a million blobs.
#[test]
fn a_million_blobs_cost_what_the_page_says() {
    const ROWS: u64 = 3_000;
    let net = world(ROWS, SystemTime::now());
    // What the chain's new block has timers do is done before: nothing is due for minutes then.
    net.host.advance_time(Duration::from_secs(60));
    (0..10).for_each(|_| net.host.tick());
    let dir = net.dir.path().join("blobs");
    std::fs::create_dir(&dir).unwrap();
    let store = format!("tx=file://{}", dir.display());
    identity(&net, "w0");
    json(&command(&net, "w0", &["init", "--store", &store]).output().unwrap(), 0);
    let cost = |batch: &str, once: &str| {
        let before = net.host.cycle_balance(net.canister);
        let report = json(&command(&net, "w0", &["--store", &store, "--batch", batch, once]).output().unwrap(), 0);
        let blobs = report["deleted"].as_u64().unwrap();
        (before - net.host.cycle_balance(net.canister)) / u128::from(blobs) / 1_000
    };
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/blob-deletion.md");
    let page = std::fs::read_to_string(page).unwrap();
    for (batch, once) in [("100", "--once"), ("1000", "--until-empty")] {
        let (found, row) = (cost(batch, once), format!("| {batch} | "));
        let said = page.lines().find_map(|line| line.strip_prefix(&row)).unwrap_or_else(|| panic!("{row}: {found}"));
        let said: u128 = said.split(' ').next().unwrap().parse().unwrap();
        assert!(
            found.abs_diff(said) * 20 <= said,
            "leases of {batch}: {found} G cycles a million blobs, and the page says {said}"
        );
    }
}

#[cfg(feature = "s3")]
#[test]
fn four_workers_empty_an_s3_bucket_though_one_request_in_ten_fails_and_one_is_killed() {
    use crate::s3::{BUCKET, Mood, Proxy, S3, python};
    let Some(python) = python() else { return };
    let objects: Vec<String> = (0..BLOBS).map(|blob| format!("a/prefix/{}", file(blob))).collect();
    let mut s3 = S3::start(&python, &objects);
    let proxy = Proxy::start(&s3.address);
    // The canister's clock is an hour behind.
    let net = world(BLOBS, SystemTime::now() - Duration::from_secs(3_600));
    let on_s3_at = |prefix: &str, access: &str, name: &str, args: &[&str]| {
        let store = format!("tx=s3://{BUCKET}/{prefix}");
        let mut command = command(&net, name, &[args, &["--store", &store]].concat());
        command.env("AWS_ACCESS_KEY_ID", access).env("AWS_SECRET_ACCESS_KEY", "secret").env("AWS_REGION", "us-east-1");
        command.env("AWS_ENDPOINT_URL", proxy.url()).env("AWS_ALLOW_HTTP", "true");
        command
    };
    let on_s3 = |access: &str, name: &str, args: &[&str]| on_s3_at("a/prefix", access, name, args);
    identity(&net, "operator");
    json(&on_s3("operator", "operator", &["init"]).output().unwrap(), 0);
    // A wrong prefix has no marker.
    let wrong = on_s3_at("a", "operator", "operator", &["--once"]).output().unwrap();
    assert_eq!(wrong.status.code(), Some(3), "{}", said(&wrong));
    // A store that allows nothing, and one that does not answer: nothing is lost, nothing counts against a blob.
    for mood in [Mood::ReadOnly, Mood::Hangs] {
        proxy.mood(mood);
        let tried = on_s3("operator", "operator", &["--once", "--lease", "30", "--batch", "10"]).output().unwrap();
        assert_eq!(json(&tried, 4)["left"], 10, "{mood:?}: {}", said(&tried));
        assert_eq!((waiting(&net), metric(&net, "errors_total")), (BLOBS, 0.0), "{mood:?}");
    }
    proxy.mood(Mood::OneInTenFails);
    let before = proxy.record().len();

    let names = ["w0", "w1", "w2", "w3"];
    let (leases, _) = four(&net, names, "text", |at, name, options| on_s3(names[at], name, options).spawn().unwrap());
    assert_eq!(s3.objects(), 1, "the marker");

    // The proxy is the witness.
    let record = proxy.record().split_off(before);
    let holders: BTreeMap<&str, Principal> = names.into_iter().map(|name| (name, principal(name))).collect();
    let failed = record.iter().filter(|asked| asked.failed).count();
    assert!(failed * 11 >= record.len() && failed * 9 <= record.len(), "{failed} of {}", record.len());
    let mut gone: BTreeMap<&String, BTreeSet<&str>> = BTreeMap::new();
    for asked in record.iter().filter(|asked| !asked.deletes.is_empty()) {
        let holder = holders[asked.by.as_str()];
        for object in &asked.deletes {
            let covered = leases.iter().any(|lease| {
                let has = || lease.rows.iter().any(|row| *object == format!("a/prefix/{}", named(&row.blob_key)));
                lease.holder == holder && lease.from <= asked.at.0 && asked.at.1 <= lease.until && has()
            });
            assert!(covered, "{object} is deleted by {} outside of a lease", asked.by);
            if asked.passed {
                gone.entry(object).or_default().insert(asked.by.as_str());
            }
        }
        if asked.failed {
            let again =
                record.iter().any(|later| later.at.0 >= asked.at.1 && !later.failed && later.deletes == asked.deletes);
            let later = || record.iter().filter(|later| later.at.0 >= asked.at.1 && !later.failed);
            let all: BTreeSet<&String> = later().flat_map(|later| &later.deletes).collect();
            assert!(again || asked.deletes.iter().all(|object| all.contains(object)), "what failed is done again");
        }
    }
    assert_eq!(gone.len() as u64, BLOBS, "every object was deleted, and by a request that the proxy saw");
    let killed = leases.iter().find(|lease| !lease.completed).unwrap();
    let twice = gone.values().filter(|by| by.len() > 1).count();
    assert_eq!(
        twice,
        killed.rows.len(),
        "by two workers only what the killed one had deleted, when its lease was over"
    );
}
