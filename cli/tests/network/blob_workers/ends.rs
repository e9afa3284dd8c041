//! Exit codes of workers: each code in the docs, by a process, and the state of its blobs afterwards. All parts share one canister that
//! loses every first answer to a worker; each part has its own store type.

use super::*;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

/// The length of leases that must not end by themselves: longer than the test takes on any machine.
const LEASE: Duration = Duration::from_secs(3_600);

/// The exit codes that occurred.
type Codes = BTreeSet<i32>;

/// Blobs in a directory, and their rows.
struct Part<'a> {
    net: &'a Net,
    store: StoreType,
    name: &'static str,
    dir: PathBuf,
}

impl<'a> Part<'a> {
    /// Creates a marked directory with a blob for each height.
    fn new(net: &'a Net, store: StoreType, name: &'static str, heights: &[u32]) -> Self {
        let part = Self { net, store, name, dir: net.dir.path().join(name) };
        std::fs::create_dir(&part.dir).unwrap();
        for (blob, height) in (0..).zip(heights) {
            std::fs::write(part.dir.join(file(blob)), "a blob").unwrap();
            schedule(net, blob, "tx", store, *height);
        }
        json(&command(net, "worker", &["init", "--store", &part.option()]).output().unwrap(), 0);
        part
    }

    fn option(&self) -> String {
        format!("{}/*=file://{}", self.name, self.dir.display())
    }

    fn command_of(&self, identity: &str, args: &[&str]) -> Command {
        self.command_by(Command::new(env!("CARGO_BIN_EXE_coppice")), identity, args)
    }

    fn command_by(&self, program: Command, identity: &str, args: &[&str]) -> Command {
        let own = ["--store", &self.option(), "--max-wait-secs", "1"];
        command_by(program, self.net, identity, &[&own, args].concat())
    }

    fn run(&self, args: &[&str]) -> Output {
        self.command_of("worker", args).output().unwrap()
    }

    /// Returns the existing blobs.
    fn files(&self) -> BTreeSet<String> {
        let names =
            std::fs::read_dir(&self.dir).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
        names.filter(|name| name.ends_with(".tx")).collect()
    }

    fn rows(&self) -> Vec<ListedBlobDeletion> {
        let arg = ListBlobDeletions {
            cursor: None,
            limit: 1_000,
            min_height: None,
            max_height: None,
            store_type: Some(self.store),
            state: None,
        };
        let list: BlobDeletionList = query(self.net, "list_blob_deletions", arg);
        list.rows
    }

    /// Asserts that exactly this many rows exist, that all wait, and that none has a failed attempt.
    fn all_wait(&self, rows: usize) {
        let found = self.rows();
        assert_eq!(found.len(), rows);
        let waits =
            |listed: &ListedBlobDeletion| listed.state == BlobDeletionState::Waiting && listed.row.retry_count == 0;
        assert!(found.iter().all(waits), "{found:?}");
        let worker = principal("worker");
        assert!(status(self.net).leases.iter().all(|lease| lease.holder != worker), "the worker holds no lease");
    }
}

/// Checks a worker's exit code, and returns its report.
fn ended(output: &Output, code: i32, codes: &mut Codes) -> serde_json::Value {
    codes.insert(code);
    json(output, code)
}

/// Does the same for a worker without a report, and checks the reason on stderr.
fn ended_for(output: &Output, code: i32, why: &str, codes: &mut Codes) {
    assert_eq!(output.status.code(), Some(code), "{}", stderr_of(output));
    assert!(stderr_of(output).contains(why) && output.stdout.is_empty(), "{}", stderr_of(output));
    codes.insert(code);
}

