//! Player: sends each message to a canister and to the model, and compares them.

use super::history::Random;
use super::judge;
use coppice_ic::{Backend, Reject};
use coppice_model::documents::{Heights, Id, Rules, Run, Store, Verdict};
use coppice_tests::client::Answered;
use coppice_tests::coppice::{Coppice, Who, default_arg};
use coppice_tests::transactions::Tx;
use ic_coppice_host::{Host, TrapPoint};
use ic_coppice_interface::*;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

/// Values of `max_instructions_per_tick`: one step a tick, a few steps, more, and the default.
pub const PACES: [u64; 4] = [1, 250_000, 600_000, 1_000_000_000];

/// Events of histories, and their counts.
pub type Seen = BTreeMap<&'static str, u64>;

/// Work that remains after some slices.
#[derive(Clone, Debug)]
pub enum Open {
    /// Marking a double spend.
    Conflict(Rc<Tx>),
    /// Letting these double spends win.
    Win(Vec<Id>),
}

/// A canister, the model, and the transactions and blocks that both know.
pub struct Player {
    /// The canister.
    pub coppice: Coppice,
    host: Option<Arc<Host>>,
    /// The model's records.
    pub store: Store,
    /// All transactions ever made.
    pub txs: Vec<Rc<Tx>>,
    /// The chain's height, as its feeder knows it.
    pub tip: u32,
    /// The blocks ever made: id and height.
    pub blocks: Vec<(u32, u32)>,
    /// Unfinished calls in slices.
    pub open: Vec<Open>,
    /// The events so far.
    pub seen: Seen,
    /// The messages so far, one a line.
    pub journal: Vec<String>,
    /// The number of the next step's message that must trap, and the trap point.
    pub trap: Option<(u64, TrapPoint)>,
    /// Factor on the performance counters of the next message, so that its slice ends sooner.
    pub haste: u64,
    /// A chain was made already.
    pub chained: bool,
    jobs: BTreeMap<u64, UtxoPruneJob>,
    /// The message with which a job began its own run, or `None` if it continues another job's run; and whether the run preserves the
    /// parents of all old unmined transactions.
    began: BTreeMap<u64, (Option<u64>, bool)>,
    /// The height of the last run.
    passed: Option<u32>,
    /// The heights of runs that may be under way. A job that times out leaves its run to the next job, with the run's heights. A run whose
    /// settings were changed is finished before another one begins.
    under_way: Vec<Heights>,
    status: UtxoPrunerStatus,
}

impl Player {
    /// A new canister, set up by random numbers.
    pub fn new(random: &mut Random) -> Verdict<Self> {
        let (coppice, host) = match coppice_ic::chosen() {
            Backend::Host => {
                let (coppice, host) = Coppice::embedded(default_arg());
                (coppice, Some(host))
            }
            Backend::PocketIc => (Coppice::new(), None),
        };
        let rules = Rules {
            retention: 10,
            maturity: 5,
            reassign_after: 4,
            batch: [20_000, 20_000, 2, 3][random.below(4) as usize],
            unmined: 5,
            preservation: 20,
        };
        let change = UtxoSettingsChange {
            utxo_batch_size: Some(rules.batch),
            block_height_retention: Some(rules.retention),
            coinbase_maturity: Some(rules.maturity),
            reassign_spendable_after: Some(rules.reassign_after),
            ..UtxoSettingsChange::default()
        };
        coppice.configure(ConfigChange { utxo: Some(change), ..ConfigChange::default() });
        let change = UtxoPrunerSettingsChange {
            parent_preservation_blocks: Some(rules.preservation),
            max_instructions_per_tick: (random.below(2) == 0).then(|| PACES[random.below(3) as usize]),
            ..UtxoPrunerSettingsChange::default()
        };
        coppice.operator().utxo_set_pruner_settings(&change).answer().map_err(|error| format!("{error:?}"))?;
        coppice.grant(Who::Alert, Role::Alert);
        coppice.producer().utxo_set_block_assembly_state(UtxoBlockAssemblyState::Running, None).answer();
        let status = coppice.anyone().utxo_get_pruner_status().answer();
        Ok(Self {
            store: Store::new(rules),
            coppice,
            host,
            txs: Vec::new(),
            tip: 20,
            blocks: Vec::new(),
            open: Vec::new(),
            seen: Seen::new(),
            journal: Vec::new(),
            trap: None,
            haste: 1,
            chained: false,
            jobs: BTreeMap::new(),
            began: BTreeMap::new(),
            passed: None,
            under_way: Vec::new(),
            status,
        })
    }

