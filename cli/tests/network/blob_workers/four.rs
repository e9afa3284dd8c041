//! Four workers on one canister, with lost answers; one worker is killed after a deletion.

use super::*;
use crate::gateway::Made;
use std::time::Instant;

const BLOBS: u64 = 4_000;
/// Longer than the test takes on any machine: the test advances the clock to end a lease.
const LEASE: Duration = Duration::from_secs(600);

/// A lease, as the gateway saw it.
#[derive(Clone, Debug)]
pub struct Held {
    pub holder: Principal,
    pub rows: Vec<BlobDeletion>,
    pub from: Instant,
    /// The time of its completion, or of its end by the clock.
    pub until: Instant,
    pub completed: bool,
}

/// Returns all leases. Leases without a completion ended when the clock was advanced.
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

/// Asserts that no row is in two leases at a time.
fn none_overlap(leases: &[Held]) {
    let mut of: BTreeMap<u64, Vec<(Instant, Instant)>> = BTreeMap::new();
    for lease in leases {
        lease.rows.iter().for_each(|row| of.entry(row.id).or_default().push((lease.from, lease.until)));
    }
    assert_eq!(of.len() as u64, BLOBS);
    for (row, mut times) in of {
        times.sort();
        assert!(times.windows(2).all(|pair| pair[0].1 <= pair[1].0), "row {row} is in two leases at a time: {times:?}");
    }
}

/// Runs four workers, and kills the first after it has deleted the blobs of its lease and cannot report. Returns the leases and reports.
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
    // The rows of the other workers are complete. The rows of the first worker are leased: rows whose blobs it deleted, and rows that it
    // acquired meanwhile.
    wait_for("the others are done", || {
        let status = status(net);
        let sum = |of: fn(&StoreDeletions) -> u64| status.stores.iter().map(of).sum::<u64>();
        sum(|store| store.waiting) == 0 && sum(|store| store.leased) > 0 && status.leases.len() == 2
    });
    assert!(status(net).leases.iter().all(|lease| lease.holder == victim));
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
        let (stderr, report) = (stderr_of(&output), json(&output, 0));
        assert!(stderr.contains("trying again") && stderr.contains("a second signal ends at once"), "{stderr}");
        match log_format {
            "json" => assert!(!events(&stderr).is_empty()),
            _ => assert!(stderr.lines().all(|line| !line.starts_with('{')), "{stderr}"),
        }
        report
    });
    let reports: Vec<_> = reports.collect();
    let made = net.gateway.made();
    let leases = leases(&made, moved);
    none_overlap(&leases);
    assert_eq!(leases.iter().filter(|lease| !lease.completed).count(), 2, "the leases of the killed worker");
    let acquired = metric(net, "leases_acquired_total") as usize - before;
    assert_eq!(acquired, leases.len(), "every granted lease arrived");
    let sum = |name: &str| reports.iter().map(|report| report[name].as_u64().unwrap()).sum::<u64>();
    assert_eq!((sum("deleted"), sum("failed"), sum("late")), (BLOBS, 0, 0), "{reports:?}");
    assert_eq!(sum("leases") as usize, leases.len() - 2);
    assert!(net.gateway.lost() > 2 * leases.len() - 4, "first answers are lost");
    // The surviving workers repeated exactly the calls whose answers were lost. The killed worker's attempts are unknown.
    let asked: Vec<_> = made
        .iter()
        .filter(|call| [ACQUIRE, COMPLETE].contains(&call.method.as_str()) && call.sender != victim)
        .map(|call| (call.sender, &call.method, &call.arg))
        .collect();
    let lost = asked.iter().collect::<BTreeSet<_>>().len();
    // A worker that finds nothing repeats the same request later, which does not count as a retry.
    let retries = sum("retries") as usize;
    assert!(retries >= lost && retries <= asked.len() - lost, "{retries} retries of {lost} in {}", asked.len());
    assert_eq!((metric(net, "processed_total"), metric(net, "errors_total")), (BLOBS as f64, 0.0));
    (leases, reports)
}

const OPTIONS: [&str; 8] = ["--batch", "100", "--lease-secs", "600", "--poll-secs", "1", "--max-wait-secs", "1"];

