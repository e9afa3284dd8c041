//! The bench canister, and the measurements common to all families.

use super::figure::{Figure, Row, Whole};
use super::limits;
use super::price::Price;
use anyhow::{Context, Result, anyhow, ensure};
use candid::utils::ArgumentEncoder;
use candid::{CandidType, Decode, Encode, Principal, encode_args};
use ic_coppice_cli::say;
use ic_coppice_host::{Checkpoint, Execution, Host, Kind, Totals};
use serde::de::DeserializeOwned;
use std::cell::Cell;

/// Ids or keys of a block, and so the operations of one measurement of an index.
pub const IDS: u64 = 10_000;

/// The argument of the bench endpoints.
#[derive(Clone, Debug, CandidType)]
pub struct BenchArg {
    pub op: String,
    pub size: u32,
    pub rounds: u64,
}

/// Receives each row as it is measured.
pub type Each<'a> = &'a mut dyn FnMut(Row) -> Result<()>;

/// The subject of a measurement.
#[derive(Clone, Copy)]
pub struct Subject<'a> {
    /// The bench wasm.
    pub wasm: &'a [u8],
    /// The only number of UTXO records among which the store is measured.
    pub records: Option<u64>,
}

/// The bench canister on a host of its own.
pub struct Bench {
    /// The prices of pages.
    price: Cell<Price>,
    pub host: Host,
    pub canister: Principal,
    pub operator: Principal,
    pub wasm: Vec<u8>,
}

impl Bench {
    /// Prints what is measured, and installs the canister on a new host.
    pub fn start(subject: &Subject, what: &str) -> Result<Self> {
        say!("{what}");
        let host = Host::new();
        host.set_limits(Price::Today.limits());
        let operator = Principal::self_authenticating(b"bench");
        let canister = host.create_canister_with_settings(Some(operator), None);
        host.add_cycles(canister, 10_000_000_000_000_000);
        let arg = Encode!(&None::<ic_coppice_interface::CanisterArg>)?;
        let wasm = subject.wasm.to_vec();
        host.try_install_canister(canister, wasm.clone(), arg, Some(operator))
            .context("cannot install the bench wasm")?;
        // Its first timer draws the hash key, so that it is ready.
        host.tick();
        Ok(Self { price: Cell::new(Price::Today), host, canister, operator, wasm })
    }

    fn set_price(&self, price: Price) {
        self.price.set(price);
        self.host.set_limits(price.limits());
    }

    /// Measures the same from the present state at today's price, and then at tomorrow's.
    pub fn at_both<T>(&self, measure: impl Fn(&Self) -> Result<T>) -> Result<[T; 2]> {
        let from = self.host.checkpoint();
        let today = measure(self)?;
        self.host.restore(&from);
        self.set_price(Price::Tomorrow);
        let tomorrow = measure(self);
        self.set_price(Price::Today);
        Ok([today, tomorrow?])
    }

    /// Measures several figures from the present state at both prices.
    pub fn rows(&self, measure: impl Fn(&Self) -> Result<Vec<Figure>>) -> Result<Vec<Row>> {
        let [today, tomorrow] = self.at_both(measure)?;
        ensure!(today.len() == tomorrow.len(), "{} figures today, and {} tomorrow", today.len(), tomorrow.len());
        today.into_iter().zip(&tomorrow).map(|(today, tomorrow)| Row::of(today, tomorrow)).collect()
    }

    pub fn last(&self) -> Result<Execution> {
        self.host.last_execution().context("the host has counted no execution")
    }

    /// Calls an update method. Returns the reply and the execution.
    pub fn update<T: CandidType + DeserializeOwned>(&self, method: &str, arg: Vec<u8>) -> Result<(T, Execution)> {
        let reply = self.host.update_call(self.canister, self.operator, method, arg).context(method.to_string())?;
        Ok((Decode!(&reply, T)?, self.last()?))
    }

    /// Calls an update method that must succeed. Returns the reply and the execution.
    pub fn done<T, E>(&self, method: &str, arg: Vec<u8>) -> Result<(T, Execution)>
    where
        T: CandidType + DeserializeOwned,
        E: CandidType + DeserializeOwned + std::fmt::Display,
    {
        let (reply, execution) = self.update::<Result<T, E>>(method, arg)?;
        Ok((reply.map_err(|error| anyhow!("{method}: {error}"))?, execution))
    }

