//! Runs a history on the canister and on the model.

use super::Outcome;
use super::jobs::Cause;
use super::kept::Kept;
use super::memory::Fillers;
use super::steps::{History, Move, Step};
use super::tick::Run;
use super::trapping::{Trapping, is_injected};
use super::view::{Known, View};
use candid::utils::ArgumentEncoder;
use candid::{CandidType, decode_one, encode_args};
use coppice_model::ensure;
use coppice_model::records::{At, Change, Family, Heights, MOST, Records, Setting, Settings, Txid};
use coppice_tests::client::Answered;
use coppice_tests::coppice::{Coppice, Who};
use ic_coppice_host::TrapPoint;
use ic_coppice_interface::*;
use serde::de::DeserializeOwned;
use std::collections::{BTreeMap, BTreeSet};

/// The caller that deletes external blobs.
pub const WORKER: Who = Who::Archive;
/// Seconds between two ticks.
const TICK: u64 = 10;
/// The height at which histories begin.
const TIP: u32 = 60;

/// Events, and how often each was seen.
pub type Seen = BTreeMap<&'static str, u64>;

pub struct Machine {
    pub coppice: Coppice,
    pub family: Family,
    pub records: Records,
    pub settings: Settings,
    pub heights: Heights,
    /// By how much a producer has raised the current and the persisted height since they were set.
    pub drawn: (u32, u32),
    /// The highest height for which a job completed.
    pub processed: u32,
    /// The block assembly runs.
    pub running: bool,
    /// The height of the chain.
    pub tip: u32,
    /// Every job that was ever seen, in its last state.
    pub jobs: BTreeMap<u64, UtxoPruneJob>,
    pub run: Option<Run>,
    /// The last view of the canister.
    pub view: Option<View>,
    /// Transactions whose record a run, or a worker, has deleted.
    pub deleted: BTreeSet<Txid>,
    /// The number of records that ticks have deleted, and of preservations that they have ended.
    pub deleted_by_ticks: u64,
    pub expired: u64,
    /// The current height when a record was made, or when its preservation was set or ended: phase 1 may not have examined it since.
    pub new_since: BTreeMap<Txid, u32>,
    /// The height until which defensive mode does not examine a kept record again.
    pub kept_until: BTreeMap<Txid, Kept>,
    /// The heights were set, and no run was completed since: the next run examines records that would wait too long by the new heights.
    pub recheck_kept: bool,
    /// The `delete_at_height` of each record when it was last seen.
    pub dues: BTreeMap<Txid, Option<u32>>,
    /// The `unmined_since` of each record when it was last seen.
    pub unmined: BTreeMap<Txid, Option<u32>>,
    /// Transactions that were unmined while a parent was due before they are old: a run may preserve all their parents.
    pub endangered: BTreeSet<Txid>,
    /// The longest `unmined_tx_retention` so far.
    pub longest_unmined: u32,
    /// Memory is full, and memory was full at some time.
    pub full: bool,
    pub was_full: bool,
    pub fillers: Fillers,
    /// The records before the last call, if that may have been refused because memory is full.
    pub before_call: Option<Records>,
    /// A tick has trapped.
    pub has_trapped: bool,
    /// A trap may have lost the timer: a notification wakes it, and ticks may follow any message.
    pub timer_lost: bool,
    /// The messages so far, for a report.
    pub journal: Vec<String>,
    pub counts: Seen,
    pub replies: Known,
    messages: u16,
    upgrades: BTreeSet<u16>,
    traps: BTreeMap<u16, TrapPoint>,
    trapping: Trapping,
}