    /// Counts an event.
    pub fn saw(&mut self, what: &'static str, times: u64) {
        if times > 0 {
            *self.seen.entry(what).or_default() += times;
        }
    }

    /// Returns whether a message of this history has trapped.
    pub fn has_trapped(&self) -> bool {
        self.seen.contains_key("a trap")
    }

    /// Adds a line to the journal.
    pub fn note(&mut self, line: String) {
        self.journal.push(line);
    }

    /// The last status of the pruner.
    pub fn status(&self) -> &UtxoPrunerStatus {
        &self.status
    }

    fn arm(&mut self) -> u64 {
        let Some(host) = &self.host else { return 0 };
        if let Some((k, point)) = self.trap.take() {
            host.faults().trap_message(k, point);
        }
        host.faults().multiply_counters(std::mem::replace(&mut self.haste, 1));
        host.faults().injected()
    }

    fn disarm(&mut self, injected: u64) -> bool {
        let Some(host) = &self.host else { return false };
        host.faults().clear();
        let struck = host.faults().injected() > injected;
        self.saw("a trap", u64::from(struck));
        struck
    }

    /// Makes a call. Returns its answer, or `None` if it trapped as intended, in which case the canister is unchanged.
    pub fn call<A>(&mut self, call: impl FnOnce(&Coppice) -> Result<A, Reject>) -> Verdict<Option<A>> {
        self.store.message += 1;
        let injected = self.arm();
        let answer = call(&self.coppice);
        let struck = self.disarm(injected);
        match answer {
            Ok(answer) => Ok(Some(answer)),
            Err(_) if struck => {
                self.note("  trapped".into());
                self.judge().map(|()| None)
            }
            Err(reject) => Err(format!("rejected: {reject:?}")),
        }
    }

    /// Compares everything after a message that the model has executed, too.
    pub fn judge(&mut self) -> Verdict {
        self.look(false)
    }

    /// Compares everything after a message in which the pruner may have run.
    pub fn judge_run(&mut self) -> Verdict {
        self.look(true)
    }

    fn look(&mut self, may_run: bool) -> Verdict {
        let seen = judge::records(&self.coppice, &self.txs)?;
        let status = self.coppice.anyone().utxo_get_pruner_status().answer();
        let runs = self.runs(&status)?;
        // Timers that a trap has lost fire after a notification, and their missed firings follow the next calls.
        let has_run = status.ticks != self.status.ticks;
        if has_run && !may_run && !self.has_trapped() {
            return Err("the pruner ran in a message in which no timer was due".into());
        }
        let may_run = may_run || has_run;
        let deleted = status.totals.records_deleted - self.status.totals.records_deleted;
        if may_run {
            self.store.most = status.most_height;
            let before = preserved(&self.store);
            let gone = self.store.ran(&runs, &seen)?;
            self.saw("a deletion", gone);
            self.saw("a preservation", preserved_more(&self.store, &before));
            if gone != deleted {
                return Err(format!("{gone} records were deleted, and {deleted} were counted"));
            }
        } else if deleted > 0 {
            return Err(format!("{deleted} records were counted as deleted without a run"));
        }
        let heights = (status.current_height, status.last_persisted_height);
        let expected = (self.store.current, self.store.persisted);
        if heights != expected {
            return Err(format!("the heights are {heights:?}, to be {expected:?}"));
        }
        self.store.most = status.most_height;
        self.status = status;
        judge::spendable(&self.coppice, &self.store, &self.txs, self.tip)?;
        judge::unmined(&self.coppice, &seen, [3, 20, 2_000][self.store.message as usize % 3])?;
        judge::compare(&self.store, &seen, &self.coppice.storage().utxo.unwrap())
    }

