//! Stores that a worker does not touch: those of another store type, and buckets that keep what is deleted; and queries that hide rows.

use super::*;
use ic_coppice_cli::blob_worker::MARKER;
use std::path::Path;

fn init(net: &Net, stores: &[String]) -> Output {
    let stores = stores.iter().flat_map(|store| ["--store", store]);
    command(net, "worker", &[&["init"][..], &stores.collect::<Vec<_>>()].concat()).output().unwrap()
}

fn once(net: &Net, store: &str) -> Output {
    command(net, "worker", &["--once", "--store", store]).output().unwrap()
}

/// The blob is the only one of a live record; a row of the store type `temp` has its name.
#[test]
fn directory_belongs_to_one_store_type_whichever_command_claims_it() {
    let net = world(0, SystemTime::now());
    identity(&net, "worker");
    schedule(&net, 1, "tx", StoreType::Temp, 1);
    let folders = |name: &str| -> [String; 2] {
        let dir = net.dir.path().join(name);
        std::fs::create_dir_all(dir.join("below/far")).unwrap();
        ["", "/below/far"].map(|below| format!("{}{below}", dir.display()))
    };
    let of = |store_type: &str, dir: &str| format!("{store_type}=file://{dir}");
    let [same, _] = folders("same");
    let [above, below] = folders("nested");
    let [outer, inner] = folders("turned");
    for (tx, temp) in [(&same, &same), (&above, &below), (&inner, &outer)] {
        std::fs::write(Path::new(tx).join(file(1)), "the record's blob").unwrap();
        json(&init(&net, &[of("tx/tx", tx)]), 0);
        for other in ["temp/tx", "temp/*", "temp/TX"].map(|other| of(other, temp)) {
            let refused = init(&net, std::slice::from_ref(&other));
            assert_eq!(refused.status.code(), Some(3), "{other}: {}", stderr_of(&refused));
            assert!(stderr_of(&refused).contains("the same files as this store's temp/"), "{}", stderr_of(&refused));
            // In one command line it is refused as well.
            assert_eq!(init(&net, &[of("tx/tx", tx), other]).status.code(), Some(2));
        }
        // Both marked, as by commands that did not compare them: neither worker starts.
        let marker = Path::new(temp).join(MARKER);
        json(&init(&net, &[of("temp/dat", temp)]), 0);
        let marked = std::fs::read_to_string(&marker).unwrap().replace("temp/dat", "temp/tx");
        std::fs::write(&marker, marked).unwrap();
        for worker in [of("temp/tx", temp), of("tx/tx", tx)] {
            let output = once(&net, &worker);
            assert_eq!(json(&output, 3)["leases"], 0, "{worker}: {}", stderr_of(&output));
            assert!(stderr_of(&output).contains("the same files"), "{}", stderr_of(&output));
        }
        assert!(Path::new(tx).join(file(1)).exists());
    }
    let case = init(&net, &[of("tx/TX", &same)]);
    assert_eq!(case.status.code(), Some(3), "file types that differ only in case: {}", stderr_of(&case));
    assert_eq!((waiting(&net), metric(&net, "leases_acquired_total")), (1, 0.0));
}

#[test]
fn bucket_that_keeps_versions_needs_an_option() {
    use crate::s3::{BUCKET, S3, python};
    let Some(python) = python() else { return };
    let mut s3 = S3::start(&python, &(0..4).map(file).collect::<Vec<_>>());
    let net = world(4, SystemTime::now());
    identity(&net, "worker");
    let store = format!("tx/tx=s3://{BUCKET}");
    let run = |s3: &S3, args: &[&str]| s3.of(command(&net, "worker", args)).output().unwrap();
    let [init, work] = [&["init", "--store", &store][..], &["--until-empty", "--store", &store]];
    let refused = |output: &Output, versions: &str| {
        let stderr = stderr_of(output);
        assert!(output.status.code() == Some(3) && stderr.contains("keeps versions"), "{versions}: {stderr}");
        assert!(stderr.contains("--keep-versions"), "{stderr}");
    };
    // A bucket that has never had versions.
    json(&run(&s3, init), 0);
    assert_eq!(json(&run(&s3, work), 0)["deleted"], 4);
    assert_eq!((s3.objects(), s3.versions()), (1, 1), "the marker");
    (4..8).for_each(|blob| schedule(&net, blob, "tx", StoreType::Tx, 1));
    for status in ["Enabled", "Suspended"] {
        s3.versioning(status);
        (4..8).for_each(|blob| s3.put(&file(blob)));
        // The first of these writes the marker anew. S3 names the version `null` of an older marker, which this server does not.
        refused(&run(&s3, &["init", "--store", &store.replace("tx/tx", "tx/outputs")]), status);
        let (objects, versions) = (s3.objects(), s3.versions());
        refused(&run(&s3, work), status);
        refused(&run(&s3, init), status);
        refused(&run(&s3, &["--dry-run", "--store", &store]), status);
        assert_eq!((s3.objects(), s3.versions()), (objects, versions), "{status}");
        assert_eq!((waiting(&net), metric(&net, "leases_acquired_total")), (4, 1.0), "{status}");
    }
    s3.versioning("Enabled");
    let fresh = store.clone() + "/fresh";
    refused(&run(&s3, &["init", "--store", &fresh]), "a new marker");
    refused(&run(&s3, &["--once", "--store", &fresh]), "a new marker");
    let before = s3.versions();
    json(&run(&s3, &[init, &["--keep-versions"]].concat()), 0);
    assert_eq!(json(&run(&s3, &[work, &["--keep-versions"]].concat()), 0)["deleted"], 4);
    assert_eq!(s3.versions(), before, "every deleted blob is kept");
}

#[test]
fn worker_finds_rows_that_a_replica_hides_for_ever() {
    let net = world(0, SystemTime::now());
    identity(&net, "worker");
    let dir = net.dir.path().join("blobs");
    std::fs::create_dir(&dir).unwrap();
    let store = format!("tx/tx=file://{}", dir.display());
    json(&init(&net, std::slice::from_ref(&store)), 0);
    (0..5).for_each(|blob| {
        std::fs::write(dir.join(file(blob)), "a blob").unwrap();
        schedule(&net, blob, "tx", StoreType::Tx, 1);
    });
    let none = candid::encode_one(Vec::<BlobDeletion>::new()).unwrap();
    net.gateway.lie(Some(Box::new(
        move |method, answer| {
            if method == "get_pending_blob_deletions" { none.clone() } else { answer }
        },
    )));
    let args = ["--store", &store, "--poll-secs", "1", "--ask-secs", "4"];
    let began = Instant::now();
    let mut worker = Running::start(command(&net, "worker", &args));
    worker.wait_for_line("asking by update call", 1);
    assert!(began.elapsed() >= Duration::from_secs(4), "{}", worker.log);
    worker.wait_for_line("a replica is behind, or lies", 1);
    wait_for("the rows are done", || waiting(&net) == 0 && metric(&net, "blob_deletion_pending") == 0.0);
    worker.terminate();
    let output = worker.end();
    assert_eq!(json(&output, 0)["deleted"], 5, "{}", stderr_of(&output));
    assert_eq!(std::fs::read_dir(&dir).unwrap().count(), 1, "the marker");
}