#[test]
fn four_workers_delete_4000_files_with_a_kill_a_shared_identity_and_lost_answers() {
    // The canister's clock is an hour ahead.
    let net = world(BLOBS, SystemTime::now() + Duration::from_secs(3_600));
    let dir = net.dir.path().join("blobs");
    std::fs::create_dir(&dir).unwrap();
    (0..BLOBS).for_each(|blob| std::fs::write(dir.join(file(blob)), "a blob").unwrap());
    std::fs::write(dir.join("not-a-blob"), "stays").unwrap();
    let store = format!("tx/tx=file://{}", dir.display());
    identity(&net, "w0");

    // Without a marker no worker touches the directory.
    let run = |args: &[&str]| command(&net, "w0", args).output().unwrap();
    let unmarked = run(&["--store", &store, "--until-empty", "--log-format", "json"]);
    assert_eq!(unmarked.status.code(), Some(3), "{}", stderr_of(&unmarked));
    assert!(stderr_of(&unmarked).contains("init") && waiting(&net) == BLOBS);
    let events = events(&stderr_of(&unmarked));
    assert_eq!(
        (&events.last().unwrap()["level"], &events.last().unwrap()["event"]),
        (&"error".into(), &"ended".into())
    );
    let marked = json(&run(&["init", "--store", &store]), 0);
    assert_eq!(marked["marked"].as_array().unwrap().len(), 1);
    assert_eq!(json(&run(&["init", "--store", &store]), 0)["had"].as_array().unwrap().len(), 1, "again");
    let other = run(&["--store", &format!("tx/outputs=file://{}", dir.display()), "--once"]);
    assert_eq!((other.status.code(), waiting(&net)), (Some(3), BLOBS), "{}", stderr_of(&other));
    // A dry run leases nothing, and a worker needs the role.
    let dry = json(&run(&["--store", &store, "--dry-run", "--batch", "3"]), 0);
    assert_eq!((&dry["would_delete"], &dry["absent"], &dry["height"]), (&3.into(), &0.into(), &(HEIGHT - 10).into()));
    let key = PrivateKey::generate_from_seed(b"stranger").serialize_pkcs8_pem(PrivateKeyFormat::Pkcs8v2);
    std::fs::write(net.path("stranger"), key).unwrap();
    let stranger = command(&net, "stranger", &["--store", &store, "--once", "--max-wait-secs", "1"]).output().unwrap();
    assert_eq!(stranger.status.code(), Some(5), "{}", stderr_of(&stranger));
    assert!(stderr_of(&stranger).contains("BlobWorker"));

    let (leases, reports) = four(&net, ["w0", "w1", "w2", "w2"], "json", |_, name, options| {
        command(&net, name, &[&["--store", &store][..], options].concat()).spawn().unwrap()
    });
    let left: Vec<_> = std::fs::read_dir(&dir).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(left.len(), 2, "the marker, and the file that is not a blob: {left:?}");
    let killed = leases.iter().find(|lease| !lease.completed).unwrap().rows.len();
    let absent: u64 = reports.iter().map(|report| report["absent"].as_u64().unwrap()).sum();
    assert_eq!(absent as usize, killed, "blobs that the killed worker deleted are absent, and count as deleted");
}

#[test]
fn four_workers_empty_an_s3_bucket_with_failing_requests_and_a_kill() {
    use crate::s3::{BUCKET, Mood, Proxy, S3, python};
    let Some(python) = python() else { return };
    let objects: Vec<String> = (0..BLOBS).map(|blob| format!("a/prefix/{}", file(blob))).collect();
    let mut s3 = S3::start(&python, &objects);
    let proxy = Proxy::start(&s3.address);
    // The canister's clock is an hour behind.
    let net = world(BLOBS, SystemTime::now() - Duration::from_secs(3_600));
    let on_s3_at = |prefix: &str, access: &str, name: &str, args: &[&str]| {
        let store = format!("tx/tx=s3://{BUCKET}/{prefix}");
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
    assert_eq!(wrong.status.code(), Some(3), "{}", stderr_of(&wrong));
    // A store that denies all deletions, and one that hangs: nothing is lost, and nothing counts against a blob.
    for mood in [Mood::ReadOnly, Mood::Hangs] {
        proxy.mood(mood);
        let tried = on_s3("operator", "operator", &["--once", "--lease-secs", "30", "--batch", "10"]).output().unwrap();
        let fate = if mood == Mood::Hangs { "unknown" } else { "left" };
        assert_eq!(json(&tried, 4)[fate], 10, "{mood:?}: {}", stderr_of(&tried));
        // Rows whose deletion was requested but not answered stay leased until the lease expires.
        let leased = status(&net).stores.iter().map(|store| store.leased).sum::<u64>();
        assert_eq!(leased, if mood == Mood::Hangs { 10 } else { 0 }, "{mood:?}");
        net.host.advance_time(Duration::from_secs(31));
        net.host.tick();
        assert_eq!((waiting(&net), metric(&net, "errors_total")), (BLOBS, 0.0), "{mood:?}");
    }
    proxy.mood(Mood::OneInTenFails);
    let before = proxy.record().len();

    let names = ["w0", "w1", "w2", "w3"];
    let (leases, reports) =
        four(&net, names, "text", |at, name, options| on_s3(names[at], name, options).spawn().unwrap());
    assert_eq!(s3.objects(), 1, "the marker");

    // The proxy's record is checked against the leases.
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
            assert!(again || asked.deletes.iter().all(|object| all.contains(object)), "failed requests are repeated");
        }
    }
    assert_eq!(gone.len() as u64, BLOBS, "every object was deleted by a recorded request");
    // Each surviving worker counted the failures that the proxy made for it. Requests that took too long were given up before their answer.
    let longest = LEASE / 8;
    for (name, report) in names[1..].iter().zip(&reports) {
        let mine = || record.iter().filter(|asked| asked.by == *name);
        let failed = mine().filter(|asked| asked.failed).count() as u64;
        let given_up = mine().filter(|asked| asked.at.1 - asked.at.0 >= longest).count() as u64;
        let counted = report["failed_requests"].as_u64().unwrap();
        assert!(counted >= failed && counted <= failed + given_up, "{name}: {counted}, {failed}, {given_up}");
    }
    let killed = leases.iter().find(|lease| !lease.completed).unwrap();
    let twice = gone.values().filter(|by| by.len() > 1).count();
    assert_eq!(twice, killed.rows.len(), "only the killed worker's blobs were deleted by two workers");
}