    /// Calls a query method. Returns the reply and the execution.
    pub fn query<T: CandidType + DeserializeOwned>(&self, method: &str, arg: Vec<u8>) -> Result<(T, Execution)> {
        let reply = self.host.query_call(self.canister, self.operator, method, arg)?;
        Ok((Decode!(&reply, T)?, self.last()?))
    }

    /// Calls an endpoint of the bench.
    pub fn call<T: CandidType + DeserializeOwned>(&self, method: &str, args: impl ArgumentEncoder) -> Result<T> {
        let (reply, _) = self.update::<Result<T, String>>(method, encode_args(args)?)?;
        reply.map_err(|why| anyhow!("{method}: {why}"))
    }

    /// Repeats a filling endpoint until it reports that it is done.
    pub fn fill(&self, method: &str, args: impl ArgumentEncoder + Copy) -> Result<()> {
        while !self.call::<bool>(method, args)? {}
        Ok(())
    }

    /// Calls an endpoint that repeats an operation `rounds` times. Returns the average, and the whole message.
    pub fn run(
        &self,
        (method, args): (&str, impl ArgumentEncoder),
        (family, op): (&'static str, &'static str),
        size: u32,
        rounds: u64,
        n: u64,
    ) -> Result<(Figure, Execution)> {
        let instructions = self.call::<u64>(method, args)?;
        let run = self.last()?;
        let is_measured = run.kind == Kind::Update && run.method == method;
        ensure!(is_measured, "the last execution is {} and not the measurement", run.method);
        let [pages_read, pages_written] =
            [run.stable_pages_read, run.stable_pages_written].map(|pages| pages as f64 / rounds as f64);
        Ok((Figure { family, op, size, n, instructions, pages_read, pages_written, ..Figure::default() }, run))
    }

    /// Measures an operation from a starting point, at both prices: family, structure and name. Returns averages, and the whole messages.
    pub fn measure(
        &self,
        from: &Checkpoint,
        (family, what, op): (&'static str, &'static str, &'static str),
        size: u32,
        rounds: u64,
        n: u64,
    ) -> Result<[(Figure, Execution); 2]> {
        self.host.restore(from);
        let arg = BenchArg { op: format!("{what}.{op}"), size, rounds };
        self.call::<()>("bench_prepare", (&arg,))?;
        let peer = (what != family).then_some(what);
        self.at_both(|bench| {
            let (figure, run) = bench.run(("bench_run", (&arg,)), (family, op), size, rounds, n)?;
            let limit = if peer.is_none() { bench.limit(family, op, size) } else { None };
            Ok((Figure { peer, limit, ..figure }, run))
        })
    }

    /// Returns the limit of an operation at the present price.
    pub fn limit(&self, family: &str, op: &str, size: u32) -> Option<u64> {
        limits::limit(self.price.get(), family, op, size)
    }

    /// Returns the figure of a whole message.
    pub fn of_message(&self, family: &'static str, op: &'static str, size: u32, n: u64, message: &Execution) -> Figure {
        self.of_items(family, op, size, n, 1, [message])
    }

    /// Returns the figure per item of messages with `items` items in total.
    pub fn of_items<'a>(
        &self,
        family: &'static str,
        op: &'static str,
        size: u32,
        n: u64,
        items: u64,
        messages: impl IntoIterator<Item = &'a Execution>,
    ) -> Figure {
        let mut sum = Totals::default();
        messages.into_iter().for_each(|message| sum.add(message));
        let per_item = |sum: u128| (sum / u128::from(items)) as u64;
        let pages = |sum: u128| sum as f64 / items as f64;
        Figure {
            family,
            op,
            size,
            n,
            instructions: per_item(sum.instructions),
            whole: Some(Whole {
                heap_pages: sum.heap_pages_written as u64,
                charged: per_item(sum.instructions_charged),
            }),
            pages_read: pages(sum.stable_pages_read),
            pages_written: pages(sum.stable_pages_written),
            limit: self.limit(family, op, size),
            ..Figure::default()
        }
    }
}