#[test]
fn every_documented_exit_code_occurs_and_no_blob_is_lost() {
    let net = world(0, SystemTime::now());
    for name in ["worker", "cut-off"] {
        identity(&net, name);
    }
    net.gateway.lose_first_answers(&[ACQUIRE, COMPLETE]);
    let mut codes = Codes::new();
    // This worker retries for half a minute, while the other parts run.
    let (left, mut unreported) = worker_that_cannot_report(&net);
    unreported.terminate();
    errors_at_the_start(&net, &mut codes);
    let above = rows_up_to_the_persister(&net, &mut codes);
    report_without_a_reader(&above, &mut codes);
    temporarily_read_only_directory(&net, &mut codes);
    undeletable_blob(&net, &mut codes);
    signal_during_a_lease(&net, &mut codes);
    let leased = signal_during_an_acquire(&net, &mut codes);

    let unreported = unreported.end();
    let report = ended(&unreported, 6, &mut codes);
    assert_eq!((&report["leases"], &report["deleted"]), (&1.into(), &0.into()), "{}", stderr_of(&unreported));
    assert!(
        stderr_of(&unreported).contains("deletions of 5 blobs could not be reported"),
        "{}",
        stderr_of(&unreported)
    );
    // The rows of the two ended workers are leased again after their leases are over, and not before.
    for (part, blobs, absent) in [(&left, 5, 5), (&leased, 6, 0)] {
        assert_eq!(ended(&part.run(&["--until-empty"]), 0, &mut codes)["leases"], 0);
        assert!(
            part.rows().iter().all(|listed| listed.state == BlobDeletionState::Leased) && part.rows().len() == blobs
        );
        assert_eq!(part.files().len(), blobs - absent);
    }
    net.host.advance_time(LEASE + Duration::from_secs(1));
    net.host.tick();
    for (part, blobs, absent) in [(&left, 5, 5), (&leased, 6, 0)] {
        part.all_wait(blobs);
        let report = ended(&part.run(&["--until-empty"]), 0, &mut codes);
        assert_eq!((&report["deleted"], &report["absent"]), (&blobs.into(), &absent.into()), "{report}");
        assert!(part.rows().is_empty() && part.files().is_empty());
    }
    assert!(status(&net).leases.is_empty());

    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/operations/blobs.md");
    let page = std::fs::read_to_string(page).unwrap();
    let rows = page.lines().skip_while(|line| !line.starts_with("| exit code |")).skip(2);
    let rows = rows.take_while(|line| line.starts_with('|'));
    let of_page: Codes = rows.map(|row| row.split('|').nth(1).unwrap().trim().parse().unwrap()).collect();
    assert_eq!(codes, of_page, "the codes in the docs");
}

/// A worker that has deleted all blobs of its lease, and whose completion does not arrive.
fn worker_that_cannot_report(net: &Net) -> (Part<'_>, Running) {
    let part = Part::new(net, StoreType::Temp, "temp", &[1; 5]);
    net.gateway.cut_off(principal("cut-off"), COMPLETE);
    let mut worker = Running::start(part.command_of("cut-off", &["--lease-secs", "3600"]));
    worker.wait_for_line("completing", 1);
    assert!(part.files().is_empty() && part.rows().len() == 5);
    (part, worker)
}

/// Codes 1, 2, 3 and 5.
fn errors_at_the_start(net: &Net, codes: &mut Codes) {
    let dir = net.dir.path().join("unmarked");
    std::fs::create_dir(&dir).unwrap();
    let [store, nowhere] = [dir, net.dir.path().join("nowhere")].map(|dir| format!("tx/tx=file://{}", dir.display()));
    let run = |identity: &str, args: &[&str]| command(net, identity, args).output().unwrap();
    ended_for(&run("worker", &["--store", &nowhere, "--once"]), 1, "nowhere", codes);
    ended_for(&run("nobody", &["--store", &store, "--once"]), 1, "nobody", codes);
    ended_for(&run("worker", &["--store", &store, "--store", &store]), 2, "given twice", codes);
    // The report is printed however the worker ends.
    let unmarked = run("worker", &["--store", &store, "--once"]);
    assert_eq!(ended(&unmarked, 3, codes)["leases"], 0);
    assert!(stderr_of(&unmarked).contains("has no marker"), "{}", stderr_of(&unmarked));
    let mut elsewhere = Command::new(env!("CARGO_BIN_EXE_coppice"));
    elsewhere.args(["blob-worker", "init", "--store", &store, "--network", &net.gateway.url(), "--fetch-root-key"]);
    let unknown = Principal::from_slice(&[0, 0, 0, 0, 0, 0, 0, 7, 1, 1]).to_string();
    let no_canister = elsewhere.args(["--canister", &unknown]).output().unwrap();
    ended_for(&no_canister, 5, "the canister refuses", codes);
}

/// Rows above the persister's height wait until the persister has reached them.
fn rows_up_to_the_persister<'a>(net: &'a Net, codes: &mut Codes) -> Part<'a> {
    let heights = [1, 490, 491, 790, 791, HEIGHT - 10, HEIGHT - 9];
    let part = Part::new(net, StoreType::Tx, "tx", &heights);
    for (persisted, due, goes) in [(500_u32, 490, 2), (800, 790, 2), (HEIGHT, HEIGHT - 10, 2)] {
        let noted: Result<UtxoNotifyOutcome, UtxoPrunerError> = call(net, "utxo_notify_block_persisted", persisted);
        noted.unwrap();
        let report = ended(&part.run(&["--until-empty"]), 0, codes);
        assert_eq!((&report["height"], &report["deleted"]), (&due.into(), &goes.into()), "{persisted}: {report}");
        let above = || (0..).zip(heights).filter(|(_, height)| *height > due);
        assert_eq!(part.files(), above().map(|(blob, _)| file(blob)).collect(), "{persisted}");
        let rows: Vec<u32> = part.rows().iter().map(|listed| listed.row.delete_at_height).collect();
        assert_eq!(rows, above().map(|(_, height)| height).collect::<Vec<_>>(), "{persisted}");
    }
    assert_eq!(part.rows().len(), 1);
    part
}

