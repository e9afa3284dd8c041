//! The cost of blob workers.

use super::*;

/// Compares with `docs/operations/blobs.md`, in billions of cycles per million blobs. A slow disk lets a worker extend its leases, so
/// only the calls that each lease needs count.
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
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/operations/blobs.md");
    let page = std::fs::read_to_string(page).unwrap();
    for (batch, once, leases) in [(100, "--once", 1), (1_000, "--until-empty", 3)] {
        net.gateway.remember();
        let args = ["--store", &store, "--batch", &batch.to_string(), once];
        let blobs = json(&command(&net, "w0", &args).output().unwrap(), 0)["deleted"].as_u64().unwrap();
        let calls = net.gateway.made();
        let of = |method: &str| calls.iter().filter(|call| call.method == method).map(|call| call.cycles).collect();
        let (acquired, completed): (Vec<u128>, Vec<u128>) = (of(ACQUIRE), of(COMPLETE));
        assert_eq!((blobs.div_ceil(batch), completed.len()), (leases, leases as usize), "leases of {batch}");
        let cycles = acquired.iter().chain(&completed).sum::<u128>();
        let row = format!("| {batch} | {} |", (cycles / u128::from(blobs) + 500) / 1_000);
        assert!(page.contains(&row), "{row}: {acquired:?} and {completed:?} for {blobs} blobs");
    }
}
