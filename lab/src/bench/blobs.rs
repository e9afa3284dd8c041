//! Blob store: operations on blobs of three sizes, and an upgrade, among any number of live blobs.

use super::figure::{Figure, Row};
use super::subject::{Bench, Each, Subject};
use super::utxo;
use anyhow::{Context, Result, ensure};
use ic_coppice_host::{Checkpoint, Kind};

const NUMBERS: [u64; 3] = [10, 10_000, 1_000_000];
const SIZES: [u32; 3] = [4 << 10, 64 << 10, 1 << 20];
const BLOB_OPS: [&str; 6] = ["store", "read", "allocate_fresh", "allocate_reuse", "release", "split_join"];

/// Measures the family.
pub fn blobs(subject: &Subject, each: Each) -> Result<()> {
    for n in NUMBERS {
        let bench = Bench::start(subject, &format!("blob: {n} live blobs"))?;
        bench.call::<()>("bench_fill_blobs", (n,))?;
        let from = bench.host.checkpoint();
        for size in SIZES {
            // A blob of 4 MiB and less splits a block; the smallest one splits it six times.
            for op in BLOB_OPS.into_iter().filter(|op| *op != "split_join" || size == SIZES[1]) {
                each(blob(&bench, &from, op, size, n)?)?;
            }
        }
        bench.host.restore(&from);
        utxo::begin_job(&bench)?;
        bench.rows(|bench| Ok(vec![open(bench, n)?]))?.into_iter().try_for_each(&mut *each)?;
    }
    Ok(())
}

fn blob(bench: &Bench, from: &Checkpoint, op: &'static str, size: u32, n: u64) -> Result<Row> {
    let rounds = match (op, size) {
        ("store" | "read", 1_048_576) => 50,
        ("store" | "read", _) => 200,
        _ => 1_000,
    };
    let [(today, _), (tomorrow, _)] = bench.measure(from, ("blob", "blob", op), size, rounds, n)?;
    Row::of(today, &tomorrow)
}

/// Measures an upgrade while a job of the pruner runs: the old module's `pre_upgrade`, and from the new module's first instruction to its
/// timers.
fn open(bench: &Bench, n: u64) -> Result<Figure> {
    bench.host.take_executions();
    let nothing = candid::encode_args(())?;
    bench
        .host
        .upgrade_canister(bench.canister, bench.wasm.clone(), nothing, Some(bench.operator))
        .context("upgrade")?;
    let runs = bench.host.take_executions();
    let hooks: Vec<_> = runs.iter().filter(|run| matches!(run.kind, Kind::PreUpgrade | Kind::PostUpgrade)).collect();
    ensure!(hooks.len() == 2, "{} hooks of the upgrade were counted, not 2", hooks.len());
    Ok(bench.of_items("blob", "open", 64 << 10, n, 1, hooks))
}