    /// The runs that made progress since the last look, by the jobs that show it.
    fn runs(&mut self, status: &UtxoPrunerStatus) -> Verdict<Vec<Run>> {
        let mut jobs = self.coppice.anyone().utxo_list_prune_jobs(None, 12u32).answer().jobs;
        jobs.sort_by_key(|job| job.id);
        let mut runs = Vec::new();
        for job in jobs {
            let before = self.jobs.insert(job.id, job.clone());
            let (Some(current), Some(safe)) = (job.current_height, job.safe_height) else { continue };
            if before.as_ref() == Some(&job) {
                continue;
            }
            let own = Heights { current, safe, unmined: self.store.rules.unmined };
            if before.as_ref().is_none_or(|before| before.current_height.is_none()) {
                self.begins(&job, current, safe)?;
                let continues = !status.skipped.is_empty() || self.under_way.contains(&own);
                let since = self.passed.replace(current).and_then(|passed| current.checked_sub(passed));
                let whole = since.is_none_or(|blocks| blocks >= self.store.rules.preservation / 8);
                self.began.insert(job.id, ((!continues).then_some(self.store.message), whole));
            }
            for heights in &mut self.under_way {
                heights.safe = heights.safe.min(safe);
            }
            if !self.under_way.contains(&own) {
                self.under_way.push(own);
            }
            let done = |job: &UtxoPruneJob| job.state == UtxoJobState::Completed;
            let completed = done(&job) && !before.is_some_and(|before| done(&before));
            self.saw("a job that is done", u64::from(completed));
            self.saw("a job of several ticks", u64::from(completed && job.ticks > 1));
            self.saw("a job that took too long", u64::from(job.end == Some(UtxoJobEnd::TimedOut)));
            let (began, whole) = self.began.get(&job.id).copied().unwrap_or_default();
            runs.extend(self.under_way.iter().map(|&heights| {
                let completed = completed && heights == own;
                Run { heights, began, completed, whole }
            }));
            if job.ended_at_ns.is_some() && job.end != Some(UtxoJobEnd::TimedOut) {
                self.under_way.clear();
            }
        }
        Ok(runs)
    }

    /// Checks the heights of a job that begins.
    fn begins(&self, job: &UtxoPruneJob, current: u32, safe: u32) -> Verdict {
        let store = &self.store;
        let expected = match job.trigger {
            UtxoJobTrigger::Manual if store.current == 0 => job.height,
            UtxoJobTrigger::Manual => job.height.min(store.current),
            _ => store.current,
        };
        let to = [store.persisted, store.assembly].into_iter().flatten().fold(expected, u32::min);
        if (current, safe) == (expected, to) {
            return Ok(());
        }
        Err(format!("a job begins at {current} with {safe} as safe, expected {expected} and {to}: {job:?}"))
    }

    /// Lets time pass, and compares after each round.
    pub fn pass(&mut self, secs: u64) -> Verdict {
        let injected = self.arm();
        let mut judged = false;
        self.coppice.ic.advance_time(Duration::from_secs(secs));
        for round in 1..=5 {
            self.store.message += 1;
            self.coppice.ic.tick();
            // Most rounds have no message of the pruner; its status shows whether one did.
            let now = self.coppice.anyone().utxo_get_pruner_status().answer();
            let progress = |status: &UtxoPrunerStatus| {
                (status.ticks, status.totals, status.running.clone(), status.last_job.clone())
            };
            if (round == 5 && !judged) || progress(&now) != progress(&self.status) {
                judged = true;
                self.judge_run()?;
            }
        }
        self.disarm(injected);
        Ok(())
    }
}

fn preserved(store: &Store) -> BTreeMap<Id, Option<u32>> {
    store.records.iter().map(|(id, record)| (*id, record.preserve_until)).collect()
}

fn preserved_more(store: &Store, before: &BTreeMap<Id, Option<u32>>) -> u64 {
    let more = |(id, until): (&Id, &Option<u32>)| {
        let now = store.records.get(id).and_then(|record| record.preserve_until);
        now.is_some() && now != *until
    };
    before.iter().filter(|one| more(*one)).count() as u64
}
