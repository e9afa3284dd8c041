//! `coppice bench`: what an operation costs, in instructions and in 4 KiB pages of stable memory touched.
//!
//! It runs the canister's own code inside the bench wasm (`COPPICE_FEATURES=bench scripts/build-wasm`) on the embedded
//! host, whose counts are those of the platform. Each figure is an average over one message in which nothing else
//! happens; everything is prepared in messages before it, from the same starting point. Counts have no noise, so a figure
//! above its limit is a regression and ends the run with an error.

mod messages;
mod utxo;

use anyhow::{Context, Result, bail};
use candid::{CandidType, Decode, Encode, Principal};
use comfy_table::{CellAlignment, Table};
use coppice_host::{Checkpoint, Host, Kind};
use serde::Serialize;
use std::path::PathBuf;

/// Options of `coppice bench`.
#[derive(Clone, Debug, clap::Args)]
pub struct BenchArgs {
    /// Only this family: blob, index, chain or utxo
    #[arg(long, value_name = "NAME", value_parser = ["blob", "index", "chain", "utxo"])]
    pub family: Option<String>,
    /// The bench wasm, raw or gzipped
    #[arg(long, value_name = "PATH", env = "COPPICE_BENCH_WASM", default_value = "target/coppice-bench.wasm")]
    pub wasm: PathBuf,
    /// One JSON object a line instead of a table
    #[arg(long)]
    pub json: bool,
}

/// The argument of the bench endpoints.
#[derive(Clone, Debug, CandidType)]
struct BenchArg {
    op: String,
    size: u32,
    rounds: u64,
}

/// One line of the result.
#[derive(Clone, Debug, Serialize)]
pub struct Figure {
    /// Which structure.
    pub family: &'static str,
    /// Which operation.
    pub op: &'static str,
    /// Bytes of the blob, of the key or of the block's body; of a UTXO record, outputs.
    pub size: u32,
    /// Other live blobs, entries, kept blocks, or records.
    pub n: u64,
    /// What the structure is compared with, where this is that.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub baseline: Option<&'static str>,
    /// Instructions of one operation.
    pub instructions: u64,
    /// Distinct 4 KiB pages of stable memory read, for each operation.
    pub pages_read: f64,
    /// Distinct 4 KiB pages of stable memory written, for each operation.
    pub pages_written: f64,
    /// The most instructions that it may take.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<u64>,
}

const NUMBERS: [u64; 3] = [10, 10_000, 1_000_000];
const SIZES: [u32; 3] = [4 << 10, 64 << 10, 1 << 20];
const BLOB_OPS: [&str; 5] = ["store", "read", "allocate_fresh", "allocate_reuse", "release"];
const INDEX_OPS: [&str; 3] = ["insert", "get", "remove"];
const KEY_OPS: [&str; 3] = ["key_insert", "key_find", "key_remove"];
/// Ids or keys of a block, so operations of one measurement of an index.
const IDS: u64 = 10_000;

/// The most instructions that an operation may take.
fn limit(family: &str, op: &str, size: u32) -> Option<u64> {
    Some(match (family, op, size) {
        ("blob", "store", 4_096) => 8_500,
        ("blob", "store", 65_536) => 85_000,
        ("blob", "store", 1_048_576) => 1_310_000,
        ("blob", "read", 1_048_576) => 1_052_000,
        ("blob", "allocate_fresh", _) => 2_500,
        ("blob", "allocate_reuse" | "release", _) => 3_000,
        ("blob", "open", _) => 1_200_000,
        ("index", "insert", _) => 6_000,
        ("index", "get", _) => 3_000,
        ("index", "remove" | "key_remove", _) => 4_000,
        ("index", "key_insert" | "key_find", _) => 6_000,
        ("chain", "idle firing", _) => 100_000,
        _ => return None,
    })
}

struct Bench {
    host: Host,
    canister: Principal,
    operator: Principal,
    wasm: Vec<u8>,
}

impl Bench {
    fn start(wasm: Vec<u8>) -> Result<Self> {
        let host = Host::new();
        let operator = Principal::self_authenticating(b"bench");
        let canister = host.create_canister_with_settings(Some(operator), None);
        host.add_cycles(canister, 10_000_000_000_000_000);
        let arg = Encode!(&None::<coppice_canister::api::CanisterArg>)?;
        host.try_install_canister(canister, wasm.clone(), arg, Some(operator))
            .context("cannot install the bench wasm")?;
        Ok(Self { host, canister, operator, wasm })
    }

    fn call<T: CandidType + serde::de::DeserializeOwned>(&self, method: &str, arg: &impl CandidType) -> Result<T> {
        let reply =
            self.host.update_call(self.canister, self.operator, method, Encode!(arg)?).context(method.to_string())?;
        Decode!(&reply, Result<T, String>)?.map_err(|why| anyhow::anyhow!("{method}: {why}"))
    }

    /// Calls an endpoint that fills something until it says that it is done.
    fn fill(&self, method: &str, n: u64) -> Result<()> {
        while !self.call::<bool>(method, &n)? {}
        Ok(())
    }

