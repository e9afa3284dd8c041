//! The cost of blob workers.

use super::*;

/// Compares with `docs/operations/blobs.md`, in billions of cycles per million blobs.
#[test]
fn cost_of_a_million_blobs_equals_the_docs() {
    const ROWS: u64 = 3_000;
    let net = world(ROWS, SystemTime::now());
    // Lets the timers that the chain's new block armed fire first; after that nothing is due for minutes.
    net.host.advance_time(Duration::from_secs(60));
    (0..10).for_each(|_| net.host.tick());
    let dir = net.dir.path().join("blobs");
    std::fs::create_dir(&dir).unwrap();
    let store = format!("tx/tx=file://{}", dir.display());
    identity(&net, "w0");
    json(&command(&net, "w0", &["init", "--store", &store]).output().unwrap(), 0);
    let cost = |batch: &str, once: &str| {
        let before = net.host.cycle_balance(net.canister);
        let report = json(&command(&net, "w0", &["--store", &store, "--batch", batch, once]).output().unwrap(), 0);
        let blobs = report["deleted"].as_u64().unwrap();
        (before - net.host.cycle_balance(net.canister)) / u128::from(blobs) / 1_000
    };
    let found = [("100", "--once", 175), ("1000", "--until-empty", 45)].map(|(batch, once, most)| {
        let found = cost(batch, once);
        assert!(found <= most, "leases of {batch}: {found} G cycles a million blobs, but at most {most} are expected");
        (batch, found)
    });
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/operations/blobs.md");
    let page = std::fs::read_to_string(page).unwrap();
    for (batch, cost) in found {
        let row = format!("| {batch} | ");
        let cell = page.lines().find_map(|line| line.strip_prefix(&row)).unwrap_or_else(|| panic!("{found:?}"));
        let documented: u128 = cell.split(' ').next().unwrap().parse().unwrap();
        assert!(
            cost.abs_diff(documented) * 20 <= documented,
            "{found:?} G cycles a million blobs, but the page has {documented}"
        );
    }
}
