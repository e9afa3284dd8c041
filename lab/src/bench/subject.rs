//! The bench canister, and what every family does with it.

use super::figure::Figure;
use super::limits;
use super::price::Price;
use anyhow::{Context, Result, bail};
use candid::{CandidType, Decode, Encode, Principal};
use coppice::say;
use coppice_host::{Checkpoint, Execution, Host, Kind};

/// Ids or keys of a block, so operations of one measurement of an index.
pub const IDS: u64 = 10_000;

/// The argument of the bench endpoints.
#[derive(Clone, Debug, CandidType)]
pub struct BenchArg {
    pub op: String,
    pub size: u32,
    pub rounds: u64,
}

/// What takes each figure as it is measured.
pub type Each<'a> = &'a mut dyn FnMut(Figure) -> Result<()>;

/// What is measured, and by which price.
#[derive(Clone, Copy)]
pub struct Subject<'a> {
    /// The bench wasm.
    pub wasm: &'a [u8],
    /// The price.
    pub price: Price,
}

impl Subject<'_> {
    /// Says what is measured now; of the two that measure it at the same time, one says it.
    pub fn say(&self, what: &str) {
        if self.price == Price::Today {
            say!("{what}");
        }
    }
}

/// The bench canister on a host of its own.
pub struct Bench {
    pub price: Price,
    pub host: Host,
    pub canister: Principal,
    pub operator: Principal,
    pub wasm: Vec<u8>,
}

impl Bench {
    /// Installs the canister.
    pub fn start(subject: &Subject) -> Result<Self> {
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

    /// Calls an endpoint of the bench.
    pub fn call<T: CandidType + serde::de::DeserializeOwned>(&self, method: &str, arg: &impl CandidType) -> Result<T> {
        let reply =
            self.host.update_call(self.canister, self.operator, method, Encode!(arg)?).context(method.to_string())?;
        Decode!(&reply, Result<T, String>)?.map_err(|why| anyhow::anyhow!("{method}: {why}"))
    }

    /// Calls an endpoint that fills something until it says that it is done.
    pub fn fill(&self, method: &str, n: u64) -> Result<()> {
        while !self.call::<bool>(method, &n)? {}
        Ok(())
    }

    /// Measures an operation from a starting point: family, structure and name. Returns the whole message, too.
    pub fn measure(
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
}