fn report_without_a_reader(part: &Part<'_>, codes: &mut Codes) {
    let mut child = part.command_of("worker", &["--once"]).spawn().unwrap();
    drop(child.stdout.take());
    // A closed pipe ends quietly.
    ended_for(&child.wait_with_output().unwrap(), 0, "", codes);
}

/// Returns a command that obeys a directory's mode: root may write everywhere, unless it drops that capability.
fn bound_by_modes(read_only: &std::path::Path) -> Command {
    let coppice = env!("CARGO_BIN_EXE_coppice");
    let probe = read_only.join("probe");
    if std::fs::write(&probe, "").is_err() {
        return Command::new(coppice);
    }
    std::fs::remove_file(&probe).unwrap();
    let mut command = Command::new("setpriv");
    command.args(["--bounding-set=-dac_override,-dac_read_search", coppice]);
    command
}

/// A read-only directory: its blobs wait without a failed attempt, and are deleted when it is writable again.
fn temporarily_read_only_directory(net: &Net, codes: &mut Codes) {
    let part = Part::new(net, StoreType::Subtree, "subtree", &[1; 30]);
    let mode = |mode| std::fs::set_permissions(&part.dir, PermissionsExt::from_mode(mode)).unwrap();
    mode(0o555);
    let command = |args: &[&str]| part.command_by(bound_by_modes(&part.dir), "worker", args);
    let failures = metric(net, "errors_total");
    let once = command(&["--once", "--batch", "20"]).output().unwrap_or_else(|error| panic!("setpriv: {error}"));
    let report = ended(&once, 4, codes);
    assert_eq!(
        (&report["left"], &report["failed"], &report["undone"]),
        (&20.into(), &0.into(), &20.into()),
        "{report}"
    );
    assert!(stderr_of(&once).contains("so it does not count"), "{}", stderr_of(&once));
    part.all_wait(30);
    let emptied = command(&["--until-empty"]).output().unwrap();
    assert_eq!(ended(&emptied, 4, codes)["undone"], 30, "the worker does not wait for the store");
    let mut waits = Running::start(command(&["--poll-secs", "1"]));
    waits.wait_for_line("so it does not count", 31);
    assert_eq!((part.files().len(), part.rows().len()), (30, 30));
    assert_eq!(metric(net, "errors_total"), failures);
    mode(0o755);
    wait_for("the blobs are deleted", || part.files().is_empty() && part.rows().is_empty());
    waits.terminate();
    let output = waits.end();
    let report = ended(&output, 0, codes);
    assert_eq!(
        (&report["deleted"], &report["absent"], &report["failed"]),
        (&30.into(), &0.into(), &0.into()),
        "{report}"
    );
    assert!(report["left"].as_u64().unwrap() >= 60 && part.files().is_empty() && part.rows().is_empty(), "{report}");
    assert_eq!(metric(net, "errors_total"), failures);
}

/// An undeletable blob is named and given up, and deleted after an operator has fixed it.
fn undeletable_blob(net: &Net, codes: &mut Codes) {
    let part = Part::new(net, StoreType::Block, "block", &[1; 3]);
    let wrong = part.dir.join(file(1));
    std::fs::remove_file(&wrong).unwrap();
    std::fs::create_dir(&wrong).unwrap();
    let output = part.run(&["--until-empty", "--max-retries", "1"]);
    let report = ended(&output, 4, codes);
    let found = ["deleted", "failed", "dead", "left", "undone"].map(|name| report[name].as_u64().unwrap());
    assert_eq!(found, [2, 1, 1, 0, 1], "{report}");
    assert!(stderr_of(&output).contains(&file(1)[..64]), "{}", stderr_of(&output));
    let rows = part.rows();
    assert_eq!((rows.len(), rows[0].state), (1, BlobDeletionState::Dead));
    std::fs::remove_dir(&wrong).unwrap();
    std::fs::write(&wrong, "a blob").unwrap();
    let which = RetryBlobDeletions::Ids(vec![rows[0].row.id]);
    let again: Result<RetriedBlobDeletions, BlobDeletionError> = call(net, "retry_blob_deletions", which);
    again.unwrap();
    assert_eq!(ended(&part.run(&["--until-empty"]), 0, codes)["deleted"], 1);
    assert!(part.rows().is_empty() && part.files().is_empty());
}

