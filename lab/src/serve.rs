//! `coppice-lab serve`: serves the pages of a canister with a running clock: a demonstration, the blocks of files, or a producer's blocks.

use crate::args::HostArgs;
use crate::failure_scenarios::Trouble;
use crate::ingest;
use anyhow::{Context, Result, ensure};
use candid::Principal;
use coppice_testkit::demonstration::Demonstration;
use coppice_testkit::embedded::Embedded;
use coppice_testkit::replica::Replica;
use coppice_testkit::{api, producer};
use ic_coppice_cli::gateway::Gateway;
use ic_coppice_cli::ingest::{Plan, read};
use ic_coppice_cli::report::{blocks, count};
use ic_coppice_cli::rules::NetworkRules;
use ic_coppice_cli::say;
use ic_coppice_cli::stop::exit_on_signals;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Simulated time before the page is first shown: a day, so that its plots are full.
const BEFORE: u64 = 86_400;

/// Options of `coppice-lab serve`.
#[derive(Clone, Debug, clap::Args)]
pub struct ServeArgs {
    /// Port on 127.0.0.1; 0: any free port
    #[arg(long, value_name = "N", default_value_t = 8080)]
    pub port: u16,
    /// Seconds per minute of the demonstration, with at most three decimals
    #[arg(long = "minute-secs", value_name = "SECS", default_value = "1", value_parser = minute)]
    pub minute: Duration,
    /// Show these Bitcoin blocks instead of generated ones: blk*.dat files, raw blocks, or directories of them, in any order. Each is
    /// verified first, as by `ingest`
    #[arg(long, value_name = "PATH", num_args = 1..)]
    pub blk: Vec<PathBuf>,
    /// Network by whose rules these blocks are checked [default: as `ingest`]
    #[arg(long, value_name = "NAME", requires = "blk")]
    pub network_rules: Option<NetworkRules>,
    /// The plan for these blocks.
    #[command(flatten)]
    pub plan: Plan,
    /// Seed of the generated chain
    #[arg(long, value_name = "N", default_value_t = 1, conflicts_with = "blk")]
    pub seed: u64,
    /// Show a canister in trouble: what its dashboard says, and which remedy it names
    #[arg(long, value_name = "TROUBLE", conflicts_with = "blk")]
    pub trouble: Option<Trouble>,
    /// Begin with an empty canister, and install a canister of your own that feeds it: a wasm file. Its argument is the principal of Coppice,
    /// and it gets the role Producer
    #[arg(long, value_name = "WASM", requires = "api", conflicts_with_all = ["blk", "trouble", "seed"])]
    pub producer: Option<PathBuf>,
    /// Begin with an empty canister that makes its blocks itself: `--wasm` names a canister of your own that contains Coppice
    #[arg(long, requires = "api", requires = "wasm", conflicts_with_all = ["blk", "trouble", "seed", "producer"])]
    pub empty: bool,
    /// Also answer agents, as the API of a network does: the URL is the network's, and its root key must be fetched
    #[arg(long)]
    pub api: bool,
    /// Give a principal the roles of operator, admin, producer and blob worker, so that its calls change the canister; it also controls the
    /// canister of --producer
    #[arg(long, value_name = "PRINCIPAL", num_args = 1.., requires = "api")]
    pub allow: Vec<Principal>,
    /// Common options.
    #[command(flatten)]
    pub host: HostArgs,
}

/// Parses a number of seconds from 0.001 to 60, with up to three decimals.
///
/// # Errors
/// When it is not such a number.
fn minute(text: &str) -> Result<Duration, String> {
    let millis = text.parse::<f64>().map_or(0.0, |secs| secs * 1_000.0).round();
    if (1.0..=60_000.0).contains(&millis) {
        Ok(Duration::from_millis(millis as u64))
    } else {
        Err("write seconds from 0.001 to 60, with at most three decimals".into())
    }
}

/// Serves until Ctrl-C or SIGTERM.
///
/// # Errors
/// When the port is in use, a file cannot be read, or the canister refuses something.
pub fn command(args: &ServeArgs) -> Result<()> {
    exit_on_signals()?;
    ensure!(!args.blk.is_empty() || args.plan == Plan::default(), "these options are for blocks of files (--blk)");
    let mut gateway = Gateway::bind(args.port)?;
    let mut demonstration = args.demonstration()?;
    let client = demonstration.client();
    let canister = client.transport().canister();
    if args.api {
        // A caller may stop the canister, or take what the demonstration needs.
        demonstration.tolerate_refusals();
        if let Some(wasm) = &args.producer {
            let producer = producer::install(&client, wasm, &args.allow)?;
            say!("canister {producer} is {}", wasm.display());
            let log = producer::Log::of(&client, producer);
            demonstration.every_minute(Box::new(move || {
                log.new_lines().iter().for_each(|line| say!("canister {producer}: {line}"));
            }));
        }
        let replica = Replica::new(client.transport().share());
        let url = gateway.url();
        gateway = gateway.naming(url);
        gateway = gateway.answering(Box::new(move |request| {
            api::answer(&replica, request.asked.method(), request.path(), request.asked.body())
        }));
        say!("agents reach canister {canister} at {}", gateway.url());
    }
    gateway.announce("/?refresh=5", canister, args.host.json)?;
    say!("a minute of the demonstration takes {:?}; Ctrl-C ends it", args.minute);
    show(&gateway, &mut demonstration, args.minute)
}

impl ServeArgs {
    /// Returns the canister to show: empty for a producer or a canister that makes its blocks itself, with the blocks of the files, or else with those of a day.
    fn demonstration(&self) -> Result<Demonstration> {
        if self.producer.is_some() || self.empty {
            let client = Embedded::start(self.host.wasm()?)?;
            api::allow(&client, &self.allow)?;
            return Demonstration::complete(Arc::new(client));
        }
        if self.blk.is_empty() {
            let mut demonstration = Demonstration::start(self.host.wasm()?, self.seed)?;
            // Before the fault, because a canister without cycles refuses the grants.
            api::allow(&demonstration.client(), &self.allow)?;
            say!("a day passes first …");
            demonstration.pass(BEFORE)?;
            if let Some(trouble) = self.trouble {
                trouble.befall(&mut demonstration)?;
                say!("the canister reports {:?}", trouble.problem());
            }
            return Ok(demonstration);
        }
        let ordered = read(&self.blk, self.network_rules)?;
        ordered.check_whole()?;
        let client = Embedded::start(self.host.wasm()?)?;
        api::allow(&client, &self.allow)?;
        let report = ingest::feed(&client, &ordered, &self.plan)?;
        let (first, last) = (count(report.first_block), count(report.last_block));
        say!("the canister has {}, numbers {first} to {last}, all verified", blocks(report.appended.blocks));
        Demonstration::complete(Arc::new(client))
    }
}

/// Serves a demonstration while its clock runs.
///
/// # Errors
/// When the demonstration fails, which also stops serving.
pub fn show(gateway: &Gateway, demonstration: &mut Demonstration, minute: Duration) -> Result<()> {
    let canister = demonstration.client();
    gateway.serve_while(&canister, || {
        let mut next = Instant::now();
        loop {
            demonstration.step().context("the demonstration")?;
            next = (next + minute).max(Instant::now());
            std::thread::sleep(next - Instant::now());
        }
    })
}
