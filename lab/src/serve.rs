//! `coppice-lab serve`: serves the dashboard of a demonstration with a running clock.

use crate::args::HostArgs;
use crate::demonstration::Demonstration;
use crate::wasm;
use anyhow::{Context, Result};
use coppice::gateway::Gateway;
use coppice::say;
use coppice::stop::exit_on_signals;
use std::time::{Duration, Instant};

/// Simulated time before the page is first shown: a day, so that its plots are full.
const BEFORE: u64 = 86_400;

/// Options of `coppice-lab serve`.
#[derive(Clone, Debug, clap::Args)]
pub struct ServeArgs {
    /// Port on 127.0.0.1; 0: any free port
    #[arg(long, value_name = "N", default_value_t = 8080)]
    pub port: u16,
    /// Milliseconds per minute of the demonstration
    #[arg(long, value_name = "MS", default_value_t = 1000, value_parser = clap::value_parser!(u64).range(1..=60_000))]
    pub minute_ms: u64,
    /// Seed of the generated chain
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
    /// Common options.
    #[command(flatten)]
    pub host: HostArgs,
}

/// Serves until Ctrl-C or SIGTERM.
///
/// # Errors
/// When the port is in use, or the demonstration's canister refuses something.
pub fn command(args: &ServeArgs) -> Result<()> {
    exit_on_signals()?;
    let wasm = wasm::find(args.host.wasm.as_deref())?;
    let gateway = Gateway::bind(args.port)?;
    let mut demonstration = Demonstration::start(wasm, args.seed)?;
    say!("a day passes first …");
    demonstration.pass(BEFORE)?;
    gateway.announce("/?refresh=5", args.host.json)?;
    say!("a minute of the demonstration takes {} ms; Ctrl-C ends it", args.minute_ms);
    show(&gateway, &mut demonstration, Duration::from_millis(args.minute_ms))
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