impl Machine {
    /// Starts a history on a new canister.
    pub fn new(coppice: Coppice, trapping: Trapping, history: &History) -> Outcome<Self> {
        let mut machine = Self {
            coppice,
            family: Family::new(&history.transactions),
            records: Records::default(),
            settings: Settings::default(),
            heights: Heights::default(),
            drawn: (0, 0),
            processed: 0,
            running: false,
            tip: TIP,
            jobs: BTreeMap::new(),
            run: None,
            view: None,
            deleted: BTreeSet::new(),
            deleted_by_ticks: 0,
            expired: 0,
            new_since: BTreeMap::new(),
            kept_until: BTreeMap::new(),
            recheck_kept: false,
            dues: BTreeMap::new(),
            unmined: BTreeMap::new(),
            endangered: BTreeSet::new(),
            longest_unmined: 0,
            full: false,
            was_full: false,
            fillers: Fillers::default(),
            before_call: None,
            has_trapped: false,
            timer_lost: false,
            journal: Vec::new(),
            counts: Seen::new(),
            replies: Known::new(),
            messages: 0,
            upgrades: BTreeSet::new(),
            traps: BTreeMap::new(),
            trapping,
        };
        let roles = [(Who::Alert, Role::Alert), (WORKER, Role::BlobWorker), (Who::Controller, Role::Producer)];
        for (who, role) in roles {
            let grant = Grant { principal: who.principal(), role };
            machine
                .call::<Result<(), RoleError>>(Who::Controller, "grant_role", (grant,))?
                .map_err(|e| format!("{e:?}"))?;
        }
        machine.look(Cause::Nothing)?;
        for setting in &history.settings {
            machine.set(*setting)?;
        }
        machine.assembly(history.running)?;
        machine.upgrades.clone_from(&history.upgrades);
        if machine.trapping.can() {
            machine.traps.clone_from(&history.traps);
        }
        machine.messages = 0;
        Ok(machine)
    }

    /// Sends a message and returns its answer. The canister may be upgraded before the message. The message may trap: then nothing has
    /// changed, and it is sent again.
    pub fn call<R: DeserializeOwned + CandidType>(
        &mut self,
        who: Who,
        method: &str,
        args: impl ArgumentEncoder,
    ) -> Outcome<R> {
        let trap = self.message()?;
        self.before_call = self.full.then(|| self.records.clone());
        let arg = encode_args(args).expect("it encodes");
        if let Some(point) = trap.filter(|_| !self.timer_lost) {
            self.trapping.begin(point);
            let reply = self.coppice.ic.update(self.coppice.id, who.principal(), method, arg.clone());
            self.trapping.end();
            match reply {
                Ok(reply) => return decode_one(&reply).map_err(|error| format!("{method}: {error}")),
                Err(reject) if !is_injected(&reject) => return Err(format!("{method}: {reject:?}")),
                Err(_) => {}
            }
            self.note(format!("{method} traps, {point:?}"));
            self.seen("a call trapped");
            self.look(Cause::Nothing).map_err(|why| format!("after a trap in {method}: {why}"))?;
        }
        let reply = self.coppice.ic.update(self.coppice.id, who.principal(), method, arg);
        let reply = reply.map_err(|reject| format!("{method}: {reject:?}"))?;
        if self.timer_lost {
            self.coppice.pass(0);
        }
        decode_one(&reply).map_err(|error| format!("{method}: {error}"))
    }

    /// Counts the next message, and upgrades the canister before it if the history says so. Returns the trap point of the message.
    fn message(&mut self) -> Outcome<Option<TrapPoint>> {
        self.messages += 1;
        let trap = self.traps.get(&self.messages).copied();
        if self.upgrades.contains(&self.messages) {
            self.note("upgrade".into());
            self.upgrade()?;
        }
        Ok(trap)
    }

    pub fn upgrade(&mut self) -> Outcome {
        self.coppice.upgrade_with(None).map_err(|reject| format!("upgrade: {reject:?}"))?;
        if let Some(run) = self.run.as_mut().filter(|_| self.view.as_ref().is_some_and(|s| s.status.running.is_some()))
        {
            run.upgraded = true;
        }
        self.timer_lost = false;
        self.look(Cause::Nothing).map_err(|why| format!("after an upgrade: {why}"))
    }

    pub fn note(&mut self, what: String) {
        self.journal.push(what);
    }

