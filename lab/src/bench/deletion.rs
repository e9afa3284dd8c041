//! The queue of external blobs, per row: whole messages with a thousand rows, including Candid and heap pages. Rows have rising or random
//! heights, among many others of which a quarter is leased. Further cases are rows of UTXO records with two parents, and leases that expire
//! all at once.

use super::figure::Figure;
use super::subject::{Bench, Each, Subject};
use super::utxo;
use anyhow::{Context, Result, bail, ensure};
use candid::Encode;
use ic_coppice_host::{Execution, Kind};
use ic_coppice_interface::*;
use serde_bytes::ByteBuf;
use std::time::Duration;

/// Rows in the queue besides the measured ones.
const NUMBERS: [u64; 2] = [1_000, 1_000_000];
/// Rows of a lease.
const ROWS: u64 = 1_000;
/// 75 MiB of pages of stable memory.
const MOST_PAGES: u64 = (75 << 20) / 4_096;
const MOST_INSTRUCTIONS: u64 = 2_500_000_000;

/// Measures the family.
pub fn deletion(subject: &Subject, each: Each) -> Result<()> {
    let mut small: Vec<Figure> = Vec::new();
    for random in [false, true] {
        for n in NUMBERS {
            let order = if random { "random" } else { "rising" };
            let bench = Bench::start(subject, &format!("deletion: {n} rows by {order} height"))?;
            for role in [Role::BlobWorker, Role::Producer] {
                let grant = Grant { principal: bench.operator, role };
                bench.done::<(), RoleError>("grant_role", Encode!(&grant)?)?;
            }
            bench.fill("bench_fill_deletions", (n + ROWS, random))?;
            bench.fill("bench_lease_deletions", (n / 4,))?;
            let from = bench.host.checkpoint();
            let mut rows = bench.rows(|bench| leased(bench, n, random))?;
            if !random {
                bench.host.restore(&from);
                rows.extend(bench.rows(|bench| without_lease(bench, n))?);
                bench.host.restore(&from);
                utxo::make_external(&bench, ROWS)?;
                rows.extend(bench.rows(|bench| records(bench, n))?);
            }
            if n == NUMBERS[1] {
                bench.host.restore(&from);
                rows.extend(bench.rows(|bench| Ok(vec![expire(bench, n, random)?]))?);
            }
            for mut row in rows {
                // A row costs at most 30 % more than among few rows.
                let figure = &mut row.today;
                if let Some(same) = small.iter().find(|small| small.op == figure.op)
                    && ["lease", "lease with records"].contains(&figure.op)
                {
                    let flat = same.counted() * 13 / 10;
                    figure.limit = Some(figure.limit.map_or(flat, |limit| limit.min(flat)));
                }
                small.push(figure.clone());
                each(row)?;
            }
        }
    }
    Ok(())
}

/// Returns the cost per row of these messages.
fn per_row(bench: &Bench, op: &'static str, n: u64, rows: u64, messages: &[&Execution]) -> Figure {
    let pages_limit = ["lease", "lease with records"].contains(&op).then_some(1.5);
    let messages = messages.iter().copied();
    Figure { pages_limit, ..bench.of_items("deletion", op, rows as u32, n, rows, messages) }
}

/// Leases a thousand rows and completes them. Returns both executions.
fn lease(bench: &Bench) -> Result<(Execution, Execution)> {
    let arg = AcquireBlobDeletions {
        height: u32::MAX,
        limit: ROWS as u32,
        lock_timeout_secs: 0,
        store_types: vec![],
        request: Some(ByteBuf::from(*b"bench")),
        ..Default::default()
    };
    let (lease, acquired) =
        bench.done::<Option<BlobDeletionLease>, BlobDeletionError>("acquire_blob_deletion_batch", Encode!(&arg)?)?;
    let lease = lease.context("no row waits")?;
    ensure!(lease.rows.len() as u64 == ROWS, "{} rows", lease.rows.len());
    let arg = CompleteBlobDeletionBatch {
        token: lease.token,
        completed_ids: lease.rows.iter().map(|row| row.id).collect(),
        failed_ids: vec![],
        max_retries: 3,
        ..Default::default()
    };
    let (done, completed) =
        bench.done::<CompletedBlobDeletions, BlobDeletionError>("complete_blob_deletion_batch", Encode!(&arg)?)?;
    ensure!(done.removed == ROWS && done.dead == 0, "{done:?}");
    Ok((acquired, completed))
}

