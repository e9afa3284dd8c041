//! Pruning in the steady state: blocks are appended, and the daemon prunes as many and sweeps their entries from the index.
//!
//! A sweep is rare and large, so a single message does not show the cost of pruning. All executions that the timer starts are summed over
//! whole sweeps, from the end of one to the end of a later one, and divided by the references pruned in between. For comparison, the
//! entries of one block are also removed one by one from the same index.
//!
//! The throughput is that of a backlog: blocks with a quarter of the index's references, at least 500,000, are due at once, and ticks of the
//! default policy follow each other, one in each round of a second. The first tick prunes the blocks, and the others sweep.

use super::figure::Figure;
use super::subject::{Bench, BenchArg, Each, IDS, Subject};
use anyhow::{Result, bail, ensure};
use candid::Encode;
use ic_coppice_host::{Execution, Outcome, Totals};
use ic_coppice_interface::*;
use std::time::Duration;

/// Entries of the index.
const ENTRIES: [u64; 2] = [1_000_000, 10_000_000];
/// Sweeps measured.
const SWEEPS: u64 = 3;
/// The most pages that pruning one reference may write.
const PAGES_WRITTEN: f64 = 0.08;
/// The least references that ticks must prune and sweep in a second.
const LEAST_PER_SECOND: u64 = 100_000;
/// The least references of the backlog.
const LEAST_BACKLOG: u64 = 500_000;
/// The most pages of stable memory that a message may change: 75 MiB, less 1 MiB for the heap.
const MESSAGE_PAGES: f64 = ((74 << 20) / 4_096) as f64;
/// Windows of blocks within which a sweep must end: a sweep begins after an eighth of one.
const PATIENCE: u64 = 2;

/// The canister's progress.
struct At {
    sweeps: u64,
    dropped: u64,
    pruned_blocks: u64,
}

/// Measures pruning in blocks of [`IDS`] references.
pub fn sweep(subject: &Subject, each: Each) -> Result<()> {
    for n in ENTRIES {
        let bench = Bench::start(subject, &format!("sweep: {n} entries"))?;
        bench.fill("bench_fill_index", (n,))?;
        let blocks = n / IDS;
        let policy = PrunePolicyArg { retain_blocks: Some(blocks), ..PrunePolicyArg::default() };
        let (change, _) = bench.done::<PrunePolicyChange, PruneError>("set_prune_policy", Encode!(&policy)?)?;
        let policy = change.new;
        // Blocks appended before the policy was set are pruned first, and not measured.
        bench.blocks_until(1, &policy, PATIENCE * blocks, &mut Totals::default())?;
        bench
            .rows(|bench| Ok(vec![bench.sweeps(n, &policy)?, bench.backlog(n, &policy)?, bench.one_by_one(n)?]))?
            .into_iter()
            .try_for_each(&mut *each)?;
    }
    Ok(())
}

impl Bench {
    fn at(&self) -> Result<At> {
        let (status, _) = self.query::<PruneStatus>("get_prune_status", Encode!()?)?;
        let IndexDebt { sweeps, dropped, .. } = status.transaction_index;
        Ok(At { sweeps, dropped, pruned_blocks: status.pruned_blocks })
    }

    /// Appends blocks, and lets the daemon finish after each, until `sweeps` sweeps have ended. Adds up the costs of the timer.
    fn blocks_until(&self, sweeps: u64, policy: &PrunePolicy, most: u64, timer: &mut Totals) -> Result<At> {
        for _ in 0..most {
            self.call::<()>("bench_append", (IDS,))?;
            self.host.take_executions();
            // The daemon's next firing is due, and producers have been silent for longer than a sweep waits.
            self.host.advance_time(Duration::from_secs(policy.timer_interval_secs.max(policy.pause_after_secs + 1)));
            self.drain(timer)?;
            let at = self.at()?;
            if at.sweeps >= sweeps {
                return Ok(at);
            }
        }
        bail!("{sweeps} sweeps have not ended after {most} blocks");
    }