    pub fn seen(&mut self, what: &'static str) {
        self.seen_often(what, 1);
    }

    pub fn seen_often(&mut self, what: &'static str, times: u64) {
        *self.counts.entry(what).or_default() += times;
    }

    /// The arguments of the model for an operation at this height.
    pub fn at(&self, height: u32) -> At {
        let (current, jump) = (self.heights.current, self.settings.pruner.max_height_jump);
        // The allowance does not refill within a history.
        let most = if current == 0 { MOST } else { MOST.min(current + (jump - self.drawn.0)) };
        At { height, retention: self.settings.utxo.block_height_retention, most }
    }

    /// An operation touches a record: a run that is under way may have examined it already.
    pub fn touch(&mut self, txid: Txid) {
        if let Some(run) = &mut self.run {
            run.touched.insert(txid);
        }
    }

    pub fn step(&mut self, one: &Move) -> Outcome {
        self.tip += u32::from(one.blocks);
        let height = one.edge.unwrap_or(self.tip - u32::from(one.lag));
        match one.step {
            Step::Set(setting) => self.set(setting),
            Step::Assembly(running) => self.assembly(running),
            Step::Persisted(above) => self.persisted(self.tip.saturating_add_signed(above.into())),
            Step::Block(above, mined) => self.block(self.tip.saturating_add_signed(above.into()), mined),
            Step::Persister(behind) => self.persister(behind),
            Step::Edge(height, how) => match how % 3 {
                0 => self.persisted_at_most(height),
                1 => self.block_at_most(height, how & 4 == 0),
                _ => self.prune_edge(height),
            },
            Step::Heights(above, behind, processed) => {
                let current = self.tip.saturating_add_signed(above.into());
                let persisted = behind.map(|behind| current - u32::from(behind));
                let processed = persisted.unwrap_or(current).saturating_sub(processed.into());
                self.utxo_set_heights(current, persisted, processed)
            }
            Step::Wrong { height, how, ticks } => self.wrong(height, how, ticks),
            Step::Storm(ticks, point) => self.storm(ticks, point),
            Step::Memory(full) => self.memory(full),
            Step::Cancel => self.cancel(),
            Step::Prune(above) => self.prune(self.tip.saturating_add_signed(above.into())),
            Step::Reorg { depth, ticks, again } => self.reorg(depth, ticks, again),
            Step::Tick(ticks) => (0..ticks).try_for_each(|_| self.tick()),
            Step::Work { done, failed, max_retries } => self.work(done, failed, max_retries),
            Step::Retry(pick) => self.retry(pick),
            ref step => self.operation(step, height),
        }
    }

    pub fn tick(&mut self) -> Outcome {
        let trap = self.message()?;
        self.tick_that(trap)
    }

    /// A tick of which every message that reaches the point traps.
    fn tick_that(&mut self, traps: Option<TrapPoint>) -> Outcome {
        let before = self.trapping.struck();
        if let Some(point) = traps {
            self.trapping.begin(point);
        }
        self.coppice.pass(TICK);
        let trapped = self.trapping.struck() > before;
        self.trapping.end();
        self.note(if trapped { format!("a tick traps, {traps:?}") } else { "tick".into() });
        if trapped {
            self.seen("a tick trapped");
            (self.has_trapped, self.timer_lost) = (true, true);
        }
        let ticks = |machine: &Self| machine.view.as_ref().map_or(0, |view| view.status.ticks);
        let times = ticks(self);
        self.look(Cause::Tick)?;
        self.timer_lost &= trapped || ticks(self) <= times;
        self.retry_skipped()
    }

    /// Lets ticks trap one after another, until later ticks do less.
    pub fn storm(&mut self, ticks: u8, point: TrapPoint) -> Outcome {
        let point = if self.trapping.can() { Some(point) } else { None };
        (0..ticks).try_for_each(|_| self.tick_that(point))
    }