fn leased(bench: &Bench, n: u64, random: bool) -> Result<Vec<Figure>> {
    let (acquired, completed) = lease(bench)?;
    let [acquire, complete, both] = match random {
        false => ["acquire", "complete", "lease"],
        true => ["acquire random", "complete random", "lease random"],
    };
    Ok(vec![
        per_row(bench, acquire, n, ROWS, &[&acquired]),
        per_row(bench, complete, n, ROWS, &[&completed]),
        per_row(bench, both, n, ROWS, &[&acquired, &completed]),
    ])
}

/// The other two ways to complete rows, and the operations before them.
fn without_lease(bench: &Bench, n: u64) -> Result<Vec<Figure>> {
    // Each operation twice: the first call writes the answer's type table, which is cached.
    let schedule = |key: u8| {
        let name = BlobName { blob_key: ByteBuf::from([key; 32]), file_type: "tx".into(), store_type: StoreType::Tx };
        let arg = Encode!(&ScheduleBlobDeletion { name, delete_at_height: u32::MAX })?;
        bench.done::<ScheduledBlobDeletion, BlobDeletionError>("schedule_blob_deletion", arg)
    };
    schedule(7)?;
    let (_, scheduled) = schedule(8)?;
    let arg = Encode!(&u32::MAX, &(ROWS as u32))?;
    let (rows, pending) = bench.query::<Vec<BlobDeletion>>("get_pending_blob_deletions", arg)?;
    let [first, second, rest @ ..] = &rows[..] else { bail!("no row waits") };
    let increment = |row: &BlobDeletion| {
        let arg = Encode!(&row.id, &9u32)?;
        bench.done::<BlobDeletionRetry, BlobDeletionError>("increment_blob_deletion_retry", arg)
    };
    let remove = |row: &BlobDeletion| {
        let (gone, execution) =
            bench.done::<bool, BlobDeletionError>("remove_blob_deletion", Encode!(&row.id, &None::<u32>)?)?;
        ensure!(gone, "the row was not removed");
        Ok(execution)
    };
    increment(first)?;
    let (_, incremented) = increment(second)?;
    remove(first)?;
    let removed = remove(second)?;
    let completed_ids = rest.iter().map(|row| row.id).collect();
    let arg = CompleteBlobDeletions { completed_ids, failed_ids: vec![], max_retries: 3, ..Default::default() };
    let (done, completed) =
        bench.done::<CompletedBlobDeletions, BlobDeletionError>("complete_blob_deletions", Encode!(&arg)?)?;
    ensure!(done.removed == rest.len() as u64, "{done:?}");
    let rest = rest.len() as u64;
    Ok(vec![
        per_row(bench, "schedule", n, 1, &[&scheduled]),
        per_row(bench, "pending", n, ROWS, &[&pending]),
        per_row(bench, "increment", n, 1, &[&incremented]),
        per_row(bench, "remove", n, 1, &[&removed]),
        per_row(bench, "complete without lease", n, rest, &[&completed]),
    ])
}

fn records(bench: &Bench, n: u64) -> Result<Vec<Figure>> {
    let (acquired, completed) = lease(bench)?;
    let (UtxoPrunerStatus { totals, .. }, _) = bench.query("utxo_get_pruner_status", Encode!()?)?;
    ensure!((totals.records_deleted, totals.parents_updated) == (ROWS, 2 * ROWS), "{totals:?}");
    Ok(vec![per_row(bench, "lease with records", n, ROWS, &[&acquired, &completed])])
}

/// A quarter of all rows expire at once.
fn expire(bench: &Bench, n: u64, random: bool) -> Result<Figure> {
    bench.host.take_executions();
    bench.host.advance_time(Duration::from_secs(43_300));
    (0..20).for_each(|_| bench.host.tick());
    let all = bench.host.take_executions();
    for message in &all {
        if message.instructions > MOST_INSTRUCTIONS || message.stable_pages_written > MOST_PAGES {
            bail!("a message that expires leases exceeds its limit: {message:?}");
        }
    }
    let (status, _) = bench.query::<BlobDeletionStatus>("get_blob_deletion_status", Encode!()?)?;
    let waiting: u64 = status.stores.iter().map(|store| store.waiting).sum();
    ensure!(status.leases.is_empty() && waiting == n + ROWS, "{waiting} rows wait, {} leases", status.leases.len());
    let timers: Vec<&Execution> = all.iter().filter(|message| message.kind != Kind::Query).collect();
    Ok(per_row(bench, if random { "expire random" } else { "expire" }, n, n / 4, &timers))
}
