//! The deletion queue through another language's Candid library, which reads the .did.

use super::*;
use std::io::Write;
use std::path::Path;

/// Returns the directory that `scripts/setup --with-bindgen` installs. Returns `None` and prints a note if it or Node is missing.
fn installed() -> Option<std::path::PathBuf> {
    let target = Path::new(env!("CARGO_MANIFEST_DIR")).join("../target/bindgen");
    let has_node = Command::new("node").arg("--version").output().is_ok_and(|output| output.status.success());
    if has_node && target.join("node_modules/.bin/icp-bindgen").exists() {
        return Some(target);
    }
    let note =
        "not run: the deletion queue by JavaScript; node or the packages of scripts/setup --with-bindgen are missing\n";
    std::io::stderr().write_all(note.as_bytes()).unwrap();
    None
}

#[test]
fn javascript_client_deletes_in_three_ways() {
    let Some(bindgen) = installed() else { return };
    let net = world(20, SystemTime::now());
    let seed = [0x5A; 32];
    let key = PrivateKey::deserialize_raw_32(&seed);
    let principal = Principal::self_authenticating(key.public_key().serialize_rfc8410_der());
    let granted: Result<(), RoleError> = call(&net, "grant_role", Grant { principal, role: Role::BlobWorker });
    granted.unwrap();

    // Below the installation, where node finds the library.
    let dir = tempfile::tempdir_in(&bindgen).unwrap();
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/..");
    let made = Command::new(bindgen.join("node_modules/.bin/icp-bindgen"))
        .args(["--did-file", &format!("{root}/candid/coppice.did"), "--out-dir"])
        .arg(dir.path().join("out"))
        .output()
        .unwrap();
    assert!(made.status.success(), "{}", stderr_of(&made));
    std::fs::copy(format!("{root}/tests/typescript/deletions.mjs"), dir.path().join("deletions.mjs")).unwrap();
    let seed: String = seed.iter().map(|byte| format!("{byte:02x}")).collect();
    let output = Command::new("node")
        .arg(dir.path().join("deletions.mjs"))
        .args([net.gateway.url(), net.canister.to_string(), seed, (HEIGHT - 10).to_string()])
        .output()
        .unwrap();
    let found = json(&output, 0);

    // Blobs with odd numbers have height 1, so their rows come first: 2, 4, 6 and so on.
    let individual = serde_json::json!({
        "removed": true, "again": false, "above": false, "third": true,
        "retry": {"should_remove": true, "retry_count": 1},
    });
    assert_eq!(found["individual"], individual, "{found}");
    let batch = &found["batch"];
    assert_eq!((&batch["removed"], &batch["retries_incremented"]), (&4.into(), &1.into()), "{found}");
    assert_eq!((&batch["already"], &batch["skipped"]), (&serde_json::json!([2]), &serde_json::json!([])), "{found}");
    let leased = serde_json::json!([8, 18, 20, 1, 3, 5]);
    assert_eq!((&found["leased"], &found["same"], &found["extended"]), (&leased, &leased, &true.into()), "{found}");
    let answers = found["answers"].as_array().unwrap();
    assert_eq!((&answers[0], &answers[0]["removed"]), (&answers[1], &5.into()), "{found}");
    assert_eq!((&found["unknown"], &found["over"]), (&8.into(), &"Completed".into()), "{found}");
    // Eleven of the 20 rows are gone, and one is given up.
    let store = status(&net).stores.into_iter().find(|store| store.store_type == StoreType::Tx).unwrap();
    assert_eq!((store.waiting, store.leased, store.dead), (7, 1, 1));
    net.host.advance_time(Duration::from_secs(601));
    // The safety timer is due as well, and each duty has a firing of its own.
    (0..5).for_each(|_| net.host.tick());
    assert_eq!(waiting(&net), 8, "the row of unknown fate waits again when the lease expires");
}
