//! Costs of observation: counting a message, the sample that a message takes once a minute, and answers to HTTP requests.

use super::figure::Figure;
use super::subject::{Bench, BenchArg, Each, Subject};
use anyhow::{Result, anyhow, ensure};
use candid::{Decode, Encode, Principal};
use ic_coppice_interface::*;
use serde_bytes::ByteBuf;
use std::time::Duration;

/// Exporters of the scrape.
const EXPORTERS: u64 = 100;
/// Blocks that are kept.
const KEPT: u64 = 100;

fn request(url: &str, headers: usize, header_bytes: usize) -> Result<Vec<u8>> {
    let header = (format!("x-{}", "h".repeat(header_bytes)), "v".repeat(header_bytes));
    Ok(Encode!(&HttpRequest {
        method: "GET".into(),
        url: url.into(),
        headers: vec![header; headers],
        body: ByteBuf::new(),
        certificate_version: Some(2),
    })?)
}

/// Returns an exporter's name of `bytes` bytes: 20 is ordinary, 32 the most.
fn name(number: u64, bytes: usize) -> String {
    format!("exporter-{number:0digits$}", digits = bytes - "exporter-".len())
}

/// Measures the family.
pub fn observe(subject: &Subject, each: Each) -> Result<()> {
    let bench = Bench::start(subject, "observe: a month of samples, 100 exporters")?;
    for number in 0..EXPORTERS {
        let principal = Principal::self_authenticating(number.to_le_bytes());
        bench.done::<(), ExporterError>(
            "register_exporter",
            Encode!(&Exporter { name: name(number, 20), principal })?,
        )?;
    }
    let policy = PrunePolicyArg { retain_blocks: Some(50), target_bytes: Some(1 << 30), ..PrunePolicyArg::default() };
    bench.done::<PrunePolicyChange, PruneError>("set_prune_policy", Encode!(&policy)?)?;
    (0..KEPT).try_for_each(|_| bench.call::<()>("bench_append", (10u64,)))?;
    // A month of an idle canister.
    for _ in 0..31 * 144 {
        bench.host.advance_time(Duration::from_secs(600));
        bench.host.tick();
    }
    bench.host.take_executions();
    bench.rows(after_a_month)?.into_iter().try_for_each(each)
}

fn after_a_month(bench: &Bench) -> Result<Vec<Figure>> {
    let mut figures = Vec::new();
    let ask = |argument: Vec<u8>| {
        let answer = bench.host.query_call(bench.canister, Principal::anonymous(), "http_request", argument);
        let execution = bench.last()?;
        anyhow::Ok((answer, execution))
    };
    for op in ["append", "append sampled"] {
        if op == "append sampled" {
            bench.host.advance_time(Duration::from_secs(60));
        }
        bench.call::<()>("bench_append", (1u64,))?;
        let execution = bench.last()?;
        figures.push(bench.of_message("observe", op, 1, KEPT, &execution));
    }
    let arg = BenchArg { op: "meter.count".into(), size: 1, rounds: 1_000 };
    bench.call::<()>("bench_prepare", (&arg,))?;
    let instructions = bench.call::<u64>("bench_run", (&arg,))?;
    let limit = bench.limit("observe", "count", 1);
    figures.push(Figure { family: "observe", op: "count", size: 1, instructions, limit, ..Figure::default() });
    for (op, url) in
        [("scrape", "/metrics"), ("dashboard", "/"), ("health page", "/health"), ("no such path", "/nothing")]
    {
        let (answer, execution) = ask(request(url, 20, 30)?)?;
        let answer = Decode!(&answer?, HttpResponse)?;
        ensure!(answer.status_code != 404 || url == "/nothing", "{url}: {}", answer.status_code);
        figures.push(bench.of_message("observe", op, 0, EXPORTERS, &execution));
    }
    for number in 0..EXPORTERS {
        bench.done::<(), ExporterError>(
            "remove_exporter",
            Encode!(&RemoveExporter { name: name(number, 20), drop_guard: false })?,
        )?;
        let principal = Principal::self_authenticating(number.to_le_bytes());
        bench.done::<(), ExporterError>(
            "register_exporter",
            Encode!(&Exporter { name: name(number, 32), principal })?,
        )?;
    }
    let (answer, execution) = ask(request("/metrics", 20, 30)?)?;
    let answer = Decode!(&answer?, HttpResponse)?;
    ensure!(answer.status_code == 200, "/metrics: {}", answer.status_code);
    figures.push(bench.of_message("observe", "scrape, longest names", 0, EXPORTERS, &execution));
    // Requests that any client may send.
    let hostile = [
        ("a URL of 150 KB", request(&"/a?".repeat(50_000), 1, 1)?),
        ("a URL of 2 MB", request(&"/a?".repeat(650_000), 1, 1)?),
        ("1,000 headers", request("/health", 1_000, 40)?),
        ("10,000 headers", request("/health", 10_000, 40)?),
        ("100,000 empty headers", request("/health", 100_000, 0)?),
    ];
    for (op, argument) in hostile {
        let size = argument.len() as u32;
        let (answer, execution) = ask(argument)?;
        let refused = answer.as_ref().err().is_none_or(|error| error.reject_message.contains("cannot be decoded"));
        ensure!(refused, "{op}: {:?}", answer.map_err(|error| anyhow!("{error}")));
        figures.push(bench.of_message("observe", op, size, EXPORTERS, &execution));
    }
    Ok(figures)
}