/// A worker that is stopped during its deletions: running requests are completed and count, the other rows wait again at once.
fn signal_during_a_lease(net: &Net, codes: &mut Codes) {
    use super::bucket::{Bucket, NAME};
    let part = Part::new(net, StoreType::BlockPersister, "block-persister", &[1; 5]);
    let objects: BTreeSet<String> = (0..8).map(|blob| file(blob).replace(".tx", ".object")).collect();
    (0..8).for_each(|blob| schedule(net, blob, "object", part.store, 1));
    let bucket = Bucket::start(objects.iter().cloned());
    let store = format!("block-persister/object=s3://{NAME}");
    json(&bucket.of(command(net, "worker", &["init", "--store", &store])).output().unwrap(), 0);
    // One request at a time: the files, then the objects.
    let command =
        |args: &[&str]| bucket.of(part.command_of("worker", &[&["--store", &store, "--parallel", "1"], args].concat()));
    let [failures, completed] = ["errors_total", "leases_completed_total"].map(|name| metric(net, name));
    // The bucket refuses the first deletion, and holds back the third one that succeeds.
    bucket.fail();
    let mut worker = Running::start(command(&[]));
    wait_for("a deletion has failed", || bucket.failed() > 0);
    bucket.hold_from(3);
    wait_for("the third object is being deleted", || bucket.is_holding() && bucket.deleted().len() == 2);
    assert_eq!((part.files().len(), part.rows().len()), (0, 13));
    assert!(part.rows().iter().all(|listed| listed.state == BlobDeletionState::Leased));
    let failed = bucket.failed() as u64;
    worker.terminate();
    bucket.delete();
    let report = ended(&worker.end(), 0, codes);
    let found = ["leases", "deleted", "left", "failed", "late", "absent"].map(|name| report[name].as_u64().unwrap());
    assert_eq!(found, [1, 8, 5, 0, 0, 0], "{report}");
    // The retries are those of the acquire and the completion, whose first answers were lost; the failed requests are the refused
    // deletions.
    assert_eq!((&report["retries"], &report["failed_requests"]), (&2.into(), &failed.into()), "{report}");
    assert_eq!(metric(net, "leases_completed_total"), completed + 1.0);
    part.all_wait(5);
    // A store that hangs: the fate of the requested blob is unknown, and the others are not requested.
    bucket.hold_from(4);
    let hangs = command(&["--once", "--lease-secs", "30"]).output().unwrap();
    let report = ended(&hangs, 4, codes);
    assert_eq!((&report["left"], &report["unknown"]), (&4.into(), &1.into()), "{}", stderr_of(&hangs));
    // The requested row stays leased until the lease expires, because the bucket may still delete the blob.
    let leased =
        |rows: &[ListedBlobDeletion]| rows.iter().filter(|listed| listed.state == BlobDeletionState::Leased).count();
    assert_eq!(leased(&part.rows()), 1);
    bucket.fail();
    net.host.advance_time(Duration::from_secs(31));
    net.host.tick();
    part.all_wait(5);
    assert_eq!(metric(net, "errors_total"), failures);
    bucket.delete();
    // The next worker deletes the rest.
    let report = ended(&command(&["--until-empty"]).output().unwrap(), 0, codes);
    assert_eq!(report["deleted"], 5, "{report}");
    assert!(part.rows().is_empty());
    let deleted = bucket.deleted();
    assert_eq!((deleted.len(), deleted.into_iter().collect::<BTreeSet<_>>()), (8, objects), "each object once");
    assert_eq!(bucket.objects(), [ic_coppice_cli::blob_worker::MARKER]);
}

/// The canister leases rows, and its answer comes after the worker was stopped: the rows go back. A second signal ends the worker first,
/// and the rows wait for the lease's end.
fn signal_during_an_acquire<'a>(net: &'a Net, codes: &mut Codes) -> Part<'a> {
    let part = Part::new(net, StoreType::PeerRegistry, "peer-registry", &[1; 6]);
    let begin = || {
        net.gateway.hold(principal("worker"), ACQUIRE);
        let worker = Running::start(part.command_of("worker", &["--lease-secs", "3600"]));
        wait_for("the lease is granted", || net.gateway.is_holding());
        assert!(part.rows().iter().all(|listed| listed.state == BlobDeletionState::Leased));
        worker
    };
    let mut worker = begin();
    worker.terminate();
    net.gateway.let_go();
    let report = ended(&worker.end(), 0, codes);
    let found = ["leases", "deleted", "left"].map(|name| report[name].as_u64().unwrap());
    assert_eq!(found, [1, 0, 6], "{report}");
    part.all_wait(6);
    assert_eq!(part.files().len(), 6);
    let mut worker = begin();
    worker.terminate();
    signal(&worker.child, "-TERM");
    ended_for(&worker.end(), 130, "", codes);
    net.gateway.let_go();
    assert_eq!((part.rows().len(), part.files().len()), (6, 6));
    part
}