    /// If ticks trap repeatedly, the next record is skipped: an operator retries it.
    fn retry_skipped(&mut self) -> Outcome {
        let skipped = self.view.as_ref().expect("it was looked at").status.skipped.clone();
        for UtxoSkipped { slot, txid, .. } in skipped {
            ensure!(self.has_trapped, "{} is skipped without a trap", self.family.name(&txid));
            self.note(format!("utxo_skip_record({slot}, false)"));
            self.seen("a skipped record is retried");
            let answer: Result<(), UtxoPrunerError> = self.call(Who::Controller, "utxo_skip_record", (slot, false))?;
            // Several skipped records may have the same slot.
            ensure!(
                matches!(answer, Ok(()) | Err(UtxoPrunerError::NotBlocking)),
                "utxo_skip_record({slot}, false): {answer:?}"
            );
            self.look(Cause::Nothing)?;
        }
        Ok(())
    }

    pub fn set(&mut self, setting: Setting) -> Outcome {
        // A page per output makes thousands of pages, which show no more than a few full ones.
        let setting = match setting {
            Setting::Page(outputs) if outputs < 300 && self.family.has_large() => Setting::Page(400 * outputs),
            // Unmined transactions must become old before their parents are deleted: the canister refuses other settings.
            Setting::UtxoUnminedRetention(UtxoUnminedRetention::Blocks(blocks)) => {
                let most = self.settings.utxo.block_height_retention.checked_sub(1).unwrap_or(blocks);
                Setting::UtxoUnminedRetention(UtxoUnminedRetention::Blocks(blocks.min(most)))
            }
            Setting::Retention(to) if to > 0 && self.settings.unmined_retention() >= to => {
                self.set(Setting::UtxoUnminedRetention(UtxoUnminedRetention::Blocks(to - 1)))?;
                setting
            }
            other => other,
        };
        self.note(format!("{setting:?}"));
        let mut expected = self.settings.clone();
        expected.apply(setting);
        match setting.change() {
            Change::Pruner(change) => {
                let set: Result<UtxoPrunerSettings, UtxoPrunerError> =
                    self.call(Who::Controller, "utxo_set_pruner_settings", (change,))?;
                ensure!(set.as_ref() == Ok(&expected.pruner), "{setting:?}: {set:?}");
                let shown: UtxoPrunerSettings = self.coppice.anyone().utxo_get_pruner_status().answer().settings;
                ensure!(shown == expected.pruner, "the settings are {shown:?}");
            }
            Change::Utxo(change) => {
                let change = ConfigChange { utxo: Some(change), ..ConfigChange::default() };
                let set: Result<Config, ConfigError> = self.call(Who::Controller, "set_config", (change,))?;
                let utxo = set.map(|config| config.utxo.unwrap());
                ensure!(utxo.as_ref() == Ok(&expected.utxo), "{setting:?}: {utxo:?}");
            }
            Change::Floor(cycles) => {
                let change = ConfigChange {
                    min_liquid_cycles: Some(cycles),
                    feed_min_liquid_cycles: Some(1),
                    ..ConfigChange::default()
                };
                let set: Result<Config, ConfigError> = self.call(Who::Controller, "set_config", (change,))?;
                ensure!(set.is_ok(), "{setting:?}: {set:?}");
            }
        }
        self.settings = expected;
        self.look(Cause::Nothing)
    }

    pub fn assembly(&mut self, running: bool) -> Outcome {
        self.note(format!("the assembly {}", if running { "runs" } else { "stops" }));
        let state = if running { UtxoBlockAssemblyState::Running } else { UtxoBlockAssemblyState::NotRunning };
        self.call::<()>(Who::Producer, "utxo_set_block_assembly_state", (state, None::<u32>))?;
        self.running = running;
        // A stopped run begins anew, even if no tick saw the stop.
        if !running && self.view.as_ref().is_some_and(|view| view.status.running.is_some()) {
            self.run = None;
        }
        self.look(if running { Cause::Nothing } else { Cause::Stopped })
    }
}
