//! `coppice bench`: what an operation costs, in instructions and in 4 KiB pages of stable memory touched; and what a whole
//! message costs, for which the platform charges 1,000 instructions more for each 4 KiB page of the heap that it changed.
//!
//! It runs the canister's own code inside the bench wasm (`COPPICE_FEATURES=bench scripts/build-wasm`) on the embedded
//! host, whose counts are those of the platform. Each figure is an average over one message in which nothing else
//! happens; everything is prepared in messages before it, from the same starting point. Counts have no noise, so a figure
//! above its limit is a regression and ends the run with an error.
//!
//! Everything is measured twice, on two hosts at the same time: as the reference server charges for pages of stable memory, and
//! as newer replicas do. Each has limits of its own.

mod comparison;
mod deletion;
mod figure;
mod index;
mod limits;
mod messages;
mod observe;
mod pages;
mod sweep;
mod utxo;

use crate::terminal::{self, say};
use anyhow::{Context, Result, bail};
use candid::{CandidType, Decode, Encode, Principal};
use coppice_host::{Checkpoint, Execution, Host, Kind, Limits, StablePagePrices};
use figure::{Figure, Row};
use std::io;
use std::path::PathBuf;
use std::sync::mpsc;
use std::thread;

/// Options of `coppice bench`.
#[derive(Clone, Debug, clap::Args)]
pub struct BenchArgs {
    /// Only this family: blob, index, sweep, chain, utxo, deletion or observe
    #[arg(long, value_name = "NAME", value_parser = ["blob", "index", "sweep", "chain", "utxo", "deletion", "observe"])]
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
    /// Write the tables of figures into these pages; all families are measured
    #[arg(long, value_name = "PAGE", num_args = 1.., conflicts_with = "family")]
    pub write: Vec<PathBuf>,
    /// End with an error where the tables of a page have other figures
    #[arg(long, value_name = "PAGE", num_args = 1.., conflicts_with_all = ["family", "write"])]
    pub check: Vec<PathBuf>,
}

/// The argument of the bench endpoints.
#[derive(Clone, Debug, CandidType)]
struct BenchArg {
    op: String,
    size: u32,
    rounds: u64,
}

const NUMBERS: [u64; 3] = [10, 10_000, 1_000_000];
const SIZES: [u32; 3] = [4 << 10, 64 << 10, 1 << 20];
const BLOB_OPS: [&str; 5] = ["store", "read", "allocate_fresh", "allocate_reuse", "release"];
/// Ids or keys of a block, so operations of one measurement of an index.
const IDS: u64 = 10_000;

/// What charges for the pages of stable memory that are touched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Price {
    /// The reference server.
    Today,
    /// Newer replicas.
    Tomorrow,
}

impl Price {
    fn limits(self) -> Limits {
        let stable_page_prices = match self {
            Self::Today => StablePagePrices::TODAY,
            Self::Tomorrow => StablePagePrices::TOMORROW,
        };
        Limits { stable_page_prices, ..Limits::default() }
    }
}

/// What is measured, and by which price.
#[derive(Clone, Copy)]
struct Subject<'a> {
    wasm: &'a [u8],
    price: Price,
}

impl Subject<'_> {
    /// Says what is measured now; of the two that measure it at the same time, one says it.
    fn say(&self, what: &str) {
        if self.price == Price::Today {
            say!("{what}");
        }
    }
}

struct Bench {
    price: Price,
    host: Host,
    canister: Principal,
    operator: Principal,
    wasm: Vec<u8>,
}