    /// Measures an operation from a starting point.
    fn measure(&self, from: &Checkpoint, what: &'static str, op: &'static str, size: u32, n: u64) -> Result<Figure> {
        self.host.restore(from);
        let rounds = match (what, op, size) {
            ("index", ..) => IDS,
            ("btree", ..) => 1_000,
            (_, "store" | "read", 1_048_576) => 50,
            (_, "store" | "read", _) => 200,
            _ => 1_000,
        };
        let arg = BenchArg { op: format!("{what}.{op}"), size, rounds };
        self.call::<()>("bench_prepare", &arg)?;
        let instructions = self.call::<u64>("bench_run", &arg)?;
        let run = self.host.last_execution().context("the host counted nothing")?;
        if run.kind != Kind::Update || run.method != "bench_run" {
            bail!("the last execution is {} and not the measurement", run.method);
        }
        let (family, baseline) = if what == "btree" { ("index", Some("btree")) } else { (what, None) };
        Ok(Figure {
            family: if family == "index" { "index" } else { "blob" },
            op,
            size,
            n,
            baseline,
            instructions,
            pages_read: run.stable_pages_read as f64 / rounds as f64,
            pages_written: run.stable_pages_written as f64 / rounds as f64,
            limit: if baseline.is_none() { limit(family, op, size) } else { None },
        })
    }

    /// What an upgrade takes while a job of the pruner runs: everything from the new module's first instruction to its timers.
    fn open(&self, from: &Checkpoint, n: u64) -> Result<Figure> {
        self.host.restore(from);
        utxo::begin_job(self)?;
        self.host.take_executions();
        let nothing = candid::encode_args(())?;
        self.host
            .upgrade_canister(self.canister, self.wasm.clone(), nothing, Some(self.operator))
            .context("upgrade")?;
        let runs = self.host.take_executions();
        let run = runs.iter().find(|run| run.kind == Kind::PostUpgrade).context("no post_upgrade was counted")?;
        Ok(Figure {
            family: "blob",
            op: "open",
            size: 64 << 10,
            n,
            baseline: None,
            instructions: run.instructions,
            pages_read: run.stable_pages_read as f64,
            pages_written: run.stable_pages_written as f64,
            limit: limit("blob", "open", 64 << 10),
        })
    }
}

fn blobs(wasm: &[u8], each: &mut impl FnMut(Figure)) -> Result<()> {
    for n in NUMBERS {
        eprintln!("blob: {n} live blobs");
        let bench = Bench::start(wasm.to_vec())?;
        bench.call::<()>("bench_fill_blobs", &n)?;
        let from = bench.host.checkpoint();
        for size in SIZES {
            for op in BLOB_OPS {
                each(bench.measure(&from, "blob", op, size, n)?);
            }
        }
        each(bench.open(&from, n)?);
    }
    Ok(())
}

fn index(wasm: &[u8], each: &mut impl FnMut(Figure)) -> Result<()> {
    for n in [10_000, 100_000, 1_000_000] {
        let all = [
            ("index", "bench_fill_index", INDEX_OPS),
            ("index", "bench_fill_keys", KEY_OPS),
            ("btree", "bench_fill_btree", INDEX_OPS),
        ];
        for (what, fill, ops) in all {
            eprintln!("{what}: {n} entries ({fill})");
            let bench = Bench::start(wasm.to_vec())?;
            bench.fill(fill, n)?;
            let from = bench.host.checkpoint();
            for op in ops {
                each(bench.measure(&from, what, op, 32, n)?);
            }
        }
    }
    Ok(())
}

/// Measures, prints, and ends with an error where a figure is above its limit.
///
/// # Errors
/// When the bench wasm cannot be read or run, an operation fails, or a figure is above its limit.
pub fn command(args: &BenchArgs) -> Result<()> {
    let wasm = std::fs::read(&args.wasm)
        .with_context(|| format!("cannot read {}; scripts/bench builds it", args.wasm.display()))?;
    let mut figures = Vec::new();
    let mut each = |figure: Figure| {
        if args.json {
            match serde_json::to_string(&figure) {
                Ok(line) => println!("{line}"),
                Err(error) => eprintln!("{error}"),
            }
        }
        figures.push(figure);
    };
    let wanted = |family: &str| args.family.as_deref().is_none_or(|only| only == family);
    if wanted("blob") {
        blobs(&wasm, &mut each)?;
    }
    if wanted("index") {
        index(&wasm, &mut each)?;
    }
    if wanted("chain") {
        messages::chain(&wasm, &mut each)?;
    }
    if wanted("utxo") {
        utxo::utxo(&wasm, &mut each)?;
    }
    if !args.json {
        println!("{}", table(&figures));
    }
    let over: Vec<String> = figures
        .iter()
        .filter(|figure| figure.limit.is_some_and(|limit| figure.instructions > limit))
        .map(|f| format!("{} {} of {} bytes at {}: {} instructions", f.family, f.op, f.size, f.n, f.instructions))
        .collect();
    if !over.is_empty() {
        bail!("above the limit: {}", over.join("; "));
    }
    Ok(())
}

fn table(figures: &[Figure]) -> Table {
    let mut table = Table::new();
    table.load_style(comfy_table::presets::UTF8_FULL_CONDENSED);
    table.set_header(["family", "op", "size", "n", "instructions", "limit", "pages read", "pages written"]);
    for figure in figures {
        let name =
            figure.baseline.map_or(figure.family.to_string(), |baseline| format!("{} ({baseline})", figure.family));
        table.add_row([
            name,
            figure.op.to_string(),
            figure.size.to_string(),
            figure.n.to_string(),
            figure.instructions.to_string(),
            figure.limit.map_or(String::new(), |limit| limit.to_string()),
            format!("{:.2}", figure.pages_read),
            format!("{:.2}", figure.pages_written),
        ]);
    }
    for column in 2..8 {
        if let Some(column) = table.column_mut(column) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    table
}
