//! `coppice-lab bench`: measures the cost of operations, in instructions and in touched 4 KiB pages of stable memory, and the cost of whole
//! messages, which includes 1,000 instructions for each 4 KiB page of the heap that a message changed.
//!
//! It runs the canister's own code inside the bench wasm (`COPPICE_BUILD=coppice-bench scripts/build-wasm`) on the embedded host, which counts
//! as the platform does. Each figure is an average over one message that does nothing else; earlier messages prepare it from the same
//! starting point. Counts have no noise, so a figure above its limit is a regression and ends the run with an error.
//!
//! Everything is measured twice from the same state: at the page prices of the reference server, and at those of newer replicas. Each price
//! has its own limits. Two families are measured at the same time, because a canister runs on one core.

mod blobs;
mod comparison;
mod deletion;
mod figure;
mod index;
mod limits;
mod messages;
mod observe;
mod pages;
mod price;
mod subject;
mod sweep;
mod utxo;

use anyhow::{Context, Result, bail};
use figure::Row;
use ic_coppice_cli::{say, terminal};
use std::io;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError, mpsc};
use std::thread;
use subject::{Bench, Each, Subject};

/// Options of `coppice-lab bench`.
#[derive(Clone, Debug, clap::Args)]
pub struct BenchArgs {
    /// Only this family: blob, index, sweep, chain, utxo, deletion or observe
    #[arg(long, value_name = "NAME", value_parser = ["blob", "index", "sweep", "chain", "utxo", "deletion", "observe"])]
    pub family: Option<String>,
    /// The UTXO store alone, among this many records, without limits
    #[arg(long, value_name = "N", conflicts_with = "family", value_parser = clap::value_parser!(u64).range(1_000..=10_000_000))]
    pub records: Option<u64>,
    /// The bench wasm, raw or gzipped
    #[arg(long, value_name = "PATH", env = "COPPICE_BENCH_WASM", default_value = "target/coppice-bench.wasm")]
    pub wasm: PathBuf,
    /// The product's wasm, raw, whose size is reported
    #[arg(long, value_name = "PATH", env = "COPPICE_WASM", default_value = "target/coppice.wasm")]
    pub product: PathBuf,
    /// One JSON object per line instead of a table
    #[arg(long)]
    pub json: bool,
    /// Write the tables of figures into these pages; all families are measured
    #[arg(long, value_name = "PAGE", num_args = 1.., conflicts_with_all = ["family", "records"])]
    pub write: Vec<PathBuf>,
    /// End with an error if the tables of a page have different figures
    #[arg(long, value_name = "PAGE", num_args = 1.., conflicts_with_all = ["family", "records", "write"])]
    pub check: Vec<PathBuf>,
}

/// Most bytes of the product's wasm.
const MOST_WASM: u64 = 5_000_000;

/// Measures a family.
type Measure = fn(&Subject, Each) -> Result<()>;

/// The families, in the order of the table.
const FAMILIES: [(&str, Measure); 7] = [
    ("blob", blobs::blobs),
    ("index", index::index),
    ("sweep", sweep::sweep),
    ("chain", messages::chain),
    ("utxo", utxo::utxo),
    ("deletion", deletion::deletion),
    ("observe", observe::observe),
];
/// The families that take longest, which begin first.
const LONGEST: [&str; 2] = ["utxo", "sweep"];
/// Families that are measured at one time.
const THREADS: usize = 2;

/// Measures one family or all, and passes each row on as it is measured.
fn rows(subject: &Subject, only: Option<&str>, mut each: impl FnMut(Row)) -> Result<()> {
    // Compiles the wasm once, instead of in both threads at the same time.
    Bench::start(subject, "installing")?;
    let mut left: Vec<_> = FAMILIES.into_iter().filter(|(name, _)| only.is_none_or(|only| only == *name)).collect();
    left.sort_by_key(|(name, _)| LONGEST.iter().position(|long| long == name));
    let left = Mutex::new(left);
    let (to, from) = mpsc::channel();
    thread::scope(|scope| {
        let measuring: Vec<_> = std::iter::repeat_n(to, THREADS)
            .map(|to| {
                let left = &left;
                scope.spawn(move || {
                    let next = || left.lock().unwrap_or_else(PoisonError::into_inner).pop();
                    while let Some((_, measure)) = next() {
                        measure(subject, &mut |row| Ok(to.send(row)?))?;
                    }
                    Ok(())
                })
            })
            .collect();
        from.into_iter().for_each(&mut each);
        measuring.into_iter().try_for_each(|thread| thread.join().expect("a measuring thread does not panic"))
    })
}

/// Measures, prints, and fails if a figure is above its limit.
///
/// # Errors
/// When the bench wasm cannot be read or run, an operation fails, or a figure is above its limit.
pub fn command(args: &BenchArgs) -> Result<()> {
    let wasm = std::fs::read(&args.wasm)
        .with_context(|| format!("cannot read {}; scripts/bench builds it", args.wasm.display()))?;
    let mut all = Vec::new();
    let only = args.records.map_or(args.family.as_deref(), |_| Some("utxo"));
    let subject = Subject { wasm: &wasm, records: args.records };
    rows(&subject, only, |row| {
        if args.json {
            let printed = serde_json::to_string(&row).map_err(io::Error::from).and_then(|line| terminal::print(&line));
            if let Err(error) = printed {
                say!("{error}");
            }
        }
        all.push(row);
    })?;
    all.sort_by_key(|row: &Row| FAMILIES.iter().position(|(family, _)| *family == row.today.family));
    if !args.json {
        terminal::print(&figure::table(&all).to_string())?;
    }
    let size = std::fs::metadata(&args.product).map(|file| file.len());
    let size = size.with_context(|| format!("cannot read {}; scripts/build-wasm builds it", args.product.display()))?;
    say!("the wasm has {size} bytes, of at most {MOST_WASM}");
    let mut over: Vec<String> = all.iter().flat_map(Row::over).collect();
    over.extend((size > MOST_WASM).then(|| format!("the wasm: {size} bytes")));
    args.write.iter().try_for_each(|page| pages::write(page, &all))?;
    if !over.is_empty() {
        bail!("above the limit: {}", over.join("; "));
    }
    args.check.iter().try_for_each(|page| pages::check(page, &all))
}