impl Bench {
    fn start(subject: &Subject) -> Result<Self> {
        let host = Host::new();
        host.set_limits(subject.price.limits());
        let operator = Principal::self_authenticating(b"bench");
        let canister = host.create_canister_with_settings(Some(operator), None);
        host.add_cycles(canister, 10_000_000_000_000_000);
        let arg = Encode!(&None::<coppice_interface::CanisterArg>)?;
        let wasm = subject.wasm.to_vec();
        host.try_install_canister(canister, wasm.clone(), arg, Some(operator))
            .context("cannot install the bench wasm")?;
        Ok(Self { price: subject.price, host, canister, operator, wasm })
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

    /// Measures an operation on a blob.
    fn blob(&self, from: &Checkpoint, op: &'static str, size: u32, n: u64) -> Result<Figure> {
        let rounds = match (op, size) {
            ("store" | "read", 1_048_576) => 50,
            ("store" | "read", _) => 200,
            _ => 1_000,
        };
        let (figure, _) = self.measure(from, ("blob", "blob", op), size, rounds, n)?;
        Ok(figure)
    }

    /// Measures an operation from a starting point: family, structure and name. Returns the whole message, too.
    fn measure(
        &self,
        from: &Checkpoint,
        (family, what, op): (&'static str, &'static str, &'static str),
        size: u32,
        rounds: u64,
        n: u64,
    ) -> Result<(Figure, Execution)> {
        self.host.restore(from);
        let arg = BenchArg { op: format!("{what}.{op}"), size, rounds };
        self.call::<()>("bench_prepare", &arg)?;
        let instructions = self.call::<u64>("bench_run", &arg)?;
        let run = self.host.last_execution().context("the host counted nothing")?;
        if run.kind != Kind::Update || run.method != "bench_run" {
            bail!("the last execution is {} and not the measurement", run.method);
        }
        let peer = (what != family).then_some(what);
        let figure = Figure {
            family,
            op,
            size,
            n,
            peer,
            instructions,
            whole: None,
            pages_read: run.stable_pages_read as f64 / rounds as f64,
            pages_written: run.stable_pages_written as f64 / rounds as f64,
            limit: if peer.is_none() { limits::limit(self.price, family, op, size) } else { None },
            pages_limit: None,
            bytes: None,
        };
        Ok((figure, run))
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
        Ok(self.of_message("blob", "open", 64 << 10, n, run))
    }
}

/// What takes each figure as it is measured.
type Each<'a> = &'a mut dyn FnMut(Figure) -> Result<()>;

fn blobs(subject: &Subject, each: Each) -> Result<()> {
    for n in NUMBERS {
        subject.say(&format!("blob: {n} live blobs"));
        let bench = Bench::start(subject)?;
        bench.call::<()>("bench_fill_blobs", &n)?;
        let from = bench.host.checkpoint();
        for size in SIZES {
            for op in BLOB_OPS {
                each(bench.blob(&from, op, size, n)?)?;
            }
        }
        each(bench.open(&from, n)?)?;
    }
    Ok(())
}

/// Measures a family.
type Measure = fn(&Subject, Each) -> Result<()>;

/// Measures families by one price.
fn families(subject: &Subject, only: Option<&str>, each: Each) -> Result<()> {
    let all: [(&str, Measure); 7] = [
        ("blob", blobs),
        ("index", index::index),
        ("sweep", sweep::sweep),
        ("chain", messages::chain),
        ("utxo", utxo::utxo),
        ("deletion", deletion::deletion),
        ("observe", observe::observe),
    ];
    all.into_iter()
        .filter(|(family, _)| only.is_none_or(|only| only == *family))
        .try_for_each(|(_, measure)| measure(subject, &mut *each))
}

/// Measures by both prices at the same time, and hands on each row when both its figures are there.
fn rows(wasm: &[u8], only: Option<&str>, mut each: impl FnMut(Row)) -> Result<()> {
    // The wasm is compiled here and not by both at once.
    Bench::start(&Subject { wasm, price: Price::Today })?;
    thread::scope(|scope| {
        let [(today, of_today), (tomorrow, of_tomorrow)] = [Price::Today, Price::Tomorrow].map(|price| {
            let (to, from) = mpsc::channel();
            let measuring = scope.spawn(move || {
                // Where the other one has failed, nobody takes the figures any more.
                families(&Subject { wasm, price }, only, &mut |figure| Ok(to.send(figure)?))
            });
            (measuring, from)
        });
        let paired = of_today.into_iter().zip(of_tomorrow).try_for_each(|(today, tomorrow)| {
            each(Row::of(today, &tomorrow)?);
            Ok(())
        });
        let ended = [today, tomorrow].map(|measuring| measuring.join().expect("a measuring thread does not panic"));
        let failed = |result: &Result<()>| result.as_ref().is_err_and(|error| !error.is::<mpsc::SendError<Figure>>());
        let (first, rest): (Vec<_>, Vec<_>) = ended.into_iter().partition(failed);
        first.into_iter().chain([paired]).chain(rest).collect()
    })
}

/// Measures, prints, and ends with an error where a figure is above its limit.
///
/// # Errors
/// When the bench wasm cannot be read or run, an operation fails, or a figure is above its limit.
pub fn command(args: &BenchArgs) -> Result<()> {
    let wasm = std::fs::read(&args.wasm)
        .with_context(|| format!("cannot read {}; scripts/bench builds it", args.wasm.display()))?;
    let mut all = Vec::new();
    rows(&wasm, args.family.as_deref(), |row| {
        if args.json {
            let printed = serde_json::to_string(&row).map_err(io::Error::from).and_then(|line| terminal::print(&line));
            if let Err(error) = printed {
                say!("{error}");
            }
        }
        all.push(row);
    })?;
    if !args.json {
        terminal::print(&figure::table(&all).to_string())?;
    }
    let over: Vec<String> = all.iter().flat_map(Row::over).collect();
    args.write.iter().try_for_each(|page| pages::write(page, &all))?;
    if !over.is_empty() {
        bail!("above the limit: {}", over.join("; "));
    }
    args.check.iter().try_for_each(|page| pages::check(page, &all))
}
