//! Pruning in the steady state: blocks come, and the daemon prunes as many and sweeps what they leave in the index.
//!
//! A sweep is seldom and large, so a single message says nothing of what pruning costs. Everything that the timer starts is summed
//! over whole sweeps, from the end of one to the end of another, and divided by the references that were pruned in between.
//! Beside it stands the way of before: the entries of one block taken out one by one, from the same index.

use super::figure::Figure;
use super::limits;
use super::subject::{Bench, BenchArg, Each, IDS, Subject};
use anyhow::{Result, bail, ensure};
use candid::Encode;
use coppice_host::{Outcome, Totals};
use coppice_interface::*;
use std::time::Duration;

/// Entries of the index.
const ENTRIES: [u64; 2] = [1_000_000, 10_000_000];
/// Sweeps that are measured.
const SWEEPS: u64 = 3;
/// The most pages that pruning one reference may write.
const PAGES_WRITTEN: f64 = 0.08;
/// Windows of blocks without a sweep's end after which there is something wrong: a sweep begins at an eighth of one.
const PATIENCE: u64 = 2;

/// How far the canister is.
struct At {
    sweeps: u64,
    dropped: u64,
    pruned_blocks: u64,
}

/// Measures pruning in blocks of [`IDS`] references.
pub fn sweep(subject: &Subject, each: Each) -> Result<()> {
    for n in ENTRIES {
        subject.say(&format!("sweep: {n} entries"));
        let bench = Bench::start(subject)?;
        bench.fill("bench_fill_index", (n,))?;
        let blocks = n / IDS;
        let policy = PrunePolicyArg { retain_blocks: Some(blocks), ..PrunePolicyArg::default() };
        let (change, _) = bench.done::<PrunePolicyChange, PruneError>("set_prune_policy", Encode!(&policy)?)?;
        let policy = change.new;
        // What was appended before there was a policy is pruned like all else, and not measured.
        let patience = PATIENCE * blocks;
        bench.blocks_until(1, &policy, patience, &mut Totals::default())?;
        let mut timer = Totals::default();
        let from = bench.at()?;
        let to = bench.blocks_until(from.sweeps + SWEEPS, &policy, SWEEPS * patience, &mut timer)?;
        let references = (to.pruned_blocks - from.pruned_blocks) * IDS;
        let dropped = to.dropped - from.dropped;
        ensure!(
            dropped == references,
            "{references} references were pruned and {dropped} entries dropped: not the whole of it was measured"
        );
        let per = |sum: u128| sum as f64 / references as f64;
        each(Figure {
            family: "sweep",
            op: "prune",
            size: 32,
            n,
            instructions: timer.instructions.div_ceil(u128::from(references)) as u64,
            pages_read: per(timer.stable_pages_read),
            pages_written: per(timer.stable_pages_written),
            limit: limits::limit(subject.price, "sweep", "prune", 32),
            pages_limit: Some(PAGES_WRITTEN),
            ..Figure::default()
        })?;
        each(bench.one_by_one(n)?)?;
    }
    Ok(())
}

impl Bench {
    fn at(&self) -> Result<At> {
        let (status, _) = self.query::<PruneStatus>("get_prune_status", Encode!()?)?;
        let IndexDebt { sweeps, dropped, .. } = status.transaction_index;
        Ok(At { sweeps, dropped, pruned_blocks: status.pruned_blocks })
    }

    /// Appends blocks, and after each lets the daemon do all there is to do, until `sweeps` have ended. Adds what the timer took.
    fn blocks_until(&self, sweeps: u64, policy: &PrunePolicy, most: u64, timer: &mut Totals) -> Result<At> {
        for _ in 0..most {
            self.call::<()>("bench_append", (IDS,))?;
            self.host.take_executions();
            // The daemon comes round, and no producer has called for longer than a sweep waits.
            self.host.advance_time(Duration::from_secs(policy.timer_interval_secs.max(policy.pause_after_secs + 1)));
            self.drain(timer)?;
            let at = self.at()?;
            if at.sweeps >= sweeps {
                return Ok(at);
            }
        }
        bail!("{most} blocks later {sweeps} sweeps have not ended");
    }

    /// Lets timers fire until none is due, and adds up what they took.
    fn drain(&self, timer: &mut Totals) -> Result<()> {
        loop {
            self.host.tick();
            let executions = self.host.take_executions();
            if executions.is_empty() {
                return Ok(());
            }
            for execution in &executions {
                if let Outcome::Trapped { message, .. } = &execution.outcome {
                    bail!("{:?} {} trapped: {message}", execution.kind, execution.method);
                }
                timer.add(execution);
            }
        }
    }

    /// The way of before: one block's entries.
    fn one_by_one(&self, n: u64) -> Result<Figure> {
        let arg = BenchArg { op: "index.remove".into(), size: 32, rounds: IDS };
        let (figure, _) = self.run(("bench_run", (&arg,)), ("sweep", "prune"), 32, IDS, n)?;
        Ok(Figure { peer: Some("one by one"), ..figure })
    }
}
