//! `coppice serve`: a canister's dashboard, metrics, health and log on a local port, as a gateway would show them.
//!
//! ```text
//! browser ── HTTP ──▶ 127.0.0.1:PORT ── http_request, a query ──▶ canister: of the demonstration, or on a network
//! ```

mod demonstration;
mod gateway;

pub use demonstration::Demonstration;
pub use gateway::Gateway;

use crate::args::ServeArgs;
use crate::stop::exit_on_signals;
use crate::terminal::{self, say};
use crate::wasm;
use anyhow::{Context, Result};
use std::time::{Duration, Instant};

/// Simulated time that has passed when the page is first shown: a day, so that its plots are full.
const BEFORE: u64 = 86_400;

/// Serves until the process is ended by Ctrl-C or SIGTERM.
///
/// # Errors
/// When the port is taken, the network cannot be reached, or the demonstration's canister refuses something.
pub fn command(args: &ServeArgs) -> Result<()> {
    exit_on_signals()?;
    if let Some(client) = args.network.connect()? {
        let gateway = Gateway::bind(args.port)?;
        announce(&format!("{}/", gateway.url()), args.host.json)?;
        say!("canister {}; Ctrl-C ends it", client.transport().canister());
        gateway.serve(&client);
        return Ok(());
    }
    let wasm = wasm::find(args.host.wasm.as_deref())?;
    let gateway = Gateway::bind(args.port)?;
    let mut demonstration = Demonstration::start(wasm, args.seed)?;
    say!("a day passes first …");
    demonstration.pass(BEFORE)?;
    announce(&format!("{}/?refresh=5", gateway.url()), args.host.json)?;
    say!("a minute of the demonstration passes each {} ms; Ctrl-C ends it", args.minute_ms);
    show(&gateway, &mut demonstration, Duration::from_millis(args.minute_ms))
}

/// Prints where the pages are: a line that whoever started the process may read.
fn announce(url: &str, json: bool) -> Result<()> {
    let line = if json { serde_json::json!({ "url": url }).to_string() } else { url.into() };
    Ok(terminal::print(&line)?)
}

/// Serves a demonstration, and lets its clock run.
///
/// # Errors
/// When the demonstration fails; nothing is served any more then.
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
