//! `coppice bench`: what an operation costs, in instructions and in 4 KiB pages of stable memory touched; and what a whole
//! message costs, for which the platform charges 1,000 instructions more for each 4 KiB page of the heap that it changed.
//!
//! It runs the canister's own code inside the bench wasm (`COPPICE_FEATURES=bench scripts/build-wasm`) on the embedded
//! host, whose counts are those of the platform. Each figure is an average over one message in which nothing else
//! happens; everything is prepared in messages before it, from the same starting point. Counts have no noise, so a figure
//! above its limit is a regression and ends the run with an error.

mod messages;
mod sweep;
mod utxo;

use anyhow::{Context, Result, bail};
use candid::{CandidType, Decode, Encode, Principal};
use comfy_table::{CellAlignment, Table};
use coppice_host::{Checkpoint, Execution, Host, Kind};
use serde::Serialize;
use std::path::PathBuf;

/// Options of `coppice bench`.
#[derive(Clone, Debug, clap::Args)]
pub struct BenchArgs {
    /// Only this family: blob, index, sweep, chain or utxo
    #[arg(long, value_name = "NAME", value_parser = ["blob", "index", "sweep", "chain", "utxo"])]
    pub family: Option<String>,
    /// The bench wasm, raw or gzipped
    #[arg(long, value_name = "PATH", env = "COPPICE_BENCH_WASM", default_value = "target/coppice-bench.wasm")]
    pub wasm: PathBuf,
    /// Compile the bench wasm anew, and keep nothing of it for the next time
    #[arg(long)]
    pub no_cache: bool,
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
    /// Instructions of one operation; of a whole message, those inside it.
    pub instructions: u64,
    /// Of a whole message: what comes to them at its end.
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    pub whole: Option<Whole>,
    /// Distinct 4 KiB pages of stable memory read, for each operation.
    pub pages_read: f64,
    /// Distinct 4 KiB pages of stable memory written, for each operation.
    pub pages_written: f64,
    /// The most instructions that it may take; of a whole message, the most that may be charged.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<u64>,
    /// The most pages that it may write.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pages_limit: Option<f64>,
}

/// What a whole message costs beyond the instructions inside it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Whole {
    /// 4 KiB pages of the heap whose content it changed.
    pub heap_pages: u64,
    /// Instructions charged: those inside and 1,000 for each such page; a query's pages aren't charged.
    pub charged: u64,
}

impl Figure {
    /// The figure of a whole message.
    fn of_message(family: &'static str, op: &'static str, size: u32, n: u64, message: &Execution) -> Self {
        Self {
            family,
            op,
            size,
            n,
            baseline: None,
            instructions: message.instructions,
            whole: Some(Whole { heap_pages: message.heap_pages_written, charged: message.instructions_charged }),
            pages_read: message.stable_pages_read as f64,
            pages_written: message.stable_pages_written as f64,
            limit: limit(family, op, size),
            pages_limit: None,
        }
    }

    /// What it takes, where that is more than it may.
    fn over(&self) -> Option<String> {
        let instructions = self.limit.filter(|&limit| self.counted() > limit);
        let pages = self.pages_limit.filter(|&limit| self.pages_written > limit);
        (instructions.is_some() || pages.is_some()).then(|| {
            let Self { family, op, size, n, pages_written, .. } = self;
            let counted = self.counted();
            format!("{family} {op} of {size} bytes at {n}: {counted} instructions, {pages_written:.3} pages written")
        })
    }

    /// What is held against the limit.
    fn counted(&self) -> u64 {
        self.whole.map_or(self.instructions, |whole| whole.charged)
    }
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
        ("index", "insert", _) => 4_200,
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
            whole: None,
            pages_read: run.stable_pages_read as f64 / rounds as f64,
            pages_written: run.stable_pages_written as f64 / rounds as f64,
            limit: if baseline.is_none() { limit(family, op, size) } else { None },
            pages_limit: None,
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
        Ok(Figure::of_message("blob", "open", 64 << 10, n, run))
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
    if wanted("sweep") {
        sweep::sweep(&wasm, &mut each)?;
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
    let over: Vec<String> = figures.iter().filter_map(Figure::over).collect();
    if !over.is_empty() {
        bail!("above the limit: {}", over.join("; "));
    }
    Ok(())
}

fn table(figures: &[Figure]) -> Table {
    let mut table = Table::new();
    table.load_style(comfy_table::presets::UTF8_FULL_CONDENSED);
    table.set_header([
        "family",
        "op",
        "size",
        "n",
        "instructions",
        "heap pages",
        "charged",
        "limit",
        "pages read",
        "pages written",
        "limit",
    ]);
    for figure in figures {
        let name =
            figure.baseline.map_or(figure.family.to_string(), |baseline| format!("{} ({baseline})", figure.family));
        table.add_row([
            name,
            figure.op.to_string(),
            figure.size.to_string(),
            figure.n.to_string(),
            figure.instructions.to_string(),
            figure.whole.map_or(String::new(), |whole| whole.heap_pages.to_string()),
            figure.whole.map_or(String::new(), |whole| whole.charged.to_string()),
            figure.limit.map_or(String::new(), |limit| limit.to_string()),
            format!("{:.2}", figure.pages_read),
            format!("{:.2}", figure.pages_written),
            figure.pages_limit.map_or(String::new(), |limit| limit.to_string()),
        ]);
    }
    for column in 2..11 {
        if let Some(column) = table.column_mut(column) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    table
}