    /// Fires timers until none is due, and adds up their costs.
    fn drain(&self, timer: &mut Totals) -> Result<()> {
        loop {
            self.host.tick();
            let executions = self.host.take_executions();
            if executions.is_empty() {
                return Ok(());
            }
            for execution in &executions {
                completed(execution)?;
                timer.add(execution);
            }
        }
    }

    /// Prunes and sweeps in the steady state.
    fn sweeps(&self, n: u64, policy: &PrunePolicy) -> Result<Figure> {
        let mut timer = Totals::default();
        let from = self.at()?;
        let to = self.blocks_until(from.sweeps + SWEEPS, policy, SWEEPS * PATIENCE * n / IDS, &mut timer)?;
        let references = (to.pruned_blocks - from.pruned_blocks) * IDS;
        let dropped = to.dropped - from.dropped;
        ensure!(
            dropped == references,
            "{references} references were pruned but {dropped} entries dropped: the measurement is incomplete"
        );
        let per = |sum: u128| sum as f64 / references as f64;
        Ok(Figure {
            family: "sweep",
            op: "prune",
            size: 32,
            n,
            instructions: timer.instructions.div_ceil(u128::from(references)) as u64,
            pages_read: per(timer.stable_pages_read),
            pages_written: per(timer.stable_pages_written),
            limit: self.limit("sweep", "prune", 32),
            pages_limit: Some(PAGES_WRITTEN),
            ..Figure::default()
        })
    }

    /// Works off a backlog in rounds of a second. The instructions and pages are the most that one message took.
    fn backlog(&self, n: u64, policy: &PrunePolicy) -> Result<Figure> {
        let switch = |on| {
            let change = PrunePolicyArg { pruning_enabled: Some(on), ..PrunePolicyArg::default() };
            self.done::<PrunePolicyChange, PruneError>("set_prune_policy", Encode!(&change)?)
        };
        switch(false)?;
        let blocks = (n / 4).max(LEAST_BACKLOG) / IDS;
        (0..blocks).try_for_each(|_| self.call::<()>("bench_append", (IDS,)))?;
        switch(true)?;
        let from = self.at()?;
        self.host.advance_time(Duration::from_secs(policy.timer_interval_secs.max(policy.pause_after_secs + 1)));
        self.host.take_executions();
        let (mut seconds, mut instructions, mut read, mut written) = (0, 0, 0, 0);
        loop {
            self.host.run_round();
            let executions = self.host.take_executions();
            executions.iter().try_for_each(completed)?;
            if executions.is_empty() {
                break;
            }
            seconds += 1;
            let most = |of: fn(&Execution) -> u64| executions.iter().map(of).max().unwrap_or_default();
            instructions = most(|execution| execution.instructions).max(instructions);
            read = most(|execution| execution.stable_pages_read).max(read);
            written = most(|execution| execution.stable_pages_written).max(written);
        }
        let to = self.at()?;
        let (pruned, dropped) = ((to.pruned_blocks - from.pruned_blocks) * IDS, to.dropped - from.dropped);
        ensure!(pruned == blocks * IDS && dropped >= pruned, "{pruned} references were pruned and {dropped} dropped");
        Ok(Figure {
            family: "sweep",
            op: "backlog",
            size: 32,
            n,
            instructions,
            pages_read: read as f64,
            pages_written: written as f64,
            limit: Some(policy.max_instructions_per_tick),
            pages_limit: Some(MESSAGE_PAGES),
            per_second: Some(pruned / seconds.max(1)),
            least_per_second: Some(LEAST_PER_SECOND),
            ..Figure::default()
        })
    }

    /// Removes one block's entries one by one.
    fn one_by_one(&self, n: u64) -> Result<Figure> {
        let arg = BenchArg { op: "index.remove".into(), size: 32, rounds: IDS };
        let (figure, _) = self.run(("bench_run", (&arg,)), ("sweep", "prune"), 32, IDS, n)?;
        Ok(Figure { peer: Some("one by one"), ..figure })
    }
}

/// Fails if a message trapped.
fn completed(execution: &Execution) -> Result<()> {
    match &execution.outcome {
        Outcome::Trapped { message, .. } => bail!("{:?} {} trapped: {message}", execution.kind, execution.method),
        _ => Ok(()),
    }
}
